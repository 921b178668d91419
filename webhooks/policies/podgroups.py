"""PodGroups of all three API groups: their queue, and their reservation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from muster.ledger.reservations import COMPLETED, PODGROUP, ReservationRequest, holding, stated_minimum
from muster.model import grouping, kinds, names, tenant_texts
from muster.model.amounts import Resources
from muster.model.objects import PodGroup
from webhooks.patch import PatchRecorder
from webhooks.policies import common, network
from webhooks.policies.common import QueueRequest
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Allowed, ObjectRef, Patched, Problem, Verdict, busy, judge
from webhooks.view import AdmissionView

_MINIMUM: Final = "spec.minResources"


def mutate(request: AdmissionRequest, view: AdmissionView, _: WebhookSettings) -> Verdict:
    """Put a group that names no queue into its namespace's, and note on it when it reserves.

    The CRD's default is applied before webhooks see an object, so "default" can't be told from nothing: both give way
    to the namespace's annotation.
    """
    podgroup, found = request.new(PodGroup), view.get(kinds.NAMESPACES, request.namespace)
    namespace = found.metadata if found is not None else None
    queue = grouping.queue_name(podgroup.metadata, namespace)
    moves = podgroup.spec.queue in {"", names.DEFAULT_QUEUE} and queue != podgroup.spec.queue
    late = not podgroup.metadata.annotation(names.QUOTA_POLICY) and grouping.reserves_late(namespace)
    if not moves and not late:
        # The API server calls this for a namespace that names a queue, which may not have been seen here yet.
        explained = podgroup.metadata.annotation(*names.QUEUE_NAME_KEYS) or grouping.reserves_late(namespace)
        unseen = podgroup.spec.queue == names.DEFAULT_QUEUE and not explained
        return Allowed(evidence=(ObjectRef(kinds.NAMESPACES, request.namespace),)) if unseen else ALLOWED
    patch, audit = PatchRecorder(request.object), {}
    if moves:
        patch.set("spec", "queue", value=queue)
        audit["queue"] = queue
    if late:
        # On the group itself: what it holds must not change with what somebody writes on the namespace.
        patch.set("metadata", "annotations", names.QUOTA_POLICY, value=names.POLICY_QUEUE)
        audit["quota-policy"] = names.POLICY_QUEUE
    return Patched(patch.operations, audit=audit)


def validate(request: AdmissionRequest, view: AdmissionView, _: WebhookSettings) -> Verdict:
    """Check the queue and the fields; what passes asks the ledger for its minimum.

    A change of its status does so too, where it holds more from then on: one that reserves late becomes Inqueue, one that
    was Completed is started again, or what its pods take is known now.
    """
    if request.sub_resource == "status":
        return _reserving(request, request.new(PodGroup), request.old(PodGroup))
    if request.operation == "CREATE":
        return _create(request, view)
    return _update(request, view)


def _create(request: AdmissionRequest, view: AdmissionView) -> Verdict:
    podgroup = request.new(PodGroup)
    if unmoved := _not_moved_yet(podgroup, request, view):
        return busy(unmoved)
    minimum, problems = common.amounts(podgroup.spec.min_resources, _MINIMUM)
    problems += common.length_problems(podgroup.spec.min_resources, _MINIMUM)
    problems += common.annotation_problems(podgroup.metadata)
    problems += common.queue_problems(view, _queue_request(podgroup, request))
    problems += _name_problems(podgroup, request, view)
    problems += _network_problems(podgroup, minimum, view)
    warnings = _warnings(podgroup, minimum, request, view)
    reserving = _reserving(request, podgroup, minimum=minimum if podgroup.spec.min_resources is not None else None)
    return judge(problems, warnings, reserving)


def _not_moved_yet(podgroup: PodGroup, request: AdmissionRequest, view: AdmissionView) -> str:
    """Say why a group would begin in the default queue though its namespace names another; nothing where it wouldn't.

    The webhook that moves it is called where the namespace is labelled so, which the API server may not have seen yet.
    """
    found = view.get(kinds.NAMESPACES, request.namespace)
    queue = grouping.queue_name(podgroup.metadata, found.metadata if found is not None else None)
    if _queue(podgroup) != names.DEFAULT_QUEUE or queue == names.DEFAULT_QUEUE:
        return ""
    return f'namespace {request.namespace} names the queue "{queue}", which isn\'t known everywhere yet: try again'


def _update(request: AdmissionRequest, view: AdmissionView) -> Verdict:
    # Only what changes is judged; so one that is being deleted can lose its finalizers, and can't be used to get past us.
    before, after = request.old(PodGroup), request.new(PodGroup)
    (had, old_problems), (minimum, problems) = (
        common.amounts(each.spec.min_resources, _MINIMUM) for each in (before, after)
    )
    problems += common.length_problems(after.spec.min_resources, _MINIMUM)
    problems += common.annotation_problems(after.metadata)
    old_problems += common.length_problems(before.spec.min_resources, _MINIMUM)
    old_problems += common.annotation_problems(before.metadata)
    problems = common.new_problems(problems, old_problems)
    if before.status.phase == COMPLETED and had != minimum:
        problems.append(
            Problem(f'can\'t change from "{had}" to "{minimum}": the PodGroup is Completed; create a new one', _MINIMUM)
        )
    if _queue(after) != _queue(before):
        problems += common.queue_problems(view, _queue_request(after, request))
    if _needs_more_of_network(before, after) or common.grew(minimum, had):
        problems += _network_problems(after, minimum, view)
    warnings = common.size_warnings(view, after.spec.min_member, minimum) if common.grew(minimum, had) else ()
    return judge(problems, warnings, _reserving(request, after, before))


def _queue(podgroup: PodGroup) -> str:
    return podgroup.spec.queue or names.DEFAULT_QUEUE


def _queue_request(podgroup: PodGroup, request: AdmissionRequest) -> QueueRequest:
    return QueueRequest(_queue(podgroup), request.namespace, "spec.queue", "PodGroup", request.resource.group)


def _name_problems(podgroup: PodGroup, request: AdmissionRequest, view: AdmissionView) -> Iterable[Problem]:
    """One name in two API groups would be two gangs to which the same pods belong."""
    for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS):
        if kind.group != request.resource.group and view.get(kind, podgroup.name, request.namespace) is not None:
            text = (
                f'the name "{podgroup.name}" is taken by a PodGroup of {kind.group} in this namespace: choose another'
            )
            yield Problem(text, evidence=(ObjectRef(kind, podgroup.name, request.namespace),))


def _network_problems(podgroup: PodGroup, minimum: Resources, view: AdmissionView) -> list[Problem]:
    """What is generated for a workload was judged with it; what becomes of the network since, `muster why` tells."""
    if grouping.is_foreign(podgroup.metadata) or grouping.owner_of(podgroup.metadata):
        return []
    return network.group_problems(view, podgroup.spec, minimum)


def _needs_more_of_network(before: PodGroup, after: PodGroup) -> bool:
    old, new = before.spec, after.spec
    asked = (old.network_topology, old.sub_group_policy) != (new.network_topology, new.sub_group_policy)
    return asked or new.min_member > old.min_member


def _warnings(podgroup: PodGroup, minimum: Resources, request: AdmissionRequest, view: AdmissionView) -> list[str]:
    member, tasks = podgroup.spec.min_member, sum((podgroup.spec.min_task_member or {}).values())
    warnings = common.size_warnings(view, member, minimum)
    warnings += common.quota_warnings(view, request.namespace, member, minimum, _scope_facts(podgroup))
    if request.operation == "CREATE":
        warnings += common.limit_warnings(view, podgroup.spec.queue or names.DEFAULT_QUEUE)
    if tasks > member > 0:
        warnings.append(
            f"spec.minTaskMember adds up to {tasks}, more than minMember {member}: the gang starts with any {member} of its "
            f"pods; raise spec.minMember to {tasks} to wait for each task"
        )
    return warnings


def _scope_facts(podgroup: PodGroup) -> str:
    return tenant_texts.traits(podgroup.metadata.annotation(names.POD_TRAITS))


def _reserving(
    request: AdmissionRequest, podgroup: PodGroup, before: PodGroup | None = None, minimum: Resources | None = None
) -> Allowed:
    """Ask for what the group holds from now on, on top of what it held in the state ``before``; ``minimum``: its minResources, read."""
    reservation = ReservationRequest(
        request.namespace,
        PODGROUP,
        request.resource.group,
        podgroup.name or request.name,
        podgroup.metadata.uid,
        _held(podgroup) if minimum is None else holding(podgroup, minimum),
        before.metadata.resource_version if before else "",
        _held(before) if before else None,
        _scope_facts(podgroup),
        _scope_facts(before) if before else "",
    )
    return Allowed(reservation=reservation) if reservation.asks else ALLOWED


def _held(podgroup: PodGroup) -> Resources:
    # What can't be read holds nothing; where that is what a request is about, it is refused for it.
    return holding(podgroup, common.amounts(stated_minimum(podgroup), _MINIMUM)[0])
