"""Subresources with a kind or a meaning of their own: scale, binding, eviction, log and finalize."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from muster.kube import transport
from muster.kube.transport import Request, Response
from muster.sandbox.codec import decoding, patching, selectors
from muster.sandbox.codec.fields import shape_of
from muster.sandbox.core.identities import timestamp
from muster.sandbox.core.paths import Target
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.request_info import RequestInfo, check_name
from muster.sandbox.core.status import (
    Cause,
    StatusError,
    bad_request,
    conflict,
    invalid,
    not_found,
    too_many_requests,
    unsupported_media_type,
    wrong,
)
from muster.sandbox.core.store import Object, deep_copy
from muster.sandbox.server import deletion, responses
from muster.sandbox.server.writes import Writes, check_uid

Json = dict[str, Any]

OWN_KINDS: Final = frozenset({"scale", "binding", "eviction", "log", "finalize"})
_BUDGETS: Final = ("policy", "poddisruptionbudgets")
_VIOLATES: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_SCALE: Final = Resource("autoscaling", "v1", "scales", "Scale", "scale")
_CREATED: Final[Json] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def read(writes: Writes, target: Target, request: Request) -> Response:
    """Answer a GET."""
    obj = writes.store.get(target.resource.key, target.namespace, target.name)
    if obj is None:
        raise not_found(target.resource, target.name)
    if target.subresource == "log":
        return _log(obj, request)
    return responses.respond(200, scale_of(target.resource, obj))


async def answer(writes: Writes, info: RequestInfo, request: Request) -> Response:
    """Answer a write."""
    match info.target.subresource:
        case "scale":
            return await _write_scale(writes, info, request)
        case "binding":
            return await _bind(writes, info, request)
        case "eviction":
            return await _evict(writes, info, request)
    return await _finalize(writes, info, request)


# ── log ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _log(pod: Object, request: Request) -> Response:
    """Return a pod's log, which is empty: no container runs here, so none says anything."""
    container = request.query.get("container", "")
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [each["name"] for kind in ("initContainers", "containers") for each in spec.get(kind) or ()]
    if container and container not in names:
        raise bad_request(f"container {container} is not valid for pod {name}")
    if not container and len(spec["containers"]) > 1:
        choices = " ".join(each["name"] for each in spec["containers"])
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{choices}]")
    if not spec.get("nodeName"):
        return Response(204, b"", {})
    return Response(200, b"", {"content-type": "text/plain"})


# ── scale ────────────────────────────────────────────────────────────────────────────────────────────────────────


def scale_of(resource: Resource, obj: Object) -> Json:
    """Return the Scale of an object."""
    metadata = obj["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    paths = _scale_paths(resource)
    status: Json = {"replicas": _at(obj, paths["statusReplicasPath"]) or 0}
    selector = _at(obj, paths["labelSelectorPath"]) if paths.get("labelSelectorPath") else None
    if selector:
        status["selector"] = selector if isinstance(selector, str) else _selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in shown if key in metadata},
        # Go leaves out the zero.
        "spec": {"replicas": replicas} if (replicas := _at(obj, paths["specReplicasPath"])) else {},
        "status": status,
    }


_BUILTIN_PATHS: Final = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}


def _scale_paths(resource: Resource) -> dict[str, str]:
    return resource.scale or _BUILTIN_PATHS


def _at(obj: Json, path: str) -> Any:
    value: Any = obj
    for part in path.strip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _selector_text(selector: Json) -> str:
    terms = []
    for each in selectors.from_object(selector) or ():
        values = ",".join(sorted(each.values))
        match each.operator:
            case "in" if len(each.values) == 1:
                terms.append(f"{each.key}={values}")
            case "in" | "notin":
                terms.append(f"{each.key} {each.operator} ({values})")
            case "exists":
                terms.append(each.key)
            case _:
                terms.append(f"!{each.key}")
    return ",".join(sorted(terms))


async def _write_scale(writes: Writes, info: RequestInfo, request: Request) -> Response:
    resource = info.resource

    def change(old: Object) -> Json:
        scale = _new_scale(info, request, scale_of(resource, old))
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            raise _negative(resource, info.target.name, replicas)
        given = (scale.get("metadata") or {}).get("resourceVersion")
        if given and given != old["metadata"]["resourceVersion"]:
            raise conflict(resource, info.target.name)
        obj = deep_copy(old)
        _set(obj, _scale_paths(resource)["specReplicasPath"], replicas)
        return obj

    # Admission sees the object itself under its own name: the sandbox' policies and webhooks match on resources.
    updated = await writes.update(info, change, subresource="")
    return responses.respond(200, scale_of(resource, updated), info.warnings)


