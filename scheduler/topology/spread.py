"""Topology spread constraints: which nodes would be too full of their like, and which have the fewest.

Source: ``pkg/scheduler/framework/plugins/podtopologyspread`` of kube-scheduler; decisions are the same, arrays over
nodes at a time. Constraints that a cluster's kube-scheduler adds by default aren't part of a pod, nor of this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.model import constraints
from scheduler.model.affinity import SpreadConstraint
from scheduler.model.constraints import Constraints
from scheduler.model.node_table import NodeTable
from scheduler.model.vectors import Floats, Mask
from scheduler.topology.domains import Counts, Domains, TopologyCounts

FULL: Final = 100.0
_HOSTNAME: Final = "kubernetes.io/hostname"


def unlabelled(demands: Constraints, topology: TopologyCounts) -> Mask:
    """Tell which nodes lack a label that a required constraint spreads by, [nodes]."""
    return ~_labelled(topology, [each for each in demands.pod_terms.spreads if each.required])


def exceeds_skew(demands: Constraints, topology: TopologyCounts, *, later: bool) -> Mask:
    """Tell on which nodes the pod would make a required constraint's skew too large, [nodes]."""
    excluded = np.zeros(len(topology.table.nodes), dtype=np.bool_)
    required = [each for each in demands.pod_terms.spreads if each.required]
    for spread in required:
        by, counts = _counts(demands, spread, required, topology, later=later)
        there = counts[by.found]
        emptiest = int(there.min()) if len(there) >= max(spread.min_domains, 1) else 0
        after = counts[by.codes] + int(spread.peers in demands.peers)
        excluded |= after - emptiest > spread.max_skew
    return excluded


def rate(demands: Constraints, topology: TopologyCounts, among: Mask, *, later: bool) -> Floats:
    """Rate all nodes by the constraints that are preferences; ``among`` are those that could take the pod at all."""
    wished = [each for each in demands.pod_terms.spreads if not each.required]
    candidates = among & _labelled(topology, wished)
    if not wished or not candidates.any():
        return np.zeros(len(among))
    costs = np.zeros(len(among))
    for spread in wished:
        by, counts = _counts(demands, spread, wished, topology, later=later)
        if spread.key == _HOSTNAME:
            size, each = int(candidates.sum()), _on_nodes(topology, spread, later=later)
        else:
            size, each = len(np.unique(by.codes[candidates & (by.codes >= 0)])), counts[by.codes]
        costs += each * math.log(size + 2) + (spread.max_skew - 1)
    costs = np.rint(costs)
    least, most = costs[candidates].min(), costs[candidates].max()
    ratings = np.full(len(among), FULL) if most == 0 else np.floor(FULL * (most + least - costs) / most)
    rated: Floats = np.where(candidates, ratings, 0.0)
    return rated


def _on_nodes(topology: TopologyCounts, spread: SpreadConstraint, *, later: bool) -> Counts:
    counts = topology.of(spread.peers)
    return counts.later if later else counts.now


def _counts(
    demands: Constraints,
    spread: SpreadConstraint,
    together: Sequence[SpreadConstraint],
    topology: TopologyCounts,
    *,
    later: bool,
) -> tuple[Domains, Counts]:
    """Return a constraint's domains, of the nodes that count for it, and how many of its pods are in each."""
    keys = tuple(each.key for each in together)
    name = (spread.key, keys, spread.honors_node_affinity, spread.honors_taints, demands.of_nodes)

    def divide() -> Domains:
        counting = _labelled(topology, together) & _counting(demands, spread, topology.table)
        return topology.domains(spread.key).of(counting)

    by = topology.cache.get(("spread", name), divide)
    return by, topology.of(spread.peers).by(name, by, later=later)


def _counting(demands: Constraints, spread: SpreadConstraint, table: NodeTable) -> Mask:
    accepted = [
        (not spread.honors_node_affinity or constraints.selects(demands, node))
        and (not spread.honors_taints or constraints.repelling_taint(demands, node.spec.taints or ()) is None)
        for node in table.nodes
    ]
    return np.array(accepted, dtype=np.bool_)


def _labelled(topology: TopologyCounts, together: Sequence[SpreadConstraint]) -> Mask:
    mask = np.ones(len(topology.table.nodes), dtype=np.bool_)
    for spread in together:
        mask &= topology.domains(spread.key).codes >= 0
    return mask
