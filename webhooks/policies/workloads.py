"""Workloads other than Jobs, judged when they are applied: Deployments, StatefulSets, CronJobs, and the objects of operators.

An object describes gangs (`muster.model.gangs`), and each gets the rules of `gangs`. On an UPDATE only what it makes worse
itself is judged: another queue, a larger minimum. A group is judged again when it is made, so these calls may fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct, field

from muster.model import grouping
from muster.model.gangs import DescribedGang, gangs_of, named_schedulers
from muster.model.workloads import HINTED_APART, STATEFULSET, WORKLOADS, WorkloadKind, WorkloadObject
from webhooks.policies import common, gangs
from webhooks.policies.gangs import GangSubject, Minimum
from webhooks.review import AdmissionRequest, FieldError
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Allowed, Problem, Verdict, judge
from webhooks.view import AdmissionView

_BY_RESOURCE: Final = {(each.kind.group, each.kind.plural): each for each in WORKLOADS}
_PARALLEL: Final = "Parallel"


def validate(request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    """Judge the gangs of an object; a gang whose group is the object's own asks the ledger for its minimum."""
    workload = _BY_RESOURCE.get((request.resource.group, request.resource.resource))
    if workload is None or common.is_controller(request.user_info.username):
        return ALLOWED
    try:
        after = request.new(WorkloadObject)
        if after.metadata.deletion_timestamp is not None or after.metadata.controller() is not None:
            return ALLOWED
        before = request.old(WorkloadObject) if request.operation == "UPDATE" else None
        had = gangs_of(workload, before, settings.rules) if before is not None else ()
        wanted = gangs_of(workload, after, settings.rules)
    except (msgspec.ValidationError, FieldError):
        return ALLOWED  # the API server says best what is wrong
    review = _WorkloadReview(request, view, workload, after)
    for gang in wanted:
        if _ours(gang, workload, after, settings):
            review.judge(gang, _before(gang, had))
        if workload not in HINTED_APART:
            review.hint(gang, _before(gang, had), settings)
    return judge(list(dict.fromkeys(review.problems)), list(dict.fromkeys(review.warnings)), review.otherwise)


def _ours(gang: DescribedGang, workload: WorkloadKind, one: WorkloadObject, settings: WebhookSettings) -> bool:
    """Whether Muster schedules pods of a gang; of those without templates nobody but Muster reads the annotations."""
    if gang.in_native_group():
        return False
    named = gang.scheduler_names or named_schedulers(workload, one)
    return any(map(settings.ours, named)) or (not workload.templates and any(map(common.is_gang, gang.metas)))


def _before(gang: DescribedGang, had: Sequence[DescribedGang]) -> DescribedGang | None:
    """Return what a gang was before an UPDATE."""
    return next((each for each in had if each.own == gang.own and (gang.own or each.paths == gang.paths)), None)


class _WorkloadReview(Struct):
    """An object under review, and what is found of it."""

    request: AdmissionRequest
    view: AdmissionView
    workload: WorkloadKind
    after: WorkloadObject
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    otherwise: Allowed = ALLOWED

    def judge(self, gang: DescribedGang, before: DescribedGang | None) -> None:
        """Judge a gang; ``before`` is what it was, None where it is new."""
        new, old = self._subject(gang), self._subject(before) if before is not None else None
        known = gangs.annotation_problems(old.gang) if old is not None else []
        self.problems += common.new_problems(gangs.annotation_problems(gang), known)
        place = gangs.place(new, self.view)
        if old is None or gangs.place(old, self.view) != place:
            self.problems += gangs.queue_problems(new, place, self.view)
            self.warnings += gangs.group_warnings(new, place, self.view)
        if place.group:
            # What the group states was judged when it was created.
            if old is None and gang.own and gang.at_once:
                self._try_unstated(new)
            return
        if old is None:
            self.warnings += [*gang.warnings(), *common.limit_warnings(self.view, place.queue)]
        scaled = self._subject(gangs.as_scaled(before, gang)) if before is not None else None
        had = gangs.minimum(scaled, self.view) if scaled is not None else None
        minimum = gangs.minimum(new, self.view)
        self.problems += gangs.network_problems(new, minimum, self.view, scaled, had)
        self._judge_minimum(new, minimum, had)

    def hint(self, gang: DescribedGang, before: DescribedGang | None, settings: WebhookSettings) -> None:
        """Say what of a gang has no effect. Where an object has no templates, its metadata are read by Muster alone."""
        was = gangs.hints_of(before) if before is not None else None
        self.warnings += gangs.hints_of(gang).warnings(was, settings, ours=not self.workload.templates)

    def _subject(self, gang: DescribedGang) -> GangSubject:
        kind = self.workload.kind.name
        title = f"{kind} {self.after.name or self.request.name}"
        return GangSubject(gang, kind, title if gang.own else f"a {gang.owner} of {title}", self.request.namespace)

    def _judge_minimum(self, subject: GangSubject, minimum: Minimum, had: Minimum | None) -> None:
        """Judge what a gang needs at once, where that is more than it was."""
        self.problems += minimum.problems
        if had is None or minimum.member > had.member:
            self._judge_start(subject, minimum.member)
        if had is not None and not common.grew(minimum.resources, had.resources):
            return
        self.warnings += gangs.capacity_warnings(subject, minimum, self.view)
        at_rest = bool(subject.gang.tasks) and not subject.gang.at_once
        if at_rest or gangs.reserves_late(subject, self.view):
            return
        if not subject.gang.own:
            self.problems += gangs.quota_problems(subject, minimum.resources, self.view)
        elif minimum.resources:
            self._reserve(subject, minimum, had)

    def _try_unstated(self, subject: GangSubject) -> None:
        """Ask whether the minimum of a user's group, which states none, fits: the leader reserves it once there are pods."""
        asked = gangs.unstated_minimum(subject, self.after.metadata.uid, self.view, phases=gangs.NOT_STARTED)
        if asked is not None:
            self.otherwise = Allowed(reservation=asked, trial=True)

    def _judge_start(self, subject: GangSubject, member: int) -> None:
        """Say that a gang never starts, or not before it is scaled."""
        if subject.gang.owner == grouping.JOB.kind:
            self.problems += gangs.starting_problems(subject, member)
        elif self.workload is STATEFULSET and member > 1 and self.after.spec.get("podManagementPolicy") != _PARALLEL:
            self.problems.append(gangs.ordered_problem(member))
        else:
            self.warnings += gangs.scale_warnings(subject, member)

    def _reserve(self, subject: GangSubject, minimum: Minimum, had: Minimum | None) -> None:
        """Ask the ledger for a new gang's minimum; of one that grows only whether it would fit: its group will ask."""
        uid = self.after.metadata.uid
        if had is None:
            self.otherwise = Allowed(reservation=gangs.reservation(subject, uid, minimum.resources))
        else:
            self.otherwise = Allowed(reservation=gangs.growth(subject, uid, minimum.resources, self.view), trial=True)
