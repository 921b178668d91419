"""A statement: marks on a session that are committed together, or undone to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from scheduler.engine.allocations import Allocations, Operation
from scheduler.engine.states import JobState
from scheduler.model.snapshot import Status, Task


class Statement:
    """The journal of one attempt. It ends in `commit` or in `roll_back`; there is no third exit.

    Used as a context manager it rolls back unless it was committed, so that no way out of an action leaves marks.
    """

    def __init__(self, allocations: Allocations) -> None:
        self._allocations = allocations
        self._journal: list[Operation] = []
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
        return any(operation.status is Status.RELEASING for operation in self._journal)

    def allocate(self, job: JobState, tasks: Sequence[Task], rows: Sequence[int]) -> None:
        """Take what ``tasks``, all of one class, ask for from the idle part of a node each."""
        self._apply(Operation(job, tasks, rows, Status.ALLOCATED))

    def pipeline(self, job: JobState, task: Task, row: int) -> None:
        """Take what ``task`` asks for from what a node will have once its leaving pods are gone."""
        self._apply(Operation(job, (task,), (row,), Status.PIPELINED))

    def evict(self, job: JobState, task: Task, row: int, beneficiary: JobState) -> None:
        """Take a node's task away, for another job to have what it leaves."""
        self._apply(Operation(job, (task,), (row,), Status.RELEASING, beneficiary))

    def undo_to(self, length: int) -> None:
        """Undo what was marked after the first ``length`` marks, the last one first."""
        while len(self._journal) > length:
            self._allocations.undo(self._journal.pop())

    def commit(self) -> None:
        """Keep the marks."""
        self._allocations.commit(self._journal)
        self._close()

    def roll_back(self) -> None:
        """Undo the marks, the last one first."""
        self.undo_to(0)
        self._close()

    def _apply(self, operation: Operation) -> None:
        assert self._open, "a statement that has ended takes no operations"
        self._allocations.apply(operation)
        self._journal.append(operation)

    def _close(self) -> None:
        self._open = False
