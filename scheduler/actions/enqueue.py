"""enqueue: let Pending groups in, so that their pods may be created and placed."""

from __future__ import annotations

from typing import Final

from scheduler import placing
from scheduler.messages import counted
from scheduler.plugin import Arguments, Obstacle, Reason, Stage
from scheduler.policy import Action
from scheduler.session import JobState, QueueState, Session
from scheduler.snapshot import Phase
from scheduler.turns import Turns

_MOMENT: Final = 3.0
"""Seconds that a group's Job may come after it."""


class Enqueue(Action):
    """First come first served within the order of queues and jobs; one that has to wait holds up nobody behind it.

    A job that was let in before its Job was known, when it seemed to need nothing, is judged again as long as nothing
    of it was started.
    """

    name = "enqueue"

    def __call__(self, session: Session, _: Arguments, /) -> None:
        """Give each Pending job its turn."""
        for job in session.jobs:
            if job.phase is Phase.INQUEUE and job.job.withheld:
                session.take_back(job)
        pending = [job for job in session.jobs if job.phase is Phase.PENDING and session.queue_of(job) is not None]
        past = {queue.name: sum(job.unfinished for job in queue.jobs) for queue in session.queues.values()}
        for queue, job in Turns(session, pending):
            job.obstacle = (
                _held(job)
                or placing.unreserved(job)
                or _early(session, job)
                or _closed(queue)
                or _crowded(queue, past[queue.name])
                # What a reservation keeps for it is its room.
                or session.enqueueable(job, room=job is not session.holder)
            )
            if job.obstacle is None:
                session.let_in(job)
                past[queue.name] += 1


def _held(job: JobState) -> Obstacle | None:
    return Obstacle(Reason.NOT_ENOUGH_TASKS, job.job.held) if job.job.held else None


def _early(session: Session, job: JobState) -> Obstacle | None:
    """Wait a moment for what a group is made for: people apply the group first, and its Job with the same command."""
    age = session.now.timestamp() - job.job.created
    if not job.unknown_need or age >= _MOMENT:
        return None
    return Obstacle(Reason.NOT_ENOUGH_TASKS, "no pod or Job is known yet that names it")


def _closed(queue: QueueState) -> Obstacle | None:
    if queue.info.state != "Closed":
        return None
    words = f"queue {queue.name} is Closed; open it, or delete the group"
    return Obstacle(Reason.NOT_ENOUGH_QUOTA, words, Stage.QUEUE)


def _crowded(queue: QueueState, past: int) -> Obstacle | None:
    most = queue.info.max_groups
    if not most or past < most:
        return None
    return Obstacle(
        Reason.NOT_ENOUGH_QUOTA,
        f"queue {queue.name} has {counted(past, 'unfinished PodGroup')} past Pending and its maxPodGroups is {most}",
        Stage.QUEUE,
    )
