"""A statement: marks on a session that are committed together, or undone to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from scheduler.model.snapshot import Status, Task

if TYPE_CHECKING:
    from scheduler.engine.session import JobState, Session


class Mark(Struct, frozen=True):
    """One entry of the journal.

    ``tasks`` of ``job``, all of one class, got one of ``rows`` each, now (ALLOCATED) or once it is free (PIPELINED); or
    they give their places there up (RELEASING) for ``beneficiary``.
    """

    job: JobState
    tasks: Sequence[Task]
    rows: Sequence[int]
    status: Status
    beneficiary: JobState | None = None


class Statement:
    """The journal of one attempt. It ends in `commit` or in `roll_back`; there is no third exit.

    Used as a context manager it rolls back unless it was committed, so that no way out of an action leaves marks.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._journal: list[Mark] = []
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            self.roll_back()

    def __len__(self) -> int:
        """How many marks were made."""
        return len(self._journal)

    @property
    def evicts(self) -> bool:
        """Whether somebody would have to go."""
        return any(mark.status is Status.RELEASING for mark in self._journal)

    def allocate(self, job: JobState, tasks: Sequence[Task], rows: Sequence[int]) -> None:
        """Take what ``tasks``, all of one class, ask for from the idle part of a node each."""
        self._mark(Mark(job, tasks, rows, Status.ALLOCATED))

    def pipeline(self, job: JobState, task: Task, row: int) -> None:
        """Take what ``task`` asks for from what a node will have once its leaving pods are gone."""
        self._mark(Mark(job, (task,), (row,), Status.PIPELINED))

    def evict(self, job: JobState, task: Task, row: int, beneficiary: JobState) -> None:
        """Take a node's task away, for another job to have what it leaves."""
        self._mark(Mark(job, (task,), (row,), Status.RELEASING, beneficiary))

    def back_to(self, length: int) -> None:
        """Undo what was marked after the first ``length`` marks, the last one first."""
        while len(self._journal) > length:
            self._session.unapply(self._journal.pop())

    def commit(self) -> None:
        """Keep the marks."""
        self._session.keep(self._journal)
        self._close()

    def roll_back(self) -> None:
        """Undo the marks, the last one first."""
        self.back_to(0)
        self._close()

    def _mark(self, mark: Mark) -> None:
        assert self._open, "a statement that has ended takes no marks"
        self._session.apply(mark)
        self._journal.append(mark)

    def _close(self) -> None:
        self._open = False
