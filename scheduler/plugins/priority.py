"""Order by priority: PodGroups by their priority class, pods by their own priority."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.engine.plugin import Key, Plugin
from scheduler.engine.states import JobState, priority
from scheduler.model.snapshot import Task


class Priority(Plugin):
    """Higher priorities first."""

    name = "priority"

    def job_key(self, job: JobState) -> Key:
        """Order jobs by the value of their priority class; none counts as the cluster's default class, or 0."""
        return -priority(job.info, self.session.snapshot.priorities)

    def starving(self, job: JobState) -> bool:
        """Whether some of it has no place."""
        return bool(job.waiting)

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose the tasks of jobs below the preemptor's, and of its own job those below itself."""
        owner = self.session.victims.job_of
        job = owner(preemptor)
        mine = self.job_key(job)
        return [
            task
            for task in candidates
            if (task.priority < preemptor.priority if owner(task) is job else self.job_key(owner(task)) > mine)
        ]

    def task_key(self, task: Task) -> Key:
        """Order tasks by the priority in their pod."""
        return -task.priority
