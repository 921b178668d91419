"""The registry of one program: its own metrics beside those of its process."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import muster
from muster.telemetry.defects import DEFECTS


class _DefectMetrics(Collector):
    """Shows how many of Muster's own errors there were."""

    def collect(self) -> Iterator[Metric]:
        """Return the count."""
        yield CounterMetricFamily(
            "muster_errors",
            "Errors in Muster that nobody foresaw; each is in the log with its traceback.",
            value=DEFECTS.count,
        )


def registry(program: str) -> CollectorRegistry:
    """Make a registry that says which program and version this is, and what its process takes of the machine."""
    # A series per series, for what nobody asks.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no annotation there
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    made.register(_DefectMetrics())
    build = Gauge(
        "muster_build_info", "1; what runs is in the labels.", ["program", "version", "python"], registry=made
    )
    build.labels(program, muster.__version__, platform.python_version()).set(1)
    return made
