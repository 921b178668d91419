"""The HTTP listeners beside a program: is it alive, is it ready, how is it doing.

One request a connection, without a body, each answered at once: so little of HTTP needs no server of others', and importing
aiohttp's takes a program that has no other use for it a quarter of a second of processor time and 15 MiB.

Kubelets come from other machines, so /healthz and /readyz answer everybody over plain HTTP, and name no tenant. Metrics do name
tenants: there, only loopback gets them. Other machines are answered at a port of their own: over TLS, where a token is asked for
and the API server says what it may read; or plain, where only a NetworkPolicy guards the port.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from muster.telemetry import sockets
from muster.telemetry.waiting_room import WaitingRoom

_HEAD: Final = 2**14
"""Bytes that a request may have."""
_TIMEOUT: Final = 10.0
"""Seconds for which a connection is kept for one request and its answer."""
_TEXT: Final = "text/plain; charset=utf-8"
_GUARDED: Final = (64, 8)
"""Connections at once to the port that asks for tokens: all, and those of one address."""
_PLAIN: Final = (512, 32)
"""The same of the other ports. Who has most of them loses them first, so the kubelet's are answered whoever else comes."""

_OF_TENANTS: Final = frozenset({"/metrics", "/debug/state"})
"""What shows names and amounts of tenants."""
_CLOSED: Final = b"closed to other machines: start the program with --metrics-port, or use kubectl port-forward\n"

Reasons = Callable[[], Sequence[str]]
"""Returns what is wrong, each one line for a person; nothing when all is well."""

Authorize = Callable[[str, str], Awaitable[int]]
"""Returns what becomes of a request, by its Authorization header and its path: 200, 401, 403 or 503."""

_REFUSALS: Final = {
    401: b"send a bearer token that the API server knows\n",
    403: b"the token's user may not get this URL: bind the ClusterRole muster-metrics-reader\n",
    503: b"the API server can't be asked about the token now\n",
}


