"""The server's own mutating admission: what it adds to objects of some kinds, before any webhook sees them.

Source: the admission plugins NamespaceLifecycle, Priority, DefaultTolerationSeconds, ServiceAccount (its name only: no
token is mounted, since no container runs) and TaintNodesByCondition.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any, Final

from muster.sandbox.core.paths import Target
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import StatusError, forbidden, not_found
from muster.sandbox.core.store import Store

Json = dict[str, Any]

_UNKILLABLE: Final = frozenset({"default", "kube-system", "kube-public"})
_NAMESPACES: Final = ("", "namespaces")
_ACCOUNTS: Final = ("", "serviceaccounts")
_PRIORITY_CLASSES: Final = ("scheduling.k8s.io", "priorityclasses")
_WAITED_OUT: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_SECONDS: Final = 300
_ADDRESSES: Final = IPv4Network("10.96.0.0/16")


def check_namespace(store: Store, namespaces: Resource, target: Target, name: str) -> None:
    """Refuse to create something in a namespace that isn't there (404) or is on its way out (403)."""
    if not target.resource.namespaced:
        return
    namespace = store.get(_NAMESPACES, "", target.namespace)
    if namespace is None:
        raise not_found(namespaces, target.namespace)
    if namespace["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
        error = forbidden(target.resource, name, why)
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {target.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise StatusError(403, "Forbidden", error.message, {**(error.details or {}), "causes": [cause]})


def check_deletion(target: Target) -> None:
    """Refuse to delete the namespaces that everything stands on (403)."""
    if target.resource.key == _NAMESPACES and target.name in _UNKILLABLE:
        raise forbidden(target.resource, target.name, "this namespace may not be deleted")


def on_create(store: Store, resource: Resource, obj: Json) -> None:
    """Add to a new object, in place, what its kind gets. Doing it twice changes nothing.

    Raises:
        StatusError: 403 when the object contradicts it.
    """
    if resource.key == ("", "pods"):
        spec = obj["spec"]
        account = spec.setdefault("serviceAccountName", "default")
        namespace = obj["metadata"].get("namespace", "")
        if account != "default" and store.get(_ACCOUNTS, namespace, account) is None:
            # The real server refuses the default one too, for the moment until its controller has made it.
            why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
            raise forbidden(resource, obj["metadata"].get("name", ""), why)
        spec["serviceAccount"] = account
        _set_priority(store, resource, obj)
        _tolerate(spec)
    elif resource.key == ("", "nodes"):
        _taint(obj)


def on_update(resource: Resource, obj: Json) -> None:
    """Add to a changed object, in place, what its kind must never lack."""
    if resource.key == ("", "pods"):
        _tolerate(obj["spec"])


def _set_priority(store: Store, resource: Resource, pod: Json) -> None:
    spec = pod["spec"]
    name = spec.get("priorityClassName", "")
    found = store.get(_PRIORITY_CLASSES, "", name) if name else _global_default(store)
    shown_name = pod["metadata"].get("name", "")
    if name and found is None:
        raise forbidden(resource, shown_name, f"no PriorityClass with name {name} was found")
    value = found.get("value", 0) if found else 0
    if "priority" in spec and spec["priority"] != value:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(resource, shown_name, why)
    spec["priority"] = value
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    if spec.setdefault("preemptionPolicy", policy) != policy:
        why = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise forbidden(resource, shown_name, why)


def _global_default(store: Store) -> Json | None:
    defaults = [each for each in store.list(_PRIORITY_CLASSES) if each.get("globalDefault")]
    return min(defaults, key=lambda each: int(each.get("value", 0)), default=None)


def _tolerate(spec: Json) -> None:
    tolerations = spec.get("tolerations") or []
    missing = [key for key in _WAITED_OUT if not any(_tolerates(each, key) for each in tolerations)]
    if missing:
        spec["tolerations"] = tolerations + [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_SECONDS}
            for key in missing
        ]


def _tolerates(toleration: Json, key: str) -> bool:
    return toleration.get("key", "") in {"", key} and toleration.get("effect", "") in {"", "NoExecute"}


def _taint(node: Json) -> None:
    spec = node.setdefault("spec", {})
    taints = spec.get("taints") or []
    if not any(each.get("key") == _WAITED_OUT[0] for each in taints):
        spec["taints"] = [*taints, {"key": _WAITED_OUT[0], "effect": "NoSchedule"}]


def allocate(store: Store, resource: Resource, obj: Json) -> None:
    """Return a new Service an address of the cluster, in place, unless it says that it wants none."""
    spec = obj.get("spec", {})
    if resource.key != ("", "services") or spec.get("type") == "ExternalName":
        return
    if "clusterIP" not in spec:
        taken = {each["spec"].get("clusterIP") for each in store.list(("", "services"))}
        addresses = (str(_ADDRESSES[number]) for number in range(1, _ADDRESSES.num_addresses - 1))
        spec["clusterIP"] = next(address for address in addresses if address not in taken)
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
