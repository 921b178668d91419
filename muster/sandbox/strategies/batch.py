"""Kinds that run to their end: Job, CronJob."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from muster.sandbox.codec import selectors
from muster.sandbox.core.status import Cause, not_one_of, required, wrong
from muster.sandbox.strategies import cron
from muster.sandbox.strategies.base import Json
from muster.sandbox.strategies.pods import default_spec, validate_template
from muster.sandbox.strategies.workloads import IMMUTABLE, Workload, match_causes, not_negative, template_of

_RUN_ONCE: Final = ("OnFailure", "Never")
_OLD_LABELS: Final = {"controller-uid": "uid", "job-name": "name"}
_NEW_LABELS: Final = {f"batch.kubernetes.io/{key}": value for key, value in _OLD_LABELS.items()}
_CONCURRENCY: Final = ("Allow", "Forbid", "Replace")
_LONGEST_NAME: Final = 52
"""Of a CronJob: eleven characters follow in the names of its Jobs."""
_CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"


class JobStrategy(Workload):
    """batch/v1 Job."""

    def default(self, obj: Json) -> None:
        """Set the defaults; labels of the template become the Job's where it has none."""
        spec = obj.setdefault("spec", {})
        _default_job_spec(spec)
        if not obj["metadata"].get("labels") and (labels := spec["template"]["metadata"].get("labels")):
            obj["metadata"]["labels"] = dict(labels)

    def prepare_create(self, obj: Json) -> None:
        """Make the selector and the labels that tie pods to this Job, unless the user does."""
        obj["status"] = {}
        spec, metadata = obj["spec"], obj["metadata"]
        if not spec["manualSelector"]:
            labels = spec["template"]["metadata"].setdefault("labels", {})
            labels |= {key: metadata[source] for key, source in (_OLD_LABELS | _NEW_LABELS).items()}
            selector = spec.setdefault("selector", {})
            selector.setdefault("matchLabels", {})[_CONTROLLER_UID] = metadata["uid"]
        if not metadata.get("labels") and (labels := spec["template"]["metadata"].get("labels")):
            metadata["labels"] = dict(labels)

    def validate(self, obj: Json) -> list[Cause]:
        """Check the spec."""
        spec = obj["spec"]
        causes = _job_spec_causes(spec, "spec")
        selector = spec.get("selector")
        if selector is None:
            return [required("spec.selector"), *causes]
        causes += selectors.validate_object(selector, "spec.selector")
        if not spec.get("manualSelector") and (selector.get("matchLabels") or {}).keys() != {_CONTROLLER_UID}:
            causes.append(wrong("spec.selector", selector, "`selector` not auto-generated"))
        return causes + match_causes(spec)

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Let a suspended Job that never started change its scheduling; keep completions, selector, template."""
        spec, was = obj["spec"], old["spec"]
        causes = self.validate(obj)
        indexed = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
        for name in (
            "completions",
            "selector",
            "template",
            "completionMode",
            "podFailurePolicy",
            "backoffLimitPerIndex",
        ):
            if name == "completions" and indexed:
                continue
            before = _schedulable_part_removed(spec, was, old) if name == "template" else was.get(name)
            if spec.get(name) != before:
                causes.append(wrong(f"spec.{name}", spec.get(name), IMMUTABLE))
        return causes


def _schedulable_part_removed(spec: Json, was: Json, old: Json) -> Json:
    """Return the old template with what may change while the Job is suspended and never started taken from the new."""
    template: Json = was["template"]
    if not was.get("suspend") or old.get("status", {}).get("startTime"):
        return template
    pod, new_pod, metadata = dict(template["spec"]), spec["template"]["spec"], dict(template["metadata"])
    for name in ("affinity", "nodeSelector", "tolerations", "schedulingGates"):
        pod.pop(name, None)
        if name in new_pod:
            pod[name] = new_pod[name]
    for name in ("annotations", "labels"):
        metadata.pop(name, None)
        if name in spec["template"]["metadata"]:
            metadata[name] = spec["template"]["metadata"][name]
    return {**template, "metadata": metadata, "spec": pod}


def _default_job_spec(spec: Json) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    _default_run_once(spec)


def _default_run_once(spec: Json) -> None:
    restarts = template_of(spec)["spec"].get("restartPolicy")
    default_spec(spec["template"]["spec"])
    if restarts is None:
        # Always is the default everywhere but here, where there is none: it has to be asked for.
        del spec["template"]["spec"]["restartPolicy"]


def _job_spec_causes(spec: Json, path: str) -> list[Cause]:
    causes = not_negative(
        spec, path, "parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"
    )
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in {"NonIndexed", "Indexed"}:
        causes.append(not_one_of(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed" and "completions" not in spec:
        causes.append(required(f"{path}.completions", "when completion mode is Indexed"))
    template = spec["template"]
    at = f"{path}.template"
    # The real server can't tell the asked-for Always from the default, and words both as a missing value.
    missing = template["spec"].get("restartPolicy", "Always") == "Always"
    checked = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}} if missing else template
    causes += validate_template(checked, at, _RUN_ONCE)
    if missing:
        causes.append(required(f"{at}.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    return causes


class CronJobStrategy(Workload):
    """batch/v1 CronJob."""

    def default(self, obj: Json) -> None:
        """Set the defaults of its own; those of a Job come with each of its Jobs."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("schedule", "")
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        template = spec.setdefault("jobTemplate", {})
        template.setdefault("metadata", {})
        _default_run_once(template.setdefault("spec", {}))

    def prepare_create(self, obj: Json) -> None:
        """Start with an empty status."""
        obj["status"] = {}

    def validate(self, obj: Json) -> list[Cause]:
        """Check the spec, and that the Jobs' names will be names."""
        spec, name = obj["spec"], obj["metadata"].get("name", "")
        causes = _schedule_causes(spec) + not_negative(spec, "spec", "startingDeadlineSeconds")
        if spec["concurrencyPolicy"] not in _CONCURRENCY:
            causes.append(not_one_of("spec.concurrencyPolicy", spec["concurrencyPolicy"], _CONCURRENCY))
        causes += _generated_selector_causes(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")
        causes += _job_spec_causes(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")
        causes += not_negative(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
        if len(name) > _LONGEST_NAME:
            causes.append(wrong("metadata.name", name, f"must be no more than {_LONGEST_NAME} characters"))
        return causes


def _schedule_causes(spec: Json) -> list[Cause]:
    schedule, zone = spec["schedule"], spec.get("timeZone")
    if not schedule:
        causes = [required("spec.schedule")]
    elif "TZ" in schedule:
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        causes = [wrong("spec.schedule", schedule, text)]
    else:
        causes = _wrong("spec.schedule", schedule, cron.parse)
    if zone == "":
        return [*causes, wrong("spec.timeZone", zone, "timeZone must be nil or non-empty string")]
    if zone is not None and zone.casefold() == "local":
        text = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        return [*causes, wrong("spec.timeZone", zone, text)]
    return causes if zone is None else causes + _wrong("spec.timeZone", zone, cron.zone)


def _wrong(field: str, text: str, read: Callable[[str], object]) -> list[Cause]:
    try:
        read(text)
    except cron.ScheduleError as error:
        return [wrong(field, text, str(error))]
    return []


def _generated_selector_causes(spec: Json, path: str) -> list[Cause]:
    """A Job of a CronJob may not choose its selector."""
    causes: list[Cause] = []
    if spec.get("selector") is not None:
        causes.append(wrong(f"{path}.selector", spec["selector"], "`selector` will be auto-generated"))
    if spec.get("manualSelector"):
        causes.append(not_one_of(f"{path}.manualSelector", spec["manualSelector"], ("nil", "false")))
    return causes
