"""The obstacles of a session's jobs: why each that doesn't run stands where it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from muster.model.text import counted
from scheduler.engine import messages, placement, requeue
from scheduler.engine.explain import Explanations
from scheduler.engine.session import Session
from scheduler.engine.states import JobState
from scheduler.model.obstacle import Obstacle, Reason, Stage
from scheduler.model.records import Record
from scheduler.model.snapshot import READY, GroupKey, JobInfo, Phase, Task, TaskStatus

_MOMENT: Final = 3.0
"""Seconds that the first pods of a workload may come after its group."""

_NO_NODE_HELPS: Final = frozenset({Reason.NOT_ENOUGH_QUOTA, Reason.QUEUE_CLOSED})


class Obstacles:
    """Reads a session whose actions are done. Each job is looked at once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._explanations = Explanations(session)
        self._obstacles: dict[GroupKey, Obstacle | None] = {}

    def of(self, job: JobState) -> Obstacle | None:
        """Return what keeps a job from its next step; None where nothing does."""
        key = job.info.key
        if key not in self._obstacles:
            found, paused = self._find(job), requeue.evictions_paused(self._session, job)
            if found is not None and paused:
                found = replace(found, message=f"{found.message}; {paused}")
            self._obstacles[key] = found
        return self._obstacles[key]

    def _find(self, job: JobState) -> Obstacle | None:
        if job.info.restarts:
            # Whatever else it has to wait for, it waits for once it is Pending.
            refused = placement.unreserved(job)
            words = f"it is Completed, and {messages.next_start(job.info)}"
            return replace(refused, message=f"{words}: {refused.message}") if refused is not None else None
        if self._session.queue_of(job) is None:
            wrong = self._session.snapshot.unreadable.get(job.info.queue)
            if wrong is not None:
                words = f"queue {job.info.queue} can't be read and takes no part: {wrong}; correct it"
                return Obstacle(Reason.NOT_ENOUGH_QUOTA, words, Stage.QUEUE)
            words = f"queue {job.info.queue} doesn't exist; create it, or name another in spec.queue"
            return Obstacle(Reason.QUEUE_NOT_FOUND, words, Stage.QUEUE)
        if (unreserved := placement.unreserved(job)) is not None:
            return unreserved
        if (
            job.obstacle is not None
            and job.obstacle.reason is Reason.NOT_ENOUGH_TASKS
            and self._tasks_on_their_way(job)
        ):
            return None
        if job.rolled_back is not None and job.waiting:
            return self._rolled_back(job, job.rolled_back, job.waiting[0])
        if job.blocked_class is not None and job.obstacle is None:
            return self._explanations.of(job, job.blocked_class)
        # Where its queue's share and the nodes' room are both too small, the room is what people can do something about;
        # no node helps a queue that is used up.
        capped = job.obstacle is not None and job.obstacle.reason in _NO_NODE_HELPS
        if (
            job.unfinished
            and job.obstacle is not None
            and not capped
            and job.waiting
            and not self._session.extensions.valid(job)
        ):
            return self._explanations.shortage(job, job.waiting[0].task_class) or job.obstacle
        return job.obstacle

    def _rolled_back(self, job: JobState, why: Obstacle, task: Task) -> Obstacle:
        """Say why a job was taken back, and what it lacked: its pods, nodes, or the rest of its queue."""
        if why.reason is Reason.NOT_ENOUGH_TASKS:
            return why
        queue = self._session.queue_of(job)
        lack = self._explanations.shortage(job, task.task_class)
        if lack is None and queue is not None:
            lack = self._session.extensions.allocatable(queue, task)
        lack = lack or self._explanations.of(job, task.task_class)
        return replace(lack, message=f"{why.message}: {lack.message}")

    def lacks_nodes(self, job: JobState) -> bool:
        """Whether more nodes are all that a job waits for."""
        if job.phase is Phase.COMPLETED or job.info.unreserved:
            return False
        if job.obstacle is None:
            return job.blocked_class is not None and self._explanations.of(job, job.blocked_class).nodes
        # Of a gang of which pods are still missing, nobody knows whether it will ever start.
        return job.obstacle.nodes and self._session.extensions.valid(job) is None

    def records(self, waiting: Sequence[JobState]) -> Mapping[GroupKey, Record]:
        """Return what is known of jobs that don't run."""
        ahead = self._line(waiting)
        return {job.info.key: self._record(job, ahead.get(job.info.key, 0)) for job in waiting}

    def _line(self, waiting: Iterable[JobState]) -> Mapping[GroupKey, int]:
        """Return how many groups of its queue have their turn before each."""
        queues: dict[str, list[JobState]] = {}
        for job in waiting:
            if not self._session.extensions.ready(job):
                queues.setdefault(job.info.queue, []).append(job)
        return {
            job.info.key: place
            for jobs in queues.values()
            for place, job in enumerate(sorted(jobs, key=self._session.extensions.job_key))
        }

    def _record(self, job: JobState, ahead: int) -> Record:
        key, queue = job.info.key, job.info.queue
        if self._session.extensions.ready(job) and job.ready and not job.info.restarts:
            counts = job.info.counts
            there = sum([counts.get(status, 0) for status in READY])
            have = f"{counted(job.ready, 'pod')} {'has a node' if job.ready == 1 else 'have nodes'}"
            words = f"{have}, {there or 'none'} bound already; the minimum is {counted(job.info.min_member, 'pod')}"
            return Record(key, queue, Stage.BIND, None, words, 0)
        if job.info.restarts and self.of(job) is None:
            words = f"{messages.next_start(job.info)}: it is started again, and reserves what is missing of its minimum"
            return Record(key, queue, Stage.QUOTA, None, words, ahead)
        if job.pipelined and job.obstacle is None:
            return Record(key, queue, Stage.NODES, None, messages.places(job.pipelined, job.kept), ahead)
        obstacle = self.of(job)
        if obstacle is None:
            stage, words = Stage.ENQUEUE, "it has its turn in the next cycle"
            if requeue.deserted(job):
                stage, words = Stage.GANG, "its workload has no pods yet"
            elif job.unfinished:
                stage, words = Stage.GANG, _to_come(job.info)
            return Record(key, queue, stage, None, words, ahead)
        stage = obstacle.stage or _stage(obstacle.reason, job)
        kind = job.blocked_class or (job.waiting[0].task_class if job.waiting else None)
        nodes = self._explanations.nodes(job, kind) if stage is Stage.NODES and kind is not None else None
        return Record(key, queue, stage, obstacle.reason, obstacle.message, ahead, obstacle.limit, nodes)

    def growth(self, job: JobState) -> Record:
        """Return why pods of a job that runs, beyond its minimum, have no node."""
        task = job.unplaced[0] if job.unplaced else job.waiting[0]
        kind, queue = job.blocked_class or task.task_class, self._session.queue_of(job)
        found = self.of(job)
        if found is None and queue is not None:
            found = self._session.extensions.allocatable(queue, task)
        found = found or self._explanations.of(job, kind)
        stage = found.stage or Stage.NODES
        nodes = self._explanations.nodes(job, kind) if stage is Stage.NODES else None
        ahead = sum(not self._session.extensions.ready(each) for each in queue.jobs) if queue is not None else 0
        return Record(job.info.key, job.info.queue, stage, found.reason, found.message, ahead, found.limit, nodes)

    def _tasks_on_their_way(self, job: JobState) -> bool:
        """Whether the pods that are missing are being created: no trouble, only a matter of time."""
        if job.phase is Phase.PENDING and requeue.deserted(job):
            # A workload's group is made when the workload is, and its pods come after.
            return not self._session.deadlines.passed(job.info.created + _MOMENT)
        coming = sum(each.count for each in job.info.expected_pods if not each.suspended)
        return job.phase is Phase.INQUEUE and job.ready + len(job.waiting) + coming >= job.info.min_member


