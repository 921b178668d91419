"""Pods: which group those that Muster schedules are in, from their creation on, and which others are members too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from muster.ledger.conversion import readable
from muster.ledger.reservations import (
    COMPLETED,
    POD,
    ReservationRequest,
    foreseen_minimum,
    reserves_late,
    reserving,
    taken_by,
)
from muster.model import grouping, kinds, names, scopes, tenant_texts
from muster.model.amounts import NOTHING, QuantityError
from muster.model.kinds import Kind
from muster.model.objects import Json, Meta, Object, OwnerReference, Pod
from muster.model.text import shown
from webhooks.patch import annotating
from webhooks.policies import common
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Allowed, ObjectRef, Patched, Problem, Verdict, judge
from webhooks.view import AdmissionView, groups_named

_LEVELS: Final = 10
_OWNERS: Final[dict[tuple[str, str], Kind[Any]]] = {
    (kind.api_version, kind.name): kind for kind in (kinds.REPLICASETS, kinds.JOBS)
}


# Only what these rules read: decoding a whole pod takes several times as long.
class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str = ""
    scheduling_group: Json = None


class PodBrief(msgspec.Struct, frozen=True):
    """Who a pod is, who owns it, and who schedules it."""

    metadata: Meta
    spec: _Spec


def mutate(request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    """Write the group's name on a pod whose chosen owner is known; of any other pod the controller finds out.

    On a pod of another scheduler write that it is a member, where the owner of the group that it names owns it too.
    """
    pod = request.new(PodBrief)
    if not settings.ours(pod.spec.scheduler_name):
        return _noted_membership(request, pod.metadata, view)
    if grouping.group_of(pod.metadata) or _in_native_group(pod, request.namespace, view):
        return ALLOWED
    group = _known_group(pod.metadata, request.namespace, view, settings)
    if not group:
        return ALLOWED
    return Patched(annotating(pod.metadata, names.GROUP_NAME, group))


def validate(request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    """Keep a pod in its group, tell its user what an annotation won't do, and ask the ledger for what it takes.

    The ledger is asked for the pods of any scheduler: a quota counts them all.
    """
    pod = request.new(Pod)
    before = request.old(Pod) if request.operation == "UPDATE" else None
    judged = _own_problems if settings.ours(pod.spec.scheduler_name) else _foreign_problems
    problems, warnings = judged(pod, before, request, view)
    if request.user_info.username in settings.accounts:
        problems = []
    try:
        reservation = _reservation(pod, before, request, settings)
    except QuantityError as error:
        return judge([*problems, Problem(str(error), "spec")], warnings)
    return judge(problems, warnings, Allowed(reservation=reservation) if reservation.asks else ALLOWED)


def _own_problems(
    pod: Pod, before: Pod | None, request: AdmissionRequest, view: AdmissionView
) -> tuple[list[Problem], list[str]]:
    if before is None and not common.says_anything(pod.metadata):
        return [], []
    faults = common.problems_at("metadata", pod.metadata)
    if before is None:
        faults += _too_large(pod.metadata, request.namespace, view)
        return faults, _warnings(pod.metadata, request.namespace, view)
    known = common.problems_at("metadata", before.metadata)
    return [*common.new_problems(faults, known), *_moves(before.metadata, pod.metadata)], []


def _too_large(meta: Meta, namespace: str, view: AdmissionView) -> list[Problem]:
    """Object to a pod whose group has yet to reserve, and never can: it would hold what others could start with."""
    problems: list[Problem] = []
    for api_group, group in groups_named(view, namespace, grouping.group_of(meta)).items():
        minimum = foreseen_minimum(group) if reserves_late(group.metadata) and not reserving(group) else None
        if minimum is None or group.status.phase == COMPLETED:
            continue
        kind = next(kind for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS) if kind.group == api_group)
        title = f'exceeded quota: PodGroup "{group.name}"'
        facts = tenant_texts.traits(group.metadata.annotation(names.POD_TRAITS))
        seen = (ObjectRef(kind, group.name, namespace),)
        problems += common.never_fits(view, namespace, title, readable(minimum), facts, seen)
    return problems


def _foreign_problems(
    pod: Pod, before: Pod | None, request: AdmissionRequest, view: AdmissionView
) -> tuple[list[Problem], list[str]]:
    """Hold a pod of another scheduler to what admission noted: that a group has reserved for it too."""
    claimed = pod.metadata.annotation(names.MEMBER_OF)
    if before is not None:
        had = before.metadata.annotation(names.MEMBER_OF)
        change = " to ".join(shown(text) if text else "none" for text in (had, claimed))
        text = f"annotation {names.MEMBER_OF} can't change from {change} after the pod's creation: recreate the pod"
        return ([Problem(text)] if had != claimed else []), []
    named = grouping.group_of(pod.metadata)
    if not claimed:
        return [], [_outside(named, pod.spec.scheduler_name)] if named else []
    member, evidence = _is_owned(pod.metadata, claimed, request.namespace, view)
    if claimed == named and member:
        return [], []
    text = (
        f"annotation {names.MEMBER_OF}: {shown(claimed)} is not a PodGroup whose owner owns this pod too: remove the"
        " annotation; Muster writes it where that is so"
    )
    return [Problem(text, evidence=evidence)], []


def _outside(named: str, scheduler: str) -> str:
    return (
        f'the pod takes nothing of what PodGroup "{named}" reserved, and counts outside it: its schedulerName is'
        f" {shown(scheduler)}, and the PodGroup's owner does not own it"
    )


def _noted_membership(request: AdmissionRequest, meta: Meta, view: AdmissionView) -> Verdict:
    group = grouping.group_of(meta)
    if not group or meta.controller() is None or meta.annotation(names.MEMBER_OF):
        return ALLOWED
    member, evidence = _is_owned(meta, group, request.namespace, view)
    if not member:
        return Allowed(evidence=evidence)
    return Patched(annotating(meta, names.MEMBER_OF, group))


def _is_owned(meta: Meta, group: str, namespace: str, view: AdmissionView) -> tuple[bool, tuple[ObjectRef, ...]]:
    """Tell whether a group, or its owner, is among the controllers above a pod, and what to read where that isn't so."""
    groups = groups_named(view, namespace, group).values()
    roots = {each.uid for found in groups for each in found.metadata.owner_references or ()}
    roots |= {found.metadata.uid for found in groups}
    evidence = [ObjectRef(kinds.PODGROUPS, group, namespace)] if tenant_texts.is_subdomain(group) else []
    for owner, found in _controllers(meta, namespace, view):
        if owner.uid in roots:
            return True, ()
        kind = _OWNERS.get((owner.api_version, owner.kind))
        if found is None and kind is not None and tenant_texts.is_subdomain(owner.name):
            evidence.append(ObjectRef(kind, owner.name, namespace))
    return False, tuple(evidence)


