"""Kinds that keep pods running: Deployment, ReplicaSet, StatefulSet, DaemonSet; and what all with a pod template share."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from muster.sandbox.codec import selectors
from muster.sandbox.core.status import Cause, not_allowed, not_one_of, required, wrong
from muster.sandbox.strategies.base import Json, Strategy
from muster.sandbox.strategies.pods import default_spec, validate_template

_RUN_ON: Final = ("Always",)
_NOT_NEGATIVE: Final = "must be greater than or equal to 0"
IMMUTABLE: Final = "field is immutable"
_NONE: Final = (0, "0%")
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
_NO_MATCH: Final = "`selector` does not match template `labels`"


class Workload(Strategy):
    """A kind with a status and generations."""

    has_status = True
    counts_generations = True


def template_of(spec: Json) -> Json:
    """Return the pod template, with metadata and spec, if only empty ones."""
    template: Json = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    template.setdefault("spec", {})
    return template


def default_template(spec: Json) -> None:
    """Set the defaults of the pod template."""
    default_spec(template_of(spec)["spec"])


def not_negative(spec: Json, path: str, *fields: str) -> list[Cause]:
    """Return the fields below zero; a ``path`` of "" is the object's root."""
    at = f"{path}." if path else ""
    return [wrong(f"{at}{name}", spec[name], _NOT_NEGATIVE) for name in fields if (spec.get(name) or 0) < 0]


def match_causes(spec: Json) -> list[Cause]:
    """Say so when the selector doesn't take the template's pods."""
    labels: dict[str, Any] | None = spec["template"]["metadata"].get("labels")
    selector = spec.get("selector")
    if selector is not None and selectors.validate_object(selector, ""):
        return []  # malformed, which is said elsewhere
    requirements = selectors.from_object(selector)
    if requirements is not None and selectors.matches_labels(requirements, labels):
        return []
    return [wrong("spec.template.metadata.labels", labels, _NO_MATCH)]


class ReplicaSetStrategy(Workload):
    """apps/v1 ReplicaSet."""

    initial_status: ClassVar[Json] = {"replicas": 0}

    def default(self, obj: Json) -> None:
        """Set the defaults; labels of the template become the object's where it has none."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        default_template(spec)

    def prepare_create(self, obj: Json) -> None:
        """Start with an empty status."""
        obj["status"] = dict(self.initial_status)

    def validate(self, obj: Json) -> list[Cause]:
        """Check the spec."""
        spec = obj["spec"]
        return not_negative(spec, "spec", "replicas") + _pods_causes(spec, "deployment")

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Keep the selector."""
        causes = self.validate(obj)
        if obj["spec"].get("selector") != old["spec"].get("selector"):
            causes.append(wrong("spec.selector", obj["spec"].get("selector"), IMMUTABLE))
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
        causes = super().validate(obj) + not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit")
        strategy = spec["strategy"]
        if strategy["type"] not in {"Recreate", "RollingUpdate"}:
            causes.append(not_one_of("spec.strategy.type", strategy["type"], ("Recreate", "RollingUpdate")))
        if strategy["type"] == "Recreate" and strategy.get("rollingUpdate"):
            text = "may not be specified when strategy `type` is 'Recreate'"
            causes.append(Cause("FieldValueForbidden", "spec.strategy.rollingUpdate", f"Forbidden: {text}"))
        return causes


