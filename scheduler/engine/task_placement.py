"""Places tasks whose turn it is: the best node for each, or a place that others are leaving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

from scheduler.engine.session import Session
from scheduler.engine.statement import Statement
from scheduler.engine.states import JobState, QueueState
from scheduler.model.obstacle import Obstacle
from scheduler.model.snapshot import Task

Allowed = Callable[[QueueState, Task, int], Obstacle | None]
"""What speaks against a queue's taking so many more tasks like one."""


def nominated_row(session: Session, task: Task) -> int | None:
    """Return the row of the node that is reserved for a task, None where there is none."""
    name = session.nominated.get(task.uid)
    return session.snapshot.table.row.get(name) if name is not None else None


def place_together(
    session: Session, statement: Statement, queue: QueueState, job: JobState, tasks: Sequence[Task], allowed: Allowed
) -> bool:
    """Place all of some tasks, or as many as have a place; tell whether all have."""
    for _, same in groupby(tasks, key=attrgetter("task_class")):
        alike = list(same)
        count, against = allowance(queue, alike, allowed)
        if count < len(alike):
            job.obstacle = against
            return False
        for task in alike:
            if not place_one(session, statement, job, task):
                return False
    job.obstacle = None
    return True


def allowance(queue: QueueState, alike: list[Task], allowed: Allowed) -> tuple[int, Obstacle | None]:
    """Return how many of these tasks the queue may take, and what speaks against one more."""
    fine, against = 0, allowed(queue, alike[0], len(alike))
    if against is None:
        return len(alike), None
    beyond = len(alike)
    while beyond - fine > 1:
        middle = (fine + beyond) // 2
        objection = allowed(queue, alike[0], middle)
        if objection is None:
            fine = middle
        else:
            beyond, against = middle, objection
    return fine, against


def place_one(session: Session, statement: Statement, job: JobState, task: Task) -> bool:
    """Place one task, now or where others are leaving; tell whether there was a place."""
    picker, nominated = session.picker, nominated_row(session, task)
    row = (
        nominated
        if nominated is not None and picker.fits(task.task_class, nominated, session.idle)
        else picker.best(task.task_class)
    )
    if row is None:
        return place_later(session, statement, job, task)
    statement.allocate(job, (task,), [row])
    return True


def place_later(session: Session, statement: Statement, job: JobState, task: Task) -> bool:
    """Reserve a place that others are leaving for a task."""
    picker, row = session.picker, nominated_row(session, task)
    if (row is None or not picker.fits(task.task_class, row, session.future)) and session.allocations.releasing:
        row = picker.best_later(task.task_class)
    elif row is not None and not picker.fits(task.task_class, row, session.future):
        row = None
    if row is None:
        job.blocked_class = task.task_class
        return False
    statement.pipeline(job, task, row)
    return True
