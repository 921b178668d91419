"""Pods: defaults, what an update may change, and what their templates need wherever they stand."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any, Final

from muster.model.amounts import Quantity
from muster.sandbox.core import syntax
from muster.sandbox.core.status import Cause, duplicate, not_allowed, not_one_of, required, unknown_value, wrong
from muster.sandbox.strategies.base import Json, Strategy, carry

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_IMMUTABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_GATE_REMOVAL_MAY_SET: Final = ("nodeSelector", "affinity")
_CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")


class PodStrategy(Strategy):
    """v1 Pod."""

    has_status = True
    counts_generations = True
    returns_deleted = True

    def default(self, obj: Json) -> None:
        """Set the defaults of the spec, and those that only a pod has, not a template."""
        spec = obj.setdefault("spec", {})
        default_spec(spec)
        spec.setdefault("enableServiceLinks", True)
        for condition in (obj.get("status") or {}).get("conditions") or ():
            for key in ("lastProbeTime", "lastTransitionTime"):
                condition.setdefault(key, None)
        for kind in ("initContainers", "containers"):
            for container in spec.get(kind) or ():
                _request_limits(container["resources"])

    def prepare_create(self, obj: Json) -> None:
        """Start in phase Pending with the class of service that the resources make."""
        obj["status"] = {"phase": "Pending", "qosClass": quality_of_service(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            obj["status"]["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": obj["metadata"]["creationTimestamp"],
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]

    def validate(self, obj: Json) -> list[Cause]:
        """Check the spec."""
        return validate_spec(obj["spec"], "spec")

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Let images, deadline and added tolerations change, and nothing else of the spec."""
        new_spec, old_spec = obj["spec"], old["spec"]
        if new_spec == old_spec:
            return []
        causes = validate_spec(new_spec, "spec")
        causes += _gate_causes(new_spec, old_spec) + _deadline_causes(new_spec, old_spec)
        if not causes and _mutable_part_removed(new_spec, old_spec) != _comparable(old_spec):
            causes.append(not_allowed("spec", f"{_IMMUTABLE}\n{_difference(old_spec, new_spec)}"))
        return causes

    def prepare_status(self, obj: Json, old: Json) -> None:
        """Keep spec and owners."""
        super().prepare_status(obj, old)
        carry(obj["metadata"], old["metadata"], "ownerReferences")
        obj.setdefault("status", {}).setdefault("qosClass", old.get("status", {}).get("qosClass", "BestEffort"))


def default_spec(spec: Json) -> None:
    """Set the defaults of a pod's spec, in a template too."""
    for key, value in _SPEC_DEFAULTS:
        spec.setdefault(key, value)
    spec.setdefault("securityContext", {})
    if account := spec.get("serviceAccountName"):
        spec["serviceAccount"] = account
    elif account := spec.get("serviceAccount"):
        spec["serviceAccountName"] = account
    for kind in _CONTAINER_LISTS:
        for container in spec.get(kind) or ():
            _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


_SPEC_DEFAULTS: Final = (
    ("restartPolicy", "Always"),
    ("terminationGracePeriodSeconds", 30),
    ("dnsPolicy", "ClusterFirst"),
    ("schedulerName", "default-scheduler"),
)


def _default_container(container: Json) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = "Always" if _latest(container.get("image", "")) else "IfNotPresent"
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for each in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := container.get(each):
            _default_probe(probe)
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")


def _request_limits(resources: Json) -> None:
    if limits := resources.get("limits"):
        # A limit without a request asks for as much as it allows.
        resources["requests"] = {**limits, **resources.get("requests", {})}


def _default_probe(probe: Json) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe.setdefault(key, value)
    if get := probe.get("httpGet"):
        get.setdefault("path", "/")
        get.setdefault("scheme", "HTTP")


def _default_volume(volume: Json) -> None:
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if source in volume:
            volume[source].setdefault("defaultMode", 0o644)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if len(volume) == 1:
        volume["emptyDir"] = {}


def _latest(image: str) -> bool:
    name = image.rpartition("/")[2]
    return "@" not in name and (":" not in name or name.endswith(":latest"))


def quality_of_service(spec: Json) -> str:
    """Return the class: Guaranteed, Burstable or BestEffort."""
    guaranteed, best_effort = True, True
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        requests, limits = (_positive(resources.get(key)) for key in ("requests", "limits"))
        best_effort = best_effort and not requests and not limits
        guaranteed = (
            guaranteed
            and limits.keys() == {"cpu", "memory"}
            and all(requests.get(name, amount) == amount for name, amount in limits.items())
        )
    return "BestEffort" if best_effort else "Guaranteed" if guaranteed else "Burstable"


