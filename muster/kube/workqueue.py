"""The work queue that every controller has: keys to reconcile, each again until that worked."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from muster.kube import errors
from muster.kube.backoff import Backoff

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)


class RetryPolicy(Struct, frozen=True):
    """When a reconciliation that failed is tried again.

    Attributes:
        errors: those that are tried again; any other is a bug.
        isolates: whether a bug is logged and its key tried again like that; otherwise it ends `WorkQueue.run`.
        first: seconds until the first retry; they double.
        most: seconds, at most.
        jitter: see `Backoff`.
        level: of the log line that says so.
    """

    errors: type[Exception]
    first: float
    most: float
    jitter: bool
    level: int
    isolates: bool = False

    def backoff(self) -> Backoff:
        """Return the pauses of a key that begins to fail."""
        return Backoff(self.first, self.most, jitter=self.jitter)


_REFUSALS: Final = RetryPolicy(
    errors.KubeError, first=0.5, most=60.0, jitter=True, level=logging.WARNING, isolates=True
)
_KEY_SHOWN: Final = 200


class WorkQueue(Generic[K]):
    """Reconciles keys, several at once but never one twice at a time, the urgent ones first.

    Source: the rate-limiting queue of ``k8s.io/client-go/util/workqueue``, and the loop around it that controllers have there.

    ``reconcile`` looks at the present state and brings it nearer to what it should be. A key added while it is
    reconciled is reconciled again. What the API server refuses is tried again after a pause that grows, and so is a key
    with which ``reconcile`` fails in a way that nobody foresaw: the others go on.

    Args:
        what: the word for a key in logs.
        reconcile: brings the object of a key to its desired state.
        at_once: how many keys are reconciled at the same time.
        yields_to: a queue that matters more; while it has keys in line, this one reconciles one at a time, the urgent
            ones aside.
        retries: when a key that failed is tried again.
    """

    def __init__(
        self,
        what: str,
        reconcile: Callable[[K], Awaitable[None]],
        *,
        at_once: int = 16,
        yields_to: WorkQueue[Any] | None = None,
        retries: RetryPolicy = _REFUSALS,
    ) -> None:
        self._what = what
        self._reconcile = reconcile
        self._at_once = at_once
        self._yields_to = yields_to
        self._retries = retries
        self._followers: list[Callable[[], None]] = []
        if yields_to is not None:
            yields_to.follow(lambda: self._wake(at_once))
        # Those that wait, and whether that is urgent. The lines may hold keys besides that have had their turn.
        self._waiting: dict[K, bool] = {}
        self._urgent: deque[K] = deque()
        self._line: deque[K] = deque()
        self._free: deque[asyncio.Future[None]] = deque()
        self._busy: set[K] = set()
        self._failing: dict[K, Backoff] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._over = False

    @property
    def in_line(self) -> int:
        """How many keys wait for their turn."""
        return len(self._waiting)

    def follow(self, caught_up: Callable[[], None]) -> None:
        """Have ``caught_up`` called whenever the last key in line has its turn."""
        self._followers.append(caught_up)

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Have a key reconciled soon; returns at once."""
        if self._over:
            return
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        waits = self._waiting.get(key)
        if waits is not None and waits >= urgent:
            return
        self._waiting[key] = urgent
        if key not in self._busy:
            self._enqueue(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Have a key reconciled in that many seconds, or earlier where something earlier is agreed."""
        if seconds <= 0:
            self.add(key)
            return
        if self._over or key in self._waiting:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self.add, key)

    async def run(self) -> None:
        """Reconcile keys, until cancelled. Once the fence of a write is lost, nothing more is: the next leader does the rest.

        Raises:
            ExceptionGroup: with the error of ``reconcile``, where ``retries`` neither covers nor isolates it.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._at_once):
                    group.create_task(self._serve(waits=number > 0), name=self._what)
        finally:
            self._cancel_timers()

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

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
        while self._line and not (waits and self._yields_to is not None and self._yields_to.in_line):
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
        self._cancel_timers()

    async def _try(self, key: K) -> None:
        try:
            await self._reconcile(key)
        except errors.FenceLostError:
            self._leave()
        except self._retries.errors as error:
            # That another writer came first once is what versions are for, and no trouble.
            usual = type(error) is errors.ConflictError and key not in self._failing
            pause = self._pause(key, error.retry_after if isinstance(error, errors.ApiError) else None)
            level = min(self._retries.level, logging.INFO) if usual else self._retries.level
            log.log(level, "%s %s is tried again in %.1f s: %s", self._what, _short(key), pause, error)
        except Exception:
            if not self._retries.isolates:
                raise
            # Once with its traceback: the same is tried for as long as the key is there.
            level = logging.DEBUG if key in self._failing else logging.ERROR
            pause = self._pause(key, None)
            log.log(
                level,
                "%s %s failed, again in %.1f s: an error in Muster",
                self._what,
                _short(key),
                pause,
                exc_info=True,
            )
        else:
            self._failing.pop(key, None)

    def _pause(self, key: K, at_least: float | None) -> float:
        """Have a key that failed tried again; return in how many seconds."""
        if key not in self._failing:
            self._failing[key] = self._retries.backoff()
        pause = self._failing[key].pause(at_least)
        self.add_after(key, pause)
        return pause


def _short(key: Hashable) -> str:
    return str(key)[:_KEY_SHOWN]
