"""Gangs of which only a part was bound, and the rest finds no room: finished when there is room, undone when not.

That happens when a leader is lost between two binds of a gang, or a bind is refused and the place is gone. Such a gang
uses what it can't start with. Since when it is so, is remembered from cycle to cycle in `Snapshot.partially_bound`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from scheduler.engine.session import Session
from scheduler.engine.states import JobState
from scheduler.model.snapshot import GroupKey, Phase, Task, TaskStatus

GRACE: Final = 30.0
"""Seconds that the rest of a gang has to find a place, before what was bound of it is undone."""


def partially_bound(session: Session) -> Mapping[GroupKey, float]:
    """Return the gangs of which only a part is bound, and since when."""
    before, now = session.snapshot.partially_bound, session.now.timestamp()
    found = {job.info.key: before.get(job.info.key, now) for job in session.jobs if _is_partially_bound(session, job)}
    for began in found.values():
        session.deadlines.passed(began + GRACE)
    return found


def expired(session: Session) -> Iterable[tuple[JobState, Task]]:
    """Return the pods to be taken back, because their gang has been bound in part for too long."""
    found = session.snapshot.partially_bound
    for job in session.jobs if found else ():
        began = found.get(job.info.key)
        if began is not None and session.deadlines.passed(began + GRACE) and _is_partially_bound(session, job):
            for task in job.info.tasks:
                if task.status in _BOUND and task.uid not in session.allocations.leaving:
                    yield job, task


_NOT_YET: Final = frozenset({Phase.PENDING, Phase.INQUEUE})
_BOUND: Final = frozenset({TaskStatus.BOUND, TaskStatus.RUNNING})


def _is_partially_bound(session: Session, job: JobState) -> bool:
    """Whether some of it has nodes, it never ran, and it found no place for what it needs to start."""
    return (
        bool(job.waiting)
        # Pending, where the leader was lost before it wrote the phase.
        and job.phase in _NOT_YET
        and not job.pipelined
        and any(status in _BOUND for status in job.info.task_counts.counts)
        and TaskStatus.BINDING not in job.info.task_counts.counts
        and not session.extensions.ready(job)
        and session.extensions.valid(job) is None
    )
