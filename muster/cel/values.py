"""Values of expressions: JSON as it is, and the few kinds that JSON lacks; errors; equality."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from muster.model.amounts import Quantity

_INT_LIMIT: Final = 2**63
_IDENTIFIER: Final = re.compile(r"[0-9A-Za-z-]+", re.ASCII)
_MOST_UINT: Final = 2**64 - 1


class CelError(Exception):
    """An expression has no value: ``no such key: x``, ``division by zero``. The text is the real server's."""


class CostError(CelError):
    """It takes too long to find out; all that it may take was taken."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class CompileError(Exception):
    """An expression can't be used; the text shows where, as the real compiler does."""

    def __init__(self, message: str, source: str, position: int) -> None:
        line_number = source.count("\n", 0, position) + 1
        start = source.rfind("\n", 0, position) + 1
        line = source[start:].split("\n", 1)[0]
        column = position - start
        super().__init__(f"ERROR: <input>:{line_number}:{column + 1}: {message}\n | {line}\n | {'.' * column}^")
        self.message = message


def unsupported(what: str) -> str:
    """Return the refusal of something that only the real server has."""
    return (
        f"{what} is not supported by the Muster sandbox; use a real control plane (kube-apiserver), see docs/sandbox.md"
    )


class Optional(Struct, frozen=True):
    """A value that may be absent."""

    present: bool = False
    value: Any = None


class Semver(Struct, frozen=True, eq=False):
    """A version. What is behind ``+`` is no part of its value."""

    numbers: tuple[int, int, int]
    before: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Semver:
        """Read a version.

        Raises:
            CelError: it isn't one.
        """
        if not text:
            raise CelError("Version string empty")
        parts = text.split(".", 2)
        if len(parts) < 3:
            raise CelError("No Major.Minor.Patch elements found")
        rest, plus, build = parts[2].partition("+")
        patch, dash, before = rest.partition("-")
        numbers = (_part("Major", parts[0]), _part("Minor", parts[1]), _part("Patch", patch))
        words = tuple(before.split(".")) if dash else ()
        for word in words:
            _identifier(word, "Prerelease is empty", "prerelease")
            if word.isdigit() and word != "0" and word.startswith("0"):
                raise CelError(f'Numeric PreRelease version must not contain leading zeroes "{word}"')
        for word in build.split(".") if plus else ():
            _identifier(word, "Build meta data is empty", "build meta data")
        return cls(numbers, words)

    def precedence(self) -> tuple[Any, ...]:
        """Return what versions are ordered by: a pre-release comes before its release, numbers before words."""
        parts = [(0, int(each), "") if each.isdigit() else (1, 0, each) for each in self.before]
        return (self.numbers, not self.before, parts)


def _part(which: str, text: str) -> int:
    if text.strip("0123456789"):
        raise CelError(f'Invalid character(s) found in {which.lower()} number "{text}"')
    if len(text) > 1 and text.startswith("0"):
        raise CelError(f'{which} number must not contain leading zeroes "{text}"')
    if not text or len(text) > 20 or int(text) > _MOST_UINT:
        problem = "value out of range" if text else "invalid syntax"
        raise CelError(f'strconv.ParseUint: parsing "{text}": {problem}')
    return int(text)


def _identifier(text: str, empty: str, where: str) -> None:
    if not text:
        raise CelError(empty)
    if not _IDENTIFIER.fullmatch(text):
        raise CelError(f'Invalid character(s) found in {where} "{text}"')


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    datetime: "timestamp",
    timedelta: "duration",
    Quantity: "quantity",
    Optional: "optional",
    Semver: "semver",
}
NUMBERS: Final = frozenset({"int", "double"})


def kind_of(value: Any) -> str:
    """Return the kind of a value: ``int``, ``string``, ``map`` and so on."""
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, Mapping):
        return "map"
    raise CelError(f"unsupported value of type {type(value).__name__}")


def equal(left: Any, right: Any) -> bool:
    """Compare by value. Numbers compare across their kinds; else different kinds are unequal, also inside of JSON."""
    kind = kind_of(left)
    other = kind_of(right)
    if kind != other:
        return kind in NUMBERS and other in NUMBERS and left == right
    if kind == "list":
        return len(left) == len(right) and all(map(equal, left, right))
    if kind == "map":
        return len(left) == len(right) and all(key in right and equal(left[key], right[key]) for key in left)
    if kind == "quantity":
        return bool(left.nano == right.nano)
    if kind == "semver":
        return bool(left.precedence() == right.precedence())
    if kind == "optional":
        return left.present == right.present and (not left.present or equal(left.value, right.value))
    return bool(left == right)


def checked_int(value: int) -> int:
    """Return an int that fits 64 bits.

    Raises:
        CelError: it doesn't.
    """
    if not -_INT_LIMIT <= value < _INT_LIMIT:
        raise CelError("integer overflow")
    return value
