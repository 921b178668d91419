"""Rate nodes the way kube-scheduler does: free resources, balance, wishes of the pod, taints to avoid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import Field

from scheduler import constraints as rules
from scheduler.plugin import Arguments, Nodes, Plugin
from scheduler.session import Session
from scheduler.snapshot import NodeTable, TaskClass
from scheduler.vectors import Floats

_FULL = 100.0


class NodeOrderArguments(Arguments):
    """Weights; 0 turns a rating off. Those of ratings that Muster doesn't have must be 0, or be left out."""

    least: float = Field(default=1, ge=0, alias="leastrequested.weight")
    most: float = Field(default=0, ge=0, alias="mostrequested.weight")
    balanced: float = Field(default=1, ge=0, alias="balancedresource.weight")
    affinity: float = Field(default=2, ge=0, alias="nodeaffinity.weight")
    taints: float = Field(default=3, ge=0, alias="tainttoleration.weight")
    images: float = Field(default=0, ge=0, le=0, alias="imagelocality.weight")
    pod_affinity: float = Field(default=0, ge=0, le=0, alias="podaffinity.weight")
    spread: float = Field(default=0, ge=0, le=0, alias="podtopologyspread.weight")


class NodeOrder(Plugin):
    """The weighted sum of ratings from 0 to 100."""

    name = "nodeorder"
    arguments_type = NodeOrderArguments

    def __init__(self, arguments: Any, session: Session) -> None:
        super().__init__(arguments, session)
        place = session.axes.place
        self._places = [place["cpu"], place["memory"]]

    def score(self, kind: TaskClass, nodes: Nodes) -> Floats:
        """Rate nodes."""
        weights = self.arguments
        ratings = np.zeros(len(nodes))
        if weights.least or weights.most or weights.balanced:
            used = self._used_parts(kind, nodes)
            if weights.least:
                ratings += weights.least * _FULL * (1 - used).mean(axis=1)
            if weights.most:
                ratings += weights.most * _FULL * used.mean(axis=1)
            if weights.balanced:
                ratings += weights.balanced * _FULL * (1 - np.abs(used[:, 0] - used[:, 1]) / 2)
        if weights.affinity and kind.constraints.preferred:
            ratings += weights.affinity * _remembered(kind, nodes, "wishes", _wishes)
        if weights.taints:
            ratings += weights.taints * _remembered(kind, nodes, "taints", _unwelcoming)
        return ratings

    def _used_parts(self, kind: TaskClass, nodes: Nodes) -> Floats:
        """Give which part of cpu and memory is used once the task is there, [len(nodes), 2], from 0 to 1."""
        wanted = kind.vector(self.session.axes)
        have = nodes.allocatable[:, self._places].astype(np.float64)
        used = have - nodes.idle[:, self._places] + [float(wanted[place]) for place in self._places]
        return np.clip(np.divide(used, have, out=np.ones_like(have), where=have > 0), 0, 1)


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