def _positive(amounts: Json | None) -> dict[str, int]:
    if not amounts:
        return {}
    parsed = {name: Quantity.parse(amounts[name]).nano for name in ("cpu", "memory") if name in amounts}
    return {name: nano for name, nano in parsed.items() if nano > 0}


# ── validation ───────────────────────────────────────────────────────────────────────────────────────────────────


def validate_spec(spec: Json, path: str) -> list[Cause]:
    """Return what is wrong with a pod's spec at ``path``."""
    causes: list[Cause] = []
    seen: set[str] = set()
    volumes = {volume.get("name", "") for volume in spec.get("volumes") or ()}
    causes += _volume_causes(spec.get("volumes") or (), f"{path}.volumes")
    if not spec.get("containers"):
        causes.append(required(f"{path}.containers"))
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            causes += _container_causes(container, f"{path}.{kind}[{index}]", seen, volumes)
    if spec.get("restartPolicy") not in RESTART_POLICIES:
        causes.append(not_one_of(f"{path}.restartPolicy", spec.get("restartPolicy", ""), RESTART_POLICIES))
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        text = "must be greater than or equal to 0"
        causes.append(wrong(f"{path}.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"], text))
    if "activeDeadlineSeconds" in spec and not 1 <= spec["activeDeadlineSeconds"] < 2**31:
        text = "must be between 1 and 2147483647, inclusive"
        causes.append(wrong(f"{path}.activeDeadlineSeconds", spec["activeDeadlineSeconds"], text))
    causes += syntax.check_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    for key in ("nodeName", "serviceAccountName", "priorityClassName", "schedulerName"):
        if value := spec.get(key):
            causes += [wrong(f"{path}.{key}", value, text) for text in _name_check(key)(value)]
    causes += _toleration_causes(spec.get("tolerations") or (), f"{path}.tolerations")
    return causes


def _name_check(key: str) -> syntax.Check:
    return syntax.qualified_name if key == "schedulerName" else syntax.subdomain


