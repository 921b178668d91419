"""List, then watch, for ever: keeps a `Cache` equal to what the API server has."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from typing import Any, Final, Generic, TypeVar

import msgspec

from muster.kube import decoding, errors
from muster.kube.backoff import Backoff
from muster.kube.cache import Cache, Change
from muster.kube.client import Client
from muster.kube.decoding import Unreadable
from muster.kube.transport import Request
from muster.model import objects
from muster.model.kinds import Kind

__all__ = ["Cache", "Change", "Reflector", "WatchEvent"]

T = TypeVar("T", bound=objects.Object)

log = logging.getLogger(__name__)

IDLE: Final = 70.0
"""Seconds of silence after which a watch is dead: the API server sends a bookmark each minute."""

_FIRST_PAUSE: Final = 0.8
_LONGEST_PAUSE: Final = 30.0
_GOOD: Final = 10.0  # seconds; a watch that lived this long shows that the server works
_ROTATE: Final = (300, 600)  # seconds; a watch that never ends would stay on one server while others come and go


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch; what ``object`` is depends on ``type``."""

    type: str
    object: msgspec.Raw


class Reflector(Generic[T]):
    """Keeps one cache. Ends only by cancellation: whatever fails is tried again, ever less often.

    Attributes:
        trouble: why the cache isn't being kept up to date at present, for a person; empty while it is.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        cache: Cache[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> None:
        self.trouble = ""
        self._client = client
        self._kind = kind
        self._cache = cache
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._synced = asyncio.Event()
        # The version to watch from; empty when only a new list can help.
        self._from = ""
        self._opened = math.inf
        self._heard = False

    async def run(self) -> None:
        """Keep the cache, until cancelled."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            self._opened = math.inf
            error = await self._round()
            good = loop.time() - self._opened >= _GOOD
            if good:
                backoff.reset()
            if error is not None:
                self._report(error)
            if error is not None or not good:
                await asyncio.sleep(backoff.pause(error.retry_after if isinstance(error, errors.ApiError) else None))

    async def wait_synced(self) -> None:
        """Wait until the cache has shown a whole list."""
        await self._synced.wait()

    async def _round(self) -> errors.KubeError | None:
        """List where that is needed, and watch until the watch ends; gives what ended it, None for the usual end."""
        try:
            if not self._from:
                await self._list()
            await self._watch()
        except errors.ApiError as error:
            # Not allowed, or overloaded: the place in the watch is still good, and a list would be the heavier request.
            if error.code not in {401, 403, 429, 500, 503}:
                self._from = ""
            return error
        except errors.KubeError as error:
            # A server that was restored from a backup opens a watch from a version that it doesn't have any more, and
            # then says nothing, for hours. Any other server has sent a bookmark by then.
            if not self._heard and asyncio.get_running_loop().time() - self._opened >= IDLE:
                self._from = ""
            return error
        return None

    async def _list(self) -> None:
        listing = await self._client.list(self._kind, self._namespace, labels=self._labels, fields=self._fields)
        for each in listing.unreadable:
            self._report_unreadable(each)
        self._cache.replace(listing.items, listing.resource_version, listing.unreadable)
        self._from = listing.resource_version
        self._synced.set()

    async def _watch(self) -> None:
        async with self._client.transport.watch(self._request(), idle=IDLE) as lines:
            self._opened = asyncio.get_running_loop().time()
            self._heard = False
            if self.trouble:
                log.info("%s are watched again", self._kind)
                self.trouble = ""
            async for line in lines:
                self._heard = True
                self._take(decoding.strictly(WatchEvent, line))
                self._from = self._cache.revision

    def _request(self) -> Request:
        selection = {"labelSelector": self._labels, "fieldSelector": self._fields}
        query = {key: value for key, value in selection.items() if value} | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._from,
            "timeoutSeconds": str(random.randint(*_ROTATE)),  # noqa: S311 - spreads load, keeps no secret
        }
        return Request("GET", self._kind.path(self._namespace), query)

    def _take(self, event: WatchEvent) -> None:
        """Bring one event into the cache."""
        match event.type:
            case "ADDED" | "MODIFIED":
                item = decoding.item(self._kind, event.object)
                if isinstance(item, Unreadable):
                    self._report_unreadable(item)
                    self._cache.set_aside(item)
                else:
                    self._cache.put(item)
            # Nothing but the metadata of these two is of use, and a bookmark's spec is empty where it must not be.
            case "DELETED":
                self._cache.drop(decoding.strictly(objects.Object, event.object))
            case "BOOKMARK":
                self._cache.advance(decoding.strictly(objects.Object, event.object).metadata.resource_version)
            case "ERROR":
                status = decoding.strictly(dict[str, Any], event.object)
                code = status.get("code")
                raise errors.from_status(code if isinstance(code, int) else 500, status)
            case unknown:
                raise errors.ServerError(502, "", f"the API server sent an event of the unknown type {unknown!r}")

    def _report(self, error: errors.KubeError) -> None:
        """Log what is wrong, once for each thing that is."""
        text = f"{self._kind} can't be watched: {error}"
        if text != self.trouble:
            log.warning("%s", text)
        self.trouble = text

    def _report_unreadable(self, item: Unreadable) -> None:
        key = (item.about.namespace, item.about.name)
        if self._cache.unreadable.get(key) != item.reason:
            log.warning("%s %s/%s can't be read and is left as it was: %s", self._kind, *key, item.reason)
