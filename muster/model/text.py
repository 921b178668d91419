"""Words that all programs put into sentences the same way."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Write ``1 pod``, ``2 pods``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
