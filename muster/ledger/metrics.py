"""The ledger's metrics, for Prometheus. Made once per process; a registry takes no name twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.ledger.audit import ExcessClass
from muster.ledger.reservations import Shortage
from muster.model import scopes
from muster.model.amounts import NANO
from muster.telemetry.bounded import Labels

RESOURCES: Final = 32
"""Resources that are labels of their own: whoever makes quotas also invents names of resources."""
NAMESPACES: Final = 500
"""Namespaces whose quotas are told of, the fullest first: docs/decisions/0130."""


class LedgerMetrics:
    """The ledger's counters, with bounded labels."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.answers = Counter(
            "muster_ledger_answers",
            "Answers to requests for reservations, by what was said.",
            ["answer"],
            registry=registry,
        )
        self._resources = Labels(RESOURCES, "cpu", "memory", "pods", "name")
        self._refusals = Counter(
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
            "Requests settled by one write.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=registry,
        )
        self.conflicts = Counter(
            "muster_ledger_conflicts", "Writes that found the ledger changed by another replica.", registry=registry
        )
        self.failures = Counter("muster_ledger_failures", "Attempts that failed for another reason.", registry=registry)
        self.expiries = Counter(
            "muster_ledger_expiries", "Reservations whose object was never stored.", registry=registry
        )
        self.restores = Counter(
            "muster_cluster_restores",
            "Times that the state of the API server was seen to go back, as when etcd is restored.",
            registry=registry,
        )
        self.overcommitted = Gauge(
            "muster_ledger_overcommitted_namespaces",
            "Namespaces with more reserved than their quota allows.",
            registry=registry,
        )
        self.quotas = QuotaCollector(self._resources)
        registry.register(self.quotas)

    def refused(self, resource: str) -> None:
        """Count a refusal by the resource that was short; ``name`` is one whose name was taken."""
        self._refusals.labels(self._resources.value(resource)).inc()


class AuditMetrics:
    """What the leader's auditor found, and what it took."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.excesses = Gauge(
            "muster_quota_audit_excesses",
            "Resources of quotas of which more exists than the quota allows, by why; unexplained is a defect.",
            ["class"],
            registry=registry,
        )
        for each in ExcessClass:
            self.excesses.labels(each.value)
        self.oldest = Gauge(
            "muster_quota_audit_oldest_seconds", "Time since the audit that is longest ago.", registry=registry
        )
        self.cpu_seconds = Counter(
            "muster_quota_audit_cpu_seconds", "Processor time of the auditor.", registry=registry
        )
        self.failures = Counter(
            "muster_quota_audit_failures", "Audits of a namespace that couldn't be made.", registry=registry
        )


class QuotaCollector(Collector):
    """How the quotas of namespaces stand: of each namespace and resource, the quota that has least left.

    Known to the leader alone; elsewhere there is nothing to show. Worked out when it changes, written when asked for.
    """

    def __init__(self, resources: Labels) -> None:
        self._resources = resources
        self._known: dict[str, tuple[float, dict[str, Shortage]]] = {}

    def stand(self, namespace: str, per_resource: Iterable[Shortage]) -> None:
        """Note how a namespace's quotas stand, as `muster.ledger.tally.Tally.per_resource` says it."""
        tightest: dict[str, Shortage] = {}
        for each in per_resource:
            resource = self._resources.value(scopes.split_name(each.resource)[0])
            if resource not in tightest or _fullness(each) > _fullness(tightest[resource]):
                tightest[resource] = each
        if tightest:
            self._known[namespace] = max(map(_fullness, tightest.values())), tightest
        else:
            self.forget(namespace)

    def forget(self, namespace: str) -> None:
        """Leave out a namespace that has no ledger any more."""
        self._known.pop(namespace, None)

    def clear(self) -> None:
        """Leave out everything: another process leads."""
        self._known.clear()

    def collect(self) -> Iterator[Metric]:
        """Return the fullest namespaces as metrics."""
        labels = ("namespace", "resource")
        hard = GaugeMetricFamily("muster_ledger_quota_hard", "The limit, in units (cores, bytes).", labels=labels)
        reserved = GaugeMetricFamily("muster_ledger_quota_reserved", "What PodGroups reserved of it.", labels=labels)
        other = GaugeMetricFamily(
            "muster_ledger_quota_other", "What pods take of it beyond what their groups reserved.", labels=labels
        )
        for namespace, (_, tightest) in nlargest(NAMESPACES, self._known.items(), key=lambda item: item[1][0]):
            for resource, each in tightest.items():
                for family, nano in ((hard, each.hard), (reserved, each.reserved), (other, each.used)):
                    family.add_metric((namespace, resource), nano / NANO)
        yield from (hard, reserved, other)
        left_out = max(0, len(self._known) - NAMESPACES)
        yield GaugeMetricFamily(
            "muster_ledger_quota_namespaces_left_out",
            "Namespaces with more left than those that are shown.",
            value=left_out,
        )


def _fullness(standing: Shortage) -> float:
    """How much of a limit is taken; a limit of zero is full once anything is."""
    taken = standing.hard + standing.short
    return taken / standing.hard if standing.hard else float(taken > 0)
