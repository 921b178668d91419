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
        """Choose what jobs have beyond their minimum and their minResources, and what is borrowed; anything, where whole jobs may go."""
        del claimant
        return candidates if self._takes_whole("preempt") else self._spared(candidates, stated=True)

    def reclaimable(self, claimant: Task, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose what jobs have beyond their minimum, and what is borrowed; anything, where the action may evict whole jobs."""
        del claimant
        return candidates if self._takes_whole("reclaim") else self._spared(candidates, stated=False)

    def _takes_whole(self, action: str) -> bool:
        return bool(getattr(self.session.policy.arguments.get(action), "whole", False))

    def _spared(self, candidates: Sequence[Task], *, stated: bool) -> Sequence[Task]:
        """Choose tasks that may go together; with ``stated``, a job also keeps what its minResources state.

        A job whose minimum is one pod, which is no gang, has neither protection for what its queue has beyond what it deserves.
        """
        gone, left = dict[GroupKey, tuple[Counter[str], Vector]](), dict[str, Vector]()
        chosen = []
        for task in candidates:
            job, amounts = self.session.victims.job_of(task), self.session.vector(task.task_class)
            before, lost = gone.get(job.info.key, (Counter(), self.session.axes.zero))
            roles, lacking = before + Counter([task.role]), vectors.add(lost, amounts)
            spared = job.spares(roles) and not (stated and self._below_stated(job, lacking, amounts))
            if spared or (_is_single(job) and self._is_borrowed(job, amounts, left)):
                gone[job.info.key] = (roles, lacking)
                left[job.info.queue] = vectors.subtract(self._queue_has(job, left), amounts)
                chosen.append(task)
        return chosen

    def _below_stated(self, job: JobState, lacking: Vector, amounts: Vector) -> bool:
        """Whether a job without so much has less than its minResources state, of what the last task to go uses."""
        stated, axes = self.session.axes.request(job.info.min_resources or NOTHING), self.session.axes
        return any(amounts[place] and job.allocated[place] - lacking[place] < stated[place] for place in axes.shared)

    def _is_borrowed(self, job: JobState, amounts: Vector, left: dict[str, Vector]) -> bool:
        """Whether the queue of a job has more than it deserves of anything that a task uses; where nobody divides, it hasn't."""
        queue = self.session.queue_of(job)
        deserved = self.session.deserved(queue) if queue is not None else None
        if deserved is None:
            return False
        has = self._queue_has(job, left)
        return any(amounts[place] and has[place] > deserved[place] for place in self.session.axes.shared)

    def _queue_has(self, job: JobState, left: dict[str, Vector]) -> Vector:
        return left.get(job.info.queue) or self.session.queues[job.info.queue].allocated

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


def _is_single(job: JobState) -> bool:
    """Whether one pod is all that has to run together."""
    return max(job.info.min_member, sum(job.info.min_task_member.values())) <= 1
