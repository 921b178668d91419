"""Writes the events of a component."""

from __future__ import annotations

import logging
from datetime import datetime
from itertools import count
from typing import Final

from muster.sandbox.controllers.plans.event_correlator import EventCorrelator, EventRecord, Recent
from muster.sandbox.controllers.plans.times import stamp
from muster.sandbox.controllers.writer import Writer
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, identity

EVENTS: Final[Key] = ("", "events")

logger = logging.getLogger(__name__)


class Recorder:
    """Writes the events of one component."""

    def __init__(self, write: Writer, component: str) -> None:
        self._write = write
        self._component = component
        self._thinning = EventCorrelator()
        self._written: Recent[tuple[str, str]] = Recent()
        self._numbers = count()

    async def normal(self, about: Object, reason: str, message: str) -> None:
        """Record that something went its way."""
        await self.record(about, EventRecord("Normal", reason, message))

    async def warning(self, about: Object, reason: str, message: str) -> None:
        """Record that something didn't."""
        await self.record(about, EventRecord("Warning", reason, message))

    async def record(self, about: Object, note: EventRecord) -> None:
        """Record an event. A refusal (its namespace ends, say) is no reason to fail: events are hints."""
        now = self._write.server.clock.now()
        thinned = self._thinning.thin(about["metadata"]["uid"], note, now)
        if thinned is None:
            return
        try:
            await self._put(about, thinned, now)
        except StatusError as error:
            logger.debug("event %s about %s is lost: %s", thinned.reason, about["metadata"]["name"], error)

    async def _put(self, about: Object, note: EventRecord, now: datetime) -> None:
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


def _event(about: Object, note: EventRecord, now: datetime, component: str, number: int) -> Object:
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
