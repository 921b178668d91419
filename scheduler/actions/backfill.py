"""backfill: fill what is idle with tasks that their queue's share alone makes wait."""

from __future__ import annotations

from scheduler.engine import messages, placement
from scheduler.engine.action import Action
from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.job_order import JobOrder
from scheduler.engine.next_in_line import NextInLine
from scheduler.engine.session import Session
from scheduler.engine.states import JobState, QueueState
from scheduler.model import vectors
from scheduler.model.obstacle import Obstacle, Reason, Stage
from scheduler.model.snapshot import Task, TaskClass


class Backfill(Action):
    """Places what allocate left, beyond what queues deserve but within their capability.

    Nodes that a group next in line could use are left alone: what is idle there is what it waits for to grow. Once nodes are
    reserved for it, what is idle elsewhere is filled.
    """

    name = "backfill"

    def __call__(self, session: Session, _: BuiltinArguments, /) -> None:
        """Place what can be placed."""
        line = NextInLine(session)
        for job in session.jobs:
            session.retry(job)
        waiting = [job for job in session.jobs if job.waiting and not _lacks_nodes(job)]
        said = {job.info.key: (job.obstacle, job.blocked_class) for job in waiting}
        order = JobOrder(session, [job for job in waiting if placement.may_run(session, job)])
        # Each turn leaves less, so that a job like one that found no place finds none.
        failed: dict[object, _Said] = {}
        with line.out_of_sight():
            for queue, job in order:
                alike = _alike(session, job)
                if alike not in failed:
                    held_back = line.holds_back(job)
                    line.hide(held_back)
                    before = job.ready + job.pipelined
                    if placement.turn(session, queue, job, lambda *asked: _allowed(session, line, *asked)):
                        order.requeue(job)
                    if before != job.ready + job.pipelined:
                        continue
                    # Where not all nodes were looked at, what allocate said is still what is known.
                    failed[alike] = None if held_back is not None else (job.obstacle, job.blocked_class)
                job.obstacle, job.blocked_class = failed[alike] or said[job.info.key]
                if job.obstacle is None and job.blocked_class is None and failed[alike] is None:
                    job.obstacle = _left_to_others(queue)


_Said = tuple[Obstacle | None, TaskClass | None] | None


def _lacks_nodes(job: JobState) -> bool:
    """Whether allocate, which looks at the same nodes, found none for any of its tasks."""
    if job.obstacle is not None or job.blocked_class is None:
        return False
    # Pods that differ in nothing but the names of their claims on devices are of one class here.
    alike = job.blocked_class.constraints.devices and len({task.task_class for task in job.waiting}) == 1
    return bool(alike) or len(job.info.task_counts.wanting) == 1


def _left_to_others(queue: QueueState) -> Obstacle:
    words = f"queue {queue.name} has had its share, and what is idle is left to groups that are due and wait for nodes"
    return Obstacle(Reason.NOT_ENOUGH_RESOURCES, words, Stage.QUEUE)


def _alike(session: Session, job: JobState) -> object:
    """Return what two jobs have in common that find places or not for the same reasons."""
    kinds = tuple(job.info.task_counts.wanting)
    if job.info.min_task_member or not all(session.at_once(kind) for kind in kinds):
        return job.info.uid
    return (job.info.queue, kinds, session.missing(job), len(job.waiting), session.reservation.serves(job))


def _allowed(session: Session, line: NextInLine, queue: QueueState, task: Task, count: int) -> Obstacle | None:
    """Object where so many tasks would go beyond their queue's capability, or into what is guaranteed to other queues.

    So may plugins whose word isn't about shares: ancestors have capabilities, too.
    """
    axes = session.axes
    wanted = vectors.scale(session.vector(task.task_class), count)
    own = vectors.subtract(axes.limit(queue.info.capability), queue.allocated)
    if not vectors.fits(wanted, own):
        where = f"left of the capability of queue {queue.name}"
        return messages.obstacle(count, wanted, own, axes, where, queue=queue.name, capped=True)
    free = idle = line.idle()
    for other in session.queues.values():
        if other is not queue and other.info.guarantee is not None:
            due = vectors.subtract(axes.vector(other.info.guarantee), other.allocated)
            free = vectors.subtract(free, vectors.above_zero(due))
    # What doesn't even fit what is idle finds no node, and is told so.
    if vectors.fits(wanted, idle) and not vectors.fits(wanted, free):
        where = "free beside what is guaranteed to other queues"
        return messages.obstacle(count, wanted, free, axes, where)
    return session.extensions.allocatable(queue, task, count, beyond=True)
