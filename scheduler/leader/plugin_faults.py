"""Tells of plugins that fail: in the log when it begins or changes, in a counter each time."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter

from scheduler.model.obstacle import PluginFault

log = logging.getLogger(__name__)


class FaultLog:
    """What was told already isn't told again until it has ceased."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "muster_scheduler_plugin_faults",
            "Cycles in which an extension point of a plugin failed.",
            ["plugin", "point"],
            registry=registry,
        )
        self._reported: frozenset[PluginFault] = frozenset()

    def report(self, faults: Iterable[PluginFault]) -> None:
        """Report what went wrong in a cycle."""
        now = frozenset(faults)
        for fault in sorted(now):
            self._counter.labels(fault.plugin, fault.point).inc()
            if fault not in self._reported:
                log.error("plugin %s failed in %s, which counts as no: %s", *fault)
        self._reported = now
