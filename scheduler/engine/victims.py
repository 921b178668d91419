"""Who runs where, as far as it may be evicted: what the actions preempt and reclaim look for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.model.snapshot import Status, Task, TaskClass
from scheduler.model.vectors import Matrix

if TYPE_CHECKING:
    from scheduler.engine.session import JobState, Session

_RUNS: Final = frozenset({Status.RUNNING, Status.BOUND})


class Victims:
    """The evictable tasks of a session by queue and node, and the jobs that all tasks belong to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._owners = {task.uid: job for job in session.jobs for task in job.job.tasks}
        self._on: dict[tuple[str, int], list[Task]] = {}
        self._sums: dict[str, Matrix] = {}
        rows = session.snapshot.table.row
        for job in session.jobs:
            for task in job.job.tasks:
                if task.status in _RUNS and task.preemptable and task.node in rows:
                    self._on.setdefault((job.job.queue, rows[task.node]), []).append(task)
                    self._sum(job)[rows[task.node]] += session.picker.row_of(task.kind)

    def owner(self, task: Task) -> JobState:
        """Return the job of a task."""
        return self._owners[task.uid]

    def there(self, queue: str, row: int) -> list[Task]:
        """Return the tasks of a queue's jobs that may still be evicted from a node."""
        leaving = self._session.leaving
        return [task for task in self._on.get((queue, row), ()) if task.uid not in leaving]

    def amounts(self, queue: str) -> Matrix:
        """Return what those tasks use, [nodes, resources]; not to be changed."""
        known = self._sums.get(queue)
        return known if known is not None else np.zeros_like(self._session.idle)

    def evicted(self, job: JobState, kind: TaskClass, row: int, sign: int) -> None:
        """Learn that a task is evicted (1), or that it is not after all (-1)."""
        self._sum(job)[row] -= sign * self._session.picker.row_of(kind)

    def _sum(self, job: JobState) -> Matrix:
        queue = job.job.queue
        if queue not in self._sums:
            self._sums[queue] = np.zeros_like(self._session.idle)
        return self._sums[queue]
