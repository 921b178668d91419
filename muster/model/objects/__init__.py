"""Kubernetes objects as typed, frozen structs of the fields that Muster reads.

Decoding is partial on purpose: unknown fields are skipped, which is what makes it several times faster than the
generated client models. So a struct must never be written back whole; writes are patches, or whole objects of kinds
that only Muster writes (Lease, QuotaLedger).

Times are aware ``datetime``; amounts stay text here (`muster.model.amounts.Resources.parse` reads them), because a
malformed amount must refuse one object with its field named, not fail the decoding of a list.

A module holds one family of them and imports only those it refers to. Everybody else imports from here. Nothing here decides:
what a value means, `muster.model` knows (`amounts`, `labels`, `requests`, `scopes`).
"""

from __future__ import annotations

from functools import cache

import msgspec

from muster.model.objects.cluster import (
    ConfigMap,
    CustomResourceDefinition,
    Event,
    Lease,
    LeaseSpec,
    Namespace,
    NamespaceStatus,
    Secret,
    WebhookConfiguration,
)
from muster.model.objects.devices import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceSlice,
)
from muster.model.objects.metadata import (
    ApiStruct,
    Condition,
    Json,
    LabelSelector,
    LabelSelectorRequirement,
    Meta,
    Object,
    OwnerReference,
)
from muster.model.objects.nodes import ContainerImage, Node, NodeSpec, NodeStatus, Taint
from muster.model.objects.pods import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSchedulingGate,
    PodSpec,
    PodStatus,
    PodTemplate,
    PreferredNode,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from muster.model.objects.quotas import (
    LedgerData,
    QuotaLedger,
    QuotaTotals,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    ScopeRequirement,
    ScopeSelector,
)
from muster.model.objects.scheduling import (
    NativePodGroup,
    NativeTopologyConstraint,
    NetworkTier,
    NetworkTopology,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PriorityClass,
    Queue,
    QueueGuarantee,
    QueueSpec,
    QueueStatus,
    SubGroupPolicy,
)
from muster.model.objects.storage import (
    CSIDriverLimit,
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIVolume,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    StorageClass,
    StoragePhase,
    TopologyRequirement,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)
from muster.model.objects.topology import (
    ExactMatch,
    HyperNode,
    HyperNodeMember,
    HyperNodeSpec,
    MemberSelector,
    RegexMatch,
)
from muster.model.objects.workloads import Job, JobSpec, JobStatus, Workload, WorkloadSpec

__all__ = [
    "Affinity",
    "ApiStruct",
    "CSIDriverLimit",
    "CSINode",
    "CSINodeDriver",
    "CSINodeSpec",
    "CSIVolume",
    "Condition",
    "ConfigMap",
    "Container",
    "ContainerImage",
    "ContainerPort",
    "CustomResourceDefinition",
    "DeviceClass",
    "Event",
    "ExactMatch",
    "HyperNode",
    "HyperNodeMember",
    "HyperNodeSpec",
    "Job",
    "JobSpec",
    "JobStatus",
    "Json",
    "LabelSelector",
    "LabelSelectorRequirement",
    "Lease",
    "LeaseSpec",
    "LedgerData",
    "MemberSelector",
    "Meta",
    "Namespace",
    "NamespaceStatus",
    "NativePodGroup",
    "NativeTopologyConstraint",
    "NetworkTier",
    "NetworkTopology",
    "Node",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "Object",
    "ObjectReference",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeSpec",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodDisruptionBudget",
    "PodDisruptionBudgetSpec",
    "PodDisruptionBudgetStatus",
    "PodGroup",
    "PodGroupSpec",
    "PodGroupStatus",
    "PodSchedulingGate",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "PreferredNode",
    "PriorityClass",
    "Queue",
    "QueueGuarantee",
    "QueueSpec",
    "QueueStatus",
    "QuotaLedger",
    "QuotaTotals",
    "RegexMatch",
    "ResourceClaim",
    "ResourceClaimStatus",
    "ResourceClaimTemplate",
    "ResourceQuota",
    "ResourceQuotaSpec",
    "ResourceQuotaStatus",
    "ResourceRequirements",
    "ResourceSlice",
    "ScopeRequirement",
    "ScopeSelector",
    "Secret",
    "StorageClass",
    "StoragePhase",
    "SubGroupPolicy",
    "Taint",
    "Toleration",
    "TopologyRequirement",
    "TopologySelectorTerm",
    "TopologySpreadConstraint",
    "VolumeNodeAffinity",
    "WebhookConfiguration",
    "WeightedPodAffinityTerm",
    "Workload",
    "WorkloadSpec",
    "prepare",
]


@cache
def prepare() -> None:
    """Have msgspec look at all of these types now: before there is a second thread.

    Where two threads do that at once for the first time, one uses what the other has half read, and the process ends with SIGSEGV.
    """
    for name in __all__:
        if name not in {"Json", "prepare"}:
            msgspec.json.Decoder(globals()[name])