def _negative(resource: Resource, name: str, replicas: int) -> StatusError:
    if resource.custom:
        path = _scale_paths(resource)["specReplicasPath"]
        return invalid(resource, name, [wrong(path, replicas, "should be a non-negative integer")])
    return invalid(_SCALE, name, [wrong("spec.replicas", replicas, "must be greater than or equal to 0")])


def _new_scale(info: RequestInfo, request: Request, old: Json) -> Json:
    if request.method == "PUT":
        body = decoding.body_object(request.body, request.content_type or transport.JSON, _SCALE)
        check_name(body.get("metadata") or {}, info.target.name)
        scale = decoding.check_kind(body, _SCALE)
    elif request.content_type == transport.JSON_PATCH:
        scale = patching.json_patch(old, patching.decode(request.body))
    elif request.content_type in {transport.MERGE_PATCH, transport.STRATEGIC_PATCH}:
        # A Scale has no lists, so both kinds of merge are one.
        scale = patching.merge_patch(old, patching.decode(request.body))
    else:
        raise unsupported_media_type(request.content_type, (transport.JSON_PATCH, transport.MERGE_PATCH))
    return decoding.conform(scale, shape_of(_SCALE), _SCALE)[0]


def _set(obj: Json, path: str, value: Any) -> None:
    *parents, last = path.strip(".").split(".")
    for part in parents:
        obj = obj.setdefault(part, {})
    obj[last] = value


# ── binding ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _bind(writes: Writes, info: RequestInfo, request: Request) -> Response:
    binding = _body(info, request, _BINDING)
    target = binding.get("target") or {}
    _check_binding(info, binding, target)
    existing = writes.store.get(info.resource.key, info.target.namespace, info.target.name)
    if existing is None:
        raise not_found(info.resource, info.target.name)
    admitted = await writes.admit_subresource(info, "CREATE", binding)
    node = (admitted.get("target") or {}).get("name", "")
    current = writes.store.get(info.resource.key, info.target.namespace, info.target.name)
    if current is None:
        raise not_found(info.resource, info.target.name)
    check_uid(info, binding, current)
    bound = _bound(info, current, binding, node, timestamp(writes.clock.now()))
    if not info.dry_run:
        writes.store.put(info.resource.key, bound)
    return responses.respond(201, _CREATED, info.warnings)


_BINDING: Final = Resource("", "v1", "bindings", "Binding", "binding")


