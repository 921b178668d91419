"""List, then watch, forever: keeps an `ObjectCache` equal to the API server's state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Collection, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from muster.kube import decoding, errors
from muster.kube.backoff import Backoff
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.decoding import Unreadable
from muster.kube.quarantine_retry import QuarantineRetries
from muster.kube.timeline import Timeline, behind
from muster.kube.transport import Request
from muster.model import objects
from muster.model.kinds import Kind

T = TypeVar("T", bound=objects.Object)

log = logging.getLogger(__name__)

IDLE: Final = 70.0
"""Seconds of silence after which a watch is opened anew: its connection may be dead. An API server may send a bookmark each minute."""

_FIRST_PAUSE: Final = 0.8
_LONGEST_PAUSE: Final = 30.0
_GOOD: Final = 10.0  # seconds; a watch that lived this long shows that the server works
_GAP: Final = 2.0  # seconds without a watch in which nobody restores an etcd and starts its API servers
_ROTATE: Final = (300, 600)  # seconds; a watch that never ends would stay on one server while others come and go


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch: ADDED, MODIFIED or DELETED with the object, BOOKMARK with a version, ERROR with a Status."""

    type: str
    object: msgspec.Raw


class Reflector(Generic[T]):
    """Keeps one cache. Ends only by cancellation: whatever fails is tried again, ever less often.

    Source: ``Reflector`` of ``k8s.io/client-go/tools/cache``, with which it shares list, watch and bookmarks. It also
    notices that etcd was restored (`muster.kube.timeline`).

    Attributes:
        trouble: why the cache isn't being kept up to date at present, for a person; empty while it is.

    Args:
        timeline: what it shares with the other reflectors of its process; without one it stands for itself.
        optional: where the kind isn't served there are no objects of it, and nothing is wrong.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        cache: ObjectCache[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        timeline: Timeline | None = None,
        optional: bool = False,
    ) -> None:
        self.trouble = ""
        self._optional = optional
        self._timeline = timeline or Timeline()
        self._timeline.join(str(kind), self._relist)
        # Set when only a new list can help; and what ends the watch then.
        self._again = asyncio.Event()
        self._open = asyncio.timeout(None)
        self._watching = False
        self._client = client
        self._kind = kind
        self._cache = cache
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._synced = asyncio.Event()
        # The version to watch from; empty when only a new list can help. And that of the last watch's beginning.
        self._from = self._began = ""
        self._opened = math.inf
        # When something was last heard of the server, and since when it couldn't be reached.
        self._alive, self._lost = -math.inf, math.inf
        self._heard = self._warned = False

    async def run(self) -> None:
        """Keep the cache, and try quarantined objects again, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(QuarantineRetries(self._cache).run(), name=f"quarantine of {self._kind}")
            await self._keep()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            self._opened = math.inf
            error = await self._round()
            # A busy API server ends the watches of those to whom it can't deliver in time, again and again. What came
            # is no less for it, and whoever paused then would see ever less of what happens.
            went_on = error is None and self._from != self._began
            good = went_on or loop.time() - self._opened >= _GOOD
            if good:
                backoff.reset()
            if error is not None:
                self._report(error)
            if error is not None or not good:
                await self._pause(backoff.pause(error.retry_after if isinstance(error, errors.ApiError) else None))

    async def wait_synced(self) -> None:
        """Wait until the cache has shown a whole list."""
        await self._synced.wait()

    async def _round(self) -> Exception | None:
        """List where that is needed, and watch until the watch ends; gives what ended it, None for the usual end."""
        try:
            if not self._from or self._again.is_set():
                await self._list()
            await self._watch()
        except TimeoutError as error:
            if not self._again.is_set():
                self._from = ""
                return error
        except errors.ApiError as error:
            # Not allowed, or overloaded: the place in the watch is still good, and a list would be the heavier request.
            if error.code not in {401, 403, 429, 500, 503}:
                self._from = ""
            return None if self._isnt_served(error) else error
        except errors.SilentError:
            # An etcd with its usual settings says how far it is every ten minutes only, so a watch of what seldom changes brings
            # nothing for that long. Before the next watch a short list tells whether the server is there, and has not gone back.
            return None
        except errors.KubeError as error:
            # A server that was restored from a backup opens a watch from a version that it doesn't have any more, and
            # then says nothing, for hours. Any other server has sent a bookmark by then.
            if math.isinf(self._opened):
                self._lost = min(self._lost, asyncio.get_running_loop().time())
            if not self._heard and asyncio.get_running_loop().time() - self._opened >= IDLE:
                self._from = ""
            return error
        except Exception as error:
            # Nobody foresaw it, so nobody knows what of the cache is right; the others go on meanwhile.
            if errors.bounded(f"{type(error).__name__}: {error}") not in self.trouble:
                log.exception("%s are listed again: an error in Muster", self._kind)
            self._from = ""
            return error
        return None

    def _isnt_served(self, error: errors.ApiError) -> bool:
        """Whether a kind that need not be served isn't; there are no objects of it then."""
        if not self._optional or not isinstance(error, errors.NotFoundError):
            return False
        self._cache.replace((), self._cache.revision)
        self._synced.set()
        return True

    def _relist(self) -> None:
        """Begin anew, whatever is under way."""
        self._again.set()
        if self._open.when() is None and self._watching:
            self._open.reschedule(asyncio.get_running_loop().time())

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._again.wait()

    async def _list(self) -> None:
        self._again.clear()
        self._from = ""
        seen = self._cache.revision
        listing = await self._client.list(self._kind, self._namespace, labels=self._labels, fields=self._fields)
        for each in listing.unreadable:
            self._report_unreadable(each)
        if behind(listing.resource_version, seen):
            self._went_back(listing.resource_version)
        elif self._again.is_set():
            return  # it began before somebody else noticed
        self._again.clear()
        self._cache.replace(listing.items, listing.resource_version, listing.unreadable)
        self._from = listing.resource_version
        self._alive, self._lost = asyncio.get_running_loop().time(), math.inf
        self._timeline.listed(str(self._kind))
        self._synced.set()

    def _went_back(self, version: str) -> None:
        text = f"{self._kind} are at {version[:64]} and were at {self._cache.revision}"
        self._timeline.went_back(str(self._kind), text)

    async def _watch(self) -> None:
        if self._again.is_set():
            return
        async with asyncio.timeout(None) as self._open:
            self._watching = True
            try:
                await self._follow()
            finally:
                self._watching = False
                self._timeline.doubt(str(self._kind))

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._client.transport.watch(self._request(), idle=IDLE) as lines:
            self._opened, self._began = loop.time(), self._from
            self._heard = False
            await self._prove()
            if self.trouble:
                log.info("%s are watched again", self._kind)
                self.trouble = ""
            async for line in lines:
                self._heard, self._alive = True, loop.time()
                self._take(decoding.strictly(WatchEvent, line))
                self._from = self._cache.revision
            self._alive = loop.time()

    async def _prove(self) -> None:
        """See to it that nothing went back since the last watch, where that is possible: its events would be missing.

        A watch from a revision that the server doesn't have any more says nothing at first, and later leaves out all
        that came before that revision. A list tells, the shortest too. Where the server couldn't be reached, that list
        may be past the revision already, and only a whole one helps; a server that was started anew has forgotten what
        a watch goes on from in any case.
        """
        if self._opened - self._lost > _GAP:
            self._again.set()
            raise TimeoutError
        if self._opened - self._alive > _GAP:
            page = await self._client.page(self._kind, self._namespace, {"limit": "1"})
            if behind(page.resource_version, self._cache.revision):
                self._went_back(page.resource_version)
                self._again.set()
                raise TimeoutError
        self._lost = math.inf
        self._timeline.watched(str(self._kind))

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

    def _report(self, error: Exception) -> None:
        """Log what is wrong, once for each thing that is."""
        said = str(error) if isinstance(error, errors.KubeError) else errors.bounded(f"{type(error).__name__}: {error}")
        text = f"{self._kind} can't be watched: {said}"
        # A server says so by itself for a second or two after a CRD was made, and when there is much to do; and it knows of a
        # new account's permissions a moment after they were given.
        early = isinstance(error, errors.ForbiddenError) and not self._synced.is_set()
        if text != self.trouble:
            self._warned = not (early or isinstance(error, errors.TooManyRequestsError))
            log.log(logging.WARNING if self._warned else logging.INFO, "%s", text)
        elif early and not self._warned:
            self._warned = True
            log.warning("%s", text)
        self.trouble = text

    def _report_unreadable(self, item: Unreadable) -> None:
        key = (item.about.namespace, item.about.name)
        if self._cache.unreadable.get(key) != item.reason:
            log.warning("%s %s/%s can't be read and is left as it was: %s", self._kind, *key, item.reason)


