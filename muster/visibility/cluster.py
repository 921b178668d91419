"""The watched cluster, and the state of it that questions are answered on: all caches at one moment."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from muster.kube import autoscalers
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.errors import KubeError
from muster.kube.reflector import Reflector, ReflectorSet
from muster.model import kinds
from muster.model.kinds import Kind
from muster.whatif.cluster_view import KINDS, ClusterObjects
from scheduler.state.handlers import DEVICES

FRESH: Final = 1.0
"""Seconds for which a state is used: to make a cluster of a large one takes a tenth of that."""
_STALE: Final = 30.0
"""Seconds after which one is taken again though nothing changed: what depends on the time may have."""
_AUTOSCALER: Final = 300.0
"""Seconds between two looks for a program that makes nodes."""
_LEGACY: Final = frozenset({*kinds.LEGACY_PODGROUPS, *kinds.LEGACY_QUEUES})


class WatchedCluster:
    """Caches of all that a question depends on. ``namespace`` is Muster's own, the only one whose ConfigMaps are read."""

    def __init__(self, client: Client, clock: Clock, namespace: str, *, legacy_apis: bool) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._legacy = legacy_apis
        self._rules: ObjectCache[Any] = ObjectCache()
        self._caches: dict[Kind[Any], ObjectCache[Any]] = {
            kind: ObjectCache()
            for kind in KINDS
            if kind is not kinds.CONFIGMAPS and (legacy_apis or kind not in _LEGACY)
        }
        self.watching = ReflectorSet(self._caches, optional={kinds.HYPERNODES, *DEVICES})
        self._synced = asyncio.Event()
        self._autoscaler = ""
        self._state: ClusterObjects | None = None
        self._revision: tuple[str, ...] = ()
        self._taken = 0.0

    async def run(self) -> None:
        """Keep the caches, until cancelled."""
        rules = Reflector(self._client, kinds.CONFIGMAPS, self._rules, namespace=self._namespace)
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self.watching.run(self._client, self._synced), name="watch the cluster")
            parts.create_task(rules.run(), name="watch owner rules")
            parts.create_task(self._look_for_autoscaler(), name="autoscaler")

    def missing(self) -> list[str]:
        """Say what isn't known yet of the cluster."""
        rules = [] if self._rules.synced else ["the first list of configmaps"]
        return [*self.watching.missing(), *rules]

    def state(self) -> ClusterObjects | None:
        """Return a state of the last second; None where not all of it is known yet. Not for other threads to call."""
        if self.missing():
            return None
        now = asyncio.get_running_loop().time()
        if self._state is not None and now - self._taken < FRESH:
            return self._state
        revision = tuple(cache.revision for cache in (*self._caches.values(), self._rules))
        if self._state is None or revision != self._revision or now - self._taken >= _STALE:
            self._state, self._revision = self._read(), revision
            self._taken = now
        return self._state

    def _read(self) -> ClusterObjects:
        objects = {kind: tuple(cache.items()) for kind, cache in self._caches.items()}
        objects[kinds.CONFIGMAPS] = tuple(self._rules.items())
        unreadable = self._caches[kinds.PODS].unreadable_items.values()
        return ClusterObjects(
            self._clock.now(),
            objects,
            serves_legacy=self._legacy,
            autoscaler=self._autoscaler,
            closed_nodes=frozenset(each.node for each in unreadable if each.node),
            home=self._namespace,
        )

    async def _look_for_autoscaler(self) -> None:
        while True:
            try:
                self._autoscaler = await autoscalers.find(self._client)
            except KubeError:
                self._autoscaler = ""  # Then nobody is told that nodes are made; the watches say what is wrong.
            await asyncio.sleep(_AUTOSCALER)
