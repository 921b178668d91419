"""What the ledger counts, for Prometheus. Made once per process; a registry takes no name twice."""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """The ledger's counters. Labels are bounded: no namespaces, which could be thousands."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.answers = Counter(
            "muster_ledger_answers", "Answers to promises, by what was said.", ["answer"], registry=registry
        )
        self.refusals = Counter(
            "muster_ledger_refusals", "Refusals, by what was short.", ["resource"], registry=registry
        )
        self.seconds = Histogram(
            "muster_ledger_answer_seconds",
            "From question to answer.",
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
            registry=registry,
        )
        self.batch = Histogram(
            "muster_ledger_batch_size",
            "Promises settled by one write.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=registry,
        )
        self.conflicts = Counter(
            "muster_ledger_conflicts", "Writes that found the ledger changed by another replica.", registry=registry
        )
        self.failures = Counter("muster_ledger_failures", "Attempts that failed for another reason.", registry=registry)
        self.expiries = Counter("muster_ledger_expiries", "Promises whose object was never stored.", registry=registry)
        self.overcommitted = Gauge(
            "muster_ledger_overcommitted_namespaces",
            "Namespaces that promised more than their quota.",
            registry=registry,
        )
