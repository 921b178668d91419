"""An event loop in virtual time: when it is idle, time jumps to the next timer.

For in-process work only. A loop that also waits for sockets would jump over answers that are on their way.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps: what would have been slept is added to the loop's time."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            # Nothing is scheduled and nothing is ready: in virtual time nothing can ever happen again.
            raise RuntimeError("deadlock in virtual time: every task waits, and no timer is set")
        if not ready and timeout is not None and timeout > 0:
            self.elapsed += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at zero and jumps."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._jumping.elapsed


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` in virtual time, as `asyncio.run` would in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