def _container_causes(container: Json, path: str, seen: set[str], volumes: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name", "")
    if not name:
        causes.append(required(f"{path}.name"))
    else:
        causes += [wrong(f"{path}.name", name, text) for text in syntax.label(name)]
        if name in seen:
            causes.append(duplicate(f"{path}.name", name))
        seen.add(name)
    image = container.get("image", "")
    if not image:
        causes.append(required(f"{path}.image"))
    elif image != image.strip():
        causes.append(wrong(f"{path}.image", image, "must not have leading or trailing whitespace"))
    if container.get("imagePullPolicy", "Always") not in _PULL_POLICIES:
        causes.append(not_one_of(f"{path}.imagePullPolicy", container["imagePullPolicy"], _PULL_POLICIES))
    causes += _part_causes(container, path, volumes)
    return causes + resource_causes(container.get("resources") or {}, f"{path}.resources")


def _part_causes(container: Json, path: str, volumes: set[str]) -> list[Cause]:
    """Return what is wrong with environment, ports and mounts."""
    causes: list[Cause] = []
    for index, port in enumerate(container.get("ports") or ()):
        if not 1 <= port.get("containerPort", 0) <= 65535:
            causes.append(
                wrong(
                    f"{path}.ports[{index}].containerPort",
                    port["containerPort"],
                    "must be between 1 and 65535, inclusive",
                )
                if port.get("containerPort")
                else required(f"{path}.ports[{index}].containerPort")
            )
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            causes.append(required(f"{path}.env[{index}].name"))
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            causes.append(unknown_value(f"{path}.volumeMounts[{index}].name", mount.get("name", "")))
        if not mount.get("mountPath"):
            causes.append(required(f"{path}.volumeMounts[{index}].mountPath"))
    return causes


def resource_causes(resources: Json, path: str) -> list[Cause]:
    """Return what is wrong with a container's requests and limits."""
    causes: list[Cause] = []
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            causes += _resource_name_causes(name, f"{path}.{kind}")
            if Quantity.parse(amount).nano < 0:
                causes.append(wrong(f"{path}.{kind}[{name}]", amount, "must be greater than or equal to 0"))
    for name, amount in requests.items():
        if name in limits and Quantity.parse(amount).nano > Quantity.parse(limits[name]).nano:
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            causes.append(wrong(f"{path}.requests", amount, text))
        elif _extended(name) and Quantity.parse(amount).nano != Quantity.parse(limits.get(name, "0")).nano:
            causes.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
    return causes


_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")


def _resource_name_causes(name: str, path: str) -> list[Cause]:
    causes = [wrong(path, name, text) for text in syntax.qualified_name(name)]
    if not causes and "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        causes.append(wrong(path, name, "must be a standard resource type or fully qualified"))
        causes.append(wrong(path, name, "must be a standard resource for containers"))
    return causes


def _extended(name: str) -> bool:
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _volume_causes(volumes: Iterable[Json], path: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        name = volume.get("name", "")
        if not name:
            causes.append(required(f"{path}[{index}].name"))
            continue
        causes += [wrong(f"{path}[{index}].name", name, text) for text in syntax.label(name)]
        if name in seen:
            causes.append(duplicate(f"{path}[{index}].name", name))
        seen.add(name)
    return causes


def _toleration_causes(tolerations: Iterable[Json], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, each in enumerate(tolerations):
        at = f"{path}[{index}]"
        operator = each.get("operator", "Equal") or "Equal"
        if operator not in {"Equal", "Exists"}:
            causes.append(not_one_of(f"{at}.operator", operator, ("Equal", "Exists")))
        if operator == "Exists" and each.get("value"):
            causes.append(wrong(f"{at}.operator", each, "value must be empty when `operator` is 'Exists'"))
        if not each.get("key") and operator != "Exists":
            causes.append(
                wrong(
                    f"{at}.operator",
                    operator,
                    'operator must be Exists when `key` is empty, which means "match all values and all keys"',
                )
            )
        if "tolerationSeconds" in each and each.get("effect") != "NoExecute":
            causes.append(
                wrong(
                    f"{at}.effect", each.get("effect", ""), "effect must be 'NoExecute' when `tolerationSeconds` is set"
                )
            )
    return causes


# ── updates ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _comparable(spec: Json) -> Json:
    return {key: value for key, value in spec.items() if value not in ([], {}, None)}


def _mutable_part_removed(spec: Json, old: Json) -> Json:
    """Return the new spec with everything that may change put back."""
    back = dict(spec)
    for kind in ("containers", "initContainers"):
        new_list, old_list = spec.get(kind) or [], old.get(kind) or []
        if new_list and len(new_list) == len(old_list):
            back[kind] = [{**new, "image": was["image"]} for new, was in zip(new_list, old_list, strict=True)]
    before = old.get("activeDeadlineSeconds")
    after = spec.get("activeDeadlineSeconds")
    if after is not None and (before is None or after <= before):
        carry(back, old, "activeDeadlineSeconds")
    tolerations, kept = spec.get("tolerations") or [], old.get("tolerations") or []
    if all(each in tolerations for each in kept):
        carry(back, old, "tolerations")
    if old.get("schedulingGates"):
        carry(back, old, "schedulingGates")
        for key in _GATE_REMOVAL_MAY_SET:
            if key not in old:
                back.pop(key, None)
    return _comparable(back)


def _gate_causes(spec: Json, old: Json) -> list[Cause]:
    before = {each["name"] for each in old.get("schedulingGates") or ()}
    added = [each["name"] for each in spec.get("schedulingGates") or () if each["name"] not in before]
    text = "only deletion is allowed, but found new scheduling gate '{}'"
    return [not_allowed("spec.schedulingGates", text.format(each)) for each in added]


def _deadline_causes(spec: Json, old: Json) -> list[Cause]:
    before, after = old.get("activeDeadlineSeconds"), spec.get("activeDeadlineSeconds")
    if before is None or before == after:
        return []
    path = "spec.activeDeadlineSeconds"
    if after is None:
        return [wrong(path, None, "must not update from a positive integer to nil value")]
    return [wrong(path, after, "must be less than or equal to previous value")] if after > before else []


def _difference(old: Json, new: Json) -> str:
    before, after = (json.dumps(spec, indent=1, sort_keys=True).splitlines() for spec in (old, new))
    return "\n".join([*list(difflib.unified_diff(before, after, lineterm="", n=3))[2:], ""])


def validate_template(template: Json, path: str, policies: tuple[str, ...]) -> list[Cause]:
    """Return what is wrong with a pod template whose restart policy has to be one of ``policies``.

    An absent policy is the caller's to name.
    """
    metadata: dict[str, Any] = template.get("metadata") or {}
    causes = syntax.check_labels(metadata.get("labels") or {}, f"{path}.metadata.labels")
    causes += syntax.check_annotations(metadata.get("annotations") or {}, f"{path}.metadata.annotations")
    spec = template.get("spec") or {}
    causes += validate_spec(spec, f"{path}.spec")
    policy = spec.get("restartPolicy", "")
    if policy in RESTART_POLICIES and policy not in policies:
        causes.append(not_one_of(f"{path}.spec.restartPolicy", policy, policies))
    return causes
