"""Metrics of the webhook server. Labels are bounded: paths of ours, operations and verdicts, never a user's words."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.telemetry.registry import registry

OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds."""


class WebhookMetrics(Collector):
    """Counters of one server, in a registry of their own: several servers fit into one process.

    Plain numbers, turned into metrics when somebody asks: the library's own counters take a lock each time, which all
    together cost a tenth of a review. Only the server's loop writes.

    Attributes:
        in_flight: reviews being answered.
    """

    def __init__(self) -> None:
        self.registry = registry("webhook")
        self.in_flight = 0
        self._reviews: Counter[tuple[str, str, str]] = Counter()
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._refusals: Counter[tuple[str, str]] = Counter()
        self._confirmations: Counter[str] = Counter()
        self._certificate_ends = 0.0
        self._certificate_stale = False
        self._watches_failing: Callable[[], int] = int
        self._unreadable: Callable[[], Mapping[str, int]] = dict
        self.registry.register(self)

    def answered(self, webhook: str, operation: str, verdict: str, seconds: float) -> None:
        """Count one answer. ``operation`` is the caller's text: an unknown one counts as ``other``."""
        if webhook not in self._buckets:
            # Counters that are to stay at zero are there from the start: an increase from nothing is none to Prometheus.
            self._refusals.update({(webhook, "failed"): 0, (webhook, "busy"): 0})
            self._reviews[webhook, "other", "malformed"] += 0
        self._reviews[webhook, operation if operation in OPERATIONS else "other", verdict] += 1
        self._buckets[webhook][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[webhook] += seconds

    def refused(self, webhook: str, reason: str) -> None:
        """Count one refusal, by what it rests on (`webhooks.verdict.Ground`)."""
        self._refusals[webhook, reason] += 1

    def confirmed(self, *, refused: bool) -> None:
        """Count one live read of what a refusal rested on, and what it made of the refusal."""
        self._confirmations["refused" if refused else "allowed"] += 1

    def certificate_ends(self, moment: datetime) -> None:
        """Note until when the certificate that is served from now on is good."""
        self._certificate_ends = moment.timestamp()

    def certificate_stale(self, stale: bool) -> None:  # noqa: FBT001 - the one thing there is to say
        """Note whether the files hold another certificate than is served, since it can't be."""
        self._certificate_stale = stale

    def watches(self, failing: Callable[[], int], unreadable: Callable[[], Mapping[str, int]]) -> None:
        """Ask these, when somebody wants to know, how many kinds can't be watched, and by kind how many objects can't be read."""
        self._watches_failing, self._unreadable = failing, unreadable

    def collect(self) -> Iterator[Metric]:
        """Return everything as metrics, for the registry."""
        reviews = CounterMetricFamily(
            "muster_webhook_reviews", "Reviews answered.", labels=("webhook", "operation", "verdict")
        )
        for labels, count in self._reviews.items():
            reviews.add_metric(labels, count)
        refusals = CounterMetricFamily(
            "muster_webhook_refusals", "Reviews refused, by what the refusal rests on.", labels=("webhook", "reason")
        )
        for refusal, count in self._refusals.items():
            refusals.add_metric(refusal, count)
        seconds = HistogramMetricFamily(
            "muster_webhook_review_seconds", "From the whole body to the answer.", labels=("webhook",)
        )
        bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
        for webhook, counts in self._buckets.items():
            cumulative = list(zip(bounds, map(float, accumulate(counts)), strict=True))
            seconds.add_metric((webhook,), cumulative, self._seconds[webhook])
        confirmations = CounterMetricFamily(
            "muster_webhook_confirmations", "Refusals that were confirmed by a live read or not.", labels=("outcome",)
        )
        for outcome, count in self._confirmations.items():
            confirmations.add_metric((outcome,), count)
        yield from (reviews, refusals, seconds, confirmations)
        yield GaugeMetricFamily(
            "muster_watches_failing", "Kinds that can't be watched now.", value=self._watches_failing()
        )
        unreadable = GaugeMetricFamily(
            "muster_webhook_unreadable_objects",
            "Objects that can't be read, or whose change couldn't be followed; a quota with such a pod or PodGroup grants nothing.",
            labels=("kind",),
        )
        for kind, count in self._unreadable().items():
            unreadable.add_metric((kind,), count)
        yield unreadable
        yield GaugeMetricFamily("muster_webhook_in_flight", "Reviews being answered.", value=self.in_flight)
        yield GaugeMetricFamily(
            "muster_webhook_certificate_not_after_timestamp_seconds",
            "When the served certificate ends, in seconds since 1970.",
            value=self._certificate_ends,
        )
        yield GaugeMetricFamily(
            "muster_webhook_certificate_stale",
            "1 while the files hold what can't be served, and an older certificate is.",
            value=float(self._certificate_stale),
        )
