"""A scripted API server for tests of the client's parts, and a loop in virtual time for those that wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec
import pytest

from muster.kube import errors
from muster.kube.client import Client
from muster.kube.transport import Request, Response
from muster.sandbox.virtual_time import VirtualTimeLoop

Answer = Response | Exception
Handler = Callable[[Request], Answer | Awaitable[Answer]]

REAL_TIME = ("test_http.py", "test_auth.py", "test_threads.py")  # these talk to real sockets and processes


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of this folder in virtual time, those that use sockets aside."""
    if item.path.name in REAL_TIME:
        return {"real": asyncio.SelectorEventLoop}
    return {"virtual": VirtualTimeLoop}


class Scripted:
    """A transport that answers as told. What it was asked, and when (loop time), is kept."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, Request]] = []
        self.answer: Handler = lambda request: Scripted.status(404, "NotFound", f"no {request.path}")
        # Each watch takes the next: lines, with exceptions to raise and numbers of seconds to wait in between.
        self.watches: list[list[bytes | dict[str, Any] | Exception | float]] = []
        self.open = 0
        # What the shortest list tells, which reflectors ask for after a gap; and when they did.
        self.revision = 1_000_000
        self.probed: list[float] = []

    @staticmethod
    def ok(body: Any, code: int = 200) -> Response:
        """An answer with a JSON body."""
        return Response(code, msgspec.json.encode(body))

    @staticmethod
    def status(code: int, reason: str = "", message: str = "", **more: Any) -> Response:
        """A Status that says no."""
        body = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message, **more}
        return Response(code, msgspec.json.encode(body))

    @staticmethod
    def pod(name: str, version: int, uid: str = "", **more: Any) -> dict[str, Any]:
        """A pod as JSON."""
        meta = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
        return {"metadata": meta, **more}

    @classmethod
    def listing(cls, version: int, *items: dict[str, Any], token: str = "") -> Response:
        """One page of a list."""
        return cls.ok({"metadata": {"resourceVersion": str(version), "continue": token}, "items": list(items)})

    @property
    def client(self) -> Client:
        return Client(self)

    async def request(self, request: Request, *, within: float) -> Response:
        if request.query.get("limit") == "1":
            self.probed.append(asyncio.get_running_loop().time())
            return self.listing(self.revision)
        self.asked.append((asyncio.get_running_loop().time(), request))
        try:
            async with asyncio.timeout(within):
                answer = self.answer(request)
                if not isinstance(answer, Response | Exception):
                    answer = await answer
        except TimeoutError as error:
            raise errors.UnreachableError("too slow", maybe_applied=request.writes) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    @contextlib.asynccontextmanager
    async def watch(self, request: Request, *, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked.append((asyncio.get_running_loop().time(), request))
        lines = self.watches.pop(0) if self.watches else [errors.UnreachableError("down", maybe_applied=False)]
        if lines and isinstance(lines[0], Exception):
            raise lines[0]
        self.open += 1
        try:
            yield self._lines(lines, idle)
        finally:
            self.open -= 1

    async def _lines(self, lines: list[Any], idle: float) -> AsyncIterator[bytes]:
        for line in lines:
            if isinstance(line, Exception):
                raise line
            if isinstance(line, int | float):
                await asyncio.sleep(min(line, idle))
                if line >= idle:
                    raise errors.SilentError("idle", maybe_applied=False)
            else:
                yield line if isinstance(line, bytes) else msgspec.json.encode(line)

    def requests(self, method: str = "", *, watching: bool = False) -> list[Request]:
        return [
            request
            for _, request in self.asked
            if request.method == (method or request.method) and ("watch" in request.query) == watching
        ]


@pytest.fixture
def server() -> Scripted:
    return Scripted()


class LeaseStore:
    """What an API server does with Leases: one version each, compare-and-swap, quorum reads."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0

    def handle(self, request: Request) -> Response:
        if request.method == "GET":
            return Scripted.ok(self.lease) if self.lease else Scripted.status(404, "NotFound", "none")
        sent = msgspec.json.decode(request.body)
        if request.method == "POST":
            if self.lease is not None:
                return Scripted.status(409, "AlreadyExists", "exists")
        elif self.lease is None:
            return Scripted.status(404, "NotFound", "none")
        elif sent["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return Scripted.status(409, "Conflict", "changed")
        self.version += 1
        self.lease = sent | {"metadata": sent["metadata"] | {"resourceVersion": str(self.version)}}
        return Scripted.ok(self.lease)

    @property
    def holder(self) -> str:
        return self.lease["spec"]["holderIdentity"] if self.lease else ""

    def edit(self, **spec: Any) -> None:
        """Change the record as a person with kubectl would."""
        assert self.lease is not None
        self.version += 1
        meta = self.lease["metadata"] | {"resourceVersion": str(self.version)}
        self.lease = self.lease | {"metadata": meta, "spec": self.lease["spec"] | spec}


@pytest.fixture
def leases(server: Scripted) -> LeaseStore:
    store = LeaseStore()
    server.answer = store.handle
    return store
