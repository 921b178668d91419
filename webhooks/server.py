"""The HTTPS shell around `Admission`: who is heard, within which bounds, health, drain.

aiohttp's low-level server, without its router and middlewares: eight fixed paths need neither, and they would cost a
third of the throughput.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import StreamReader, web
from msgspec import Struct
from msgspec.structs import replace

from certs.listener import TlsListener
from certs.serving import LiveCertificate
from muster.model import names
from muster.telemetry import sockets
from muster.telemetry.repeated import RepeatedWarnings
from muster.telemetry.waiting_room import WaitingRoom
from webhooks import connections
from webhooks.admission import Admission, Answer, answer_budget
from webhooks.budget import BodyBytes, ByteBudget
from webhooks.connections import CallerConnection
from webhooks.evaluation import HOOKS
from webhooks.paths import LivePaths, hook_path

BODY_LIMIT: Final = 8 * 1024 * 1024
"""Bytes: an UPDATE carries two objects of up to 3 MiB."""

ARRIVAL: Final = 10.0
"""Seconds for a body to arrive, whatever time-out the caller names."""

_BEGINNING: Final = 1024  # bytes that are kept of a body over budget: they have the uid by which it is answered
_GRACE: Final = 15.0  # seconds for what is in flight when the listener closes
_MOST_TARGETS: Final = 256  # that are remembered: a time-out is written in few ways

log = logging.getLogger(__name__)


class ListenOptions(Struct, frozen=True):
    """Where to listen, and how long to go on after being told to stop: until Endpoints no longer name us."""

    host: str = ""
    port: int = 9443
    drain: float = 5.0


class _Call(Struct, frozen=True):
    """What a target asks for: the path of a webhook, the query, and the seconds in which the body has to arrive."""

    path: str
    query: dict[str, str]
    arrival: float


class WebhookServer:
    """Serves one `Admission` over TLS, in the running loop.

    ``waiting`` names what readiness waits for besides the certificate: caches, the ledger. ``paths`` says which callers are
    answered; without it, who knows the names of the webhooks.
    """

    def __init__(
        self,
        admission: Admission,
        certificate: LiveCertificate,
        listen: ListenOptions,
        *,
        waiting: Callable[[], Sequence[str]] = tuple,
        paths: LivePaths | None = None,
    ) -> None:
        self._admission = admission
        self._certificate = certificate
        self._listen = listen
        self._waiting = waiting
        self._paths = paths or LivePaths(None)
        self._bodies = ByteBudget()
        self._room: WaitingRoom[CallerConnection] = WaitingRoom()
        self._known: dict[str, _Call] = {}
        self._known_for: frozenset[str] | None = None
        self._draining = False
        self._http: web.Server | None = None
        self._listener: TlsListener | None = None
        self._following: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """The port that it listens on; known after `start`."""
        return (self._listener.port if self._listener is not None else 0) or self._listen.port

    def not_ready(self) -> list[str]:
        """Say why no calls should come here now, each one line; nothing when they may."""
        if self._draining:
            return ["stopping"]
        listening = [] if self._listener is not None else ["not listening yet"]
        return [*listening, *self._certificate.problems(), *self._paths.problems(), *self._waiting()]

    def delay(self, delays: bool) -> None:  # noqa: FBT001 - what is set has no other name
        """Have Jobs wait for their group's turn from now on, or no longer."""
        self._admission.settings = replace(self._admission.settings, delay=delays)

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken or not ours.
        """
        http = self._http = web.Server(self._serve)
        strangers = RepeatedWarnings(log, asyncio.get_running_loop().time)
        listener = TlsListener(
            lambda: CallerConnection(http, self._room, strangers), self._certificate.listening, self._room.callers
        )
        await listener.start(self._listen.host, self._listen.port)
        self._listener = listener
        followed = {"certificate": self._certificate.run(), "paths": self._paths.run()}
        self._following = [asyncio.create_task(run, name=name) for name, run in followed.items()]
        log.info("serving webhooks on %s", sockets.shown(self._listen.host, self.port))

    async def stop(self) -> None:
        """Turn readiness off, serve on until nobody is sent here any more, finish what is in flight, close."""
        self._draining = True
        if self._listener is None or self._http is None:
            return
        await asyncio.sleep(self._listen.drain)
        self._listener.close()
        self._http.pre_shutdown()
        await self._http.shutdown(_GRACE)
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)

    async def handle(self, path: str, query: Mapping[str, str], body: bytes) -> Answer:
        """Answer a call without HTTP: (status, headers, body)."""
        return await self._admission.handle(path, query, body)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        target, connection = request.raw_path, request.protocol
        # A function call or two for each review add up: what is known is looked up here.
        call = self._known.get(target) if self._known_for is self._paths.accepted else None
        if call is None:
            call = self._call(target)
        assert isinstance(connection, CallerConnection)
        connection.requested(accepted=call is not None)
        if call is None:
            # A stranger's body isn't read, and the answer says nothing of what there is.
            return _plain(404, "no webhook is served here", {}, close=True)
        if request.method != "POST":
            # So the leader proves that a path is taken.
            told = {"Allow": "POST", names.FAILED_HEADER: str(self._paths.failed_at)}
            return _plain(405, "webhooks are called by POST", told)
        share = self._bodies.open()
        try:
            # That all of it is there is the rule, and costs no coroutine.
            content = request.content
            body = _at_once(content, share) if content.is_eof() else await _read(request, share, call.arrival)
            response: web.StreamResponse
            if isinstance(body, web.Response):
                response, status = body, body.status
            else:
                status, headers, answer = (
                    self._admission.overloaded(call.path, body)
                    if share.refused
                    else await self._admission.handle(call.path, call.query, body)
                )
                response = connections.answer(request, status, headers, answer)
        finally:
            share.close()
        transport = connection.transport
        if status != 200 or transport is None or transport.is_closing():
            # The caller got an error, or gave up before: if it is an API server, it prints the URL.
            self._paths.failed()
        if self._draining:
            # The caller opens its next connection elsewhere.
            response.force_close()
        return response

    def _call(self, raw: str) -> _Call | None:
        """Return what a target asks for; None for a stranger's. There are about as many as webhooks, so each is read once."""
        accepted = self._paths.accepted
        if accepted is not self._known_for or len(self._known) > _MOST_TARGETS:
            self._known, self._known_for = {}, accepted
        call = self._known.get(raw)
        if call is None:
            target, _, rest = raw.partition("?")
            path = hook_path(target, accepted)
            if path is None or path not in HOOKS:
                return None  # Those are as many as strangers like, and none is kept.
            query = dict(parse_qsl(rest.partition("#")[0]))
            call = _Call(path, query, min(ARRIVAL, answer_budget(query.get("timeout", ""))))
            self._known[raw] = call
        return call


