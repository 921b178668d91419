"""Making connections to an API server: names, sockets, TLS and proxies; and why one can't be made."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, Self
from urllib.parse import SplitResult, unquote, urlsplit

from aiohappyeyeballs import start_connection
from msgspec import Struct

from muster.kube import errors
from muster.kube.auth import Endpoint
from muster.kube.connection import Connection

_PORTS: Final = {"http": 80, "https": 443}
_SECOND: Final = 0.25  # seconds after which another address of a name is tried beside the first (RFC 8305)

# A peer that vanished (no FIN, no RST) is found out in some 20 s, not in the system's two hours.
_SOCKET_OPTIONS: Final = (
    ("SO_KEEPALIVE", socket.SOL_SOCKET, 1),
    ("TCP_KEEPIDLE", socket.IPPROTO_TCP, 10),
    ("TCP_KEEPINTVL", socket.IPPROTO_TCP, 3),
    ("TCP_KEEPCNT", socket.IPPROTO_TCP, 3),
    ("TCP_USER_TIMEOUT", socket.IPPROTO_TCP, 20_000),
)


class _RefusedError(OSError):
    """The proxy said no."""


class _Endpoint(Struct, frozen=True):
    """Where a URL points to."""

    scheme: str
    host: str
    port: int
    path: str
    authority: str
    credentials: str

    @classmethod
    def of(cls, url: str) -> Self:
        try:
            split = urlsplit(url)
            port = split.port or _PORTS[split.scheme]
        except (ValueError, KeyError) as error:
            raise errors.ConfigError(f"{url} isn't the URL of a server: {error}") from error
        _, _, authority = split.netloc.rpartition("@")
        return cls(split.scheme, split.hostname or "", port, split.path.rstrip("/"), authority, _credentials(split))

    @property
    def whole(self) -> str:
        """Host and port, as CONNECT names them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Dialer:
    """Makes connections to one endpoint. Its construction may raise a `ConfigError`: the URL isn't one.

    Attributes:
        target: what goes before a request's path in its first line.
        host: the value of its Host header.
        headers: more headers for each request: what a proxy wants to know, where it reads them.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._server = _Endpoint.of(endpoint.server)
        self._proxy = _Endpoint.of(endpoint.proxy) if endpoint.proxy else None
        self._tunnels = self._proxy is not None and self._server.scheme == "https"
        self.host = self._server.authority
        self.target, self.headers = self._server.path, b""
        if self._proxy is not None and not self._tunnels:
            self.target = f"http://{self.host}{self.target}"
            self.headers = self._for_proxy()

    async def dial(self, make: Callable[[], Connection]) -> Connection:
        """Make a connection, in as much time as the caller allows.

        Raises:
            UnreachableError: there is none to be had; nothing was sent.
        """
        try:
            return await self._dial(make)
        except OSError as error:
            raise _unreachable(error, self._endpoint.server) from error

    async def _dial(self, make: Callable[[], Connection]) -> Connection:
        server, name = self._server, self._endpoint.server_name or self._server.host
        if self._proxy is None:
            return await _connect(make, server, self._tls() if server.scheme == "https" else None, name)
        proxy = self._proxy
        connection = await _connect(make, proxy, self._tls() if proxy.scheme == "https" else None, proxy.host)
        return await self._through(connection, make, name) if self._tunnels else connection

    async def _through(self, outer: Connection, make: Callable[[], Connection], name: str) -> Connection:
        """Have the proxy connect us to the server, and speak TLS with that."""
        whole = self._server.whole
        try:
            outer.send(
                f"CONNECT {whole} HTTP/1.1\r\nHost: {whole}\r\n".encode() + self._for_proxy() + b"\r\n", streams=True
            )
            await outer.headed()
            _check(outer.status)
            inner = make()
            carrier = await asyncio.get_running_loop().start_tls(
                outer.transport, inner, self._tls(), server_hostname=name
            )
        except BaseException:
            outer.abort()
            raise
        assert carrier is not None
        inner.connection_made(carrier)
        return inner

    def _tls(self) -> ssl.SSLContext:
        return self._endpoint.tls or ssl.create_default_context()

    def _for_proxy(self) -> bytes:
        credentials = self._proxy.credentials if self._proxy is not None else ""
        return f"Proxy-Authorization: Basic {credentials}\r\n".encode() if credentials else b""


async def _connect(
    make: Callable[[], Connection], place: _Endpoint, tls: ssl.SSLContext | None, name: str
) -> Connection:
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    sock = await start_connection(addresses, happy_eyeballs_delay=_SECOND, interleave=1, socket_factory=_socket)
    connection = make()
    try:
        await loop.create_connection(
            lambda: connection, sock=sock, ssl=tls, server_hostname=name if tls is not None else None
        )
    except BaseException:
        # Not the socket: it is the loop's now, which would go on to wait for its TLS to end, and a socket closed under
        # the loop gives its number to the next one.
        connection.abort()
        raise
    return connection


def _check(status: int) -> None:
    if status != 200:
        raise _RefusedError(f"it answered with HTTP {status}")


def _socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    for name, level, value in _SOCKET_OPTIONS:
        # Each system knows some of them.
        if hasattr(socket, name):
            made.setsockopt(level, getattr(socket, name), value)
    return made


def _credentials(split: SplitResult) -> str:
    if split.username is None:
        return ""
    pair = f"{unquote(split.username)}:{unquote(split.password or '')}"
    return base64.b64encode(pair.encode()).decode()


def _unreachable(error: OSError, server: str) -> errors.UnreachableError:
    """Translate why no connection was made."""
    match error:
        case ssl.SSLCertVerificationError():
            text = (
                f"the certificate of {server} is not trusted ({error}); see certificate-authority and "
                "tls-server-name in the kubeconfig"
            )
        case socket.gaierror():
            text = f"the name in {server} can't be resolved: {error}"
        case _RefusedError():
            text = f"the proxy refused to connect to {server}: {error}"
        case ssl.SSLError():
            text = f"no connection to {server}: its TLS isn't understood ({error.reason or error})"
        case _:
            # What asyncio says in its place names the address, which the URL does already.
            text = f"no connection to {server}: {os.strerror(error.errno) if error.errno else error}"
    return errors.UnreachableError(text, maybe_applied=False)
