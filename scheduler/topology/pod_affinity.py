"""Inter-pod affinity and anti-affinity: which nodes it leaves open, and how well others serve it.

Source: ``pkg/scheduler/framework/plugins/interpodaffinity`` of kube-scheduler; decisions are the same, arrays over nodes
at a time. Ratings go from 0 to 100 over ``among``, the nodes that could take the pod at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from scheduler.model.affinity import AffinityTerm, CountingRule, InverseTermKind
from scheduler.model.constraints import Constraints
from scheduler.model.vectors import Floats, Mask
from scheduler.topology.domains import Counts, TopologyCounts

FULL: Final = 100.0
_HARD: Final = 1
"""What a required affinity of a pod that runs already is worth to pods that it wants near (hardPodAffinityWeight)."""


def lacks_affinity(demands: Constraints, topology: TopologyCounts, *, later: bool) -> Mask:
    """Tell which nodes have none of those near that the pod's affinity asks for, [nodes]."""
    pod_terms = demands.pod_terms
    missing = np.zeros(len(topology.table.nodes), dtype=np.bool_)
    if pod_terms.all_required is None:
        return missing
    first = is_first_of_its_set(demands, topology, later=later)
    for term in pod_terms.required_affinity:
        by = topology.domains(term.key)
        missing |= (
            (by.codes < 0)
            if first
            else topology.of(pod_terms.all_required).by(term.key, by, later=later)[by.codes] <= 0
        )
    return missing


def is_first_of_its_set(demands: Constraints, topology: TopologyCounts, *, later: bool) -> bool:
    """Whether the pod is the first of those that want to be together: it finds nobody, and may go to any domain."""
    together = demands.pod_terms.all_required
    if together is None or together not in demands.peers:
        return False
    counts = topology.of(together)
    return not any(
        counts.by(term.key, topology.domains(term.key), later=later).any()
        for term in demands.pod_terms.required_affinity
    )


def breaks_anti_affinity(demands: Constraints, topology: TopologyCounts, *, later: bool) -> Mask:
    """Tell which nodes have somebody near whom the pod's anti-affinity excludes, [nodes]."""
    excluded = np.zeros(len(topology.table.nodes), dtype=np.bool_)
    for term in demands.pod_terms.required_anti_affinity:
        excluded |= _counts(topology, term.peers, term, later=later) > 0
    return excluded


def breaks_anti_affinity_of_others(demands: Constraints, topology: TopologyCounts, *, later: bool) -> Mask:
    """Tell which nodes have somebody near whose own anti-affinity excludes the pod, [nodes]."""
    excluded = np.zeros(len(topology.table.nodes), dtype=np.bool_)
    for peers in demands.peers:
        for carried in topology.inverse_terms.get(peers, ()):
            if carried.role is InverseTermKind.APART and not topology.empty(carried):
                excluded |= _counts(topology, carried, carried.term, later=later) > 0
    return excluded


def _counts(topology: TopologyCounts, key: object, term: AffinityTerm, *, later: bool) -> Counts:
    by = topology.domains(term.key)
    return topology.of(key).by(term.key, by, later=later)[by.codes]


def rate(demands: Constraints, topology: TopologyCounts, among: Mask, *, later: bool) -> Floats:
    """Rate all nodes by preferences: the pod's own, and those of pods that are placed."""
    raw = np.zeros(len(among), dtype=np.int64)
    for term in demands.pod_terms.preferred:
        raw += term.weight * _counts(topology, term.peers, term, later=later)
    for key, term, weight in _of_others(demands, topology):
        raw += weight * _counts(topology, key, term, later=later)
    if not among.any():
        return np.zeros(len(among))
    least, most = int(raw[among].min()), int(raw[among].max())
    if least == most:
        return np.zeros(len(among))
    rated: Floats = np.floor(FULL * (raw - least) / (most - least)).clip(0, FULL)
    return rated


def _of_others(demands: Constraints, topology: TopologyCounts) -> Iterable[tuple[object, AffinityTerm, int]]:
    for peers in sorted(demands.peers, key=lambda each: each.signature):
        for carried in topology.inverse_terms.get(peers, ()) if peers.purpose is CountingRule.AFFINITY else ():
            if carried.role is not InverseTermKind.APART and not topology.empty(carried):
                yield carried, carried.term, carried.term.weight if carried.role is InverseTermKind.PREFERRED else _HARD
