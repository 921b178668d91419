"""Warnings that repeat themselves: the same one is logged once in a while, however many objects and tries it is about."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final

SILENT_SECONDS: Final = 600.0
_REMEMBERED: Final = 256


class RepeatedWarnings:
    """Logs a cause's first warning at WARNING, and those within ten minutes after it at DEBUG.

    Args:
        log: where to.
        now: tells seconds of a clock that only goes forward.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        # When each cause was last logged as a warning, and how often it came since; the oldest first.
        self._since: dict[Hashable, tuple[float, int]] = {}

    def warn(self, cause: Hashable, text: str, *values: object) -> None:
        """Log ``text`` with its values; what has the same cause is the same warning."""
        now, (last, count) = self._now(), self._since.get(cause, (float("-inf"), 0))
        if now - last < SILENT_SECONDS:
            self._since[cause] = last, count + 1
            self._log.debug(text, *values)
            return
        if count:
            text, values = f"{text} (%d more of this kind since the last such line)", (*values, count)
        self._log.warning(text, *values)
        self._since.pop(cause, None)
        self._since[cause] = now, 0
        if len(self._since) > _REMEMBERED:
            del self._since[next(iter(self._since))]
