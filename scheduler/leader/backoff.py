"""Timers of groups that wait: since they were admitted, since they were taken back, and since the ledger refused them.

Kept by the worker from one cycle's plan to the next one's snapshot. A new leader knows from a group's conditions how
often it was taken back and until when; since when one that is admitted waits it counts anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from muster.kube.backoff import Backoff
from scheduler.engine.requeue import recorded
from scheduler.leader.intervals import LONGEST_RESERVATION_RETRY_SECONDS, RESERVATION_RETRY_SECONDS
from scheduler.model.kept_places import EvictionPause
from scheduler.model.plan import GroupStatus, Plan
from scheduler.model.snapshot import GroupKey, Phase, RequeueState, TaskStatus

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds for which nobody is evicted for a group, after one was refused: twice as long each time."""
_STARTED: Final = frozenset({Phase.RUNNING, Phase.COMPLETED})


class EvictionPauses:
    """For how long nobody is evicted for groups, since an eviction for them was refused.

    Attributes:
        by_uid: the pauses of groups that haven't started, past ones too: the next is longer.
    """

    def __init__(self) -> None:
        self.by_uid: dict[str, EvictionPause] = {}
        self._now = 0.0

    def refused(self, uid: str, reason: str) -> None:
        """Begin a pause for a group. Its evictions were decided just before, so that moment counts as now."""
        known = self.by_uid.get(uid)
        tries = known.tries + 1 if known is not None else 1
        pause = min(_FIRST_PAUSE * 2.0 ** min(tries - 1, 10), _LONGEST_PAUSE)
        self.by_uid = {**self.by_uid, uid: EvictionPause(tries, self._now + pause, reason)}

    def observe(self, plan: Plan, now: float) -> None:
        """Take over what a cycle decided at ``now``: who has started, or is gone, needs no pause."""
        self._now = now
        if self.by_uid:
            waiting = {each.uid for each in plan.groups.values() if each.phase not in _STARTED}
            self.by_uid = {uid: pause for uid, pause in self.by_uid.items() if uid in waiting}


class EvictionTally:
    """Who was evicted for groups that haven't started yet, and how many of those went in vain."""

    def __init__(self) -> None:
        self._evicted: dict[GroupKey, int] = {}

    def evicted(self, beneficiary: GroupKey) -> None:
        """Learn that a pod left for a group."""
        self._evicted[beneficiary] = self._evicted.get(beneficiary, 0) + 1

    def in_vain(self, plan: Plan) -> Mapping[GroupKey, int]:
        """Return for which groups how many left in vain, as a plan shows: they go back to Pending, or are gone."""
        found = {}
        for key in list(self._evicted):
            status = plan.groups.get(key)
            if status is None or status.uid in plan.rolled_back or _goes_back(status):
                found[key] = self._evicted.pop(key)
            elif status.phase in _STARTED:
                del self._evicted[key]
        return found


def _goes_back(status: GroupStatus) -> bool:
    """Whether a group goes back to Pending, for whatever reason: also at once, where an eviction for it was refused."""
    return status.before is Phase.INQUEUE and status.phase is Phase.PENDING


class RequeueTimers:
    """Follows the plans of a worker.

    Attributes:
        requeues: by uid, the groups that were admitted and haven't their minimum, and those that were taken back since.
    """

    def __init__(self) -> None:
        self.requeues: dict[str, RequeueState] = {}
        self._seen: dict[str, Mapping[TaskStatus, int]] = {}

    def observe(self, plan: Plan, now: float) -> None:
        """Take over what a cycle decided at ``now``, in seconds of the epoch."""
        requeues: dict[str, RequeueState] = {}
        seen: dict[str, Mapping[TaskStatus, int]] = {}
        for key, status in plan.groups.items():
            wait = self.requeues.get(status.uid)
            if status.uid in plan.rolled_back:
                requeues[status.uid] = plan.rolled_back[status.uid]
            elif status.phase is Phase.INQUEUE:
                counts = self._counts(plan, key)
                known = wait is not None
                wait = wait or recorded(status.conditions) or RequeueState(since=now)
                if not known or self._seen.get(status.uid) != counts:
                    wait = replace(wait, since=now, pods=sum(counts.values()))
                requeues[status.uid] = wait
                seen[status.uid] = counts
            elif status.phase is Phase.PENDING and wait is not None and wait.tries:
                requeues[status.uid] = wait
        self.requeues, self._seen = requeues, seen

    def _counts(self, plan: Plan, key: GroupKey) -> Mapping[TaskStatus, int]:
        return plan.tasks.get(key, {})


class ReservationRetries:
    """How long groups that the ledger refused their minimum wait before they request it again: ever longer.

    ``jitter``: whether pauses differ by chance; not where all has to repeat.
    """

    def __init__(self, *, jitter: bool = True) -> None:
        self._jitter = jitter
        self._refused: dict[GroupKey, Backoff] = {}

    def pause(self, key: GroupKey) -> float:
        """Return the seconds until a group that was refused just now may request its minimum again."""
        first, longest = RESERVATION_RETRY_SECONDS, LONGEST_RESERVATION_RETRY_SECONDS
        return self._refused.setdefault(key, Backoff(first, longest, jitter=self._jitter)).pause()

    def forget(self, key: GroupKey) -> None:
        """Begin anew: a status of the group was stored, or it is gone."""
        self._refused.pop(key, None)
