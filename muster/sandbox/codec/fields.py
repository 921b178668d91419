"""The shape of each kind's fields: their types, and how lists and maps merge.

One form for both sources: ``fields.json`` for built-in kinds (made from a real server's OpenAPI document by
``tests/sandbox/fields_from_openapi.py``) and the structural schemas of CustomResourceDefinitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from muster.sandbox.core.registry import Resource

MAP: Final = "map"
SET: Final = "set"
ATOMIC: Final = "atomic"


class Shape(Struct, eq=False):
    """One type. Shapes refer to each other in circles, so they are filled after they are made; not changed later.

    Attributes:
        type: ``object`` (named fields), ``dict`` (free keys), ``list``, or a scalar: string, integer, number, boolean,
            quantity, intorstring, time, bytes, any.
        fields: of an object.
        element: of a list or a dict.
        merges: ``map``, ``set`` or ``atomic`` for a list (atomic when nothing is said); ``atomic`` for an object or
            dict that is owned as a whole, else empty.
        keys: of a list that merges like a map.
        strategy: of strategic merge patches, a set of ``merge``, ``retainKeys``, ``replace``.
        merge_key: of strategic merge patches.
        open: whether unknown fields are kept.
        always: whether the field is in every object, if only empty: a struct of Go, or a list that is required.
        name: of an object's type, for messages: ``core.v1.PodSpec``; empty for a custom resource's.
    """

    type: str
    fields: dict[str, Shape] = field(default_factory=dict)
    element: Shape | None = None
    merges: str = ""
    keys: tuple[str, ...] = ()
    strategy: frozenset[str] = frozenset()
    merge_key: str = ""
    open: bool = False
    always: bool = False
    name: str = ""

    def child(self, name: str) -> Shape:
        """Return the shape of a field; `ANYTHING` when it isn't known."""
        if self.type == "object":
            return self.fields.get(name, _DEDUCED if self.open else ANYTHING)
        return self.element or ANYTHING


def shape_of(resource: Resource) -> Shape:
    """Return the shape of a resource's objects."""
    if resource.custom:
        # Not kept here: a definition that changes makes new resources, and those of old ones would pile up.
        return custom(resource.schema or {})
    shape = _BUILTIN.get(resource)
    if shape is None:
        shape = builtin(resource.group, resource.version, resource.kind)
        assert shape is not None, f"fields.json has no {resource.api_version} {resource.kind}"
        _BUILTIN[resource] = shape
    return shape


def empty(shape: Shape) -> dict[str, Any]:
    """Return the object that says nothing: with the fields that every object has."""
    return {
        name: empty(child) if child.type == "object" else None for name, child in shape.fields.items() if child.always
    }


ANYTHING: Final = Shape("any")
_DEDUCED: Final = Shape("dict")
"""What nobody has declared: an object is a map of more such, everything else is a whole."""
_DEDUCED.element = _DEDUCED
_BUILTIN: Final[dict[Resource, Shape]] = {}


def builtin(group: str, version: str, kind: str) -> Shape | None:
    """Return the shape of a built-in kind, or None when it isn't one."""
    name = _document()["kinds"].get(f"{group}/{version}/{kind}")
    return _object(name) if name else None


def metadata() -> Shape:
    """Return the shape of every object's metadata."""
    return _object("meta.v1.ObjectMeta")


@cache
def _document() -> dict[str, Any]:
    text = resources.files("muster.sandbox").joinpath("fields.json").read_bytes()
    document: dict[str, Any] = msgspec.json.decode(text)
    return document


@cache
def _known() -> dict[str, Shape]:
    return {}


def _object(name: str) -> Shape:
    known = _known()
    if name not in known:
        shape = known[name] = Shape("object", name=name)
        for key, (type_, *traits) in _document()["types"][name].items():
            shape.fields[key] = _field(type_, traits[0] if traits else {})
    return known[name]


def _field(type_: str, traits: Mapping[str, Any]) -> Shape:
    shape = _plain(type_)
    if not traits:
        return shape
    return Shape(
        shape.type,
        # The same dictionary, not a copy: it may still be being filled.
        shape.fields,
        replace(shape.element, merges=ATOMIC) if traits.get("entries") == ATOMIC and shape.element else shape.element,
        merges=traits.get("list") or traits.get("map") or shape.merges,
        keys=tuple(traits.get("keys", ())),
        strategy=frozenset(traits.get("strategy", "").split(",")) - {""},
        merge_key=traits.get("mergeKey", ""),
        always=traits.get("always", False),
        name=shape.name,
    )


def _plain(type_: str) -> Shape:
    if type_.startswith("[]"):
        return Shape("list", element=_plain(type_[2:]), merges=ATOMIC)
    if type_.startswith("{}"):
        return Shape("dict", element=_plain(type_[2:]))
    return _object(type_) if "." in type_ else Shape(type_)


def custom(schema: Mapping[str, Any]) -> Shape:
    """Return the shape of a custom resource: its schema, with Kubernetes' own metadata."""
    shape = _from_schema(schema)
    if shape.type != "object":
        shape = Shape("object", open=True)
    shape.fields = {
        **shape.fields,
        "apiVersion": Shape("string"),
        "kind": Shape("string"),
        "metadata": replace(metadata(), always=True),
    }
    return shape


def _from_schema(schema: Mapping[str, Any]) -> Shape:
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    type_ = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return Shape("intorstring")
    if type_ == "array":
        merges = schema.get("x-kubernetes-list-type", ATOMIC)
        keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        return Shape("list", element=_from_schema(schema.get("items", {})), merges=merges, keys=keys)
    if type_ != "object":
        return Shape(type_ if type_ in {"string", "integer", "number", "boolean"} else "any")
    merges = ATOMIC if schema.get("x-kubernetes-map-type") == ATOMIC else ""
    extra = schema.get("additionalProperties")
    if extra and not schema.get("properties"):
        element = _from_schema(extra) if isinstance(extra, dict) else ANYTHING
        return Shape("dict", element=element, merges=merges)
    if schema.get("x-kubernetes-embedded-resource"):
        return Shape("any")
    properties = {name: _from_schema(each) for name, each in schema.get("properties", {}).items()}
    return Shape("object", properties, merges=merges, open=keeps)
