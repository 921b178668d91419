"""A bound on bytes of bodies held at once. Pure.

It favours the many and small: a body may grow as long as it holds no more than is still free, so large ones never use up the
room of small ones.
"""

from __future__ import annotations

from typing import Final

BODIES: Final = 64 * 1024 * 1024
"""Bytes of bodies held at once, from their arrival until the answer; an eighth of the container's memory in the chart."""
BODY_FLOOR: Final = 4 * 1024
"""Bytes that each body counts at least: what is held for it besides its bytes."""


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

    __slots__ = ("_budget", "held", "refused")

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
