"""Connections of the webhook server: what a caller has to send, and until when.

A connection that sends no request holds memory and a descriptor for nothing, so it has 10 seconds. API servers are the
exception: their clients open a connection for a request which another connection then takes, and keep it for the next one.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

from webhooks.budget import WaitingRoom

FIRST_REQUEST: Final = 10.0
"""Seconds for the headers of a connection's first request."""
KEEPALIVE: Final = 120.0
"""Seconds between requests; the API server drops idle connections after 90, so it is the one to do so."""
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class CallerConnection(web.RequestHandler):
    """A connection that is closed unless it sends a request in time."""

    __slots__ = ("_address", "_alarm", "_room")

    def __init__(self, manager: web.Server, room: WaitingRoom[CallerConnection], **options: Any) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # as documented for web.Server
            keepalive_timeout=KEEPALIVE,
            # Nobody compresses a review; what inflates without bound is not asked for.
            auto_decompress=False,
            lingering_time=1.0,
            **options,
        )
        self._room = room
        self._address = ""
        self._alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        self._address = str((transport.get_extra_info("peername") or ("",))[0])
        within = KEEPALIVE if self._room.is_caller(self._address) else FIRST_REQUEST
        self._alarm = loop.call_later(within, self.force_close)
        if (excess := self._room.enter(self, self._address, loop.time())) is not None:
            excess.turn_away()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wait no longer."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def requested(self, *, accepted: bool) -> None:
        """Take note of a request; ``accepted`` where the caller is one that has to be answered."""
        if self._alarm is not None:
            self._wait_no_longer()
        if accepted:
            self._room.answered(self._address)

    def turn_away(self) -> None:
        """Close the connection to make room for others."""
        if self.transport is not None:
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.write(_FULL)
        self.force_close()

    def _wait_no_longer(self) -> None:
        self._room.leave(self, self._address)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
