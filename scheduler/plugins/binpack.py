"""Rate nodes by how full they would be, so that big gaps stay for big pods."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, model_validator

from scheduler.plugin import Arguments, Nodes, Plugin
from scheduler.session import Session
from scheduler.snapshot import TaskClass
from scheduler.vectors import Floats

_FULL = 100.0
_RESOURCE = "binpack.resources."


class BinpackArguments(Arguments):
    """Weights: of the plugin, of cpu and memory, and of other resources (``binpack.resources: a, b`` names them)."""

    weight: float = Field(default=1, ge=0, alias="binpack.weight")
    cpu: float = Field(default=1, ge=0, alias="binpack.cpu")
    memory: float = Field(default=1, ge=0, alias="binpack.memory")
    others: dict[str, float] = Field(default_factory=dict, alias="binpack.resources")

    @model_validator(mode="before")
    @classmethod
    def _collect(cls, given: Any) -> Any:
        """Gather ``binpack.resources`` and ``binpack.resources.NAME`` into one mapping."""
        if not isinstance(given, dict):
            return given
        listed = str(given.get("binpack.resources", ""))
        others = {name.strip(): 1 for name in listed.split(",") if name.strip()}
        weights = {key.removeprefix(_RESOURCE): each for key, each in given.items() if str(key).startswith(_RESOURCE)}
        rest = {key: each for key, each in given.items() if not str(key).startswith("binpack.resources")}
        return rest | {"binpack.resources": others | weights}


class Binpack(Plugin):
    """Prefers the fullest node that still fits, over the resources that the pod asks for."""

    name = "binpack"
    arguments_type = BinpackArguments

    def __init__(self, arguments: Any, session: Session) -> None:
        super().__init__(arguments, session)
        weights = {"cpu": arguments.cpu, "memory": arguments.memory, **arguments.others}
        place = session.axes.place
        self._weights = {place[name]: weight for name, weight in weights.items() if weight and name in place}

    def score(self, kind: TaskClass, nodes: Nodes) -> Floats:
        """Rate nodes."""
        wanted = kind.vector(self.session.axes)
        weights = {place: weight for place, weight in self._weights.items() if wanted[place]}
        packed = np.zeros(len(nodes))
        if weights:
            scale = self.arguments.weight * _FULL / sum(weights.values())
            # Column by column: a matrix product may add in another order for other shapes, and no score may depend on it.
            for place, weight in weights.items():
                packed += nodes.used_part(wanted, place) * (weight * scale)
        return packed
