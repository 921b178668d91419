"""Functions on lists, maps and optional values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from muster.cel.numbers import Row
from muster.cel.values import CelError, Optional, equal, kind_of

_MOST: Final = 1 << 20


def _contains(element: Any, holder: list[Any]) -> bool:
    return any(equal(element, each) for each in holder)


def _has_key(key: Any, holder: dict[Any, Any]) -> bool:
    return kind_of(key) != "bool" and kind_of(key) not in {"list", "map"} and key in holder


def _added(left: list[Any], right: list[Any]) -> list[Any]:
    if len(left) + len(right) > _MOST:
        raise CelError("operation cancelled: actual cost limit exceeded")
    return [*left, *right]


def _value(optional: Optional) -> Any:
    if not optional.present:
        raise CelError("optional.none() dereference")
    return optional.value


def _non_zero(value: Any) -> Optional:
    empty = value is None or (
        kind_of(value) in {"bool", "int", "double", "string", "bytes", "list", "map"} and not value
    )
    return Optional() if empty else Optional(True, value)


def _optionals() -> Iterator[Row]:
    yield "optional.of", "A", "optional(A)", lambda value: Optional(True, value)
    yield "optional.none", "", "optional(dyn)", Optional
    yield "optional.ofNonZeroValue", "A", "optional(A)", _non_zero
    yield ".hasValue", "optional(A)", "bool", lambda optional: optional.present
    yield ".value", "optional(A)", "A", _value
    yield ".orValue", "optional(A); A", "A", lambda optional, other: optional.value if optional.present else other
    yield (
        ".or",
        "optional(A); optional(A)",
        "optional(A)",
        lambda optional, other: optional if optional.present else other,
    )


FUNCTIONS: Final[tuple[Row, ...]] = (
    ("in", "A; list(A)", "bool", _contains),
    ("in", "A; map(A, B)", "bool", _has_key),
    ("+", "list(A); list(A)", "list(A)", _added),
    ("size", "list(A)", "int", len),
    (".size", "list(A)", "int", len),
    ("size", "map(A, B)", "int", len),
    (".size", "map(A, B)", "int", len),
    *_optionals(),
)
