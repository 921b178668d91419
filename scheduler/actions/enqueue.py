"""enqueue: let Pending groups in, so that their pods may be created and placed."""

from __future__ import annotations

from scheduler.messages import counted
from scheduler.plugin import Arguments, Obstacle, Reason
from scheduler.policy import Action
from scheduler.session import JobState, QueueState, Session
from scheduler.snapshot import Phase
from scheduler.turns import Turns


class Enqueue(Action):
    """First come first served within the order of queues and jobs; one that has to wait holds up nobody behind it."""

    name = "enqueue"

    def __call__(self, session: Session, _: Arguments, /) -> None:
        """Give each Pending job its turn."""
        pending = [job for job in session.jobs if job.phase is Phase.PENDING and session.queue_of(job) is not None]
        past = {queue.name: sum(job.unfinished for job in queue.jobs) for queue in session.queues.values()}
        for queue, job in Turns(session, pending):
            job.obstacle = _held(job) or _closed(queue) or _crowded(queue, past[queue.name]) or session.enqueueable(job)
            if job.obstacle is None:
                session.let_in(job)
                past[queue.name] += 1


def _held(job: JobState) -> Obstacle | None:
    return Obstacle(Reason.NOT_ENOUGH_TASKS, job.job.held) if job.job.held else None


def _closed(queue: QueueState) -> Obstacle | None:
    if queue.info.state != "Closed":
        return None
    return Obstacle(Reason.NOT_ENOUGH_QUOTA, f"queue {queue.name} is Closed; open it, or delete the group")


def _crowded(queue: QueueState, past: int) -> Obstacle | None:
    most = queue.info.max_groups
    if not most or past < most:
        return None
    return Obstacle(
        Reason.NOT_ENOUGH_QUOTA,
        f"queue {queue.name} has {counted(past, 'unfinished PodGroup')} past Pending and its maxPodGroups is {most}",
    )
