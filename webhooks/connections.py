"""Connections of the webhook server: what a caller has to send, and until when.

A connection that sends no request holds memory and a descriptor for nothing, so it has 10 seconds. API servers are the
exception: their clients open a connection for a request which another connection then takes, and keep it for the next one.

The answer to a review is written as bytes, head and body at once: aiohttp's own response is prepared in six coroutines, with
headers that are the same each time, which is a seventh of what a review costs.

What isn't HTTP no API server sends: of each address that sends it the log has one line in ten minutes, and none of its bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final

from aiohttp import HttpVersion11, http_exceptions, web
from aiohttp.abc import AbstractStreamWriter

from muster.telemetry.repeated import RepeatedWarnings
from muster.telemetry.waiting_room import WaitingRoom

log = logging.getLogger(__name__)

FIRST_REQUEST: Final = 10.0
"""Seconds for the headers of a connection's first request."""
KEEPALIVE: Final = 120.0
"""Seconds between requests; the API server drops idle connections after 90, so it is the one to do so."""
LARGE: Final = 64 * 1024
"""Bytes; of an answer that is larger, as much is written as the connection takes."""
_HEAD: Final = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %s\r\n%s\r\n"
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


class ReviewResponse(web.StreamResponse):
    """200 with an AdmissionReview as ``body``, to a caller of HTTP/1.1."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._answer = body

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write head and body.

        Raises:
            ConnectionResetError: the caller is gone.
        """
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the caller is gone")
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        close = "" if self._keep_alive else "Connection: close\r\n"
        head = _HEAD % (len(self._answer), _date(int(asyncio.get_running_loop().time())), close)
        transport.write(head.encode() + self._answer)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: all is written."""


def answer(request: web.BaseRequest, status: int, headers: Mapping[str, str], body: bytes) -> web.StreamResponse:
    """Return the response to a call: a verdict as bytes, anything else as aiohttp writes it."""
    if status == 200 and request.version == HttpVersion11 and len(body) <= LARGE:
        return ReviewResponse(body)
    return web.Response(status=status, headers=headers, body=body)


@lru_cache(maxsize=1)
def _date(_second: int) -> str:
    """Write the time as HTTP does; once in each second of the loop's clock."""
    return formatdate(usegmt=True)
