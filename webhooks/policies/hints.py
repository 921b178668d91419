"""Hints at what is legal and has no effect: misspelt keys, gangs that nobody schedules, Jobs that are resumed too early.

Nothing is refused and nothing reserved here, so the webhooks that ask may be ignored while nobody answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import field

from muster.model import grouping, kinds, names
from muster.model.gangs import gangs_of
from muster.model.objects import Job, Json, Meta, Object
from muster.model.workloads import OPERATORS, WorkloadKind, WorkloadObject
from webhooks.patch import PatchRecorder
from webhooks.policies import gangs
from webhooks.policies.gangs import GangHints
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Patched, Verdict, judge
from webhooks.view import AdmissionView, groups_named

_ALWAYS_OURS: Final = frozenset({kinds.PODGROUPS.plural, kinds.QUEUES.plural})
_STARTED: Final = frozenset({"Inqueue", "Running", "Unknown"})
_OPERATORS: Final = {(each.kind.group, each.kind.plural): each for each in OPERATORS}
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


def validate(request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    """Let everything pass, with a warning for what its author can't mean."""
    after = _said(request.new(_Workload), request)
    before = _said(request.old(_Workload), request) if request.operation == "UPDATE" else None
    ours = request.resource.resource in _ALWAYS_OURS
    return judge((), [*after.warnings(before, settings, ours=ours), *_resumed(request, view, settings)])


def mutate(request: AdmissionRequest, _: AdmissionView, settings: WebhookSettings) -> Verdict:
    """Write Muster's scheduler on a gang of the default one, in a namespace that is labelled so."""
    operator = _OPERATORS.get((request.resource.group, request.resource.resource))
    if operator is not None:
        return _mutate_operators(operator, request, settings)
    found = request.new(_Workload)
    if not _said(found, request).unscheduled:
        return ALLOWED
    patch = PatchRecorder(request.object)
    inside = ("spec", "template") if found.spec.template is not None else ()
    nightly = ("spec", "jobTemplate", "spec", "template") if found.spec.job_template is not None else inside
    patch.set(*nightly, "spec", "schedulerName", value=settings.scheduler_names[0])
    return Patched(patch.operations)


def _mutate_operators(workload: WorkloadKind, request: AdmissionRequest, settings: WebhookSettings) -> Verdict:
    one = request.new(WorkloadObject)
    if not any(gangs.hints_of(gang).unscheduled for gang in gangs_of(workload, one, settings.rules)):
        return ALLOWED
    places = (f"{each.path}.{each.scheduler}".split(".") for each in workload.templates)
    found = dict.fromkeys(pointer for keys in places for pointer in _pointers({"spec": one.spec}, keys))
    ours = settings.scheduler_names[0]
    return Patched(tuple({"op": "add", "path": pointer, "value": ours} for pointer in found))


def _pointers(value: Json, keys: Sequence[str], above: str = "") -> Iterator[str]:
    """Return where the object has, or would have, the last of the keys; ``[]`` and ``{}`` as in `TemplatePath.path`."""
    key, rest = keys[0].rstrip("[]{}"), keys[1:]
    here = f"{above}/{key}"
    if not isinstance(value, dict):
        return
    if not rest:
        yield here
    elif keys[0] == key:
        yield from _pointers(value.get(key), rest, here)
    else:
        inside = value.get(key)
        entries: Iterable[tuple[Any, Json]] = ()
        if isinstance(inside, dict):
            entries = ((str(name).replace("~", "~0").replace("/", "~1"), entry) for name, entry in inside.items())
        elif isinstance(inside, list):
            entries = enumerate(inside)
        for place, entry in entries:
            yield from _pointers(entry, rest, f"{here}/{place}")


def _said(found: _Workload, request: AdmissionRequest) -> GangHints:
    spec, resource = found.spec, (request.resource.group, request.resource.resource)
    if spec.template is not None:
        return _of(spec.template, ("spec.template.metadata", spec.template.metadata), ("metadata", found.metadata))
    if spec.job_template is not None and (template := spec.job_template.spec.template) is not None:
        between = ("spec.jobTemplate.metadata", spec.job_template.metadata)
        return _of(template, ("template", template.metadata), between, ("metadata", found.metadata))
    if resource == (kinds.PODS.group, kinds.PODS.plural):
        return GangHints((found.metadata,), schedulers=frozenset({spec.scheduler_name}), gang=True)
    return GangHints((found.metadata,))


def _of(template: _Template, *placed: tuple[str, Meta]) -> GangHints:
    paths, metas = zip(*placed, strict=True)
    return GangHints(metas, paths, frozenset({template.spec.scheduler_name}), gang=True)


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
