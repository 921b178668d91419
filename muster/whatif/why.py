"""The reason why a PodGroup waits, as a value: its stage, the limit, the groups ahead, its needs, and the changes that would help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from muster.ledger.report import QuotaUsage, report
from muster.model import kinds
from muster.model.objects import PodGroup, Queue
from muster.model.text import counted
from muster.whatif import evictions, missing_actions, missing_pods, remedies
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import ledger_view
from muster.whatif.effort import EffortSpentError
from muster.whatif.quotas import QuotaShortage
from muster.whatif.trials import Remedy, shown
from scheduler.actions.enqueue import Enqueue
from scheduler.engine import lifecycle
from scheduler.engine.requeue import EnqueueArguments
from scheduler.model.obstacle import Stage
from scheduler.model.plan import Plan, QueueShare
from scheduler.model.records import Record
from scheduler.model.snapshot import GroupKey, JobInfo, Phase, TaskStatus

_LACKS_NODES: Final = frozenset({Stage.ENQUEUE, Stage.NODES})
_LACKS_ROOM: Final = _LACKS_NODES | {Stage.QUEUE}


class Explanation(Struct, frozen=True):
    """What is known of a group. Without a record it doesn't wait.

    Attributes:
        needs: what it asks for, a sentence.
        title: what people know it by.
        held: whether it waits for its user to resume its Job.
        autoscaling: whether nodes are made for it, a sentence; empty where it lacks none, or nobody admits groups.
        grows: whether it runs, and the record is of its pods beyond the minimum: so many wait.
        makers: who creates the pods that are missing, a sentence; empty where none is.
        evictions: who is evicted for it and until when it waits for them, or why nobody is, a sentence each.
        timeout: when it goes back to Pending, a sentence; empty where it isn't admitted.
        share: what its queue deserves, has and doesn't take back, a sentence; empty where it isn't so.
        tried: what was tried in vain, where nothing helps.
        failing: what is wrong with its pods beside their placement, a sentence; empty where nothing is.
        warnings: annotations that can't be meant as they are written, a sentence each.
        ahead: the groups of its queue that have their turn before it: (name, title).
        changes: what would let it start, each by itself.
        incomplete: whether it took too long to try what else might let it start.
        quotas: where its namespace's quotas stand.
    """

    key: GroupKey
    group: PodGroup
    taken: datetime
    record: Record | None = None
    needs: str = ""
    ahead: tuple[tuple[str, str], ...] = ()
    changes: tuple[Remedy, ...] = ()
    queue: Queue | None = None
    shares: QueueShare | None = None
    quotas: tuple[QuotaUsage, ...] = ()
    title: str = ""
    held: bool = False
    autoscaling: str = ""
    grows: int = 0
    makers: str = ""
    evictions: tuple[str, ...] = ()
    timeout: str = ""
    share: str = ""
    tried: str = ""
    warnings: tuple[str, ...] = ()
    failing: str = ""
    incomplete: bool = False

    def data(self) -> dict[str, Any]:
        """Write it for programs."""
        if self.record is None:
            status = self.group.status
            told = {"podGroup": str(self.key), "phase": status.phase or "Pending", "running": status.running}
            return told | ({"failing": self.failing} if self.failing else {})
        told = self.record.data() | {"needs": self.needs, "ahead": [name for name, _ in self.ahead]}
        sentences = (
            ("autoscaling", self.autoscaling),
            ("missingPods", self.makers),
            ("timeout", self.timeout),
            ("share", self.share),
            ("tried", self.tried),
            ("failing", self.failing),
        )
        told |= {name: text for name, text in sentences if text} | ({"podsWaiting": self.grows} if self.grows else {})
        told |= {"evictions": list(self.evictions)} if self.evictions else {}
        told |= {"warnings": list(self.warnings)} if self.warnings else {}
        return told | {"changes": [each.data | {"text": each.text} for each in self.changes]}


def ask(cluster: WhatIfCluster, key: GroupKey, *, trying: bool = True) -> Explanation:
    """Find out why a group waits, and, where ``trying``, which changes would let it start: these take most of the time."""
    group = cluster.group(key)
    assert group is not None, "it was found just now"
    if cluster.job(key).next_holding is not None and key not in cluster.shortages:
        cluster.reserve()
    plan = cluster.decide(growing=[key])
    record = plan.records.get(key)
    if record is None:
        return Explanation(key, group, cluster.state.taken, title=cluster.title(key), failing=_failing(cluster, key))
    (per_resource, shortage), job = _quotas(cluster, key), cluster.job(key)
    changes, incomplete = _helping(remedies.changes(cluster, key, record, shortage) if trying else ())
    grows = plan.groups[key].phase is Phase.RUNNING
    return Explanation(
        key,
        group,
        cluster.state.taken,
        record,
        needs=needs(job),
        ahead=tuple((str(each), cluster.title(each)) for each in _ahead(plan, record)),
        changes=changes,
        queue=cluster.state.find(kinds.QUEUES, record.queue),
        shares=plan.queues.get(record.queue),
        quotas=per_resource,
        title=cluster.title(key),
        held=bool(job.inadmissible),
        autoscaling=_autoscaling(cluster) if record.stage in _LACKS_NODES else "",
        grows=plan.tasks.get(key, {}).get(TaskStatus.PENDING, 0) if grows else 0,
        makers=missing_pods.sentence(cluster, job, stuck=record.stage is Stage.GANG)
        if record.stage is not Stage.BIND and not job.finished
        else "",
        evictions=tuple(evictions.sentences(cluster, plan, record)),
        timeout=_timeout(cluster, group) if record.stage in {Stage.GANG, Stage.NODES} else "",
        share=missing_actions.share(cluster.policy, record.queue, plan.queues.get(record.queue))
        if record.stage in _LACKS_ROOM
        else "",
        tried="" if changes or incomplete or not trying else remedies.tried(cluster, record),
        warnings=missing_pods.warnings(cluster, key),
        failing=_failing(cluster, key),
        incomplete=incomplete,
    )


def _helping(changes: Iterable[Remedy]) -> tuple[tuple[Remedy, ...], bool]:
    """Return what was found to help, and whether the search for more took too long."""
    found: list[Remedy] = []
    try:
        found.extend(changes)
    except EffortSpentError:
        return tuple(found), True
    return tuple(found), False


def _failing(cluster: WhatIfCluster, key: GroupKey) -> str:
    """Say what is wrong with a group's pods; where these are gone, what the group remembers of it."""
    now, kept = cluster.job(key).failing, lifecycle.failing(cluster.job(key).conditions)
    return now.message if now is not None else kept.message if kept is not None else ""


