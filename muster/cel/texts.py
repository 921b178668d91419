"""Functions on text."""

from __future__ import annotations

from typing import Final

from muster.cel.numbers import Row
from muster.cel.regular import Pattern, PatternError, compile_pattern
from muster.cel.values import CelError

_MOST: Final = 1 << 20


def pattern(text: str) -> Pattern:
    """Compile a pattern of Go's engine.

    Raises:
        CelError: it isn't one, or one that can't be translated.
    """
    try:
        return compile_pattern(text)
    except PatternError as error:
        raise CelError(str(error)) from error


def _matched(text: str, wanted: str) -> tuple[bool, int]:
    """Tell whether it matches, and how many steps that took: whoever calls it counts them."""
    return pattern(wanted).measured(text)


def _added(left: str, right: str) -> str:
    if len(left) + len(right) > _MOST:
        raise CelError("operation cancelled: actual cost limit exceeded")
    return left + right


def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


FUNCTIONS: Final[tuple[Row, ...]] = (
    ("+", "string; string", "string", _added),
    ("+", "bytes; bytes", "bytes", lambda a, b: a + b),
    ("size", "string", "int", len),
    (".size", "string", "int", len),
    ("size", "bytes", "int", len),
    (".size", "bytes", "int", len),
    (".startsWith", "string; string", "bool", str.startswith),
    (".endsWith", "string; string", "bool", str.endswith),
    (".contains", "string; string", "bool", lambda a, b: b in a),
    (".split", "string; string", "list(string)", _split),
    (".matches", "string; string", "bool", _matched),
    ("matches", "string; string", "bool", _matched),
)
