"""Order by priority: PodGroups by their priority class, pods by their own priority."""

from __future__ import annotations

from scheduler.plugin import Key, Plugin
from scheduler.session import JobState
from scheduler.snapshot import Task


class Priority(Plugin):
    """Higher priorities first."""

    name = "priority"

    def job_key(self, job: JobState) -> Key:
        """Order jobs by the value of their priority class; none counts as the cluster's default class, or 0."""
        priorities = self.session.snapshot.priorities
        return -priorities.get(job.job.priority_class, priorities.get("", 0))

    def task_key(self, task: Task) -> Key:
        """Order tasks by the priority in their pod."""
        return -task.priority
