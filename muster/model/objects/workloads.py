"""Jobs, and the workloads of apps/v1."""

from __future__ import annotations

from datetime import datetime

from msgspec import field

from muster.model.objects.metadata import ApiStruct, Condition, Json, Object
from muster.model.objects.pods import PodTemplate


class JobScheduling(ApiStruct, frozen=True, kw_only=True):
    """What a Job says of the native PodGroup that Kubernetes makes for it; what is missing here has no meaning for Muster."""

    resource_claims: tuple[dict[str, Json], ...] | None = None


class JobSpec(ApiStruct, frozen=True, kw_only=True):
    """A Job's spec."""

    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    template: PodTemplate = field(default_factory=PodTemplate)
    scheduling: JobScheduling | None = None


class JobStatus(ApiStruct, frozen=True, kw_only=True):
    """A Job's status."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None


class Job(Object, frozen=True, kw_only=True):
    """batch/v1 Job."""

    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    """What Deployments, ReplicaSets and StatefulSets have in common.

    Attributes:
        pod_management_policy: of a StatefulSet, whether it makes its pods one after the other (``OrderedReady``, also where it says
            nothing) or all at once (``Parallel``).
    """

    replicas: int | None = None
    pod_management_policy: str = ""
    template: PodTemplate = field(default_factory=PodTemplate)


class Workload(Object, frozen=True, kw_only=True):
    """Any apps/v1 workload with a pod template."""

    spec: WorkloadSpec = field(default_factory=WorkloadSpec)
