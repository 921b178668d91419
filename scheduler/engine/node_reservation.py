"""The nodes that are kept for one job during a cycle: what is idle there is out of sight of all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from scheduler.engine.allocations import NOTHING_HIDDEN, Allocations
from scheduler.engine.states import JobState, priority
from scheduler.model.vectors import Matrix

_AS_IT_IS: Final = nullcontext()


class NodeReservation:
    """Nobody has one until `keep` is called: `job` is None then.

    Attributes:
        job: the job that nodes are kept for.
        rows: these nodes.
        visible: whether what is set aside can be seen now, since the job that is looked at may use it.
    """

    def __init__(self, allocations: Allocations, priorities: Mapping[str, int]) -> None:
        self._allocations = allocations
        self._priorities = priorities
        self.job: JobState | None = None
        self.rows: Sequence[int] = ()
        self.visible = False
        self._set_aside = NOTHING_HIDDEN

    @property
    def set_aside(self) -> Matrix:
        """What is kept of what is idle, [nodes, resources], or nothing of any node."""
        return self._set_aside.idle

    def keep(self, job: JobState, rows: Sequence[int]) -> None:
        """Keep what is and will be idle on some nodes from all but one job."""
        self.job, self.rows = job, rows
        self._set_aside = self._allocations.set_aside(rows)

    def serves(self, job: JobState) -> bool:
        """Whether nodes are kept for a job, or for one of lower priority, which doesn't hold it up."""
        return self.job is not None and (job is self.job or self._priority(job) > self._priority(self.job))

    def visible_to(self, job: JobState) -> AbstractContextManager[None]:
        """Let a job see what is kept for it; to all others nothing changes."""
        return self._uncovered() if self.serves(job) else _AS_IT_IS

    @contextmanager
    def _uncovered(self) -> Iterator[None]:
        self._allocations.give_back(self._set_aside)
        self.visible = True
        try:
            yield
        finally:
            self.visible = False
            self._set_aside = self._allocations.set_aside(self.rows)

    def _priority(self, job: JobState) -> int:
        return priority(job.info, self._priorities)
