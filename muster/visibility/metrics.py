"""Metrics of the visibility API. Labels are bounded: resources of ours and status codes, never a user's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from muster.telemetry.registry import registry

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds; 0.1 and 0.3 are the targets of docs/visibility.md."""
OTHER: Final = "other"
"""What a path that isn't ours counts as."""


class VisibilityMetrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self, resources: tuple[str, ...]) -> None:
        self.registry = registry("visibility")
        self._requests = Counter(
            "muster_visibility_requests",
            "Requests, by what they ask for.",
            ["resource", "code"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "muster_visibility_request_seconds",
            "Time from a request to its answer.",
            ["resource"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._waiting = Gauge(
            "muster_visibility_waiting_questions", "Questions that wait or are answered.", registry=self.registry
        )
        self._age = Gauge(
            "muster_visibility_state_age_seconds",
            "Time since the state that is answered on was the newest; grows while nobody asks.",
            registry=self.registry,
        )
        for each in resources:
            # Counters that are to stay at zero are there from the start: an increase from nothing is none to Prometheus.
            for code in ("200", "429", "500", "503"):
                self._requests.labels(each, code)
            self._seconds.labels(each)

    def watch(self, waiting: Callable[[], int], age: Callable[[], float]) -> None:
        """Ask these whenever somebody scrapes."""
        self._waiting.set_function(waiting)
        self._age.set_function(age)

    def answered(self, resource: str, code: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(resource, str(code)).inc()
        self._seconds.labels(resource).observe(seconds)
