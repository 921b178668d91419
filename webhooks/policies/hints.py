"""Hints at what is legal and has no effect: misspelt keys, gangs that nobody schedules, Jobs that are resumed too early.

Nothing is refused and nothing reserved here, so the webhooks that ask may be ignored while nobody answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct, field

from muster.model import grouping, keys, kinds, names
from muster.model.objects import Job, Meta, Object
from webhooks.patch import PatchRecorder
from webhooks.policies import common
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Patched, Verdict, judge
from webhooks.view import AdmissionView, groups_named

_ALWAYS_OURS: Final = frozenset({kinds.PODGROUPS.plural, kinds.QUEUES.plural})
_STARTED: Final = frozenset({"Inqueue", "Running", "Unknown"})
_WRONG: Final = "Unschedulable"


# Only what is read here, of whichever kind.
class _HintedPodSpec(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str = ""


class _Template(msgspec.Struct, frozen=True):
    metadata: Meta = field(default_factory=Meta)
    spec: _HintedPodSpec = field(default_factory=_HintedPodSpec)


class _JobSpec(msgspec.Struct, frozen=True):
    template: _Template | None = None


class _JobTemplate(msgspec.Struct, frozen=True):
    metadata: Meta = field(default_factory=Meta)
    spec: _JobSpec = field(default_factory=_JobSpec)


class _HintedSpec(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str = ""
    template: _Template | None = None
    job_template: _JobTemplate | None = None


class _Workload(Object, frozen=True, kw_only=True):
    spec: _HintedSpec = field(default_factory=_HintedSpec)


class _Said(Struct, frozen=True):
    """What an object says to Muster: the metadata of itself and of its templates, and who is to schedule its pods.

    Attributes:
        metas: the nearest to the pods first.
        scheduler: None where the object makes no pods.
    """

    metas: tuple[Meta, ...]
    scheduler: str | None


def validate(request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    """Let everything pass, with a warning for what its author can't mean."""
    after = _said(request.new(_Workload), request)
    before = _said(request.old(_Workload), request) if request.operation == "UPDATE" else None
    return judge((), [*_warnings(after, before, request, settings), *_resumed(request, view, settings)])


def mutate(request: AdmissionRequest, _: AdmissionView, settings: WebhookSettings) -> Verdict:
    """Write Muster's scheduler on a gang of the default one, in a namespace that is labelled so."""
    found = request.new(_Workload)
    said = _said(found, request)
    if said.scheduler is None or not common.is_nobodys(said.scheduler) or not any(map(common.is_gang, said.metas)):
        return ALLOWED
    patch = PatchRecorder(request.object)
    where = ("spec", "template", "spec") if found.spec.template is not None else ("spec",)
    patch.set(*where, "schedulerName", value=settings.scheduler_names[0])
    return Patched(patch.operations)


def _said(found: _Workload, request: AdmissionRequest) -> _Said:
    spec = found.spec
    if spec.template is not None:
        return _Said((spec.template.metadata, found.metadata), spec.template.spec.scheduler_name)
    if spec.job_template is not None and (template := spec.job_template.spec.template) is not None:
        metas = (template.metadata, spec.job_template.metadata, found.metadata)
        return _Said(metas, template.spec.scheduler_name)
    is_pod = (request.resource.group, request.resource.resource) == (kinds.PODS.group, kinds.PODS.plural)
    return _Said((found.metadata,), spec.scheduler_name if is_pod else None)


def _warnings(
    after: _Said, before: _Said | None, request: AdmissionRequest, settings: WebhookSettings
) -> Iterator[str]:
    ours = request.resource.resource in _ALWAYS_OURS or (
        after.scheduler is not None and (settings.ours(after.scheduler) or any(map(common.is_gang, after.metas)))
    )
    known = before.metas if before is not None else ()
    for number, meta in enumerate(after.metas):
        yield from keys.warnings(meta, known[number] if number < len(known) else None, ours=ours)
    if after.scheduler is None:
        return
    for read in (grouping.min_member, grouping.min_resources):
        _, warning = read(*after.metas)
        if warning and (not known or read(*known)[1] != warning):
            yield warning
    if common.is_nobodys(after.scheduler) and any(map(common.is_gang, after.metas)):
        yield common.no_effect(settings.scheduler_names[0])


def _resumed(request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Iterator[str]:
    """Say that a Job which its user resumes is put back, and what it waits for."""
    if request.resource.resource != kinds.JOBS.plural or request.operation != "UPDATE":
        return
    before, after = request.old(Job), request.new(Job)
    if not after.metadata.annotation(names.SUSPENDED) or not before.spec.suspend or after.spec.suspend:
        return
    if request.user_info.username in settings.accounts:
        return
    name = grouping.group_of_job(after.metadata, after.spec.template.metadata)
    group = next(iter(groups_named(view, request.namespace, name).values()), None)
    if group is None or group.status.phase in _STARTED:
        return
    wrong = (each.message for each in group.status.conditions or () if each.type == _WRONG and each.status == "True")
    yield f"Job {after.name} is held, and suspended again: {next(wrong, 'its PodGroup is Pending')}"
