"""The usage of a ResourceQuota by objects. Pure; for admission and for the quota controller.

What a pod requests and in which scopes it is, the model says (`muster.model.requests`, `muster.model.scopes`), as to
Muster's own ledger. Here stand the names under which a ResourceQuota counts that, and the kinds that Muster doesn't count.
Source: the evaluators in ``k8s.io/kubernetes/pkg/quota/v1/evaluator/core``. Amounts are `Quantity` values, not
`Resources`: the texts of denials keep the form in which the amounts were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from muster.model import device_quota, scopes
from muster.model.amounts import NANO, Quantity, QuantityFormat, Resources
from muster.model.objects import PodSpec, ResourceQuotaSpec
from muster.model.requests import pod_limits, pod_request
from muster.sandbox.core.store import Key, Object

Amounts = dict[str, Quantity]

PODS: Final[Key] = ("", "pods")
SERVICES: Final[Key] = ("", "services")
CLAIMS: Final[Key] = ("", "persistentvolumeclaims")
DEVICE_CLAIMS: Final[Key] = ("resource.k8s.io", "resourceclaims")
_ONE: Final = Quantity(NANO)
_ZERO: Final = Quantity(0)
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_POD_NAMES: Final = frozenset(
    {"count/pods", "pods"} | {f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in _COMPUTE}
)
_SERVICE_NAMES: Final = frozenset({"count/services", "services", "services.nodeports", "services.loadbalancers"})
_CLAIM_NAMES: Final = frozenset({"count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage"})
_STORAGE_CLASS: Final = ".storageclass.storage.k8s.io/"
_ALIASES: Final = frozenset({"configmaps", "secrets", "resourcequotas", "replicationcontrollers"})
_REQUIRED: Final = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
_UNTRACKED: Final[frozenset[Key]] = frozenset({("", "events"), ("", "bindings")})


# ── which quota ──────────────────────────────────────────────────────────────────────────────────────────────────


def tracked(key: Key, names: Iterable[str]) -> set[str]:
    """Return those of a quota's names that objects of this kind use."""
    if key in _UNTRACKED:
        return set()
    return {name for name in names if _tracks(key, name)}


def _tracks(key: Key, name: str) -> bool:
    if key == PODS:
        return name in _POD_NAMES or name.startswith(("hugepages-", "requests.hugepages-")) or _extended_request(name)
    if key == SERVICES:
        return name in _SERVICE_NAMES
    if key == CLAIMS:
        return name in _CLAIM_NAMES or _STORAGE_CLASS in name
    if key == DEVICE_CLAIMS and device_quota.of_class(name):
        return True
    return name in _counts(key)


def _counts(key: Key) -> tuple[str, ...]:
    group, plural = key
    count = f"count/{plural}.{group}" if group else f"count/{plural}"
    return (count, plural) if not group and plural in _ALIASES else (count,)


def _extended_request(name: str) -> bool:
    return name.startswith("requests.") and extended(name.removeprefix("requests."))


def extended(name: str) -> bool:
    """Whether a resource is a device or the like, not one of Kubernetes' own."""
    return "/" in name and "kubernetes.io/" not in name


def matches(quota: Object, key: Key, obj: Object) -> bool:
    """Whether an object counts against a quota: by what the quota's status limits, and by its scopes."""
    if not tracked(key, (quota.get("status") or {}).get("hard") or ()):
        return False
    return in_scope(quota, key, obj)


def in_scope(quota: Object, key: Key, obj: Object) -> bool:
    """Whether an object is in all scopes of a quota."""
    scope_set = scopes.scope_set(msgspec.convert(quota.get("spec") or {}, ResourceQuotaSpec))
    return not scope_set or (key == PODS and scopes.matches(scope_set, scopes.scope_facts(_pod_spec(obj))))


def _pod_spec(pod: Object) -> PodSpec:
    return msgspec.convert(pod.get("spec") or {}, PodSpec)


# ── how much ─────────────────────────────────────────────────────────────────────────────────────────────────────


def charge(key: Key, obj: Object) -> Amounts:
    """Return what an object uses, by the names that quotas have."""
    if key == PODS:
        return _pod_charge(obj)
    if key == SERVICES:
        return _service_charge(obj.get("spec") or {})
    if key == CLAIMS:
        return _claim_charge(obj.get("spec") or {})
    amounts = dict.fromkeys(_counts(key), _ONE)
    if key == DEVICE_CLAIMS:
        amounts |= _written(device_quota.of_claim(obj.get("spec")), {})
    return amounts


