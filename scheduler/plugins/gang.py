"""All or nothing: a job starts with its minimum of tasks, or not at all."""

from __future__ import annotations

from scheduler.messages import counted
from scheduler.plugin import PERMIT, Key, Obstacle, Plugin, Reason, Vote
from scheduler.session import JobState
from scheduler.snapshot import Status


class Gang(Plugin):
    """Holds jobs to minMember and minTaskMember. Jobs that can't start yet come before those that only grow."""

    name = "gang"

    def job_key(self, job: JobState) -> Key:
        """Order jobs: those below their minimum first."""
        return self.ready(job)

    def valid(self, job: JobState) -> Obstacle | None:
        """Object while fewer pods exist than have to start together."""
        least, there = job.job.min_member, job.ready + len(job.waiting)
        if there < least:
            exist = "exists" if there == 1 else "exist"
            return Obstacle(
                Reason.NOT_ENOUGH_TASKS,
                f"{counted(least, 'pod')} have to start together and {there or 'none'} {exist}; waiting for {least - there} more",
            )
        for role, wanted in sorted(job.job.min_task_member.items()):
            there = job.roles[role, Status.ALLOCATED] + sum(task.role == role for task in job.waiting)
            if there < wanted:
                return Obstacle(
                    Reason.NOT_ENOUGH_TASKS,
                    f"minTaskMember asks for {counted(wanted, 'pod')} of task {role!r} and {there or 'none'} can run; "
                    f"waiting for {wanted - there} more",
                )
        return None

    def ready(self, job: JobState) -> bool:
        """Whether the minimum is placed."""
        if job.ready < job.job.min_member:
            return False
        return all(job.roles[role, Status.ALLOCATED] >= least for role, least in job.job.min_task_member.items())

    def missing(self, job: JobState) -> int:
        """Count what is left of the minimum."""
        return job.job.min_member - job.ready

    def pipelined(self, job: JobState) -> Vote:
        """Permit holding places when they make up the minimum; reject else."""
        enough = job.ready + job.pipelined >= job.job.min_member and all(
            job.roles[role, Status.ALLOCATED] + job.roles[role, Status.PIPELINED] >= least
            for role, least in job.job.min_task_member.items()
        )
        if enough:
            return PERMIT
        return Obstacle(Reason.NOT_ENOUGH_RESOURCES, f"fewer than {counted(job.job.min_member, 'pod')} find a place")
