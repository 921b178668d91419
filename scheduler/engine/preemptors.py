"""The jobs for which others may be evicted."""

from __future__ import annotations

from collections.abc import Container

from scheduler.engine import kept_places, placement
from scheduler.engine.session import Session
from scheduler.engine.states import JobState
from scheduler.model.snapshot import Phase


def starving_jobs(session: Session, queues: Container[str]) -> list[JobState]:
    """Return the jobs of some queues for which others may be evicted: admitted ones that lack their minimum, and Pending ones that lack room."""
    found = []
    for job in session.jobs:
        if not (job.waiting or job.unplaced or job.info.expected_pods) or job.info.queue not in queues:
            continue
        session.retry(job)
        before = job.obstacle
        if _may_take(session, job):
            found.append(job)
        job.obstacle = job.obstacle or before
    return found


def growing_jobs(session: Session, queues: Container[str]) -> list[JobState]:
    """Return the jobs of some queues that have their minimum, and whose other tasks wait."""
    found = []
    for job in session.jobs:
        if not (job.waiting or job.unplaced) or job.info.queue not in queues:
            continue
        session.retry(job)
        before = job.obstacle
        started = job.ready >= max(job.info.min_member, 1) and session.extensions.ready(job)
        if started and placement.may_run(session, job):
            found.append(job)
        job.obstacle = job.obstacle or before
    return found


def _may_take(session: Session, job: JobState) -> bool:
    if job.phase is Phase.PENDING and session.policy.enqueues:
        return job.voted_down and (session.extensions.valid(job) is None or kept_places.lacks_pods(session, job))
    if session.extensions.starving(job) and placement.may_run(session, job):
        return True
    # Its Job has yet to make its pods, and what was kept for them is gone.
    queue = session.queue_of(job)
    if job.phase is not Phase.INQUEUE or job.kept or queue is None or not session.policy.enqueues:
        return False
    if placement.unreserved(job) is not None or placement.closed(queue) is not None or session.extensions.ready(job):
        return False
    return kept_places.lacks_pods(session, job)
