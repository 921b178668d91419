"""The counts of a simulation while it runs: amounts in use, shares of queues, evictions, refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from muster.model.amounts import NOTHING, Resources
from scheduler.model.plan import QueueShare
from scheduler.model.vectors import PODS
from scheduler.simulator.gangs import SimulatedGang
from scheduler.simulator.time_series import TimeSeries

_APART: Final = frozenset({PODS})


class Refusal(Struct, frozen=True):
    """An object that admission refused: when, which, for which queue, and the text."""

    at: float
    subject: str
    queue: str
    text: str


class Measures:
    """Counts. ``capacity`` is what all nodes have together."""

    def __init__(self, capacity: Resources, queues: Iterable[str]) -> None:
        self.capacity = capacity
        self._used: dict[str, int] = {}
        self.resources: dict[str, TimeSeries] = {}
        names = sorted(queues)
        self._by_queue: dict[str, dict[str, int]] = {name: {} for name in names}
        self.shares = {name: TimeSeries() for name in names}
        self.deserved = {name: TimeSeries() for name in names}
        self.held = {name: TimeSeries() for name in names}
        self.waited = TimeSeries()
        self.preempted: Counter[str] = Counter()
        self.reclaimed: Counter[str] = Counter()
        self.undone: Counter[str] = Counter()
        self.refusals: list[Refusal] = []
        self._contended = False

    def used(self, now: float, queue: str, amounts: Resources, count: int) -> None:
        """Count ``count`` pods of one kind that got a node, or with a negative number gave theirs back.

        ``queue`` is empty for pods that are in no group.
        """
        mine = self._by_queue.get(queue)
        for name, amount in amounts.nano.items():
            self._used[name] = self._used.get(name, 0) + amount * count
            if mine is not None:
                mine[name] = mine.get(name, 0) + amount * count
            series = self.resources.get(name)
            if series is None:
                series = self.resources[name] = TimeSeries()
            series.set(now, self._used[name] / self.capacity[name] if self.capacity[name] else 0.0)
        if mine is not None:
            self.shares[queue].set(now, self._share(mine))

    def decided(self, now: float, shares: Mapping[str, QueueShare], *, waiting: bool) -> None:
        """Take note of what queues have and deserve, from ``now`` on, as long as somebody waits."""
        self.waited.set(now, float(waiting))
        for name, share in shares.items() if waiting or self._contended else ():
            deserved = share.deserved if share.deserved is not None else NOTHING
            if name in self.deserved:
                self.deserved[name].set(now, self._share(deserved.nano) if waiting else 0.0)
                self.held[name].set(now, self.shares[name].value if waiting else 0.0)
        self._contended = waiting

    def _share(self, amounts: Mapping[str, int]) -> float:
        """Return the largest part of any resource of the cluster; what the cluster doesn't have, and pods, don't count."""
        capacity = self.capacity.nano
        parts = [
            amount / capacity[name]
            for name, amount in amounts.items()
            if amount > 0 and name not in _APART and capacity.get(name)
        ]
        return max(parts, default=0.0)

    def evicted(self, gang: SimulatedGang, beneficiary: SimulatedGang | None) -> None:
        """Count a pod that has to go: for its own queue, for another one, or because its gang can't be completed."""
        gang.evicted += 1
        if beneficiary is None or beneficiary is gang:
            self.undone[gang.queue] += 1
        elif beneficiary.queue == gang.queue:
            self.preempted[gang.queue] += 1
        else:
            self.reclaimed[gang.queue] += 1

    def finish(self, now: float) -> None:
        """Count what holds up to the end."""
        for all_series in (self.resources, self.shares, self.deserved, self.held):
            for series in all_series.values():
                series.advance(now)
        self.waited.advance(now)
