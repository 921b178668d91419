"""Actions that the scheduler's configuration doesn't list, where one of them would let a group start. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from muster.whatif import trials
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.policies import EVICTING, evicting, with_action
from muster.whatif.satisfied_groups import may_lose
from muster.whatif.trials import Remedy
from scheduler.engine.policy import Policy
from scheduler.model.plan import QueueShare
from scheduler.model.records import Record


def share(policy: Policy, queue: str, stands: QueueShare | None) -> str:
    """Say that a queue has less than it deserves and nobody takes that back; empty where it isn't so."""
    if stands is None or stands.deserved is None or any(each.name == "reclaim" for each in policy.actions):
        return ""
    # Of what isn't divided, as the number of pods, a queue deserves no amount.
    lacking = (stands.deserved - stands.allocated).positive()
    lacking = lacking.only([name for name in lacking if name != "pods"])
    if not lacking:
        return ""
    deserves, has = stands.deserved.only(lacking), stands.allocated.only(lacking)
    return (
        f"queue {queue} deserves {trials.shown(deserves)} and has {trials.shown(has) or '0'}; the action reclaim isn't"
        " configured"
    )


def remedies(cluster: WhatIfCluster, record: Record) -> Iterator[Remedy]:
    """Try each action that evicts and isn't configured, with its own defaults."""
    names = [name for name in EVICTING if name not in set(evicting(cluster.policy))] if cluster.running() else []
    names = [name for name in names if _may_help(cluster, record.queue, name)]
    state = cluster.state_now() if names else cluster.state
    for name in names:
        other = cluster.made_of(state, with_action(cluster.policy, name))
        with other.assuming():
            started = other.run_until_idle([record.key]).started
        if started:
            text = f"the action {name} in the scheduler's configuration: {_would(name, record.queue)}"
            yield Remedy(text, {"kind": "action", "action": name})


def _may_help(cluster: WhatIfCluster, queue: str, name: str) -> bool:
    """Whether there is somebody whom an action may evict for a group of a queue: to play it in a large cluster takes long."""
    jobs = (job for job in cluster.snapshot().jobs if (job.queue == queue) is (name == "preempt"))
    return may_lose(jobs, with_action(cluster.policy, name), name)


def tried(cluster: WhatIfCluster) -> str:
    """Say which actions were tried, for who is told that nothing helps."""
    names = [name for name in EVICTING if name not in set(evicting(cluster.policy))]
    return (
        f"the {'action' if len(names) == 1 else 'actions'} {' and '.join(names)}" if names and cluster.running() else ""
    )


def _would(name: str, queue: str) -> str:
    if name == "reclaim":
        return f"it takes back what queue {queue} deserves from queues that have more"
    return f"it takes pods of queue {queue} that are less important, or more than their PodGroups stated"
