"""Types of expressions, as far as they are known before evaluation, and those that a structural schema gives."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from muster.cel.times import parse_duration, parse_timestamp
from muster.cel.values import CelError

RESERVED: Final = frozenset(
    "true false null in as break const continue else for function if import let loop package namespace return var void while".split()  # noqa: SIM905 - a list of words reads best as words
)


class Type(Struct, frozen=True, eq=False):
    """A type: ``kind`` as `values.kind_of` names it, or ``dyn`` (unknown until evaluation), or a type parameter.

    Attributes:
        arguments: of a list its element, of a map key and value, of an optional its value.
        fields: of an object, by their names in expressions: (name in JSON, type).
    """

    kind: str
    arguments: tuple[Type, ...] = ()
    fields: Mapping[str, tuple[str, Type]] | None = None

    # What fields an object has is no part of what type it is: recursive schemas couldn't be compared.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and (self.kind, self.arguments) == (other.kind, other.arguments)

    def __hash__(self) -> int:
        return hash((self.kind, self.arguments))

    def __str__(self) -> str:
        """Write it as the real compiler's messages do."""
        if self.fields is not None:
            return "object"
        name = {"quantity": "kubernetes.Quantity", "semver": "kubernetes.Semver", "optional": "optional_type"}.get(
            self.kind, self.kind
        )
        return f"{name}({', '.join(map(str, self.arguments))})" if self.arguments else name


DYN: Final = Type("dyn")
BOOL: Final = Type("bool")
INT: Final = Type("int")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null")
TIMESTAMP: Final = Type("timestamp")
DURATION: Final = Type("duration")
QUANTITY: Final = Type("quantity")


def list_of(element: Type) -> Type:
    """Return the type of lists of ``element``."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """Return the type of a value that may be absent."""
    return Type("optional", (value,))


def object_of(fields: Mapping[str, Type]) -> Type:
    """Return the type of objects with these fields."""
    return Type("map", (), {name: (name, kind) for name, kind in fields.items()})


def escape(name: str) -> str:
    """Return the name under which a rule reaches a property of a schema: ``a-b`` is ``a__dash__b``."""
    if name in RESERVED:
        return f"__{name}__"
    escaped = name.replace("__", "__underscores__")
    for character, word in ((".", "dot"), ("-", "dash"), ("/", "slash")):
        escaped = escaped.replace(character, f"__{word}__")
    return escaped


_METADATA: Final = object_of({"name": STRING, "generateName": STRING})
_FORMATS: Final = {"byte": BYTES, "duration": DURATION, "date": TIMESTAMP, "date-time": TIMESTAMP}
_SCALARS: Final = {"boolean": BOOL, "number": DOUBLE, "integer": INT}


def from_schema(schema: Mapping[str, Any], *, root: bool = False) -> Type | None:
    """Return the type of what a structural schema describes; None where expressions can't reach it.

    ``root``: a whole resource, whose apiVersion, kind and metadata.name are always there.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return DYN
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        element = from_schema(items, root=embedded(items)) if isinstance(items, dict) else None
        return list_of(element) if element else None
    if kind == "object":
        return _object(schema, root=root)
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), STRING)
    return _SCALARS.get(kind or "")


def embedded(schema: Mapping[str, Any]) -> bool:
    """Whether the schema is of a whole resource inside another."""
    return bool(schema.get("x-kubernetes-embedded-resource"))


def _object(schema: Mapping[str, Any], *, root: bool) -> Type | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        value = from_schema(additional, root=embedded(additional))
        return map_of(STRING, value) if value else None
    fields = {
        name: known
        for name, each in schema.get("properties", {}).items()
        if (known := from_schema(each, root=embedded(each))) is not None
    }
    if root:
        fields |= {"apiVersion": STRING, "kind": STRING, "metadata": _METADATA}
    return Type("map", (), {escape(name): (name, kind) for name, kind in fields.items()})


def converter(known: Type) -> Callable[[Any], Any] | None:
    """Return the function that makes JSON a value of the type, or None when JSON is one already."""
    if known.kind in _FROM_JSON:
        return _FROM_JSON[known.kind]
    if known.kind == "list" and (element := converter(known.arguments[0])):
        return lambda value: [element(each) for each in value]
    if known.kind == "map" and known.arguments and (inner := converter(known.arguments[1])):
        return lambda value: {key: inner(each) for key, each in value.items()}
    return None


def _bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except binascii.Error as error:
        raise CelError(f"invalid base64: {error}") from error


_FROM_JSON: Final[dict[str, Callable[[Any], Any]]] = {
    "double": lambda value: float(value) if isinstance(value, int) and not isinstance(value, bool) else value,
    "timestamp": lambda value: parse_timestamp(value) if isinstance(value, str) else value,
    "duration": lambda value: parse_duration(value) if isinstance(value, str) else value,
    "bytes": _bytes,
}


def matches(wanted: Type, given: Type, bound: dict[str, Type]) -> bool:
    """Whether an argument of type ``given`` fits a parameter; binds type parameters (upper-case kinds)."""
    if wanted.kind.isupper():
        known = bound.setdefault(wanted.kind, given)
        if DYN in {known, given}:
            bound[wanted.kind] = DYN
        return compatible(known, given)
    if DYN in (wanted, given):
        return True
    if wanted.kind != given.kind:
        return False
    if given.fields is not None:
        return not wanted.arguments
    return all(matches(each, other, bound) for each, other in zip(wanted.arguments, given.arguments, strict=False))


def compatible(left: Type, right: Type) -> bool:
    """Whether values of the two types may be compared or stand for each other."""
    if DYN in (left, right):
        return True
    if "null" in {left.kind, right.kind}:
        other = right if left.kind == "null" else left
        return (
            other.kind in {"null", "timestamp", "duration", "quantity", "semver", "optional"}
            or other.fields is not None
        )
    if left.kind != right.kind:
        return False
    return all(compatible(one, two) for one, two in zip(left.arguments, right.arguments, strict=False))


def substitute(result: Type, bound: Mapping[str, Type]) -> Type:
    """Return the result's type with its type parameters replaced by what they were bound to."""
    if result.kind.isupper():
        return bound.get(result.kind, DYN)
    if not result.arguments:
        return result
    return Type(result.kind, tuple(substitute(each, bound) for each in result.arguments))


def join(kinds: list[Type]) -> Type:
    """Return the common type of the elements of a literal, ``dyn`` when they differ."""
    first = kinds[0] if kinds else DYN
    return first if all(each == first for each in kinds) else DYN