class Listener(Protocol):
    """A port that is listened on."""

    @property
    def port(self) -> int:
        """The port."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


Listen = Callable[[Callable[[], asyncio.BaseProtocol], str, int], Awaitable[Listener]]
"""Listens over TLS at a host and a port, each connection with a protocol of its own."""

State = Callable[[], Any]
"""Returns what a program knows of itself as JSON values: bounded, and without secrets."""


class Probes:
    """Serves /healthz, /readyz (200, or 503 with the reasons), /metrics, and /debug/state where ``state`` is given.

    ``ready`` says what a program still waits for; ``alive`` what only a restart can fix. With ``metrics_port`` other
    machines get /metrics and /debug/state there, plain; `serve_metrics` does so over TLS. Without either, nobody but this one does.
    """

    def __init__(
        self,
        ready: Reasons,
        metrics: CollectorRegistry,
        *,
        alive: Reasons = tuple,
        state: State | None = None,
        host: str = "",
        port: int = 0,
        metrics_port: int | None = None,
    ) -> None:
        self._ready = ready
        self._alive = alive
        self._state = state
        self._metrics = metrics
        self._host = host
        self._ports = [port] if metrics_port is None else [port, metrics_port]
        self._servers: list[list[asyncio.Server]] = []
        self._authorize: Authorize | None = None
        self._plain: WaitingRoom[asyncio.StreamWriter] = WaitingRoom(*_PLAIN)
        self._guarded: WaitingRoom[asyncio.StreamWriter] = WaitingRoom(*_GUARDED)
        self._guarded_port: Listener | None = None
        self._serving: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    @property
    def port(self) -> int:
        """The port that it listens on; known after `start`."""
        return self._listening(0)

    @property
    def metrics_port(self) -> int:
        """The port of the metrics, where they have one of their own; known after `start`."""
        return self._guarded_port.port if self._guarded_port is not None else self._listening(1)

    def _listening(self, place: int) -> int:
        if place >= len(self._servers) or not self._servers[place][0].sockets:
            return self._ports[place]
        return int(self._servers[place][0].sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken or not ours.
        """
        try:
            for port, serve in zip(self._ports, (self._serve, self._serve_metrics), strict=False):
                opened = await sockets.listen(self._host, port)
                self._servers.append([await asyncio.start_server(serve, sock=each, limit=_HEAD) for each in opened])
        except OSError:
            await self.stop()
            raise

    async def serve_metrics(self, port: int, listen: Listen, authorize: Authorize) -> None:
        """Listen for those who read metrics over TLS, beside the port of the probes.

        Raises:
            OSError: the address is taken or not ours.
        """
        self._authorize = authorize
        loop = asyncio.get_running_loop()

        def made() -> asyncio.StreamReaderProtocol:
            reader = asyncio.StreamReader(limit=_HEAD, loop=loop)
            return asyncio.StreamReaderProtocol(reader, self._serve_guarded, loop=loop)

        self._guarded_port = await listen(made, self._host, port)

    async def stop(self) -> None:
        """Listen no more; what is being answered isn't."""
        for server in (each for family in self._servers for each in family):
            server.close()
        if self._guarded_port is not None:
            self._guarded_port.close()
        # Cancelled, its task would be reported by the loop.
        for writer in self._serving.values():
            writer.transport.abort()
        await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._answer_one(reader, writer, shown=_is_this_machine(writer), room=self._plain)

    async def _serve_metrics(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._answer_one(reader, writer, shown=True, room=self._plain)

    async def _serve_guarded(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._answer_one(reader, writer, shown=True, room=self._guarded, authorize=self._authorize)

    async def _answer_one(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        shown: bool,
        room: WaitingRoom[asyncio.StreamWriter],
        authorize: Authorize | None = None,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        address = str((writer.get_extra_info("peername") or ("",))[0])
        excess = room.enter(writer, address, asyncio.get_running_loop().time())
        if excess is not None:
            excess.transport.abort()
        self._serving[task] = writer
        try:
            async with asyncio.timeout(_TIMEOUT):
                request = _read(await reader.readuntil(b"\r\n\r\n"))
                status = await authorize(request.authorization, request.path) if authorize is not None else 200
                if writer.is_closing():
                    return  # Who asked is gone already; uvloop would mind being told to write.
                writer.write(self._answered(request, status, shown=shown))
                if not writer.can_write_eof():
                    await writer.drain()
                    return  # Over TLS what follows a request is dropped with the connection.
                writer.write_eof()
                # What else was sent is read: with it unread, closing would take the answer back.
                while await reader.read(_HEAD):
                    pass
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            return  # Nobody asked, or doesn't wait for the answer.
        finally:
            del self._serving[task]
            room.leave(writer, address)
            writer.close()

    def _answered(self, request: _Request, status: int, *, shown: bool) -> bytes:
        """Write the answer; ``shown``: who sent it may know of tenants, unless ``status`` says otherwise."""
        empty = request.method == "HEAD"
        if status in _REFUSALS:
            return _written(
                status, _REFUSALS[status], {"WWW-Authenticate": "Bearer"} if status == 401 else {}, empty=empty
            )
        if request.method not in {"GET", "HEAD"}:
            return _written(405, b"use GET\n", {"Allow": "GET, HEAD"})
        if request.path in _OF_TENANTS and not shown:
            return _written(403, _CLOSED, empty=empty)
        return self._answer(request.path, request.accept, empty=empty)

    def _answer(self, path: str, accept: str, *, empty: bool) -> bytes:
        match path:
            case "/healthz":
                return _told(self._alive(), empty=empty)
            case "/readyz":
                return _told(self._ready(), empty=empty)
            case "/metrics":
                encode, content_type = choose_encoder(accept)
                return _written(200, encode(self._metrics), {"Content-Type": content_type}, empty=empty)
            case "/debug/state" if self._state is not None:
                body = msgspec.json.encode(self._state(), enc_hook=str)
                return _written(200, body, {"Content-Type": "application/json"}, empty=empty)
            case "/debug/state":
                return _written(404, b"it is off: start the program with --debug-state\n", empty=empty)
            case _:
                return _written(404, b"try /healthz, /readyz or /metrics\n", empty=empty)


class _Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    accept: str
    authorization: str


def _read(head: bytes) -> _Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    accept = ", ".join(value for name, value in headers if name == "accept")
    authorization = next((value for name, value in headers if name == "authorization"), "")
    return _Request(method, rest.partition(" ")[0].partition("?")[0], accept, authorization)


def _is_this_machine(writer: asyncio.StreamWriter) -> bool:
    """Whether a connection comes over loopback, as those of `kubectl port-forward` do."""
    peer = writer.get_extra_info("peername")
    with contextlib.suppress(ValueError, TypeError, IndexError):
        return ipaddress.ip_address(peer[0]).is_loopback
    return False


def _told(reasons: Sequence[str], *, empty: bool) -> bytes:
    text = "".join(f"{reason}\n" for reason in reasons) or "ok\n"
    return _written(503 if reasons else 200, text.encode(), empty=empty)


def _written(status: int, body: bytes, headers: Mapping[str, str] | None = None, *, empty: bool = False) -> bytes:
    """Write an answer; ``empty``: without its body, as who asks for the head only wants it."""
    own = {"Content-Type": _TEXT, "Content-Length": str(len(body)), "Connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (own | dict(headers or {})).items())
    begin = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n"
    return begin.encode("latin-1") + (b"" if empty else body)
