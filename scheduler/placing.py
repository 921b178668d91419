"""One job's turn at the nodes: its minimum all or nothing, then one task at a time."""

from __future__ import annotations

from collections.abc import Callable

from scheduler.plugin import Obstacle, Reason
from scheduler.session import JobState, QueueState, Session
from scheduler.snapshot import Phase, Task, TaskClass
from scheduler.statement import Statement

Allowed = Callable[[QueueState, Task], Obstacle | None]
"""What a queue may still take."""


def may_run(session: Session, job: JobState) -> bool:
    """Whether a job has tasks to place and nothing forbids it to try; what does is noted on it."""
    if job.phase is Phase.COMPLETED or session.queue_of(job) is None or not job.waiting:
        return False
    if session.policy.enqueues and (job.phase is Phase.PENDING or job.job.about_to_reserve):
        return False
    job.obstacle = unreserved(job) or session.valid(job)
    return job.obstacle is None


def unreserved(job: JobState) -> Obstacle | None:
    """Object where a job would run on what the quota of its namespace may have promised to others."""
    return Obstacle(Reason.NOT_ENOUGH_QUOTA, job.job.unreserved) if job.job.unreserved else None


def turn(session: Session, queue: QueueState, job: JobState, allowed: Allowed) -> bool:
    """Give a job its turn; tell whether it could use another."""
    taken: list[Task] = []
    with session.statement() as statement:
        passed = _place(session, statement, job, taken, lambda task: allowed(queue, task))
        if statement and (session.ready(job) or session.pipelined(job)):
            statement.commit()
            job.passed += passed
            return bool(job.waiting) and session.ready(job)
    job.waiting.extendleft(reversed(taken))
    return False


def keep_promises(session: Session) -> None:
    """Give those their turn first who were promised a place in a former cycle."""
    promised = session.snapshot.promised
    for job in session.jobs if promised else ():
        count, queue = sum(task.uid in promised for task in job.waiting), session.queue_of(job)
        if not count or queue is None or not may_run(session, job):
            continue
        for _ in range(count):
            if not turn(session, queue, job, session.allocatable):
                break


def _promised(session: Session, task: Task) -> int | None:
    """Give the row of the node that a task was promised a place on, None where there is none."""
    name = session.snapshot.promised.get(task.uid)
    return session.snapshot.table.row.get(name) if name is not None else None


def _place(
    session: Session, statement: Statement, job: JobState, taken: list[Task], allowed: Callable[[Task], Obstacle | None]
) -> list[Task]:
    """Take tasks off the line and place them until the job is ready; give those that found no place.

    A task like one that found no place isn't tried. Nor is the rest, once too few are left for the minimum.
    """
    failed: set[TaskClass] = set()
    passed: list[Task] = []
    while job.waiting:
        task = job.waiting.popleft()
        taken.append(task)
        if task.kind in failed:
            passed.append(task)
        elif (against := allowed(task)) is None and _place_one(session, statement, job, task):
            job.obstacle = None
            if session.ready(job):
                break
        else:
            job.obstacle = against
            passed.append(task)
            failed.add(task.kind)
            hopeful = sum(other.kind not in failed for other in job.waiting)
            if hopeful + job.pipelined < session.missing(job):
                break
    return passed


def _place_one(session: Session, statement: Statement, job: JobState, task: Task) -> bool:
    picker, promised = session.picker, _promised(session, task)
    row = (
        promised if promised is not None and picker.fits(task.kind, promised, session.idle) else picker.best(task.kind)
    )
    if row is not None:
        statement.allocate(job, task, row)
        return True
    if promised is not None and picker.fits(task.kind, promised, session.future):
        row = promised
    elif session.releasing:
        row = picker.best_later(task.kind)
    if row is not None:
        statement.pipeline(job, task, row)
        return True
    job.stuck = task.kind
    return False
