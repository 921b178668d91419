"""The nodes that a pod may run on as far as node and pod alone say: readiness, cordons, selectors, affinity, taints.

Masks over the node table, True where a node is out of the question. They depend on nothing else, so each is worked out
once per table and per demand.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from muster.model.objects import Taint
from scheduler.model import constraints
from scheduler.model.constraints import Constraints
from scheduler.model.node_table import NodeTable
from scheduler.model.vectors import Mask
from scheduler.topology.domains import TopologyCounts

_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def unready(table: NodeTable, _: Constraints) -> Mask:
    """Tell whose kubelet is down, or whose amounts can't be read."""
    return ~np.array(table.ready, dtype=np.bool_)


def cordoned(table: NodeTable, demands: Constraints) -> Mask:
    """Tell which nodes take no new pods, as far as the pod doesn't tolerate that."""
    if constraints.tolerated(demands.tolerations, _CORDON):
        return np.zeros(len(table.nodes), dtype=np.bool_)
    return np.array([node.spec.unschedulable for node in table.nodes], dtype=np.bool_)


def closed(table: NodeTable, _: Constraints) -> Mask:
    """Tell on which nodes is a pod that can't be read, so that nobody knows what is free there."""
    if not table.closed:
        return np.zeros(len(table.nodes), dtype=np.bool_)
    return np.array([name in table.closed for name in table.names], dtype=np.bool_)


def unselected(table: NodeTable, demands: Constraints) -> Mask:
    """Tell which nodes the selector or the required node affinity excludes."""
    if not demands.selector and demands.required is None:
        return np.zeros(len(table.nodes), dtype=np.bool_)
    return np.array([not constraints.selects(demands, node) for node in table.nodes], dtype=np.bool_)


def tainted(table: NodeTable, demands: Constraints) -> Mask:
    """Tell which nodes have a taint that keeps the pod off."""
    found = [constraints.repelling_taint(demands, node.spec.taints or ()) is not None for node in table.nodes]
    return np.array(found, dtype=np.bool_)


_ALL: Final = (unready, cordoned, closed, unselected, tainted)


def eligible(topology: TopologyCounts, demands: Constraints) -> Mask:
    """Tell which nodes none of this excludes, True where a pod could run: those that ratings are relative to."""

    def judge() -> Mask:
        mask: Mask = ~np.logical_or.reduce([rule(topology.table, demands) for rule in _ALL])
        return mask

    return topology.cache.get(("eligible", demands.of_nodes), judge)
