"""Numbers of pods that are written as such or as a percentage. Pure."""

from __future__ import annotations

import math
import re
from typing import Any, Final

_PERCENT: Final = re.compile(r"([0-9]{1,9})%")


def pods_of(value: Any, total: int, *, up: bool) -> int:
    """Return how many of ``total`` pods a number or percentage means, rounded ``up`` or down.

    What is neither means none: the API server's validation says so to people, not we.
    """
    if isinstance(value, int):
        return max(0, value)
    match = _PERCENT.fullmatch(str(value))
    if match is None:
        return 0
    exact = int(match[1]) * total / 100
    return math.ceil(exact) if up else math.floor(exact)
