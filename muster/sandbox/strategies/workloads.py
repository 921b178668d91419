"""Kinds with a pod template: Job, CronJob, Deployment, ReplicaSet, StatefulSet, DaemonSet."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from muster.sandbox import selectors
from muster.sandbox.status import Cause, not_one_of, required, wrong
from muster.sandbox.strategies.base import Json, Strategy
from muster.sandbox.strategies.pods import default_spec, validate_template

_RUN_ONCE: Final = ("OnFailure", "Never")
_RUN_ON: Final = ("Always",)
_NOT_NEGATIVE: Final = "must be greater than or equal to 0"
_IMMUTABLE: Final = "field is immutable"
_NO_MATCH: Final = "`selector` does not match template `labels`"
_OLD_LABELS: Final = {"controller-uid": "uid", "job-name": "name"}
_NEW_LABELS: Final = {f"batch.kubernetes.io/{key}": value for key, value in _OLD_LABELS.items()}
_CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"


class _Workload(Strategy):
    has_status = True
    counts_generations = True


def _template(spec: Json) -> Json:
    template: Json = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    template.setdefault("spec", {})
    return template


def _default_template(spec: Json) -> None:
    default_spec(_template(spec)["spec"])


def _not_negative(spec: Json, path: str, *fields: str) -> list[Cause]:
    return [wrong(f"{path}.{name}", spec[name], _NOT_NEGATIVE) for name in fields if spec.get(name, 0) < 0]


# ── batch ────────────────────────────────────────────────────────────────────────────────────────────────────────


class JobStrategy(_Workload):
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
        return causes + _match_causes(spec)

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
                causes.append(wrong(f"spec.{name}", spec.get(name), _IMMUTABLE))
        return causes


def _schedulable_part_removed(spec: Json, was: Json, old: Json) -> Json:
    """Give the old template with what may change while the Job is suspended and never started taken from the new."""
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
    restarts = _template(spec)["spec"].get("restartPolicy")
    default_spec(spec["template"]["spec"])
    if restarts is None:
        # Always is the default everywhere but here, where there is none: it has to be asked for.
        del spec["template"]["spec"]["restartPolicy"]


def _job_spec_causes(spec: Json, path: str) -> list[Cause]:
    causes = _not_negative(
        spec, path, "parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"
    )
    if spec["completionMode"] not in {"NonIndexed", "Indexed"}:
        causes.append(not_one_of(f"{path}.completionMode", spec["completionMode"], ("NonIndexed", "Indexed")))
    if spec["completionMode"] == "Indexed" and "completions" not in spec:
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


class CronJobStrategy(_Workload):
    """batch/v1 CronJob: listed, so that kubectl's ``get all`` works; none can be created."""

    refused = "creating a CronJob"


# ── apps ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class ReplicaSetStrategy(_Workload):
    """apps/v1 ReplicaSet."""

    initial_status: ClassVar[Json] = {"replicas": 0}

    def default(self, obj: Json) -> None:
        """Set the defaults; labels of the template become the object's where it has none."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        _default_template(spec)

    def prepare_create(self, obj: Json) -> None:
        """Start with an empty status."""
        obj["status"] = dict(self.initial_status)

    def validate(self, obj: Json) -> list[Cause]:
        """Check the spec."""
        return _apps_causes(obj["spec"])

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Keep the selector."""
        causes = self.validate(obj)
        if obj["spec"].get("selector") != old["spec"].get("selector"):
            causes.append(wrong("spec.selector", obj["spec"].get("selector"), _IMMUTABLE))
        return causes


class DeploymentStrategy(ReplicaSetStrategy):
    """apps/v1 Deployment."""

    initial_status: ClassVar[Json] = {}

    def default(self, obj: Json) -> None:
        """Set the defaults."""
        super().default(obj)
        spec = obj["spec"]
        strategy = spec.setdefault("strategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def validate(self, obj: Json) -> list[Cause]:
        """Check the spec."""
        spec = obj["spec"]
        causes = super().validate(obj) + _not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit")
        strategy = spec["strategy"]
        if strategy["type"] not in {"Recreate", "RollingUpdate"}:
            causes.append(not_one_of("spec.strategy.type", strategy["type"], ("Recreate", "RollingUpdate")))
        if strategy["type"] == "Recreate" and strategy.get("rollingUpdate"):
            text = "may not be specified when strategy `type` is 'Recreate'"
            causes.append(Cause("FieldValueForbidden", "spec.strategy.rollingUpdate", f"Forbidden: {text}"))
        return causes


class StatefulSetStrategy(ReplicaSetStrategy):
    """apps/v1 StatefulSet."""

    uncontrolled = "the Muster sandbox runs no StatefulSet controller: no pods will be created"
    initial_status: ClassVar[Json] = {"replicas": 0, "availableReplicas": 0}
    _changeable = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "minReadySeconds")

    def default(self, obj: Json) -> None:
        """Set the defaults."""
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("serviceName", "")
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Let only the listed fields change."""
        changeable = {*self._changeable, "persistentVolumeClaimRetentionPolicy"}
        kept = [{k: v for k, v in each["spec"].items() if k not in changeable} for each in (obj, old)]
        if kept[0] == kept[1]:
            return self.validate(obj)
        text = (
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
            "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        )
        return [*self.validate(obj), Cause("FieldValueForbidden", "spec", f"Forbidden: {text}")]


class DaemonSetStrategy(ReplicaSetStrategy):
    """apps/v1 DaemonSet."""

    uncontrolled = "the Muster sandbox runs no DaemonSet controller: no pods will be created"
    initial_status: ClassVar[Json] = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }

    def default(self, obj: Json) -> None:
        """Set the defaults."""
        spec = obj.setdefault("spec", {})
        _default_template(spec)
        strategy = spec.setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)


def _apps_causes(spec: Json) -> list[Cause]:
    causes = _not_negative(spec, "spec", "replicas")
    selector = spec.get("selector")
    if selector is None:
        causes.append(required("spec.selector"))
    else:
        causes += selectors.validate_object(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            causes.append(wrong("spec.selector", selector, "empty selector is invalid for deployment"))
    causes += _match_causes(spec)
    return causes + validate_template(spec["template"], "spec.template", _RUN_ON)


def _match_causes(spec: Json) -> list[Cause]:
    labels: dict[str, Any] | None = spec["template"]["metadata"].get("labels")
    selector = spec.get("selector")
    if selector is not None and selectors.validate_object(selector, ""):
        return []  # malformed, which is said elsewhere
    requirements = selectors.from_object(selector)
    if requirements is not None and selectors.matches_labels(requirements, labels):
        return []
    return [wrong("spec.template.metadata.labels", labels, _NO_MATCH)]
