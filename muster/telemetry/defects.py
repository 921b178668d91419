"""A count of Muster's own errors: those that nobody foresaw, which were isolated so that everything else goes on.

Each has one log line with its traceback. So the lines are what is counted, in all modules, and none can be forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_OURS: Final = frozenset({"muster", "webhooks", "scheduler", "certs"})
"""Packages whose errors are Muster's; aiohttp writes a traceback for any bytes that strangers send."""


class DefectCounter(logging.Handler, Collector):
    """Counts log lines of errors with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line."""
        if record.exc_info and record.name.partition(".")[0] in _OURS:
            self._count += 1

    def collect(self) -> Iterator[Metric]:
        """Return the count."""
        yield CounterMetricFamily(
            "muster_errors",
            "Errors in Muster that nobody foresaw; each is in the log with its traceback.",
            value=self._count,
        )


DEFECTS: Final = DefectCounter()
"""The one of this process, as its log is one."""
