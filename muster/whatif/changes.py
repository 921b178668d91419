"""Changes that an administrator can make, and their effects: drained nodes, other weights, more nodes. Pure.

The scheduler's own decisions are taken twice, on the cluster as it is and as it would be, until nothing more comes of them; nothing that
runs ends meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Final, NamedTuple

from msgspec import Meta as Limits
from msgspec import Struct, field
from msgspec.structs import replace

from muster.model import grouping, kinds
from muster.model.objects import Node, Pod, PodStatus
from muster.whatif import adjustments
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import ClusterObjects, with_objects
from muster.whatif.overview import Amounts, amounts_of
from scheduler.engine.policy import Policy
from scheduler.model.plan import Plan
from scheduler.model.snapshot import GroupKey

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_NAME: Final = "added-{}.muster.sh"
_LISTED: Final = 5
_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"

Count = Annotated[int, Limits(ge=1, le=1000)]
Weight = Annotated[int, Limits(ge=1, le=1_000_000)]


class AddedNodes(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """More nodes like one that there is, empty."""

    like: str
    count: Count = 1


class Changes(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is supposed: nodes to drain, weights by queue, and nodes to add."""

    drain: tuple[str, ...] = ()
    weights: dict[str, Weight] = field(default_factory=dict)
    add: tuple[AddedNodes, ...] = ()


class Affected(Struct, frozen=True, rename="camel"):
    """A group that something happens to: to how many of its pods, and what."""

    namespace: str
    name: str
    title: str
    queue: str
    pods: int = 0
    message: str = ""


class ShareChange(Struct, frozen=True, rename="camel"):
    """What a queue uses and deserves without the changes and with them, once nothing more comes of either."""

    name: str
    used: tuple[Amounts, Amounts]
    deserved: tuple[Amounts, Amounts]


class Effects(Struct, frozen=True, rename="camel"):
    """What comes of changes.

    Attributes:
        starts: groups that start with them, and not without.
        waits: groups that start without them, and don't with them.
        displaced: groups with pods on drained nodes: how many, and how many of these find another node.
        evicted: groups that lose pods to others with the changes.
        queues: those of which a share is another.
        waiting: how many groups wait in the end, without the changes and with them.
    """

    starts: tuple[Affected, ...]
    waits: tuple[Affected, ...]
    displaced: tuple[Affected, ...]
    evicted: tuple[Affected, ...]
    queues: tuple[ShareChange, ...]
    waiting: tuple[int, int]


class _Run(NamedTuple):
    """A cluster after its decisions: who had no nodes before, and still hasn't; the pods' nodes, who was evicted, and the last decision."""

    cluster: WhatIfCluster
    started: frozenset[GroupKey]
    placed: Mapping[str, str]
    evicted: Counter[GroupKey]
    last: Plan


class ChangeableCluster:
    """A cluster that one asks about changes. What becomes of it without any is found once."""

    def __init__(self, state: ClusterObjects, policy: Policy, schedulers: Sequence[str]) -> None:
        self.state = state
        self.policy = policy
        self.schedulers = schedulers

    @cached_property
    def unchanged(self) -> _Run:
        """What becomes of it without changes."""
        return _run(WhatIfCluster(self.state, self.policy, self.schedulers))

    def effects(self, changes: Changes) -> Effects:
        """Return what changes come to.

        Raises:
            ValueError: they name a node or a queue that isn't there, or there are none.
        """
        moved = list(_moved(self.state, changes.drain))
        after_state = _changed(self.state, changes, moved)
        return _effects(
            self.state, changes, moved, self.unchanged, _run(WhatIfCluster(after_state, self.policy, self.schedulers))
        )


def _effects(state: ClusterObjects, changes: Changes, moved: Sequence[Pod], before: _Run, after: _Run) -> Effects:
    # Groups that have no nodes because theirs were drained are told of as displaced.
    there = {_home(pod) for pod in _placed_on(state, changes.drain)}
    new = [key for key in after.started - before.started if (key.namespace, key.name) not in there]
    lost = [key for key in before.started - after.started if (key.namespace, key.name) not in there]
    return Effects(
        tuple(_affected(before.cluster, sorted(new))),
        tuple(_affected(before.cluster, sorted(lost), after.last)),
        tuple(_displaced(state, changes.drain, moved, after)),
        tuple(_evicted(before.cluster, after.evicted - before.evicted)),
        tuple(_shares(before.last, after.last)),
        (_waiting(before), _waiting(after)),
    )


def _run(cluster: WhatIfCluster) -> _Run:
    before = frozenset(cluster.waiting())
    outcome = cluster.run_until_idle([*cluster.running(), *before], to_rest=True)
    pods = cluster.state_now().of(kinds.PODS)
    placed = {pod.metadata.uid: pod.spec.node_name for pod in pods if pod.spec.node_name}
    evicted = Counter(each.group for each in outcome.evictions)
    assert outcome.last is not None, "it decides at least once"
    return _Run(cluster, before & outcome.started.keys(), placed, evicted, outcome.last)


def _waiting(run: _Run) -> int:
    return len(run.cluster.waiting())


# ── the changes ──────────────────────────────────────────────────────────────────────────────────────────────────