class StatefulSetStrategy(ReplicaSetStrategy):
    """apps/v1 StatefulSet."""

    initial_status: ClassVar[Json] = {"replicas": 0, "availableReplicas": 0}
    _unchangeable = ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")

    def default(self, obj: Json) -> None:
        """Set the defaults."""
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("serviceName", "")
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
            strategy["rollingUpdate"].setdefault("maxUnavailable", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")
        for claim in spec.get("volumeClaimTemplates") or ():
            claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}
            claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")

    def validate(self, obj: Json) -> list[Cause]:
        """Check the spec."""
        spec = obj["spec"]
        causes = []
        if spec["podManagementPolicy"] not in {"OrderedReady", "Parallel"}:
            text = "must be 'OrderedReady' or 'Parallel'"
            causes.append(wrong("spec.podManagementPolicy", spec["podManagementPolicy"], text))
        causes += _ordered_update_causes(spec["updateStrategy"])
        causes += not_negative(spec, "spec", "replicas", "minReadySeconds")
        causes += not_negative(spec.get("ordinals") or {}, "spec.ordinals", "start")
        causes += _pods_causes({**spec, "template": _with_claims(spec)}, "statefulset")
        if spec["template"]["spec"].get("activeDeadlineSeconds") is not None:
            text = "activeDeadlineSeconds in StatefulSet is not Supported"
            causes.append(not_allowed("spec.template.spec.activeDeadlineSeconds", text))
        return causes

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Keep the listed fields."""
        specs = obj["spec"], old["spec"]
        changed = [name for name in self._unchangeable if specs[0].get(name) != specs[1].get(name)]
        return [*self.validate(obj), *(wrong(f"spec.{name}", specs[0].get(name), IMMUTABLE) for name in changed)]


def _with_claims(spec: Json) -> Json:
    """Return the template with the volumes that its pods will have, which containers may mount."""
    template = spec["template"]
    claimed = [{"name": each["metadata"]["name"], "emptyDir": {}} for each in spec.get("volumeClaimTemplates") or ()]
    names = {each["name"] for each in claimed}
    given = [each for each in template["spec"].get("volumes") or () if each["name"] not in names]
    return {**template, "spec": {**template["spec"], "volumes": [*given, *claimed]}}


def _ordered_update_causes(strategy: Json) -> list[Cause]:
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "RollingUpdate":
        path = "spec.updateStrategy.rollingUpdate"
        causes = not_negative(rolling or {}, path, "partition")
        if rolling and rolling.get("maxUnavailable") in _NONE:
            causes.append(wrong(f"{path}.maxUnavailable", rolling["maxUnavailable"], "cannot be 0"))
        return causes
    if strategy["type"] != "OnDelete":
        shown = {"Type": strategy["type"], "RollingUpdate": rolling}
        return [wrong("spec.updateStrategy", shown, "must be 'RollingUpdate' or 'OnDelete'")]
    if rolling is None:
        return []
    shown = {"Partition": rolling.get("partition"), "MaxUnavailable": rolling.get("maxUnavailable")}
    text = "only allowed for updateStrategy 'RollingUpdate'"
    return [wrong("spec.updateStrategy.rollingUpdate", shown, text)]


class DaemonSetStrategy(ReplicaSetStrategy):
    """apps/v1 DaemonSet."""

    initial_status: ClassVar[Json] = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }

    def default(self, obj: Json) -> None:
        """Set the defaults."""
        spec = obj.setdefault("spec", {})
        default_template(spec)
        strategy = spec.setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def prepare_create(self, obj: Json) -> None:
        """Start with an empty status, and the first generation of the template."""
        super().prepare_create(obj)
        _annotate(obj, "1")

    def prepare_update(self, obj: Json, old: Json) -> None:
        """Count the generations of the template, whatever the client says they are."""
        super().prepare_update(obj, old)
        before = int((old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1"))
        _annotate(obj, str(before + (obj["spec"]["template"] != old["spec"]["template"])))

    def validate(self, obj: Json) -> list[Cause]:
        """Check the spec."""
        spec = obj["spec"]
        causes = _pods_causes(spec, "daemonset") + not_negative(spec, "spec", "minReadySeconds")
        return (
            causes + _daemon_update_causes(spec["updateStrategy"]) + not_negative(spec, "spec", "revisionHistoryLimit")
        )


def _annotate(obj: Json, generation: str) -> None:
    obj["metadata"]["annotations"] = {**(obj["metadata"].get("annotations") or {}), TEMPLATE_GENERATION: generation}


def _daemon_update_causes(strategy: Json) -> list[Cause]:
    path = "spec.updateStrategy"
    if strategy["type"] == "OnDelete":
        return []
    if strategy["type"] != "RollingUpdate":
        shown = {"Type": strategy["type"], "RollingUpdate": strategy.get("rollingUpdate")}
        return [not_one_of(path, shown, ("RollingUpdate", "OnDelete"))]
    unavailable, surge = (strategy["rollingUpdate"][name] not in _NONE for name in ("maxUnavailable", "maxSurge"))
    if not unavailable and not surge:
        return [required(f"{path}.rollingUpdate.maxUnavailable", "cannot be 0 when maxSurge is 0")]
    if unavailable and surge:
        value = strategy["rollingUpdate"]["maxSurge"]
        return [wrong(f"{path}.rollingUpdate.maxSurge", value, "may not be set when maxUnavailable is non-zero")]
    return []


class RevisionStrategy(Strategy):
    """apps/v1 ControllerRevision: a template that a StatefulSet or DaemonSet had, or has."""

    def validate(self, obj: Json) -> list[Cause]:
        """Check that there is data, and the number."""
        missing = [] if obj.get("data") is not None else [required("data", "data is mandatory")]
        return not_negative(obj, "", "revision") + missing

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Keep the data."""
        changed = obj.get("data") != old.get("data")
        return self.validate(obj) + ([wrong("data", obj.get("data"), IMMUTABLE)] if changed else [])


def _pods_causes(spec: Json, kind: str) -> list[Cause]:
    """Check the selector and the template."""
    selector = spec.get("selector")
    if selector is None:
        causes = [required("spec.selector")]
    else:
        causes = selectors.validate_object(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            causes.append(wrong("spec.selector", selector, f"empty selector is invalid for {kind}"))
    causes += match_causes(spec)
    return causes + validate_template(spec["template"], "spec.template", _RUN_ON)
