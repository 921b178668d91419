"""For whom others are evicted: who is due what they leave, and who starts or is admitted by it."""

from __future__ import annotations

from scheduler.engine.session import Session
from scheduler.engine.statement import Statement
from scheduler.engine.states import JobState, QueueState
from scheduler.model import vectors
from scheduler.model.snapshot import Phase, Task


def is_due(session: Session, queue: QueueState, task: Task) -> bool:
    """Whether a queue deserves some of what a task asks for beside what it has; where nobody divides the cluster, it doesn't."""
    deserved, wanted = session.deserved(queue), session.vector(task.task_class)
    if deserved is None:
        return False
    after = vectors.add(queue.allocated, wanted)
    return any(wanted[place] and after[place] <= deserved[place] for place in session.axes.shared)


def awaits_admission(session: Session, job: JobState) -> bool:
    """Whether a job is Pending and there is an action that admits."""
    return job.phase is Phase.PENDING and session.policy.enqueues


def may_start(session: Session, statement: Statement, job: JobState) -> bool:
    """Whether a job may start, or be admitted, by the evictions of a statement.

    One that needs no evictions is left to the action allocate; a Pending one whose room others are leaving already is not.
    """
    waits = awaits_admission(session, job)
    if not (statement.evicts or (waits and statement)) or not session.extensions.pipelined(job):
        return False
    if not waits:
        return True
    # Once those are gone who have to go for it, its room is proved.
    with statement.evictions_only():
        return session.extensions.enqueueable(job, room=False) is None
