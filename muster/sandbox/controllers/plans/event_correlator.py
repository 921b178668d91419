"""Events as values, and how they are thinned out, as client-go does it. Pure.

The same event again counts up instead of standing there twice; from the tenth text of one reason within ten minutes
on, texts are combined into one event; and one object gets 25 events at once, then one every five minutes. Without it a
Job of 10,000 pods would write 10,000 events.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Final, TypeVar

from msgspec import Struct, field

_BURST: Final = 25
_REFILL_SECONDS: Final = 300
_SIMILAR: Final = 10
_SIMILAR_SECONDS: Final = 600
_REMEMBERED: Final = 4096
_LONGEST_MESSAGE: Final = 1024

V = TypeVar("V")


class EventRecord(Struct, frozen=True):
    """What an event says: type Normal or Warning, reason, message."""

    type: str
    reason: str
    message: str


class Recent(OrderedDict[tuple[str, ...], V]):
    """The last few thousand. What is older may be forgotten: it only thins out."""

    def __setitem__(self, key: tuple[str, ...], value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > _REMEMBERED:
            self.popitem(last=False)


class _Bucket(Struct):
    at: datetime
    tokens: float = _BURST


class _Similar(Struct):
    at: datetime
    texts: set[str] = field(default_factory=set)


class EventCorrelator:
    """Decides what becomes of an event. Its memory is that of one component."""

    def __init__(self) -> None:
        self._buckets: Recent[_Bucket] = Recent()
        self._similar: Recent[_Similar] = Recent()

    def thin(self, uid: str, note: EventRecord, now: datetime) -> EventRecord | None:
        """Return the event to write about the object ``uid``, or None when it is dropped."""
        message = self._combined((uid, note.type, note.reason), note.message[:_LONGEST_MESSAGE], now)
        return EventRecord(note.type, note.reason, message) if self._allowed((uid,), now) else None

    def _combined(self, about: tuple[str, ...], message: str, now: datetime) -> str:
        similar = self._similar.get(about)
        if similar is None or _passed(similar.at, now) > _SIMILAR_SECONDS:
            similar = self._similar[about] = _Similar(now)
        similar.at = now
        similar.texts.add(message)
        if len(similar.texts) < _SIMILAR:
            return message
        similar.texts.discard(message)
        return f"(combined from similar events): {message}"

    def _allowed(self, about: tuple[str, ...], now: datetime) -> bool:
        bucket = self._buckets.get(about)
        if bucket is None:
            bucket = self._buckets[about] = _Bucket(now)
        bucket.tokens = min(_BURST, bucket.tokens + _passed(bucket.at, now) / _REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _passed(since: datetime, now: datetime) -> float:
    return (now - since).total_seconds()
