"""The base class of controllers: a shell that observes the store, and a work queue of keys to reconcile."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Generic, TypeVar

from muster.kube.workqueue import RetryPolicy, WorkQueue
from muster.sandbox.controllers.events import Recorder
from muster.sandbox.controllers.writer import Writer
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import StoreEvent
from muster.sandbox.core.users import User
from muster.sandbox.server.requests import ApiServer

Name = TypeVar("Name", bound=Hashable)


class Controller(ABC, Generic[Name]):
    """Keeps what `observe` names in the state that `sync` works out.

    A refused write is tried again after a pause that doubles from ``PAUSE`` to ``LONGEST_PAUSE`` seconds, as the real
    controllers do, and without their jitter: a run in virtual time repeats. Any other exception is a bug: it ends the
    controller, and with it the sandbox.
    """

    WORKERS = 1
    PAUSE = 0.005
    LONGEST_PAUSE = 1000.0

    def __init__(self, server: ApiServer, user: User, component: str) -> None:
        self.server = server
        self.store = server.store
        self.write = Writer(server, user)
        self.events = Recorder(self.write, component)
        retries = RetryPolicy(StatusError, self.PAUSE, self.LONGEST_PAUSE, jitter=False, level=logging.DEBUG)
        self.queue: WorkQueue[Name] = WorkQueue(component, self.sync, at_once=self.WORKERS, retries=retries)

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
            await self.queue.run()
        finally:
            unsubscribe()
