"""Timestamps (RFC 3339) and durations (Go's notation) as text, to the microsecond."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from muster.cel.values import CelError

_TIMESTAMP: Final = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})(?:[Tt](?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})(?P<fraction>\.[0-9]+)?(?P<zone>[Zz]|[+-][0-9]{2}:[0-9]{2}))?"
)
_PART: Final = re.compile(r"(?P<amount>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<unit>ns|us|µs|ms|s|m|h)")
_LONGEST: Final = 2**63 // 1000
"""In microseconds: Go counts nanoseconds in 64 bits."""
_MICROSECONDS: Final = {"ns": 0.001, "us": 1, "µs": 1, "ms": 1000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6}


def parse_timestamp(text: str) -> datetime:
    """Read a date or a date with time.

    Raises:
        CelError: it is neither.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise CelError(f'parsing time "{text}": not in the form 2006-01-02T15:04:05Z')
    try:
        zone = (match["zone"] or "Z").upper().replace("Z", "+00:00")
        fraction = (match["fraction"] or ".0")[:7].ljust(7, "0")
        return datetime.fromisoformat(f"{match['day']}T{match['time'] or '00:00:00'}{fraction}{zone}").astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise CelError(f'parsing time "{text}": not in the form 2006-01-02T15:04:05Z') from error


def parse_duration(text: str) -> timedelta:
    """Read a duration such as ``1h30m`` or ``-1.5s``.

    Raises:
        CelError: it isn't one.
    """
    sign = -1 if text.startswith("-") else 1
    rest = text.removeprefix("-").removeprefix("+") if text[:1] in {"-", "+"} else text
    if rest == "0":
        return timedelta(0)
    total, position = 0.0, 0
    while match := _PART.match(rest, position):
        total += float(match["amount"]) * _MICROSECONDS[match["unit"]]
        position = match.end()
    if not rest or position != len(rest):
        raise CelError(_no_duration(text, rest[position:] if position or rest[:1].isdigit() else ""))
    if total > _LONGEST:
        raise CelError(f'time: invalid duration "{text}"')
    return timedelta(microseconds=sign * total)


def _no_duration(text: str, rest: str) -> str:
    """Say in Go's words what is wrong with a duration, of which ``rest`` is left after the last part that is one."""
    unit = rest.lstrip("0123456789.")
    if rest and not unit:
        return f'time: missing unit in duration "{text}"'
    unit = re.split("[0-9.]", unit, maxsplit=1)[0]
    if rest[:1].isdigit() and unit:
        return f'time: unknown unit "{unit}" in duration "{text}"'
    return f'time: invalid duration "{text}"'
