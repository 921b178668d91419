"""How much is held of what callers send: on values, in virtual time and over the wire."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from certs import authority
from certs.serving import CertificateFiles, LiveCertificate
from muster.kube.clock import SystemClock
from muster.sandbox import virtual_time
from muster.telemetry.repeated import RepeatedWarnings
from muster.telemetry.waiting_room import SETTLING, WaitingRoom
from webhooks import server as servers
from webhooks.admission import Admission
from webhooks.budget import BODY_FLOOR, BodyBytes, ByteBudget
from webhooks.connections import FIRST_REQUEST, KEEPALIVE, CallerConnection
from webhooks.server import BODY_LIMIT, ListenOptions, WebhookServer

LIMIT = 1000 * BODY_FLOOR


class Bodies(RuleBasedStateMachine):
    """Bodies that come, grow and go."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = ByteBudget(LIMIT)
        self.shares: list[BodyBytes] = []

    @rule()
    def come(self) -> None:
        self.shares.append(self.budget.open())

    @precondition(lambda self: self.shares)
    @rule(data=st.data(), size=st.integers(0, LIMIT))
    def grow(self, data: st.DataObject, size: int) -> None:
        share = data.draw(st.sampled_from(self.shares))
        free, held, refused = self.budget.limit - self.budget.held, share.held, share.refused
        assert share.grow(size) is (not refused and held + size <= free)

    @precondition(lambda self: self.shares)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        share = data.draw(st.sampled_from(self.shares))
        self.shares.remove(share)
        share.close()

    @invariant()
    def the_limit_holds_and_what_is_held_is_the_sum(self) -> None:
        assert 0 <= self.budget.held == sum(share.held for share in self.shares) <= LIMIT
        assert not any(share.held for share in self.shares if share.refused)


TestBodies = Bodies.TestCase


def test_large_bodies_never_use_up_the_room_of_small_ones() -> None:
    budget = ByteBudget(64 * 2**20)
    attackers = [budget.open() for _ in range(200)]
    for _ in range(8 * 2**20 // 2**16):
        for each in attackers:
            each.grow(2**16)
    small = budget.open()
    assert small.grow(100_000)
    assert budget.held <= budget.limit


class Room(RuleBasedStateMachine):
    """Connections of three addresses, of which one is a caller's."""

    def __init__(self) -> None:
        super().__init__()
        self.room: WaitingRoom[int] = WaitingRoom(most=6, per_address=2)
        self.room.callers.add("caller")
        self.now, self.next = 0.0, 0
        self.waiting: dict[int, tuple[str, float]] = {}

    @rule(address=st.sampled_from(["caller", "one", "two", "three"]))
    def enter(self, address: str) -> None:
        self.next += 1
        self.waiting[self.next] = (address, self.now)
        closed = self.room.enter(self.next, address, self.now)
        if closed is not None:
            whose, since = self.waiting.pop(closed)
            others = [each for each, _ in self.waiting.values()]
            if self.now - since < SETTLING:
                # Only the newest hasn't its time, and only where four times as many wait as may.
                assert closed == self.next
                assert len(others) >= 4 * 6 or (others.count(whose) >= 4 * 2 and whose != "caller")
                return
            # A caller's goes only where all together are too many, and where it has most of them.
            assert whose != "caller" or max(map(others.count, others)) <= others.count("caller") + 1

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(sorted(self.waiting)))
        self.room.leave(one, self.waiting.pop(one)[0])

    @invariant()
    def it_knows_who_waits(self) -> None:
        assert len(self.room) == len(self.waiting)


TestRoom = Room.TestCase


def test_an_address_has_so_many_waiting_connections_and_a_caller_has_more() -> None:
    room: WaitingRoom[int] = WaitingRoom(most=100, per_address=10)
    room.callers.add("caller")
    closed = [room.enter(number, "stranger", number * SETTLING) for number in range(30)]
    assert closed == [None] * 10 + list(range(20))
    assert [room.enter(100 + number, "caller", 100.0) for number in range(30)] == [None] * 30


def test_connections_that_come_all_at_once_are_bounded_too() -> None:
    room: WaitingRoom[int] = WaitingRoom(most=100, per_address=10)
    closed = [room.enter(number, "stranger", 0.0) for number in range(500)]
    assert closed == [None] * 40 + list(range(40, 500))
    room.callers.add("caller")
    closed = [room.enter(number, "caller", 0.0) for number in range(1000, 1500)]
    assert closed == [None] * 360 + list(range(1360, 1500))
    assert len(room) == 400


