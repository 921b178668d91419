"""Bounds on bytes of bodies held at once, and on connections that haven't sent a request. Pure: times are given.

Both bounds favour the many and small. A body may grow as long as it holds no more than is still free, so large ones
never use up the room of small ones. Of waiting connections the address that has most of them loses its oldest.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

BODIES: Final = 64 * 1024 * 1024
"""Bytes of bodies held at once, from their arrival until the answer; an eighth of the container's memory in the chart."""
BODY_FLOOR: Final = 4 * 1024
"""Bytes that each body counts at least: what is held for it besides its bytes."""

WAITING: Final = 1024
"""Connections without a request, all together."""
WAITING_PER_ADDRESS: Final = 32
"""Connections without a request from an address that no answered caller came from."""
SETTLING: Final = 1.0
"""Seconds for which a new connection isn't closed for others: a caller in earnest sends its request sooner."""
_CALLERS: Final = 1024
"""Addresses of callers that are remembered, the latest ones."""

C = TypeVar("C")


class ByteBudget:
    """The bytes that all bodies together may hold.

    Attributes:
        limit: never exceeded.
        held: bytes held now.
    """

    def __init__(self, limit: int = BODIES) -> None:
        self.limit = limit
        self.held = 0

    def open(self) -> BodyBytes:
        """Return the share of one body, which may be refused already."""
        share = BodyBytes(self)
        if self.held + BODY_FLOOR > self.limit:
            share.refused = True
        else:
            # As `BodyBytes.grow` does; each review comes by here.
            share.held = BODY_FLOOR
            self.held += BODY_FLOOR
        return share


class BodyBytes:
    """What one body holds of a `ByteBudget`.

    Attributes:
        held: bytes; none once it was refused or closed.
        refused: whether it wanted more than it may hold.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.held = 0
        self.refused = False

    def grow(self, size: int) -> bool:
        """Hold ``size`` bytes more; false where that is too much, and then it holds nothing any more."""
        if self.refused or self.held + size > self._budget.limit - self._budget.held:
            self.close()
            self.refused = True
            return False
        self.held += size
        self._budget.held += size
        return True

    def close(self) -> None:
        """Hold nothing any more."""
        self._budget.held -= self.held
        self.held = 0


class WaitingRoom(Generic[C]):
    """Connections that have sent no request yet, by address, the oldest first."""

    def __init__(self, most: int = WAITING, per_address: int = WAITING_PER_ADDRESS) -> None:
        self._most = most
        self._per_address = per_address
        self._waiting: dict[str, OrderedDict[C, float]] = {}
        self._callers: OrderedDict[str, None] = OrderedDict()
        self._latest = ""

    def __len__(self) -> int:
        """Count the connections that wait."""
        return sum(map(len, self._waiting.values()))

    def enter(self, connection: C, address: str, now: float) -> C | None:
        """Add a connection; return the one to close for it, which has left then."""
        waiting = self._waiting.setdefault(address, OrderedDict())
        waiting[connection] = now
        if len(waiting) > self._per_address and not self.is_caller(address):
            return self._oldest(address, now)
        if len(self) > self._most:
            return self._oldest(max(self._waiting, key=lambda each: len(self._waiting[each])), now)
        return None

    def leave(self, connection: C, address: str) -> None:
        """Take note that a connection has sent a request, or is gone; fine for one that has left."""
        waiting = self._waiting.get(address)
        if waiting is None:
            return
        waiting.pop(connection, None)
        if not waiting:
            del self._waiting[address]

    def answered(self, address: str) -> None:
        """Remember the address of a caller: API servers call from few, and open connections ahead of their requests."""
        if address == self._latest:
            return
        self._latest = address
        self._callers[address] = None
        self._callers.move_to_end(address)
        if len(self._callers) > _CALLERS:
            self._callers.popitem(last=False)

    def is_caller(self, address: str) -> bool:
        """Whether a caller was answered there."""
        return address in self._callers

    def _oldest(self, address: str, now: float) -> C | None:
        connection, since = next(iter(self._waiting[address].items()))
        if now - since < SETTLING:
            return None
        self.leave(connection, address)
        return connection
