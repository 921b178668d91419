"""The transport over HTTP: when a request is sent, on which connection, how often, and what it means that none answered."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, urlencode

from muster.kube import errors
from muster.kube.auth import Endpoint
from muster.kube.connection import Connection
from muster.kube.dialing import Dialer
from muster.kube.transport import Request, Response

_KEEP_ALIVE: Final = 30.0  # seconds; less than the 90 after which an API server closes an idle connection
_WATCH_OPENS: Final = 30.0  # seconds for a watch to begin
_BUFFER: Final = 2**18
_AS_IT_IS: Final = "/:@!$&'()*+,;=~"
"""What a path may hold besides letters, digits and ``_.-`` (RFC 3986)."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./-]*").fullmatch


@lru_cache(maxsize=256)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """Write a query; those of writes are always the same few."""
    return urlencode(query)


class HttpTransport:
    """Requests to one API server over pooled connections.

    Closed by `close`, or as a context manager. At most ``connections`` requests are under way at once; watches don't
    count. Writes are sent once, whatever happens; a read is sent again on a fresh connection where the server had closed
    the old one.
    """

    def __init__(self, endpoint: Endpoint, *, connections: int = 96) -> None:
        self._endpoint = endpoint
        self._dialer = Dialer(endpoint)
        self._slots = asyncio.Semaphore(connections)
        self._buffer = memoryview(bytearray(_BUFFER))
        self._all: set[Connection] = set()
        self._idle: deque[tuple[float, Connection]] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._shown: tuple[Mapping[str, str], bytes] = ({}, b"")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; those in use break."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._idle.clear()
        for connection in (closing := tuple(self._all)):
            connection.abort()
        for connection in closing:
            await connection.lost.wait()

    async def request(self, request: Request, *, within: float) -> Response:
        """Send, as `Transport.request`; waiting for a free slot and for credentials counts.

        Raises:
            ConfigError: the credentials were refused, and there are no others.
        """
        sent = False
        try:
            async with asyncio.timeout(within), self._slots:
                headers = await self._endpoint.headers()
                sent = True
                response = await self._exchange(request, headers, within)
                if response.status == 401 and await self._endpoint.renew(headers):
                    response = await self._exchange(request, await self._endpoint.headers(), within)
                return response
        except TimeoutError as error:
            raise errors.UnreachableError(
                f"{self._endpoint.server} did not answer {request.method} {request.path} within {within:g} s",
                maybe_applied=sent and request.writes,
            ) from error

    @contextlib.asynccontextmanager
    async def watch(self, request: Request, *, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Watch, as `Transport.watch`."""
        connection = await self._open(request, idle)
        try:
            yield self._lines(request, connection, idle)
        finally:
            # Not released to the pool: a watch's connection has an answer under way that nobody will read.
            connection.abort()

    async def _exchange(self, request: Request, headers: Mapping[str, str], within: float) -> Response:
        connection = self._rested() or await self._dial(within)
        again = connection.served > 0 and not request.writes
        try:
            response = await self._answer(connection, request, headers)
        except OSError as error:
            if not (again and connection.silent):
                raise self._broke(error, writes=request.writes) from error
        else:
            return response
        # The server had closed it while it rested.
        try:
            return await self._answer(await self._dial(within), request, headers)
        except OSError as error:
            raise self._broke(error, writes=request.writes) from error

    async def _answer(self, connection: Connection, request: Request, headers: Mapping[str, str]) -> Response:
        kept = False
        try:
            written = self._written(request, headers)
            if request.permit is not None:
                request.permit()
            connection.send(written)
            body = await connection.whole()
            # It may be this connection's client certificate that is too old.
            kept = connection.open and connection.status != 401
        finally:
            if kept:
                self._rest(connection)
            else:
                connection.abort()
        return Response(connection.status, body, connection.headers)

    async def _open(self, request: Request, idle: float) -> Connection:
        headers = await self._endpoint.headers()
        connection = await self._begin(request, headers, idle)
        if connection.status == 401:
            connection.abort()
            if await self._endpoint.renew(headers):
                connection = await self._begin(request, await self._endpoint.headers(), idle)
        if connection.status == 200:
            return connection
        try:
            async with asyncio.timeout(min(_WATCH_OPENS, idle)):
                body = await connection.whole()
        except OSError as error:
            raise self._broke(error, writes=False) from error
        finally:
            connection.abort()
        raise errors.from_answer(connection.status, body, connection.headers)

    async def _begin(self, request: Request, headers: Mapping[str, str], idle: float) -> Connection:
        try:
            async with asyncio.timeout(min(_WATCH_OPENS, idle)):
                connection = self._rested() or await self._dial(_WATCH_OPENS)
                again = connection.served > 0
                try:
                    await self._head(connection, request, headers)
                except OSError:
                    if not (again and connection.silent):
                        raise
                    connection = await self._dial(_WATCH_OPENS)
                    await self._head(connection, request, headers)
                return connection
        except OSError as error:
            raise self._broke(error, writes=False) from error

    async def _head(self, connection: Connection, request: Request, headers: Mapping[str, str]) -> None:
        begun = False
        try:
            connection.send(self._written(request, headers), streams=True)
            await connection.headed()
            begun = True
        finally:
            if not begun:
                connection.abort()

    async def _lines(self, request: Request, connection: Connection, idle: float) -> AsyncIterator[bytes]:
        partial: list[bytes] = []
        while piece := await self._piece(request, connection, idle):
            first, *others = piece.split(b"\n")
            partial.append(first)
            for following in others:
                if line := b"".join(partial):
                    yield line
                partial = [following]
        if line := b"".join(partial):
            yield line

    async def _piece(self, request: Request, connection: Connection, idle: float) -> bytes:
        try:
            return await connection.piece(idle)
        except TimeoutError as error:
            text = f"{self._endpoint.server} sent nothing for {idle:g} s on the watch of {request.path}"
            raise errors.SilentError(text, maybe_applied=False) from error
        except OSError as error:
            raise self._broke(error, writes=False) from error

    # ── what is sent ─────────────────────────────────────────────────────────────────────────────────────────────

    def _written(self, request: Request, headers: Mapping[str, str]) -> bytes:
        """Write a request, head and body."""
        query = f"?{_encoded(tuple(request.query.items()))}" if request.query else ""
        plain = _PLAIN(request.path) is not None
        path = f"{self._dialer.target}{request.path if plain else quote(request.path, safe=_AS_IT_IS)}{query}"
        length = f"Content-Length: {len(request.body)}\r\n" if request.body or request.writes else ""
        kind = f"Content-Type: {request.content_type}\r\n" if request.body else ""
        first = f"{request.method} {path} HTTP/1.1\r\nAccept: {request.accept}\r\n{kind}{length}"
        return b"".join((first.encode("ascii"), self._common(headers), request.body))

    def _common(self, headers: Mapping[str, str]) -> bytes:
        """Write the headers that are the same for all; the endpoint gives the same mapping until they change."""
        if headers is not self._shown[0] or not self._shown[1]:
            # Uncompressed: see docs/decisions/0031-http-transport.md for what gzip costs and saves.
            own = {"Host": self._dialer.host, "User-Agent": "muster", "Accept-Encoding": "identity"}
            if not all(value.isprintable() for _, value in (*headers.items(), *self._endpoint.impersonation)):
                raise errors.ConfigError("the credentials hold characters that no header has; write them again")
            shown = (*{**own, **headers}.items(), *self._endpoint.impersonation)
            lines = "".join(f"{name}: {value}\r\n" for name, value in shown)
            self._shown = (headers, lines.encode("latin-1") + self._dialer.headers + b"\r\n")
        return self._shown[1]

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _dial(self, within: float) -> Connection:
        # A connection that takes half the time leaves too little for an answer; and what fails before it is made was
        # certainly not sent.
        try:
            async with asyncio.timeout(within / 2):
                connection = await self._dialer.dial(lambda: Connection(self._buffer, self._all.discard))
        except TimeoutError as error:
            text = f"no connection to {self._endpoint.server} in time"
            raise errors.UnreachableError(text, maybe_applied=False) from error
        self._all.add(connection)
        return connection

    def _rested(self) -> Connection | None:
        """Return a connection that rests, the one that did so last: the others can be let go in time."""
        while self._idle:
            _, connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    def _rest(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle.append((loop.time(), connection))
        if self._sweeping is None:
            self._sweeping = loop.call_later(_KEEP_ALIVE, self._sweep)

    def _sweep(self) -> None:
        """Close what has rested for long."""
        loop, self._sweeping = asyncio.get_running_loop(), None
        while self._idle and self._idle[0][0] + _KEEP_ALIVE <= loop.time():
            self._idle.popleft()[1].abort()
        if self._idle:
            self._sweeping = loop.call_at(self._idle[0][0] + _KEEP_ALIVE, self._sweep)

    def _broke(self, error: OSError, *, writes: bool) -> errors.UnreachableError:
        server = self._endpoint.server
        if isinstance(error, TimeoutError):
            return errors.UnreachableError(f"{server} did not answer in time", maybe_applied=writes)
        text = f"the connection to {server} broke: {str(error) or type(error).__name__}"
        return errors.UnreachableError(text, maybe_applied=writes)
