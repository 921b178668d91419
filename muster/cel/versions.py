"""Semantic versions, as attributes of devices have them: semver 2.0.0, compared by precedence."""

from __future__ import annotations

from typing import Any, Final

from muster.cel.values import CelError, Semver

Row = tuple[str, str, str, Any]


def _is_semver(text: str) -> bool:
    try:
        Semver.parse(text)
    except CelError:
        return False
    return True


def _compared(left: Semver, right: Semver) -> int:
    one, other = left.precedence(), right.precedence()
    return int(one > other) - int(one < other)


FUNCTIONS: Final[tuple[Row, ...]] = (
    ("semver", "string", "semver", Semver.parse),
    ("isSemver", "string", "bool", _is_semver),
    (".major", "semver", "int", lambda version: version.numbers[0]),
    (".minor", "semver", "int", lambda version: version.numbers[1]),
    (".patch", "semver", "int", lambda version: version.numbers[2]),
    (".isGreaterThan", "semver; semver", "bool", lambda a, b: _compared(a, b) > 0),
    (".isLessThan", "semver; semver", "bool", lambda a, b: _compared(a, b) < 0),
    (".compareTo", "semver; semver", "int", _compared),
)