def _changed(state: ClusterObjects, changes: Changes, moved: Iterable[Pod]) -> ClusterObjects:
    if not (changes.drain or changes.weights or changes.add):
        raise ValueError("nothing is changed: name nodes to drain, a weight, or nodes to add")
    nodes = [_drained(_node(state, name, "drain")) for name in changes.drain]
    for each in changes.add:
        like = _node(state, each.like, "add")
        nodes += adjustments.called([_fresh(like)] * each.count, f"{each.like}-{_NAME}")
    queues = []
    for name, weight in changes.weights.items():
        queue = state.find(kinds.QUEUES, name)
        if queue is None:
            raise ValueError(f"weights: there is no queue {name!r}")
        queues.append(replace(queue, spec=replace(queue.spec, weight=weight)))
    gone = _placed_on(state, changes.drain)
    left = with_objects(state, {kinds.NODES: nodes, kinds.QUEUES: queues}, {kinds.PODS: gone})
    return with_objects(left, {kinds.PODS: moved})


def _node(state: ClusterObjects, name: str, what: str) -> Node:
    found = state.find(kinds.NODES, name)
    if found is None:
        known = sorted(each.name for each in state.of(kinds.NODES))
        more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
        raise ValueError(f"{what}: there is no node {name!r}; there are {', '.join(known[:_LISTED])}{more}")
    return found


def _drained(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, unschedulable=True))


def _fresh(node: Node) -> Node:
    """Return a node as a new one would be: it takes pods."""
    taints = tuple(each for each in node.spec.taints or () if each.key != _UNSCHEDULABLE)
    return replace(node, spec=replace(node.spec, unschedulable=False, taints=taints or None))


def _placed_on(state: ClusterObjects, nodes: Sequence[str]) -> list[Pod]:
    """Return the pods that a drain of nodes takes away: all but those of DaemonSets, and those that are over."""
    drained = frozenset(nodes)
    return [
        pod
        for pod in state.of(kinds.PODS)
        if pod.spec.node_name in drained and pod.status.phase not in _ENDED and not _is_daemon(pod)
    ]


def _is_daemon(pod: Pod) -> bool:
    owner = pod.metadata.controller()
    return owner is not None and owner.kind == "DaemonSet"


def _moved(state: ClusterObjects, nodes: Sequence[str]) -> Iterator[Pod]:
    """Return the pods that controllers make in the place of those that are drained; of others nobody makes another."""
    for pod in _placed_on(state, nodes):
        if pod.metadata.controller() is not None:
            meta = replace(
                pod.metadata, name=f"{pod.name}-again", uid=f"{pod.metadata.uid}-again", creation_timestamp=state.taken
            )
            yield replace(pod, metadata=meta, spec=replace(pod.spec, node_name=""), status=PodStatus(phase="Pending"))


# ── what comes of them ───────────────────────────────────────────────────────────────────────────────────────────


def _home(pod: Pod) -> tuple[str, str]:
    return pod.namespace, grouping.group_of(pod.metadata)


def _affected(cluster: WhatIfCluster, keys: Iterable[GroupKey], after: Plan | None = None) -> Iterator[Affected]:
    """Return groups, with the reason that they wait for ``after`` the changes."""
    records = after.records if after is not None else {}
    for key in keys:
        record = records.get(key)
        yield _group(cluster, key, message=record.message if record is not None else "")


def _group(cluster: WhatIfCluster, key: GroupKey, pods: int = 0, message: str = "") -> Affected:
    group = cluster.group(key)
    owner = grouping.owner_of(group.metadata) if group is not None else ""
    return Affected(key.namespace, key.name, grouping.called(key.name, owner), cluster.queue_of(key), pods, message)


def _displaced(state: ClusterObjects, nodes: Sequence[str], moved: Iterable[Pod], after: _Run) -> Iterator[Affected]:
    drained = Counter(_home(pod) for pod in _placed_on(state, nodes))
    again = [pod for pod in moved if pod.metadata.uid in after.placed]
    elsewhere, made = Counter(map(_home, again)), Counter(map(_home, moved))
    groups = {(each.namespace, each.name): each for each in (*after.cluster.running(), *after.cluster.waiting())}
    # Pods of no group are other schedulers' business.
    for home in sorted(drained.keys() & groups.keys()):
        text = _of_displaced(drained[home], made[home], elsewhere[home])
        yield _group(after.cluster, groups[home], drained[home], text)


def _of_displaced(count: int, made: int, placed: int) -> str:
    if not made:
        return "nothing makes these pods again"
    if placed == count:
        return "all of them find another node at once"
    return f"{placed} of {count} find another node at once; the others wait"


def _evicted(cluster: WhatIfCluster, evicted: Counter[GroupKey]) -> Iterator[Affected]:
    for key, count in sorted(evicted.items()):
        yield _group(cluster, key, count, "evicted for others")


def _shares(before: Plan, after: Plan) -> Iterator[ShareChange]:
    one, other = before.queues, after.queues
    for name in sorted(one.keys() & other.keys()):
        used = amounts_of(one[name].allocated), amounts_of(other[name].allocated)
        deserved = amounts_of(one[name].deserved), amounts_of(other[name].deserved)
        if used[0] != used[1] or deserved[0] != deserved[1]:
            yield ShareChange(name, used, deserved)
