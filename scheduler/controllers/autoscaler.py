"""Looks now and then whether the cluster has a program that makes nodes for pods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from muster.kube import autoscalers, errors
from muster.kube.client import Client

log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 60.0


class AutoscalerObserver:
    """Tells ``seen`` the name of the cluster's autoscaler, or none, each time that it is another one.

    An error leaves what was known: an API server that can't answer doesn't mean that the autoscaler has gone.
    """

    def __init__(self, client: Client, seen: Callable[[str], None]) -> None:
        self._client = client
        self._seen = seen
        self._known = ""
        self._told = ""

    async def look(self) -> None:
        """Look once."""
        try:
            found = await autoscalers.find(self._client)
        except errors.KubeError as error:
            if str(error) != self._told:
                log.warning("cannot tell whether the cluster has an autoscaler: %s", error)
            self._told = str(error)
            return
        self._told = ""
        if found != self._known:
            log.info("%s", f"{found} makes nodes for pods" if found else f"{self._known} is no longer seen")
            self._known = found
            self._seen(found)

    async def run(self) -> None:
        """Look every minute, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL_SECONDS)
