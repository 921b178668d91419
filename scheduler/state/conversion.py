"""Kubernetes objects as the scheduler sees them, one at a time. `scheduler.state.cluster` puts them together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import structs

from muster.ledger.conversion import readable
from muster.ledger.reservations import waits_for_quota
from muster.model import device_quota, grouping, names, native_groups, tenant_texts, versions
from muster.model.amounts import QuantityError, Resources
from muster.model.durations import duration
from muster.model.objects import (
    Job,
    Meta,
    Node,
    Object,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PodGroupStatus,
    PriorityClass,
    Queue,
)
from muster.model.objects.scheduling import PodGroupSpec
from scheduler.model.affinity import CountingRule, PodSelection, PodSet
from scheduler.model.holding import NO_HOLDING, Holding
from scheduler.model.pod_claims import ClaimingGroup, SharedClaims
from scheduler.model.snapshot import (
    NO_DISRUPTION,
    Disruption,
    DisruptionBudget,
    ExpectedPods,
    Phase,
    QueueInfo,
    TaskClass,
    TaskStatus,
    seconds,
)

T = TypeVar("T", bound=Object)

ENDED: Final = frozenset({TaskStatus.SUCCEEDED, TaskStatus.FAILED})
SYSTEM_CLASSES: Final = {"system-cluster-critical": 2 * 10**9, "system-node-critical": 2 * 10**9 + 1000}
"""Priorities that every cluster has: of a pod in a file, nobody filled them in."""

_OVER: Final = frozenset({"Succeeded", "Failed"})
_PHASES: Final = {phase.value: phase for phase in Phase}
_SLA: Final = ("sla-waiting-time", names.SLA)
_FEW: Final = 64
"""Resources of a group whose amounts are remembered; memory is bounded by how many there are, and by how large each is."""
_REPLACERS: Final = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"})


def put(there: dict[str, T], item: T, *, gone: bool) -> None:
    """Put the new version of an object where its kind is kept by name, or take out one that is gone."""
    if gone:
        there.pop(item.name, None)
    else:
        there[item.name] = item


def pod_status(pod: Pod, *, assumed: bool, evicting: bool = False) -> TaskStatus:
    """Tell where a pod stands; ``assumed``: its binding is on the way; ``evicting``: its eviction is."""
    if pod.status.phase == "Succeeded":
        return TaskStatus.SUCCEEDED
    if pod.status.phase == "Failed":
        return TaskStatus.FAILED
    if pod.metadata.deletion_timestamp is not None or (evicting and pod.spec.node_name):
        return TaskStatus.RELEASING
    if pod.spec.node_name:
        return TaskStatus.RUNNING if pod.status.phase == "Running" else TaskStatus.BOUND
    if assumed:
        return TaskStatus.BINDING
    return TaskStatus.GATED if pod.spec.scheduling_gates else TaskStatus.PENDING


def stays(pod: Pod) -> bool:
    """Whether a pod is on a node, and meant to stay there."""
    return bool(pod.spec.node_name) and pod.status.phase not in _OVER and pod.metadata.deletion_timestamp is None


def controller_uid(pod: Pod) -> str:
    """Return the uid of what controls a pod, empty where nothing does."""
    found = pod.metadata.controller() if pod.metadata.owner_references else None
    return found.uid if found is not None else ""


def job_uid(pod: Pod) -> str:
    """Return the uid of the Job that controls a pod, empty where none does."""
    found = pod.metadata.controller()
    return found.uid if found is not None and grouping.JOB.matches(found) else ""


def same_requirements(old: Pod, new: Pod) -> bool:
    """Whether two versions of a pod ask for the same and belong to the same; where it is and how it does may differ."""
    return old is new or (
        old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.metadata.owner_references == new.metadata.owner_references
        and (old.status.phase in _OVER) == (new.status.phase in _OVER)
        and (old.spec == new.spec or structs.replace(old.spec, node_name=new.spec.node_name) == new.spec)
    )


def role_of(meta: Meta) -> str:
    """Return a pod's task, in the sense of minTaskMember."""
    return meta.annotation(names.ROLE) or meta.label(names.ROLE)


def minimum_by_role(spec: PodGroupSpec) -> Mapping[str, int]:
    """Return the minimum of each role, nothing where these are more together than the minimum of the group.

    The group's minimum has the last word then, as in Volcano (docs/decisions/0192); a group that states none has theirs.
    """
    roles = spec.min_task_member or {}
    return roles if not spec.min_member or spec.min_member >= sum(roles.values()) else {}


