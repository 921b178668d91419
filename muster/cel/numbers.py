"""Operators and conversions of numbers, quantities, times and booleans."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from muster.cel.times import parse_duration, parse_timestamp
from muster.cel.values import CelError, checked_int
from muster.model.amounts import Quantity, QuantityError

Row = tuple[str, str, str, Callable[..., Any]]
"""Name (with a dot before a method's), parameters, result, implementation."""


def _divided(left: int, right: int) -> int:
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(left) // abs(right)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


def _modulus(left: int, right: int) -> int:
    if right == 0:
        raise CelError("modulus by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _divided_double(left: float, right: float) -> float:
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
    return left / right


def _int_of_double(value: float) -> int:
    if not math.isfinite(value):
        raise CelError("integer overflow")
    return checked_int(int(value))


def _int_of_text(value: str) -> int:
    if not value.removeprefix("-").removeprefix("+").isdecimal() or not value.isascii():
        raise CelError(f'strconv.ParseInt: parsing "{value}": invalid syntax')
    if len(value) > 20:
        raise CelError(f'strconv.ParseInt: parsing "{value}": value out of range')
    return checked_int(int(value))


def double_text(value: float) -> str:
    """Write a double as ``string(double)`` does."""
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return repr(value)


def quantity(text: str) -> Quantity:
    """Read a quantity.

    Raises:
        CelError: it isn't one, in the real server's words.
    """
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise CelError(
            r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from error


def _is_quantity(text: str) -> bool:
    try:
        quantity(text)
    except CelError:
        return False
    return True


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _arithmetic() -> Iterator[Row]:
    yield "+", "int; int", "int", lambda a, b: checked_int(a + b)
    yield "-", "int; int", "int", lambda a, b: checked_int(a - b)
    yield "*", "int; int", "int", lambda a, b: checked_int(a * b)
    yield "/", "int; int", "int", lambda a, b: checked_int(_divided(a, b))
    yield "%", "int; int", "int", lambda a, b: checked_int(_modulus(a, b))
    yield "+", "double; double", "double", lambda a, b: a + b
    yield "-", "double; double", "double", lambda a, b: a - b
    yield "*", "double; double", "double", lambda a, b: a * b
    yield "/", "double; double", "double", _divided_double
    yield "neg", "int", "int", lambda a: checked_int(-a)
    yield "neg", "double", "double", lambda a: -a
    yield "!", "bool", "bool", lambda a: not a


def _comparisons() -> Iterator[Row]:
    kinds = ["string", "bytes", "bool", "timestamp", "duration"]
    numbers = ["int", "double"]
    pairs = [(kind, kind) for kind in kinds] + [(a, b) for a in numbers for b in numbers]
    for left, right in pairs:
        yield "<", f"{left}; {right}", "bool", lambda a, b: a < b
        yield "<=", f"{left}; {right}", "bool", lambda a, b: a <= b
        yield ">", f"{left}; {right}", "bool", lambda a, b: a > b
        yield ">=", f"{left}; {right}", "bool", lambda a, b: a >= b
    for name in ("==", "!="):
        yield name, "A; B", "bool", lambda a, b: a == b  # `dispatch` compares with `equal`; this row gives the types


def _conversions() -> Iterator[Row]:
    for kind in ("int", "string", "timestamp", "duration"):
        yield kind, kind, kind, lambda value: value
    yield "int", "double", "int", _int_of_double
    yield "int", "string", "int", _int_of_text
    yield "string", "int", "string", str
    yield "string", "double", "string", double_text
    yield "string", "bool", "string", lambda value: "true" if value else "false"
    yield "timestamp", "string", "timestamp", parse_timestamp
    yield "duration", "string", "duration", parse_duration
    yield "dyn", "A", "dyn", lambda value: value


def _quantities() -> Iterator[Row]:
    yield "quantity", "string", "quantity", quantity
    yield "isQuantity", "string", "bool", _is_quantity
    yield ".isGreaterThan", "quantity; quantity", "bool", lambda a, b: a.nano > b.nano
    yield ".isLessThan", "quantity; quantity", "bool", lambda a, b: a.nano < b.nano
    yield ".compareTo", "quantity; quantity", "int", lambda a, b: _compare(a.nano, b.nano)


FUNCTIONS: Final[tuple[Row, ...]] = (*_arithmetic(), *_comparisons(), *_conversions(), *_quantities())
