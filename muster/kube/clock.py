"""The sources of time. Only the shells use them; pure code is given ``now``.

Monotonic time is the running loop's (``loop.time()``), so that code in virtual time needs no other interface; only
leases ask for more (`steady`).
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the wall-clock time."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one place that may ask


class LoopClock:
    """Wall-clock time that advances with the running loop: a simulation's."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._origin: float | None = None

    def now(self) -> datetime:
        """Return the start plus the loop time that has passed since the first question."""
        elapsed = asyncio.get_running_loop().time()
        if self._origin is None:
            self._origin = elapsed
        return self._start + timedelta(seconds=elapsed - self._origin)


def steady(loop: asyncio.AbstractEventLoop) -> float:
    """Return the loop's time plus the time that the machine was suspended, in seconds: what leases are measured by.

    Linux stops the monotonic clock, and so a loop's, while the machine sleeps; the other machines don't wait for it.
    In virtual time the second term is a constant. Where the system can't tell, this is the loop's time alone.
    """
    return loop.time() + _suspended()


def _suspended() -> float:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    # Rounded, for the two are read one after the other: what passes in between is not sleep.
    return round(time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC), 2)
