"""The server behind the page: on this machine alone, for who knows the token in its address, and for no other site.

Whoever runs on this machine can connect, and any site that a browser shows can have it send requests here. So each request must name this
server as its host (DNS rebinding), begin with the token, and not come from another origin. It changes nothing in the cluster.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Any, Final

import msgspec
from aiohttp import web

from muster.cli.connect import explained
from muster.cli.ui.reader import Reader, UnknownError
from muster.kube import errors

ADDRESS: Final = "127.0.0.1"
BODY_LIMIT: Final = 64 * 1024  # bytes
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Server": "muster",
}
"""Of every answer. Trusted types: a text of a tenant can't become markup or a script, not even by a mistake of ours."""

_JSON: Final = "application/json"
_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_GRACE: Final = 1.0  # seconds for what is in flight at the end

Answer = Callable[[web.Request], Awaitable[web.Response]]
WhatIf = Callable[[bytes], Awaitable[Any]]
"""Answers what would be if something were changed, told as JSON.

Raises:
    ValueError: the change can't be understood; the message is for the person.
"""


class UiServer:
    """Serves the page and what a `Reader` knows."""

    def __init__(self, reader: Reader, what_if: WhatIf, *, port: int = 0) -> None:
        self._reader = reader
        self._what_if = what_if
        self._port = port
        self._token = secrets.token_urlsafe(24)
        self._runner: web.AppRunner | None = None
        self._files = {each: _file(each) for each in _static()}
        self._gets: Mapping[str, Answer] = {"data": self._data, "history": self._history, "group": self._group}
        self._posts: Mapping[str, Answer] = {"what-if": self._ask, "read": self._read}

    @property
    def url(self) -> str:
        """The address of the page, with its token; known after `start`."""
        return f"http://{ADDRESS}:{self._port}/{self._token}/"

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_GRACE)
        await self._runner.setup()
        await web.TCPSite(self._runner, ADDRESS, self._port).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        response = await self._checked(request)
        response.headers.update(HEADERS)
        return response

    async def _checked(self, request: web.Request) -> web.Response:
        """Answer a request, or refuse it."""
        hosts = {f"{name}:{self._port}" for name in (ADDRESS, "localhost")}
        if request.headers.get("Host") not in hosts:
            return _refused(421, f"this server is {ADDRESS}:{self._port}, and answers to no other name")
        token, _, path = request.rel_url.raw_path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return _refused(403, "the address lacks its token: use the one that `muster ui` printed")
        origin = request.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in hosts}:
            return _refused(403, "requests of other sites are refused")
        # A link to the page may be anywhere; what the page itself asks for comes from the page.
        if path and request.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
            return _refused(403, "requests of other sites are refused")
        return await self._answer(request, path, origin)

    async def _answer(self, request: web.Request, path: str, origin: str | None) -> web.Response:
        if request.method == "POST" and path in self._posts:
            if origin is None or request.content_type != _JSON:
                return _refused(403, "a POST has the Origin of the page, and JSON")
            return await _explaining(self._posts[path], request)
        if request.method not in {"GET", "HEAD"}:
            return _refused(405, "nothing can be changed here")
        if path in self._gets:
            return await _explaining(self._gets[path], request)
        found = self._files.get(path or "index.html")
        return found() if found is not None else _refused(404, "there is no such page")

    # ── what the page asks for ───────────────────────────────────────────────────────────────────────────────────

    async def _data(self, request: web.Request) -> web.Response:
        body = self._reader.news(request.query.get("known", ""))
        return web.Response(status=204) if body is None else web.Response(body=body, content_type=_JSON)

    async def _history(self, request: web.Request) -> web.Response:
        return _json(self._reader.history(request.query.get("queue", ""), request.query.get("resource", "")))

    async def _group(self, request: web.Request) -> web.Response:
        return _json(await self._reader.life(request.query.get("namespace", ""), request.query.get("name", "")))

    async def _read(self, _: web.Request) -> web.Response:
        self._reader.read_now()
        return web.Response(status=204)

    async def _ask(self, request: web.Request) -> web.Response:
        return _json(await self._what_if(await request.read()))


async def _explaining(answer: Answer, request: web.Request) -> web.Response:
    """Answer, or say what is wrong in one line."""
    try:
        return await answer(request)
    except UnknownError as error:
        return _refused(404, str(error))
    except ValueError as error:
        return _refused(400, str(error))
    except (errors.KubeError, OSError) as error:
        return _refused(502, explained(error))


def _refused(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def _json(found: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(found), content_type=_JSON)


def _static() -> list[str]:
    return sorted(each.name for each in resources.files("muster.cli.ui").joinpath("static").iterdir() if each.is_file())


def _file(name: str) -> Callable[[], web.Response]:
    """Read a file of the page; each call returns a response with it."""
    body = resources.files("muster.cli.ui").joinpath("static", name).read_bytes()
    kind = _TYPES[name.rpartition(".")[2]]
    return lambda: web.Response(body=body, content_type=kind, charset="utf-8")
