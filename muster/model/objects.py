"""Kubernetes objects as typed, frozen structs of the fields that Muster reads.

Decoding is partial on purpose: unknown fields are skipped, which is what makes it several times faster than the
generated client models. So a struct must never be written back whole; writes are patches, or whole objects of kinds
that only Muster writes (Lease, QuotaLedger).

Times are aware ``datetime``; amounts stay text here (`muster.model.amounts.Resources.parse` reads them), because a
malformed amount must refuse one object with its field named, not fail the decoding of a list.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

Json = Any
"""A decoded JSON value whose shape is not ours to know."""


# frozen and kw_only are repeated on each class: msgspec doesn't inherit kw_only, type checkers neither.
class _Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


# ── metadata ─────────────────────────────────────────────────────────────────────────────────────────────────────


class OwnerReference(_Struct, frozen=True, kw_only=True):
    """A link to the object that this one belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Meta(_Struct, frozen=True, kw_only=True):
    """ObjectMeta."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    def label(self, key: str) -> str:
        """Return the label's value, empty when absent."""
        return self.labels.get(key, "") if self.labels else ""

    def annotation(self, *keys: str) -> str:
        """Return the value of the first of ``keys`` that is set, empty when none is."""
        # A loop: every pod is asked for several, and a generator takes three times as long.
        mine = self.annotations
        if mine:
            for key in keys:
                if key in mine:
                    return mine[key]
        return ""

    def controller(self) -> OwnerReference | None:
        """Return the owner that controls this object, if one does."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None


class Object(_Struct, frozen=True, kw_only=True):
    """What every kind has. Enough to delete, own, or wait for an object of any kind."""

    api_version: str = ""
    kind: str = ""
    metadata: Meta = field(default_factory=Meta)

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The object's namespace; empty for cluster-scoped kinds."""
        return self.metadata.namespace


class Condition(_Struct, frozen=True, kw_only=True):
    """A condition in a status. `transitionID` is that of PodGroup conditions."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0
    transition_id: str = field(default="", name="transitionID")


class LabelSelectorRequirement(_Struct, frozen=True, kw_only=True):
    """One expression of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class LabelSelector(_Struct, frozen=True, kw_only=True):
    """A label selector; an empty one matches everything, an absent one nothing."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None


# ── pods and what they ask of a node ─────────────────────────────────────────────────────────────────────────────


class NodeSelectorTerm(_Struct, frozen=True, kw_only=True):
    """Requirements on a node's labels and fields, all of which must hold."""

    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None
    match_fields: tuple[LabelSelectorRequirement, ...] | None = None


class NodeSelector(_Struct, frozen=True, kw_only=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNode(_Struct, frozen=True, kw_only=True):
    """A weighted wish."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(_Struct, frozen=True, kw_only=True):
    """Which nodes a pod must, and would like to, run on."""

    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNode, ...] | None = field(
        default=None,
        name="preferredDuringSchedulingIgnoredDuringExecution",
    )


class PodAffinityTerm(_Struct, frozen=True, kw_only=True):
    """Which pods count, and over which domain of nodes."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class WeightedPodAffinityTerm(_Struct, frozen=True, kw_only=True):
    """A weighted wish for company or distance."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(_Struct, frozen=True, kw_only=True):
    """Affinity or anti-affinity to other pods."""

    required: tuple[PodAffinityTerm, ...] | None = field(
        default=None,
        name="requiredDuringSchedulingIgnoredDuringExecution",
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] | None = field(
        default=None,
        name="preferredDuringSchedulingIgnoredDuringExecution",
    )


class Affinity(_Struct, frozen=True, kw_only=True):
    """A pod's affinities."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(_Struct, frozen=True, kw_only=True):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(_Struct, frozen=True, kw_only=True):
    """How evenly matching pods must spread over a domain."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] | None = None


class ContainerPort(_Struct, frozen=True, kw_only=True):
    """A port; only one with a host port matters to a scheduler."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class ResourceRequirements(_Struct, frozen=True, kw_only=True):
    """Requests and limits as written; amounts are text or numbers."""

    requests: dict[str, Json] | None = None
    limits: dict[str, Json] | None = None


class Container(_Struct, frozen=True, kw_only=True):
    """A container, as far as placing it goes."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None


class PodSchedulingGate(_Struct, frozen=True, kw_only=True):
    """A gate that keeps a pod from being scheduled."""

    name: str = ""


class PodSpec(_Struct, frozen=True, kw_only=True):
    """A pod's spec."""

    scheduler_name: str = ""
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, Json] | None = None
    resources: ResourceRequirements | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] | None = None
    scheduling_group: Json = None
    volumes: tuple[dict[str, Json], ...] | None = None
    resource_claims: tuple[dict[str, Json], ...] | None = None
    active_deadline_seconds: int | None = None


