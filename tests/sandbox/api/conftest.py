"""A bare API server in virtual time, asked with requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from muster.kube.clock import LoopClock
from muster.kube.transport import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Request
from muster.sandbox.core.users import ADMIN
from muster.sandbox.server.requests import ApiServer
from muster.sandbox.server.watching import Watch
from muster.sandbox.virtual_time import VirtualTimeLoop

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of this folder in virtual time."""
    return {"virtual": VirtualTimeLoop}


class Api:
    """The server, and requests to it as short as they can be."""

    def __init__(self) -> None:
        self.server = ApiServer(LoopClock(START), seed=1)
        self.warnings = ""

    @property
    def store(self) -> Any:
        return self.server.store

    async def send(self, method: str, path: str, body: Any = None, content_type: str = JSON, accept: str = JSON) -> Any:
        """Give (status, decoded body); the query may stand in the path. Bytes are sent as they are."""
        url = urlsplit(path)
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        response = await self.server.handle(
            Request(method, url.path, query, data, content_type, accept), ADMIN, agent="cmp/1"
        )
        self.warnings = response.headers.get("warning", "")
        if response.headers.get("content-type", "").startswith("text/plain"):
            return response.status, response.body.decode()
        return response.status, msgspec.json.decode(response.body) if response.body else None

    async def ok(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Any:
        """Return the body of an answer that has to be a success."""
        status, answer = await self.send(method, path, body, content_type)
        assert status < 300, answer
        return answer

    async def post(self, path: str, body: Any) -> Any:
        return await self.ok("POST", path, body)

    async def get(self, path: str) -> Any:
        return await self.ok("GET", path)

    async def merge(self, path: str, patch: Any) -> Any:
        return await self.ok("PATCH", path, patch, MERGE_PATCH)

    async def strategic(self, path: str, patch: Any) -> Any:
        return await self.ok("PATCH", path, patch, STRATEGIC_PATCH)

    async def json_patch(self, path: str, patch: Any) -> Any:
        return await self.ok("PATCH", path, patch, JSON_PATCH)

    async def apply(self, path: str, manager: str, body: Any, *, force: bool = False) -> Any:
        query = f"?fieldManager={manager}" + ("&force=true" if force else "")
        return await self.send("PATCH", path + query, body, APPLY_PATCH)

    def watch(self, path: str, accept: str = JSON) -> Watch:
        url = urlsplit(path)
        query = dict(parse_qsl(url.query, keep_blank_values=True)) | {"watch": "true"}
        return self.server.watch(Request("GET", url.path, query, accept=accept))


class Events:
    """The events of a watch, as they come."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._lines = watch.__aiter__()

    async def next(self) -> Any:
        """Return the next event; None when the watch has ended."""
        line = await anext(self._lines, None)
        return msgspec.json.decode(line) if line is not None else None

    async def all(self) -> list[Any]:
        return [msgspec.json.decode(line) async for line in self._lines]

    def waiting(self) -> list[Any]:
        """Return what has come and wasn't read, without waiting."""
        return [msgspec.json.decode(line) for line in self.watch.take().splitlines()]


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Return a server with the namespace ``default``."""
    api = Api()
    await api.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    yield api
    api.server.close()
    assert api.server.open_watches == 0


@pytest.fixture
def events() -> type[Events]:
    return Events


@pytest.fixture
def pod() -> Callable[..., dict[str, Any]]:
    """Return a maker of pods."""

    def make(name: str = "p", **spec: Any) -> dict[str, Any]:
        containers = [{"name": "c", "image": "i:1"}]
        return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}

    return make
