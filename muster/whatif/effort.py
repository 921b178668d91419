"""The time that trials may take of whoever shares the answers with others. Pure: whoever limits it has a clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class EffortSpentError(Exception):
    """Trials took as long as they may; what was found before holds."""


class Effort:
    """Time that trials may take: without end, but in a block that limits it.

    ``clock`` gives seconds: of the processor, so that an answer doesn't depend on what else runs.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._until = math.inf

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Let what is tried in the block take so long at most."""
        before, self._until = self._until, min(self._until, self._clock() + seconds)
        try:
            yield
        finally:
            self._until = before

    def check(self) -> None:
        """Go on, unless it took too long.

        Raises:
            EffortSpentError: it did.
        """
        if self._clock() > self._until:
            raise EffortSpentError
