"""The registry of one program: its own metrics beside those of its process."""

from __future__ import annotations

import platform

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics

import muster
from muster.telemetry.defects import DEFECTS


def registry(program: str) -> CollectorRegistry:
    """Make a registry that says which program and version this is, and what its process takes of the machine."""
    # A series per series, for what nobody asks.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no annotation there
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    made.register(DEFECTS)
    build = Gauge(
        "muster_build_info", "1; what runs is in the labels.", ["program", "version", "python"], registry=made
    )
    build.labels(program, muster.__version__, platform.python_version()).set(1)
    return made
