"""A count of Muster's own errors: those that nobody foresaw, which were isolated so that everything else goes on.

Each has one log line with its traceback. So the lines are what is counted, in all modules, and none can be forgotten.
"""

from __future__ import annotations

import logging
from typing import Final

_OURS: Final = frozenset({"muster", "webhooks", "scheduler", "certs"})
"""Packages whose errors are Muster's; aiohttp writes a traceback for any bytes that strangers send."""


class DefectCounter(logging.Handler):
    """Counts log lines of errors with a traceback.

    `muster.telemetry.registry` shows the ``count``: what writes metrics takes a fifth of a program's start to import, and the log is there before.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line."""
        if record.exc_info and record.name.partition(".")[0] in _OURS:
            self.count += 1


DEFECTS: Final = DefectCounter()
"""The one of this process, as its log is one."""
