"""Jobs (batch/v1) whose pods Muster schedules: held until their group's turn, reserved for when they are created."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from muster.ledger.reservations import JOB, ReservationRequest, reserves_late, taken_by_spec
from muster.model import grouping, kinds, names, scopes, tenant_texts
from muster.model.amounts import QuantityError, Resources
from muster.model.objects import Job, Meta
from muster.model.requests import pod_request
from webhooks.patch import PatchRecorder
from webhooks.policies import common
from webhooks.policies.common import QueueRequest
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Allowed, Patched, Problem, Verdict, judge
from webhooks.view import AdmissionView, groups_named

_OFF: Final = "off"
_DELAYS: Final = ("suspend", _OFF)
_WAITING: Final = frozenset({"", "Pending"})
"""Phases of a group of which nothing has started."""


def mutate(request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    """Suspend a Job until its group is Inqueue, and note that it was us, unless its user did so or wants no delay."""
    job = request.new(Job)
    if not settings.delay or not _ours(job, settings) or job.spec.suspend:
        return ALLOWED
    if _delay(job, request, view) == _OFF or _apart(job, settings):
        return ALLOWED
    patch = PatchRecorder(request.object)
    patch.set("spec", "suspend", value=True)
    patch.set("metadata", "annotations", names.SUSPENDED, value="true")
    return Patched(patch.operations)


def validate(request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    """Check the queue; what passes asks the ledger for the minimum of the group that the Job will get."""
    job = request.new(Job)
    if not _ours(job, settings):
        return judge((), _foreign_warnings(job, settings))
    return _create(job, request, view, settings) if request.operation == "CREATE" else _update(job, request, view)


class _TargetQueue(Struct, frozen=True):
    """Where a Job's pods will wait: an existing group's queue, or the queue of the group to come."""

    group: str
    queue: str
    where: str


def _create(job: Job, request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    place = _place(job, request, view)
    problems = common.annotation_problems(job.metadata, job.spec.template.metadata)
    problems += _queue_problems(place, request, view)
    warnings = [*_annotation_warnings(job), *_group_warnings(place, request, view)]
    if place.group:
        # What the group states was judged when it was created.
        return judge(problems, warnings, _reserving_for_group(job, place.group, request, view))
    if not grouping.owns_group(job.metadata, settings.rules):
        # The group is made for an owner above or for each pod, and judged then.
        return judge(problems, warnings)
    member, minimum, more = _minimum(job)
    warnings += common.size_warnings(view, member, minimum)
    warnings += common.quota_warnings(
        view, request.namespace, member, minimum, scopes.scope_facts(job.spec.template.spec)
    )
    warnings += common.limit_warnings(view, place.queue)
    warnings += _parallelism_warnings(job, member)
    return judge(problems + more, warnings, _reserving(job, minimum, request, view))


def _update(job: Job, request: AdmissionRequest, view: AdmissionView) -> Verdict:
    before = request.old(Job)
    if job.metadata.deletion_timestamp is not None:
        return ALLOWED
    old, new = _place(before, request, view), _place(job, request, view)
    problems = _queue_problems(new, request, view) if (old.group, old.queue) != (new.group, new.queue) else []
    faults, known = (common.annotation_problems(each.metadata, each.spec.template.metadata) for each in (job, before))
    problems += common.new_problems(faults, known)
    return judge(problems, _late_warnings(before, job, moved=not new.group and old.queue != new.queue))


def _apart(job: Job, settings: WebhookSettings) -> bool:
    """Whether by the rules each pod of a Job has a group of its own: then there is nothing for the Job to wait for."""
    rule = grouping.matching_rule(grouping.job_reference(job.metadata), settings.rules)
    return rule is not None and rule.level < 0 and not grouping.group_of(job.spec.template.metadata)


def _ours(job: Job, settings: WebhookSettings) -> bool:
    return settings.ours(job.spec.template.spec.scheduler_name)


def _metas(job: Job) -> tuple[Meta, Meta]:
    return job.spec.template.metadata, job.metadata


def _place(job: Job, request: AdmissionRequest, view: AdmissionView) -> _TargetQueue:
    if group := grouping.group_of(job.spec.template.metadata):
        found = next(iter(groups_named(view, request.namespace, group).values()), None)
        queue = found.spec.queue or names.DEFAULT_QUEUE if found is not None else ""
        return _TargetQueue(group, queue, f'of PodGroup "{group}"')
    namespace = view.get(kinds.NAMESPACES, request.namespace)
    if job.metadata.controller() is not None and not any(
        meta.annotation(*names.QUEUE_NAME_KEYS) for meta in _metas(job)
    ):
        # An owner above may name the queue. What it is will be known, and judged, when the group is made.
        return _TargetQueue("", "", "")
    metas = (*_metas(job), namespace.metadata if namespace else None)
    annotated = any(meta is not None and meta.annotation(*names.QUEUE_NAME_KEYS) for meta in metas)
    where = f"annotation {names.QUEUE_NAME_KEYS[0]}" if annotated else "where no annotation names another"
    return _TargetQueue("", grouping.queue_name(*metas), where)


def _queue_problems(place: _TargetQueue, request: AdmissionRequest, view: AdmissionView) -> list[Problem]:
    if not place.queue:
        return []
    return common.queue_problems(view, QueueRequest(place.queue, request.namespace, place.where, "Job"))


def _minimum(job: Job) -> tuple[int, Resources, list[Problem]]:
    """Return minMember and minResources of the group to come."""
    member, _ = grouping.min_member(*_metas(job))
    stated, _ = grouping.min_resources(*_metas(job))
    if stated is not None:
        return member, stated, []
    try:
        return member, pod_request(job.spec.template.spec) * member, []
    except QuantityError as error:
        return member, Resources({}), [Problem(str(error), "spec.template.spec")]


def _reserving(job: Job, minimum: Resources, request: AdmissionRequest, view: AdmissionView) -> Allowed:
    namespace = view.get(kinds.NAMESPACES, request.namespace)
    if not minimum or grouping.reserves_late(*_metas(job), namespace.metadata if namespace else None):
        return ALLOWED
    uid = job.metadata.uid
    scope_facts = scopes.scope_facts(job.spec.template.spec)
    place = (request.namespace, JOB, names.VOLCANO_GROUP, grouping.generated_name(uid), uid)
    reservation = ReservationRequest(*place, minimum, scope_facts=scope_facts)
    return Allowed(reservation=reservation)


def _reserving_for_group(job: Job, name: str, request: AdmissionRequest, view: AdmissionView) -> Allowed:
    """Ask for the minimum of a group that states none: of its pods, this Job is the first that is known."""
    api_group, group = next(iter(groups_named(view, request.namespace, name).items()), ("", None))
    if group is None or group.spec.min_resources is not None or not group.spec.min_member:
        return ALLOWED
    if group.status.phase not in _WAITING or reserves_late(group.metadata):
        return ALLOWED
    try:
        minimum = taken_by_spec(job.spec.template.spec) * group.spec.min_member
    except QuantityError:
        return ALLOWED  # an API server stores no pod of it
    facts = tenant_texts.traits(group.metadata.annotation(names.POD_TRAITS))
    place = (request.namespace, JOB, api_group, group.name, job.metadata.uid)
    return Allowed(reservation=ReservationRequest(*place, minimum, scope_facts=facts))


def _delay(job: Job, request: AdmissionRequest, view: AdmissionView) -> str:
    """Return the nearest say on the delay: the Job's, its queue's, its namespace's."""
    queue = view.get(kinds.QUEUES, _place(job, request, view).queue)
    namespace = view.get(kinds.NAMESPACES, request.namespace)
    metas = (job.metadata, *(found.metadata for found in (queue, namespace) if found is not None))
    said = (meta.annotation(names.DELAY) for meta in metas)
    return next((value for value in said if value in _DELAYS), "")


