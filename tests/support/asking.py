"""A stand-in for the front proxy of an aggregated API: asks `muster visibility` directly, as whom it likes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
from frontproxy import Authority

from muster.visibility.paths import ROOT

ADMIN = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
SECONDS = 120.0


class FrontProxy:
    """Asks the program that listens on a port of loopback with a certificate of ``ca``."""

    def __init__(self, port: int, ca: Path, authority: Authority, folder: Path) -> None:
        self._url = f"https://127.0.0.1:{port}{ROOT}"
        shown = folder / "front-proxy.pem"
        shown.write_bytes(b"".join(authority.client("front-proxy-client")))
        self._context = ssl.create_default_context(cafile=str(ca))
        self._context.load_cert_chain(shown)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SECONDS))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Return status and answer of a question, or of an admission where there is a body; asked again as long as that is what is said."""
        async with asyncio.timeout(SECONDS):
            while True:
                # Who has just started knows no cluster yet, and closed the connections of who was there before.
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    status, answer = await self._ask(path, body)
                    if status not in {429, 503}:
                        return status, answer
                await asyncio.sleep(0.2)

    async def _ask(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        method = "GET" if body is None else "POST"
        asked = self._session.request(method, self._url + path, json=body, headers=ADMIN, ssl=self._context)
        async with asked as answer:
            return answer.status, json.loads(await answer.read())
