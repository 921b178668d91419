"""All or nothing: a job starts with its minimum of tasks, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from muster.model.amounts import NOTHING
from muster.model.text import counted
from scheduler.engine.plugin import PERMIT, Key, Plugin, Vote
from scheduler.engine.states import JobState
from scheduler.model import vectors
from scheduler.model.obstacle import Obstacle, Reason
from scheduler.model.snapshot import GroupKey, Status, Task
from scheduler.model.vectors import Vector


class Gang(Plugin):
    """Holds jobs to minMember and minTaskMember. Jobs that can't start yet come before those that only grow."""

    name = "gang"
    guards = True

    def job_key(self, job: JobState) -> Key:
        """Order jobs: those below their minimum first."""
        return self.ready(job)

    def valid(self, job: JobState) -> Obstacle | None:
        """Object while fewer pods exist than have to start together."""
        least, there = job.info.min_member, job.ready + len(job.waiting)
        if there < least:
            exist = "exists" if there == 1 else "exist"
            return Obstacle(
                Reason.NOT_ENOUGH_TASKS,
                f"{counted(least, 'pod')} have to start together and {there or 'none'} {exist}; waiting for {least - there} more",
            )
        for role, wanted in sorted(job.info.min_task_member.items()):
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
        if job.ready < job.info.min_member:
            return False
        if not job.info.min_task_member:
            return True
        return all(job.roles[role, Status.ALLOCATED] >= least for role, least in job.info.min_task_member.items())

    def missing(self, job: JobState) -> int:
        """Count what is left of the minimum."""
        return job.info.min_member - job.ready

    def starving(self, job: JobState) -> bool:
        """Whether it lacks some of its minimum, reserved places counted."""
        return not self._enough(job)

    def preemptable(self, claimant: Task, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose what jobs have beyond their minimum and their minResources; anything, where whole jobs may go."""
        del claimant
        return candidates if self._takes_whole("preempt") else self._surplus(self._beyond_stated(candidates))

    def reclaimable(self, claimant: Task, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose what jobs have beyond their minimum; anything, where the action may evict whole jobs."""
        del claimant
        return candidates if self._takes_whole("reclaim") else self._surplus(candidates)

    def _takes_whole(self, action: str) -> bool:
        return bool(getattr(self.session.policy.arguments.get(action), "whole", False))

    def _beyond_stated(self, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose tasks without which their jobs still have what their minResources state, of what those tasks use."""
        axes, left = self.session.axes, dict[GroupKey, Vector]()
        chosen = []
        for task in candidates:
            job = self.session.victims.job_of(task)
            stated = axes.request(job.info.min_resources or NOTHING)
            amounts = self.session.vector(task.task_class)
            rest = vectors.subtract(left.get(job.info.key, job.allocated), amounts)
            if all(rest[place] >= stated[place] for place in axes.shared if amounts[place]):
                left[job.info.key] = rest
                chosen.append(task)
        return chosen

    def _surplus(self, candidates: Sequence[Task]) -> Sequence[Task]:
        gone: dict[GroupKey, Counter[str]] = {}
        chosen = []
        for task in candidates:
            job = self.session.victims.job_of(task)
            roles = gone.setdefault(job.info.key, Counter())
            roles[task.role] += 1
            if job.spares(roles):
                chosen.append(task)
            else:
                roles[task.role] -= 1
        return chosen

    def pipelined(self, job: JobState) -> Vote:
        """Permit holding places when they make up the minimum; reject else."""
        if self._enough(job):
            return PERMIT
        return Obstacle(Reason.NOT_ENOUGH_RESOURCES, f"fewer than {counted(job.info.min_member, 'pod')} find a place")

    def _enough(self, job: JobState) -> bool:
        return job.ready + job.pipelined >= job.info.min_member and all(
            job.roles[role, Status.ALLOCATED] + job.roles[role, Status.PIPELINED] >= least
            for role, least in job.info.min_task_member.items()
        )