def _pod_charge(pod: Object) -> Amounts:
    amounts = {"count/pods": _ONE}
    if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return amounts
    spec, forms = _pod_spec(pod), _forms(pod.get("spec") or {})
    return amounts | _compute(_written(pod_request(spec), forms), _written(pod_limits(spec), forms))


def _compute(requests: Amounts, limits: Amounts) -> Amounts:
    amounts = {"pods": _ONE}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            amounts[name] = amounts[f"requests.{name}"] = amount
        elif extended(name):
            amounts[f"requests.{name}"] = amount
    return amounts | {f"limits.{name}": limits[name] for name in _COMPUTE if name in limits}


def _forms(spec: Object) -> Mapping[str, QuantityFormat]:
    """Return the form in which each resource's amount was written first: denials and the quota's status keep it."""
    each = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ()), spec]
    parts = [(holder.get("resources") or {}).get(side) for holder in each for side in ("requests", "limits")]
    forms: dict[str, QuantityFormat] = {}
    for part in (*parts, spec.get("overhead")):
        for name, amount in _amounts(part).items():
            if amount.nano:
                forms.setdefault(name, amount.form)
    return forms


def _written(amounts: Resources, forms: Mapping[str, QuantityFormat]) -> Amounts:
    return {name: Quantity(nano, forms.get(name, QuantityFormat.DECIMAL)) for name, nano in amounts.nano.items()}


def _container_amounts(container: Object, side: str) -> Amounts:
    return _amounts((container.get("resources") or {}).get(side))


def _amounts(texts: Mapping[str, Any] | None) -> Amounts:
    return {name: Quantity.parse(text) for name, text in (texts or {}).items()}


def _service_charge(spec: Object) -> Amounts:
    ports = spec.get("ports") or ()
    kind = spec.get("type")
    node_ports = len(ports) if kind in {"NodePort", "LoadBalancer"} else 0
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        node_ports = sum(bool(port.get("nodePort")) for port in ports)
    return {
        "count/services": _ONE,
        "services": _ONE,
        "services.nodeports": Quantity(node_ports * NANO),
        "services.loadbalancers": _ONE if kind == "LoadBalancer" else _ZERO,
    }


def _claim_charge(spec: Object) -> Amounts:
    amounts = {"count/persistentvolumeclaims": _ONE, "persistentvolumeclaims": _ONE}
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    storage = Quantity.parse(asked) if asked is not None else None
    if storage is not None:
        amounts["requests.storage"] = storage
    if name := spec.get("storageClassName"):
        amounts[f"{name}{_STORAGE_CLASS}persistentvolumeclaims"] = _ONE
        if storage is not None:
            amounts[f"{name}{_STORAGE_CLASS}requests.storage"] = storage
    return amounts


def missing(names: Iterable[str], pod: Object) -> str:
    """Return what containers must specify because a quota limits it: ``cpu for: a,b; memory for: a``; empty if nothing."""
    spec = pod.get("spec") or {}
    level = spec.get("resources") or {}
    if level.get("requests") or level.get("limits"):
        return ""
    lacking: dict[str, list[str]] = {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        given = _compute(_container_amounts(container, "requests"), _container_amounts(container, "limits"))
        for name in sorted((_REQUIRED & set(names)) - given.keys()):
            lacking.setdefault(name, []).append(container["name"])
    return "; ".join(f"{name} for: {','.join(sorted(set(lacking[name])))}" for name in sorted(lacking))


# ── sums ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def plus(first: Amounts, second: Amounts) -> Amounts:
    """Add; a sum has the form of its first part that isn't zero."""
    total = dict(first)
    for name, amount in second.items():
        have = total.get(name)
        if have is None or not have.nano:
            total[name] = amount
        else:
            total[name] = Quantity(have.nano + amount.nano, have.form)
    return total


def used(
    quota: Object, names: Iterable[str], objects: Callable[[Key], Iterable[Object]], keys: Iterable[Key]
) -> Amounts:
    """Recount what a quota's namespace uses of ``names``.

    ``objects`` gives the namespace's objects of a key; ``keys`` are the kinds that there are.
    """
    names = list(names)
    total = dict.fromkeys(names, _ZERO)
    for key in keys:
        wanted = tracked(key, names)
        if not wanted:
            continue
        for obj in objects(key):
            if in_scope(quota, key, obj):
                total = plus(total, {name: each for name, each in charge(key, obj).items() if name in wanted})
    return total
