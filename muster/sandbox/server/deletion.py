"""The deletion of an object: gone at once, or marked until others have let it go.

Source: ``k8s.io/apiserver/pkg/registry`` (BeforeDelete, deletionFinalizersForGarbageCollection, markAsDeleting).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.core.identities import timestamp
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import StatusError, quote
from muster.sandbox.core.store import Object
from muster.sandbox.strategies.definitions import condition

Json = dict[str, Any]

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_ORPHANED_BY_DEFAULT: Final = frozenset({("batch", "jobs"), ("", "replicationcontrollers")})
_NAMESPACES: Final = ("", "namespaces")
_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
_OVER: Final = ("Succeeded", "Failed")
_GRACE: Final = 30


class Outcome(Struct, frozen=True):
    """The object as it then is (the very same one when nothing changes), and whether it leaves the store."""

    object: Object
    gone: bool


def check_preconditions(resource: Resource, obj: Object, options: Json) -> None:
    """Refuse to delete another object than was meant (409)."""
    wanted = options.get("preconditions") or {}
    metadata = obj["metadata"]
    pairs = (
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    )
    for key, title, advice in pairs:
        given, actual = wanted.get(key), metadata.get(key, "")
        if given is not None and given != actual:
            why = f"the {title} in the precondition ({given}) does not match the {title} in record ({actual}). {advice}"
            message = f"Operation cannot be fulfilled on {resource.kind} {quote(metadata['name'])}: {why}"
            details = {"name": metadata["name"], "kind": resource.kind}
            raise StatusError(409, "Conflict", message, details | ({"group": resource.group} if resource.group else {}))


def decide(resource: Resource, obj: Object, options: Json, now: datetime) -> Outcome:
    """Decide what a deletion does to an object."""
    if resource.key == _NAMESPACES:
        return _terminate_namespace(resource, obj, now)
    finalizers = _garbage_finalizers(resource, obj, options)
    marked = _with_finalizers(obj, finalizers)
    if resource.key == ("", "pods"):
        marked, waits = _graceful(marked, options, now)
    else:
        waits = False
    if not finalizers and not waits:
        return Outcome(_marked(marked, now, 0) if resource.key == ("", "pods") else marked, gone=True)
    if finalizers and not marked["metadata"].get("deletionTimestamp"):
        marked = _marked(marked, now, None if resource.key == _DEFINITIONS else 0)
        if resource.key == _DEFINITIONS:
            marked = _terminating_definition(marked, now)
    return Outcome(marked, gone=False)


def finished(resource: Resource, obj: Json) -> bool:
    """Say whether an update has removed the last thing that kept a deleted object."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if resource.key == _NAMESPACES:
        return not obj.get("spec", {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _garbage_finalizers(resource: Resource, obj: Object, options: Json) -> list[str]:
    finalizers: list[str] = list(obj["metadata"].get("finalizers") or ())
    kept = [each for each in finalizers if each not in {ORPHAN, FOREGROUND}]
    policy = options.get("propagationPolicy")
    orphans = options.get("orphanDependents")
    if orphans is not None:
        policy = "Orphan" if orphans else "Background"
    if policy is None:
        if ORPHAN in finalizers or FOREGROUND in finalizers:
            return finalizers
        policy = "Orphan" if resource.key in _ORPHANED_BY_DEFAULT else "Background"
    return kept + {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(policy, [])


def _with_finalizers(obj: Object, finalizers: list[str]) -> Object:
    if finalizers == (obj["metadata"].get("finalizers") or []):
        return obj
    metadata = {key: value for key, value in obj["metadata"].items() if key != "finalizers"}
    if finalizers:
        metadata["finalizers"] = finalizers
    return {**obj, "metadata": metadata}


def _graceful(pod: Object, options: Json, now: datetime) -> tuple[Object, bool]:
    """Mark a pod for its kubelet; the second is whether it has to be waited for."""
    metadata = pod["metadata"]
    asked = options.get("gracePeriodSeconds")
    if metadata.get("deletionTimestamp"):
        left = metadata.get("deletionGracePeriodSeconds") or 0
        if asked is None or not left or asked >= left:
            # It may only be shortened.
            return pod, bool(left)
        earlier = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(seconds=left - max(asked, 0))
        shortened = {"deletionTimestamp": timestamp(earlier), "deletionGracePeriodSeconds": max(asked, 0)}
        return {**pod, "metadata": {**metadata, **shortened}}, asked > 0
    grace = asked if asked is not None else pod["spec"].get("terminationGracePeriodSeconds", _GRACE)
    if not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in _OVER:
        grace = 0  # there is nobody to wait for
    elif grace < 0:
        grace = 1
    if not grace:
        return pod, False
    return _marked(pod, now, grace), True


def _marked(obj: Object, now: datetime, grace: int | None) -> Object:
    metadata = dict(obj["metadata"])
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace or 0))
        # No grace period: a kind that has its own way to go, and doesn't count this as a change.
        if grace is not None and "generation" in metadata:
            metadata["generation"] += 1
    if grace is not None:
        metadata["deletionGracePeriodSeconds"] = grace
    return {**obj, "metadata": metadata}


def _terminate_namespace(resource: Resource, obj: Object, now: datetime) -> Outcome:
    if obj["metadata"].get("deletionTimestamp"):
        return Outcome(obj, gone=finished(resource, obj))
    marked = _marked(obj, now, None)
    status = {**marked.get("status", {}), "phase": "Terminating"}
    marked = {**marked, "status": status}
    # Even an empty one: whoever empties namespaces has to see it go.
    return Outcome(marked, gone=False)


def _terminating_definition(obj: Object, now: datetime) -> Object:
    text = "CustomResource deletion is in progress"
    status = obj.get("status", {})
    added = condition("Terminating", timestamp(now), "InstanceDeletionInProgress", text)
    return {**obj, "status": {**status, "conditions": [*status.get("conditions", ()), added]}}