class PodStatus(_Struct, frozen=True, kw_only=True):
    """A pod's status."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] | None = None
    nominated_node_name: str = ""
    start_time: datetime | None = None


class Pod(Object, frozen=True, kw_only=True):
    """core/v1 Pod."""

    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


class PodTemplate(_Struct, frozen=True, kw_only=True):
    """The template of a workload's pods."""

    metadata: Meta = field(default_factory=Meta)
    spec: PodSpec = field(default_factory=PodSpec)


# ── nodes and the rest of core ───────────────────────────────────────────────────────────────────────────────────


class Taint(_Struct, frozen=True, kw_only=True):
    """Why pods should keep off a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(_Struct, frozen=True, kw_only=True):
    """A node's spec."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class ContainerImage(_Struct, frozen=True, kw_only=True):
    """An image a node has, for those who score by it."""

    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class NodeStatus(_Struct, frozen=True, kw_only=True):
    """A node's status."""

    capacity: dict[str, Json] | None = None
    allocatable: dict[str, Json] | None = None
    conditions: tuple[Condition, ...] | None = None
    images: tuple[ContainerImage, ...] | None = None


class Node(Object, frozen=True, kw_only=True):
    """core/v1 Node."""

    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class NamespaceStatus(_Struct, frozen=True, kw_only=True):
    """A namespace's status."""

    phase: str = ""


class Namespace(Object, frozen=True, kw_only=True):
    """core/v1 Namespace."""

    status: NamespaceStatus = field(default_factory=NamespaceStatus)


class ScopeRequirement(_Struct, frozen=True, kw_only=True):
    """One requirement of a quota's scope selector."""

    scope_name: str
    operator: str
    values: tuple[str, ...] | None = None


class ScopeSelector(_Struct, frozen=True, kw_only=True):
    """Which pods a quota counts."""

    match_expressions: tuple[ScopeRequirement, ...] | None = None


class ResourceQuotaSpec(_Struct, frozen=True, kw_only=True):
    """A quota's limits."""

    hard: dict[str, Json] | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(_Struct, frozen=True, kw_only=True):
    """What the API server's own quota controller counts."""

    hard: dict[str, Json] | None = None
    used: dict[str, Json] | None = None


class ResourceQuota(Object, frozen=True, kw_only=True):
    """core/v1 ResourceQuota."""

    spec: ResourceQuotaSpec = field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = field(default_factory=ResourceQuotaStatus)


class ConfigMap(Object, frozen=True, kw_only=True):
    """core/v1 ConfigMap."""

    data: dict[str, str] | None = None


class Secret(Object, frozen=True, kw_only=True):
    """core/v1 Secret; values are base64 text."""

    data: dict[str, str] | None = None


