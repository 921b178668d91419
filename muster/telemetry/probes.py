"""The plain-HTTP listener beside a program: is it alive, is it ready, how is it doing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

Readiness = Callable[[], Sequence[str]]
"""Gives what a program still waits for, each one line for a person; nothing when it can serve."""


class Probes:
    """Serves /healthz (200 while the loop turns), /readyz (200, or 503 with the reasons) and /metrics."""

    def __init__(self, ready: Readiness, metrics: CollectorRegistry, *, host: str = "0.0.0.0", port: int = 0) -> None:  # noqa: S104 - kubelet and Prometheus come from other machines; nothing here is secret
        self._ready = ready
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
                return web.Response(text="ok\n")
            case "/readyz":
                missing = self._ready()
                text = "".join(f"{reason}\n" for reason in missing)
                return web.Response(status=503, text=text) if missing else web.Response(text="ok\n")
            case "/metrics":
                encode, content_type = choose_encoder(request.headers.get("Accept", ""))
                return web.Response(body=encode(self._metrics), headers={"Content-Type": content_type})
            case _:
                return web.Response(status=404, text="try /healthz, /readyz or /metrics\n")
