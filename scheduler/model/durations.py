"""Durations as people write them in configurations: ``1h30m``."""

from __future__ import annotations

import re
from typing import Any, Final

_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s)")
_LONGEST: Final = 64
"""Characters. Tenants write durations in annotations of 256 KiB; a pattern would hold the interpreter for minutes over one."""
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def duration(text: Any) -> float:
    """Read a duration such as ``1h30m`` as seconds.

    Raises:
        ValueError: it isn't one, or isn't above zero.
    """
    written = str(text)
    if len(written) > _LONGEST:
        raise ValueError(
            f"{written[:_LONGEST]!r}… is no duration: it has {len(written)} characters; write it like 3m or 1h30m"
        )
    parts = _PART.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        raise ValueError(f"{written!r} is not a duration; write it like 3m or 1h30m")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds <= 0:
        raise ValueError(f"{written!r} is no time at all; give a duration above zero")
    return seconds
