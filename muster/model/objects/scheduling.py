"""The scheduler's objects beside pods: PodGroups and queues, priority classes and disruption budgets."""

from __future__ import annotations

import sys
from datetime import datetime

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

from muster.model.objects.metadata import ApiStruct, Condition, Json, LabelSelector, Object


def _share(struct: msgspec.Struct, *fields: str) -> None:
    """Have a struct use the strings that others have already: there are ten thousand PodGroups, and few words in them."""
    for each in fields:
        force_setattr(struct, each, sys.intern(getattr(struct, each)))


class NetworkTopology(ApiStruct, frozen=True, kw_only=True):
    """How close the pods of a group have to be: ``hard`` or ``soft``, and up to which tier, by number or by name."""

    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(ApiStruct, frozen=True, kw_only=True):
    """Parts of a group: pods with equal values of ``match_label_keys``, of which ``sub_group_size`` start together.

    At least ``min_sub_groups`` of them start with the group.
    """

    name: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    network_topology: NetworkTopology | None = None


class PodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """What a gang asks for."""

    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: dict[str, Json] | None = None
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] | None = None


class PodGroupStatus(ApiStruct, frozen=True, kw_only=True):
    """Where a gang stands.

    Attributes:
        succeeded_before: pods that had succeeded when it was started again; of its minimum they are there already.
        min_resources: what minMember of its pods take of quotas, where ``spec.minResources`` says nothing.
        last_phase_transition_time: when it came to its phase; None where what wrote the status doesn't say.
    """

    phase: str = ""
    last_phase_transition_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    succeeded_before: int = 0
    min_resources: dict[str, Json] | None = None


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


class GangPolicy(ApiStruct, frozen=True, kw_only=True):
    """How many pods of a native group start together."""

    min_count: int = 1


class SchedulingPolicy(ApiStruct, frozen=True, kw_only=True):
    """One of two: a gang, or pods that start by themselves (``basic``)."""

    gang: GangPolicy | None = None


class NativeTopologyConstraint(ApiStruct, frozen=True, kw_only=True):
    """The key of a node label, of which the pods of a native group need one value."""

    key: str = ""


class SchedulingConstraints(ApiStruct, frozen=True, kw_only=True):
    """Where the pods of a native group have to be together."""

    topology: tuple[NativeTopologyConstraint, ...] | None = None


class DisruptionMode(ApiStruct, frozen=True, kw_only=True):
    """Whether a native group is evicted pod by pod, or all at once."""

    all: Json = None


class NativePodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """What a native group asks for; what is missing here has no meaning for Muster."""

    parent_composite_pod_group_name: str | None = None
    scheduling_policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: tuple[dict[str, Json], ...] | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None


class NativePodGroupStatus(ApiStruct, frozen=True, kw_only=True):
    """What its scheduler says of a native group."""

    conditions: tuple[Condition, ...] | None = None


class NativePodGroup(Object, frozen=True, kw_only=True):
    """A PodGroup of Kubernetes' own (scheduling.k8s.io/v1beta1)."""

    spec: NativePodGroupSpec = field(default_factory=NativePodGroupSpec)
    status: NativePodGroupStatus = field(default_factory=NativePodGroupStatus)


class QueueGuarantee(ApiStruct, frozen=True, kw_only=True):
    """What a queue always has."""

    resource: dict[str, Json] | None = None


class QueueSpec(ApiStruct, frozen=True, kw_only=True):
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


class NetworkTier(ApiStruct, frozen=True, kw_only=True):
    """The domains of one size in the network between nodes: how many there are, and the most that one of them has of each resource.

    ``largest`` is None where nodes come and go with an autoscaler, so that nobody knows.
    """

    tier: int = 0
    name: str = ""
    key: str = ""
    domains: int = 0
    largest: dict[str, Json] | None = None

    @property
    def word(self) -> str:
        """What to call a domain of it in a sentence."""
        return self.name or f"domain of tier {self.tier}"


class QueueStatus(ApiStruct, frozen=True, kw_only=True):
    """A queue's state and counters; `message` says why the state is Unknown.

    ``network_tiers``: the network between nodes, for admission: on queue ``default`` only. None where nobody has said yet.
    """

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
    network_tiers: tuple[NetworkTier, ...] | None = None


class Queue(Object, frozen=True, kw_only=True):
    """A Queue of any of the three groups that Muster serves."""

    spec: QueueSpec = field(default_factory=QueueSpec)
    status: QueueStatus = field(default_factory=QueueStatus)


class PriorityClass(Object, frozen=True, kw_only=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class PodDisruptionBudgetSpec(ApiStruct, frozen=True, kw_only=True):
    """A budget's spec."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True, kw_only=True):
    """A budget's status."""

    disruptions_allowed: int = 0


class PodDisruptionBudget(Object, frozen=True, kw_only=True):
    """policy/v1 PodDisruptionBudget."""

    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)
