"""Functions on lists, maps and optional values."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from muster.sandbox.cel.numbers import Row
from muster.sandbox.cel.values import NUMBERS, CelError, Optional, checked_int, equal, kind_of

_MOST: Final = 1 << 20


def _contains(element: Any, holder: list[Any]) -> bool:
    return any(equal(element, each) for each in holder)


def _has_key(key: Any, holder: dict[Any, Any]) -> bool:
    return kind_of(key) != "bool" and kind_of(key) not in {"list", "map"} and key in holder


def _added(left: list[Any], right: list[Any]) -> list[Any]:
    if len(left) + len(right) > _MOST:
        raise CelError("operation cancelled: actual cost limit exceeded")
    return [*left, *right]


def _ordered(values: list[Any]) -> list[Any]:
    kinds = {kind_of(value) for value in values}
    if len(kinds) > 1 and not kinds <= NUMBERS:
        raise CelError("no such overload")
    if kinds & {"list", "map", "null", "optional", "quantity", "type"}:
        raise CelError("no such overload")
    return values


def _is_sorted(values: list[Any]) -> bool:
    _ordered(values)
    return all(values[i] <= values[i + 1] for i in range(len(values) - 1))


def _sum(values: list[Any]) -> Any:
    kinds = {kind_of(value) for value in values}
    if kinds <= {"int", "uint"}:
        return checked_int(sum(values))
    if kinds <= NUMBERS:
        return sum(values)
    if kinds == {"duration"}:
        return sum(values, timedelta())
    raise CelError("no such overload")


def _least(values: list[Any]) -> Any:
    if not values:
        raise CelError("min called on empty list")
    return min(_ordered(values))


def _greatest(values: list[Any]) -> Any:
    if not values:
        raise CelError("max called on empty list")
    return max(_ordered(values))


def _index(values: list[Any], wanted: Any) -> int:
    return next((number for number, each in enumerate(values) if equal(each, wanted)), -1)


def _last_index(values: list[Any], wanted: Any) -> int:
    return next((number for number in range(len(values) - 1, -1, -1) if equal(values[number], wanted)), -1)


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(values):
        raise CelError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index, and both within a list of length {len(values)}"
        )
    return values[start:end]


def _distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not _contains(value, found):
            found.append(value)
    return found


def _flatten(values: list[Any]) -> list[Any]:
    return [inner for value in values for inner in (value if isinstance(value, list) else [value])]


def _subset(left: list[Any], right: list[Any]) -> bool:
    return all(_contains(each, left) for each in right)


def _value(optional: Optional) -> Any:
    if not optional.present:
        raise CelError("optional.none() dereference")
    return optional.value


def _non_zero(value: Any) -> Optional:
    empty = value is None or (
        kind_of(value) in {"bool", "int", "uint", "double", "string", "bytes", "list", "map"} and not value
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
    (".isSorted", "list(A)", "bool", _is_sorted),
    (".sum", "list(A)", "A", _sum),
    (".min", "list(A)", "A", _least),
    (".max", "list(A)", "A", _greatest),
    (".indexOf", "list(A); A", "int", _index),
    (".lastIndexOf", "list(A); A", "int", _last_index),
    (".slice", "list(A); int; int", "list(A)", _slice),
    (".distinct", "list(A)", "list(A)", _distinct),
    (".flatten", "list(list(A))", "list(A)", _flatten),
    (".reverse", "list(A)", "list(A)", lambda values: values[::-1]),
    (".sort", "list(A)", "list(A)", lambda values: sorted(_ordered(values))),
    ("sets.contains", "list(A); list(A)", "bool", _subset),
    ("sets.intersects", "list(A); list(A)", "bool", lambda a, b: any(_contains(each, b) for each in a)),
    ("sets.equivalent", "list(A); list(A)", "bool", lambda a, b: _subset(a, b) and _subset(b, a)),
    *_optionals(),
)