def _check_binding(info: RequestInfo, binding: Json, target: Json) -> None:
    given = (binding.get("metadata") or {}).get("name", "")
    if given and given != info.target.name:
        raise bad_request("name in URL does not match name in Binding object")
    if target.get("kind", "") not in {"", "Node"}:
        kind = target["kind"]
        raise StatusError(500, "", f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    if not target.get("name"):
        raise StatusError(500, "", "target.name: Required value")


def _bound(info: RequestInfo, pod: Object, binding: Json, node: str, now: str) -> Object:
    spec, metadata = pod["spec"], pod["metadata"]
    name = metadata["name"]
    if metadata.get("deletionTimestamp"):
        raise _binding_conflict(info, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _binding_conflict(info, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _binding_conflict(info, f"pod {name} has non-empty .spec.schedulingGates")
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status = pod.get("status", {})
    others = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"]
    annotations = (binding.get("metadata") or {}).get("annotations")
    if annotations:
        metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}
    return {
        **pod,
        "metadata": metadata,
        "spec": {**spec, "nodeName": node},
        "status": {**status, "conditions": [*others, scheduled]},
    }


def _binding_conflict(info: RequestInfo, why: str) -> StatusError:
    name = info.target.name
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    return StatusError(409, "Conflict", message, {"name": name, "kind": "pods/binding"})


# ── eviction ─────────────────────────────────────────────────────────────────────────────────────────────────────

_EVICTION: Final = Resource("policy", "v1", "evictions", "Eviction", "eviction")


async def _evict(writes: Writes, info: RequestInfo, request: Request) -> Response:
    eviction = _body(info, request, _EVICTION)
    given = (eviction.get("metadata") or {}).get("name", "")
    if given and given != info.target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = {**(eviction.get("deleteOptions") or {}), "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    dry_run = info.dry_run or bool(options.get("dryRun"))
    pod = writes.store.get(info.resource.key, info.target.namespace, info.target.name)
    if pod is None:
        raise not_found(info.resource, info.target.name)
    await writes.admit_subresource(info, "CREATE", eviction)
    # Spent even if the pod turns out to be another one: the budget's controller gives it back after two minutes.
    _spend_budget(writes, info, dry_run=dry_run)
    deletion.check_preconditions(info.resource, pod, options)
    target = Target(info.resource, info.target.namespace, info.target.name)
    if not dry_run:
        _mark_evicted(writes, info)
    deletes = replace(info, target=target, dry_run=dry_run, options=options)
    await writes.delete(deletes, options)
    return responses.respond(201, _CREATED, info.warnings)


def _mark_evicted(writes: Writes, info: RequestInfo) -> None:
    """Say on the pod why it goes."""
    pod = writes.store.get(info.resource.key, info.target.namespace, info.target.name)
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return
    status = pod.get("status", {})
    evicted = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(writes.clock.now()),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    others = [each for each in status.get("conditions") or () if each.get("type") != "DisruptionTarget"]
    writes.store.put(info.resource.key, {**pod, "status": {**status, "conditions": [*others, evicted]}})


def _spend_budget(writes: Writes, info: RequestInfo, *, dry_run: bool) -> None:
    """Take one disruption from the pod's budget, or refuse."""
    pod = writes.store.get(info.resource.key, info.target.namespace, info.target.name)
    if (
        pod is None
        or pod["metadata"].get("deletionTimestamp")
        or pod.get("status", {}).get("phase") in {"Succeeded", "Failed", "Pending"}
    ):
        return  # evicting it disrupts nothing
    budgets = [each for each in writes.store.list(_BUDGETS, info.target.namespace) if _covers(each, pod)]
    if not budgets:
        return
    if len(budgets) > 1:
        raise StatusError(
            500,
            "InternalError",
            "Internal error occurred: This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    budget = budgets[0]
    if not _ready(pod) and _healthy_enough(budget):
        return
    _check_budget(budget)
    if not dry_run:
        status = budget["status"]
        disrupted = {**(status.get("disruptedPods") or {}), info.target.name: timestamp(writes.clock.now())}
        spent = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
        writes.store.put(_BUDGETS, {**budget, "status": spent})


def _covers(budget: Object, pod: Object) -> bool:
    requirements = selectors.from_object(budget["spec"].get("selector"))
    return requirements is not None and selectors.matches_labels(requirements, pod["metadata"].get("labels"))


def _ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _healthy_enough(budget: Object) -> bool:
    """Say whether an unhealthy pod may go although nothing may be disrupted."""
    status = budget.get("status", {})
    always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return always or bool(status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0)


def _check_budget(budget: Object) -> None:
    status, name = budget.get("status", {}), budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        text = f"The disruption budget {name} is still being processed by the server."
        raise too_many_requests(_VIOLATES, 10, [Cause("DisruptionBudget", "", text)])
    if status.get("disruptionsAllowed", 0) <= 0:
        text = (
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods "
            f"and has {status.get('currentHealthy', 0)} currently"
        )
        raise too_many_requests(_VIOLATES, 0, [Cause("DisruptionBudget", "", text)])


# ── finalize ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def _finalize(writes: Writes, info: RequestInfo, request: Request) -> Response:
    """Set the finalizers in a namespace's spec; the last one gone, a deleted namespace goes."""
    body = decoding.body_object(request.body, request.content_type, info.resource)
    body = decoding.check_kind(body, info.resource)
    check_name(body.get("metadata") or {}, info.target.name)
    finalizers = (body.get("spec") or {}).get("finalizers") or []

    def change(old: Object) -> Json:
        given = (body.get("metadata") or {}).get("resourceVersion")
        if given and given != old["metadata"]["resourceVersion"]:
            raise conflict(info.resource, info.target.name)
        spec = {key: value for key, value in old.get("spec", {}).items() if key != "finalizers"}
        if finalizers:
            spec["finalizers"] = list(finalizers)
        return {**deep_copy(old), "spec": spec}

    updated = await writes.update(info, change)
    return responses.respond(200, updated, info.warnings)


def _body(info: RequestInfo, request: Request, resource: Resource) -> Json:
    body = decoding.body_object(request.body, request.content_type, resource)
    body = decoding.check_kind(body, resource)
    conformed, _ = decoding.conform(body, shape_of(resource), resource)
    conformed.setdefault("metadata", {}).setdefault("namespace", info.target.namespace)
    conformed["metadata"].setdefault("name", info.target.name)
    return conformed
