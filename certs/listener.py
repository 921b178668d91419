"""A TLS listener that bounds handshakes: each has ten seconds, and those under way count by the address that they come from.

asyncio's own listener begins a handshake with whoever connects, and tells nobody until it is over: thousands of connections that
say nothing hold their buffers and descriptors for as long as that takes. Here a connection is known from the moment it is accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from muster.telemetry import sockets
from muster.telemetry.waiting_room import KnownCallers, WaitingRoom

HANDSHAKE: Final = 10.0
"""Seconds for a handshake."""
HANDSHAKES: Final = 1024
"""Handshakes under way, all together."""
HANDSHAKES_PER_ADDRESS: Final = 64
"""Handshakes under way from an address that no answered caller came from."""

_SETTLING: Final = 4.0  # seconds that a handshake may take on a busy machine before it gives way to others
_AT_ONCE: Final = 64  # connections that are accepted in one turn of the loop
_PAUSE: Final = 1.0  # seconds without accepting, where the machine has no descriptors left

log = logging.getLogger(__name__)


class TlsListener:
    """Listens on a port, and gives each connection a protocol once its handshake is over.

    Args:
        make: returns the protocol of a connection.
        tls: the context to listen with.
        callers: addresses whose handshakes aren't counted by address.
    """

    def __init__(self, make: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext, callers: KnownCallers) -> None:
        self._make = make
        self._tls = tls
        self._room: WaitingRoom[_Arrival] = WaitingRoom(HANDSHAKES, HANDSHAKES_PER_ADDRESS, _SETTLING, callers)
        self._sockets: list[socket.socket] = []
        self._arriving: set[_Arrival] = set()

    @property
    def handshakes(self) -> int:
        """How many are under way."""
        return len(self._room)

    @property
    def port(self) -> int:
        """The port that it listens on; 0 before `start` and after `close`."""
        return int(self._sockets[0].getsockname()[1]) if self._sockets else 0

    async def start(self, host: str, port: int) -> None:
        """Listen; with no host on all addresses, of both families.

        Raises:
            OSError: the address is taken or not ours.
        """
        loop = asyncio.get_running_loop()
        self._sockets = await sockets.listen(host, port)
        for each in self._sockets:
            loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Listen no more, and give up the handshakes that are under way."""
        for each in self._sockets:
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        self._sockets.clear()
        for arrival in tuple(self._arriving):
            arrival.turn_away()

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no connection can be accepted for %g s: %s", _PAUSE, error)  # noqa: TRY400 - the line says it all
                loop.remove_reader(listening)
                loop.call_later(_PAUSE, self._accept_again, listening)
                return
            accepted.setblocking(False)
            self._arrived(_Arrival(accepted, str(address[0])), loop)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _arrived(self, arrival: _Arrival, loop: asyncio.AbstractEventLoop) -> None:
        excess = self._room.enter(arrival, arrival.address, loop.time())
        if excess is not None:
            excess.turn_away()
        if excess is arrival:
            return
        self._arriving.add(arrival)
        arrival.shaking = loop.create_task(self._shake_hands(arrival))
        arrival.shaking.add_done_callback(lambda _: self._leave(arrival))

    async def _shake_hands(self, arrival: _Arrival) -> None:
        arrival.is_the_loops = True
        # What is no TLS, another version or too slow, or has no certificate where one is wanted, is a stranger's.
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, arrival.socket, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE
            )

    def _leave(self, arrival: _Arrival) -> None:
        self._arriving.discard(arrival)
        self._room.leave(arrival, arrival.address)


class _Arrival:
    """A connection whose handshake isn't over."""

    def __init__(self, accepted: socket.socket, address: str) -> None:
        self.socket = accepted
        self.address = address
        self.is_the_loops = False
        self.shaking: asyncio.Task[None] | None = None

    def turn_away(self) -> None:
        """Close the connection, without a word: there is no TLS to say one in."""
        if self.shaking is not None:
            self.shaking.cancel()
        if not self.is_the_loops:
            self.socket.close()
            return
        # The loop notices that nothing more comes, and closes it.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
