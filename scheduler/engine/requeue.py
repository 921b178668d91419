"""The return of an admitted group to Pending, and the time from which it may be admitted again."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
from hashlib import blake2b
from typing import Annotated, Final, Literal

from msgspec import Meta, field

from muster.model import grouping
from muster.model.objects import Condition
from muster.model.text import counted
from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.session import Session
from scheduler.engine.states import JobState
from scheduler.model.kept_places import EvictionPause
from scheduler.model.obstacle import Obstacle, Reason
from scheduler.model.snapshot import UNKNOWN, Phase, RequeueState, Snapshot

POSTPONED: Final = "Postponed"
"""True of a group that was taken back: how often, and when its next attempt is. The next leader reads it there."""

_SCHEDULED: Final = "Scheduled"
RESERVED: Final = "Reserved"
"""False of a group that was refused its reservation, True of one that was and has it now. Other groups lack it."""

_ATTEMPTS: Final = re.compile(r"([0-9]{1,6}) attempts? came to nothing; the next is after ([0-9TZ:-]{20})")

_PAUSED: Final = re.compile(r"evictions for it wait until ([0-9:]{8}) UTC, since one was refused: (.*)", re.DOTALL)
_DAY: Final = timedelta(days=1)

_RAN: Final = frozenset({Phase.RUNNING, Phase.UNKNOWN})
_STANDING: Final = 60.0
_SCALING: Final = 900.0
_REFUSED: Final = 1200.0
"""Seconds for pods that admission refused until their group was reserved: a ReplicaSet tries again after 1,000 s at the latest."""
_ANY: Final = 0
_FIRST: Final = 10.0
_MOST: Final = 300.0
_MOST_IDLE: Final = 3600.0
"""Seconds until a group that was taken back may be admitted again: the first time, at most, and at most where no pods came."""


class EnqueueArguments(BuiltinArguments, frozen=True, kw_only=True):
    """How long a job that was admitted may wait for something to happen, and whether nodes come when pods ask for them.

    ``autoscaling`` is true, false, or ``auto``: as `Snapshot.autoscaler` has it. ``timeout`` is in seconds; by default it
    is a minute, and with autoscaling a quarter of an hour.
    """

    autoscaling: bool | Literal["auto"] = "auto"
    timeout: Annotated[float | None, Meta(gt=0, le=86400)] = field(default=None, name="inqueueTimeoutSeconds")

    def scales(self, snapshot: Snapshot) -> bool:
        """Whether nodes are made for pods that lack them."""
        return bool(snapshot.autoscaler) if self.autoscaling == "auto" else self.autoscaling

    def requeue_after(self, *, scales: bool) -> float:
        """Return the seconds."""
        return self.timeout if self.timeout is not None else _SCALING if scales else _STANDING


def evictions_paused(session: Session, job: JobState) -> str:
    """Say until when nobody is evicted for a group, since a pod's eviction for it was refused; empty where somebody may be."""
    pause = session.snapshot.eviction_pauses.get(job.info.uid)
    if pause is None or session.deadlines.passed(pause.until):
        return ""
    moment = datetime.fromtimestamp(pause.until, UTC)
    return f"evictions for it wait until {moment:%H:%M:%S} UTC, since one was refused: {pause.reason}"


def recorded_pause(conditions: Iterable[Condition], now: datetime) -> EvictionPause | None:
    """Read from a group's conditions what `evictions_paused` said, for who has only these; None where it is over."""
    for each in conditions:
        found = _PAUSED.search(each.message) if each.status == "True" else None
        if found is None:
            continue
        try:
            moment = datetime.combine(now.date(), time.fromisoformat(found[1]), UTC)
        except ValueError:
            return None  # somebody else wrote it
        # A pause is a minute at most: of a moment far ahead, yesterday's is meant, and the other way round.
        moment += timedelta(days=round((now - moment) / _DAY))
        return EvictionPause(1, moment.timestamp(), found[2]) if moment > now else None
    return None


def judged_again(session: Session, job: JobState) -> bool:
    """Whether a group that was admitted is to be judged anew in each cycle: nothing of it runs, and nothing is lost.

    So it is while all of it is held back by us, while it has lost what it reserved, where its workload has no pods,
    or had some until its user suspended it, and where those that were to leave for it stay: others may use meanwhile
    what it has reserved.
    """
    if job.phase is not Phase.INQUEUE or job.ready:
        return False
    suspended = bool(job.info.inadmissible) and not job.info.tasks
    unreserved = bool(job.info.unreserved) or job.info.next_holding is not None
    in_vain = bool(evictions_paused(session, job)) and not session.reservation.serves(job)
    return job.info.suspended_by_us or suspended or unreserved or deserted(job) or in_vain


def deserted(job: JobState) -> bool:
    """Whether a group stands for a workload that has no pods now and wants none, as one scaled to zero.

    A workload whose pods were refused may try again much later; that counts once.
    """
    if not grouping.is_generated(job.info.key.name) or job.info.tasks or job.info.expected_pods:
        return False
    return not _had_pods_refused(job) or recorded(job.info.conditions) is not None


def _had_pods_refused(job: JobState) -> bool:
    """Whether a group holds its reservation now, had been refused it before, and has had no nodes yet."""
    types = {each.type: each.status for each in job.info.conditions}
    return types.get(RESERVED) == "True" and _SCHEDULED not in types


