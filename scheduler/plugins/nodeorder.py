"""Rate nodes the way kube-scheduler does: free resources, balance, wishes of the pod, taints to avoid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field

from scheduler import constraints as rules
from scheduler.plugin import Arguments, Nodes, Plugin
from scheduler.session import Session
from scheduler.snapshot import NodeTable, TaskClass
from scheduler.vectors import Floats

_FULL = 100.0


def _unrated(weight: float) -> float:
    if weight:
        raise ValueError("Muster doesn't rate by this yet; write 0, or leave it out")
    return weight


Unrated = Annotated[float, AfterValidator(_unrated)]
"""The weight of a rating that the format knows and Muster doesn't have."""


class NodeOrderArguments(Arguments):
    """Weights; 0 turns a rating off. Those of ratings that Muster doesn't have must be 0, or be left out."""

    least: float = Field(default=1, ge=0, alias="leastrequested.weight")
    most: float = Field(default=0, ge=0, alias="mostrequested.weight")
    balanced: float = Field(default=1, ge=0, alias="balancedresource.weight")
    affinity: float = Field(default=2, ge=0, alias="nodeaffinity.weight")
    taints: float = Field(default=3, ge=0, alias="tainttoleration.weight")
    images: Unrated = Field(default=0, alias="imagelocality.weight")
    pod_affinity: Unrated = Field(default=0, alias="podaffinity.weight")
    spread: Unrated = Field(default=0, alias="podtopologyspread.weight")


class NodeOrder(Plugin):
    """The weighted sum of ratings from 0 to 100."""

    name = "nodeorder"
    arguments_type = NodeOrderArguments

    def __init__(self, arguments: Any, session: Session) -> None:
        super().__init__(arguments, session)
        place = session.axes.place
        self._cpu, self._memory = place["cpu"], place["memory"]
        # least: full - mean; most: mean; balanced: full - half the difference. Gathered by what they multiply.
        self._base = _FULL * (arguments.least + arguments.balanced)
        self._by_sum = _FULL * (arguments.most - arguments.least) / 2
        self._by_difference = _FULL * arguments.balanced / 2

    def score(self, kind: TaskClass, nodes: Nodes) -> Floats:
        """Rate nodes."""
        parts = nodes.used_parts(kind.vector(self.session.axes))
        cpu, memory = parts[:, self._cpu], parts[:, self._memory]
        ratings: Floats = cpu + memory
        ratings *= self._by_sum
        ratings += self._base
        if self._by_difference:
            ratings -= np.abs(cpu - memory) * self._by_difference
        if self.arguments.affinity and kind.constraints.preferred:
            ratings += self.arguments.affinity * _remembered(kind, nodes, "wishes", _wishes)
        if self.arguments.taints and nodes.table.avoided:
            ratings += self.arguments.taints * _remembered(kind, nodes, "taints", _unwelcoming)
        return ratings


def _remembered(kind: TaskClass, nodes: Nodes, what: str, rate: Callable[[NodeTable, TaskClass], Floats]) -> Floats:
    key = (what, kind.constraints.signature)
    known = nodes.table.memo.get(key)
    if known is None:
        known = nodes.table.memo[key] = rate(nodes.table, kind)
    rated: Floats = known[nodes.rows]
    return rated


def _wishes(table: NodeTable, kind: TaskClass) -> Floats:
    wishes = kind.constraints.preferred
    sums = [sum(wish.weight for wish in wishes if rules.term_matches(wish.preference, node)) for node in table.nodes]
    return _scaled(sums)


def _unwelcoming(table: NodeTable, kind: TaskClass) -> Floats:
    tolerations = kind.constraints.tolerations
    counts = [
        sum(
            taint.effect == "PreferNoSchedule" and not rules.tolerated(tolerations, taint)
            for taint in node.spec.taints or ()
        )
        for node in table.nodes
    ]
    return _FULL - _scaled(counts)


def _scaled(amounts: list[int]) -> Floats:
    most = max(amounts, default=0)
    return np.array(amounts, dtype=np.float64) * (_FULL / most if most else 0.0)
