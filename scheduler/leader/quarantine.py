"""Tells people of the objects that can't be read or followed: one Event on each, at a bounded rate."""

from __future__ import annotations

import asyncio
from typing import Final

from muster.kube.events import EventRecorder
from scheduler.state.informers import Informers

_PAUSE: Final = 1.0
"""Seconds between two Events: a tenant can make thousands of such objects."""
_REASON: Final = "Unreadable"


class QuarantineReporter:
    """Records an Event on each object of whose state nobody can be sure, once for as long as that lasts."""

    def __init__(self, informers: Informers, recorder: EventRecorder) -> None:
        self._informers = informers
        self._recorder = recorder
        self._changed = asyncio.Event()
        self._told: set[tuple[str, str, str, str]] = set()
        informers.subscribe_doubtful(self._changed.set)

    async def run(self) -> None:
        """Record, until cancelled."""
        while True:
            self._changed.clear()
            if self._record_next():
                await asyncio.sleep(_PAUSE)
            else:
                await self._changed.wait()

    def _record_next(self) -> bool:
        """Record one Event that is due; tell whether there was one."""
        found = {
            (str(kind), item.namespace, item.name, item.metadata.uid): (kind, item, reason)
            for kind, item, reason in self._informers.doubtful()
        }
        self._told &= found.keys()
        due = next((each for each in found if each not in self._told), None)
        if due is None:
            return False
        self._told.add(due)
        kind, item, reason = found[due]
        text = f"Muster can't read this {kind.name} and counts what it takes as unknown: {reason}; correct or delete it"
        self._recorder.record(kind, item, _REASON, text, type_="Warning")
        return True
