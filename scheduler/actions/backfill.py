"""backfill: fill what is idle with tasks that their queue's share alone makes wait."""

from __future__ import annotations

from scheduler import messages, placing, vectors
from scheduler.plugin import Arguments, Obstacle, Reason
from scheduler.policy import Action
from scheduler.session import JobState, QueueState, Session
from scheduler.snapshot import Task
from scheduler.turns import Turns


class Backfill(Action):
    """Places what allocate left, beyond what queues deserve but within their capability.

    While a job that its share lets run waits for room, only tasks that ask for nothing are placed: what is idle is
    what that job is waiting for to grow.
    """

    name = "backfill"

    def __call__(self, session: Session, _: Arguments, /) -> None:
        """Place what can be placed."""
        line_waits = any(job.stuck is not None for job in session.jobs)
        for job in session.jobs:
            session.reconsider(job)
        turns = Turns(
            session,
            [
                job
                for job in session.jobs
                if job.waiting and not (line_waits and _asks(job)) and placing.may_run(session, job)
            ],
        )
        for queue, job in turns:
            if placing.turn(session, queue, job, lambda queue, task: _within_capability(session, queue, task)):
                turns.again(job)


def _asks(job: JobState) -> bool:
    return any(bool(task.kind.request) for task in job.waiting)


def _within_capability(session: Session, queue: QueueState, task: Task) -> Obstacle | None:
    wanted = task.kind.vector(session.axes)
    free = vectors.subtract(session.axes.limit(queue.info.capability), queue.allocated)
    if vectors.fits(wanted, free):
        return None
    where = f"left of the capability of queue {queue.name}"
    return Obstacle(Reason.NOT_ENOUGH_RESOURCES, messages.shortage(1, wanted, free, session.axes, where))
