"""Metrics of what waits in queues, and of what is evicted from them; bounded, those who wait longest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from typing import Final

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.telemetry.bounded import Labels
from scheduler.model.plan import Plan
from scheduler.model.snapshot import GroupKey

MAX_QUEUES: Final = 1000
"""Queues that are told of."""


class QueueWaits(Struct):
    """How many PodGroups of a queue wait, and which is at its stage for longest, for how many seconds."""

    groups: int = 0
    longest: float = -1.0
    namespace: str = ""
    podgroup: str = ""


class QueueWaitCollector(Collector):
    """What waits in each queue, as of the last cycle; nothing on a process that doesn't lead."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waits: Mapping[str, QueueWaits] = {}
        self._evicted = Counter(
            "muster_scheduler_queue_evictions", "Evictions of pods of a queue.", ["queue"], registry=registry
        )
        self._labels = Labels(MAX_QUEUES)
        registry.register(self)

    def observe(self, waits: Iterable[tuple[str, GroupKey, float]]) -> None:
        """Take what a cycle found: of each PodGroup that waits its queue, its name, and the seconds at its stage."""
        found: dict[str, QueueWaits] = {}
        for queue, group, seconds in waits:
            one = found.setdefault(queue, QueueWaits())
            one.groups += 1
            if seconds > one.longest:
                one.longest, one.namespace, one.podgroup = seconds, group.namespace, group.name
        self._waits = found

    def count_evictions(self, plan: Plan) -> None:
        """Count what a cycle evicts, by the queue that loses it."""
        for each in plan.evictions:
            status = plan.groups.get(each.group)
            if status is not None:
                self._evicted.labels(self._labels.value(status.queue)).inc()

    def collect(self) -> Iterator[Metric]:
        """Return the queues in which somebody waits, those who wait longest first."""
        waiting = GaugeMetricFamily(
            "muster_scheduler_queue_waiting_podgroups", "PodGroups of a queue that wait.", labels=("queue",)
        )
        longest = GaugeMetricFamily(
            "muster_scheduler_queue_longest_wait_seconds",
            "How long the PodGroup of a queue that is at its stage for longest is there by now.",
            labels=("queue", "namespace", "podgroup"),
        )
        for queue, each in nlargest(MAX_QUEUES, self._waits.items(), key=lambda item: item[1].longest):
            waiting.add_metric((queue,), each.groups)
            longest.add_metric((queue, each.namespace, each.podgroup), each.longest)
        yield from (waiting, longest)