class PriorityClass(Object, frozen=True, kw_only=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class PodDisruptionBudgetSpec(_Struct, frozen=True, kw_only=True):
    """A budget's spec."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(_Struct, frozen=True, kw_only=True):
    """A budget's status."""

    disruptions_allowed: int = 0


class PodDisruptionBudget(Object, frozen=True, kw_only=True):
    """policy/v1 PodDisruptionBudget."""

    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


class LeaseSpec(_Struct, frozen=True, kw_only=True):
    """A Lease's spec. Times are MicroTime text: the API server insists on exactly six decimals."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True, kw_only=True):
    """coordination.k8s.io/v1 Lease. Whole: Muster writes its own."""

    spec: LeaseSpec = field(default_factory=LeaseSpec)


# ── workloads ────────────────────────────────────────────────────────────────────────────────────────────────────


class JobSpec(_Struct, frozen=True, kw_only=True):
    """A Job's spec."""

    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    template: PodTemplate = field(default_factory=PodTemplate)


class JobStatus(_Struct, frozen=True, kw_only=True):
    """A Job's status."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[Condition, ...] | None = None


class Job(Object, frozen=True, kw_only=True):
    """batch/v1 Job."""

    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class WorkloadSpec(_Struct, frozen=True, kw_only=True):
    """What Deployments, ReplicaSets and StatefulSets have in common."""

    replicas: int | None = None
    template: PodTemplate = field(default_factory=PodTemplate)


class Workload(Object, frozen=True, kw_only=True):
    """Any apps/v1 workload with a pod template."""

    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


# ── scheduling ───────────────────────────────────────────────────────────────────────────────────────────────────


def _share(struct: msgspec.Struct, *fields: str) -> None:
    """Have a struct use the strings that others have already: there are ten thousand PodGroups, and few words in them."""
    for each in fields:
        force_setattr(struct, each, sys.intern(getattr(struct, each)))


class PodGroupSpec(_Struct, frozen=True, kw_only=True):
    """What a gang asks for."""

    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: dict[str, Json] | None = None


class PodGroupStatus(_Struct, frozen=True, kw_only=True):
    """Where a gang stands."""

    phase: str = ""
    conditions: tuple[Condition, ...] | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(Object, frozen=True, kw_only=True):
    """A PodGroup of any of the three groups that Muster serves."""

    spec: PodGroupSpec = field(default_factory=PodGroupSpec)
    status: PodGroupStatus = field(default_factory=PodGroupStatus)

    def __post_init__(self) -> None:
        """Share what is the same in many."""
        _share(self, "api_version", "kind")
        _share(self.metadata, "namespace")
        _share(self.spec, "queue")
        _share(self.status, "phase")
        for each in self.status.conditions or ():
            _share(each, "type", "status", "reason", "message", "transition_id")


class QueueGuarantee(_Struct, frozen=True, kw_only=True):
    """What a queue always has."""

    resource: dict[str, Json] | None = None


class QueueSpec(_Struct, frozen=True, kw_only=True):
    """A queue's share and limits."""

    weight: int = 1
    capability: dict[str, Json] | None = None
    deserved: dict[str, Json] | None = None
    guarantee: QueueGuarantee | None = None
    reclaimable: bool | None = None
    parent: str = ""
    priority: int = 0
    max_pod_groups: int | None = None
    namespace_selector: LabelSelector | None = None
    desired_state: str = ""


class QueueStatus(_Struct, frozen=True, kw_only=True):
    """A queue's state and counters; `message` says why the state is Unknown."""

    state: str = ""
    message: str = ""
    total: int = 0
    unknown: int = 0
    pending: int = 0
    inqueue: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    aborted: int = 0
    allocated: dict[str, Json] | None = None


class Queue(Object, frozen=True, kw_only=True):
    """A Queue of any of the three groups that Muster serves."""

    spec: QueueSpec = field(default_factory=QueueSpec)
    status: QueueStatus = field(default_factory=QueueStatus)


class QuotaTotals(_Struct, frozen=True, kw_only=True):
    """One quota in the ledger: its limit and the totals of what the views at `observed` show."""

    uid: str
    hard: dict[str, str]
    reserved: dict[str, str] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)


class LedgerData(_Struct, frozen=True, kw_only=True):
    """The quota ledger of a namespace; muster.ledger.table gives it meaning."""

    summary: str = ""
    seeded_at: str = ""
    observed: dict[str, str] = field(default_factory=dict)
    quotas: dict[str, QuotaTotals] = field(default_factory=dict)
    rows: tuple[str, ...] = ()


class QuotaLedger(Object, frozen=True, kw_only=True):
    """muster.sh/v1alpha1 QuotaLedger. Whole: only Muster writes it."""

    data: LedgerData = field(default_factory=LedgerData)


class Event(Object, frozen=True, kw_only=True):
    """core/v1 Event, as far as a test or a command reads it."""

    type: str = ""
    reason: str = ""
    message: str = ""
    involved_object: dict[str, Json] | None = None
    count: int | None = None


class WebhookConfiguration(Object, frozen=True, kw_only=True):
    """Either kind of webhook configuration; the entries stay raw."""

    webhooks: tuple[dict[str, Json], ...] | None = None


class CustomResourceDefinition(Object, frozen=True, kw_only=True):
    """A CRD, as far as installing and waiting for it goes."""

    spec: dict[str, Json] = field(default_factory=dict)
    status: dict[str, Json] | None = None
