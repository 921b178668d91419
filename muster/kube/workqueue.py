"""A line of keys to look at: what a controller does when something changed, again until it worked."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Any, Final, Generic, TypeVar

from muster.kube import errors
from muster.kube.backoff import Backoff

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)

_FIRST: Final = 0.5
_MOST: Final = 60.0


class Work(Generic[K]):
    """Handles keys, several at once but never one twice at a time, the urgent ones first.

    ``handle`` looks at the present state and brings it nearer to what it should be. A key added while it is handled is
    handled again. What the API server refuses is tried again after a pause that grows.

    ``before``: work that matters more; while it has keys in line, this handles one at a time, the urgent ones aside.
    """

    def __init__(
        self,
        what: str,
        handle: Callable[[K], Awaitable[None]],
        *,
        at_once: int = 16,
        before: Work[Any] | None = None,
    ) -> None:
        self._what = what
        self._handle = handle
        self._at_once = at_once
        self._before = before
        self._followers: list[Callable[[], None]] = []
        if before is not None:
            before.follow(lambda: self._wake(at_once))
        # Those that wait, and whether that is urgent. The lines may hold keys besides that have had their turn.
        self._waiting: dict[K, bool] = {}
        self._urgent: deque[K] = deque()
        self._line: deque[K] = deque()
        self._free: deque[asyncio.Future[None]] = deque()
        self._busy: set[K] = set()
        self._failing: dict[K, Backoff] = {}
        self._over = False

    @property
    def in_line(self) -> int:
        """How many keys wait for their turn."""
        return len(self._waiting)

    def follow(self, caught_up: Callable[[], None]) -> None:
        """Have ``caught_up`` called whenever the last key in line has its turn."""
        self._followers.append(caught_up)

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Have a key looked at soon; returns at once."""
        if self._over:
            return
        waits = self._waiting.get(key)
        if waits is not None and waits >= urgent:
            return
        self._waiting[key] = urgent
        if key not in self._busy:
            self._enqueue(key)

    async def run(self) -> None:
        """Handle keys, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._at_once):
                group.create_task(self._serve(waits=number > 0), name=self._what)

    async def _serve(self, *, waits: bool) -> None:
        while True:
            key = await self._next(waits=waits)
            self._busy.add(key)
            try:
                await self._try(key)
            finally:
                self._busy.discard(key)
                if key in self._waiting:
                    self._enqueue(key)

    def _enqueue(self, key: K) -> None:
        (self._urgent if self._waiting[key] else self._line).append(key)
        self._wake(1)

    async def _next(self, *, waits: bool) -> K:
        while True:
            for key in self._turns(waits=waits):
                if key in self._waiting and key not in self._busy:
                    del self._waiting[key]
                    if not self._waiting:
                        for follower in self._followers:
                            follower()
                    return key
            free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # The one that may always go on is woken first.
            (self._free.append if waits else self._free.appendleft)(free)
            await free

    def _turns(self, *, waits: bool) -> Iterator[K]:
        """Take from the lines, in the order of turns."""
        while self._urgent:
            yield self._urgent.popleft()
        while self._line and not (waits and self._before is not None and self._before.in_line):
            yield self._line.popleft()

    def _wake(self, count: int) -> None:
        """Have so many look at the lines again, of those that found nothing there."""
        while self._free and count:
            free = self._free.popleft()
            if not free.done():
                free.set_result(None)
                count -= 1

    def _leave(self) -> None:
        """Leave everything to the next leader: a dead fence stays dead, and lets no write through."""
        if not self._over:
            log.info("%s: %d in line are left to the next leader", self._what, len(self._waiting) + len(self._busy))
        self._over = True
        self._waiting.clear()

    async def _try(self, key: K) -> None:
        try:
            await self._handle(key)
        except errors.FenceLostError:
            self._leave()
        except errors.KubeError as error:
            backoff = self._failing.setdefault(key, Backoff(_FIRST, _MOST))
            pause = backoff.pause(error.retry_after if isinstance(error, errors.ApiError) else None)
            log.warning("%s %s is tried again in %.1f s: %s", self._what, key, pause, error)
            asyncio.get_running_loop().call_later(pause, self.add, key)
        else:
            self._failing.pop(key, None)
