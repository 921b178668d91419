"""When a stream has been silent for too long, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from muster.kube.connection import Connection

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Wire(asyncio.Transport):
    """Takes what is sent, and loses nothing."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def abort(self) -> None:
        pass


@pytest.fixture
async def stream() -> Connection:
    connection = Connection(memoryview(bytearray(1024)), lambda _: None)
    connection.connection_made(Wire())
    connection.send(b"", streams=True)
    brings(connection, HEAD)
    return connection


def brings(connection: Connection, text: bytes) -> None:
    connection.get_buffer(-1)[: len(text)] = text
    connection.buffer_updated(len(text))


def later(seconds: float, connection: Connection, text: bytes) -> None:
    asyncio.get_running_loop().call_later(seconds, brings, connection, text)


async def test_silence_counts_from_when_somebody_waits_for_more(stream: Connection) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(5):
        later(50, stream, b"1\r\n%d\r\n" % number)
        assert await stream.piece(70) == b"%d" % number
    # Whoever reads may take its time: that is no silence of the server.
    await asyncio.sleep(100)
    waits = loop.time()
    with pytest.raises(TimeoutError):
        await stream.piece(70)
    assert (waits - began, loop.time() - waits) == (350, 70)


async def test_what_has_come_is_given_however_late_it_is_asked_for(stream: Connection) -> None:
    later(69, stream, b"1\r\na\r\n")
    assert await stream.piece(70) == b"a"
    brings(stream, b"1\r\nb\r\n")
    await asyncio.sleep(200)
    assert await stream.piece(70) == b"b"
    later(1, stream, b"0\r\n\r\n")
    assert await stream.piece(70) == b""


async def test_a_connection_that_is_lost_rings_no_more(stream: Connection) -> None:
    later(1, stream, b"1\r\na\r\n")
    assert await stream.piece(70) == b"a"
    stream.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await stream.piece(70)
    await asyncio.sleep(200)
