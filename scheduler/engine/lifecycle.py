"""The life of a PodGroup: one table of phases, and the conditions that tell why it stands where it does.

docs/podgroup-lifecycle.md holds the diagram that `diagram` draws of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from muster.ledger import wording
from muster.model.objects import Condition
from muster.model.text import counted
from scheduler.engine import requeue
from scheduler.model.failing import PODS_FAILED, Failing
from scheduler.model.holding import Holding
from scheduler.model.obstacle import Obstacle, Reason
from scheduler.model.snapshot import JobInfo, Phase, RequeueState, seconds

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULED: Final = "Scheduled"
RESERVED: Final = requeue.RESERVED
FAILING: Final = "Failing"
"""True of a group with pods that have a node and can't start, or that failed for good."""


class PhaseFacts(Struct, frozen=True):
    """What the table asks of a group.

    Attributes:
        admitted: the enqueue action admitted it, now or before.
        placed: pods that have a node (in this cycle's plan, too) or succeeded.
        waiting: pods that found no node.
        leaving: pods that are being deleted and will be made again by whatever controls them.
        pods: pods that exist.
        over: nothing of it runs or will run again: its Jobs ended, or all its pods did and nobody replaces them.
        ready: as many pods have a node as have to start together.
        obstacle: what keeps it from the next step.
        postponed: until when, if it was taken back just now.
        restarts: it was Completed, and a live pod or an unfinished Job names it.
        refused: why the quota ledger refused it its reservation; empty where it did not.
        failing: what is wrong with its pods beside their placement.
        lapsed_after: after how many seconds what it lacks was held for it no longer; None where it is, or it lacks nothing.
    """

    minimum: int
    admitted: bool = False
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    placed: int = 0
    waiting: int = 0
    leaving: int = 0
    pods: int = 0
    over: bool = False
    ready: bool = False
    obstacle: Obstacle | None = None
    postponed: RequeueState | None = None
    restarts: bool = False
    refused: str = ""
    lapsed_after: float | None = None
    failing: Failing | None = None

    @property
    def runs(self) -> bool:
        """Whether the minimum runs, or did."""
        return self.running + self.succeeded >= max(self.minimum, 1)

    @property
    def broken(self) -> bool:
        """Whether pods of the minimum are gone and this cycle found no place for others.

        Those that make room for their own successors aren't gone: a rolling update breaks no gang.
        """
        return self.placed + self.leaving < self.minimum


class PhaseTransition(Struct, frozen=True):
    """One row of the table."""

    source: Phase
    target: Phase
    when: str
    holds: Callable[[PhaseFacts], bool]


TABLE: Final = (
    PhaseTransition(Phase.PENDING, Phase.COMPLETED, "its Jobs ended", lambda facts: facts.over),
    PhaseTransition(Phase.PENDING, Phase.RUNNING, "minMember pods run", lambda facts: facts.runs),
    PhaseTransition(Phase.PENDING, Phase.INQUEUE, "enqueue admits it", lambda facts: facts.admitted),
    PhaseTransition(
        Phase.INQUEUE,
        Phase.PENDING,
        "nothing came of it in time, or what it needs is gone",
        lambda facts: not facts.admitted,
    ),
    PhaseTransition(Phase.INQUEUE, Phase.RUNNING, "minMember pods run", lambda facts: facts.runs),
    PhaseTransition(Phase.INQUEUE, Phase.COMPLETED, "its Jobs ended", lambda facts: facts.over),
    PhaseTransition(Phase.RUNNING, Phase.COMPLETED, "every pod ended", lambda facts: facts.over),
    PhaseTransition(
        Phase.RUNNING, Phase.UNKNOWN, "pods of the minimum are gone and not placed again", lambda facts: facts.broken
    ),
    PhaseTransition(Phase.UNKNOWN, Phase.COMPLETED, "every pod ended", lambda facts: facts.over),
    PhaseTransition(Phase.UNKNOWN, Phase.RUNNING, "minMember pods run again", lambda facts: facts.runs),
    PhaseTransition(Phase.UNKNOWN, Phase.PENDING, "all its pods are deleted", lambda facts: not facts.pods),
    PhaseTransition(
        Phase.COMPLETED,
        Phase.PENDING,
        "a live pod or an unfinished Job names it",
        lambda facts: facts.restarts and facts.obstacle is None,
    ),
)
"""Of the rows of a phase the first that holds is taken."""

_ROWS: Final = {phase: tuple([row for row in TABLE if row.source is phase]) for phase in Phase}


