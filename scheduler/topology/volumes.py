"""The volumes of a pod: the nodes that they leave open, and what is to be done for them once it has a node.

Bound volumes hold a pod to the nodes that reach them. A claim that waits for its first pod gets a volume that exists
and fits, the smallest first, or one that its class' provisioner makes for the node. A claim that is to be bound at once
and isn't, is missing or lost keeps its pod waiting.

Source: the plugins ``volumebinding``, ``volumezone``, ``volumerestrictions`` and ``nodevolumelimits`` of kube-scheduler.
Storage capacities that CSI drivers publish aren't looked at: a provisioner that finds no room has the pod placed anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from muster.model.objects import CSINodeDriver, Node, PersistentVolume, PersistentVolumeClaim, StorageClass
from scheduler.model.cache import Cache
from scheduler.model.constraints import Constraints
from scheduler.model.snapshot import TaskStatus
from scheduler.model.storage import (
    SELECTED_NODE,
    ClaimKey,
    ClaimRef,
    Storage,
    VolumeDecision,
    class_of,
    is_bound,
    requested,
)
from scheduler.model.vectors import Mask
from scheduler.topology.domains import Counts, TopologyCounts
from scheduler.topology.free_volumes import FreeVolumes, reached

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_ALONE: Final = "ReadWriteOncePod"


class Volumes:
    """The volumes of one session, and what it decides about them.

    Of the answers that follow from storage and node table, those of the last storage are kept with the table's.
    """

    def __init__(self, storage: Storage, topology: TopologyCounts) -> None:
        self._storage = storage
        self._table = topology.table
        self._topology = topology
        self._cache = topology.cache.get_latest("volumes", storage, Cache)
        self._chosen: dict[ClaimKey, tuple[VolumeDecision, int]] = {
            key: (each, 0) for key, each in storage.chosen.items()
        }
        self._taken: set[str] = set()
        self._of: dict[tuple[str, int], tuple[VolumeDecision, ...]] = {}
        self._attached: dict[tuple[str, bool], Counts] | None = None
        self._supply = self._cache.get("supply", lambda: FreeVolumes(storage, topology))

    # ── what keeps a pod waiting wherever it would go ────────────────────────────────────────────────────────────

    def trouble(self, demands: Constraints) -> str:
        """Say why no node can have the pod, as far as its claims go; empty when one might."""
        return next(filter(None, (self._wrong(mount) for mount in demands.claims)), "")

    def _wrong(self, mount: ClaimRef) -> str:
        key = mount.claim
        claim = self._storage.claims.get(key)
        if claim is None:
            return f"PersistentVolumeClaim {key} doesn't exist" + ("" if mount.owner else "; create it")
        if mount.owner and getattr(claim.metadata.controller(), "uid", "") != mount.owner:
            return f"PersistentVolumeClaim {key} isn't the pod's own, whose name it has; delete it, or rename the pod"
        if claim.metadata.deletion_timestamp is not None:
            return f"PersistentVolumeClaim {key} is being deleted; create it anew"
        if claim.status.phase == "Lost":
            return f"PersistentVolumeClaim {key} has lost its volume {claim.spec.volume_name}; create it anew"
        if claim.spec.volume_name:
            return self._wrong_volume(key, claim)
        class_ = self._storage.classes.get(class_of(claim))
        if class_ is None and class_of(claim):
            return f"PersistentVolumeClaim {key} names StorageClass {class_of(claim)}, which doesn't exist"
        if class_ is None or class_.volume_binding_mode != "WaitForFirstConsumer":
            return f"PersistentVolumeClaim {key} has no volume yet; it is bound before its pods are placed"
        return ""

    def _wrong_volume(self, key: ClaimKey, claim: PersistentVolumeClaim) -> str:
        name = claim.spec.volume_name
        if not is_bound(claim):
            return f"PersistentVolumeClaim {key} is not bound to its volume {name} yet"
        if name not in self._storage.volumes:
            return f"PersistentVolumeClaim {key} is bound to PersistentVolume {name}, which doesn't exist"
        return ""

    def shared(self, demands: Constraints) -> bool:
        """Whether what one pod gets is gone for others, elsewhere too: claims without a volume, or for one pod only."""
        return any(
            not claim.spec.volume_name or _ALONE in (claim.spec.access_modes or ()) for claim in self._claims(demands)
        )

    def counted(self, demands: Constraints) -> bool:
        """Whether nodes take only so many of the pod's volumes."""
        drivers = {self._driver(claim) for claim in self._claims(demands)} - {""}
        return any(bool((self._limits(driver) >= 0).any()) for driver in drivers)

    # ── which nodes ──────────────────────────────────────────────────────────────────────────────────────────────

    def unreachable(self, demands: Constraints) -> Mask:
        """Tell which nodes don't reach a volume that the pod has already, [nodes]."""
        excluded = np.zeros(len(self._table.nodes), dtype=np.bool_)
        for claim in self._claims(demands):
            if claim.spec.volume_name:
                excluded |= ~self._reaching(self._storage.volumes[claim.spec.volume_name])
        return excluded

    def unbindable(self, demands: Constraints) -> Mask:
        """Tell on which nodes a claim that waits for its first pod would get no volume, [nodes]."""
        waiting = [claim for claim in self._claims(demands) if not claim.spec.volume_name]
        open_ = np.ones(len(self._table.nodes), dtype=np.bool_)
        for claim in waiting:
            open_ &= self._open_to(claim)
        # Each alone would get one; several may want the same.
        if sum(bool(self._storage.free.get(class_of(claim))) for claim in waiting) > 1:
            for row in np.flatnonzero(open_).tolist():
                open_[row] = self._bindings(waiting, row) is not None
        return ~open_

    def _open_to(self, claim: PersistentVolumeClaim) -> Mask:
        """Tell on which nodes a claim alone would get a volume, [nodes]: where `_binding` finds one."""
        class_ = self._storage.classes[class_of(claim)]
        if _key(claim) in self._chosen:
            return self._shared(self._chosen[_key(claim)][0], class_)
        selected = claim.metadata.annotation(SELECTED_NODE)
        if selected:
            return np.array([name == selected for name in self._table.names], dtype=np.bool_)
        made: Mask = self._allowed(class_) & _provisions(class_)
        return made | self._supply.open(claim, self._taken)

    def _allowed(self, class_: StorageClass) -> Mask:
        """Tell for which nodes a class' volumes may be made, [nodes]."""
        nodes = self._table.nodes
        return self._cache.get(
            ("allowed", class_.name), lambda: np.array([_allows(class_, node) for node in nodes], dtype=np.bool_)
        )

    def _shared(self, choice: VolumeDecision, class_: StorageClass) -> Mask:
        """Tell from which nodes the volume chosen, or made for the first pod's node, will be reached, [nodes]."""
        if choice.volume:
            volume = self._storage.volumes.get(choice.volume)
            return self._reaching(volume) if volume is not None else np.zeros(len(self._table.nodes), dtype=np.bool_)
        first = self._table.row.get(choice.node)
        if first is None:
            return np.zeros(len(self._table.nodes), dtype=np.bool_)
        mask = self._allowed(class_).copy()
        for key in self._segments(class_.provisioner, choice.node):
            codes = self._topology.domains(key).codes
            mask &= codes == codes[first]
        return mask

    def in_use(self, demands: Constraints, *, later: bool) -> bool:
        """Whether another pod has a claim that only one may have (ReadWriteOncePod)."""
        return any(
            _ALONE in (claim.spec.access_modes or ()) and self._topology.of(_key(claim)).at(later=later).any()
            for claim in self._claims(demands)
        )

    def beyond_limits(self, demands: Constraints, *, later: bool) -> Mask:
        """Tell which nodes could not attach one of the pod's volumes, [nodes]."""
        excluded = np.zeros(len(self._table.nodes), dtype=np.bool_)
        new: dict[str, Counts] = {}
        for claim in self._claims(demands):
            driver = self._driver(claim)
            if driver:
                absent = (self._topology.of(_key(claim)).at(later=later) == 0).astype(np.int64)
                new[driver] = new.get(driver, np.zeros_like(absent)) + absent
        for driver, more in new.items():
            limits = self._limits(driver)
            excluded |= (limits >= 0) & (self._attachments(driver, later=later) + more > limits) & (more > 0)
        return excluded

    def _claims(self, demands: Constraints) -> list[PersistentVolumeClaim]:
        found = (self._storage.claims.get(mount.claim) for mount in demands.claims)
        return [claim for claim in found if claim is not None]

    def _reaching(self, volume: PersistentVolume) -> Mask:
        return self._cache.get(("reaching", volume.name), lambda: reached(self._topology, volume))

    # ── claims that wait for their first pod ─────────────────────────────────────────────────────────────────────

    def _bindings(self, waiting: Iterable[PersistentVolumeClaim], row: int) -> tuple[VolumeDecision, ...] | None:
        """Find each claim a volume that the node reaches, or could have made; None where one has none."""
        taken, found = set(self._taken), []
        for claim in sorted(waiting, key=lambda each: (requested(each.spec) or 0, each.name)):
            choice = self._binding(claim, row, taken)
            if choice is None:
                return None
            taken.add(choice.volume)
            found.append(choice)
        return tuple(found)

    def _binding(self, claim: PersistentVolumeClaim, row: int, taken: set[str]) -> VolumeDecision | None:
        key, node, class_ = _key(claim), self._table.names[row], self._storage.classes[class_of(claim)]
        if key in self._chosen:
            choice = self._chosen[key][0]
            return choice if self._shared(choice, class_)[row] else None
        selected = claim.metadata.annotation(SELECTED_NODE)
        if selected:
            return VolumeDecision(key, claim.metadata.uid, node) if selected == node else None
        volume = self._supply.first(claim, row, taken)
        if volume is not None:
            return VolumeDecision(key, claim.metadata.uid, node, volume.name)
        makes = _provisions(class_) and self._allowed(class_)[row]
        return VolumeDecision(key, claim.metadata.uid, node) if makes else None

    def _segments(self, provisioner: str, node: str) -> tuple[str, ...]:
        """Return the labels that say which nodes reach a volume made for a node; what no driver tells holds for all."""
        return next((each.topology_keys or () for each in self._drivers(node) if each.name == provisioner), ())

    def _drivers(self, node: str) -> tuple[CSINodeDriver, ...]:
        there = self._storage.drivers.get(node)
        return (there.spec.drivers or ()) if there is not None else ()

    # ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _driver(self, claim: PersistentVolumeClaim) -> str:
        volume = self._storage.volumes.get(claim.spec.volume_name)
        if volume is not None:
            return volume.spec.csi.driver if volume.spec.csi is not None else ""
        class_ = self._storage.classes.get(class_of(claim))
        return class_.provisioner if class_ is not None and class_.provisioner != _NO_PROVISIONER else ""

    def _limits(self, driver: str) -> Counts:
        """Return how many volumes of a driver each node takes, -1 for any number, [nodes]."""
        names = self._table.names
        return self._cache.get(
            ("limits", driver), lambda: np.array([self._limit(name, driver) for name in names], dtype=np.int64)
        )

    def _limit(self, node: str, driver: str) -> int:
        for each in self._drivers(node):
            if each.name == driver and each.allocatable is not None and each.allocatable.count is not None:
                return each.allocatable.count
        return -1

    def _attachments(self, driver: str, *, later: bool) -> Counts:
        """Count the volumes of a driver that pods use on each node, [nodes]."""
        if self._attached is None:
            self._attached = {}
            for claim in self._storage.claims.values():
                of, key = self._driver(claim), _key(claim)
                for row in self._topology.rows(key) if of else ():
                    self._add(of, row, 1, later=False)
                    self._add(of, row, int(self._topology.left(key, row)), later=True)
        return self._attached.get((driver, later), np.zeros(len(self._table.nodes), dtype=np.int64))

    def _add(self, driver: str, row: int, count: int, *, later: bool) -> None:
        if count and self._attached is not None:
            there = self._attached.setdefault((driver, later), np.zeros(len(self._table.nodes), dtype=np.int64))
            there[row] += count

    # ── what is decided ──────────────────────────────────────────────────────────────────────────────────────────

    def count(self, uid: str, demands: Constraints, row: int, status: TaskStatus, sign: int) -> None:
        """Choose volumes for a pod that is given a node (1), or give them back (-1)."""
        self._attach(demands, row, status, sign)
        if status is TaskStatus.RELEASING:
            return
        if sign > 0:
            waiting = [claim for claim in self._claims(demands) if not claim.spec.volume_name]
            # Where nobody judged (the predicates are off), there may be nothing that could be done.
            self._of[uid, row] = (not self.trouble(demands) and self._bindings(waiting, row)) or ()
        for choice in self._of[uid, row]:
            first, users = self._chosen.get(choice.claim, (choice, 0))
            self._chosen[choice.claim] = (first, users + sign)
            self._taken.add(choice.volume)
            if users + sign == 0 and choice.claim not in self._storage.chosen:
                del self._chosen[choice.claim]
                self._taken.discard(choice.volume)
        if sign < 0:
            del self._of[uid, row]

    def _attach(self, demands: Constraints, row: int, status: TaskStatus, sign: int) -> None:
        """Count what a node attaches for a pod that came or went, and that the topology counts show already."""
        leaves = status is TaskStatus.RELEASING
        gain = -sign if leaves else sign
        for claim in self._claims(demands) if self._attached is not None else ():
            driver, users = self._driver(claim), self._topology.of(_key(claim))
            for later in (True,) if leaves else (False, True):
                # The first that uses it has it attached, the last one detached.
                if driver and users.at(later=later)[row] == max(gain, 0):
                    self._add(driver, row, gain, later=later)

    def choices(self, uid: str, row: int) -> tuple[VolumeDecision, ...]:
        """Return what is to be done before a pod is bound to the node that it got."""
        return self._of.get((uid, row), ())


def _key(claim: PersistentVolumeClaim) -> ClaimKey:
    return ClaimKey(claim.namespace, claim.name)


def _provisions(class_: StorageClass) -> bool:
    return class_.provisioner not in {"", _NO_PROVISIONER}


def _allows(class_: StorageClass, node: Node) -> bool:
    """Whether a class' volumes may be made where a node is."""
    terms, has = class_.allowed_topologies or (), node.metadata.labels or {}
    return not terms or any(
        all(has.get(each.key) in (each.values or ()) for each in term.match_label_expressions or ()) for term in terms
    )
