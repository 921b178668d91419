"""The plain-HTTP listener beside a program: is it alive, is it ready, how is it doing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

Reasons = Callable[[], Sequence[str]]
"""Gives what is wrong, each one line for a person; nothing when all is well."""

State = Callable[[], Any]
"""Gives what a program knows of itself as JSON values: bounded, and without secrets."""


class Probes:
    """Serves /healthz, /readyz (200, or 503 with the reasons), /metrics, and /debug/state where ``state`` is given.

    ``ready`` says what a program still waits for; ``alive`` what only a new start can mend.
    """

    def __init__(
        self,
        ready: Reasons,
        metrics: CollectorRegistry,
        *,
        alive: Reasons = tuple,
        state: State | None = None,
        host: str = "0.0.0.0",  # noqa: S104 - kubelet and Prometheus come from other machines; nothing here is secret
        port: int = 0,
    ) -> None:
        self._ready = ready
        self._alive = alive
        self._state = state
        self._metrics = metrics
        self._address = (host, port)
        self._runner: web.ServerRunner | None = None

    @property
    def port(self) -> int:
        """The port that it listens on; known after `start`."""
        if self._runner is None or not self._runner.addresses:
            return self._address[1]
        return int(self._runner.addresses[0][1])

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken or not ours.
        """
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None, keepalive_timeout=30))
        await self._runner.setup()
        await web.TCPSite(self._runner, *self._address).start()

    async def stop(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, text="use GET\n", headers={"Allow": "GET, HEAD"})
        match request.path:
            case "/healthz":
                return _told(self._alive())
            case "/readyz":
                return _told(self._ready())
            case "/metrics":
                encode, content_type = choose_encoder(request.headers.get("Accept", ""))
                return web.Response(body=encode(self._metrics), headers={"Content-Type": content_type})
            case "/debug/state" if self._state is not None:
                return web.Response(
                    body=msgspec.json.encode(self._state(), enc_hook=str), content_type="application/json"
                )
            case "/debug/state":
                return web.Response(status=404, text="it is off: start the program with --debug-state\n")
            case _:
                return web.Response(status=404, text="try /healthz, /readyz or /metrics\n")


def _told(reasons: Sequence[str]) -> web.Response:
    text = "".join(f"{reason}\n" for reason in reasons)
    return web.Response(status=503, text=text) if reasons else web.Response(text="ok\n")
