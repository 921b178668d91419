"""The network side of the sandbox: an HTTP front of `ApiServer`, and the calls that its admission makes to webhooks.

The only module of the sandbox that knows aiohttp.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from base64 import b64encode
from collections.abc import Coroutine, Mapping
from io import BytesIO
from typing import Any, Final

import aiohttp
from aiohttp import web
from msgspec.structs import replace

from muster.kube.transport import JSON, Request, Response
from muster.sandbox.admission import UnreachableWebhookError
from muster.sandbox.codec.decoding import LIMIT
from muster.sandbox.core.status import StatusError, internal, too_large, unauthorized
from muster.sandbox.core.users import User
from muster.sandbox.server import responses
from muster.sandbox.server.requests import ApiServer
from muster.sandbox.server.watching import Watch

_log: Final = logging.getLogger(__name__)

KUBECONFIG_NAME: Final = "muster-sandbox"
"""What a kubeconfig of the sandbox calls its cluster, user and context."""
_OPEN: Final = ("/healthz", "/livez", "/readyz", "/version")
"""Paths that anybody may read, as in the real server."""

_DRAIN_SECONDS: Final = 5.0
_KEEP_ALIVE_SECONDS: Final = 120.0
_COPIED_AT_ONCE: Final = 1024 * 1024
"""Bytes that aiohttp writes in one go without a warning."""

_REVIEW_LIMIT: Final = 16 * 1024 * 1024


class HttpFront:
    """Listens on loopback, over TLS when a context is given.

    ``users``: by bearer token. ``anonymous``: who asks without a token, or None: then that is refused (401).
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        users: Mapping[str, User],
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        anonymous: User | None = None,
    ) -> None:
        self._server = server
        self._users = dict(users)
        self._tls = tls
        self._host = host
        self._port = port
        self._anonymous = anonymous
        self._runner: web.ServerRunner | None = None
        self._watches: set[Watch] = set()
        self._writes: set[asyncio.Task[Response]] = set()

    async def start(self) -> str:
        """Listen; return the URL.

        Raises:
            OSError: the port is taken.
        """
        low_level = web.Server(
            self._serve, handler_cancellation=True, access_log=None, keepalive_timeout=_KEEP_ALIVE_SECONDS
        )
        self._runner = web.ServerRunner(low_level, shutdown_timeout=_DRAIN_SECONDS)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls, backlog=1024)
        await site.start()
        address = self._runner.addresses[0]
        return f"{'https' if self._tls else 'http'}://{address[0]}:{address[1]}"

    async def stop(self) -> None:
        """End the watches, let requests that write finish, close the listener."""
        for watch in list(self._watches):
            watch.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._writes:
            await asyncio.wait(self._writes, timeout=_DRAIN_SECONDS)
        for task in list(self._writes):
            task.cancel()

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self, incoming: web.BaseRequest) -> web.StreamResponse:
        try:
            user = self._user(incoming)
            request = await _read(incoming)
            if self._server.watches(request):
                return await self._watch(incoming, request, user)
            return _answer(await self._answered(request, user, incoming.headers.get("User-Agent", "")))
        except StatusError as error:
            answer = _answer(responses.refuse(error))
            if error.code == 413:
                answer.force_close()  # the rest of the body is still on its way
            return answer
        except Exception as error:  # noqa: BLE001 - the last frame before the wire: clients get a Status, the log the rest
            _log.exception("%s %s: a defect of the sandbox", incoming.method, incoming.path)
            return _answer(responses.refuse(internal(f"{type(error).__name__} in the sandbox; its log says more")))

    async def _answered(self, request: Request, user: User, agent: str) -> Response:
        handling = self._server.handle(request, user, agent=agent)
        return await (self._finished(handling) if request.writes else handling)

    async def _finished(self, handling: Coroutine[Any, Any, Response]) -> Response:
        # A client that hangs up doesn't stop a write half way, between admission and the store.
        task = asyncio.ensure_future(handling)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await asyncio.shield(task)

    def _user(self, incoming: web.BaseRequest) -> User:
        scheme, _, token = incoming.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip() in self._users:
            return _impersonated(self._users[token.strip()], incoming)
        if not scheme and self._anonymous is not None:
            return self._anonymous
        if incoming.path.startswith(_OPEN) and not scheme:
            return User("system:anonymous", groups=("system:unauthenticated",))
        raise unauthorized()

    async def _watch(self, incoming: web.BaseRequest, request: Request, user: User) -> web.StreamResponse:
        watch = self._server.watch(request, user)
        self._watches.add(watch)
        try:
            response = web.StreamResponse(headers={"Content-Type": JSON})
            response.enable_chunked_encoding()
            # A client that has gone is no error of ours.
            with contextlib.suppress(ConnectionResetError):
                await response.prepare(incoming)
                while await watch.wait():
                    await response.write(watch.take())
                await response.write_eof()
            return response
        finally:
            watch.close()
            self._watches.discard(watch)


