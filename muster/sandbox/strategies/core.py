"""Strategies of the kinds that people write beside workloads: namespaces, nodes, configuration, policy."""

from __future__ import annotations

import base64
from typing import Any, Final

from muster.sandbox.codec import selectors
from muster.sandbox.core import syntax
from muster.sandbox.core.status import Cause, not_allowed, not_one_of, required, wrong
from muster.sandbox.strategies.base import Json, Strategy, carry

_HIGHEST_USER_PRIORITY: Final = 1_000_000_000
_SYSTEM_PRIORITY: Final = "system-"
_DATA_LIMIT: Final = 1024 * 1024


class NamespaceStrategy(Strategy):
    """v1 Namespace: it goes only when its finalizers in ``spec`` are gone, whoever empties it removes them."""

    has_status = True
    returns_deleted = True

    def name_errors(self, name: str) -> tuple[str, ...]:
        """Check a name."""
        return syntax.label(name)

    def default(self, obj: Json) -> None:
        """Label it with its name, as far as it has one by now."""
        if obj["metadata"].get("name"):
            _label_with_name(obj)

    def prepare_create(self, obj: Json) -> None:
        """Start in phase Active, with the finalizer of the namespace controller and the label of its name."""
        obj["status"] = {"phase": "Active"}
        finalizers = obj.setdefault("spec", {}).setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        _label_with_name(obj)

    def prepare_update(self, obj: Json, old: Json) -> None:
        """Keep the finalizers in ``spec``: only ``finalize`` changes them."""
        super().prepare_update(obj, old)
        carry(obj, old, "spec")
        _label_with_name(obj)


