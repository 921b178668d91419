"""Pods and their templates: what they request, and which nodes they may have."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import field
from msgspec.structs import force_setattr

from muster.model.objects.metadata import (
    ApiStruct,
    Condition,
    Json,
    LabelSelector,
    LabelSelectorRequirement,
    Meta,
    Object,
)


class NodeSelectorTerm(ApiStruct, frozen=True, kw_only=True):
    """Requirements on a node's labels and fields, all of which must hold."""

    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None
    match_fields: tuple[LabelSelectorRequirement, ...] | None = None


class NodeSelector(ApiStruct, frozen=True, kw_only=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class PreferredNode(ApiStruct, frozen=True, kw_only=True):
    """A weighted preference."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(ApiStruct, frozen=True, kw_only=True):
    """Which nodes a pod must, and would like to, run on."""

    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNode, ...] | None = field(
        default=None,
        name="preferredDuringSchedulingIgnoredDuringExecution",
    )


class PodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    """Which pods count, and over which domain of nodes."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class WeightedPodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    """A weighted preference for pods to be near, or far."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(ApiStruct, frozen=True, kw_only=True):
    """Affinity or anti-affinity to other pods."""

    required: tuple[PodAffinityTerm, ...] | None = field(
        default=None,
        name="requiredDuringSchedulingIgnoredDuringExecution",
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] | None = field(
        default=None,
        name="preferredDuringSchedulingIgnoredDuringExecution",
    )


class Affinity(ApiStruct, frozen=True, kw_only=True):
    """A pod's affinities."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(ApiStruct, frozen=True, kw_only=True):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(ApiStruct, frozen=True, kw_only=True):
    """How evenly matching pods must spread over a domain."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] | None = None


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    """A port; only one with a host port matters to a scheduler."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    """Requests and limits as written; amounts are text or numbers."""

    requests: dict[str, Json] | None = None
    limits: dict[str, Json] | None = None


class Container(ApiStruct, frozen=True, kw_only=True):
    """A container, as far as placing it goes."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None


class PodSchedulingGate(ApiStruct, frozen=True, kw_only=True):
    """A gate that keeps a pod from being scheduled."""

    name: str = ""


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """A pod's spec."""

    scheduler_name: str = ""
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    containers: tuple[Container, ...] | None = None
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


class ContainerWaiting(ApiStruct, frozen=True, kw_only=True):
    """Why a container hasn't started."""

    reason: str = ""


class ContainerTerminated(ApiStruct, frozen=True, kw_only=True):
    """How a container ended."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(ApiStruct, frozen=True, kw_only=True):
    """Where a container stands; one that runs says nothing."""

    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """A container's status."""

    name: str = ""
    image: str = ""
    state: ContainerState | None = None

    @property
    def in_trouble(self) -> bool:
        """Whether it can't start, or failed."""
        state = self.state
        if state is None:
            return False
        waits = state.waiting is not None and state.waiting.reason not in _ON_ITS_WAY
        return waits or (state.terminated is not None and state.terminated.exit_code != 0)


_ON_ITS_WAY: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


def _troubled(statuses: tuple[ContainerStatus, ...] | None) -> tuple[ContainerStatus, ...] | None:
    return tuple([each for each in statuses or () if each.in_trouble]) or None


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """A pod's status; of its containers only those that can't start, or failed: a cluster has a hundred thousand others."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] | None = None
    nominated_node_name: str = ""
    start_time: datetime | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None

    def __post_init__(self) -> None:
        """Keep what is out of the ordinary."""
        if self.container_statuses is not None:
            force_setattr(self, "container_statuses", _troubled(self.container_statuses))
        if self.init_container_statuses is not None:
            force_setattr(self, "init_container_statuses", _troubled(self.init_container_statuses))


class Pod(Object, frozen=True, kw_only=True):
    """core/v1 Pod."""

    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


class PodTemplate(ApiStruct, frozen=True, kw_only=True):
    """The template of a workload's pods."""

    metadata: Meta = field(default_factory=Meta)
    spec: PodSpec = field(default_factory=PodSpec)
