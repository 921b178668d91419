"""A line of keys to look at: what a controller does when something changed, again until it worked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from muster.kube import errors
from muster.kube.backoff import Backoff

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)

_FIRST: Final = 0.5
_MOST: Final = 60.0


class Work(Generic[K]):
    """Handles keys, several at once but never one twice at a time.

    ``handle`` looks at the present state and brings it nearer to what it should be. A key added while it is handled is
    handled again. What the API server refuses is tried again after a pause that grows.
    """

    def __init__(self, what: str, handle: Callable[[K], Awaitable[None]], *, at_once: int = 16) -> None:
        self._what = what
        self._handle = handle
        self._at_once = at_once
        self._line: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()
        self._busy: set[K] = set()
        self._failing: dict[K, Backoff] = {}

    def add(self, key: K) -> None:
        """Have a key looked at soon; returns at once."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._busy:
            self._line.put_nowait(key)

    async def run(self) -> None:
        """Handle keys, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._at_once):
                group.create_task(self._serve(), name=self._what)

    async def _serve(self) -> None:
        while True:
            key = await self._line.get()
            self._waiting.discard(key)
            self._busy.add(key)
            try:
                await self._try(key)
            finally:
                self._busy.discard(key)
                if key in self._waiting:
                    self._line.put_nowait(key)

    async def _try(self, key: K) -> None:
        try:
            await self._handle(key)
        except errors.FenceLostError:
            log.info("%s %s is left to the next leader", self._what, key)
        except errors.KubeError as error:
            backoff = self._failing.setdefault(key, Backoff(_FIRST, _MOST))
            pause = backoff.pause(error.retry_after if isinstance(error, errors.ApiError) else None)
            log.warning("%s %s is tried again in %.1f s: %s", self._what, key, pause, error)
            asyncio.get_running_loop().call_later(pause, self.add, key)
        else:
            self._failing.pop(key, None)
