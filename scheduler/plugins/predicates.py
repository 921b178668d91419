"""The nodes that a pod may run on at all, by what nodes say of themselves and by the pods there and near."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Struct, field

from scheduler.engine.arguments import BuiltinArguments, checked_by, without_effect
from scheduler.engine.colocation import ColocatedTasks
from scheduler.engine.plugin import Nodes, Plugin, Reach
from scheduler.engine.shared_devices import without_the_rest
from scheduler.engine.view import SessionView
from scheduler.model import constraints
from scheduler.model.constraints import Constraints
from scheduler.model.node_table import NodeTable
from scheduler.model.snapshot import TaskClass
from scheduler.model.vectors import Mask
from scheduler.topology import node_filters, pod_affinity, spread


def _not_here(wanted: bool) -> bool:  # noqa: FBT001 - called by what checks arguments
    if wanted:
        raise ValueError("Muster doesn't do that; write false, or leave it out")
    return wanted


NotHere = Annotated[bool, checked_by(_not_here)]
"""A switch that the format knows for something that Muster doesn't have."""


_BY_TAINT: Final = without_effect("nodes under pressure have a taint, and that counts in any case")


class PredicatesArguments(BuiltinArguments, frozen=True, kw_only=True):
    """Which rules hold. Those of a node's pressure do in any case, by the taints that such nodes have."""

    affinity: bool = field(default=True, name="predicate.NodeAffinityEnable")
    ports: bool = field(default=True, name="predicate.NodePortsEnable")
    taints: bool = field(default=True, name="predicate.TaintTolerationEnable")
    pods: bool = field(default=True, name="predicate.PodAffinityEnable")
    spread: bool = field(default=True, name="predicate.PodTopologySpreadEnable")
    zones: bool = field(default=True, name="predicate.VolumeZoneEnable")
    limits: bool = field(default=True, name="predicate.NodeVolumeLimitsEnable")
    volumes: bool = field(default=True, name="predicate.VolumeBindingEnable")
    memory_pressure: Annotated[bool, _BY_TAINT] = field(default=False, name="predicate.MemoryPressureEnable")
    disk_pressure: Annotated[bool, _BY_TAINT] = field(default=False, name="predicate.DiskPressureEnable")
    process_pressure: Annotated[bool, _BY_TAINT] = field(default=False, name="predicate.PIDPressureEnable")
    cache: Annotated[bool, without_effect("what depends on nodes only is always remembered")] = field(
        default=True, name="predicate.CacheEnable"
    )
    shared_gpus: NotHere = field(default=False, name="predicate.GPUSharingEnable")
    numbered_gpus: NotHere = field(default=False, name="predicate.GPUNumberEnable")
    proportional: NotHere = field(default=False, name="predicate.ProportionalEnable")
    devices: bool = field(default=True, name="predicate.DynamicResourceAllocationEnable")


_Asks = Callable[[Constraints], object]
"""Whether a rule has to do with a pod at all: what of its demands the rule is about."""
_ports: Final[_Asks] = attrgetter("ports")
_peers: Final[_Asks] = attrgetter("peers")
_claims: Final[_Asks] = attrgetter("claims")
_devices: Final[_Asks] = attrgetter("devices")
_near: Final[_Asks] = attrgetter("pod_terms.required_affinity")
_apart: Final[_Asks] = attrgetter("pod_terms.required_anti_affinity")
_spreads: Final[_Asks] = attrgetter("pod_terms.spreads")


def _ports_taken(session: SessionView, demands: Constraints, nodes: Nodes) -> Mask:
    taken = session.ports_later if nodes.later else session.ports
    return np.array(
        [constraints.ports_clash(demands.ports, taken.get(row, ())) for row in nodes.rows.tolist()], dtype=np.bool_
    )


def _unwanted(session: SessionView, demands: Constraints, nodes: Nodes) -> Mask:
    return pod_affinity.breaks_anti_affinity_of_others(demands, session.topology, later=nodes.later)[nodes.rows]


