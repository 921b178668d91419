"""Rate nodes by how full they would be, so that big gaps stay for big pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, field

from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.plugin import Nodes, Plugin
from scheduler.engine.view import SessionView
from scheduler.model import vectors
from scheduler.model.snapshot import TaskClass
from scheduler.model.vectors import Floats, Vector

_FULL = 100.0
_RESOURCE = "binpack.resources."


_Weight = Annotated[float, Meta(ge=0)]


class BinpackArguments(BuiltinArguments, frozen=True, kw_only=True):
    """Weights: of the plugin, of cpu and memory, and of other resources (``binpack.resources: a, b`` names them)."""

    weight: _Weight = field(default=1, name="binpack.weight")
    cpu: _Weight = field(default=1, name="binpack.cpu")
    memory: _Weight = field(default=1, name="binpack.memory")
    others: Mapping[str, float] = field(default_factory=dict, name="binpack.resources")

    @classmethod
    def gathered(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Gather ``binpack.resources`` and ``binpack.resources.NAME`` into one mapping."""
        listed = str(given.get("binpack.resources", ""))
        others = {name.strip(): 1 for name in listed.split(",") if name.strip()}
        weights = {key.removeprefix(_RESOURCE): each for key, each in given.items() if str(key).startswith(_RESOURCE)}
        rest = {key: each for key, each in given.items() if not str(key).startswith("binpack.resources")}
        return rest | {"binpack.resources": others | weights}


class Binpack(Plugin):
    """Prefers the fullest node that still fits, over the resources that the pod asks for."""

    name = "binpack"
    arguments_type = BinpackArguments

    def __init__(self, arguments: Any, session: SessionView) -> None:
        super().__init__(arguments, session)
        weights = {"cpu": arguments.cpu, "memory": arguments.memory, **arguments.others}
        place = session.axes.place
        self._weights = {place[name]: weight for name, weight in weights.items() if weight and name in place}
        self._factors: dict[TaskClass, list[tuple[int, Floats]]] = {}

    def score(self, kind: TaskClass, nodes: Nodes) -> Floats:
        """Rate nodes."""
        wanted = self.session.vector(kind)
        factors = self._factors.get(kind)
        if factors is None:
            factors = self._factors[kind] = self._factors_of(wanted)
        if not factors:
            return np.zeros(len(nodes))
        # Column by column: a matrix product may add in another order for other shapes, and no score may depend on it.
        columns = [nodes.used_part(wanted, place) * factor for place, factor in factors]
        packed: Floats = columns[0]
        for column in columns[1:]:
            packed += column
        return packed

    def _factors_of(self, wanted: Vector) -> list[tuple[int, Floats]]:
        """Return the places of what is asked for, and by how much the used part of each counts."""
        weights = {place: weight for place, weight in self._weights.items() if wanted[place]}
        scale = self.arguments.weight * _FULL / sum(weights.values()) if weights else 0
        return [(place, vectors.constant(weight * scale)) for place, weight in weights.items()]