def preemptable(pod: Pod) -> bool:
    """Whether a pod may be evicted, as far as it says itself."""
    said = pod.metadata.annotation(names.PREEMPTABLE) or pod.metadata.label(names.PREEMPTABLE)
    return not said or said.lower() not in {"false", "f", "0"}


def replaced(pod: Pod) -> bool:
    """Whether a controller makes a new pod whenever this one ends."""
    controller_uid = pod.metadata.controller()
    return controller_uid is not None and controller_uid.kind in _REPLACERS


def group_of_job(job: Job) -> str:
    """Return the name of the group that a Job's pods are in."""
    return grouping.group_of_job(job.metadata, job.spec.template.metadata)


def stays_succeeded(pod: Pod) -> bool:
    """Whether a pod has succeeded, and nobody is deleting it."""
    return pod.status.phase == "Succeeded" and pod.metadata.deletion_timestamp is None


def job_finished(job: Job) -> bool:
    """Whether a Job has run its course."""
    return any(each.type in {"Complete", "Failed"} and each.status == "True" for each in job.status.conditions or ())


def pods_wanted(job: Job) -> int:
    """Return how many pods a Job wants at a time."""
    if job_finished(job):
        return 0
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    if job.spec.completions is None:
        return parallelism
    return max(min(parallelism, job.spec.completions - job.status.succeeded), 0)


def expected_pods(job: Job, kind: TaskClass, count: int, classes: Mapping[str, PriorityClass]) -> ExpectedPods:
    """Return the pods that a Job has yet to make, with what admission will fill in of their priority."""
    template = job.spec.template
    spec = template.spec
    named = classes.get(spec.priority_class_name)
    if named is None and not spec.priority_class_name:
        named = min((each for each in classes.values() if each.global_default), key=_value, default=None)
    value = spec.priority or SYSTEM_CLASSES.get(spec.priority_class_name, named.value if named is not None else 0)
    policy = spec.preemption_policy or (named.preemption_policy if named is not None else "")
    suspended, role = suspended_by_us(job), role_of(template.metadata)
    return ExpectedPods(kind, count, job.metadata.uid, suspended, value, role, policy == "Never")


def _value(priority: PriorityClass) -> int:
    return priority.value


def suspended_by_user(job: Job) -> bool:
    """Whether a Job is suspended, and not by us."""
    return bool(job.spec.suspend) and not job.metadata.annotation(names.SUSPENDED) and not job_finished(job)


def will_run(job: Job) -> bool:
    """Whether a Job has pods to make yet: it is neither finished nor being deleted nor suspended by its user."""
    return job.metadata.deletion_timestamp is None and not suspended_by_user(job) and pods_wanted(job) > 0


def suspended_by_us(job: Job) -> bool:
    """Whether a Job is suspended by us."""
    return bool(job.spec.suspend) and bool(job.metadata.annotation(names.SUSPENDED))


def sla_of(group: PodGroup) -> float | None:
    """Return the waiting time that a group states in seconds; None where it states none that can be read."""
    stated = group.metadata.annotation(*_SLA)
    try:
        return duration(stated) if stated else None
    except ValueError:
        return None


def disruption(group: Meta) -> Disruption:
    """Return what a group says of evictions."""
    whole = group.annotation(names.DISRUPTION_MODE) == names.DISRUPTION_ALL
    never = group.annotation(names.PREEMPTION_POLICY) == names.NEVER
    return Disruption(whole, never) if whole or never else NO_DISRUPTION


def shared_claims(group: Meta) -> SharedClaims | None:
    """Return the ResourceClaims that the native PodGroup of a group's pods shares among them; None where these are in none."""
    name, uid = native_groups.claiming(group)
    if not uid:
        return None
    found = (
        tuple(str(each.get(key) or "") for key in ("name", "resourceClaimName", "resourceClaimTemplateName"))
        for each in native_groups.claims_of(group)
    )
    return SharedClaims(ClaimingGroup(name, uid), frozenset(found))


def min_resources(group: PodGroup) -> Resources | None:
    """Return what a group states to need of nodes, or will state once it is reserved; what only a quota counts is left out.

    Raises:
        QuantityError: an amount isn't a quantity.
    """
    wanted = waits_for_quota(group)
    stated = group.spec.min_resources if wanted is None else wanted.quantities()
    if stated is None:
        return None
    return _known_on_nodes(msgspec.json.encode(stated)) if len(stated) <= _FEW else _on_nodes(stated)


@lru_cache(maxsize=4096)
def _known_on_nodes(written: bytes) -> Resources:
    """Read what groups alike state, in JSON, once."""
    return _on_nodes(msgspec.json.decode(written))


