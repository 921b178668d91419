"""Writing core/v1 Events: what `kubectl describe` shows. Best effort: no decision waits for one, or depends on one."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct, field

from muster.kube import errors
from muster.kube.backoff import Backoff
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.model import objects, tenant_texts
from muster.model.kinds import EVENTS, Kind

log = logging.getLogger(__name__)

MESSAGE_LIMIT: Final = 1024
"""Characters of a message; the API server takes no more."""

QUIET: Final = 60.0
"""Seconds between two writes about the same thing; what repeats in between is counted."""

_BURST: Final = 8  # different messages of one reason about one object at once; then one each QUIET seconds
_KNOWN: Final = 4096  # things that are remembered
_QUEUED: Final = 1024  # events that wait to be written
_ATTEMPTS: Final = 3
_NAME_LIMIT: Final = 253 - 1 - 32


class _Series(Struct):
    """One event and its repetitions."""

    namespace: str
    name: str
    body: dict[str, Any]
    first: datetime
    last: datetime
    due: float  # loop time from which on a repetition is written
    count: int = 1
    queued: bool = True
    written: bool = False


class _Budget(Struct):
    """How many more different messages a reason may have about one object."""

    at: float
    left: float = field(default=_BURST)

    def take(self, now: float) -> bool:
        self.left = min(_BURST, self.left + (now - self.at) / QUIET)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class EventRecorder:
    """Records events and, in `run`, writes them.

    The same event about the same object is one Event whose count grows, written at most once in `QUIET` seconds; the
    count of what is repeated at the very end may never be written.

    Attributes:
        dropped: how many were not written: too many different ones about one object, too many waiting, or refused.
    """

    def __init__(self, client: Client, clock: Clock, component: str, instance: str = "") -> None:
        self.dropped = 0
        self._client = client
        self._clock = clock
        self._component = component
        self._instance = instance or component
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._budgets: OrderedDict[tuple[str, ...], _Budget] = OrderedDict()
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(_QUEUED)

    def record(
        self,
        kind: Kind[Any],
        about: objects.Object,
        reason: str,
        message: str,
        *,
        type_: Literal["Normal", "Warning"] = "Normal",
    ) -> None:
        """Note that something happened to an object; returns at once.

        Args:
            kind: the object's.
            about: the object; its metadata is all that is looked at.
            reason: one CamelCase word, for programs.
            message: a sentence for people; cut to `MESSAGE_LIMIT`.
            type_: Warning for what a person should look into.
        """
        now = asyncio.get_running_loop().time()
        message = message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
        subject = (str(kind), about.namespace, about.name, about.metadata.uid, type_, reason)
        series = self._series.get((*subject, message))
        if series is not None:
            self._repeat(series, (*subject, message), now)
        elif self._affordable(subject, now):
            moment = self._clock.now()
            body = self._body(kind, about, reason, message, type_)
            series = _Series(about.namespace or "default", _name(about), body, moment, moment, now + QUIET)
            _remember(self._series, (*subject, message), series)
            self._enqueue(series)
        else:
            self.dropped += 1

    async def run(self) -> None:
        """Write what is recorded, until cancelled."""
        while True:
            series = await self._queue.get()
            series.queued = False
            try:
                await self._write(series)
            except Exception:
                self.dropped += 1
                log.exception("the event %s/%s could not be written: an error in Muster", series.namespace, series.name)

    def _repeat(self, series: _Series, key: tuple[str, ...], now: float) -> None:
        self._series.move_to_end(key)
        series.count += 1
        series.last = self._clock.now()
        if now >= series.due and not series.queued:
            series.due = now + QUIET
            self._enqueue(series)

    def _affordable(self, subject: tuple[str, ...], now: float) -> bool:
        budget = self._budgets.pop(subject, None) or _Budget(now)
        _remember(self._budgets, subject, budget)
        return budget.take(now)

    def _enqueue(self, series: _Series) -> None:
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            self.dropped += 1
            series.queued = False
        else:
            series.queued = True

    async def _write(self, series: _Series) -> None:
        backoff = Backoff(1.0, 30.0)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._send(series)
            except (errors.UnreachableError, errors.ServerError, errors.TooManyRequestsError) as error:
                if attempt == _ATTEMPTS:
                    self._drop(series, error)
                else:
                    await asyncio.sleep(backoff.pause())
            except errors.KubeError as error:
                return self._drop(series, error)
            else:
                return None
        return None

    def _drop(self, series: _Series, error: errors.KubeError) -> None:
        self.dropped += 1
        level = logging.DEBUG if errors.namespace_ends(error) else logging.WARNING
        log.log(level, "the event %s/%s could not be written: %s", series.namespace, series.name, error)

    async def _send(self, series: _Series) -> None:
        if series.written:
            change = {"count": series.count, "lastTimestamp": _seconds(series.last)}
            try:
                await self._client.patch(EVENTS, series.name, change, series.namespace)
            except errors.NotFoundError:
                # Events are deleted after an hour.
                series.written = False
            else:
                return
        manifest = series.body | {
            "metadata": {"name": series.name, "namespace": series.namespace},
            "count": series.count,
            "firstTimestamp": _seconds(series.first),
            "lastTimestamp": _seconds(series.last),
        }
        try:
            await self._client.create(EVENTS, manifest, series.namespace)
        except errors.AlreadyExistsError:
            # An earlier attempt whose answer was lost: the name is ours alone.
            log.debug("the event %s/%s was written before", series.namespace, series.name)
        series.written = True

    def _body(self, kind: Kind[Any], about: objects.Object, reason: str, message: str, type_: str) -> dict[str, Any]:
        meta = about.metadata
        return {
            "involvedObject": {
                "apiVersion": kind.api_version,
                "kind": kind.name,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            },
            "type": type_,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


def _remember(known: OrderedDict[tuple[str, ...], Any], key: tuple[str, ...], value: Any) -> None:
    known[key] = value
    if len(known) > _KNOWN:
        known.popitem(last=False)


def _name(about: objects.Object) -> str:
    name = about.name[:_NAME_LIMIT].rstrip(".-")
    # An owner is named by whoever refers to it, and may have a name that nothing can have.
    return f"{name if tenant_texts.is_subdomain(name) else 'object'}.{uuid.uuid4().hex}"


def _seconds(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
