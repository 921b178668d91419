"""The transport over HTTP: aiohttp, and the one place where its errors are known."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from muster.kube import errors
from muster.kube.auth import Endpoint
from muster.kube.transport import Request, Response

_KEEP_ALIVE: Final = 30.0  # seconds; less than the 90 after which an API server closes an idle connection
_WATCH_OPENS: Final = 30.0  # seconds for a watch to begin

# A peer that vanished (no FIN, no RST) is found out in some 20 s, not in the system's two hours.
_SOCKET_OPTIONS: Final = (
    ("SO_KEEPALIVE", socket.SOL_SOCKET, 1),
    ("TCP_KEEPIDLE", socket.IPPROTO_TCP, 10),
    ("TCP_KEEPINTVL", socket.IPPROTO_TCP, 3),
    ("TCP_KEEPCNT", socket.IPPROTO_TCP, 3),
    ("TCP_USER_TIMEOUT", socket.IPPROTO_TCP, 20_000),
)

_NEVER_SENT: Final = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
    aiohttp.InvalidURL,
)


class HttpTransport:
    """Requests to one API server over pooled connections.

    Closed by `close`, or as a context manager. At most ``connections`` requests are under way at once; watches don't
    count. Writes are sent once, whatever happens; a read is sent again on a fresh connection where the server had closed
    the old one.
    """

    def __init__(self, endpoint: Endpoint, *, connections: int = 64) -> None:
        self._endpoint = endpoint
        self._slots = asyncio.Semaphore(connections)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; those in use break."""
        if self._session is not None:
            await self._session.close()
            self._session = None

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
        answer = await self._open(request, idle)
        try:
            yield self._lines(request, answer, idle)
        finally:
            # Not released to the pool: a watch's connection has an answer under way that nobody will read.
            answer.close()

    async def _exchange(self, request: Request, headers: Mapping[str, str], within: float) -> Response:
        try:
            # A connection that takes half the time leaves too little for an answer; and what fails before it is made
            # was certainly not sent.
            timeout = aiohttp.ClientTimeout(total=None, connect=within / 2)
            async with self._send(request, headers, timeout) as answer:
                body = await answer.read()
                if answer.status == 401:
                    # It may be this connection's client certificate that is too old.
                    answer.close()
                return Response(answer.status, body, _lower(answer.headers))
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error, self._endpoint.server, writes=request.writes) from error

    async def _open(self, request: Request, idle: float) -> aiohttp.ClientResponse:
        headers = await self._endpoint.headers()
        answer = await self._begin(request, headers, idle)
        if answer.status == 401:
            answer.close()
            if await self._endpoint.renew(headers):
                answer = await self._begin(request, await self._endpoint.headers(), idle)
        if answer.status == 200:
            return answer
        try:
            body = await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error, self._endpoint.server, writes=False) from error
        finally:
            answer.close()
        raise errors.from_answer(answer.status, body, _lower(answer.headers))

    async def _begin(self, request: Request, headers: Mapping[str, str], idle: float) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(min(_WATCH_OPENS, idle)):
                timeout = aiohttp.ClientTimeout(total=None, sock_read=idle)
                answer: aiohttp.ClientResponse = await self._send(request, headers, timeout)
                return answer
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error, self._endpoint.server, writes=False) from error

    async def _lines(self, request: Request, answer: aiohttp.ClientResponse, idle: float) -> AsyncIterator[bytes]:
        # Not the reader's own lines: it refuses one that is longer than its buffer, and objects may be of megabytes.
        partial: list[bytes] = []
        try:
            async for chunk in answer.content.iter_any():
                first, *others = chunk.split(b"\n")
                partial.append(first)
                for following in others:
                    if line := b"".join(partial):
                        yield line
                    partial = [following]
        except aiohttp.SocketTimeoutError as error:
            text = f"{self._endpoint.server} sent nothing for {idle:g} s on the watch of {request.path}"
            raise errors.UnreachableError(text, maybe_applied=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error, self._endpoint.server, writes=False) from error
        if line := b"".join(partial):
            yield line

    def _send(self, request: Request, headers: Mapping[str, str], timeout: aiohttp.ClientTimeout) -> Any:
        own = {"Accept": request.accept} | ({"Content-Type": request.content_type} if request.body else {})
        return self._connected().request(
            request.method,
            self._endpoint.server + request.path,
            params=request.query,
            data=request.body or None,
            headers={**own, **headers},
            timeout=timeout,
            proxy=self._endpoint.proxy or None,
            server_hostname=self._endpoint.server_name or None,
            allow_redirects=False,
            middlewares=(self._once,) if request.writes else (),
        )

    async def _once(self, sent: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Keep aiohttp from sending a PUT or DELETE again on its own when the answer is lost.

        It does so for what HTTP calls idempotent; a compare-and-swap that is sent twice loses against itself.
        """
        try:
            return await handler(sent)
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error, self._endpoint.server, writes=True) from error

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=_KEEP_ALIVE, ssl=self._endpoint.tls or True, socket_factory=_socket
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Uncompressed: see docs/decisions/0031-http-transport.md for what gzip costs and saves.
                headers={"User-Agent": "muster", "Accept-Encoding": "identity"},
                read_bufsize=2**18,
            )
        return self._session


def _socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    for name, level, value in _SOCKET_OPTIONS:
        # Each system knows some of them.
        if hasattr(socket, name):
            made.setsockopt(level, getattr(socket, name), value)
    return made


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    lower: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        lower[key] = f"{lower[key]}, {value}" if key in lower else value
    return lower


def _unreachable(error: Exception, server: str, *, writes: bool) -> errors.UnreachableError:
    """Translate what went wrong with a connection."""
    sent = not isinstance(error, _NEVER_SENT)
    match error:
        case aiohttp.ClientConnectorCertificateError():
            text = (
                f"the certificate of {server} is not trusted ({error.certificate_error}); see certificate-authority and "
                "tls-server-name in the kubeconfig"
            )
        case aiohttp.ClientConnectorDNSError():
            text = f"the name in {server} can't be resolved: {error.os_error}"
        case aiohttp.ClientConnectorError():
            text = f"no connection to {server}: {error.os_error.strerror or error.os_error}"
        case aiohttp.ClientHttpProxyError():
            text = f"the proxy refused to connect to {server}: {error.status} {error.message}"
        case aiohttp.ConnectionTimeoutError():
            text = f"no connection to {server} in time"
        case TimeoutError():
            text = f"{server} did not answer in time"
        case _:
            text = f"the connection to {server} broke: {str(error) or type(error).__name__}"
    return errors.UnreachableError(text, maybe_applied=sent and writes)
