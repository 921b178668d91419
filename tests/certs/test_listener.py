"""The TLS listener, called by those who don't finish what they begin."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop

from certs import authority, listener
from certs.listener import TlsListener
from muster.kube.clock import SystemClock
from muster.telemetry.waiting_room import KnownCallers

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
EACH = 3


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@dataclass
class Served:
    """A listener, what it was told of, and a client's trust in it."""

    listener: TlsListener
    callers: KnownCallers
    trusting: ssl.SSLContext
    open_: list[asyncio.StreamWriter] = field(default_factory=list)

    async def silent(self) -> asyncio.StreamReader:
        """Connect, and say nothing."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        self.open_.append(writer)
        return reader

    async def echoed(self) -> bytes:
        """Connect, send bytes together with the end of the handshake, and return what comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port, ssl=self.trusting)
        self.open_.append(writer)
        writer.write(b"hello")
        return await reader.readexactly(5)

    async def arrived(self, count: int) -> None:
        """Wait until so many connections are in their handshake."""
        async with asyncio.timeout(30):
            while self.listener.handshakes != count:  # noqa: ASYNC110 - nobody is told of a connection
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    today = SystemClock().now()
    ca = authority.new_ca(today)
    pair = authority.issue(ca, ("127.0.0.1",), today)
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    trusting = ssl.create_default_context(cadata=ca.certificate.decode())
    trusting.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    callers = KnownCallers()
    made = Served(TlsListener(Echo, context, callers), callers, trusting)
    await made.listener.start("127.0.0.1", 0)
    try:
        yield made
    finally:
        made.listener.close()
        for each in made.open_:
            each.close()


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Callable[[Served], Any]], None]:
    """Runs a story on a loop of each kind."""

    async def told(story: Callable[[Served], Any]) -> None:
        async with serving(tmp_path) as served:
            await story(served)

    def ran(story: Callable[[Served], Any]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(told(story))

    return ran


def test_a_connection_is_its_protocol_s_after_the_handshake(run: Any) -> None:
    async def story(served: Served) -> None:
        for _ in range(3 * EACH):
            assert await served.echoed() == b"hello"
        await served.arrived(0)

    run(story)


def test_of_those_who_never_shake_hands_an_address_has_few_and_who_does_is_served(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKES_PER_ADDRESS", EACH)

    async def story(served: Served) -> None:
        readers = [await served.silent() for _ in range(10 * EACH)]
        # Four times as many as may for a while, and none of the rest.
        closed = [asyncio.ensure_future(each.read()) for each in readers]
        async with asyncio.timeout(30):
            while sum(each.done() for each in closed) < 6 * EACH:  # noqa: ASYNC110 - nobody is told of a connection
                await asyncio.sleep(0.01)
        assert served.listener.handshakes <= 4 * EACH
        served.callers.add("127.0.0.1")
        assert await served.echoed() == b"hello"
        for each in closed:
            each.cancel()

    run(story)


def test_a_handshake_that_takes_too_long_is_given_up(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE", 0.05)

    async def story(served: Served) -> None:
        reader = await served.silent()
        assert await reader.read() == b""
        await served.arrived(0)

    run(story)


def test_bytes_that_are_no_tls_are_hung_up_on_and_nobody_else_notices(run: Any) -> None:
    async def story(served: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.listener.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        await served.arrived(0)
        assert await served.echoed() == b"hello"

    run(story)


def test_closed_it_lets_go_of_those_in_their_handshake(run: Any) -> None:
    async def story(served: Served) -> None:
        reader = await served.silent()
        await served.arrived(1)
        served.listener.close()
        assert await reader.read() == b""
        await served.arrived(0)
        with pytest.raises(OSError, match=r".*"):
            await served.silent()
        await served.listener.start("127.0.0.1", 0)

    run(story)


def test_an_address_that_is_taken_is_an_error(run: Any) -> None:
    async def story(served: Served) -> None:
        another = TlsListener(Echo, ssl.create_default_context(), KnownCallers())
        with pytest.raises(OSError, match="in use"):
            await another.start("127.0.0.1", served.listener.port)
        assert another.port == 0

    run(story)
