"""Rate nodes the way kube-scheduler does: free resources, balance, wishes of the pod, taints, images, pods near."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta, field

from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.plugin import Nodes, Plugin, Reach
from scheduler.engine.view import SessionView
from scheduler.model import constraints, vectors
from scheduler.model.node_table import NodeTable
from scheduler.model.snapshot import TaskClass
from scheduler.model.vectors import Floats
from scheduler.topology import node_filters, pod_affinity, spread

_FULL: Final = 100.0
_SMALL: Final = 23 * 2**20
_LARGE: Final = 1000 * 2**20
"""Bytes: images below the first make no difference, nor does what each has above the second."""


_Weight = Annotated[float, Meta(ge=0)]


class NodeOrderArguments(BuiltinArguments, frozen=True, kw_only=True):
    """_Weights; 0 turns a rating off."""

    least: _Weight = field(default=1, name="leastrequested.weight")
    most: _Weight = field(default=0, name="mostrequested.weight")
    balanced: _Weight = field(default=1, name="balancedresource.weight")
    affinity: _Weight = field(default=2, name="nodeaffinity.weight")
    taints: _Weight = field(default=3, name="tainttoleration.weight")
    images: _Weight = field(default=1, name="imagelocality.weight")
    pods: _Weight = field(default=2, name="podaffinity.weight")
    spread: _Weight = field(default=2, name="podtopologyspread.weight")
    selectors: Annotated[float, Meta(ge=0, le=0)] = field(default=0, name="selectorspread.weight")
    """Former schedulers of this family spread the pods of a Service by it; it must stay 0."""


class NodeOrder(Plugin):
    """The weighted sum of ratings from 0 to 100."""

    name = "nodeorder"
    arguments_type = NodeOrderArguments

    def __init__(self, arguments: Any, session: SessionView) -> None:
        super().__init__(arguments, session)
        place = session.axes.place
        self._cpu, self._memory = place["cpu"], place["memory"]
        # least: full - mean; most: mean; balanced: full - half the difference. Gathered by what they multiply.
        self._base = vectors.constant(_FULL * (arguments.least + arguments.balanced))
        self._by_sum = vectors.constant(_FULL * (arguments.most - arguments.least) / 2)
        self._by_difference = vectors.constant(_FULL * arguments.balanced / 2)
        self._images: dict[tuple[str, ...], Floats] = {}

    def reach(self, kind: TaskClass) -> Reach:
        """Tell how far it looks: at pods near where the class, or somebody there, wishes for that."""
        looks = kind.constraints.depends_on_other_pods and (self.arguments.pods or self.arguments.spread)
        return Reach.CLUSTER if looks else Reach.IDLE

    def score(self, kind: TaskClass, nodes: Nodes) -> Floats:
        """Rate nodes."""
        wanted = self.session.vector(kind)
        cpu, memory = nodes.used_part(wanted, self._cpu), nodes.used_part(wanted, self._memory)
        ratings: Floats = cpu + memory
        ratings *= self._by_sum
        ratings += self._base
        if self.arguments.balanced:
            ratings -= np.abs(cpu - memory) * self._by_difference
        if self.arguments.affinity and kind.constraints.preferred:
            ratings += self.arguments.affinity * self._remembered(kind, nodes, "wishes", _preferences)
        if self.arguments.taints and nodes.table.avoided:
            ratings += self.arguments.taints * self._remembered(kind, nodes, "taints", _unwelcoming)
        if self.arguments.images and kind.constraints.images and self.session.snapshot.images:
            ratings += self.arguments.images * self._at_hand(kind.constraints.images)[nodes.rows]
        if kind.constraints.depends_on_other_pods:
            ratings += self._pod_affinity(kind, nodes)
        return ratings

    def _pod_affinity(self, kind: TaskClass, nodes: Nodes) -> Floats:
        topology, demands = self.session.topology, kind.constraints
        among, rated = node_filters.eligible(topology, demands), np.zeros(len(nodes))
        if self.arguments.pods:
            rated += self.arguments.pods * pod_affinity.rate(demands, topology, among, later=nodes.later)[nodes.rows]
        if self.arguments.spread:
            rated += self.arguments.spread * spread.rate(demands, topology, among, later=nodes.later)[nodes.rows]
        return rated

    def _remembered(
        self, kind: TaskClass, nodes: Nodes, what: str, rate: Callable[[NodeTable, TaskClass], Floats]
    ) -> Floats:
        key = (what, kind.constraints.of_nodes)
        known = self.session.topology.cache.get(key, lambda: rate(nodes.table, kind))
        rated: Floats = known[nodes.rows]
        return rated

    def _at_hand(self, names: tuple[str, ...]) -> Floats:
        """Rate all nodes by how much of the images they have; one that few nodes have counts for less."""
        known = self._images.get(names)
        if known is None:
            table, sums = self.session.snapshot.table, np.zeros(len(self.session.snapshot.table.nodes))
            for name in names:
                there = self.session.snapshot.images.get(name, {})
                for node, size in there.items():
                    if node in table.row:
                        sums[table.row[node]] += size * len(there) / len(table.nodes)
            most = _LARGE * len(names)
            known = self._images[names] = np.floor(_FULL * (sums.clip(_SMALL, most) - _SMALL) / (most - _SMALL))
        return known


def _preferences(table: NodeTable, kind: TaskClass) -> Floats:
    wishes = kind.constraints.preferred
    sums = [
        sum(wish.weight for wish in wishes if constraints.term_matches(wish.preference, node)) for node in table.nodes
    ]
    return _scaled(sums)


def _unwelcoming(table: NodeTable, kind: TaskClass) -> Floats:
    tolerations = kind.constraints.tolerations
    counts = [
        sum(
            taint.effect == "PreferNoSchedule" and not constraints.tolerated(tolerations, taint)
            for taint in node.spec.taints or ()
        )
        for node in table.nodes
    ]
    return _FULL - _scaled(counts)


def _scaled(amounts: list[int]) -> Floats:
    most = max(amounts, default=0)
    return np.array(amounts, dtype=np.float64) * (_FULL / most if most else 0.0)
