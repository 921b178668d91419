"""Volumes, the claims on them, and what nodes can attach."""

from __future__ import annotations

from msgspec import field

from muster.model.objects.metadata import ApiStruct, Json, LabelSelector, Object
from muster.model.objects.pods import NodeSelector, ResourceRequirements


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    """A reference to an object of a namespace."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class VolumeNodeAffinity(ApiStruct, frozen=True, kw_only=True):
    """Which nodes can reach a volume."""

    required: NodeSelector | None = None


class CSIVolume(ApiStruct, frozen=True, kw_only=True):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(ApiStruct, frozen=True, kw_only=True):
    """A volume, as far as choosing it and reaching it goes."""

    capacity: dict[str, Json] | None = None
    access_modes: tuple[str, ...] | None = None
    storage_class_name: str = ""
    volume_mode: str = ""
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ObjectReference | None = None
    csi: CSIVolume | None = None


class StoragePhase(ApiStruct, frozen=True, kw_only=True):
    """The status of a volume or claim."""

    phase: str = ""


class PersistentVolume(Object, frozen=True, kw_only=True):
    """core/v1 PersistentVolume."""

    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: StoragePhase = field(default_factory=StoragePhase)


class PersistentVolumeClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """What a claim asks for, and what it got."""

    access_modes: tuple[str, ...] | None = None
    selector: LabelSelector | None = None
    resources: ResourceRequirements | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = ""
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(Object, frozen=True, kw_only=True):
    """core/v1 PersistentVolumeClaim."""

    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: StoragePhase = field(default_factory=StoragePhase)


class TopologyRequirement(ApiStruct, frozen=True, kw_only=True):
    """One label, and the values that are allowed."""

    key: str
    values: tuple[str, ...] | None = None


class TopologySelectorTerm(ApiStruct, frozen=True, kw_only=True):
    """Labels of which all must have an allowed value."""

    match_label_expressions: tuple[TopologyRequirement, ...] | None = None


class StorageClass(Object, frozen=True, kw_only=True):
    """storage.k8s.io/v1 StorageClass."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] | None = None


class CSIDriverLimit(ApiStruct, frozen=True, kw_only=True):
    """How many volumes of a driver a node takes; None for any number."""

    count: int | None = None


class CSINodeDriver(ApiStruct, frozen=True, kw_only=True):
    """A CSI driver on a node."""

    name: str = ""
    topology_keys: tuple[str, ...] | None = None
    allocatable: CSIDriverLimit | None = None


class CSINodeSpec(ApiStruct, frozen=True, kw_only=True):
    """The drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] | None = None


class CSINode(Object, frozen=True, kw_only=True):
    """storage.k8s.io/v1 CSINode; its name is the node's."""

    spec: CSINodeSpec = field(default_factory=CSINodeSpec)
