"""The running tasks that may be evicted, by node: candidates of the actions preempt and reclaim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from scheduler.engine.states import JobState
from scheduler.model.node_table import NodeTable
from scheduler.model.snapshot import Task, TaskClass, TaskStatus
from scheduler.model.vectors import Matrix

_RUNS: Final = frozenset({TaskStatus.RUNNING, TaskStatus.BOUND})


class Victims:
    """The evictable tasks of a cycle by queue and node, and the jobs that all tasks belong to.

    ``leaving``: uids of those that are evicted already, kept up to date by who evicts. ``request``: what a task takes.
    ``stand_ins``: the jobs of tasks that stand for pods, kept up to date by who makes such.
    """

    def __init__(
        self,
        jobs: Sequence[JobState],
        table: NodeTable,
        leaving: AbstractSet[str],
        request: Callable[[TaskClass], Matrix],
        stand_ins: Mapping[str, JobState],
    ) -> None:
        self._leaving, self._request, self._stand_ins = leaving, request, stand_ins
        self._shape = table.allocatable.shape
        self._jobs = {task.uid: job for job in jobs for task in job.info.tasks}
        self._on: dict[tuple[str, int], list[Task]] = {}
        self._sums: dict[str, Matrix] = {}
        self._owners: dict[str, list[JobState]] = {}
        rows = table.row
        for job in jobs:
            mine = [each for each in job.info.tasks if each.status in _RUNS and each.preemptable and each.node in rows]
            if mine:
                self._owners.setdefault(job.info.queue, []).append(job)
            for task in mine:
                self._on.setdefault((job.info.queue, rows[task.node]), []).append(task)
                self._sum(job)[rows[task.node]] += request(task.task_class)

    def job_of(self, task: Task) -> JobState:
        """Return the job of a task."""
        return self._jobs.get(task.uid) or self._stand_ins[task.uid]

    def on_node(self, queue: str, row: int) -> list[Task]:
        """Return the tasks of a queue's jobs that may still be evicted from a node."""
        return [task for task in self._on.get((queue, row), ()) if task.uid not in self._leaving]

    def owners(self, queue: str) -> Sequence[JobState]:
        """Return the jobs of a queue that have tasks which might be evicted."""
        return self._owners.get(queue, ())

    def of_queue(self, queue: str) -> Iterator[tuple[int, Task]]:
        """Return all tasks of a queue's jobs that might be evicted, each with its row; those that leave already, too."""
        for (name, row), tasks in self._on.items():
            if name == queue:
                yield from [(row, task) for task in tasks]

    def classes(self) -> set[TaskClass]:
        """Return the classes of all tasks that might be evicted."""
        return {task.task_class for tasks in self._on.values() for task in tasks}

    def amounts(self, queue: str) -> Matrix:
        """Return what those tasks use, [nodes, resources]; not to be changed."""
        known = self._sums.get(queue)
        return known if known is not None else np.zeros(self._shape, dtype=np.int64)

    def evicted(self, job: JobState, kind: TaskClass, row: int, sign: int) -> None:
        """Learn that a task is evicted (1), or that it is not after all (-1); only `Allocations` calls this."""
        self._sum(job)[row] -= sign * self._request(kind)

    def _sum(self, job: JobState) -> Matrix:
        queue = job.info.queue
        if queue not in self._sums:
            self._sums[queue] = np.zeros(self._shape, dtype=np.int64)
        return self._sums[queue]
