"""The recovery of a leader after cycles that failed in a way that nobody foresaw."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from muster.kube.backoff import Backoff
from muster.kube.subscription import reason_of

log = logging.getLogger(__name__)

MAX_FAILURES: Final = 6
"""Cycles in a row that may fail; after that another process may know better, and the leadership ends."""
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 8.0


class Recovery:
    """Counts the cycles that failed one after the other, and says how long to wait after each."""

    def __init__(self) -> None:
        self._failures = 0
        self._said = ""
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, jitter=False)

    def reset(self) -> None:
        """Note that a cycle worked."""
        if self._failures:
            self._failures, self._said = 0, ""
            self._backoff.reset()

    async def pause(self, error: Exception) -> None:
        """Wait after a cycle that failed.

        Raises:
            Exception: the error, after `MAX_FAILURES`.
        """
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            raise error
        if (said := reason_of(error)) != self._said:
            self._said = said
            log.error("the cycle is tried again: an error in Muster", exc_info=error)
        await asyncio.sleep(self._backoff.pause())