def _on_nodes(stated: Mapping[str, Any]) -> Resources:
    on_nodes: dict[str, int] = {}
    for name, amount in Resources.parse(stated).nano.items():
        if not name.startswith(("limits.", "count/")) and not device_quota.for_quotas_alone(name, stated):
            plain = name.removeprefix("requests.")
            on_nodes[plain] = max(amount, on_nodes.get(plain, 0))
    return Resources(on_nodes)


def scope_facts(group: PodGroup) -> str:
    """Return what decides in which scopes of quotas a group counts; empty where it doesn't say so in a way that can be read."""
    return tenant_texts.traits(group.metadata.annotation(names.POD_TRAITS))


def holding(status: PodGroupStatus) -> Holding:
    """Return what a group's status says of what it holds."""
    if not status.succeeded_before and status.min_resources is None:
        return NO_HOLDING
    noted = readable(status.min_resources) if status.min_resources is not None else None
    return Holding(status.succeeded_before, noted)


def same_spec(old: PodGroup, new: PodGroup) -> bool:
    """Whether two versions of a group ask for the same; where it stands may differ."""
    mine, theirs = old.metadata, new.metadata
    return (mine is theirs and old.spec is new.spec) or (
        (mine.uid, mine.annotations, mine.labels, mine.owner_references, mine.deletion_timestamp)
        == (theirs.uid, theirs.annotations, theirs.labels, theirs.owner_references, theirs.deletion_timestamp)
        and old.spec == new.spec
    )


def at_least_as_new(one: PodGroup, other: PodGroup) -> bool:
    """Whether a version of a group is of the same group as another, and no older."""
    mine, theirs = one.metadata, other.metadata
    return mine.uid == theirs.uid and versions.at_least(mine.resource_version, theirs.resource_version)


def same_status(old: PodGroup, new: PodGroup) -> bool:
    """Whether a group stands where it stood: a server stores times less exactly than we write them."""
    return _timeless(old) == _timeless(new)


def _timeless(group: PodGroup) -> tuple[Any, ...]:
    status = group.status
    conditions = [(each.type, each.status, each.reason, each.message) for each in status.conditions or ()]
    counters = (status.running, status.succeeded, status.failed)
    return (status.phase, counters, conditions, status.succeeded_before, status.min_resources)


def phase_of(group: PodGroup) -> Phase:
    """Return a group's phase; none, or one that isn't ours, is Pending."""
    return _PHASES.get(group.status.phase, Phase.PENDING)


def queue_info(queue: Queue) -> QueueInfo:
    """Read a queue.

    Raises:
        QuantityError: an amount isn't a quantity.
    """
    spec = queue.spec
    return QueueInfo(
        name=queue.name,
        weight=spec.weight,
        priority=spec.priority,
        state="Closing" if queue.metadata.deletion_timestamp else queue.status.state or "Open",
        capability=_amounts("capability", spec.capability),
        deserved=_amounts("deserved", spec.deserved),
        guarantee=_amounts("guarantee.resource", spec.guarantee.resource if spec.guarantee else None),
        reclaimable=spec.reclaimable is not False,
        parent=spec.parent,
        max_groups=spec.max_pod_groups or 0,
        created=seconds(queue.metadata.creation_timestamp),
    )


def priorities(classes: Collection[PriorityClass]) -> dict[str, int]:
    """Return the value of each PriorityClass by name, and by an empty one that of the default."""
    defaults = [each.value for each in classes if each.global_default]
    return {each.name: each.value for each in classes} | ({"": min(defaults)} if defaults else {})


def budget(budget: PodDisruptionBudget) -> DisruptionBudget:
    """Read a PodDisruptionBudget."""
    pods = PodSelection(frozenset([budget.namespace]), budget.spec.selector)
    return DisruptionBudget(budget.name, PodSet.of(CountingRule.BUDGET, pods), budget.status.disruptions_allowed)


def _amounts(field: str, quantities: Mapping[str, Any] | None) -> Resources | None:
    try:
        return Resources.parse(quantities) if quantities else None
    except QuantityError as error:
        raise QuantityError(f"spec.{field}: {error}") from error


def allocatable(node: Node) -> Resources | None:
    """Return what pods may use of a node; None where it can't be read."""
    try:
        return Resources.parse(node.status.allocatable)
    except QuantityError:
        return None


def ready(node: Node) -> bool:
    """Whether a node's kubelet is up; one that says nothing about it is."""
    return all(each.status == "True" for each in node.status.conditions or () if each.type == "Ready")


def same_node(old: Node, new: Node) -> bool:
    """Whether two versions of a node are one to the scheduler; heartbeats change the rest."""
    return (
        old.metadata.labels == new.metadata.labels
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
        and ready(old) == ready(new)
    )