def due(session: Session, job: JobState, seconds: float) -> Obstacle | None:
    """Say why a group goes back: nothing happened for so long, and its minimum has no nodes."""
    wait = session.snapshot.requeues.get(job.info.uid)
    if job.phase is not Phase.INQUEUE or session.extensions.ready(job) or job.pipelined > job.kept:
        return None
    if wait is None:
        session.deadlines.after(seconds)
        return None  # its waiting is counted from this cycle on
    missing = job.info.min_member - job.ready - len(job.waiting)
    if (missing > 0 or not job.waiting) and _had_pods_refused(job):
        seconds = max(seconds, _REFUSED)
    # A pod that took the place of another one while nothing else happened has its time, too.
    since = max([wait.since, *(task.created for task in job.waiting)])
    if not session.deadlines.passed(since + seconds):
        return None
    if len(job.info.tasks) > wait.pods:
        session.deadlines.after(seconds)
        return None  # pods that came this very moment are to be looked at first
    if missing > 0 or not job.waiting:
        there, least = job.ready + len(job.waiting), max(job.info.min_member, 1)
        came = (
            f"{there} of {least} pods came" if there else "no pod came" if least == 1 else f"none of {least} pods came"
        )
        return Obstacle(Reason.NOT_ENOUGH_TASKS, f"{came} within {seconds:g} s")
    return Obstacle(Reason.NOT_ENOUGH_RESOURCES, f"no place was found within {seconds:g} s")


def lapsed(session: Session, job: JobState, seconds: float) -> bool:
    """Whether what a group lacks is to be held for it no longer: it lost pods of its minimum, and is not whole again for so long.

    Each pod that waits has its time. One that is replaced again and again, and started each time, doesn't wait.
    """
    if job.phase not in _RAN or session.extensions.ready(job) or job.pipelined:
        return False
    if job.phase is Phase.RUNNING:
        session.deadlines.after(seconds)
        return False  # its time begins when this cycle finds it broken
    return session.deadlines.passed(max([job.info.since, *(task.created for task in job.waiting)]) + seconds)


def postponement(session: Session, job: JobState, why: Obstacle) -> RequeueState:
    """Return for how long a group that is taken back waits: twice as long each time.

    Where room was what it lacked, nodes, queues or the group itself have to be others then, too.
    """
    wait = _wait(session, job)
    tries = wait.tries if wait is not None else 0
    idle = _picture(session, job) if why.reason is Reason.NOT_ENOUGH_RESOURCES else _ANY
    pause = _pause(tries, idle)
    now = session.now.timestamp()
    session.deadlines.after(pause)
    return RequeueState(since=now, tries=tries + 1, until=now + pause, idle=idle)


def _pause(tries: int, idle: int) -> float:
    """Return the seconds for which a group waits that was taken back so often before."""
    return min(_FIRST * 2.0 ** min(tries, 10), _MOST if idle else _MOST_IDLE)


def taken_back(wait: RequeueState) -> float:
    """Return when a group was taken back the last time, in seconds of the epoch."""
    return wait.until - _pause(wait.tries - 1, wait.idle)


def _wait(session: Session, job: JobState) -> RequeueState | None:
    """Return what is known of a group: by this worker, or by the last one, which wrote it down."""
    return session.snapshot.requeues.get(job.info.uid) or recorded(job.info.conditions)


def _picture(session: Session, job: JobState) -> int:
    """Return a digest of what nodes and queues offer, and of what the group needs: never `_ANY`, nor below it."""
    seen = repr((session.offer, job.need(), job.info.min_member, len(job.info.tasks)))
    return int.from_bytes(blake2b(seen.encode(), digest_size=8).digest()) or 1


def postponed(session: Session, job: JobState) -> Obstacle | None:
    """Object to admitting a group again too early."""
    wait = _wait(session, job)
    if wait is None or not wait.tries:
        return None
    if wait.idle == _ANY:
        if session.deadlines.passed(wait.until) or job.ready + len(job.waiting) >= max(job.info.min_member, 1):
            return None
        return Obstacle(Reason.NOT_ENOUGH_TASKS, f"its pods did not come{_again(wait)}")
    if session.deadlines.passed(wait.until) and wait.idle != _picture(session, job):
        return None  # of what only another leader saw, time alone decides
    text = f"its pods found no nodes{_again(wait)}, and when nodes, queues or the group change"
    return Obstacle(Reason.NOT_ENOUGH_RESOURCES, text, nodes=True)


def _again(wait: RequeueState) -> str:
    moment = datetime.fromtimestamp(wait.until, UTC)
    return f" ({counted(wait.tries, 'attempt')}); the next is after {moment:%H:%M:%S} UTC"


def sentence(wait: RequeueState) -> str:
    """Write down how often a group was taken back and until when it waits, as `recorded` reads it."""
    moment = datetime.fromtimestamp(wait.until, UTC)
    return f"{counted(wait.tries, 'attempt')} came to nothing; the next is after {moment:%Y-%m-%dT%H:%M:%SZ}"


def recorded(conditions: Iterable[Condition]) -> RequeueState | None:
    """Read from a group's conditions how often it was taken back, and until when it waits; None where none says so.

    Of what nodes and queues offered then they say nothing: `RequeueState.idle` is ``UNKNOWN`` where that counts.
    """
    for each in conditions:
        found = _ATTEMPTS.fullmatch(each.message) if each.type == POSTPONED and each.status == "True" else None
        if found is not None:
            try:
                until = datetime.strptime(found[2], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
            except ValueError:
                return None  # somebody else wrote it
            idle = UNKNOWN if each.reason == Reason.NOT_ENOUGH_RESOURCES.value else _ANY
            return RequeueState(since=until, tries=int(found[1]), until=until, idle=idle)
    return None
