"""Objects made what their kind says, on their way in: right kind, right types, known fields only, defaults set."""

from __future__ import annotations

from typing import Any, Final

from muster.sandbox import schema
from muster.sandbox.codec import decoding, fields
from muster.sandbox.codec.fields import shape_of
from muster.sandbox.core import versions
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.store import deep_copy
from muster.sandbox.strategies.base import Strategy

Json = dict[str, Any]

_OMITTED_WHEN_EMPTY: Final = ("labels", "annotations", "finalizers", "ownerReferences")


def with_defaults(resource: Resource, obj: Json, strategy: Strategy, unknown: list[str]) -> Json:
    """Return a private copy of an object from outside, in the form in which it is stored, with its defaults.

    Adds to ``unknown`` the paths of fields that the kind doesn't have; the copy doesn't have them.

    Raises:
        StatusError: 400 when it isn't of the resource's kind or a field isn't of its type.
    """
    taken = without_defaults(resource, obj, unknown)
    if resource.custom:
        # What pruning and defaulting don't change they share with the private copy, so it stays private.
        taken = schema.default(resource.schema or {}, taken)
    elif resource.stored_as is not None:
        taken = versions.to_old(taken)
    metadata = taken.setdefault("metadata", {})
    for key in _OMITTED_WHEN_EMPTY:
        if not metadata.get(key, True):
            del metadata[key]
    strategy.default(taken)
    return taken


def without_defaults(resource: Resource, obj: Json, unknown: list[str]) -> Json:
    """The same without defaults, in the version of ``resource``."""
    obj = decoding.check_kind(obj, resource)
    if not resource.custom:
        taken, found = decoding.conform(obj, shape_of(resource), resource)
        unknown += found
        return taken
    declared = resource.schema or {}
    taken = deep_copy(obj)
    # Of the other server that serves custom resources, which decodes metadata by itself.
    taken["metadata"] = decoding.conform(taken.get("metadata") or {}, fields.metadata(), resource)[0]
    unknown += schema.unknown_fields(declared, obj)
    return {"apiVersion": resource.api_version, "kind": resource.kind} | schema.prune(declared, taken)