class Transport(asyncio.Transport):
    """A connection whose other side says nothing."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1234)})
        self.closed = False
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.mark.parametrize(("address", "after"), [("10.0.0.2", FIRST_REQUEST), ("10.0.0.1", KEEPALIVE)])
def test_a_connection_that_sends_nothing_is_closed(address: str, after: float) -> None:
    async def told() -> None:
        room: WaitingRoom[Any] = WaitingRoom()
        room.callers.add("10.0.0.1")
        manager = aiohttp.web.Server(None)  # type: ignore[arg-type] # no request comes
        connection, transport = (
            CallerConnection(manager, room, RepeatedWarnings(logging.getLogger(), lambda: 0.0)),
            Transport(address),
        )
        connection.connection_made(transport)
        await asyncio.sleep(after - 1)
        # Bytes that are no whole request don't count.
        connection.data_received(b"POST /validate/pods HTTP/1.1\r\nHost: muster\r\nX: ")
        assert not transport.closed
        await asyncio.sleep(2)
        assert transport.closed
        connection.connection_lost(None)
        assert len(room) == 0

    virtual_time.run(told())


# ── over the wire ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def served(admission: Admission, tmp_path: Path) -> Any:
    today = SystemClock().now()
    ca = authority.new_ca(today)
    pair = authority.issue(ca, ("127.0.0.1",), today)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    server = WebhookServer(admission, LiveCertificate(CertificateFiles(tmp_path)), ListenOptions("127.0.0.1", 0, 0.0))
    await server.start()
    context = ssl.create_default_context(cadata=ca.certificate.decode())
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    yield server, context
    await server.stop()


def head(path: str, length: int) -> bytes:
    return f"POST {path}?timeout=999999s HTTP/1.1\r\nHost: muster\r\nContent-Length: {length}\r\n\r\n".encode()


async def test_unfinished_bodies_hold_no_more_than_the_budget_and_a_review_is_answered_meanwhile(
    served: Any, review_of: Any, podgroup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 connections with bodies of 8 MiB less a byte: 500 MiB before there was a budget."""
    server, context = served
    budget = server._bodies
    most = 0
    grow = BodyBytes.grow

    def noted(self: BodyBytes, size: int) -> bool:
        nonlocal most
        grown = grow(self, size)
        most = max(most, budget.held)
        return grown

    monkeypatch.setattr(BodyBytes, "grow", noted)
    writers = []

    async def attack() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        writers.append(writer)
        writer.write(head("/validate/pods", BODY_LIMIT))
        for _ in range(BODY_LIMIT // 2**20 - 1):
            writer.write(b"x" * 2**20)
            await writer.drain()

    await asyncio.gather(*(attack() for _ in range(50)))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    body = review_of(podgroup(metadata={"annotations": {"note": "x" * 50_000}}))
    writer.write(head("/validate/podgroups", len(body)) + body)
    answer = await reader.readuntil(b"}}")
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["response"]["allowed"]
    assert budget.limit / 4 < most <= budget.limit
    for each in writers:
        each.close()
    async with asyncio.timeout(30):
        while budget.held:  # noqa: ASYNC110 - nobody is told that a connection is gone
            await asyncio.sleep(0.01)


async def test_a_review_over_budget_is_told_busy_with_its_uid_and_never_an_http_error(
    served: Any, review_of: Any, pod: Any
) -> None:
    server, context = served
    server._bodies.limit = 100_000
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    # As API servers write it: kind, apiVersion, request.
    review = json.loads(review_of(pod(annotations={"note": "x" * 200_000})))
    body = json.dumps({key: review[key] for key in ("kind", "apiVersion", "request")}).encode()
    for _ in range(2):
        writer.write(head("/validate/pods", len(body)) + body)
        answer = await reader.readuntil(b"}}}}")
        assert answer.startswith(b"HTTP/1.1 200 OK")
        response = json.loads(answer.partition(b"\r\n\r\n")[2])["response"]
        assert (response["uid"], response["allowed"], response["status"]["code"]) == ("6f0c5b4e", False, 429)
    writer.close()
    assert server._bodies.held == 0


async def test_a_body_over_budget_that_is_no_review_is_told_so_without_one(served: Any) -> None:
    server, context = served
    server._bodies.limit = 10_000
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    writer.write(head("/validate/pods", 20_000) + b"x" * 20_000)
    assert (await reader.readline()).startswith(b"HTTP/1.1 429 ")
    writer.close()


async def test_a_strangers_body_is_not_read(served: Any) -> None:
    server, context = served
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    writer.write(head("/validate/nodes", BODY_LIMIT) + b"x" * 2**16)
    answer = await reader.readline()
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert server._bodies.held == 0
    writer.close()


async def test_a_body_has_ten_seconds_whatever_the_url_says(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, context = served
    monkeypatch.setattr(servers, "ARRIVAL", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    writer.write(head("/validate/pods", 100) + b"{")
    assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
    writer.close()