def settle(phase: Phase, facts: PhaseFacts) -> Phase:
    """Follow the table until no row holds; a group that ran between two looks passes through Running unseen.

    A phase isn't entered twice, so that facts can't chase a group in circles. One that was Completed is Pending first: what
    it reserves has to be stored before anything else is decided.
    """
    seen = {phase}
    while True:
        for row in _ROWS[phase]:
            if row.holds(facts):
                break
        else:
            return phase
        if row.target in seen:
            return phase
        if phase is Phase.COMPLETED:
            return row.target
        phase = row.target
        seen.add(phase)


def trouble(phase: Phase, facts: PhaseFacts) -> Obstacle | None:
    """Say what is wrong with a group in ``phase``, None when nothing is."""
    if phase is Phase.COMPLETED:
        return facts.obstacle if facts.restarts else None
    if facts.ready and phase is not Phase.UNKNOWN:
        return None
    if phase is Phase.RUNNING and facts.leaving and not facts.broken:
        return None
    if phase is not Phase.UNKNOWN:
        return facts.obstacle
    wrong = _lost(facts, max(facts.minimum, 1))
    if facts.lapsed_after is None:
        return wrong
    words = f"{wrong.message}; what it lacks was held for it for {facts.lapsed_after:g} s, and others may use it now"
    return Obstacle(wrong.reason, words)


def _lost(facts: PhaseFacts, minimum: int) -> Obstacle:
    """Say what is wrong with a group that lost pods of its minimum."""
    if facts.placed >= minimum:
        return _placed_again(facts, minimum)
    alive = f"{facts.placed or 'none'} of {counted(minimum, 'pod')} of the minimum"
    if facts.waiting and facts.obstacle is not None:
        return Obstacle(facts.obstacle.reason, f"{alive} left; {facts.obstacle.message}")
    if facts.failed:
        return Obstacle(Reason.POD_FAILED, f"{alive} left: {counted(facts.failed, 'pod')} failed")
    return Obstacle(Reason.POD_DELETED, f"{alive} left: the others were deleted")


def _placed_again(facts: PhaseFacts, minimum: int) -> Obstacle:
    """Say what is wrong with a group that lost pods of its minimum, and has enough with nodes again: not all of these run."""
    have = f"{counted(facts.placed, 'pod')} {'has a node' if facts.placed == 1 else 'have nodes'}"
    if not facts.ready and facts.obstacle is not None:
        return Obstacle(facts.obstacle.reason, f"{have}; {facts.obstacle.message}")
    runs = f"{facts.running + facts.succeeded or 'none'} of {counted(minimum, 'pod')} of the minimum run"
    reason = Reason.POD_FAILED if facts.failed else Reason.POD_DELETED
    return Obstacle(reason, f"{runs}{' or succeeded' if facts.succeeded else ''}; {have}")


def obstacle(conditions: Iterable[Condition] | None) -> Condition | None:
    """Return the condition that says what is wrong with a group; None where nothing is."""
    return next((each for each in conditions or () if each.type == UNSCHEDULABLE and each.status == "True"), None)


def lasting_obstacle(conditions: Iterable[Condition] | None) -> Condition | None:
    """Return the `obstacle` that is worth an event: not that a new group's minimum is just about to be reserved."""
    found = obstacle(conditions)
    return found if found is not None and found.message != wording.unreserved(()) else None


def failing(conditions: Iterable[Condition] | None) -> Condition | None:
    """Return the condition that says what is wrong with a group's pods beside their placement; None where nothing is."""
    return next((each for each in conditions or () if each.type == FAILING and each.status == "True"), None)


def next_holding(old: JobInfo, phase: Phase) -> Holding:
    """Return what the status of a group that comes to ``phase`` is to say of what it holds."""
    if old.next_holding is None or old.unreserved or phase is Phase.COMPLETED:
        return old.holding
    return old.next_holding


def reserves(old: JobInfo, phase: Phase, holding: Holding) -> bool:
    """Whether a group holds more by a status than before."""
    if old.reserves_late:
        return old.phase is Phase.PENDING and phase not in {Phase.PENDING, Phase.COMPLETED}
    return phase is not Phase.COMPLETED and (holding != old.holding or old.phase is Phase.COMPLETED)


_LONGEST: Final = 2000
"""Characters of a message: it is repeated on each pod of the group, and what it names, tenants write."""
_Wanted = dict[str, tuple[str, str, str]]
"""By type: the status of a condition, its reason and its message."""


