"""What the worker counts, for /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from muster.ledger.metrics import Metrics as LedgerMetrics
from scheduler.faults import FaultLog


class Metrics:
    """Counters and timings of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.cycle_seconds = Histogram(
            "muster_scheduler_cycle_seconds",
            "How long deciding took.",
            buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=self.registry,
        )
        self.binds = Counter("muster_scheduler_binds", "Pods given a node.", registry=self.registry)
        self.evictions = Counter(
            "muster_scheduler_evictions", "Pods chosen to leave for others.", registry=self.registry
        )
        self.faults = FaultLog(self.registry)
        self.ledger = LedgerMetrics(self.registry)
        self.waiting = Gauge("muster_scheduler_pending_pods", "Pods that have no node.", registry=self.registry)
        self.groups = Gauge(
            "muster_scheduler_waiting_podgroups",
            "PodGroups that don't run, by what they wait for.",
            ["stage"],
            registry=self.registry,
        )
