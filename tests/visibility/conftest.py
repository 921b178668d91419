"""A visibility server on loopback, over whatever API server a test has, and clients that show certificates."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
import frontproxy
import pytest
from asked import POLICY

from certs import authority
from certs.bundle import KeyPair
from muster.cli.installation import crds
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.visibility.program import VisibilityOptions, serving
from muster.visibility.server import VisibilityServer

Serve = Callable[[Client, str], AbstractAsyncContextManager[VisibilityServer]]


@pytest.fixture(scope="session")
def ca() -> KeyPair:
    """Who signs the server's certificate."""
    return authority.new_ca(SystemClock().now())


@pytest.fixture
def serve(ca: KeyPair, tmp_path: Path) -> Serve:
    """Serve the API for an API server, with a certificate that is good for a host."""

    @asynccontextmanager
    async def served(client: Client, host: str) -> AsyncIterator[VisibilityServer]:
        pair = authority.issue(ca, (host, "127.0.0.1"), SystemClock().now())
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / "tls.key").write_bytes(pair.key)
        options = VisibilityOptions(
            tmp_path, POLICY, ("muster",), crds.manifests(legacy_apis=False), host="127.0.0.1", port=0, drain=0
        )
        async with serving(client, SystemClock(), options) as server:
            yield server

    return served


class Proxy:
    """Calls a server as a front proxy does, or as somebody who would like to be one; keeps its connection."""

    def __init__(self, server: VisibilityServer, ca: KeyPair, folder: Path, shown: tuple[bytes, bytes] | None) -> None:
        self._url = f"https://127.0.0.1:{server.port}"
        self._context = ssl.create_default_context(cadata=ca.certificate.decode())
        if shown is not None:
            (folder / "shown.pem").write_bytes(shown[0] + shown[1])
            self._context.load_cert_chain(folder / "shown.pem")

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
        """Return status and body.

        Raises:
            ClientError: the connection was refused.
        """
        async with self._session.get(self._url + path, headers=headers, ssl=self._context) as answer:
            return answer.status, json.loads(await answer.read())


@pytest.fixture
def proxy(ca: KeyPair, tmp_path: Path) -> Callable[..., Proxy]:
    def made(server: VisibilityServer, shown: tuple[bytes, bytes] | None) -> Proxy:
        return Proxy(server, ca, tmp_path, shown)

    return made


@pytest.fixture
def trusted() -> frontproxy.Authority:
    """The request-header CA."""
    return frontproxy.Authority("requestheader-ca")
