"""What will happen when: a line of deeds in order of their time, and among those of one time in order of their entry."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

Deed = Callable[[], None]


class Calendar:
    """Times are seconds since the beginning of the simulation."""

    def __init__(self) -> None:
        self._line: list[tuple[float, int, Deed]] = []
        self._entries = 0

    def enter(self, at: float, deed: Deed) -> None:
        """Have something done at a time."""
        heapq.heappush(self._line, (at, self._entries, deed))
        self._entries += 1

    @property
    def following(self) -> float:
        """When the next deed is due; infinity where there is none."""
        return self._line[0][0] if self._line else float("inf")

    def due(self, now: float) -> Iterator[Deed]:
        """Take out what is due by ``now``, deeds that are entered meanwhile included."""
        while self._line and self._line[0][0] <= now:
            yield heapq.heappop(self._line)[2]
