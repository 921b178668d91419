"""When a group that was let in goes back to Pending, and when it may be let in again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from muster.model import grouping
from scheduler.messages import counted
from scheduler.plugin import Obstacle, Reason
from scheduler.session import JobState, Session
from scheduler.snapshot import Phase, Wait

_ANY: Final = 0


def judged_again(job: JobState) -> bool:
    """Whether a group that was let in is to be judged anew in each cycle: nothing of it runs, and nothing is lost.

    So it is while all of it is held back by us, while it has lost what it reserved, and where its workload has no pods.
    """
    if job.phase is not Phase.INQUEUE or job.ready:
        return False
    return job.job.withheld or bool(job.job.unreserved) or deserted(job)


def deserted(job: JobState) -> bool:
    """Whether a group stands for a workload that has no pods now and wants none, as one scaled to zero."""
    return grouping.is_generated(job.job.key.name) and not job.job.tasks and not job.job.coming


def due(session: Session, job: JobState, seconds: float) -> Obstacle | None:
    """Say why a group goes back: nothing happened for so long, and its minimum has no nodes."""
    wait = session.snapshot.waits.get(job.job.uid)
    if job.phase is not Phase.INQUEUE or wait is None or session.ready(job) or job.pipelined:
        return None
    if session.now.timestamp() - wait.since < seconds:
        return None
    missing = job.job.min_member - job.ready - len(job.waiting)
    if missing > 0 or not job.waiting:
        there = f"{job.ready + len(job.waiting) or 'none'} of {counted(job.job.min_member, 'pod')}"
        return Obstacle(Reason.NOT_ENOUGH_TASKS, f"{there} came within {seconds:g} s")
    return Obstacle(Reason.NOT_ENOUGH_RESOURCES, f"no place was found within {seconds:g} s")


def picture(session: Session, job: JobState, why: Obstacle) -> int:
    """Give what has to change before it is worth while to try again: a hash of it; zero where time is all.

    It is what nodes and queues offer, and what the group asks for.
    """
    return _picture(session, job) if why.reason is Reason.NOT_ENOUGH_RESOURCES else _ANY


def _picture(session: Session, job: JobState) -> int:
    return hash((session.offer, job.need(), job.job.min_member, len(job.job.tasks))) or 1


def postponed(session: Session, job: JobState) -> Obstacle | None:
    """Object to letting a group in again too early."""
    wait = session.snapshot.waits.get(job.job.uid)
    if wait is None or not wait.tries:
        return None
    if wait.idle == _ANY:
        if session.now.timestamp() >= wait.until or job.ready + len(job.waiting) >= max(job.job.min_member, 1):
            return None
        return Obstacle(Reason.NOT_ENOUGH_TASKS, f"its pods did not come{_again(wait)}")
    if session.now.timestamp() >= wait.until and wait.idle != _picture(session, job):
        return None
    text = f"its pods found no nodes{_again(wait)}, and when nodes, queues or the group change"
    return Obstacle(Reason.NOT_ENOUGH_RESOURCES, text, nodes=True)


def _again(wait: Wait) -> str:
    moment = datetime.fromtimestamp(wait.until, UTC)
    return f" ({counted(wait.tries, 'attempt')}); the next is after {moment:%H:%M:%S} UTC"
