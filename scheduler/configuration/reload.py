"""The configuration file, followed: what it says is taken over while the scheduler runs, unless it can't be used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from scheduler.configuration import config
from scheduler.configuration.config import ConfigurationError
from scheduler.engine.policy import Policy

POLL: Final = 2.0
"""Seconds between two looks. A mounted ConfigMap changes by a link to a folder, which no notification of the file tells."""

log = logging.getLogger(__name__)


class LivePolicy:
    """What a file says, and before that what it said when it could last be used.

    Attributes:
        trouble: why the file's present content isn't followed, a line per mistake; empty while it is.
    """

    def __init__(self, file: Path, registry: CollectorRegistry) -> None:
        self._file = file
        self._refused = Gauge(
            "muster_scheduler_configuration_refused",
            "1 while the configuration file holds something that can't be used, and the last good one goes on.",
            registry=registry,
        )
        self._text: str | None = None
        self.trouble = ""

    async def run(self, adopt: Callable[[Policy], None]) -> None:
        """Follow the file, until cancelled; ``adopt`` is given each new policy. The present content counts as new."""
        while True:
            self._look(adopt)
            await asyncio.sleep(POLL)

    def _look(self, adopt: Callable[[Policy], None]) -> None:
        try:
            text = self._file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._text = None
            self._tell(f"{self._file} can't be read: {getattr(error, 'strerror', None) or error}")
            return
        if text == self._text:
            return
        self._text = text
        try:
            policy = config.parse(text, str(self._file))
        except ConfigurationError as error:
            self._tell(str(error))
        else:
            self._tell("")
            log.info("following %s: %s", self._file, ", ".join(action.name for action in policy.actions))
            for remark in policy.remarks:
                log.warning("%s", remark)
            adopt(policy)

    def _tell(self, trouble: str) -> None:
        if trouble != self.trouble:
            for line in trouble.splitlines():
                log.warning("the configuration stays as it was: %s", line)
        self.trouble = trouble
        self._refused.set(1 if trouble else 0)
