"""Words that all programs put into sentences the same way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_SHOWN: Final = 40


def shown(text: str) -> str:
    """Quote what somebody wrote, unprintable characters escaped, and no more of it than a person reads."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def counted(count: int, noun: str) -> str:
    """Write ``1 pod``, ``2 pods``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(names: Iterable[str]) -> str:
    """Write ``a``, ``a and b``, ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def few(names: Sequence[str], most: int) -> str:
    """Write ``a, b``, or ``a, b and 3 more`` where there are more than ``most``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
