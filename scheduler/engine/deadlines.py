"""The moment at which time alone would change what a cycle decides.

Each rule about time asks `Deadlines.passed` whether a moment has come, and asks nothing else of the clock. So what
isn't asked can't matter: until the first of the moments that were asked about and are still to come, the same snapshot
gets the same plan.
"""

from __future__ import annotations

from typing import Final

NEVER: Final = float("inf")


class Deadlines:
    """The moments that the rules of one cycle wait for, in seconds of the epoch.

    Attributes:
        next: the first of them; infinity where no rule waits for any.
    """

    __slots__ = ("_now", "next")

    def __init__(self, now: float) -> None:
        self._now = now
        self.next = NEVER

    def passed(self, moment: float) -> bool:
        """Whether a moment has come. One that is still to come is another cycle's."""
        if self._now >= moment:
            return True
        self.next = min(self.next, moment)
        return False

    def after(self, seconds: float) -> None:
        """Note that so long from now a rule has something to decide that it hasn't yet."""
        self.next = min(self.next, self._now + seconds)
