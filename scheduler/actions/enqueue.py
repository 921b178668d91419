"""enqueue: admit Pending groups, so that their pods may be created and placed."""

from __future__ import annotations

from typing import Final

from scheduler.engine import explain_network, placement, requeue, reserved_nodes
from scheduler.engine.action import Action
from scheduler.engine.job_order import JobOrder
from scheduler.engine.requeue import EnqueueArguments
from scheduler.engine.session import Session
from scheduler.engine.states import JobState
from scheduler.model.obstacle import Obstacle, Reason
from scheduler.model.snapshot import Phase

_MOMENT: Final = 3.0
"""Seconds that a group's Job may come after it."""


class Enqueue(Action):
    """First come first served within the order of queues and jobs; one that has to wait holds up nobody behind it.

    A job that was admitted before its Job was known, when it seemed to need nothing, is judged again as long as nothing
    of it was started. One that nothing comes of goes back, and is admitted again later. One that ran and lost pods of its
    minimum stays as it is, but what it lacks is held for it no longer.

    With autoscaling, a job that lacks nothing but nodes is admitted all the same, one at a time for each queue: its
    pods have to exist for nodes to be made for them.
    """

    name = "enqueue"
    arguments_type = EnqueueArguments

    def __call__(self, session: Session, arguments: EnqueueArguments, /) -> None:
        """Let each Pending job have its turn."""
        scales = arguments.scales(session.snapshot)
        patience = arguments.requeue_after(scales=scales)
        for job in [job for job in session.jobs if job.phase is Phase.INQUEUE]:
            job.rolled_back = _due(session, job, patience)
            if job.rolled_back is not None or requeue.judged_again(session, job):
                session.requeue(job)
        for job in session.jobs:
            if requeue.lapsed(session, job, patience):
                job.lapse(patience)
        scaling = {
            job.info.queue for job in session.jobs if job.phase is Phase.INQUEUE and not session.extensions.ready(job)
        }
        pending = [job for job in session.jobs if job.phase is Phase.PENDING and session.queue_of(job) is not None]
        past = {
            queue.name: sum(job.unfinished for job in queue.jobs)
            for queue in session.queues.values()
            if queue.info.max_groups
        }
        for queue, job in JobOrder(session, pending):
            barred = (
                job.rolled_back
                or _held(job)
                or _deserted(job)
                or requeue.postponed(session, job)
                or placement.unreserved(job)
                or _early(session, job)
                or placement.closed(queue)
                or placement.crowded(queue, past.get(queue.name, 0))
            )
            # What a reservation keeps for it is its room.
            kept = session.reservation.serves(job)
            job.obstacle = barred or session.extensions.enqueueable(job, room=not kept)
            if job.obstacle is None and not kept:
                job.obstacle = explain_network.crowded(session, job)
            job.voted_down = barred is None and job.obstacle is not None
            if scales and job.obstacle is not None and job.obstacle.nodes and queue.name not in scaling:
                scaling.add(queue.name)
                job.obstacle = None
            if job.obstacle is None:
                session.admit(job)
                past[queue.name] = past.get(queue.name, 0) + 1


def _due(session: Session, job: JobState, seconds: float) -> Obstacle | None:
    """Say why a job goes back. One whose pods came has all the time that others need to leave the nodes that are kept for it."""
    why = requeue.due(session, job, seconds)
    came = why is not None and why.reason is Reason.NOT_ENOUGH_RESOURCES
    return None if came and reserved_nodes.awaits_others(session, job) else why


def _held(job: JobState) -> Obstacle | None:
    return Obstacle(Reason.NOT_ENOUGH_TASKS, job.info.inadmissible) if job.info.inadmissible else None


def _deserted(job: JobState) -> Obstacle | None:
    return Obstacle(Reason.NOT_ENOUGH_TASKS, "its workload has no pods now") if requeue.deserted(job) else None


def _early(session: Session, job: JobState) -> Obstacle | None:
    """Wait a moment for what a group is made for: people apply the group first, and its Job with the same command."""
    if not job.unknown_need or session.deadlines.passed(job.info.created + _MOMENT):
        return None
    return Obstacle(Reason.NOT_ENOUGH_TASKS, "no pod or Job is known yet that names it")