class ReflectorSet:
    """Keeps the caches of several kinds, and knows which of them isn't up to date, and why; ``optional`` ones need not be served.

    Attributes:
        timeline: what tells whether the state that they show went back.
    """

    def __init__(
        self, caches: Mapping[Kind[Any], ObjectCache[Any]], optional: Collection[Kind[Any]] = frozenset()
    ) -> None:
        self._optional = optional
        self.timeline = Timeline()
        self._caches = caches
        self._reflectors: dict[Kind[Any], Reflector[Any]] = {}

    async def run(self, client: Client, synced: asyncio.Event) -> None:
        """Keep all of them, until cancelled; ``synced`` is set when each has shown a whole list."""
        self._reflectors = {
            kind: Reflector(client, kind, cache, timeline=self.timeline, optional=kind in self._optional)
            for kind, cache in self._caches.items()
        }
        async with asyncio.TaskGroup() as group:
            for kind, reflector in self._reflectors.items():
                group.create_task(reflector.run(), name=f"watch {kind}")
            for reflector in self._reflectors.values():
                await reflector.wait_synced()
            synced.set()

    def missing(self) -> list[str]:
        """Say which caches haven't shown a whole list yet, and why where that is known, each one line."""
        waiting = [kind for kind, cache in self._caches.items() if not cache.synced]
        return [self._trouble(kind) or f"the first list of {kind}" for kind in waiting]

    def failing(self) -> int:
        """Count the kinds that can't be watched now."""
        return sum(bool(reflector.trouble) for reflector in self._reflectors.values())

    def unknown(self) -> dict[str, int]:
        """Count by kind the objects that can't be read, or that a subscriber failed on; kinds without one are left out."""
        counts = {str(kind): len(cache.doubtful()) for kind, cache in self._caches.items()}
        return {kind: count for kind, count in counts.items() if count}

    def state(self) -> dict[str, Any]:
        """Return the state of each cache by kind, as JSON, for /debug/state."""
        return {str(kind): cache.state() | {"trouble": self._trouble(kind)} for kind, cache in self._caches.items()}

    def _trouble(self, kind: Kind[Any]) -> str:
        reflector = self._reflectors.get(kind)
        return reflector.trouble if reflector is not None else ""
