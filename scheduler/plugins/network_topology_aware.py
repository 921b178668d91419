"""Keep large domains of the network free: rate nodes by how full the domains around them are.

How close the pods of a group have to be, or should be, is decided in `scheduler.engine.network_domains`, for all groups that
say so, with or without this plugin. It lists the labels that make up the network where there are no HyperNodes, and packs the pods
that don't care.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta, field

from scheduler.engine.arguments import BuiltinArguments, read_by
from scheduler.engine.plugin import Nodes, Plugin, Reach
from scheduler.engine.view import SessionView
from scheduler.model.snapshot import TaskClass
from scheduler.model.vectors import Floats
from scheduler.topology.tiers import Tier

_FULL: Final = 100.0
_RESOURCE: Final = "hypernode.binpack.resources."

_Weight = Annotated[float, Meta(ge=0)]


def _keys(listed: Any) -> tuple[str, ...]:
    """Read label keys, the widest first: a list, or one text with commas.

    Raises:
        ValueError: one occurs twice, or isn't a text.
    """
    parts = listed.split(",") if isinstance(listed, str) else listed
    if not isinstance(parts, list | tuple) or not all(isinstance(each, str) for each in parts):
        raise ValueError("write a list of label keys, the widest first")
    keys = tuple(each.strip() for each in parts if each.strip())
    if len(set(keys)) < len(keys):
        raise ValueError("a label occurs twice")
    return keys


class NetworkTopologyAwareArguments(BuiltinArguments, frozen=True, kw_only=True):
    """Weights: of the plugin, of cpu, memory and other resources; and ``levels``, node labels that make up the network.

    ``fading``: how much each wider tier counts less than the one before.
    """

    levels: Annotated[tuple[str, ...], read_by(_keys)] = ()
    weight: _Weight = 1
    cpu: _Weight = field(default=1, name="hypernode.binpack.cpu")
    memory: _Weight = field(default=1, name="hypernode.binpack.memory")
    others: Mapping[str, float] = field(default_factory=dict, name="hypernode.binpack.resources")
    enabled: bool = field(default=True, name="hypernode.binpack.normal-pod.enable")
    fading: _Weight = field(default=0.8, name="hypernode.binpack.normal-pod.fading")

    @classmethod
    def gathered(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Gather ``hypernode.binpack.resources`` and ``hypernode.binpack.resources.NAME`` into one mapping."""
        listed = str(given.get("hypernode.binpack.resources", ""))
        others = {name.strip(): 1 for name in listed.split(",") if name.strip()}
        weights = {key.removeprefix(_RESOURCE): each for key, each in given.items() if str(key).startswith(_RESOURCE)}
        rest = {key: each for key, each in given.items() if not str(key).startswith("hypernode.binpack.resources")}
        return rest | {"hypernode.binpack.resources": others | weights}


class NetworkTopologyAware(Plugin):
    """Prefers nodes in full domains, over the resources that the pod asks for, as they were when the cycle began."""

    name = "network-topology-aware"
    arguments_type = NetworkTopologyAwareArguments

    def __init__(self, arguments: Any, session: SessionView) -> None:
        super().__init__(arguments, session)
        weights = {"cpu": arguments.cpu, "memory": arguments.memory, **arguments.others}
        place = session.axes.place
        self._weights = {place[name]: weight for name, weight in weights.items() if weight and name in place}
        self._ratings: dict[tuple[int, ...], Floats] = {}

    def reach(self, kind: TaskClass) -> Reach:
        """Tell how far it looks: at how full domains were at the beginning, which placements don't change."""
        del kind
        return Reach.IDLE

    def score(self, kind: TaskClass, nodes: Nodes) -> Floats:
        """Rate nodes."""
        wanted = self.session.vector(kind)
        places = tuple(place for place in self._weights if wanted[place])
        if not places or not self.arguments.enabled or not self.arguments.weight:
            return np.zeros(len(nodes))
        known = self._ratings.get(places)
        if known is None:
            known = self._ratings[places] = self._rate(places)
        rated: Floats = known[nodes.rows]
        return rated

    def _rate(self, places: tuple[int, ...]) -> Floats:
        """Rate all nodes: the mean over the tiers of which part of the domain around a node is used."""
        tiers, fading = self.session.network.tiers, self.arguments.fading
        rated, total = np.zeros(len(self.session.snapshot.table.nodes)), 0.0
        for depth, tier in enumerate(tiers):
            rated += fading**depth * self._used(tier, places)
            total += fading**depth
        return rated * (_FULL * self.arguments.weight / total) if total else rated

    def _used(self, tier: Tier, places: tuple[int, ...]) -> Floats:
        """Return which part of the domain around each node is used, 0 of those that are in none, [nodes]."""
        table, idle = self.session.snapshot.table, self.session.snapshot.idle
        domains, used = len(tier.names), np.zeros(len(table.nodes))
        for place in places:
            there = np.bincount(tier.places, weights=table.amounts[:, place], minlength=domains + 1)
            left = np.bincount(tier.places, weights=idle[:, place].clip(min=0), minlength=domains + 1)
            part = np.divide(there - left, there, out=np.zeros(domains + 1), where=there > 0)
            part[domains] = 0.0
            used += part[tier.places] * self._weights[place]
        part_used: Floats = used / sum(self._weights[place] for place in places)
        return part_used
