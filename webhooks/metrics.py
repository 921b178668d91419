"""What the webhook server counts. Labels are bounded: names of ours, operations and verdicts, never a user's words."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counters of one server, in a registry of their own: several servers fit into one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._reviews = Counter(
            "muster_webhook_reviews",
            "Reviews answered.",
            ("webhook", "operation", "verdict"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "muster_webhook_review_seconds",
            "Time from the whole body to the answer.",
            ("webhook",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._confirmations = Counter(
            "muster_webhook_confirmations",
            "Refusals that rested on a cache, by what a live read made of them.",
            ("outcome",),
            registry=self.registry,
        )
        self.in_flight = 0
        gauge = Gauge("muster_webhook_in_flight", "Reviews being answered.", registry=self.registry)
        gauge.set_function(lambda: self.in_flight)
        self._certificate = Gauge(
            "muster_webhook_certificate_not_after_seconds",
            "When the served certificate ends, in seconds since 1970.",
            registry=self.registry,
        )
        # Looking a child up by its labels costs more than counting with it.
        self._review = lru_cache(maxsize=None)(self._reviews.labels)
        self._timer = lru_cache(maxsize=None)(self._seconds.labels)

    def answered(self, webhook: str, operation: str, verdict: str, seconds: float) -> None:
        """Count one answer. ``operation`` is the caller's text: an unknown one counts as ``other``."""
        known = operation if operation in OPERATIONS else "other"
        self._review(webhook, known, verdict).inc()
        self._timer(webhook).observe(seconds)

    def certificate_ends(self, moment: datetime) -> None:
        """Note until when the certificate that is served from now on is good."""
        self._certificate.set(moment.timestamp())

    def confirmed(self, *, refused: bool) -> None:
        """Count one live read and what it made of a refusal."""
        self._confirmations.labels("refused" if refused else "allowed").inc()
