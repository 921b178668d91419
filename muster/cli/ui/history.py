"""The shares of queues over the time that somebody looks: in memory, thinned out, never more than so many points."""

from __future__ import annotations

from array import array
from collections import defaultdict
from datetime import datetime
from typing import Any, Final

from muster.whatif.overview import Amounts, Overview

MOST: Final = 600
"""Points of time that are kept; of more, every second one is dropped, and from then on half as many are added."""

_KINDS: Final = ("used", "deserved")
_WAITING: Final = "waiting"
ALL: Final = ""
"""The name under which all queues together are remembered."""

_Series = tuple[str, str, str]
"""Queue, resource (empty for numbers of groups), and what is counted."""


class History:
    """What queues used and deserved, and how many groups waited in them, at some points of time, the oldest first.

    A number takes four bytes: 1,000 queues with three resources are 17 MB at most.
    """

    def __init__(self) -> None:
        self._times: list[datetime] = []
        self._series: dict[_Series, array[float]] = {}
        self._every = 1
        self._seen = 0

    def add(self, overview: Overview) -> None:
        """Remember an overview, where its turn is."""
        self._seen += 1
        if (self._seen - 1) % self._every:
            return
        at = len(self._times)
        self._times.append(overview.taken)
        for key, value in _values(overview).items():
            series = self._series.get(key)
            if series is None:
                series = self._series[key] = array("f", bytes(4 * at))
            series.append(value)
        # Queues that are gone, and amounts that are nothing.
        for series in self._series.values():
            if len(series) == at:
                series.append(0.0)
        if len(self._times) > MOST:
            self._thin()

    def _thin(self) -> None:
        self._every *= 2
        self._times = self._times[::2]
        self._series = {key: series[::2] for key, series in self._series.items() if any(series[::2])}

    def of(self, queue: str, resource: str) -> dict[str, Any]:
        """Return what a page draws of a queue: times, and of each a number of the resource's unit, or of groups."""
        empty = array("f", bytes(4 * len(self._times)))
        found = {kind: self._series.get((queue, resource, kind), empty).tolist() for kind in _KINDS}
        waiting = self._series.get((queue, "", _WAITING), empty).tolist()
        return {"queue": queue, "resource": resource, "times": self._times, **found, _WAITING: waiting}


def _values(overview: Overview) -> dict[_Series, float]:
    found: defaultdict[_Series, float] = defaultdict(float)
    known = {each.name for each in overview.queues}
    for queue in overview.queues:
        top = queue.parent not in known
        for kind in _KINDS:
            amounts: Amounts = getattr(queue, kind)
            for resource, amount in amounts.items():
                found[queue.name, resource, kind] = amount.value
                if top:
                    found[ALL, resource, kind] += amount.value
        found[queue.name, "", _WAITING] = queue.waiting
        found[ALL, "", _WAITING] += queue.waiting if top else 0
    return found
