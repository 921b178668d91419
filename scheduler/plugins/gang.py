"""All or nothing: a job starts with its minimum of tasks, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from muster.model.text import counted
from scheduler.engine.plugin import PERMIT, Key, Plugin, Vote
from scheduler.engine.states import JobState
from scheduler.engine.view import SessionView
from scheduler.model import vectors
from scheduler.model.obstacle import Obstacle, Reason
from scheduler.model.snapshot import GroupKey, JobInfo, Task, TaskStatus
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
            there = job.roles[role, TaskStatus.ALLOCATED] + sum(task.role == role for task in job.waiting)
            if there < wanted:
                return Obstacle(
                    Reason.NOT_ENOUGH_TASKS,
                    f"minTaskMember requires {counted(wanted, 'pod')} of task {role!r} and {there or 'none'} can run; "
                    f"waiting for {wanted - there} more",
                )
        for place, policy in enumerate(job.info.subgroups):
            there = _possible_subgroups(job, place)
            if there < policy.minimum:
                return Obstacle(
                    Reason.NOT_ENOUGH_TASKS,
                    f"{counted(policy.minimum, 'subgroup')} {policy.name!r} of {counted(policy.size, 'pod')} have to start "
                    f"together and {there or 'none'} can; waiting for pods of {policy.minimum - there} more",
                )
        return None

    def ready(self, job: JobState) -> bool:
        """Whether the minimum is placed."""
        if job.ready < job.info.min_member:
            return False
        if job.info.subgroups and not _has_subgroups(job, pipelined=False):
            return False
        if not job.info.min_task_member:
            return True
        return all(job.roles[role, TaskStatus.ALLOCATED] >= least for role, least in job.info.min_task_member.items())

    def missing(self, job: JobState) -> int:
        """Count what is left of the minimum."""
        return job.info.min_member - job.ready

    def starving(self, job: JobState) -> bool:
        """Whether it lacks some of its minimum, reserved places counted."""
        return not self._enough(job)

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose what jobs have beyond their minimum and their minResources, and what is borrowed; anything, where whole jobs may go."""
        del preemptor
        return candidates if self._takes_whole("preempt") else self._spared(candidates, stated=True)

    def reclaimable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose what jobs have beyond their minimum, and what is borrowed; anything, where the action may evict whole jobs."""
        del preemptor
        return candidates if self._takes_whole("reclaim") else self._spared(candidates, stated=False)

    def _takes_whole(self, action: str) -> bool:
        return bool(getattr(self.session.policy.arguments.get(action), "whole", False))

    def _spared(self, candidates: Sequence[Task], *, stated: bool) -> Sequence[Task]:
        """Choose tasks that may go together; with ``stated``, a job also keeps what its minResources state.

        A job whose minimum is one pod, which is no gang, has neither protection for what its queue has beyond what it deserves.
        """
        tally, chosen = _ChosenVictims(self.session), list[Task]()
        for task in candidates:
            job = self.session.victims.job_of(task)
            if self._is_surplus(job, task, tally, stated=stated) or (_is_single(job.info) and tally.borrows(job, task)):
                tally.add(job, task)
                chosen.append(task)
        return chosen

    def _is_surplus(self, job: JobState, task: Task, tally: _ChosenVictims, *, stated: bool) -> bool:
        gone = tally.of(job)
        if job.info.min_task_member or job.info.disruption.whole:
            spared = job.spares(Counter([task.role, *[each.role for each in gone]]))
        else:
            spared = job.ready - len(gone) > job.info.min_member
        if not spared or not stated or job.info.min_resources is None:
            return spared
        least, axes = self.session.axes.request(job.info.min_resources), self.session.axes
        amounts = self.session.vector(task.task_class)
        rest = vectors.subtract(tally.left(job), amounts)
        return all(rest[place] >= least[place] for place in axes.shared if amounts[place])

    def pipelined(self, job: JobState) -> Vote:
        """Permit holding places when they make up the minimum; reject else."""
        if self._enough(job):
            return PERMIT
        return Obstacle(Reason.NOT_ENOUGH_RESOURCES, f"fewer than {counted(job.info.min_member, 'pod')} find a place")

    def _enough(self, job: JobState) -> bool:
        if job.ready + job.pipelined < job.info.min_member:
            return False
        return _has_subgroups(job, pipelined=True) and all(
            job.roles[role, TaskStatus.ALLOCATED] + job.roles[role, TaskStatus.PIPELINED] >= least
            for role, least in job.info.min_task_member.items()
        )


class _ChosenVictims:
    """Tasks that are to go: what their jobs and queues have without them, worked out where it is asked for."""

    def __init__(self, session: SessionView) -> None:
        self._session = session
        self._by_job: dict[GroupKey, list[Task]] = {}
        self._by_queue: dict[str, list[Task]] = {}
        self._jobs: dict[GroupKey, Vector] = {}
        self._queues: dict[str, Vector] = {}

    def of(self, job: JobState) -> Sequence[Task]:
        """Return those of a job."""
        return self._by_job.get(job.info.key, ())

    def add(self, job: JobState, task: Task) -> None:
        """Count one more."""
        key, queue = job.info.key, job.info.queue
        self._by_job.setdefault(key, []).append(task)
        self._by_queue.setdefault(queue, []).append(task)
        if key in self._jobs:
            self._jobs[key] = vectors.subtract(self._jobs[key], self._session.vector(task.task_class))
        if queue in self._queues:
            self._queues[queue] = vectors.subtract(self._queues[queue], self._session.vector(task.task_class))

    def left(self, job: JobState) -> Vector:
        """Return what a job has without them."""
        if job.info.key not in self._jobs:
            self._jobs[job.info.key] = self._without(job.allocated, self.of(job))
        return self._jobs[job.info.key]

    def borrows(self, job: JobState, task: Task) -> bool:
        """Whether the queue of a job has more than it deserves of anything that a task uses; where nobody divides, it hasn't."""
        queue = self._session.queue_of(job)
        deserved = self._session.deserved(queue) if queue is not None else None
        if queue is None or deserved is None:
            return False
        if queue.name not in self._queues:
            self._queues[queue.name] = self._without(queue.allocated, self._by_queue.get(queue.name, ()))
        has, amounts = self._queues[queue.name], self._session.vector(task.task_class)
        return any(amounts[place] and has[place] > deserved[place] for place in self._session.axes.shared)

    def _without(self, amounts: Vector, tasks: Sequence[Task]) -> Vector:
        for task in tasks:
            amounts = vectors.subtract(amounts, self._session.vector(task.task_class))
        return amounts


def _has_subgroups(job: JobState, *, pipelined: bool) -> bool:
    """Whether a job has as many subgroups as each of its policies requires."""
    return all(
        not policy.minimum or job.complete_subgroups(place, pipelined=pipelined) >= policy.minimum
        for place, policy in enumerate(job.info.subgroups)
    )


def _possible_subgroups(job: JobState, policy: int) -> int:
    """Return how many subgroups of a policy have enough pods, placed or not."""
    there = Counter(task.subgroup for task in job.waiting)
    for (key, _, status), count in job.places.items():
        if status is TaskStatus.ALLOCATED:
            there[key] += count
    size = job.info.subgroups[policy].size
    return sum(count >= size for key, count in there.items() if key is not None and key[0] == policy)


def may_lose_any(info: JobInfo) -> bool:
    """Whether a job may be left without one of its tasks at all, whoever asks: it has more than its minimum, or is no gang."""
    whole = info.disruption.whole
    return (info.task_counts.ready > info.min_member and not whole) or _is_single(info)


def _is_single(info: JobInfo) -> bool:
    """Whether one pod is all that has to run together, and may go alone."""
    return not info.disruption.whole and info.min_member <= 1 and sum(info.min_task_member.values()) <= 1
