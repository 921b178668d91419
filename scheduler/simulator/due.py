"""When time alone may change what is decided: the moments that a simulation must not jump over.

The worker decides each second while something waits, and nearly always the same again. What `decide` compares with
`now` is listed here, rule by rule; between two of these moments, and without a change, it decides the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.actions.enqueue import EnqueueArguments
from scheduler.engine import partial_gangs
from scheduler.engine.policy import Policy
from scheduler.engine.reservations import ReservationArguments
from scheduler.model.plan import Plan
from scheduler.model.snapshot import Phase, RequeueState, Snapshot
from scheduler.plugins.sla import SlaArguments

_FOREVER: Final = float("inf")
_JUST_AFTER: Final = 0.001
"""Seconds: a moment is written in whole microseconds, and must not be missed by a fraction of one."""
_LOOK: Final = 60.0
"""Seconds between two cycles where a plugin of a user may look at the clock, which nobody can know."""
_COMING: Final = 3.0
"""Seconds that `enqueue` waits for what a group is made for."""


def following(snapshot: Snapshot, policy: Policy, plan: Plan, waits: Mapping[str, RequeueState], now: float) -> float:
    """Return the first moment after ``now`` at which another cycle may decide otherwise, in seconds of the epoch.

    ``plan`` is what was decided on ``snapshot``, ``waits`` what `scheduler.leader.backoff` made of it. Infinity: never.
    """
    moments = (*_of_groups(snapshot, policy, plan), *_of_waits(policy, waits), *_of_holders(policy, plan))
    if any(enabled.guarded for tier in policy.tiers for enabled in tier):
        moments = (*moments, now + _LOOK)
    return min((each + _JUST_AFTER for each in moments if each + _JUST_AFTER > now), default=_FOREVER)


def _of_groups(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterator[float]:
    """Return when groups that wait have waited for long enough to be treated otherwise."""
    after, late = _reserve_after(policy), _sla(policy)
    for job in snapshot.jobs:
        if plan.groups[job.key].phase in {Phase.RUNNING, Phase.COMPLETED} and not job.pending:
            continue
        if job.stated is None and not job.tasks and not job.coming:
            yield job.created + _COMING
        if after is not None:
            yield job.created + after
        if late is not None and (waiting := job.sla if job.sla is not None else late) != _FOREVER:
            yield job.created + waiting


def _of_waits(policy: Policy, waits: Mapping[str, RequeueState]) -> Iterator[float]:
    """Return when what was let in goes back, and when what went back may come again."""
    arguments = policy.arguments.get("enqueue")
    for wait in waits.values():
        if wait.until:
            yield wait.until
        if isinstance(arguments, EnqueueArguments):
            yield wait.since + arguments.patience


def _of_holders(policy: Policy, plan: Plan) -> Iterator[float]:
    """Return when a reservation ends, and when a gang that is bound in part is undone."""
    after = _reserve_after(policy)
    if plan.reserved is not None and after is not None:
        yield plan.reserved.since + after
    yield from (since + partial_gangs.PATIENCE for since in plan.torn.values())


def _reserve_after(policy: Policy) -> float | None:
    """Return after how many seconds nodes are kept for a job that waits; None: never."""
    arguments = policy.arguments.get("allocate")
    return arguments.after if isinstance(arguments, ReservationArguments) else None


def _sla(policy: Policy) -> float | None:
    """Return the waiting time for groups that say none, infinity where that is none; None where nobody asks."""
    found = (each.arguments for tier in policy.tiers for each in tier)
    arguments = next((each for each in found if isinstance(each, SlaArguments)), None)
    if arguments is None:
        return None
    return arguments.waiting if arguments.waiting is not None else _FOREVER
