"""Events about objects, thinned out as client-go does it.

The same event again counts up instead of standing there twice; from the eleventh text of one reason within ten minutes
on, texts are combined into one event; and one object gets 25 events at once, then one every five minutes. Without it a
Job of 10,000 pods would write 10,000 events.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Final, TypeVar

from muster.sandbox.controllers.times import stamp
from muster.sandbox.controllers.writer import Writer
from muster.sandbox.status import StatusError
from muster.sandbox.store import Key, Object, identity

EVENTS: Final[Key] = ("", "events")

_BURST: Final = 25
_REFILL_SECONDS: Final = 300
_SIMILAR: Final = 10
_SIMILAR_SECONDS: Final = 600
_REMEMBERED: Final = 4096
_LONGEST_MESSAGE: Final = 1024

logger = logging.getLogger(__name__)

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Note:
    """What an event says: type Normal or Warning, reason, message."""

    type: str
    reason: str
    message: str


class _Recent(OrderedDict[tuple[str, ...], V]):
    """The last few thousand. What is older may be forgotten: it only thins out."""

    def __setitem__(self, key: tuple[str, ...], value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > _REMEMBERED:
            self.popitem(last=False)


@dataclass(slots=True)
class _Bucket:
    at: datetime
    tokens: float = _BURST


@dataclass(slots=True)
class _Similar:
    at: datetime
    texts: set[str] = field(default_factory=set)


class Thinning:
    """Decides what becomes of an event. Its memory is that of one component."""

    def __init__(self) -> None:
        self._buckets: _Recent[_Bucket] = _Recent()
        self._similar: _Recent[_Similar] = _Recent()

    def thin(self, uid: str, note: Note, now: datetime) -> Note | None:
        """Give the event to write about the object ``uid``, or None when it is dropped."""
        message = self._combined((uid, note.type, note.reason), note.message[:_LONGEST_MESSAGE], now)
        return Note(note.type, note.reason, message) if self._allowed((uid,), now) else None

    def _combined(self, about: tuple[str, ...], message: str, now: datetime) -> str:
        similar = self._similar.get(about)
        if similar is None or _passed(similar.at, now) > _SIMILAR_SECONDS:
            similar = self._similar[about] = _Similar(now)
        similar.at = now
        if message in similar.texts or len(similar.texts) < _SIMILAR:
            similar.texts.add(message)
            return message
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


class Recorder:
    """Writes the events of one component."""

    def __init__(self, write: Writer, component: str) -> None:
        self._write = write
        self._component = component
        self._thinning = Thinning()
        self._written: _Recent[tuple[str, str]] = _Recent()
        self._numbers = count()

    async def normal(self, about: Object, reason: str, message: str) -> None:
        """Record that something went its way."""
        await self.record(about, Note("Normal", reason, message))

    async def warning(self, about: Object, reason: str, message: str) -> None:
        """Record that something didn't."""
        await self.record(about, Note("Warning", reason, message))

    async def record(self, about: Object, note: Note) -> None:
        """Record an event. A refusal (its namespace ends, say) is no reason to fail: events are hints."""
        now = self._write.server.clock.now()
        thinned = self._thinning.thin(about["metadata"]["uid"], note, now)
        if thinned is None:
            return
        try:
            await self._put(about, thinned, now)
        except StatusError as error:
            logger.debug("event %s about %s is lost: %s", thinned.reason, about["metadata"]["name"], error)

    async def _put(self, about: Object, note: Note, now: datetime) -> None:
        # Combined events differ in their text each time, and are one event all the same.
        text = note.message if not note.message.startswith("(combined") else ""
        same = (about["metadata"]["uid"], note.type, note.reason, text)
        known = self._written.get(same)
        event = self._write.server.store.get(EVENTS, *known) if known else None
        if event is not None:
            change = {"count": event["count"] + 1, "lastTimestamp": stamp(now), "message": note.message}
            await self._write.patch(EVENTS, event, change)
            return
        event = _event(about, note, now, self._component, next(self._numbers))
        self._written[same] = identity(event)
        await self._write.create(EVENTS, event["metadata"]["namespace"], event)


def _event(about: Object, note: Note, now: datetime, component: str, number: int) -> Object:
    metadata = about["metadata"]
    namespace = metadata.get("namespace", "")
    involved = {
        "kind": about["kind"],
        "namespace": namespace,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "apiVersion": about["apiVersion"],
        "resourceVersion": metadata["resourceVersion"],
    }
    # The real name ends in the nanoseconds; here many events happen in one instant of virtual time.
    suffix = f"{int(now.timestamp() * 1_000_000) * 1000 + number % 1000:x}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{suffix}", "namespace": namespace or "default"},
        "involvedObject": {key: value for key, value in involved.items() if value},
        "type": note.type,
        "reason": note.reason,
        "message": note.message,
        "source": {"component": component},
        "firstTimestamp": stamp(now),
        "lastTimestamp": stamp(now),
        "count": 1,
        "eventTime": None,
        "reportingComponent": component,
        "reportingInstance": "",
    }
