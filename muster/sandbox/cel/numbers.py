"""Functions on numbers, quantities, times and truth: operators and conversions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from muster.model.amounts import NANO, Quantity, QuantityError
from muster.sandbox.cel.times import duration_text, parse_duration, parse_timestamp, timestamp_text
from muster.sandbox.cel.values import CelError, TypeValue, Uint, checked_int, checked_uint, kind_of

Row = tuple[str, str, str, Callable[..., Any]]
"""Name (with a dot before a method's), parameters, result, implementation."""

_LARGEST: Final = 2**63 - 1


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


def _uint_of_text(value: str) -> Uint:
    if not value.isdecimal() or not value.isascii() or len(value) > 20:
        raise CelError(f'strconv.ParseUint: parsing "{value}": invalid syntax')
    return checked_uint(int(value))


def _double_of_text(value: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise CelError(f'strconv.ParseFloat: parsing "{value}": invalid syntax') from error


def _bool_of_text(value: str) -> bool:
    if value in {"1", "t", "true", "TRUE", "True"}:
        return True
    if value in {"0", "f", "false", "FALSE", "False"}:
        return False
    raise CelError(f'strconv.ParseBool: parsing "{value}": invalid syntax')


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


def _integer(value: Quantity) -> int:
    if value.nano % NANO or abs(value.nano) > _LARGEST * NANO:
        raise CelError("cannot convert value to integer")
    return value.nano // NANO


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _time(function: Callable[..., Any]) -> Callable[..., Any]:
    # Sums of times leave the calendar that the real server knows too (years 1 to 9999).
    def guarded(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except OverflowError as error:
            raise CelError("timestamp overflow") from error

    return guarded


def _arithmetic() -> Iterator[Row]:
    for kind, check in (("int", checked_int), ("uint", checked_uint)):
        yield "+", f"{kind}; {kind}", kind, lambda a, b, check=check: check(a + b)
        yield "-", f"{kind}; {kind}", kind, lambda a, b, check=check: check(a - b)
        yield "*", f"{kind}; {kind}", kind, lambda a, b, check=check: check(a * b)
        yield "/", f"{kind}; {kind}", kind, lambda a, b, check=check: check(_divided(a, b))
        yield "%", f"{kind}; {kind}", kind, lambda a, b, check=check: check(_modulus(a, b))
    yield "+", "double; double", "double", lambda a, b: a + b
    yield "-", "double; double", "double", lambda a, b: a - b
    yield "*", "double; double", "double", lambda a, b: a * b
    yield "/", "double; double", "double", _divided_double
    yield "neg", "int", "int", lambda a: checked_int(-a)
    yield "neg", "double", "double", lambda a: -a
    yield "!", "bool", "bool", lambda a: not a


def _comparisons() -> Iterator[Row]:
    kinds = ["string", "bytes", "bool", "timestamp", "duration"]
    numbers = ["int", "uint", "double"]
    pairs = [(kind, kind) for kind in kinds] + [(a, b) for a in numbers for b in numbers]
    for left, right in pairs:
        yield "<", f"{left}; {right}", "bool", lambda a, b: a < b
        yield "<=", f"{left}; {right}", "bool", lambda a, b: a <= b
        yield ">", f"{left}; {right}", "bool", lambda a, b: a > b
        yield ">=", f"{left}; {right}", "bool", lambda a, b: a >= b
    for name in ("==", "!="):
        yield name, "A; B", "bool", lambda a, b: a == b  # `dispatch` compares with `equal`; this row gives the types


def _conversions() -> Iterator[Row]:
    for kind in ("int", "uint", "double", "string", "bool", "bytes", "timestamp", "duration"):
        yield kind, kind, kind, lambda value: value
    yield "int", "uint", "int", lambda value: checked_int(int(value))
    yield "int", "double", "int", _int_of_double
    yield "int", "string", "int", _int_of_text
    yield "int", "timestamp", "int", lambda value: int(value.timestamp())
    yield "uint", "int", "uint", checked_uint
    yield "uint", "double", "uint", lambda value: checked_uint(_int_of_double(value))
    yield "uint", "string", "uint", _uint_of_text
    yield "double", "int", "double", float
    yield "double", "uint", "double", float
    yield "double", "string", "double", _double_of_text
    yield "bool", "string", "bool", _bool_of_text
    yield "string", "int", "string", str
    yield "string", "uint", "string", str
    yield "string", "double", "string", double_text
    yield "string", "bool", "string", lambda value: "true" if value else "false"
    yield "string", "bytes", "string", _decoded
    yield "string", "timestamp", "string", timestamp_text
    yield "string", "duration", "string", duration_text
    yield "bytes", "string", "bytes", lambda value: value.encode()
    yield "timestamp", "string", "timestamp", parse_timestamp
    yield "timestamp", "int", "timestamp", _time(lambda value: datetime.fromtimestamp(value, UTC))
    yield "duration", "string", "duration", parse_duration
    yield "dyn", "A", "dyn", lambda value: value
    yield "type", "A", "type", lambda value: TypeValue(kind_of(value))


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from error


def _times() -> Iterator[Row]:
    yield "+", "timestamp; duration", "timestamp", _time(lambda a, b: a + b)
    yield "+", "duration; timestamp", "timestamp", _time(lambda a, b: a + b)
    yield "+", "duration; duration", "duration", _time(lambda a, b: a + b)
    yield "-", "timestamp; timestamp", "duration", _time(lambda a, b: a - b)
    yield "-", "timestamp; duration", "timestamp", _time(lambda a, b: a - b)
    yield "-", "duration; duration", "duration", _time(lambda a, b: a - b)


def _quantities() -> Iterator[Row]:
    yield "quantity", "string", "quantity", quantity
    yield "isQuantity", "string", "bool", _is_quantity
    yield "sign", "quantity", "int", lambda a: _compare(a.nano, 0)
    yield ".isGreaterThan", "quantity; quantity", "bool", lambda a, b: a.nano > b.nano
    yield ".isLessThan", "quantity; quantity", "bool", lambda a, b: a.nano < b.nano
    yield ".compareTo", "quantity; quantity", "int", lambda a, b: _compare(a.nano, b.nano)
    yield ".asApproximateFloat", "quantity", "double", lambda a: a.nano / NANO
    yield ".asInteger", "quantity", "int", _integer
    yield ".isInteger", "quantity", "bool", lambda a: a.nano % NANO == 0 and abs(a.nano) <= _LARGEST * NANO
    yield ".add", "quantity; quantity", "quantity", lambda a, b: Quantity(a.nano + b.nano, a.form)
    yield ".add", "quantity; int", "quantity", lambda a, b: Quantity(a.nano + b * NANO, a.form)
    yield ".sub", "quantity; quantity", "quantity", lambda a, b: Quantity(a.nano - b.nano, a.form)
    yield ".sub", "quantity; int", "quantity", lambda a, b: Quantity(a.nano - b * NANO, a.form)


FUNCTIONS: Final[tuple[Row, ...]] = (*_arithmetic(), *_comparisons(), *_conversions(), *_times(), *_quantities())
