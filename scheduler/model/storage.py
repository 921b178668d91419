"""Volumes as a cycle sees them: claims, volumes, storage classes, and what nodes can attach.

`Storage` is an immutable view; `StorageCache` keeps it up to date, object by object. What follows from it for pods and nodes is
in `scheduler.topology.volumes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from muster.model.amounts import QuantityError, Resources
from muster.model.objects import (
    CSINode,
    Meta,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    PodSpec,
    StorageClass,
)

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""The annotation that tells a provisioner where a claim's first pod goes."""
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_STORAGE: Final = "storage"


class ClaimKey(NamedTuple):
    """Which PersistentVolumeClaim."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Write it as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class ClaimRef(NamedTuple):
    """A claim that a pod mounts; ``owner`` is the pod's uid where the claim is made for it alone (generic ephemeral volume)."""

    claim: ClaimKey
    owner: str = ""


class VolumeDecision(Struct, frozen=True):
    """What is to become of a claim that waits for its first pod: it gets ``volume``, or, if empty, one made for ``node``."""

    claim: ClaimKey
    uid: str
    node: str
    volume: str = ""


VolumeChoices = tuple[VolumeDecision, ...]
"""What is decided for the claims of one pod."""


class Storage(Struct, frozen=True, eq=False, dict=True):
    """The cluster's storage at one moment.

    Attributes:
        drivers: each node's CSINode.
        chosen: what was decided for claims and isn't to be seen yet.
    """

    claims: Mapping[ClaimKey, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    drivers: Mapping[str, CSINode] = field(default_factory=dict)
    chosen: Mapping[ClaimKey, VolumeDecision] = field(default_factory=dict)

    @cached_property
    def free(self) -> Mapping[str, tuple[PersistentVolume, ...]]:
        """The volumes that a claim may still get, by storage class, the smallest first."""
        taken = {choice.volume for choice in self.chosen.values()}
        found: dict[str, list[PersistentVolume]] = {}
        for volume in self.volumes.values():
            going = volume.metadata.deletion_timestamp is not None
            if volume.status.phase in {"Available", ""} and volume.name not in taken and not going:
                found.setdefault(volume.spec.storage_class_name, []).append(volume)
        return {name: tuple(sorted(each, key=by_size)) for name, each in found.items()}


def by_size(volume: PersistentVolume) -> tuple[int, str]:
    """Order volumes: the smallest first."""
    return (capacity(volume.spec) or 0, volume.name)


def capacity(volume: PersistentVolumeSpec) -> int | None:
    """Return a volume's size; None where it can't be read."""
    return _size(volume.capacity)


def requested(claim: PersistentVolumeClaimSpec) -> int | None:
    """Return the size that a claim asks for; None where it can't be read."""
    return _size(claim.resources.requests if claim.resources else None)


def _size(amounts: Mapping[str, object] | None) -> int | None:
    try:
        return Resources.parse({_STORAGE: (amounts or {}).get(_STORAGE, "0")}).nano[_STORAGE]
    except QuantityError:
        return None


def class_of(claim: PersistentVolumeClaim) -> str:
    """Name a claim's storage class; empty for none."""
    return claim.metadata.annotation(_CLASS) or claim.spec.storage_class_name or ""


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether a claim has its volume, and both sides know."""
    return bool(claim.spec.volume_name) and (
        claim.status.phase == "Bound" or bool(claim.metadata.annotation(_BIND_COMPLETED))
    )


def mounts(pod: Meta, spec: PodSpec) -> Iterable[ClaimRef]:
    """List the claims that a pod mounts."""
    for volume in spec.volumes or ():
        if "ephemeral" in volume:
            yield ClaimRef(ClaimKey(pod.namespace, f"{pod.name}-{volume.get('name', '')}"), pod.uid)
        elif isinstance(mounted := volume.get("persistentVolumeClaim"), Mapping):
            yield ClaimRef(ClaimKey(pod.namespace, str(mounted.get("claimName", ""))))


class StorageCache:
    """Keeps a `Storage` up to date."""

    def __init__(self) -> None:
        self._claims: dict[ClaimKey, PersistentVolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._classes: dict[str, StorageClass] = {}
        self._drivers: dict[str, CSINode] = {}
        self._chosen: dict[str, tuple[VolumeDecision, ...]] = {}
        self._view: Storage | None = None
        self.changes = 0
        """How many there were."""

    def claim(self, claim: PersistentVolumeClaim, *, gone: bool = False) -> None:
        """Learn of a claim."""
        self._put(self._claims, ClaimKey(claim.namespace, claim.name), claim, gone=gone)

    def volume(self, volume: PersistentVolume, *, gone: bool = False) -> None:
        """Learn of a volume."""
        self._put(self._volumes, volume.name, volume, gone=gone)

    def storage_class(self, class_: StorageClass, *, gone: bool = False) -> None:
        """Learn of a storage class."""
        self._put(self._classes, class_.name, class_, gone=gone)

    def csi_node(self, node: CSINode, *, gone: bool = False) -> None:
        """Learn of a node's drivers."""
        self._put(self._drivers, node.name, node, gone=gone)

    def choose(self, pod: str, choices: tuple[VolumeDecision, ...]) -> None:
        """Remember what is being done for a pod, by its uid; nothing to forget it."""
        if self._chosen.pop(pod, ()) != choices:
            self._view = None
        if choices:
            self._chosen[pod] = choices

    def chosen(self, pod: str) -> tuple[VolumeDecision, ...]:
        """Return what is being done for a pod, by its uid."""
        return self._chosen.get(pod, ())

    def view(self) -> Storage:
        """Return the present state."""
        if self._view is None:
            self._view = Storage(
                dict(self._claims),
                dict(self._volumes),
                dict(self._classes),
                dict(self._drivers),
                {choice.claim: choice for choices in self._chosen.values() for choice in choices},
            )
        return self._view

    def _put(self, there: dict[Any, Any], key: Any, item: Any, *, gone: bool) -> None:
        self._view = None
        self.changes += 1
        if gone:
            there.pop(key, None)
        else:
            there[key] = item
