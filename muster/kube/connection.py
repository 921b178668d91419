"""One connection to an HTTP/1.1 server: one request at a time, whose answer is read whole or piece by piece.

httptools parses; this is what lies between it and the event loop. What goes wrong is an `OSError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

import httptools

_HELD: Final = 2**20
"""Bytes of a stream that wait for their reader before the server is made to wait, too."""
_HEADERS: Final = 2**16
"""Bytes of headers that an answer may have."""


class Connection(asyncio.BufferedProtocol):
    """A connection, from when it was made until it is lost.

    Attributes:
        status: of the answer, once its head has come.
        headers: the same; names in lower case.
        open: whether it can carry another request.
        silent: whether nothing of an answer has come since `send`.
        served: how many answers it has brought.
        lost: set when it is closed, by whomever.
    """

    def __init__(self, buffer: memoryview, ended: Callable[[Connection], None]) -> None:
        # What is read is parsed at once, so all connections of a loop can read into one buffer.
        self._buffer = buffer
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: OSError | None = None
        self._pieces: list[bytes] = []
        self._held = self._header_bytes = 0
        self._asked = self._complete = self._headed = self._framed = self._streams = self._paused = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.open, self.silent = False, True
        self.served = 0
        self.lost = asyncio.Event()
        self._since = self._within = 0.0
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def transport(self) -> asyncio.Transport:
        """What carries the bytes, for an upgrade to TLS."""
        if self._transport is None:
            raise ConnectionResetError("it is closed")
        return self._transport

    # ── for who asks ─────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, request: bytes, *, streams: bool = False) -> None:
        """Send a request, head and body; ``streams``: its answer is read piece by piece.

        Raises:
            OSError: it is closed.
        """
        transport = self.transport
        self._asked, self._streams, self.silent = True, streams, True
        self._complete = self._headed = self._framed = False
        self._pieces, self._held = [], 0
        self._begin_head()
        transport.write(request)

    async def headed(self) -> None:
        """Wait for the head of the answer.

        Raises:
            OSError: the connection broke, or what came isn't HTTP.
        """
        while not self._headed:
            await self._news()

    async def whole(self) -> bytes:
        """Wait for the end of the answer, and give its body.

        Raises:
            OSError: the connection broke before that.
        """
        while not self._complete:
            await self._news()
        return self._take()

    async def piece(self, within: float) -> bytes:
        """Return what has come of a body since; empty at its end.

        Raises:
            TimeoutError: nothing came for so many seconds.
            OSError: the connection broke before the end. What had come is given first.
        """
        while not self._pieces and not self._complete:
            # One timer for all pieces, which looks when it rings: one for each is a third of what an event of a watch costs.
            self._since, self._within = self._loop.time(), within
            if self._alarm is None:
                self._alarm = self._loop.call_at(self._since + within, self._ring)
            await self._news()
        return self._take()

    def abort(self) -> None:
        """Close it now, whatever is under way."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    async def _news(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _ring(self) -> None:
        """End the wait for a piece where it has been too long."""
        self._alarm = None
        if self._waiter is None or self._waiter.done():
            return
        until = self._since + self._within
        if self._loop.time() < until:
            self._alarm = self._loop.call_at(until, self._ring)
        else:
            self._waiter.set_exception(TimeoutError())

    def _take(self) -> bytes:
        taken = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self._held = [], 0
        if self._paused:
            self._paused = False
            if self._transport is not None:
                self._transport.resume_reading()
        return taken

    def _wake(self) -> None:
        # Who wants the whole isn't woken for its parts.
        if self._waiter is None or self._waiter.done() or not (self._complete or self._streams or self._error):
            return
        self._waiter.set_result(None)

    # ── for the event loop ───────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; loops call it."""
        # uvloop's are none by inheritance.
        self._transport, self.open = cast("asyncio.Transport", transport), True

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - there is but one
        """Say where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what was read."""
        if self._error is not None:
            return
        self.silent = False
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionAbortedError(f"what the server sent is not HTTP: {error.__context__ or error}"))
        if self._streams and self._held > _HELD and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """End; what isn't whole stays so, except where the end of the connection is that of the answer."""
        self._transport, self.open = None, False
        if self._alarm is not None:
            self._alarm.cancel()
        if self._headed and not self._framed and exc is None and self._error is None:
            self._complete = True
        if self._error is None:
            self._error = exc if isinstance(exc, OSError) else ConnectionResetError("the server closed it")
        self.lost.set()
        self._ended(self)
        self._wake()

    def _fail(self, error: OSError) -> None:
        self._error = error
        self.abort()

    # ── for the parser ───────────────────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """An answer begins."""
        if not self._asked:
            raise ConnectionAbortedError("an answer to nothing")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of it is known."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _HEADERS:
            raise ConnectionAbortedError(f"headers of more than {_HEADERS} bytes")
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """Its head is known."""
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return
        self._headed = True
        self._framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        self.open = self.open and self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """A part of its body is known."""
        self._pieces.append(body)
        self._held += len(body)

    def on_message_complete(self) -> None:
        """It is whole; one that only says to wait for another isn't the answer."""
        if self.status < 200:
            self._begin_head()
            return
        self._asked, self._complete = False, True
        self.served += 1

    def _begin_head(self) -> None:
        self.headers, self._header_bytes = {}, 0
