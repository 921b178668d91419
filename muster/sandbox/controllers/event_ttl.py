"""Deletes events an hour after they last happened. In the real server its storage does it."""

from __future__ import annotations

from typing import Final

from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.events import EVENTS
from muster.sandbox.core.store import StoreEvent, identity
from muster.sandbox.core.users import User
from muster.sandbox.server.requests import ApiServer

_HOUR: Final = 3600.0
_USER: Final = User("system:apiserver", groups=("system:masters",))


class EventTtl(Controller[tuple[str, str, str]]):
    """Deletes old events, by the version that is an hour old: one that happened again since has another."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, _USER, "apiserver")

    def observe(self, event: StoreEvent) -> None:
        """An event that happened."""
        if event.key == EVENTS and event.type != "DELETED":
            version = event.object["metadata"]["resourceVersion"]
            self.queue.add_after((*identity(event.object), version), _HOUR)

    async def sync(self, name: tuple[str, str, str]) -> None:
        """Delete an event unless it happened again."""
        namespace, event_name, version = name
        event = self.store.get(EVENTS, namespace, event_name)
        if event is not None and event["metadata"]["resourceVersion"] == version:
            await self.write.delete(EVENTS, event)
