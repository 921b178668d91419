"""Durations: as people write them in configurations (``1h30m``), and as kubectl shows them to people (``3m12s``)."""

from __future__ import annotations

import re
from typing import Any, Final

_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s)")
_LONGEST: Final = 64
"""Characters. Tenants write durations in annotations of 256 KiB; a pattern would hold the interpreter for minutes over one."""
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY

# From this many seconds on: the unit, and the smaller one that is still shown.
_SPANS: Final = (
    (8 * _YEAR, _YEAR, None),
    (2 * _YEAR, _YEAR, _DAY),
    (8 * _DAY, _DAY, None),
    (2 * _DAY, _DAY, _HOUR),
    (8 * _HOUR, _HOUR, None),
    (3 * _HOUR, _HOUR, _MINUTE),
    (10 * _MINUTE, _MINUTE, None),
    (2 * _MINUTE, _MINUTE, 1),
)
_LETTERS: Final = {_YEAR: "y", _DAY: "d", _HOUR: "h", _MINUTE: "m", 1: "s"}


def duration(text: Any) -> float:
    """Return the seconds of a duration such as ``1h30m``.

    Raises:
        ValueError: it isn't one, or isn't above zero.
    """
    found = seconds(text)
    if found <= 0:
        raise ValueError(f"{str(text)!r} is no time at all; give a duration above zero")
    return found


def seconds(text: Any) -> float:
    """Return the seconds of a duration such as ``1h30m`` or ``0s``.

    Raises:
        ValueError: it isn't one.
    """
    written = str(text)
    if len(written) > _LONGEST:
        raise ValueError(
            f"{written[:_LONGEST]!r}… is no duration: it has {len(written)} characters; write it like 3m or 1h30m"
        )
    parts = _PART.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        raise ValueError(f"{written!r} is not a duration; write it like 3m or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def human_duration(seconds: float) -> str:
    """Write a duration as kubectl does, with at most two units: ``45s``, ``3m12s``, ``5h``, ``2d3h``."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    for least, unit, rest in _SPANS:
        if whole >= least:
            many, left = divmod(whole, unit)
            text = f"{many}{_LETTERS[unit]}"
            return text + (f"{left // rest}{_LETTERS[rest]}" if rest and left // rest else "")
    return f"{max(whole, 0)}s"