def _beside(session: SessionView, demands: Constraints, nodes: Nodes) -> Mask:
    return pod_affinity.breaks_anti_affinity(demands, session.topology, later=nodes.later)[nodes.rows]


def _far(session: SessionView, demands: Constraints, nodes: Nodes) -> Mask:
    return pod_affinity.lacks_affinity(demands, session.topology, later=nodes.later)[nodes.rows]


def _unlabelled(session: SessionView, demands: Constraints, nodes: Nodes) -> Mask:
    return spread.unlabelled(demands, session.topology)[nodes.rows]


def _crowded(session: SessionView, demands: Constraints, nodes: Nodes) -> Mask:
    return spread.exceeds_skew(demands, session.topology, later=nodes.later)[nodes.rows]


def _unreachable(session: SessionView, demands: Constraints, nodes: Nodes) -> Mask:
    return session.volumes.unreachable(demands)[nodes.rows]


def _unbindable(session: SessionView, demands: Constraints, nodes: Nodes) -> Mask:
    return session.volumes.unbindable(demands)[nodes.rows]


def _in_use(session: SessionView, demands: Constraints, nodes: Nodes) -> Mask:
    return np.full(len(nodes), session.volumes.in_use(demands, later=nodes.later), dtype=np.bool_)


def _beyond_limits(session: SessionView, demands: Constraints, nodes: Nodes) -> Mask:
    return session.volumes.beyond_limits(demands, later=nodes.later)[nodes.rows]


def _without_devices(session: SessionView, demands: Constraints, nodes: Nodes) -> Mask:
    return session.devices.lacking(demands, nodes.rows, nodes.ahead)


def _unasked(_: SessionView, __: Constraints, nodes: Nodes) -> Mask:
    return np.ones(len(nodes), dtype=np.bool_)


class _Rules(Struct, frozen=True, eq=False):
    """The rules that hold, by the words for a node that one excludes: those about nodes alone, and those about what is there."""

    fixed: tuple[tuple[str, Callable[[NodeTable, Constraints], Mask]], ...]
    others: tuple[tuple[str, _Asks, Callable[[SessionView, Constraints, Nodes], Mask]], ...]


@lru_cache(maxsize=16)
def _rules(arguments: PredicatesArguments) -> _Rules:
    fixed: list[tuple[bool, str, Callable[[NodeTable, Constraints], Mask]]] = [
        (True, "not ready", node_filters.unready),
        (True, "cordoned", node_filters.cordoned),
        (True, "closed, for a pod there can't be read", node_filters.closed),
        (arguments.affinity, "not matched by the node selector or affinity", node_filters.unselected),
        (arguments.taints, "tainted", node_filters.tainted),
    ]
    others: list[tuple[bool, str, _Asks, Callable[[SessionView, Constraints, Nodes], Mask]]] = [
        (arguments.ports, "using its host port already", _ports, _ports_taken),
        (arguments.pods, "near pods that its own anti-affinity excludes", _apart, _beside),
        (arguments.pods, "kept free by the anti-affinity of other pods", _peers, _unwanted),
        (arguments.pods, "far from the pods that its affinity requires", _near, _far),
        (arguments.spread, "without a label that its topology spread goes by", _spreads, _unlabelled),
        (arguments.spread, "where its topology spread has enough pods already", _spreads, _crowded),
        (arguments.volumes or arguments.zones, "out of reach of its volumes", _claims, _unreachable),
        (arguments.volumes, "where its claims would get no volume", _claims, _unbindable),
        (arguments.volumes, "not to share its volume with another pod", _claims, _in_use),
        (arguments.limits, "at their limit of attached volumes", _claims, _beyond_limits),
        (arguments.devices, "without the devices that its claims request", _devices, _without_devices),
        (
            not arguments.devices,
            "not asked for devices: predicate.DynamicResourceAllocationEnable is false",
            _devices,
            _unasked,
        ),
    ]
    return _Rules(
        tuple((words, rule) for on, words, rule in fixed if on),
        tuple((words, concerns, rule) for on, words, concerns, rule in others if on),
    )


