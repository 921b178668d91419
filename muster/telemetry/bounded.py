"""Bounds for users' texts, which would grow without end: values of labels, lists that are shown."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

OTHER: Final = "other"
"""The value that stands for all that came too late."""


class Labels:
    """Values of one label: the first so many that come are themselves, later ones are `OTHER`.

    First come, first kept: a series never changes what it counts, and whoever invents names late can't push out those
    that were there.
    """

    def __init__(self, most: int, *known: str) -> None:
        """Keep ``most`` values; those ``known`` have their place already."""
        self._most = most
        self._kept = set(known)

    def value(self, text: str) -> str:
        """Return the label's value for a text."""
        if text in self._kept:
            return text
        if len(self._kept) >= self._most:
            return OTHER
        self._kept.add(text)
        return text


def first(items: Iterable[Any], most: int) -> dict[str, Any]:
    """Return the first of some items, and how many were left out, as JSON."""
    rest = iter(items)
    shown = list(islice(rest, most))
    return {"items": shown, "leftOut": sum(1 for _ in rest)}
