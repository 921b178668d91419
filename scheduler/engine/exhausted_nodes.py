"""The nodes on which nobody may be evicted, remembered for tasks alike during one run of evictions.

With thousands of groups alike that wait, each would look again at nodes whose pods have given what they can. Evictions only
lower what jobs and queues can give, so that such a node stays exhausted until something on it changes, or a queue to take
from gets more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from scheduler.model import vectors
from scheduler.model.vectors import Vector


class ExhaustedNodes:
    """Rows of nodes by what tasks have in common. What an attempt finds holds once the attempt is committed."""

    def __init__(self) -> None:
        self._rows: dict[object, set[int]] = {}
        self._had: dict[object, Sequence[Vector]] = {}
        self._found: list[tuple[object, int]] = []

    def of(self, alike: object, queues: Sequence[Vector]) -> Collection[int]:
        """Return the exhausted rows for tasks alike; ``queues``: what each queue to take from has now."""
        had = self._had.get(alike)
        if had is None or not all(map(vectors.fits, queues, had)):
            self._rows[alike] = set()
        self._had[alike] = queues
        return self._rows[alike]

    def note(self, alike: object, row: int) -> None:
        """Learn that nobody may go from a node."""
        self._found.append((alike, row))

    def committed(self, touched: Iterable[int]) -> None:
        """Keep what the attempt found, but for the rows that it changed."""
        for alike, row in self._found:
            self._rows[alike].add(row)
        self._found.clear()
        changed = set(touched)
        for rows in self._rows.values():
            rows.difference_update(changed)

    def rolled_back(self) -> None:
        """Forget what the attempt found: it may have found so because of what was undone."""
        self._found.clear()

    def clear(self) -> None:
        """Forget everything: a job that others are evicted from may have got more."""
        self._found.clear()
        self._rows.clear()
        self._had.clear()
