"""A statement: operations that are committed together, or undone to the last bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from scheduler.engine.allocations import Allocations, Operation
from scheduler.engine.states import JobState
from scheduler.model.snapshot import Task, TaskStatus


class Statement:
    """The operations of one attempt. It ends in `commit` or in `roll_back`; there is no third exit.

    Used as a context manager it rolls back unless it was committed, so that no way out of an action leaves any.
    """

    def __init__(self, allocations: Allocations) -> None:
        self._allocations = allocations
        self._operations: list[Operation] = []
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            self.roll_back()

    def __len__(self) -> int:
        """How many operations there are."""
        return len(self._operations)

    @property
    def evicts(self) -> bool:
        """Whether somebody would have to go."""
        return any(operation.status is TaskStatus.RELEASING for operation in self._operations)

    def allocate(self, job: JobState, tasks: Sequence[Task], rows: Sequence[int]) -> None:
        """Take what ``tasks``, all of one class, ask for from the idle part of a node each."""
        self._apply(Operation(job, tasks, rows, TaskStatus.ALLOCATED))

    def pipeline(self, job: JobState, task: Task, row: int) -> None:
        """Take what ``task`` asks for from what a node will have once its leaving pods are gone."""
        self._apply(Operation(job, (task,), (row,), TaskStatus.PIPELINED))

    def evict(self, job: JobState, task: Task, row: int, beneficiary: JobState) -> None:
        """Take a node's task away, for another job to have what it leaves."""
        self._apply(Operation(job, (task,), (row,), TaskStatus.RELEASING, beneficiary))

    def undo_to(self, length: int) -> None:
        """Undo what came after the first ``length`` operations, the last one first."""
        while len(self._operations) > length:
            self._allocations.undo(self._operations.pop())

    @contextmanager
    def evictions_only(self) -> Iterator[None]:
        """Undo all but the evictions for a while: what a job is about to take isn't in its own way."""
        operations = list(self._operations)
        self.undo_to(0)
        for operation in operations:
            if operation.status is TaskStatus.RELEASING:
                self._apply(operation)
        try:
            yield
        finally:
            self.undo_to(0)
            for operation in operations:
                self._apply(operation)

    @property
    def placed(self) -> list[tuple[Task, int]]:
        """The tasks that have a place now, or one that others leave, with their rows."""
        return [
            pair
            for operation in self._operations
            if operation.status is not TaskStatus.RELEASING
            for pair in zip(operation.tasks, operation.rows, strict=True)
        ]

    def victims(self, start: int = 0) -> list[JobState]:
        """Return the job of each task that has to go by the operations from one on."""
        leaving = (each for each in self._operations[start:] if each.status is TaskStatus.RELEASING)
        return [operation.job for operation in leaving for _ in operation.tasks]

    @property
    def rows(self) -> Iterator[int]:
        """The rows of the nodes that some operation is about."""
        return (row for operation in self._operations for row in operation.rows)

    def commit(self) -> None:
        """Keep the operations."""
        self._allocations.commit(self._operations)
        self._close()

    def roll_back(self) -> None:
        """Undo the operations, the last one first."""
        self.undo_to(0)
        self._close()

    def _apply(self, operation: Operation) -> None:
        assert self._open, "a statement that has ended takes no operations"
        self._allocations.apply(operation)
        self._operations.append(operation)

    def _close(self) -> None:
        self._open = False
