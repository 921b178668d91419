"""A bounded cache of answers that follow from something that doesn't change, kept for as long as that lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

T = TypeVar("T")

MOST: Final = 4096
"""Answers that are kept: more come only where every job asks something that none before it did."""


class Cache:
    """Answers by question. When there are too many, all go: those that are asked again are few."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        """How many answers there are."""
        return len(self._known)

    def get(self, question: Hashable, answer: Callable[[], T]) -> T:
        """Return the answer to a question, worked out by ``answer`` where it isn't known. It must not be changed."""
        known: T | None = self._known.get(question)
        if known is None:
            known = answer()
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[question] = known
        return known

    def get_latest(self, question: Hashable, of: Hashable, answer: Callable[[], T]) -> T:
        """Return the answer to a question about ``of``, as `get`; only the last one is kept, for what changes now and then."""
        known: tuple[Hashable, T] | None = self._known.get(question)
        if known is None or known[0] != of:
            known = self._known[question] = (of, answer())
        return known[1]
