"""The evictions for a group: who leaves for it, until when it waits for them, or why nobody does. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from muster.model import grouping, kinds
from muster.model.objects import Pod
from muster.model.text import counted, few, listed
from muster.whatif.cluster import WhatIfCluster
from scheduler.engine.cycle import outlooks
from scheduler.model.obstacle import Reason, Stage
from scheduler.model.plan import Eviction, Plan
from scheduler.model.records import EvictionOutlook, Record
from scheduler.model.snapshot import GroupKey

_LACKS_ROOM: Final = frozenset({Stage.ENQUEUE, Stage.NODES, Stage.QUEUE})
_NAMED: Final = 5
"""Groups or nodes that are named."""


def sentences(cluster: WhatIfCluster, plan: Plan, record: Record) -> Iterator[str]:
    """Say what evictions come to for a group that waits, by what the scheduler decides now."""
    mine = [each for each in plan.evictions if each.beneficiary == record.key]
    if mine:
        yield f"the scheduler's next cycle evicts {written(cluster, mine)}"
        return
    nodes = {bind.node for bind in plan.pipelined if bind.group == record.key}
    if nodes:
        yield from _leaving(cluster, nodes)
    elif record.stage in _LACKS_ROOM and record.reason is Reason.NOT_ENOUGH_RESOURCES:
        yield from (each.sentence() for each in _outlooks(cluster, record.key))


def _outlooks(cluster: WhatIfCluster, key: GroupKey) -> tuple[EvictionOutlook, ...]:
    """Say why nobody is evicted for a group, where that is so."""
    found = outlooks(cluster.seen(), cluster.policy, cluster.now, key)
    if any(each.unknown for each in found) and cluster.learn_victims():
        found = outlooks(cluster.seen(), cluster.policy, cluster.now, key)
    return found


def written(cluster: WhatIfCluster, evictions: Iterable[Eviction]) -> str:
    """Write who is evicted: ``3 pods: 2 of Job team/a and 1 of PodGroup team/b``."""
    groups = Counter(cluster.title(each.group) for each in evictions)
    if len(groups) == 1:
        ((title, count),) = groups.items()
        return f"{counted(count, 'pod')} of {title} for it"
    parts = [f"{count} of {title}" for title, count in groups.most_common()]
    return f"{counted(groups.total(), 'pod')} for it: {few(parts, _NAMED)}"


def _leaving(cluster: WhatIfCluster, nodes: Iterable[str]) -> Iterator[str]:
    """Say which pods that are being deleted it waits for, and until when these have to be gone."""
    there = set(nodes)
    found = [
        (pod.metadata.deletion_timestamp, pod) for pod in cluster.state.of(kinds.PODS) if pod.spec.node_name in there
    ]
    pods, ends = [pod for end, pod in found if end is not None], [end for end, _ in found if end is not None]
    if not pods:
        return
    last = max(ends)
    leave = f"{counted(len(pods), 'pod')} {'leaves' if len(pods) == 1 else 'leave'}"
    who = listed(sorted({_owner(cluster, pod) for pod in pods})[:_NAMED])
    where = few(sorted({pod.spec.node_name for pod in pods}), _NAMED)
    when = f"gone by {last:%H:%M:%S} UTC at the latest"
    if last < cluster.state.taken:
        when = f"due to be gone since {last:%H:%M:%S} UTC: a finalizer, or a node that does not answer, holds them"
    yield f"{leave} {where} ({who}), {when}"


def _owner(cluster: WhatIfCluster, pod: Pod) -> str:
    name = grouping.group_of(pod.metadata)
    keys = (GroupKey(kind.group, pod.namespace, name) for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS))
    known = next((key for key in keys if cluster.group(key) is not None), None)
    return cluster.title(known) if known is not None else f"Pod {pod.namespace}/{pod.name}"
