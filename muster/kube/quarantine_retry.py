"""Tries quarantined objects again: what a subscriber of a cache failed on is shown to it anew, ever less often."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import Struct

from muster.kube.backoff import Backoff
from muster.kube.cache import ObjectCache
from muster.kube.subscription import Name

FIRST_RETRY: Final = 1.0
"""Seconds until an object is tried again, and after a change of it."""
LONGEST_RETRY: Final = 300.0
"""Seconds until it is tried again, at most."""
_SHARE: Final = 10
"""Of its time a loop gives one part to retries: who makes many such objects must not have all of it."""


class _Wait(Struct):
    """When an object is tried again, and which state of it was tried last."""

    due: float
    backoff: Backoff
    version: str


class QuarantineRetries:
    """Tries the quarantined objects of one cache again, until cancelled."""

    def __init__(self, cache: ObjectCache[Any]) -> None:
        self._cache = cache
        self._waits: dict[Name, _Wait] = {}

    async def run(self) -> None:
        """Try again what is due, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._observe(loop.time())
            soonest = min((each.due for each in self._waits.values()), default=None)
            try:
                async with asyncio.timeout_at(soonest):
                    await self._cache.stirred.wait()
            except TimeoutError:
                began = loop.time()
                self._retry(began)
                await asyncio.sleep(_SHARE * (loop.time() - began))

    def _observe(self, now: float) -> None:
        """Take note of what is quarantined by now, and of new versions of it."""
        self._cache.stirred.clear()
        quarantined = self._cache.quarantined
        self._waits = {name: wait for name, wait in self._waits.items() if name in quarantined}
        for name in quarantined:
            version, known = self._version(name), self._waits.get(name)
            if known is None:
                backoff = Backoff(FIRST_RETRY, LONGEST_RETRY, jitter=False)
                self._waits[name] = _Wait(now + backoff.pause(), backoff, version)
            elif known.version != version:
                known.version = version
                known.due = min(known.due, now + FIRST_RETRY)

    def _retry(self, now: float) -> None:
        for name, wait in sorted(self._waits.items(), key=lambda each: each[1].due):
            if wait.due > now:
                return
            healed = self._cache.retry(name)
            if healed is None:
                wait.due = now + FIRST_RETRY
            elif healed:
                del self._waits[name]
            else:
                wait.due = now + wait.backoff.pause()

    def _version(self, name: Name) -> str:
        item = self._cache.get(name[1], name[0])
        return item.metadata.resource_version if item is not None else ""
