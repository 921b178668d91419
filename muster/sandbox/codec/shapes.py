"""Objects made what their kind says, on their way in: right kind, right types, known fields only, defaults set."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from muster.sandbox import schema
from muster.sandbox.codec import decoding, fields
from muster.sandbox.codec.fields import Shape
from muster.sandbox.core import events
from muster.sandbox.core.registry import Resource
from muster.sandbox.strategies.base import Strategy

Json = dict[str, Any]

_BUILTIN: Final[dict[Resource, Shape]] = {}
_OMITTED_WHEN_EMPTY: Final = ("labels", "annotations", "finalizers", "ownerReferences")


def shape_of(resource: Resource) -> Shape:
    """Return the shape of a resource's objects."""
    if resource.custom:
        # Not kept here: a definition that changes makes new resources, and those of old ones would pile up.
        return fields.custom(resource.schema or {})
    shape = _BUILTIN.get(resource)
    if shape is None:
        shape = fields.builtin(resource.group, resource.version, resource.kind)
        assert shape is not None, f"fields.json has no {resource.api_version} {resource.kind}"
        _BUILTIN[resource] = shape
    return shape


def take_in(resource: Resource, obj: Json, strategy: Strategy, unknown: list[str]) -> Json:
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
        taken = events.to_old(taken)
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
    taken = private(obj)
    # Of the other server that serves custom resources, which decodes metadata by itself.
    taken["metadata"] = decoding.conform(taken.get("metadata") or {}, fields.metadata(), resource)[0]
    unknown += schema.unknown_fields(declared, obj)
    return {"apiVersion": resource.api_version, "kind": resource.kind} | schema.prune(declared, taken)


def private(obj: Json) -> Json:
    """Return a deep copy."""
    copied: Json = msgspec.json.decode(msgspec.json.encode(obj))
    return copied
