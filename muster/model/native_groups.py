"""PodGroups of Kubernetes' own (``scheduling.k8s.io``): what of them Muster evaluates, and how the group is described that stands for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import structs

from muster.model import names
from muster.model.objects import (
    Job,
    Meta,
    NativePodGroup,
    NativeTopologyConstraint,
    OwnerReference,
    PodSpec,
    ResourceClaim,
)
from muster.model.objects.metadata import Json

INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
"""Type of the condition that Kubernetes' own scheduler writes."""


def min_member(native: NativePodGroup) -> int:
    """Return how many of its pods start together: a basic group is no gang."""
    gang = native.spec.scheduling_policy.gang
    return gang.min_count if gang is not None else 1


def described(native: NativePodGroup) -> Meta:
    """Return its metadata with what its spec says as the annotations that say it of a group of Muster's."""
    said = {names.GROUP_MIN_MEMBER_KEYS[0]: str(min_member(native))}
    if key := required_tier(native):
        said |= {names.TOPOLOGY_MODE: "hard", names.TOPOLOGY_TIER: key}
    return structs.replace(native.metadata, annotations={**(native.metadata.annotations or {}), **said})


def required_tier(native: NativePodGroup) -> str:
    """Return the key of the node label of which all its pods need one value; empty where they may be anywhere."""
    asked = _topology(native)
    return asked[0].key if len(asked) == 1 else ""


def _topology(native: NativePodGroup) -> tuple[NativeTopologyConstraint, ...]:
    constraints = native.spec.scheduling_constraints
    return (constraints.topology or ()) if constraints is not None else ()


def noted(native: NativePodGroup) -> dict[str, str]:
    """Return what it says of evictions and of claims as annotations of the group that stands for it."""
    mode = native.spec.disruption_mode
    found = {names.DISRUPTION_MODE: names.DISRUPTION_ALL} if mode is not None and mode.all is not None else {}
    if native.spec.preemption_policy == names.NEVER:
        found[names.PREEMPTION_POLICY] = names.NEVER
    if native.spec.resource_claims:
        found[names.SHARED_CLAIMS] = _written(native.spec.resource_claims)
    return found


def noted_claims(native: NativePodGroup) -> dict[str, str]:
    """Return what it says of claims as annotations of a group that its pods are in and that stands for their Job."""
    return _claims_of(native.spec.resource_claims or (), native.name, native.metadata.uid)


def noted_of_job(job: Job) -> dict[str, str]:
    """Return the same for a Job whose native group isn't made yet, by a name and a uid that only stand for those that it will have."""
    return _claims_of(claims, job.name, f"{job.metadata.uid}-native") if (claims := shared_by_job(job)) else {}


def _claims_of(claims: Sequence[dict[str, Json]], name: str, uid: str) -> dict[str, str]:
    return {names.SHARED_CLAIMS: _written(claims), names.SHARED_CLAIMS_OF: f"{name}/{uid}"}


def _written(claims: Sequence[dict[str, Json]]) -> str:
    return msgspec.json.encode(claims).decode()


def shared_by_job(job: Job) -> tuple[dict[str, Json], ...]:
    """Return the claims that the native group will share which kube-controller-manager makes for a Job.

    It makes none for a Job that something controls, or whose template names one (``pkg/controller/job/job_scheduling_manager.go``).
    """
    scheduling = job.spec.scheduling
    if scheduling is None or job.spec.template.spec.scheduling_group or job.metadata.controller() is not None:
        return ()
    return scheduling.resource_claims or ()


def is_native(owner: OwnerReference) -> bool:
    """Whether an owner is a PodGroup of Kubernetes' own, of whichever version."""
    return (owner.api_version.partition("/")[0], owner.kind) == (names.KUBERNETES_GROUP, "PodGroup")


def claims_of(group: Meta) -> tuple[dict[str, Json], ...]:
    """Return the ResourceClaims that a native group shares among its pods, as `noted` wrote them on the group that stands for it."""
    try:
        return msgspec.json.decode(group.annotation(names.SHARED_CLAIMS) or "[]", type=tuple[dict[str, Json], ...])
    except (msgspec.DecodeError, RecursionError):
        return ()


def claiming(group: Meta) -> tuple[str, str]:
    """Return name and uid of the native group whose claims the pods of a group share; empty where there is none."""
    owner = group.controller()
    if owner is not None and is_native(owner):
        return owner.name, owner.uid
    name, _, uid = group.annotation(names.SHARED_CLAIMS_OF).partition("/")
    return (name, uid) if name and uid else ("", "")


def maker_of(claim: ResourceClaim) -> str:
    """Return the uid of the native group that a claim was made for; empty where it was made for none."""
    owner = claim.metadata.controller()
    return owner.uid if owner is not None and is_native(owner) else ""


def without_shared(shared: Sequence[dict[str, Json]] | None, pod: PodSpec) -> PodSpec:
    """Return the spec of a pod without the claims that it shares with the others of its group."""
    if not shared or not pod.resource_claims:
        return pod
    return structs.replace(pod, resource_claims=tuple(each for each in pod.resource_claims if each not in shared))


def not_evaluated(native: NativePodGroup, *, of_job: bool = False) -> str:
    """Say what a native group asks for that Muster doesn't evaluate; empty where there is nothing.

    ``of_job``: the group of its Job stands for it, and that says where its pods have to be.
    """
    spec = native.spec
    asked = {
        "parentCompositePodGroupName": spec.parent_composite_pod_group_name,
        "schedulingConstraints.topology": _topology(native)[0 if of_job else 1 :],
    }
    fields = [f"spec.{name}" for name, value in asked.items() if value]
    if not fields:
        return ""
    verb, what = "is" if len(fields) == 1 else "are", f"PodGroup {native.name} of {names.KUBERNETES_GROUP}"
    ends = (
        "its pods are placed as its Job's PodGroup says; state networkTopology there"
        if of_job
        else "its pods wait; create the PodGroup without"
    )
    return f"{what}: {', '.join(fields)} {verb} not evaluated, and {ends}"


def second_text(native: NativePodGroup, group: str) -> str:
    """Say that the pods of two native groups are in one group, which shares the claims of the other one."""
    return (
        f"PodGroup {native.name} of {names.KUBERNETES_GROUP}: its pods are in PodGroup {group}, whose pods share the claims of another one;"
        " pods with claims wait; create them in a PodGroup of their own"
    )


def not_served_text(name: str) -> str:
    """Say that a pod waits for a native group that the cluster doesn't serve in the version that Muster reads."""
    return (
        f"PodGroup {name} of {names.KUBERNETES_GROUP} (spec.schedulingGroup) is not evaluated, and the pod waits: the API server"
        f" does not serve {names.KUBERNETES_GROUP}/v1beta1 podgroups; serve it, or create the pod without spec.schedulingGroup"
    )


def absent_text(name: str) -> str:
    """Say that a pod waits for a native group that isn't there."""
    return f"PodGroup {name} of {names.KUBERNETES_GROUP} (spec.schedulingGroup) does not exist: create it"
