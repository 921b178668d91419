"""Pods that take something of their nodes and are of no interest otherwise: counted, without a task for each.

For those who look at a cluster once and ask about a few of its groups: to make tasks of ten thousand pods takes longer than
all that is decided then. `scheduler.state.pods` makes them as soon as anybody asks for one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from muster.model.objects import Pod
from scheduler.model.snapshot import TaskClass, TaskStatus
from scheduler.model.tasks import TaskCounts
from scheduler.state.usage import NodeUsage

GroupName = tuple[str, str]
"""Namespace and name of a group: how its pods know it."""


class AggregatedPod(NamedTuple):
    """A pod that runs, or is about to: what it takes, and of which group it is."""

    pod: Pod
    kind: TaskClass
    group_name: GroupName | None


class AggregatedPods:
    """Pods that are counted. What they take of nodes is put down in a `NodeUsage`; ``touch`` is told whose number changed.

    ``unmatched``: some of them were not yet matched with the pod sets that terms of others name.
    """

    def __init__(self, usage: NodeUsage, touch: Callable[[GroupName], None]) -> None:
        self._usage = usage
        self._touch = touch
        self.unmatched = False
        self._pods: dict[str, AggregatedPod] = {}
        self._by_group: dict[GroupName, dict[str, AggregatedPod]] = {}
        self._of_groups: dict[TaskClass, dict[str, int]] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether a pod is among them."""
        return uid in self._pods

    def take(self, many: Iterable[AggregatedPod]) -> None:
        """Count pods."""
        taken: dict[tuple[str, TaskClass], int] = {}
        pods, by_group = self._pods, self._by_group
        for each in many:
            pod, kind, group_name = each
            uid, place = pod.metadata.uid, (pod.spec.node_name, kind)
            pods[uid] = each
            taken[place] = taken.get(place, 0) + 1
            if group_name is not None:
                by_group.setdefault(group_name, {})[uid] = each
                self._count_of_group(each, 1)
                self._touch(group_name)
        for (node, kind), count in taken.items():
            self._usage.aggregate(node, kind, count)
        self.unmatched = True

    def drop(self, uid: str) -> AggregatedPod | None:
        """Count a pod no longer; None where it wasn't."""
        each = self._pods.pop(uid, None)
        if each is None:
            return None
        self._usage.aggregate(each.pod.spec.node_name, each.kind, -1)
        if each.group_name is not None:
            self._touch(each.group_name)
            self._count_of_group(each, -1)
            self._by_group[each.group_name].pop(uid)
            if not self._by_group[each.group_name]:
                del self._by_group[each.group_name]
        return each

    def _count_of_group(self, each: AggregatedPod, sign: int) -> None:
        nodes, node = self._of_groups.setdefault(each.kind, {}), each.pod.spec.node_name
        nodes[node] = nodes.get(node, 0) + sign

    def of_groups(self) -> Mapping[TaskClass, Mapping[str, int]]:
        """Return how many of them that are in groups each node has, by class."""
        return {kind: dict(nodes) for kind, nodes in self._of_groups.items()}

    def pods(self) -> Collection[AggregatedPod]:
        """Return all of them."""
        return self._pods.values()

    def label_sets(self) -> int:
        """Return how many different sets of labels they have."""
        metas = [each.pod.metadata for each in self._pods.values()]
        return len({(meta.namespace, frozenset((meta.labels or {}).items())) for meta in metas})

    def of(self, group_name: GroupName) -> Collection[AggregatedPod]:
        """Return those of a group."""
        return self._by_group.get(group_name, {}).values()

    def counts(self, group_name: GroupName) -> TaskCounts:
        """Return what those of a group come to."""
        # Not with a `Counter`, which takes five times as long; all groups of a cluster come by here.
        running, kinds = 0, dict[TaskClass, int]()
        members = self.of(group_name)
        for pod, kind, _ in members:
            running += pod.status.phase == "Running"
            kinds[kind] = kinds.get(kind, 0) + 1
        counts = {TaskStatus.RUNNING: running, TaskStatus.BOUND: len(members) - running}
        return TaskCounts({status: count for status, count in counts.items() if count}, (), kinds, {}, len(members))