async def _read(incoming: web.BaseRequest) -> Request:
    body = b""
    if incoming.can_read_body:
        if (incoming.content_length or 0) > LIMIT:
            raise too_large(LIMIT)
        chunks: list[bytes] = []
        size = 0
        async for chunk in incoming.content.iter_any():
            size += len(chunk)
            if size > LIMIT:
                raise too_large(LIMIT)
            chunks.append(chunk)
        body = b"".join(chunks)
    headers = incoming.headers
    return Request(
        incoming.method,
        incoming.rel_url.raw_path,
        dict(incoming.rel_url.query),
        body,
        headers.get("Content-Type", ""),
        headers.get("Accept", "*/*"),
    )


def _answer(response: Response) -> web.Response:
    return web.Response(status=response.status, body=response.body, headers=response.headers)


def _impersonated(user: User, incoming: web.BaseRequest) -> User:
    """Return the user that ``kubectl --as`` names: everybody may be anybody here."""
    name = incoming.headers.get("Impersonate-User", "")
    if not name:
        return user
    groups = (*incoming.headers.getall("Impersonate-Group", ()), "system:authenticated")
    return replace(user, name=name, uid=incoming.headers.get("Impersonate-Uid", ""), groups=groups)


def kubeconfig(url: str, token: str, ca: bytes = b"", name: str = KUBECONFIG_NAME) -> str:
    """Return a kubeconfig for this server. ``ca`` is PEM. JSON, which is YAML too."""
    cluster: dict[str, Any] = {"server": url}
    if ca:
        cluster["certificate-authority-data"] = b64encode(ca).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    return json.dumps(config, indent=2) + "\n"


# ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────────────


class HttpWebhookCaller:
    """Calls webhooks over HTTPS; keeps connections. Implements `muster.sandbox.admission.WebhookCaller`."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[bytes, ssl.SSLContext] = {}

    async def call(
        self, url: str, ca_bundle: bytes, body: bytes, *, within: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Post ``body``; return status, headers (names in lower case) and body of the answer.

        Raises:
            UnreachableWebhookError: no answer came; its text is worded as Go's HTTP client words it.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=90))
        try:
            async with self._session.post(
                url,
                data=BytesIO(body) if len(body) > _COPIED_AT_ONCE else body,
                headers={
                    "Content-Type": JSON,
                    "Accept": "application/json, */*",
                    "User-Agent": "kube-apiserver-admission",
                },
                ssl=self._trust(ca_bundle),
                timeout=aiohttp.ClientTimeout(total=within),
                allow_redirects=False,
            ) as response:
                content = await _limited(response)
                headers = {name.lower(): value for name, value in response.headers.items()}
                return response.status, headers, content
        except TimeoutError as error:
            raise UnreachableWebhookError("context deadline exceeded") from error
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise UnreachableWebhookError(_as_go_says(error)) from error

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _trust(self, ca_bundle: bytes) -> ssl.SSLContext:
        context = self._contexts.get(ca_bundle)
        if context is None:
            try:
                context = ssl.create_default_context(cadata=ca_bundle.decode("ascii") if ca_bundle else None)
            except (ssl.SSLError, UnicodeDecodeError) as error:
                raise UnreachableWebhookError(
                    "unable to load root certificates: unable to parse bytes as PEM block"
                ) from error
            self._contexts[ca_bundle] = context
        return context


async def _limited(response: aiohttp.ClientResponse) -> bytes:
    content = await response.content.read(_REVIEW_LIMIT)
    while more := await response.content.read(_REVIEW_LIMIT - len(content) + 1):
        content += more
        if len(content) > _REVIEW_LIMIT:
            raise UnreachableWebhookError(f"http: response body over {_REVIEW_LIMIT} bytes")
    return content


def _as_go_says(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        known = {
            "certificate has expired": "certificate has expired or is not yet valid",
            "certificate is not yet valid": "certificate has expired or is not yet valid",
        }
        unknown = "certificate signed by unknown authority"
        trusted = "mismatch" in reason or "not valid for" in reason
        text = f"certificate is not valid for this name: {reason}" if trusted else known.get(reason, unknown)
        return f"tls: failed to verify certificate: x509: {text}"
    if isinstance(error, aiohttp.ClientConnectorError):
        why = "connection refused" if isinstance(error.os_error, ConnectionRefusedError) else str(error.os_error)
        return f"dial tcp {error.host}:{error.port}: connect: {why}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return " ".join(str(error).split()) or type(error).__name__
