"""backfill: fill what is idle with tasks that their queue's share alone makes wait."""

from __future__ import annotations

from scheduler.engine import messages, placement
from scheduler.engine.action import Action
from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.job_order import JobOrder
from scheduler.engine.session import Session
from scheduler.engine.states import JobState, QueueState
from scheduler.model import vectors
from scheduler.model.obstacle import Obstacle
from scheduler.model.snapshot import Task


class Backfill(Action):
    """Places what allocate left, beyond what queues deserve but within their capability.

    While a job that its share lets run waits for room, only tasks that ask for nothing are placed: what is idle is
    what that job is waiting for to grow. Once nodes are reserved for it, what is idle elsewhere is filled.
    """

    name = "backfill"

    def __call__(self, session: Session, _: BuiltinArguments, /) -> None:
        """Place what can be placed."""
        line_waits = any(job.blocked_class is not None and job is not session.reservation.job for job in session.jobs)
        for job in session.jobs:
            session.retry(job)
        order = JobOrder(
            session,
            [
                job
                for job in session.jobs
                if job.waiting and not (line_waits and _asks(job)) and placement.may_run(session, job)
            ],
        )
        for queue, job in order:
            if placement.turn(session, queue, job, lambda *asked: _allowed(session, *asked)):
                order.requeue(job)


def _asks(job: JobState) -> bool:
    return any(bool(task.task_class.request) for task in job.waiting)


def _allowed(session: Session, queue: QueueState, task: Task, count: int) -> Obstacle | None:
    """Object where so many tasks would go beyond their queue's capability, or into what is guaranteed to other queues.

    So may plugins whose word isn't about shares: ancestors have capabilities, too.
    """
    axes = session.axes
    wanted = vectors.scale(session.vector(task.task_class), count)
    own = vectors.subtract(axes.limit(queue.info.capability), queue.allocated)
    if not vectors.fits(wanted, own):
        where = f"left of the capability of queue {queue.name}"
        return messages.obstacle(count, wanted, own, axes, where, queue=queue.name, capped=True)
    free = idle = vectors.total(session.idle.clip(min=0))
    for other in session.queues.values():
        if other is not queue and other.info.guarantee is not None:
            due = vectors.subtract(axes.vector(other.info.guarantee), other.allocated)
            free = vectors.subtract(free, vectors.above_zero(due))
    # What doesn't even fit what is idle finds no node, and is told so.
    if vectors.fits(wanted, idle) and not vectors.fits(wanted, free):
        where = "free beside what is guaranteed to other queues"
        return messages.obstacle(count, wanted, free, axes, where)
    return session.extensions.allocatable(queue, task, count, beyond=True)
