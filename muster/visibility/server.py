"""The HTTPS shell around `VisibilityApi`: only the API server's front proxy is heard, and its headers say who asks.

A handshake needs a certificate of the request-header CA. That CA is followed while this runs; when it changes, connections that
the former one vouched for are closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from certs.listener import TlsListener
from certs.serving import LiveCertificate
from muster.kube.transport import JSON, Request, Response
from muster.telemetry import sockets
from muster.telemetry.repeated import RepeatedWarnings
from muster.telemetry.waiting_room import WaitingRoom
from muster.visibility.api import VisibilityApi, failure
from muster.visibility.requestheader import HeaderRules
from webhooks.connections import CallerConnection

BODY_LIMIT: Final = 1024 * 1024
"""Bytes: a hundred objects as people write them."""
ARRIVAL: Final = 10.0
"""Seconds for a body to arrive."""
_GRACE: Final = 5.0  # seconds for what is in flight when the listener closes

log = logging.getLogger(__name__)


class VisibilityServer:
    """Serves a `VisibilityApi` over TLS, in the running loop. ``rules`` returns whose word counts, at the moment."""

    def __init__(
        self,
        api: VisibilityApi,
        certificate: LiveCertificate,
        rules: Callable[[], HeaderRules],
        *,
        host: str = "",
        port: int = 0,
        drain: float = 0.0,
    ) -> None:
        self._api = api
        self._certificate = certificate
        self._rules = rules
        self._host = host
        self._port = port
        self._drain = drain
        self._room: WaitingRoom[CallerConnection] = WaitingRoom()
        self._http: web.Server | None = None
        self._listener: TlsListener | None = None
        self._following: asyncio.Task[None] | None = None
        self._draining = False

    @property
    def port(self) -> int:
        """The port that it listens on; known after `start`."""
        return (self._listener.port if self._listener is not None else 0) or self._port

    def not_ready(self) -> list[str]:
        """Say why no calls should come here now; discovery needs no cache, so an empty one is no reason."""
        if self._draining:
            return ["stopping"]
        return [*([] if self._listener is not None else ["not listening yet"]), *self._certificate.problems()]

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
        await listener.start(self._host, self._port)
        self._listener = listener
        self._following = asyncio.create_task(self._certificate.run(), name="certificate")
        log.info("serving the visibility API on %s", sockets.shown(self._host, self.port))

    async def stop(self) -> None:
        """Turn readiness off, serve on until nobody is sent here any more, close."""
        self._draining = True
        if self._listener is None or self._http is None:
            return
        await asyncio.sleep(self._drain)
        self._listener.close()
        self._http.pre_shutdown()
        await self._http.shutdown(_GRACE)
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    def distrust(self) -> None:
        """Take up another CA: the connections that are open now have to be opened anew."""
        self._certificate.refresh()
        for connection in self._http.connections if self._http is not None else ():
            connection.close()
            if connection.transport is not None:
                connection.transport.close()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, CallerConnection)
        caller = self._rules().caller(_common_name(request.transport), request.headers.items())
        connection.requested(accepted=caller is not None)
        if caller is None:
            return _answer(failure(401, "Unauthorized"), close=True)
        try:
            async with asyncio.timeout(ARRIVAL):
                body = await _read(request)
        except (TimeoutError, web.RequestPayloadError):
            return _answer(failure(400, f"the body did not arrive within {ARRIVAL:g} seconds"), close=True)
        if body is None:
            return _answer(failure(413, f"the body is larger than {BODY_LIMIT} bytes"), close=True)
        asked = Request(request.method, request.rel_url.raw_path, dict(request.rel_url.query), body)
        return _answer(await self._api.handle(asked, caller), close=self._draining)


def _common_name(transport: asyncio.Transport | None) -> str:
    """Return the name in the certificate that the other end has shown; empty where it has none."""
    shown: dict[str, Any] = (transport.get_extra_info("peercert") if transport is not None else None) or {}
    return next((value for part in shown.get("subject", ()) for key, value in part if key == "commonName"), "")


async def _read(request: web.BaseRequest) -> bytes | None:
    """Return the body; None for one that is too large, of which the rest isn't read."""
    body = bytearray()
    if (request.content_length or 0) > BODY_LIMIT:
        return None
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > BODY_LIMIT:
            return None
    return bytes(body)


def _answer(response: Response, *, close: bool = False) -> web.Response:
    answer = web.Response(
        status=response.status, headers={"content-type": JSON} | dict(response.headers), body=response.body
    )
    if close:
        answer.force_close()
    return answer
