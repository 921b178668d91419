"""Callbacks in the order of their time, and those of one time in the order of their entry."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

Callback = Callable[[], None]


class EventQueue:
    """Times are seconds since the beginning of the simulation."""

    def __init__(self) -> None:
        self._line: list[tuple[float, int, Callback]] = []
        self._entries = 0

    def schedule(self, at: float, callback: Callback) -> None:
        """Have something called at a time."""
        heapq.heappush(self._line, (at, self._entries, callback))
        self._entries += 1

    @property
    def next_at(self) -> float:
        """When the next callback is due; infinity where there is none."""
        return self._line[0][0] if self._line else float("inf")

    def due(self, now: float) -> Iterator[Callback]:
        """Take out what is due by ``now``, callbacks that are scheduled meanwhile included."""
        while self._line and self._line[0][0] <= now:
            yield heapq.heappop(self._line)[2]