def _foreign_warnings(job: Job, settings: WebhookSettings) -> list[str]:
    if not any(map(common.is_gang, _metas(job))):
        return []
    return [common.no_effect(settings.scheduler_names[0])]


def _annotation_warnings(job: Job) -> list[str]:
    said = job.metadata.annotation(names.DELAY)
    delay = f'{names.DELAY} "{said[:20]}" is ignored: write suspend or off' if said and said not in _DELAYS else ""
    _, member = grouping.min_member(*_metas(job))
    _, resources = grouping.min_resources(*_metas(job))
    return [warning for warning in (delay, member, resources) if warning]


def _group_warnings(place: _TargetQueue, request: AdmissionRequest, view: AdmissionView) -> list[str]:
    if not place.group or groups_named(view, request.namespace, place.group):
        return []
    return [f'PodGroup "{place.group}" does not exist yet; the pods wait until it does']


def _parallelism_warnings(job: Job, member: int) -> list[str]:
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    at_once = parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)
    if member <= at_once:
        return []
    return [f"the gang never starts: it needs {member} pods at once, parallelism and completions allow {at_once}"]


def _late_warnings(before: Job, after: Job, *, moved: bool) -> list[str]:
    group = f"the Job's PodGroup, which its annotation {names.JOB_GROUP} names"
    warnings = []
    if moved:
        warnings.append(f"the queue was set at creation: change spec.queue of {group}")
    if _minimum(before)[:2] != _minimum(after)[:2]:
        warnings.append(f"the minimum was set at creation: change {group}")
    return warnings