def _to_come(job: JobInfo) -> str:
    """Write that a group was admitted and its pods aren't there yet, or may not be scheduled yet."""
    gated = job.counts.get(TaskStatus.GATED, 0)
    if gated:
        has, is_ = ("has", "is") if gated == 1 else ("have", "are")
        return (
            f"{counted(gated, 'pod')} {has} scheduling gates, and {is_} scheduled once whoever set these removes them"
        )
    coming, least = sum(each.count for each in job.expected_pods), max(job.min_member, 1)
    there = sum(count for status, count in job.counts.items() if status in READY or status is TaskStatus.PENDING)
    if coming and there + coming >= least:
        return f"its {'Job is' if len(job.expected_pods) == 1 else 'Jobs are'} creating {counted(coming, 'pod')}"
    if not job.tasks and not job.expected_pods:
        return "it is admitted, and its pods do not exist yet"
    exist = f"{there or 'none'} {'exists' if there == 1 else 'exist'}"
    creates = "Job creates" if len(job.expected_pods) == 1 else "Jobs create"
    more = f"its {creates} {coming} more" if coming else "no Job creates more"
    return f"{counted(least, 'pod')} {'has' if least == 1 else 'have'} to start together; {exist}, and {more}"


def _stage(reason: Reason, job: JobState) -> Stage:
    """Tell where a group stands whose obstacle doesn't say."""
    if reason is Reason.NOT_ENOUGH_QUOTA:
        return Stage.QUOTA
    if reason is Reason.NOT_ENOUGH_RESOURCES:
        return Stage.ENQUEUE if job.phase is Phase.PENDING else Stage.NODES
    return Stage.GANG
