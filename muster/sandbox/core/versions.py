"""The versions of a stored object: events are stored in the form of v1, and served in that of events.k8s.io/v1 too."""

from __future__ import annotations

from typing import Any, Final

from muster.sandbox.core.registry import Resource

Json = dict[str, Any]

EVENT_FIELDS: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""Fields of an event of v1, and their names in events.k8s.io/v1."""

_LEFT_OUT: Final = frozenset({"reportingComponent", "reportingInstance"})
"""Of the old form when empty, not of the new one."""

_NEW_TO_OLD: Final = {new: old for old, new in EVENT_FIELDS.items()}


def to_new(event: Json) -> Json:
    """Return a stored event in the form of events.k8s.io/v1."""
    renamed = {EVENT_FIELDS.get(key, key): value for key, value in event.items() if value or key not in _LEFT_OUT}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def to_old(event: Json) -> Json:
    """Return an event of events.k8s.io/v1 in the form in which it is stored."""
    renamed = {_NEW_TO_OLD.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": "v1"}


def in_version(resource: Resource, obj: Json) -> Json:
    """Return a stored object in the version of ``resource``."""
    if obj.get("apiVersion") == resource.api_version:
        return obj
    if resource.stored_as is not None:
        return to_new(obj)
    return {**obj, "apiVersion": resource.api_version}
