"""The shell that every controller has in common: a queue of names, workers, and patience with refusals."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from muster.sandbox.controllers.events import Recorder
from muster.sandbox.controllers.writer import Writer
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import StoreEvent
from muster.sandbox.core.users import User
from muster.sandbox.server.requests import ApiServer

Name = TypeVar("Name", bound=Hashable)

logger = logging.getLogger(__name__)

_NAME_SHOWN: Final = 200
_DOUBLINGS: Final = 32


class WorkQueue(Generic[Name]):
    """Names to look at: each waits at most once, and none is with two workers at a time.

    A name that is added while a worker has it comes up again once that worker is done.
    """

    def __init__(self) -> None:
        self._ready: asyncio.Queue[Name] = asyncio.Queue()
        self._waiting: set[Name] = set()
        self._busy: set[Name] = set()
        self._again: set[Name] = set()
        self._timers: dict[Name, asyncio.TimerHandle] = {}

    def add(self, name: Name) -> None:
        """Look at ``name`` as soon as possible."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        if name in self._busy:
            self._again.add(name)
        elif name not in self._waiting:
            self._waiting.add(name)
            self._ready.put_nowait(name)

    def add_after(self, name: Name, seconds: float) -> None:
        """Look at ``name`` in that many seconds, or earlier if something earlier is already agreed."""
        if seconds <= 0:
            self.add(name)
            return
        if name in self._waiting:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(name)
        if timer is not None and timer.when() <= loop.time() + seconds:
            return
        if timer is not None:
            timer.cancel()
        self._timers[name] = loop.call_later(seconds, self.add, name)

    async def get(self) -> Name:
        """Wait for a name; its worker must call `done` afterwards."""
        name = await self._ready.get()
        self._waiting.discard(name)
        self._busy.add(name)
        return name

    def done(self, name: Name) -> None:
        """Return a name back."""
        self._busy.discard(name)
        if name in self._again:
            self._again.discard(name)
            self.add(name)

    def close(self) -> None:
        """Cancel what is agreed for later."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class Controller(ABC, Generic[Name]):
    """Keeps what `observe` names in the state that `sync` works out.

    A refused write is tried again after a pause that doubles from ``PAUSE`` to ``LONGEST_PAUSE`` seconds, as the real
    controllers do. Any other exception is a bug: it ends the controller, and with it the sandbox.
    """

    WORKERS = 1
    PAUSE = 0.005
    LONGEST_PAUSE = 1000.0

    def __init__(self, server: ApiServer, user: User, component: str) -> None:
        self.server = server
        self.store = server.store
        self.write = Writer(server, user)
        self.events = Recorder(self.write, component)
        self.queue: WorkQueue[Name] = WorkQueue()
        self._refusals: dict[Name, int] = {}

    @abstractmethod
    def observe(self, event: StoreEvent) -> None:
        """Put on the queue what a change concerns. Called within the write: it must not wait."""

    @abstractmethod
    async def sync(self, name: Name) -> None:
        """Bring ``name`` into order, as the store is now.

        Raises:
            StatusError: a write was refused; the name is tried again later.
        """

    async def run(self) -> None:
        """Work until cancelled."""
        unsubscribe = self.store.subscribe(self.observe)
        try:
            kinds = self.store.keys()
            for key in kinds:
                for obj in self.store.list(key):
                    self.observe(StoreEvent("ADDED", key, obj, None, self.store.revision))
            async with asyncio.TaskGroup() as workers:
                for _ in range(self.WORKERS):
                    workers.create_task(self._work())
        finally:
            unsubscribe()
            self.queue.close()

    async def _work(self) -> None:
        while True:
            name = await self.queue.get()
            try:
                await self.sync(name)
                self._refusals.pop(name, None)
            except StatusError as error:
                self._later(name, error)
            finally:
                self.queue.done(name)

    def _later(self, name: Name, error: StatusError) -> None:
        refusals = self._refusals.get(name, 0)
        self._refusals[name] = refusals + 1
        pause = min(self.PAUSE * 2.0 ** min(refusals, _DOUBLINGS), self.LONGEST_PAUSE)
        logger.debug("%s %s: %s; again in %s s", type(self).__name__, str(name)[:_NAME_SHOWN], error, pause)
        self.queue.add_after(name, pause)
