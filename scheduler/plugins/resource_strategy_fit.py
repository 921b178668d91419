"""Rate nodes by a strategy for each resource: pods that ask for GPUs fill nodes up, pods that ask for cpu spread."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from msgspec import Meta, field

from scheduler.engine.arguments import BuiltinArguments, checked_by, read_by
from scheduler.engine.plugin import Nodes, Plugin
from scheduler.engine.view import SessionView
from scheduler.model.node_table import NodeTable
from scheduler.model.snapshot import TaskClass
from scheduler.model.vectors import PODS, Floats

_FULL: Final = 100.0
_RETENTION: Final = "sra.retention."
_PACKS: Final = {"MostAllocated": True, "LeastAllocated": False}
_Weight = Annotated[float, Meta(ge=0)]


class Strategy(NamedTuple):
    """How nodes are rated by one resource: the fuller the better (``packs``), or the emptier; and how much that counts."""

    packs: bool
    weight: float


_DEFAULT: Final = {name: Strategy(packs=False, weight=1.0) for name in ("cpu", "memory")}


def _strategies(given: Any) -> dict[str, Strategy]:
    """Read ``{cpu: {type: LeastAllocated, weight: 1}}``."""
    if not isinstance(given, dict):
        raise ValueError("write a mapping of resources, such as {cpu: {type: LeastAllocated, weight: 1}}")  # noqa: TRY004 - what checks arguments takes only these
    return {str(name): _strategy(str(name), each) for name, each in given.items()}


def _strategy(name: str, given: Any) -> Strategy:
    told = given if isinstance(given, dict) else {}
    if told.get("type") not in _PACKS or told.keys() - {"type", "weight"}:
        raise ValueError(f"write {name}: {{type: MostAllocated, weight: 1}}, or LeastAllocated")
    try:
        weight = float(told.get("weight", 1))
    except (TypeError, ValueError):
        weight = -1.0
    if not 0 <= weight < float("inf"):
        raise ValueError(f"the weight of {name} is {told['weight']!r}: write a number of at least 0")
    return Strategy(_PACKS[told["type"]], weight)


def _policy(given: str) -> str:
    if given not in {"", "retention"}:
        raise ValueError("Muster has the policy retention only; write that, or leave it out")
    return given


class ResourceStrategyFitArguments(BuiltinArguments, frozen=True, kw_only=True):
    """The plugin's weight, a strategy by resource (``vendor.com/*`` for several), and what is kept for those who ask for it.

    ``sra.resources`` names scarce resources, ``sra.retention.NAME`` weighs each: with ``sra.policy: retention`` nodes
    that don't have them are preferred.
    """

    weight: _Weight = field(default=10, name="resourceStrategyFitWeight")
    resources: Annotated[Mapping[str, Any], read_by(_strategies)] = field(default_factory=lambda: dict(_DEFAULT))
    policy: Annotated[str, checked_by(_policy)] = field(default="", name="sra.policy")
    retention: _Weight = field(default=1, name="sra.retention.weight")
    scarce: Mapping[str, _Weight] = field(default_factory=dict, name="sra.resources")

    @classmethod
    def gathered(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Gather ``sra.resources`` and ``sra.retention.NAME`` into one mapping."""
        listed = str(given.get("sra.resources", ""))
        scarce: dict[str, Any] = {name.strip(): 1 for name in listed.split(",") if name.strip()}
        for key in [key for key in given if str(key).startswith(_RETENTION) and key != "sra.retention.weight"]:
            scarce[key.removeprefix(_RETENTION)] = given[key]
        rest = {key: each for key, each in given.items() if not str(key).startswith((_RETENTION, "sra.resources"))}
        kept = {"sra.retention.weight": given["sra.retention.weight"]} if "sra.retention.weight" in given else {}
        return rest | kept | {"sra.resources": scarce}

    def strategy(self, resource: str) -> Strategy | None:
        """Return the strategy of a resource: its own, else that of the longest pattern it matches."""
        if resource in self.resources:
            return Strategy(*self.resources[resource])
        matching = [pattern for pattern in self.resources if "*" in pattern and fnmatchcase(resource, pattern)]
        return Strategy(*self.resources[max(matching, key=len)]) if matching else None


class ResourceStrategyFit(Plugin):
    """The weighted mean over the resources that a pod asks for; and the part of the scarce resources that a node lacks."""

    name = "resource-strategy-fit"
    arguments_type = ResourceStrategyFitArguments

    def __init__(self, arguments: Any, session: SessionView) -> None:
        super().__init__(arguments, session)
        axes, table = session.axes, session.snapshot.table
        found = {axes.place[name]: arguments.strategy(name) for name in axes.names if name != PODS}
        self._strategies = {place: each for place, each in found.items() if each is not None and each.weight}
        self._retained: Floats | None = None
        if arguments.policy and arguments.scarce:
            scarce = tuple(arguments.scarce.items())
            known = session.topology.cache.get(("scarce", scarce), lambda: _lacking(scarce, table))
            self._retained = arguments.retention * known

    def score(self, kind: TaskClass, nodes: Nodes) -> Floats:
        """Rate nodes."""
        wanted = self.session.vector(kind)
        asked = {place: strategy for place, strategy in self._strategies.items() if wanted[place]}
        ratings: Floats = np.zeros(len(nodes))
        scale = self.arguments.weight * _FULL / (sum(each.weight for each in asked.values()) or 1)
        for place, strategy in asked.items():
            used = nodes.used_part(wanted, place)
            ratings += (used if strategy.packs else 1 - used) * (strategy.weight * scale)
        if self._retained is not None:
            ratings += self._retained[nodes.rows]
        return ratings


def _lacking(scarce: tuple[tuple[str, float], ...], table: NodeTable) -> Floats:
    """Rate all nodes from 0 to 100 by the scarce resources that they don't have."""
    total, ratings = sum(weight for _, weight in scarce), np.zeros(len(table.nodes))
    for name, weight in scarce:
        lacks = [str((node.status.allocatable or {}).get(name, "0")) == "0" for node in table.nodes]
        ratings += np.array(lacks) * (weight * _FULL / (total or 1))
    return ratings
