"""Dominant resource fairness between the jobs of a queue."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.engine.plugin import Key, Plugin
from scheduler.engine.states import JobState
from scheduler.model import vectors
from scheduler.model.snapshot import GroupKey, Task
from scheduler.model.vectors import Vector


class Drf(Plugin):
    """The job with the smallest dominant share of the cluster goes first."""

    name = "drf"

    def job_key(self, job: JobState) -> Key:
        """Order jobs by the largest part of any resource of the cluster that they hold."""
        return self._share(job.allocated)

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose tasks of jobs that keep no smaller a share than the preemptor's job will have."""
        session, left = self.session, dict[GroupKey, Vector]()
        job = session.victims.job_of(preemptor)
        mine = self._share(vectors.add(job.allocated, session.vector(preemptor.task_class)))
        chosen = []
        for task in candidates:
            owner = session.victims.job_of(task)
            rest = vectors.subtract(left.get(owner.info.key, owner.allocated), session.vector(task.task_class))
            if mine <= self._share(rest):
                left[owner.info.key] = rest
                chosen.append(task)
        return chosen

    def _share(self, amounts: Vector) -> float:
        return vectors.share(amounts, self.session.snapshot.table.total, self.session.axes.shared)
