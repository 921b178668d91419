"""Arrivals to come, taken to be like those of the last days: the same hours of the days before, each as often as it may come again. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from numpy.random import Generator

from muster.model.amounts import Resources
from scheduler.simulator.trace import TraceJob

DAY: Final = 24
"""Hours: of less than that nothing is concluded, for days have nights."""
_HOUR: Final = 3600.0
_KEPT: Final = timedelta(days=7)
_MOST: Final = 20_000
"""Arrivals that are remembered."""


class SeenArrival(Struct, frozen=True):
    """A workload that came.

    Attributes:
        owner, template: by which its run time is found (`muster.whatif.run_times`).
        stated: how long it runs at most or exactly, where its users say so.
    """

    at: datetime
    namespace: str
    queue: str
    priority: str
    pods: int
    minimum: int
    request: Resources
    owner: str
    template: str
    stated: float | None = None
    exact: bool = False


class ArrivalHistory:
    """What came in the last days, all of it since some moment. Bounded: of more than it remembers it goes back less far."""

    def __init__(self) -> None:
        # Replaced, never changed: another thread may be writing it for a process that plays.
        self._seen: Mapping[str, SeenArrival] = {}
        self.since: datetime | None = None

    def __contains__(self, uid: str) -> bool:
        return uid in self._seen

    def add(self, found: Mapping[str, SeenArrival], taken: datetime, since: datetime) -> None:
        """Take in what came, by uid, as it was seen at a moment; ``since`` when all of it is known counts the first time."""
        since = max(self.since or since, taken - _KEPT)
        merged = {uid: each for uid, each in {**self._seen, **found}.items() if each.at >= since}
        if len(merged) > _MOST:
            latest = sorted(merged.items(), key=lambda item: item[1].at)[-_MOST:]
            since, merged = latest[0][1].at, dict(latest)
        self._seen, self.since = merged, since

    def days(self, now: datetime) -> int:
        """Return for how many whole days all that came is known."""
        return int((now - self.since).total_seconds() // (DAY * _HOUR)) if self.since is not None else 0

    def coming(
        self, now: datetime, until: float, lots: Generator, run_times: Callable[[SeenArrival], Sequence[float]]
    ) -> Iterator[TraceJob]:
        """Return one by one what may arrive from a moment on, for so many seconds; what runs nobody knows how long is left out."""
        days, blocks, count = self.days(now), self._by_hour(now), 0
        for hour in range(int(until / _HOUR) if days else 0):
            # Each of the hours that were like it comes once in as many days as are known, in the mean.
            back = [day * DAY - hour % DAY for day in range(1, days + 1)]
            again = [
                (hour * _HOUR + past, each)
                for number, times in zip(back, lots.poisson(1 / days, days).tolist(), strict=True)
                for past, each in blocks.get(number, ()) * times
            ]
            for at, each in sorted(again, key=lambda one: one[0]):
                if seconds := run_times(each):
                    count += 1
                    yield TraceJob(
                        f"muster-later-{count}", each.namespace, each.queue, at, seconds[int(lots.integers(len(seconds)))],
                        each.pods, each.minimum, each.request, each.priority,
                    )  # fmt: skip

    def _by_hour(self, now: datetime) -> Mapping[int, list[tuple[float, SeenArrival]]]:
        """Return what came, with the seconds into its hour, by how many hours ago that began."""
        found: defaultdict[int, list[tuple[float, SeenArrival]]] = defaultdict(list)
        for each in self._seen.values():
            ago = (now - each.at).total_seconds()
            number = int(ago // _HOUR) + 1
            found[number].append((number * _HOUR - ago, each))
        return found