class Predicates(Plugin):
    """Refuses nodes. What depends on the node table only is worked out once per signature and table."""

    name = "predicates"
    arguments_type = PredicatesArguments

    def __init__(self, arguments: Any, session: SessionView) -> None:
        super().__init__(arguments, session)
        self._colocated = ColocatedTasks(session)
        self._rules = _rules(arguments)
        self._masks: dict[bytes, Mask] = {}

    def reach(self, kind: TaskClass) -> Reach:
        """Tell how far it looks: at pods near where the class asks for it, at ports where it has some."""
        demands = kind.constraints
        if demands.depends_on_other_pods and (self.arguments.pods or self.arguments.spread):
            return Reach.CLUSTER
        volumes = self.session.volumes
        if demands.claims and volumes.shared(demands):
            return Reach.CLUSTER
        devices = self.session.devices
        if demands.devices and devices.shared(demands):
            return Reach.CLUSTER
        counted = (demands.ports and self.arguments.ports) or (demands.claims and volumes.counted(demands))
        counted = counted or (demands.devices and not devices.counted(demands))
        return Reach.NODE if counted else Reach.IDLE

    def feasible(self, kind: TaskClass, nodes: Nodes) -> Mask:
        """Tell which nodes take the class."""
        demands = kind.constraints
        if demands.unsupported or self.session.trouble(demands):
            return np.zeros(len(nodes), dtype=np.bool_)
        mask: Mask = self._open(nodes.table, demands)[nodes.rows]
        if demands.conflicts_beyond_resources:
            for _, concerns, excluded in self._rules.others:
                if concerns(demands):
                    mask &= ~excluded(self.session, demands, nodes)
            if (
                self.arguments.pods
                and demands.pod_terms.required_affinity
                and pod_affinity.is_first_of_its_set(demands, self.session.topology, later=nodes.later)
            ):
                mask &= ~self._without_the_others(kind, nodes)
            if demands.devices and self.arguments.devices and mask.any():
                mask &= ~without_the_rest(
                    self.session, kind, nodes, mask, lambda each: self._open(nodes.table, each.constraints)
                )
        return mask

    def _open(self, table: NodeTable, demands: Constraints) -> Mask:
        def judge() -> Mask:
            mask = np.ones(len(table.nodes), dtype=np.bool_)
            for _, excluded in self._rules.fixed:
                mask &= ~excluded(table, demands)
            return mask

        # A session has one table; to find what earlier ones found about it takes longer than to look here.
        known = self._masks.get(demands.of_nodes)
        if known is None:
            known = self._masks[demands.of_nodes] = self.session.topology.cache.get(
                (self._rules, demands.of_nodes), judge
            )
        return known

    def objections(self, kind: TaskClass, nodes: Nodes) -> Iterable[tuple[str, Mask]]:
        """Tell why nodes don't take the class."""
        for words, excluded in self._rules.fixed:
            yield words, excluded(nodes.table, kind.constraints)[nodes.rows]
        if not self.session.trouble(kind.constraints):
            for words, concerns, taken in self._rules.others:
                if concerns(kind.constraints):
                    yield words, taken(self.session, kind.constraints, nodes)

    def _without_the_others(self, kind: TaskClass, nodes: Nodes) -> Mask:
        """Tell which nodes are no place for the first of those that want to be together, since the rest can't follow."""
        free = self.session.future if nodes.later else self.session.idle
        nodes_with_room = self._colocated.nodes_with_room(
            kind, free, lambda each: self._open(nodes.table, each.constraints)
        )
        return ~nodes_with_room[nodes.rows]
