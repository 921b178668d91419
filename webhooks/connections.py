"""Connections of the webhook server: what a caller has to send, and until when.

A connection that sends no request holds memory and a descriptor for nothing, so it has 10 seconds. API servers are the
exception: their clients open a connection for a request which another connection then takes, and keep it for the next one.

What isn't HTTP no API server sends: of each address that sends it the log has one line in ten minutes, and none of its bytes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from aiohttp import http_exceptions, web

from muster.telemetry.repeated import RepeatedWarnings
from muster.telemetry.waiting_room import WaitingRoom

log = logging.getLogger(__name__)

FIRST_REQUEST: Final = 10.0
"""Seconds for the headers of a connection's first request."""
KEEPALIVE: Final = 120.0
"""Seconds between requests; the API server drops idle connections after 90, so it is the one to do so."""
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class CallerConnection(web.RequestHandler):
    """A connection that is closed unless it sends a request in time."""

    __slots__ = ("_address", "_alarm", "_room", "_strangers")

    def __init__(
        self, manager: web.Server, room: WaitingRoom[CallerConnection], strangers: RepeatedWarnings, **options: Any
    ) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # as documented for web.Server
            # An error in what answers is one of Muster's, and counted as such by the name of its logger.
            logger=log,
            keepalive_timeout=KEEPALIVE,
            # Nobody compresses a review; what inflates without bound is not asked for.
            auto_decompress=False,
            lingering_time=1.0,
            **options,
        )
        self._room = room
        self._strangers = strangers
        self._address = ""
        self._alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        self._address = str((transport.get_extra_info("peername") or ("",))[0])
        within = KEEPALIVE if self._address in self._room.callers else FIRST_REQUEST
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
            self._room.callers.add(self._address)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request; everything else is an error of ours, and aiohttp's to answer."""
        if not isinstance(exc, http_exceptions.HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        # Neither what came nor what is wrong with it: both are a stranger's text, and may hold a path.
        self._strangers.warn(
            self._address, "what %s sends isn't HTTP (%s); its connection is closed", self._address, type(exc).__name__
        )
        response = web.Response(status=400, text="this isn't HTTP\n")
        response.force_close()
        return response

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
