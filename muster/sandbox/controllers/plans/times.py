"""Times as the API writes them: RFC 3339, UTC, whole seconds."""

from __future__ import annotations

from datetime import datetime

from muster.sandbox.core.identities import timestamp as stamp

__all__ = ["read", "seconds_since", "stamp"]


def read(text: str) -> datetime:
    """Read a time that the API wrote."""
    return datetime.fromisoformat(text)


def seconds_since(text: str, now: datetime) -> float:
    """Return how long ago a time is; negative when it is to come."""
    return (now - read(text)).total_seconds()
