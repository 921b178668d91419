"""Where time comes from. Only the shells ask; pure code is given ``now``.

Monotonic time is the running loop's (``loop.time()``), so that code in virtual time needs no other interface.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the wall-clock time."""

    def now(self) -> datetime:
        """Give the current time, aware, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Give the current time, aware, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one place that may ask


class LoopClock:
    """Wall-clock time that advances with the running loop: a simulation's."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._origin: float | None = None

    def now(self) -> datetime:
        """Give the start plus the loop time that has passed since the first question."""
        elapsed = asyncio.get_running_loop().time()
        if self._origin is None:
            self._origin = elapsed
        return self._start + timedelta(seconds=elapsed - self._origin)
