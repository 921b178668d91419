"""Lists that are asked for early: what comes of them is what a client would have read itself."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from muster.kube.client import PAGE, Client
from muster.kube.early_lists import EarlyLists
from muster.kube.errors import ServerError, UnreachableError
from muster.kube.transport import Request, Response
from muster.model import kinds


def page(first: int, count: int, token: str = "") -> Response:
    items = [{"metadata": {"name": f"node-{number}"}} for number in range(first, first + count)]
    return Response(200, json.dumps({"metadata": {"resourceVersion": "7", "continue": token}, "items": items}).encode())


class Server:
    """Answers lists in two pages, each when it may."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.may = asyncio.Event()
        self.may.set()
        self.fails: Exception | None = None

    async def request(self, request: Request, *, within: float) -> Response:  # noqa: ARG002 - a Transport
        token = request.query.get("continue", "")
        self.asked[f"{request.method} {request.path} {token}".strip()] += 1
        await self.may.wait()
        if self.fails is not None:
            raise self.fails
        return page(PAGE, 3) if token else page(0, PAGE, "more")

    def watch(self, request: Request, *, idle: float) -> Any:  # noqa: ARG002 - a Transport
        raise AssertionError


FIRST, SECOND = "GET /api/v1/nodes", "GET /api/v1/nodes more"


async def read(early: EarlyLists) -> list[str]:
    return [node.name for node in (await Client(early).list(kinds.NODES)).items]


ALL = [f"node-{number}" for number in range(PAGE + 3)]


@pytest.mark.parametrize("pause", [0, 5], ids=["asked for at once", "asked for later"])
async def test_each_page_is_read_once_whoever_asks_when(pause: int) -> None:
    server = Server()
    early = EarlyLists(server)
    early.begin([kinds.NODES])
    for _ in range(pause):
        await asyncio.sleep(0)
    assert await read(early) == ALL
    assert server.asked == {FIRST: 1, SECOND: 1}


async def test_what_was_handed_out_is_read_anew() -> None:
    server = Server()
    early = EarlyLists(server)
    early.begin([kinds.NODES])
    await asyncio.sleep(0.01)
    assert await read(early) == await read(early) == ALL
    assert server.asked == {FIRST: 2, SECOND: 2}


async def test_pages_are_waited_for() -> None:
    server = Server()
    server.may.clear()
    early = EarlyLists(server)
    early.begin([kinds.NODES])
    await asyncio.sleep(0)
    reading = asyncio.create_task(read(early))
    await asyncio.sleep(0.01)
    server.may.set()
    assert await reading == ALL
    assert server.asked == {FIRST: 1, SECOND: 1}


@pytest.mark.parametrize("error", [UnreachableError("no route", maybe_applied=False), ServerError(500, "", "no")])
async def test_an_early_list_that_fails_is_asked_for_again_and_that_answer_counts(error: Exception) -> None:
    server = Server()
    server.fails = error
    early = EarlyLists(server)
    early.begin([kinds.NODES])
    await asyncio.sleep(0.01)
    server.fails = None
    assert await read(early) == ALL
    assert server.asked == {FIRST: 2, SECOND: 1}


async def test_a_reader_who_gives_up_takes_nothing_from_the_next() -> None:
    server = Server()
    server.may.clear()
    early = EarlyLists(server)
    early.begin([kinds.NODES])
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await read(early)
    server.may.set()
    assert await read(early) == ALL


async def test_after_the_end_nothing_old_is_handed_out() -> None:
    server = Server()
    early = EarlyLists(server)
    early.begin([kinds.NODES])
    await asyncio.sleep(0.01)
    early.end()
    assert await read(early) == ALL
    assert server.asked == {FIRST: 2, SECOND: 2}


async def test_who_waits_at_the_end_asks_for_itself() -> None:
    server = Server()
    server.may.clear()
    early = EarlyLists(server)
    early.begin([kinds.NODES])
    await asyncio.sleep(0)
    reading = asyncio.create_task(read(early))
    await asyncio.sleep(0)
    early.end()
    server.may.set()
    assert await reading == ALL


@pytest.mark.parametrize(
    "query", [{}, {"limit": str(PAGE), "labelSelector": "a=b"}, {"limit": "1"}], ids=["whole", "selected", "shorter"]
)
async def test_another_list_passes(query: Mapping[str, str]) -> None:
    server = Server()
    early = EarlyLists(server)
    early.begin([kinds.NODES])
    await asyncio.sleep(0.01)
    before = server.asked[FIRST]
    await early.request(Request("GET", kinds.NODES.path(), query), within=1)
    assert server.asked[FIRST] == before + 1
