"""Volumes that exist and are free, by where they are reached: which of them a claim would get on a node.

Local volumes are as many as nodes, network volumes are reached from everywhere: the first are looked up by node, the
second looked through once for all nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from muster.model import labels
from muster.model.objects import (
    LabelSelectorRequirement,
    Node,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
)
from scheduler.model import constraints
from scheduler.model.storage import Storage, by_size, capacity, class_of, requested
from scheduler.model.vectors import Mask
from scheduler.topology.domains import TopologyCounts

_ZONES: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


class FreeVolumes:
    """The free volumes of one storage view over one node table, each list the smallest first."""

    def __init__(self, storage: Storage, topology: TopologyCounts) -> None:
        self._everywhere: dict[str, list[PersistentVolume]] = {}
        self._local: dict[tuple[str, int], list[PersistentVolume]] = {}
        self._rows: dict[str, list[int]] = {}
        for class_, volumes in storage.free.items():
            for volume in volumes:
                if not _placed(volume):
                    self._everywhere.setdefault(class_, []).append(volume)
                    continue
                self._rows[volume.name] = np.flatnonzero(reached(topology, volume)).tolist()
                for row in self._rows[volume.name]:
                    self._local.setdefault((class_, row), []).append(volume)
        self._kept = any(each.spec.claim_ref for volumes in storage.free.values() for each in volumes)
        self._suiting: dict[tuple[str, bytes], list[PersistentVolume]] = {}
        self._open: dict[tuple[str, bytes], Mask] = {}
        self._nodes = len(topology.table.nodes)

    def first(self, claim: PersistentVolumeClaim, row: int, taken: set[str]) -> PersistentVolume | None:
        """Return the smallest volume that suits a claim and is reached from a node, but for those that are taken."""
        class_ = class_of(claim)
        near = next(_free(self._local.get((class_, row), ()), claim, taken), None)
        anywhere = next((each for each in self._anywhere(class_, claim) if each.name not in taken), None)
        return min((each for each in (near, anywhere) if each is not None), key=by_size, default=None)

    def open(self, claim: PersistentVolumeClaim, taken: set[str]) -> Mask:
        """Tell on which nodes there is such a volume, [nodes]."""
        class_ = class_of(claim)
        if any(each.name not in taken for each in self._anywhere(class_, claim)):
            return np.ones(self._nodes, dtype=np.bool_)
        likeness = self._likeness(claim)
        known = self._open.get(likeness)
        if known is None:
            known = self._open[likeness] = np.zeros(self._nodes, dtype=np.bool_)
            for (of, row), volumes in self._local.items():
                known[row] = known[row] or (of == class_ and any(suits(each, claim) for each in volumes))
        mask = known.copy()
        for row in {row for name in taken for row in self._rows.get(name, ()) if mask[row]}:
            mask[row] = any(True for _ in _free(self._local[class_, row], claim, taken))
        return mask

    def _anywhere(self, class_: str, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        likeness = self._likeness(claim)
        known = self._suiting.get(likeness)
        if known is None:
            known = [each for each in self._everywhere.get(class_, ()) if suits(each, claim)]
            self._suiting[likeness] = known
        return known

    def _likeness(self, claim: PersistentVolumeClaim) -> tuple[str, bytes]:
        """Return what is equal for claims that the same volumes suit; where some are kept for one claim, its uid."""
        return (class_of(claim), claim.metadata.uid.encode() if self._kept else msgspec.json.encode(claim.spec))


def _free(
    volumes: Iterable[PersistentVolume], claim: PersistentVolumeClaim, taken: set[str]
) -> Iterator[PersistentVolume]:
    return (each for each in volumes if each.name not in taken and suits(each, claim))


def suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume gives what a claim asks for."""
    has, wants = volume.spec, claim.spec
    if has.claim_ref is not None and (has.claim_ref.namespace, has.claim_ref.name) != (claim.namespace, claim.name):
        return False
    if has.claim_ref is not None and has.claim_ref.uid not in {"", claim.metadata.uid}:
        return False
    size, wanted = capacity(has), requested(wants)
    return (
        size is not None
        and wanted is not None
        and size >= wanted
        and (has.volume_mode or "Filesystem") == (wants.volume_mode or "Filesystem")
        and (has.volume_attributes_class_name or "") == (wants.volume_attributes_class_name or "")
        and set(wants.access_modes or ()) <= set(has.access_modes or ())
        and (wants.selector is None or labels.matches(wants.selector, volume.metadata.labels))
    )


# ── where a volume is reached ────────────────────────────────────────────────────────────────────────────────────


def reaches(node: Node, volume: PersistentVolume) -> bool:
    """Whether a node is where a volume says, by its node affinity and by the zones that it is labelled with."""
    terms = _terms(volume)
    if terms is not None and not any(constraints.term_matches(term, node) for term in terms):
        return False
    has = node.metadata.labels or {}
    if not any(key in has for key in _ZONES):
        return True
    return all(has.get(key) in values for key, values in _zones(volume).items())


def reached(topology: TopologyCounts, volume: PersistentVolume) -> Mask:
    """Tell which nodes a volume is reached from, [nodes]: `reaches`, for all at once."""
    mask = np.ones(len(topology.table.nodes), dtype=np.bool_)
    terms = _terms(volume)
    if terms is not None:
        mask &= np.logical_or.reduce([np.zeros_like(mask), *[_matching(topology, term) for term in terms]])
    zones = _zones(volume)
    if zones:
        zoned = np.logical_or.reduce([topology.domains(key).codes >= 0 for key in _ZONES])
        mask &= ~zoned | np.logical_and.reduce([topology.domains(key).among(values) for key, values in zones.items()])
    return mask


def _matching(topology: TopologyCounts, term: NodeSelectorTerm) -> Mask:
    expressions = term.match_expressions or ()
    if not expressions or term.match_fields or any(each.operator != "In" for each in expressions):
        return np.array([constraints.term_matches(term, node) for node in topology.table.nodes], dtype=np.bool_)
    mask: Mask = np.logical_and.reduce([_one_of(topology, each) for each in expressions])
    return mask


def _one_of(topology: TopologyCounts, requirement: LabelSelectorRequirement) -> Mask:
    return topology.domains(requirement.key).among(requirement.values or ())


def _placed(volume: PersistentVolume) -> bool:
    return _terms(volume) is not None or bool(_zones(volume))


def _terms(volume: PersistentVolume) -> tuple[NodeSelectorTerm, ...] | None:
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    return (required.node_selector_terms or ()) if required is not None else None


def _zones(volume: PersistentVolume) -> Mapping[str, list[str]]:
    has = volume.metadata.labels or {}
    # Several zones are written with two underscores between them.
    return {key: has[key].split("__") for key in _ZONES if key in has}
