"""Writes the statuses of PodGroups: when they change, and not more often than somebody can want to read them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from muster.kube import errors
from muster.kube.client import Client
from muster.kube.workqueue import WorkQueue
from muster.model.kinds import Kind
from muster.model.objects import PodGroup
from scheduler.leader.events import ReservationRefused, StatusStored
from scheduler.leader.group_events import GroupEvents
from scheduler.model.plan import GroupStatus
from scheduler.model.snapshot import GroupKey

log = logging.getLogger(__name__)

_WRITES_IN_FLIGHT: Final = 8

_DENIED: Final = "denied the request: "
"""What the API server puts before a webhook's own words."""


class StatusWriter:
    """Has one status in hand per group: the newest that was decided.

    ``yields_to``: work that is more urgent than statuses.
    """

    def __init__(
        self,
        client: Client,
        events: GroupEvents,
        kinds_by_group: dict[str, Kind[PodGroup]],
        emit: Callable[[StatusStored | ReservationRefused], None],
        yields_to: WorkQueue[Any],
    ) -> None:
        self._client = client
        self._events = events
        self._kinds = kinds_by_group
        self._emit = emit
        self._reserving: set[GroupKey] = set()
        self._due: dict[GroupKey, GroupStatus] = {}
        self._written: dict[GroupKey, float] = {}
        self._work = WorkQueue("status of PodGroup", self._write, at_once=_WRITES_IN_FLIGHT, yields_to=yields_to)

    def offer(self, statuses: Iterable[GroupStatus]) -> tuple[list[GroupStatus], float]:
        """Take what is due for writing; give that, and when the next of the others will be, by the loop's time."""
        now = asyncio.get_running_loop().time()
        taken, soonest = [], float("inf")
        for status in statuses:
            due = self._written.get(status.key, float("-inf")) + status.urgency.value
            if due > now:
                soonest = min(due, soonest)
                continue
            if status.key in self._reserving:
                continue  # decided without knowing what the ledger says
            if status.reserves:
                self._reserving.add(status.key)
            self._written[status.key] = now
            self._due[status.key] = status
            # Jobs wait for a phase; a text is only read.
            self._work.add(status.key, urgent=status.phase is not status.before)
            if not status.reserves:
                self._events.record(status)
            taken.append(status)
        return taken, soonest

    def forget(self, key: GroupKey) -> None:
        """Keep nothing of a group that is gone."""
        self._written.pop(key, None)
        self._due.pop(key, None)
        self._events.forget(key)
        self._reserving.discard(key)

    async def run(self) -> None:
        """Write, until cancelled."""
        await self._work.run()

    async def _write(self, key: GroupKey) -> None:
        status = self._due.pop(key, None)
        if status is None:
            return
        # The uid makes the server refuse it for another group of the same name.
        change = {"metadata": {"uid": status.uid}, "status": _json(status)}
        try:
            group = await self._client.patch(
                self._kinds[key.group], key.name, change, key.namespace, subresource="status"
            )
        except (errors.NotFoundError, errors.ConflictError) as error:
            self._reserving.discard(key)
            log.info("the status of %s isn't written: %s", status.title, error)
        except errors.ForbiddenError as error:
            if not status.reserves:
                self._due.setdefault(key, status)
                raise
            self._reserving.discard(key)
            self._emit(ReservationRefused(key, error.message.partition(_DENIED)[2] or error.message))
        except errors.KubeError:
            self._due.setdefault(key, status)
            raise
        else:
            self._reserving.discard(key)
            if status.reserves:
                self._events.record(status)  # Until now the ledger might have refused it.
            self._emit(StatusStored(key, group))


def _json(status: GroupStatus) -> dict[str, Any]:
    """Write a status for a merge patch; structs leave out zeros and names that are gone, a patch must not."""
    written: dict[str, Any] = msgspec.to_builtins(status.struct())
    before, noted = (each.min_resources for each in (status.held_before, status.holding))
    if before is not None:
        gone = None if noted is None else {name: None for name in before if name not in noted}
        written["minResources"] = gone if gone is None else gone | written["minResources"]
    if status.held_before.succeeded:
        written.setdefault("succeededBefore", 0)
    return {"running": 0, "succeeded": 0, "failed": 0, "conditions": []} | written
