"""How long groups wait after they were let in, and since when they wait again after they were taken back.

Kept by the worker from one cycle's plan to the next one's snapshot, not in the cluster: a new leader begins to count
anew, which costs a group that nothing comes of one more wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.plan import Plan
from scheduler.snapshot import GroupKey, Phase, Status, Wait

_FIRST: Final = 10.0
_MOST: Final = 300.0
_MOST_IDLE: Final = 3600.0
"""Seconds until a group that was taken back may be let in again: the first time, at most, and at most where no pods came."""


class Patience:
    """Follows the plans of a worker.

    Attributes:
        waits: by uid, the groups that were let in and haven't their minimum, and those that were taken back since.
    """

    def __init__(self) -> None:
        self.waits: dict[str, Wait] = {}
        self._seen: dict[str, Mapping[Status, int]] = {}

    def learn(self, plan: Plan, now: float) -> None:
        """Take over what a cycle decided at ``now``, in seconds of the epoch."""
        waits: dict[str, Wait] = {}
        seen: dict[str, Mapping[Status, int]] = {}
        for key, status in plan.groups.items():
            wait = self.waits.get(status.uid)
            if status.uid in plan.rolled_back:
                waits[status.uid] = _postponed(wait, plan.rolled_back[status.uid], now)
            elif status.phase is Phase.INQUEUE:
                counts = self._counts(plan, key)
                waits[status.uid] = self._wait(status.uid, wait, counts, now)
                seen[status.uid] = counts
            elif status.phase is Phase.PENDING and wait is not None and wait.tries:
                waits[status.uid] = wait
        self.waits, self._seen = waits, seen

    def _counts(self, plan: Plan, key: GroupKey) -> Mapping[Status, int]:
        return plan.tasks.get(key, {})

    def _wait(self, uid: str, wait: Wait | None, counts: Mapping[Status, int], now: float) -> Wait:
        """Begin to count, or count from the last change of its pods on."""
        if wait is None:
            return Wait(since=now)
        if self._seen.get(uid) == counts:
            return wait
        return Wait(since=now, tries=wait.tries, until=wait.until, idle=wait.idle)


def _postponed(wait: Wait | None, idle: int, now: float) -> Wait:
    tries = wait.tries if wait is not None else 0
    pause = min(_FIRST * 2.0 ** min(tries, 10), _MOST if idle else _MOST_IDLE)
    return Wait(since=now, tries=tries + 1, until=now + pause, idle=idle)
