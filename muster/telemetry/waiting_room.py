"""A bound on connections that haven't sent a request, in total and for each address. Pure: times are given.

It favours the many: of waiting connections the address that has most of them loses its oldest.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

WAITING: Final = 1024
"""Connections without a request, all together."""
WAITING_PER_ADDRESS: Final = 32
"""Connections without a request from an address that no answered caller came from."""
SETTLING: Final = 1.0
"""Seconds for which a new connection isn't closed for others: a caller in earnest sends its request sooner."""
_BURST: Final = 4
"""As many times more may wait for those seconds; what comes then is closed itself."""
_CALLERS: Final = 1024
"""Addresses of callers that are remembered, the latest ones."""

C = TypeVar("C")


class KnownCallers:
    """Addresses of callers that were answered: API servers call from few, and open connections ahead of their requests."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, None] = OrderedDict()
        self._latest = ""

    def __contains__(self, address: str) -> bool:
        """Whether a caller was answered there."""
        return address in self._addresses

    def add(self, address: str) -> None:
        """Remember the address of a caller."""
        if address == self._latest:
            return
        self._latest = address
        self._addresses[address] = None
        self._addresses.move_to_end(address)
        if len(self._addresses) > _CALLERS:
            self._addresses.popitem(last=False)


class WaitingRoom(Generic[C]):
    """Connections that have sent no request yet, by address, the oldest first.

    Attributes:
        callers: whose connections aren't counted by address.
    """

    def __init__(
        self,
        most: int = WAITING,
        per_address: int = WAITING_PER_ADDRESS,
        settling: float = SETTLING,
        callers: KnownCallers | None = None,
    ) -> None:
        self.callers = callers if callers is not None else KnownCallers()
        self._most = most
        self._per_address = per_address
        self._settling = settling
        self._waiting: dict[str, OrderedDict[C, float]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Count the connections that wait."""
        return self._count

    def enter(self, connection: C, address: str, now: float) -> C | None:
        """Add a connection; return the one to close for it, which has left then."""
        waiting = self._waiting.setdefault(address, OrderedDict())
        self._count += connection not in waiting
        waiting[connection] = now
        if len(waiting) > self._per_address and address not in self.callers:
            return self._excess(address, connection, now, over=len(waiting) > _BURST * self._per_address)
        if self._count > self._most:
            fullest = max(self._waiting, key=lambda each: len(self._waiting[each]))
            return self._excess(fullest, connection, now, over=self._count > _BURST * self._most, own=address)
        return None

    def leave(self, connection: C, address: str) -> None:
        """Take note that a connection has sent a request, or is gone; fine for one that has left."""
        waiting = self._waiting.get(address)
        if waiting is None:
            return
        self._count -= connection in waiting
        waiting.pop(connection, None)
        if not waiting:
            del self._waiting[address]

    def _excess(self, address: str, newest: C, now: float, *, over: bool, own: str = "") -> C | None:
        """Return what to close: an address' oldest connection where it had its time, else the newest of all where it is one too many."""
        oldest, since = next(iter(self._waiting[address].items()))
        if now - since >= self._settling:
            self.leave(oldest, address)
            return oldest
        if over:
            self.leave(newest, own or address)
            return newest
        return None
