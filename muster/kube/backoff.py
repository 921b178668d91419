"""The pause before a failing server gets the next request."""

from __future__ import annotations

import random


class Backoff:
    """Pauses that double from ``first`` to ``most`` seconds, each with up to half of it taken off at random.

    The jitter spreads the many clients of a server that comes back, so that they don't stop it again. What has to
    repeat to the byte (the sandbox in virtual time) does without.
    """

    def __init__(self, first: float, most: float, *, jitter: bool = True) -> None:
        self._first = first
        self._jitter = jitter
        self._most = most
        self._next = first

    def pause(self, at_least: float | None = None) -> float:
        """Return the seconds to wait now; not less than a server asked for, where it did."""
        whole, self._next = self._next, min(self._next * 2, self._most)
        return max(jittered(whole) if self._jitter else whole, at_least or 0.0)

    def reset(self) -> None:
        """Start small again: the server has been seen to work."""
        self._next = self._first


def jittered(seconds: float) -> float:
    """Return between half and all of ``seconds``."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret
