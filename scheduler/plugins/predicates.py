"""Where a pod may run at all, as the pod and the node say it: readiness, cordons, selectors, affinity, taints, ports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from pydantic import Field

from muster.model.objects import Taint
from scheduler import constraints as rules
from scheduler.constraints import Constraints
from scheduler.plugin import Arguments, Nodes, Plugin, Reach
from scheduler.session import Session
from scheduler.snapshot import NodeTable, TaskClass
from scheduler.vectors import Mask

_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class PredicatesArguments(Arguments):
    """Which rules hold."""

    affinity: bool = Field(default=True, alias="predicate.NodeAffinityEnable")
    ports: bool = Field(default=True, alias="predicate.NodePortsEnable")
    taints: bool = Field(default=True, alias="predicate.TaintTolerationEnable")


class Predicates(Plugin):
    """Refuses nodes. What depends on the node table only is worked out once per signature and table."""

    name = "predicates"
    arguments_type = PredicatesArguments

    def __init__(self, arguments: Any, session: Session) -> None:
        super().__init__(arguments, session)
        on: list[tuple[str, Callable[[NodeTable, Constraints], Mask]]] = [
            ("not ready", _unready),
            ("cordoned", _cordoned),
            ("out of bounds for its pods (node name)", _misnamed),
            ("kept free by the anti-affinity of a running pod", _repelled),
        ]
        if arguments.affinity:
            on.append(("not matched by the node selector or affinity", _unselected))
        if arguments.taints:
            on.append(("tainted", _tainted))
        self._rules = on

    def reach(self, kind: TaskClass) -> Reach:
        """Tell how far it looks: a second pod with the same host port finds it taken by the first."""
        return Reach.NODE if kind.constraints.ports and self.arguments.ports else Reach.IDLE

    def feasible(self, kind: TaskClass, nodes: Nodes) -> Mask:
        """Tell which nodes take the class."""
        demands = kind.constraints
        if demands.unsupported:
            return np.zeros(len(nodes), dtype=np.bool_)
        key = ("predicates", self.arguments, demands.signature)
        fixed = nodes.table.memo.get(key)
        if fixed is None:
            fixed = np.ones(len(nodes.table.nodes), dtype=np.bool_)
            for _, excluded in self._rules:
                fixed &= ~excluded(nodes.table, demands)
            nodes.table.memo[key] = fixed
        mask: Mask = fixed[nodes.rows]
        return mask & ~self._ports_taken(demands, nodes) if demands.ports and self.arguments.ports else mask

    def objections(self, kind: TaskClass, nodes: Nodes) -> Iterable[tuple[str, Mask]]:
        """Tell why nodes don't take the class."""
        for words, excluded in self._rules:
            yield words, excluded(nodes.table, kind.constraints)[nodes.rows]
        if kind.constraints.ports and self.arguments.ports:
            yield "using its host port already", self._ports_taken(kind.constraints, nodes)

    def _ports_taken(self, demands: Constraints, nodes: Nodes) -> Mask:
        taken = self.session.ports
        return np.array(
            [rules.ports_clash(demands.ports, taken.get(row, ())) for row in nodes.rows.tolist()], dtype=np.bool_
        )


def _unready(table: NodeTable, _: Constraints) -> Mask:
    return ~np.array(table.ready, dtype=np.bool_)


def _cordoned(table: NodeTable, demands: Constraints) -> Mask:
    if rules.tolerated(demands.tolerations, _CORDON):
        return np.zeros(len(table.nodes), dtype=np.bool_)
    return np.array([node.spec.unschedulable for node in table.nodes], dtype=np.bool_)


def _misnamed(table: NodeTable, demands: Constraints) -> Mask:
    names = [bool(demands.node_name) and name != demands.node_name for name in table.names]
    return np.array(names, dtype=np.bool_)


def _unselected(table: NodeTable, demands: Constraints) -> Mask:
    if not demands.selector and demands.required is None:
        return np.zeros(len(table.nodes), dtype=np.bool_)
    return np.array([not rules.selects(demands, node) for node in table.nodes], dtype=np.bool_)


def _tainted(table: NodeTable, demands: Constraints) -> Mask:
    found = [rules.repelling_taint(demands, node.spec.taints or ()) is not None for node in table.nodes]
    return np.array(found, dtype=np.bool_)


def _repelled(table: NodeTable, demands: Constraints) -> Mask:
    domains = demands.repelled
    found = [any((node.metadata.labels or {}).get(key) == value for key, value in domains) for node in table.nodes]
    return np.array(found, dtype=np.bool_)