def _controllers(meta: Meta, namespace: str, view: AdmissionView) -> Iterator[tuple[OwnerReference, Object | None]]:
    """Return the controllers above an object, nearest first, each with the object as far as the view shows it."""
    above = meta.controller()
    for _ in range(_LEVELS):
        if above is None:
            return
        kind = _OWNERS.get((above.api_version, above.kind))
        found: Object | None = view.get(kind, above.name, namespace) if kind is not None else None
        if found is not None and found.metadata.uid != above.uid:
            found = None
        yield above, found
        above = found.metadata.controller() if found is not None else None


def _reservation(
    pod: Pod, before: Pod | None, request: AdmissionRequest, settings: WebhookSettings
) -> ReservationRequest:
    """Return what the pod will take, or take more; the group whose minimum it may use is the one that it is a member of."""
    meta, group = pod.metadata, _membership(pod, settings)
    place = (request.namespace, POD, group, meta.name or request.name, meta.uid)
    if before is None:
        return ReservationRequest(*place, taken_by(pod), scope_facts=scopes.scope_facts(pod.spec))
    # A pod that leaves a group gives up what that group reserved for it, and asks for all of it elsewhere.
    left = _membership(before, settings) not in {"", group}
    had = NOTHING if left else taken_by(before)
    return ReservationRequest(
        *place,
        taken_by(pod),
        before.metadata.resource_version,
        had,
        scopes.scope_facts(pod.spec),
        scopes.scope_facts(before.spec),
    )


def _membership(pod: Pod, settings: WebhookSettings) -> str:
    return grouping.member_of(pod.metadata, pod.spec.scheduler_name, settings.scheduler_names)


def _known_group(meta: Meta, namespace: str, view: AdmissionView, settings: WebhookSettings) -> str:
    """Name the group of a pod; empty where the pod itself owns it, or where the caches don't reach."""
    owners: list[OwnerReference] = []
    for owner, found in _controllers(meta, namespace, view):
        owners.append(owner)
        if len(owners) == 1 and found is not None and (noted := grouping.noted_group(found.metadata)):
            return noted
        if grouping.decided(owners, settings.rules):
            break
        if found is None:
            return ""
    chosen = grouping.chosen_owner(owners, settings.rules)
    return grouping.generated_name(chosen.uid) if chosen is not None else ""


def _warnings(meta: Meta, namespace: str, view: AdmissionView) -> list[str]:
    _, member = grouping.min_member(meta)
    _, resources = grouping.min_resources(meta)
    group = grouping.group_of(meta)
    missing = ""
    # What a controller creates nobody reads the warnings of; and Muster makes the group of its pods.
    if group and meta.controller() is None and not groups_named(view, namespace, group):
        missing = f'PodGroup "{group}" does not exist yet; the pod waits until it does'
    return [warning for warning in (member, resources, missing) if warning]


def _in_native_group(pod: PodBrief, namespace: str, view: AdmissionView) -> bool:
    """Whether the group of Kubernetes' own that a pod names decides which group it joins, which the controller finds out.

    That which Kubernetes makes for a Job changes nothing: its pods are in the Job's group.
    """
    if not grouping.native_group(pod.spec.scheduling_group):
        return False
    owner = pod.metadata.controller()
    job = view.get(kinds.JOBS, owner.name, namespace) if owner is not None and grouping.JOB.matches(owner) else None
    if job is None or owner is None or job.metadata.uid != owner.uid:
        return True
    return bool(grouping.native_group(job.spec.template.spec.scheduling_group))


def _moves(before: Meta, after: Meta) -> list[Problem]:
    had, has = grouping.group_of(before), grouping.group_of(after)
    # A bare pod was a member of its own group before it named it.
    if had == has or (not had and has == grouping.own_group(before)):
        return []
    change = f'"{had or "none"}" to "{has or "none"}"'
    return [
        Problem(f"annotation {names.GROUP_NAME} can't change from {change} after the pod's creation: recreate the pod")
    ]
