"""The worker's metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest
from typing import Final

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.ledger.metrics import AuditMetrics, LedgerMetrics
from muster.model.amounts import NANO, NOTHING
from muster.telemetry.bounded import Labels
from muster.telemetry.registry import registry
from scheduler.leader.plugin_faults import FaultLog
from scheduler.leader.queue_waits import QueueWaitCollector
from scheduler.model.obstacle import Stage
from scheduler.model.plan import QueueShare

MAX_QUEUES: Final = 1000
"""Queues that are told of, those with the largest share first."""
MAX_RESOURCES: Final = 32
"""Resources that are labels of their own."""
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE


class SchedulerMetrics:
    """Counters and timings of one process."""

    def __init__(self) -> None:
        self.registry = registry("scheduler")
        self.leading = Gauge("muster_scheduler_leading", "1 while this process leads.", registry=self.registry)
        self.watches_failing = Gauge(
            "muster_watches_failing", "Kinds that can't be watched now.", registry=self.registry
        )
        self.unreadable = UnreadableCollector()
        self.registry.register(self.unreadable)
        self.cycle_seconds = Histogram(
            "muster_scheduler_cycle_seconds",
            "How long deciding took.",
            buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=self.registry,
        )
        self.binds = Counter("muster_scheduler_binds", "Pods given a node.", registry=self.registry)
        self.unbound = Counter(
            "muster_scheduler_bind_failures", "Pods that lost the node they were given.", registry=self.registry
        )
        self.evictions = Counter(
            "muster_scheduler_evictions", "Pods chosen to leave for others.", registry=self.registry
        )
        self.in_vain = Counter(
            "muster_scheduler_evictions_in_vain",
            "Pods that were evicted for a PodGroup which went back to Pending, or was deleted, before it ran.",
            registry=self.registry,
        )
        self.faults = FaultLog(self.registry)
        self.ledger = LedgerMetrics(self.registry)
        self.audit = AuditMetrics(self.registry)
        self.waiting = Gauge("muster_scheduler_pending_pods", "Pods that have no node.", registry=self.registry)
        self.groups = Gauge(
            "muster_scheduler_waiting_podgroups",
            "PodGroups that don't run, by what they wait for.",
            ["stage"],
            registry=self.registry,
        )
        self.waited = Histogram(
            "muster_scheduler_podgroup_wait_seconds",
            "How long PodGroups were at a stage before they went on, as this leader saw it.",
            ["stage"],
            buckets=(1, 5, 15, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 24 * _HOUR),
            registry=self.registry,
        )
        self.longest = Gauge(
            "muster_scheduler_longest_wait_seconds",
            "How long the PodGroup that is at a stage for longest is there by now, as this leader saw it.",
            ["stage"],
            registry=self.registry,
        )
        self.queues = QueueShareCollector()
        self.registry.register(self.queues)
        self.queue_waits = QueueWaitCollector(self.registry)
        for stage in Stage:
            self.groups.labels(stage.value)
            self.waited.labels(stage.value)
            self.longest.labels(stage.value)


class UnreadableCollector(Collector):
    """How many objects of each kind can't be read; nothing on a process that doesn't lead.

    Attributes:
        count: returns that, by kind.
    """

    def __init__(self) -> None:
        self.count: Callable[[], Mapping[str, int]] = dict

    def collect(self) -> Iterator[Metric]:
        """Return the kinds that have such objects."""
        family = GaugeMetricFamily(
            "muster_scheduler_unreadable_objects",
            "Objects that can't be read, or whose change couldn't be followed; a quota with such a pod or PodGroup grants nothing.",
            labels=("kind",),
        )
        for kind, count in self.count().items():
            family.add_metric((kind,), count)
        yield family


class QueueShareCollector(Collector):
    """What the queues have and deserve, as of the last cycle; nothing on a process that doesn't lead."""

    def __init__(self) -> None:
        self._resources = Labels(MAX_RESOURCES, "cpu", "memory")
        self._shares: Mapping[str, QueueShare] = {}

    def observe(self, shares: Mapping[str, QueueShare]) -> None:
        """Take what a cycle found."""
        self._shares = shares

    def collect(self) -> Iterator[Metric]:
        """Return the queues with the largest shares as metrics."""
        labels = ("queue", "resource")
        allocated = GaugeMetricFamily(
            "muster_scheduler_queue_allocated", "What a queue's pods have, in units (cores, bytes).", labels=labels
        )
        deserved = GaugeMetricFamily(
            "muster_scheduler_queue_deserved", "What a queue deserves of the cluster now.", labels=labels
        )
        share = GaugeMetricFamily(
            "muster_scheduler_queue_share",
            "The largest part of a deserved amount that a queue has; over 1 is more than it deserves.",
            labels=("queue",),
        )
        for name, each in nlargest(MAX_QUEUES, self._shares.items(), key=lambda item: item[1].share or 0.0):
            for family, amounts in ((allocated, each.allocated), (deserved, each.deserved or NOTHING)):
                for resource, nano in self._bounded(amounts.nano).items():
                    family.add_metric((name, resource), nano / NANO)
            if each.share is not None:
                share.add_metric((name,), each.share)
        yield from (allocated, deserved, share)
        left_out = max(0, len(self._shares) - MAX_QUEUES)
        yield GaugeMetricFamily(
            "muster_scheduler_queues_left_out", "Queues with smaller shares than those that are shown.", value=left_out
        )

    def _bounded(self, amounts: Mapping[str, int]) -> Mapping[str, int]:
        """Leave out resources that came too late to be labels: sums of different things mean nothing."""
        return {name: nano for name, nano in amounts.items() if self._resources.value(name) == name}