def _scheduling(by_type: Mapping[str, Condition], phase: Phase, facts: PhaseFacts) -> _Wanted:
    """Return the conditions that say whether a group has nodes."""
    wrong = trouble(phase, facts)
    wanted: _Wanted = {}
    if wrong is not None:
        wanted[UNSCHEDULABLE] = ("True", wrong.reason.value, wrong.message)
        if SCHEDULED in by_type:
            wanted[SCHEDULED] = ("False", wrong.reason.value, "")
    else:
        if UNSCHEDULABLE in by_type:
            wanted[UNSCHEDULABLE] = ("False", "", "")
        if facts.ready and facts.placed and phase is not Phase.COMPLETED and not facts.restarts:
            minimum = counted(max(facts.minimum, 1), "pod")
            wanted[SCHEDULED] = ("True", "Scheduled", f"the minimum of {minimum} has nodes")
    return wanted


def _beside_scheduling(by_type: Mapping[str, Condition], phase: Phase, facts: PhaseFacts) -> _Wanted:
    """Return the conditions that say what its quota refused, how its pods do, and when it is tried again."""
    wanted: _Wanted = {}
    if facts.refused:
        wanted[RESERVED] = ("False", Reason.NOT_ENOUGH_QUOTA.value, facts.refused)
    elif RESERVED in by_type:
        wanted[RESERVED] = ("True", "", "")
    # Once a group is over its pods go, and with them what was known of how they failed.
    if phase is not Phase.COMPLETED or facts.restarts or not _says_how_it_failed(by_type.get(FAILING)):
        if facts.failing is not None:
            wanted[FAILING] = ("True", facts.failing.reason, facts.failing.message)
        elif FAILING in by_type:
            wanted[FAILING] = ("False", "", "")
    if facts.postponed is not None:
        wrong = trouble(phase, facts)
        why = wrong.reason if wrong is not None else Reason.NOT_ENOUGH_TASKS
        wanted[requeue.POSTPONED] = ("True", why.value, requeue.sentence(facts.postponed))
    elif requeue.POSTPONED in by_type and phase not in {Phase.PENDING, Phase.INQUEUE}:
        wanted[requeue.POSTPONED] = ("False", "", "")
    return wanted


def conditions(
    old: tuple[Condition, ...], phase: Phase, facts: PhaseFacts, *, transition: str, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions of a group; the very same objects where nothing changed.

    ``transition`` names the session that makes a change; the time is that of the last change of status.
    """
    by_type = {condition.type: condition for condition in old}
    if facts.restarts and phase is Phase.PENDING:
        by_type.pop(SCHEDULED, None)  # That was its former life.
    wanted = _scheduling(by_type, phase, facts) | _beside_scheduling(by_type, phase, facts)
    for type_, (status, reason, whole) in wanted.items():
        message = whole if len(whole) <= _LONGEST else f"{whole[: _LONGEST - 1]}…"
        before = by_type.get(type_)
        if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
            continue
        since = before.last_transition_time if before is not None and before.status == status else now
        by_type[type_] = Condition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            last_transition_time=since,
            transition_id=transition,
        )
    # What tables show of conditions is the first that is true.
    return tuple(sorted(by_type.values(), key=_is_no_failure)) if FAILING in by_type else tuple(by_type.values())


def _says_how_it_failed(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True" and condition.reason == PODS_FAILED


def _is_no_failure(condition: Condition) -> bool:
    return condition.type != FAILING


def phase_began(old: JobInfo, phase: Phase, now: datetime) -> float:
    """Return when a group came to its ``phase``, in seconds of the epoch; 0 where nobody knows."""
    if phase is not old.phase:
        return now.timestamp()
    return old.since if old.written else old.created


def phase_seconds(info: JobInfo, wait: RequeueState | None, now: datetime) -> float | None:
    """Return for how long a group has been in its phase: since its status says so, or else what is known of Pending ones.

    These wait since their return, their first refusal or their creation. None where nobody knows. ``wait``: what this
    leader remembers of it.
    """
    if info.since:
        return max(now.timestamp() - info.since, 0.0)
    return _pending_seconds(info, wait, now) if info.phase is Phase.PENDING else None


def _pending_seconds(info: JobInfo, wait: RequeueState | None, now: datetime) -> float | None:
    wrong = next((each for each in info.conditions if each.type == UNSCHEDULABLE and each.status == "True"), None)
    since = 0.0
    if wait is not None and wait.tries:
        since = wait.since
    elif requeue.recorded(info.conditions) is None:
        since = seconds(wrong.last_transition_time) if wrong is not None else 0.0 if info.conditions else info.created
    return max(now.timestamp() - since, 0.0) if since else None


def diagram() -> str:
    """Draw the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> Pending"]
    lines += [f"    {row.source.value} --> {row.target.value}: {row.when}" for row in TABLE]
    return "\n".join([*lines, f"    {Phase.COMPLETED.value} --> [*]"])
