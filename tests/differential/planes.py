"""The two API servers as a client sees them: the same requests, answers as they come over the wire."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from controlplane import ControlPlane

from certs import authority
from muster.kube.clock import SystemClock
from muster.sandbox.compose import Sandbox
from muster.sandbox.core.users import User
from muster.sandbox.http import HttpFront, HttpWebhookCaller

AGENT = "test/1"
"""Field managers of those who don't name one are called ``test`` on both."""

_TOKEN = "of-the-tests"
_ADMIN = User("admin", uid="admin", groups=("system:masters", "system:authenticated"))
_SECONDS = 60.0
_COMPARED_HEADERS = ("content-type", "warning", "retry-after")


@dataclass(frozen=True)
class Answer:
    """What came back: the headers are those that are compared, the body is decoded where it is JSON."""

    status: int
    body: Any
    headers: dict[str, Any] = field(default_factory=dict)


class Plane:
    """One API server; ``name`` is ``sandbox`` or ``kubernetes``."""

    def __init__(self, name: str, url: str, trust: ssl.SSLContext, token: str, session: aiohttp.ClientSession) -> None:
        self.name = name
        self._url = url
        self._trust = trust
        self._session = session
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": AGENT, "Accept": "application/json"}

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        async with self._request(method, path, headers, body) as response:
            return Answer(response.status, _decoded(await response.read()), _compared(response))

    @asynccontextmanager
    async def watch(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[Answer | AsyncIterator[Any]]:
        """Return the events of a watch as they come, or the answer that refuses it."""
        async with self._request("GET", path, headers, None) as response:
            if response.status == 200:
                yield _events(response)
                # The rest of a watch is never read: its connection can't be used again.
                response.close()
            else:
                yield Answer(response.status, _decoded(await response.read()), _compared(response))

    def _request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Any:
        return self._session.request(
            method,
            self._url + path,
            data=body,
            headers={**self._headers, **headers},
            ssl=self._trust,
            # aiohttp would call a body without a type octet-stream.
            skip_auto_headers=("Content-Type",),
            timeout=aiohttp.ClientTimeout(total=_SECONDS),
        )


def _compared(response: aiohttp.ClientResponse) -> dict[str, Any]:
    # One header with several values is to HTTP the same as several headers.
    return {name: ", ".join(response.headers.getall(name)) for name in _COMPARED_HEADERS if name in response.headers}


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    partial = b""
    async for chunk in response.content.iter_any():
        *lines, partial = (partial + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)


@asynccontextmanager
async def sandbox(folder: Path, session: aiohttp.ClientSession) -> AsyncIterator[Plane]:
    """Run a sandbox behind HTTPS, with its controllers and in real time, as ``muster up`` does."""
    now = SystemClock().now()
    ca = authority.new_ca(now)
    pair = authority.issue(ca, ("127.0.0.1",), now)
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    caller = HttpWebhookCaller()
    running = Sandbox(SystemClock(), caller=caller, root_ca=ca.certificate.decode())
    front = HttpFront(running.server, users={_TOKEN: _ADMIN}, tls=tls)
    await running.start()
    url = await front.start()
    try:
        yield Plane("sandbox", url, ssl.create_default_context(cadata=ca.certificate.decode()), _TOKEN, session)
    finally:
        await front.stop()
        await running.stop()
        await caller.close()


def kubernetes(running: ControlPlane, session: aiohttp.ClientSession) -> Plane:
    """Return the real control plane, which runs already."""
    trust = ssl.create_default_context(cafile=str(running.ca_file))
    return Plane("kubernetes", running.url, trust, running.token, session)
