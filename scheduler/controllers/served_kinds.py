"""Watches kinds of operators, of which a cluster has some: each from the time on that the API server serves it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from muster.kube import decoding, errors
from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.kube.reflector import Reflector
from muster.kube.transport import Request
from muster.model.kinds import Kind

log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 30.0
"""Seconds between two looks at what is served: an operator that is installed meanwhile waits no longer than that."""

Changed = Callable[[Kind[Any], ObjectChange[Any]], None]


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, frozen=True):
    versions: tuple[_Version, ...] = ()


class _Groups(msgspec.Struct, frozen=True):
    groups: tuple[_Group, ...] = ()


class _ServedResource(msgspec.Struct, frozen=True):
    name: str


class _ServedResources(msgspec.Struct, frozen=True):
    resources: tuple[_ServedResource, ...] = ()


class ServedKinds:
    """The caches of those of ``kinds`` that are served, with ``indexes``; ``changed`` is told of each change in them."""

    def __init__(
        self,
        client: Client,
        kinds: Sequence[Kind[Any]],
        changed: Changed,
        indexes: Mapping[str, Callable[[Any], Iterable[str]]] | None = None,
    ) -> None:
        self._indexes = indexes
        self._client = client
        self._kinds = tuple(kinds)
        self._changed = changed
        self._caches: dict[Kind[Any], ObjectCache[Any]] = {}
        self._watches: dict[Kind[Any], asyncio.Task[None]] = {}

    def cache(self, kind: Kind[Any]) -> ObjectCache[Any] | None:
        """Return the cache of a kind that is watched now."""
        return self._caches.get(kind)

    async def run(self) -> None:
        """Look now and then which kinds are served, and watch these, until cancelled."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(INTERVAL_SECONDS)
        finally:
            for kind in list(self._watches):
                await self._leave(kind)

    async def _look(self) -> None:
        try:
            served = await self._served()
        except errors.KubeError as error:
            # What is known stays: an API server that can't answer has not uninstalled anything.
            log.info("which kinds of operators are served is asked again: %s", error)
            return
        for kind in self._kinds:
            if kind in served and kind not in self._watches:
                self._watch(kind)
            elif kind not in served and kind in self._watches:
                await self._leave(kind)

    async def _served(self) -> set[Kind[Any]]:
        """Ask discovery; one request where no operator is installed."""
        answer = await self._client.send(Request("GET", "/apis"))
        groups = decoding.strictly(_Groups, answer.body).groups
        there = {each.group_version for group in groups for each in group.versions}
        found: set[Kind[Any]] = set()
        for api_version in sorted(there & {kind.api_version for kind in self._kinds}):
            with contextlib.suppress(errors.NotFoundError):  # it went meanwhile
                listed = await self._client.send(Request("GET", f"/apis/{api_version}"))
                plurals = {each.name for each in decoding.strictly(_ServedResources, listed.body).resources}
                found |= {kind for kind in self._kinds if kind.api_version == api_version and kind.plural in plurals}
        return found

    def _watch(self, kind: Kind[Any]) -> None:
        log.info("%s are served: groups are made from them", kind)
        cache: ObjectCache[Any] = ObjectCache(indexes=self._indexes)
        cache.subscribe(lambda change: self._changed(kind, change))
        self._caches[kind] = cache
        self._watches[kind] = asyncio.create_task(Reflector(self._client, kind, cache).run(), name=f"watch {kind}")

    async def _leave(self, kind: Kind[Any]) -> None:
        log.info("%s are watched no longer", kind)
        self._caches.pop(kind)
        watch = self._watches.pop(kind)
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
