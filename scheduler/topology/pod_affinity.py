"""Inter-pod affinity and anti-affinity: which nodes it leaves open, and how well others serve it.

Source: ``pkg/scheduler/framework/plugins/interpodaffinity`` of kube-scheduler; decisions are the same, arrays over nodes
at a time. Ratings go from 0 to 100 over ``among``, the nodes that could take the pod at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from scheduler.model.affinity import AffinityTerm, Purpose, Role
from scheduler.model.constraints import Constraints
from scheduler.model.vectors import Floats, Mask
from scheduler.topology.domains import Counts, TopologyCounts, domains

FULL: Final = 100.0
_HARD: Final = 1
"""What a required affinity of a pod that runs already is worth to pods that it wants near (hardPodAffinityWeight)."""


def far(demands: Constraints, around: TopologyCounts, *, later: bool) -> Mask:
    """Tell which nodes have none of those near that the pod's affinity asks for, [nodes]."""
    company, table = demands.company, around.table
    missing = np.zeros(len(table.nodes), dtype=np.bool_)
    if company.together is None:
        return missing
    first = begins(demands, around, later=later)
    for term in company.near:
        by = domains(table, term.key)
        missing |= (
            (by.codes < 0) if first else around.tally(company.together).by(term.key, by, later=later)[by.codes] <= 0
        )
    return missing


def begins(demands: Constraints, around: TopologyCounts, *, later: bool) -> bool:
    """Whether the pod is the first of those that want to be together: it finds nobody, and may go to any domain."""
    together = demands.company.together
    if together is None or together not in demands.peers:
        return False
    tally = around.tally(together)
    return not any(
        tally.by(term.key, domains(around.table, term.key), later=later).any() for term in demands.company.near
    )


def near(demands: Constraints, around: TopologyCounts, *, later: bool) -> Mask:
    """Tell which nodes have somebody near whom the pod's anti-affinity excludes, [nodes]."""
    excluded = np.zeros(len(around.table.nodes), dtype=np.bool_)
    for term in demands.company.apart:
        excluded |= _counts(around, term.peers, term, later=later) > 0
    return excluded


def unwanted(demands: Constraints, around: TopologyCounts, *, later: bool) -> Mask:
    """Tell which nodes have somebody near whose own anti-affinity excludes the pod, [nodes]."""
    excluded = np.zeros(len(around.table.nodes), dtype=np.bool_)
    for peers in demands.peers:
        for carried in around.carried.get(peers, ()):
            if carried.role is Role.APART and not around.empty(carried):
                excluded |= _counts(around, carried, carried.term, later=later) > 0
    return excluded


def _counts(around: TopologyCounts, key: object, term: AffinityTerm, *, later: bool) -> Counts:
    by = domains(around.table, term.key)
    return around.tally(key).by(term.key, by, later=later)[by.codes]


def rate(demands: Constraints, around: TopologyCounts, among: Mask, *, later: bool) -> Floats:
    """Rate all nodes by preferences: the pod's own, and those of pods that are placed."""
    raw = np.zeros(len(among), dtype=np.int64)
    for term in demands.company.preferred:
        raw += term.weight * _counts(around, term.peers, term, later=later)
    for key, term, weight in _of_others(demands, around):
        raw += weight * _counts(around, key, term, later=later)
    if not among.any():
        return np.zeros(len(among))
    least, most = int(raw[among].min()), int(raw[among].max())
    if least == most:
        return np.zeros(len(among))
    rated: Floats = np.floor(FULL * (raw - least) / (most - least)).clip(0, FULL)
    return rated


def _of_others(demands: Constraints, around: TopologyCounts) -> Iterable[tuple[object, AffinityTerm, int]]:
    for peers in sorted(demands.peers, key=lambda each: each.signature):
        for carried in around.carried.get(peers, ()) if peers.purpose is Purpose.AFFINITY else ():
            if carried.role is not Role.APART and not around.empty(carried):
                yield carried, carried.term, carried.term.weight if carried.role is Role.PREFERRED else _HARD
