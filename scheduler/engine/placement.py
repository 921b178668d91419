"""One job's turn at the nodes: its minimum all or nothing, then one task at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from muster.ledger import wording
from muster.model.amounts import NOTHING
from muster.model.text import counted
from scheduler.engine import network_domains, subgroup_placement, task_placement
from scheduler.engine.class_scores import Scope
from scheduler.engine.session import Session
from scheduler.engine.statement import Statement
from scheduler.engine.states import JobState, QueueState
from scheduler.engine.task_placement import Allowed
from scheduler.model.obstacle import Limit, Obstacle, Reason, Stage
from scheduler.model.snapshot import Phase, Task, TaskClass
from scheduler.model.vectors import Matrix


def may_run(session: Session, job: JobState) -> bool:
    """Whether a job has tasks to place and nothing forbids it to try; what does is noted on it."""
    queue = session.queue_of(job)
    if not job.waiting or job.phase is Phase.COMPLETED or queue is None:
        return False
    if session.policy.enqueues and (job.phase is Phase.PENDING or job.info.about_to_reserve):
        return False
    job.obstacle = unreserved(job) or closed(queue) or session.extensions.valid(job)
    return job.obstacle is None


def closed(queue: QueueState) -> Obstacle | None:
    """Object where a queue is Closed: whatever got into it all the same."""
    if queue.info.state != "Closed":
        return None
    words = f"queue {queue.name} is Closed; open it, or delete the group"
    return Obstacle(Reason.QUEUE_CLOSED, words, Stage.QUEUE)


def crowded(queue: QueueState, count: int) -> Obstacle | None:
    """Object to one more job where a queue has ``count`` and takes no more at a time."""
    most = queue.info.max_groups
    if not most or count < most:
        return None
    past = f"{counted(count, 'unfinished PodGroup')} past Pending"
    return Obstacle(
        Reason.NOT_ENOUGH_QUOTA,
        f"queue {queue.name} has {past} and its maxPodGroups is {most}: wait until one ends, or raise maxPodGroups",
        Stage.QUEUE,
    )


def unreserved(job: JobState) -> Obstacle | None:
    """Object where a job would run on what the quota of its namespace may have reserved for others."""
    limit = Limit("namespace", job.info.key.namespace, NOTHING)
    if job.info.unreserved:
        return Obstacle(Reason.NOT_ENOUGH_QUOTA, job.info.unreserved, Stage.QUOTA, limit)
    if job.info.next_holding is not None and not job.info.restarts:
        return Obstacle(Reason.NOT_ENOUGH_QUOTA, wording.unreserved(()), Stage.QUOTA, limit)
    return None


def turn(session: Session, queue: QueueState, job: JobState, allowed: Allowed) -> bool:
    """Return a job its turn; tell whether it could use another."""
    taken: list[Task] = []
    # Where enqueue runs, it has counted those that it admitted.
    counts = bool(queue.info.max_groups) and not job.started
    if counts and (full := crowded(queue, queue.started)) is not None:
        job.obstacle = full
        return False
    # Subgroups are taken out of their order.
    waiting = tuple(job.waiting) if job.info.subgroups else None
    with session.reservation.visible_to(job):
        for scope in _scopes(session, job):
            with session.picker.within(scope), session.statement() as statement:
                place = subgroup_placement.place if job.info.subgroups else _place
                unplaced = place(session, statement, queue, job, taken, allowed)
                if statement and (session.extensions.ready(job) or session.extensions.pipelined(job)):
                    statement.commit()
                    if counts:
                        queue.job_started()
                    job.unplaced += unplaced
                    return bool(job.waiting) and session.extensions.ready(job)
            job.waiting = deque(waiting) if waiting is not None else job.waiting
            job.waiting.extendleft(reversed(taken if waiting is None else ()))
            taken.clear()
    if job.info.network_bound and job.obstacle is None:
        # Where no domain has room, no node was looked at.
        job.blocked_class = job.blocked_class or job.waiting[0].task_class
    return False


_EVERYWHERE: Final = (None,)


def _scopes(session: Session, job: JobState) -> Iterable[Scope | None]:
    """Return where a job's tasks may be sought, the best first."""
    if job.info.topology is None:
        return _EVERYWHERE
    return network_domains.scopes(session, job.info.topology, _members(session, job))


