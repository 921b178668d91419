"""How long groups wait: after they were admitted, since they were taken back, and after the ledger refused them.

Kept by the worker from one cycle's plan to the next one's snapshot. A new leader knows from a group's conditions how
often it was taken back and until when; since when one that is admitted waits it counts anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from muster.kube.backoff import Backoff
from scheduler.engine.requeue import recorded
from scheduler.leader.intervals import LONGEST_RESERVATION_RETRY_SECONDS, RESERVATION_RETRY_SECONDS
from scheduler.model.plan import Plan
from scheduler.model.snapshot import GroupKey, Phase, RequeueState, Status


class RequeueTimers:
    """Follows the plans of a worker.

    Attributes:
        requeues: by uid, the groups that were admitted and haven't their minimum, and those that were taken back since.
    """

    def __init__(self) -> None:
        self.requeues: dict[str, RequeueState] = {}
        self._seen: dict[str, Mapping[Status, int]] = {}

    def observe(self, plan: Plan, now: float) -> None:
        """Take over what a cycle decided at ``now``, in seconds of the epoch."""
        requeues: dict[str, RequeueState] = {}
        seen: dict[str, Mapping[Status, int]] = {}
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

    def _counts(self, plan: Plan, key: GroupKey) -> Mapping[Status, int]:
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