def _at_once(content: StreamReader, share: BodyBytes) -> bytes | web.Response:
    """Return a body that has arrived whole, as `_read` does."""
    body = content.read_nowait(-1)
    if len(body) > BODY_LIMIT:
        return _too_large()
    return body if share.grow(len(body)) else body[:_BEGINNING]


async def _read(request: web.BaseRequest, share: BodyBytes, within: float) -> bytes | web.Response:
    """Return the body, or the answer to one that is too large or too slow.

    Of a body that its share is refused for, the beginning is returned. The rest is read and dropped: a caller that is still
    writing would not see an answer.
    """
    content = request.content
    if (request.content_length or 0) > BODY_LIMIT:
        return _too_large()
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(within):
            async for chunk in content.iter_any():
                size += len(chunk)
                if size > BODY_LIMIT:
                    return _too_large()
                if share.grow(len(chunk)) or len(body) < _BEGINNING:
                    body += chunk
                if share.refused:
                    del body[_BEGINNING:]
    except TimeoutError:
        return _plain(408, f"the body did not arrive within {within:g} seconds", {}, close=True)
    except web.RequestPayloadError as error:
        return _plain(400, f"the body is not HTTP: {error}", {}, close=True)
    return bytes(body)


def _too_large() -> web.Response:
    return _plain(413, f"the body is larger than {BODY_LIMIT} bytes", {}, close=True)


def _plain(status: int, text: str, headers: Mapping[str, str], *, close: bool = False) -> web.Response:
    response = web.Response(status=status, text=f"{text}\n", headers=headers)
    if close:
        response.force_close()
    return response