def _members(session: Session, job: JobState) -> network_domains.Members:
    least = max(session.extensions.missing(job), 1)
    return network_domains.members_of(session, job, list(job.waiting), least, None)


def scopes_to_clear(session: Session, job: JobState, room: Callable[[], Matrix]) -> Iterable[Scope | None]:
    """Return where others may be evicted for a job, the best first; ``room``: what nodes would have, [nodes, resources]."""
    if job.info.topology is None:
        return _EVERYWHERE
    return network_domains.scopes_to_clear(session, job.info.topology, _members(session, job), room())


def place_nominated(session: Session) -> None:
    """Place first the tasks for which a former cycle reserved a node."""
    nominated = session.nominated
    for job in session.jobs if nominated else ():
        count, queue = sum(task.uid in nominated for task in job.waiting), session.queue_of(job)
        if not count or queue is None or not may_run(session, job):
            continue
        for _ in range(count):
            if not turn(session, queue, job, session.extensions.allocatable):
                break


def _place(
    session: Session, statement: Statement, queue: QueueState, job: JobState, taken: list[Task], allowed: Allowed
) -> list[Task]:
    """Take tasks off the line and place them until the job is ready; give those that found no place.

    A task like one that found no place isn't tried. Nor is the rest, once too few are left for the minimum.
    """
    failed: set[TaskClass] = set()
    unplaced: list[Task] = []
    while job.waiting:
        alike = _next(session, job)
        kind = alike[0].task_class
        if kind in failed:
            unplaced += alike
            taken += alike
            continue
        count, against = task_placement.allowance(queue, alike, allowed)
        placed = _place_alike(session, statement, job, alike[:count], failed)
        if placed:
            job.obstacle = None
        else:
            job.obstacle = against
            placed = 1
            unplaced.append(alike[0])
            failed.add(kind)
        taken += alike[:placed]
        job.waiting.extendleft(reversed(alike[placed:]))
        if session.extensions.ready(job) or (failed and _hopeless(session, job, failed)):
            break
    return unplaced


def _next(session: Session, job: JobState) -> list[Task]:
    """Take the next tasks that can be decided on at once: of one class, and needed by a job that isn't ready yet."""
    first = job.waiting.popleft()
    alike, nominated = [first], session.nominated
    if not job.waiting:
        return alike
    most = session.extensions.missing(job) if session.at_once(first.task_class) and first.uid not in nominated else 1
    waiting, task_class = job.waiting, first.task_class
    while waiting and len(alike) < most:
        other = waiting[0]
        if other.task_class is not task_class or (nominated and other.uid in nominated):
            break
        alike.append(waiting.popleft())
    return alike


def _hopeless(session: Session, job: JobState, failed: set[TaskClass], placed: int = 0) -> bool:
    """Whether too few tasks are left for the minimum, even if all of them find a place and ``placed`` more did."""
    needed = session.extensions.missing(job) - job.pipelined - placed
    if needed > len(job.waiting):
        return True
    return needed > 0 and sum(other.task_class not in failed for other in job.waiting) < needed


def _place_alike(
    session: Session, statement: Statement, job: JobState, alike: list[Task], failed: set[TaskClass]
) -> int:
    """Place tasks of one class; tell how many of them, from the first on, have a place now."""
    if not alike:
        return 0
    if len(alike) == 1:
        return int(task_placement.place_one(session, statement, job, alike[0]))
    kind = alike[0].task_class
    rows = session.picker.pick(kind, len(alike))
    if (
        len(rows) < len(alike)
        and not session.allocations.releasing
        and _hopeless(session, job, failed | {kind}, len(rows))
    ):
        # It would all be undone.
        rows = []
    if rows:
        statement.allocate(job, alike[: len(rows)], rows)
        return len(rows)
    return int(task_placement.place_later(session, statement, job, alike[0]))
