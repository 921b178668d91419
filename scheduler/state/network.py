"""The HyperNodes of a cluster, and what groups ask of the network between their pods."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from muster.model import labels
from muster.model.objects import HyperNode, Meta, NetworkTopology
from muster.model.objects.scheduling import PodGroupSpec
from scheduler.model.network_topology import NO_HYPERNODES, HyperNodes, SubGroupKey, SubGroups, TopologyConstraint
from scheduler.model.snapshot import Task
from scheduler.state import conversion
from scheduler.state.members import IndexedPod


class NetworkCache:
    """The HyperNodes. ``changes``: how often they changed."""

    def __init__(self) -> None:
        self.hypernodes = NO_HYPERNODES
        self.changes = 0

    def hypernode(self, hypernode: HyperNode, *, gone: bool = False) -> None:
        """Learn of a HyperNode."""
        known = {each.name: each for each in self.hypernodes.items}
        before = known.get(hypernode.name)
        conversion.put(known, hypernode, gone=gone)
        if gone or before is None or before.spec != hypernode.spec:
            self.hypernodes = HyperNodes.of(known.values())
            self.changes += 1


def asks(spec: PodGroupSpec) -> bool:
    """Whether it matters to a group which of its pods are near each other."""
    return bool(spec.network_topology or spec.sub_group_policy)


def constraint(asked: NetworkTopology | None) -> TopologyConstraint | None:
    """Return how close pods have to be; None where nothing is asked for."""
    if asked is None:
        return None
    return TopologyConstraint(asked.mode != "soft", asked.highest_tier_allowed, asked.highest_tier_name)


def subgroups(spec: PodGroupSpec) -> tuple[SubGroups, ...]:
    """Return what a group is divided into."""
    return tuple(
        SubGroups(
            each.name, max(each.sub_group_size or 1, 1), each.min_sub_groups or 0, constraint(each.network_topology)
        )
        for each in spec.sub_group_policy or ()
    )


def _subgroup_of(spec: PodGroupSpec, metadata: Meta) -> SubGroupKey | None:
    """Return the subgroup that a pod is in: of the first policy that selects it and whose labels it has all."""
    has = metadata.labels or {}
    for place, policy in enumerate(spec.sub_group_policy or ()):
        if policy.label_selector is not None and not labels.matches(policy.label_selector, has):
            continue
        keys = policy.match_label_keys or ()
        if all(key in has for key in keys):
            return place, tuple(has[key] for key in keys)
    return None


def tasks_of(spec: PodGroupSpec, members: Iterable[IndexedPod]) -> tuple[Task, ...]:
    """Return a group's tasks, each with the subgroup that it is in."""
    if not spec.sub_group_policy:
        return tuple([member.task for member in members])
    return tuple([replace(each.task, subgroup=_subgroup_of(spec, each.pod.metadata)) for each in members])
