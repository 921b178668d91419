"""Jobs (batch/v1) whose pods Muster schedules: held until their group's turn, reserved for when they are created."""

from __future__ import annotations

from typing import Final

from muster.model import grouping, kinds, names
from muster.model.gangs import gang_of_job
from muster.model.objects import Job, Meta
from webhooks.patch import PatchRecorder
from webhooks.policies import common, gangs
from webhooks.policies.gangs import GangSubject, Place
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Allowed, Patched, Verdict, judge
from webhooks.view import AdmissionView

_OFF: Final = "off"
_DELAYS: Final = ("suspend", _OFF)


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
        theirs = not settings.ours(job.spec.template.spec.scheduler_name)
        return judge((), _foreign_warnings(job, settings) if theirs else ())
    return _create(job, request, view, settings) if request.operation == "CREATE" else _update(job, request, view)


def _create(job: Job, request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    subject = _subject(job, request)
    place = _place(job, request, view)
    problems = common.annotation_problems(job.metadata, job.spec.template.metadata)
    problems += gangs.queue_problems(subject, place, view)
    warnings = [*_annotation_warnings(job), *gangs.group_warnings(subject, place, view)]
    if place.group:
        # What the group states was judged when it was created.
        unstated = gangs.unstated_minimum(subject, job.metadata.uid, view)
        return judge(problems, warnings, Allowed(reservation=unstated) if unstated is not None else ALLOWED)
    if not grouping.owns_group(job.metadata, settings.rules):
        # The group is made for an owner above or for each pod, and judged then.
        return judge(problems, warnings)
    minimum = gangs.minimum(subject, view)
    problems += [*minimum.problems, *gangs.starting_problems(subject, minimum.member)]
    problems += gangs.network_problems(subject, minimum, view)
    warnings += [*gangs.capacity_warnings(subject, minimum, view), *common.limit_warnings(view, place.queue)]
    if not minimum.resources or gangs.reserves_late(subject, view):
        return judge(problems, warnings)
    reservation = gangs.reservation(subject, job.metadata.uid, minimum.resources)
    return judge(problems, warnings, Allowed(reservation=reservation))


def _update(job: Job, request: AdmissionRequest, view: AdmissionView) -> Verdict:
    before = request.old(Job)
    if job.metadata.deletion_timestamp is not None:
        return ALLOWED
    old, new = _place(before, request, view), _place(job, request, view)
    problems = []
    if (old.group, old.queue) != (new.group, new.queue):
        problems = gangs.queue_problems(_subject(job, request), new, view)
    faults, known = (common.annotation_problems(each.metadata, each.spec.template.metadata) for each in (job, before))
    problems += common.new_problems(faults, known)
    minima = [gangs.minimum(_subject(each, request), view) for each in (before, job)]
    moved, resized = not new.group and old.queue != new.queue, minima[0] != minima[1]
    return judge(problems, _late_warnings(moved=moved, resized=resized))


def _subject(job: Job, request: AdmissionRequest) -> GangSubject:
    return GangSubject(gang_of_job(job), kinds.JOBS.name, f"{kinds.JOBS.name} {job.name}", request.namespace)


def _apart(job: Job, settings: WebhookSettings) -> bool:
    """Whether by the rules each pod of a Job has a group of its own: then there is nothing for the Job to wait for."""
    rule = grouping.matching_rule(grouping.job_reference(job.metadata), settings.rules)
    return rule is not None and rule.level < 0 and not grouping.group_of(job.spec.template.metadata)


def _ours(job: Job, settings: WebhookSettings) -> bool:
    """Whether Muster makes the group of a Job, or its template names one; not where it names one of Kubernetes' own."""
    template = job.spec.template.spec
    return settings.ours(template.scheduler_name) and not grouping.native_group(template.scheduling_group)


def _metas(job: Job) -> tuple[Meta, Meta]:
    return job.spec.template.metadata, job.metadata


def _place(job: Job, request: AdmissionRequest, view: AdmissionView) -> Place:
    subject = _subject(job, request)
    if job.metadata.controller() is not None and not (subject.gang.group() or subject.gang.names_queue()):
        # An owner above may name the queue. What it is will be known, and judged, when the group is made.
        return Place()
    return gangs.place(subject, view)


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


def _late_warnings(*, moved: bool, resized: bool) -> list[str]:
    group = f"the Job's PodGroup, which its annotation {names.JOB_GROUP} names"
    warnings = []
    if moved:
        warnings.append(f"the queue was set at creation: change spec.queue of {group}")
    if resized:
        warnings.append(f"the minimum was set at creation: change {group}")
    return warnings