def _timeout(cluster: WhatIfCluster, group: PodGroup) -> str:
    """Say when a group that was admitted goes back to Pending."""
    arguments = cluster.policy.arguments.get(Enqueue.name)
    if not cluster.policy.enqueues or not isinstance(arguments, EnqueueArguments):
        return ""
    if group.status.phase != Phase.INQUEUE.value:
        return ""
    seconds = arguments.requeue_after(scales=arguments.scales(cluster.snapshot()))
    since = group.status.last_phase_transition_time
    began = f" (Inqueue since {since:%H:%M:%S} UTC)" if since is not None else ""
    return f"{seconds:g} s after something last happened to it; then it returns to Pending{began}"


def _autoscaling(cluster: WhatIfCluster) -> str:
    """Say whether the scheduler counts on an autoscaler, and why."""
    arguments = cluster.policy.arguments.get(Enqueue.name)
    if not cluster.policy.enqueues or not isinstance(arguments, EnqueueArguments):
        return ""
    seen, scales = cluster.state.autoscaler, arguments.scales(cluster.snapshot())
    if arguments.autoscaling != "auto":
        return f"{'on' if scales else 'off'}, by the scheduler's configuration"
    if not seen:
        return "off: no autoscaler was seen (auto)"
    return f"on: {seen} was seen (auto); one PodGroup of each queue is admitted before it has nodes"


def needs(job: JobInfo) -> str:
    """Say what a group asks for."""
    requests: dict[str, int] = {}
    for task in job.tasks:
        requests[shown(task.task_class.request)] = requests.get(shown(task.task_class.request), 0) + 1
    for each in job.expected_pods:
        text = shown(each.task_class.request)
        requests[text] = requests.get(text, 0) + each.count
    pods = [f"{counted(count, 'pod')}{f' of {text}' if text else ''}" for text, count in requests.items()]
    least = [f"at least {job.min_member} of them together"] if job.min_member > 1 else []
    stated = [f"minResources {shown(job.min_resources)}"] if job.min_resources else []
    return "; ".join([" and ".join(pods) or "pods that do not exist yet", *least, *stated])


def _ahead(plan: Plan, record: Record) -> Iterator[GroupKey]:
    others = [each for each in plan.records.values() if each.queue == record.queue and each.ahead < record.ahead]
    waiting = [each for each in others if each.stage is not Stage.BIND]
    return (each.key for each in sorted(waiting, key=lambda each: each.ahead))


def _quotas(cluster: WhatIfCluster, key: GroupKey) -> tuple[tuple[QuotaUsage, ...], QuotaShortage]:
    """Return where the namespace's quotas stand, and what they lack for a group that holds nothing, or too little."""
    state = cluster.state
    table = state.ledger(key.namespace)
    if table is None:
        return (), QuotaShortage()
    view = ledger_view(state, key.namespace, cluster.schedulers)
    outside = table.outside(view).items()
    short = next((lacks for each, lacks in outside if each.name == key.name), cluster.shortages.get(key, ()))
    return report(key.namespace, "", "", table, view).quotas, QuotaShortage(short, table.holders(view, short))
