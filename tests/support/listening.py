"""A webhook server that listens already, as the fixture ``aiohttp_client`` knows servers."""

from __future__ import annotations

from typing import Any

from aiohttp.test_utils import BaseTestServer
from aiohttp.web_runner import BaseRunner
from yarl import URL


class Listening(BaseTestServer):
    """A server on a port of this machine, over its own TLS. Who started it stops it."""

    async def start_server(self, *_: Any, **__: Any) -> None:
        """Know the address; nothing is to be started."""
        self._root = URL(f"https://{self.host}:{self.port}")

    async def _make_runner(self, **_: Any) -> BaseRunner:
        raise AssertionError("it listens without one of aiohttp's runners")