def _label_with_name(obj: Json) -> None:
    metadata = obj["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}


class NodeStrategy(Strategy):
    """v1 Node. Its status may come with its creation: that is how kubelets register."""

    has_status = True

    def prepare_create(self, obj: Json) -> None:
        """Keep what the kubelet says of itself."""
        obj.setdefault("spec", {})
        status = obj.setdefault("status", {})
        status.setdefault("allocatable", status.get("capacity", {}))

    def validate(self, obj: Json) -> list[Cause]:
        """Check the taints."""
        causes: list[Cause] = []
        for index, taint in enumerate(obj.get("spec", {}).get("taints") or ()):
            path = f"spec.taints[{index}]"
            causes += [
                wrong(f"{path}.key", taint.get("key", ""), text) for text in syntax.qualified_name(taint.get("key", ""))
            ]
            if taint.get("effect") not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
                allowed = ("NoSchedule", "PreferNoSchedule", "NoExecute")
                causes.append(not_one_of(f"{path}.effect", taint.get("effect", ""), allowed))
        return causes


class ConfigMapStrategy(Strategy):
    """v1 ConfigMap."""

    def validate(self, obj: Json) -> list[Cause]:
        """Check keys and size."""
        return _data_causes(obj, ("data", "binaryData"))

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Keep an immutable one."""
        return _immutable_causes(obj, old, ("data", "binaryData")) + self.validate(obj)


_SECRET_KEYS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


class SecretStrategy(Strategy):
    """v1 Secret."""

    def default(self, obj: Json) -> None:
        """Set the type; fold ``stringData`` into ``data``."""
        obj.setdefault("type", "Opaque")
        if texts := obj.pop("stringData", None):
            data = obj.setdefault("data", {})
            data |= {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}

    def validate(self, obj: Json) -> list[Cause]:
        """Check keys and size, and that there is what its type needs."""
        data = obj.get("data") or {}
        needed = _SECRET_KEYS.get(obj.get("type", ""), ())
        return _data_causes(obj, ("data",)) + [required(f"data[{key}]") for key in needed if key not in data]

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Keep the type, and an immutable one whole."""
        causes = _immutable_causes(obj, old, ("data",))
        if obj.get("type") != old.get("type"):
            causes.append(wrong("type", obj.get("type"), "field is immutable"))
        return causes + self.validate(obj)


def _data_causes(obj: Json, fields: tuple[str, ...]) -> list[Cause]:
    causes: list[Cause] = []
    size = 0
    for name in fields:
        for key, value in (obj.get(name) or {}).items():
            size += len(value)
            if (
                not key
                or len(key) > 253
                or key in {".", ".."}
                or key.strip("-._abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
            ):
                text = (
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                )
                causes.append(wrong(f"{name}[{key}]", key, text))
    if size > _DATA_LIMIT:
        causes.append(Cause("FieldValueTooLong", "", f"Too long: may not be more than {_DATA_LIMIT} bytes"))
    return causes


def _immutable_causes(obj: Json, old: Json, fields: tuple[str, ...]) -> list[Cause]:
    if not old.get("immutable"):
        return []
    causes = [
        not_allowed(name, "field is immutable when `immutable` is set")
        for name in fields
        if obj.get(name) != old.get(name)
    ]
    if not obj.get("immutable"):
        causes.append(not_allowed("immutable", "field is immutable when `immutable` is set"))
    return causes


class ServiceStrategy(Strategy):
    """v1 Service: an address is given, nothing listens at it."""

    has_status = True
    returns_deleted = True
    creates_on_update = True

    def name_errors(self, name: str) -> tuple[str, ...]:
        """Check a name."""
        return syntax.dns_1035(name)

    def default(self, obj: Json) -> None:
        """Set the defaults."""
        spec = obj.setdefault("spec", {})
        kind = spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        if kind != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")

    def prepare_create(self, obj: Json) -> None:
        """Start with an empty status."""
        obj["status"] = {"loadBalancer": {}}

    def validate(self, obj: Json) -> list[Cause]:
        """Check type and ports."""
        spec = obj["spec"]
        causes: list[Cause] = []
        types = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
        if spec["type"] not in types:
            causes.append(not_one_of("spec.type", spec["type"], types))
        if not spec.get("ports") and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
            causes.append(required("spec.ports"))
        for index, port in enumerate(spec.get("ports") or ()):
            if not 1 <= (port.get("port") or 0) <= 65535:
                causes.append(
                    wrong(f"spec.ports[{index}].port", port.get("port", 0), "must be between 1 and 65535, inclusive")
                )
        return causes


class LimitRangeStrategy(Strategy):
    """v1 LimitRange: nothing enforces it here, so none can be created."""

    refused = "creating a LimitRange"


class ReplicationControllerStrategy(Strategy):
    """v1 ReplicationController: listed only."""

    has_status = True
    refused = "creating a ReplicationController"


class ServiceAccountStrategy(Strategy):
    """v1 ServiceAccount."""

    returns_deleted = True


class VolumeStrategy(Strategy):
    """v1 PersistentVolume and PersistentVolumeClaim: kept; nothing binds them."""

    has_status = True
    returns_deleted = True
    uncontrolled = "the Muster sandbox runs no volume controller: claims are never bound, and pods don't wait for them"

    def prepare_create(self, obj: Json) -> None:
        """Start in phase Pending."""
        obj["status"] = {"phase": "Pending"}


class EventStrategy(Strategy):
    """Events of both groups; they may be written without a namespace check of what they are about."""

    creates_on_update = True

    def default(self, obj: Json) -> None:
        """Show what every event shows."""
        for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
            obj.setdefault(key, None)
        obj.setdefault("source", {})
        for key in ("reportingComponent", "reportingInstance"):
            obj.setdefault(key, "")

    def validate(self, obj: Json) -> list[Cause]:
        """Check that it is where the thing is that it is about, or in ``default`` for a thing of the cluster."""
        place, about = obj["metadata"].get("namespace", ""), obj.get("involvedObject", {}).get("namespace", "")
        if about not in {"", place} or (not about and place not in {"", "default", "kube-system"}):
            return [wrong("involvedObject.namespace", about, "does not match event.namespace")]
        return []


class LeaseStrategy(Strategy):
    """coordination.k8s.io/v1 Lease."""

    creates_on_update = True
    unconditional = False

    def default(self, obj: Json) -> None:
        """Show an empty spec too."""
        obj.setdefault("spec", {})

    def validate(self, obj: Json) -> list[Cause]:
        """Check durations."""
        spec = obj.get("spec") or {}
        causes: list[Cause] = []
        if "leaseDurationSeconds" in spec and spec["leaseDurationSeconds"] <= 0:
            causes.append(wrong("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"))
        if spec.get("leaseTransitions", 0) < 0:
            causes.append(
                wrong("spec.leaseTransitions", spec["leaseTransitions"], "must be greater than or equal to 0")
            )
        return causes

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Check durations."""
        del old
        return self.validate(obj)


class KeptStrategy(Strategy):
    """RBAC objects, endpoints and the like: kept as they are."""

    creates_on_update = True

    def name_errors(self, name: str) -> tuple[str, ...]:
        """Check a name."""
        return syntax.path_segment(name)


class PriorityClassStrategy(Strategy):
    """scheduling.k8s.io/v1 PriorityClass."""

    counts_generations = True

    def default(self, obj: Json) -> None:
        """Set the defaults."""
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def validate(self, obj: Json) -> list[Cause]:
        """Keep the highest values and the ``system-`` names to Kubernetes."""
        name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
        causes: list[Cause] = []
        if name.startswith(_SYSTEM_PRIORITY) and (name, value) not in SYSTEM_PRIORITIES:
            text = f"priority class names with '{_SYSTEM_PRIORITY}' prefix are reserved for system use only"
            causes.append(not_allowed("metadata.name", text))
        elif not name.startswith(_SYSTEM_PRIORITY) and value > _HIGHEST_USER_PRIORITY:
            text = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
            causes.append(not_allowed("value", text))
        policies = ("Never", "PreemptLowerPriority")
        if obj["preemptionPolicy"] not in policies:
            causes.append(not_one_of("preemptionPolicy", obj["preemptionPolicy"], policies))
        return causes

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Keep value and preemption policy."""
        causes = (
            []
            if obj.get("value", 0) == old.get("value", 0)
            else [not_allowed("value", "may not be changed in an update.")]
        )
        if obj.get("preemptionPolicy") != old.get("preemptionPolicy"):
            causes.append(wrong("preemptionPolicy", obj.get("preemptionPolicy"), "field is immutable"))
        return causes


def _percent(text: str) -> int:
    """Return the number before the sign; of a long one its beginning, which is too much as well."""
    return int(text[:-1].lstrip("0")[:4] or "0")


SYSTEM_PRIORITIES: Final = frozenset(
    {("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)}
)


class DisruptionBudgetStrategy(Strategy):
    """policy/v1 PodDisruptionBudget."""

    unconditional = False
    has_status = True
    counts_generations = True

    def prepare_create(self, obj: Json) -> None:
        """Start with a status that allows nothing, until somebody has counted."""
        obj.setdefault("spec", {})
        obj["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}

    def validate(self, obj: Json) -> list[Cause]:
        """Check the budget."""
        spec: dict[str, Any] = obj.get("spec") or {}
        causes: list[Cause] = []
        if "minAvailable" in spec and "maxUnavailable" in spec:
            causes.append(wrong("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
        causes += [
            wrong(f"spec.{name}", spec[name], "must not be greater than 100%")
            for name in ("minAvailable", "maxUnavailable")
            if isinstance(spec.get(name), str) and spec[name][:-1].isdecimal() and _percent(spec[name]) > 100
        ]
        for name in ("minAvailable", "maxUnavailable"):
            value = spec.get(name)
            if isinstance(value, int) and value < 0:
                causes.append(wrong(f"spec.{name}", value, "must be greater than or equal to 0"))
            if isinstance(value, str) and not (value.endswith("%") and value[:-1].isdigit()):
                text = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
                causes.append(wrong(f"spec.{name}", value, text))
        if spec.get("selector"):
            causes += selectors.validate_object(spec["selector"], "spec.selector")
        return causes
