"""The worker's caches of the cluster: one for each kind, updated by a reflector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.kube.reflector import Watching
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Job, Object, Pod, PodGroup, Queue
from scheduler.model.snapshot import GroupKey
from scheduler.state import conversion
from scheduler.state.handlers import WATCHED

T = TypeVar("T", bound=Object)

BY_GROUP = "group"
BY_CONTROLLER = "controller"
BY_QUEUE = "queue"


class Informers:
    """The caches. Readers and reflectors share the loop, so a read is always whole.

    Attributes:
        watching: what keeps the caches, and knows how they stand.
    """

    def __init__(self, *, legacy_apis: bool) -> None:
        self.groups: dict[Kind[PodGroup], ObjectCache[PodGroup]] = {
            kind: ObjectCache(indexes={BY_QUEUE: lambda group: (queue_of(group),)})
            for kind in (kinds.PODGROUPS, *(kinds.LEGACY_PODGROUPS if legacy_apis else ()))
        }
        self.queues: dict[Kind[Queue], ObjectCache[Queue]] = {
            kind: ObjectCache() for kind in (kinds.QUEUES, *(kinds.LEGACY_QUEUES if legacy_apis else ()))
        }
        self.pods: ObjectCache[Pod] = ObjectCache(indexes={BY_CONTROLLER: _controllers})
        self.jobs: ObjectCache[Job] = ObjectCache(
            indexes={BY_GROUP: lambda job: (group_index_key(job.namespace, conversion.group_of_job(job)),)}
        )
        self._caches: dict[Kind[Any], ObjectCache[Any]] = {
            **self.groups,
            **self.queues,
            kinds.PODS: self.pods,
            kinds.JOBS: self.jobs,
            **{kind: ObjectCache() for kind in _PLAIN},
        }
        self.watching = Watching(self._caches)

    def cache(self, kind: Kind[T]) -> ObjectCache[T]:
        """Return the cache of a kind."""
        return self._caches[kind]

    def queue(self, name: str) -> Queue | None:
        """Return the queue of that name: the primary group's, of which a legacy one is an alias, else a legacy one."""
        found = (cache.get(name) for cache in self.queues.values())
        return next((queue for queue in found if queue is not None), None)

    def groups_of(self, queue: str) -> Iterable[tuple[Kind[PodGroup], PodGroup]]:
        """Return the PodGroups of a queue; not to be kept across an await."""
        return ((kind, group) for kind, cache in self.groups.items() for group in cache.indexed(BY_QUEUE, queue))

    def group(self, key: GroupKey) -> PodGroup | None:
        """Return a PodGroup as its cache shows it."""
        return next(
            (cache.get(key.name, key.namespace) for kind, cache in self.groups.items() if kind.group == key.group), None
        )

    def find_group(self, namespace: str, name: str) -> tuple[Kind[PodGroup], PodGroup] | None:
        """Return the PodGroup of that name, of whichever API group."""
        found = ((kind, cache.get(name, namespace)) for kind, cache in self.groups.items())
        return next(((kind, group) for kind, group in found if group is not None), None)

    def jobs_of(self, group: PodGroup) -> Iterable[Job]:
        """Return the Jobs whose pods are in a group; not to be kept across an await."""
        return self.jobs.indexed(BY_GROUP, group_index_key(group.namespace, group.name))

    def feed(self, tell: Callable[[Kind[Any], Any, bool], None]) -> None:
        """Call ``tell`` with each new version of an object, or with its last one and true when it is gone.

        Of queues of one name it is told the one that holds, under the primary kind.
        """
        for kind in (*WATCHED, *self.groups):
            self._caches[kind].subscribe(_passing(kind, tell))
        for cache in self.queues.values():
            cache.subscribe(partial(self._pass_queue, tell))

    def _pass_queue(self, tell: Callable[[Kind[Any], Any, bool], None], change: ObjectChange[Queue]) -> None:
        one = change.new or change.old
        if one is not None:
            holds = self.queue(one.name)
            tell(kinds.QUEUES, holds or one, holds is None)

    async def run(self, client: Client, synced: asyncio.Event) -> None:
        """Keep all caches up to date, until cancelled; ``synced`` is set when each has shown a whole list."""
        await self.watching.run(client, synced)


_PLAIN: tuple[Kind[Any], ...] = (
    *[kind for kind in WATCHED if kind not in {kinds.PODS, kinds.JOBS}],
    kinds.REPLICASETS,
    kinds.QUOTALEDGERS,
)


def group_index_key(namespace: str, name: str) -> str:
    """Write where a group is, as indexes do."""
    return f"{namespace}/{name}"


def queue_of(group: PodGroup) -> str:
    """Return the name of a group's queue."""
    return group.spec.queue or names.DEFAULT_QUEUE


def _controllers(pod: Pod) -> tuple[str, ...]:
    controller = pod.metadata.controller()
    return (controller.uid,) if controller is not None else ()


def _passing(kind: Kind[Any], tell: Callable[[Kind[Any], Any, bool], None]) -> Callable[[ObjectChange[Any]], None]:
    def on_change(change: ObjectChange[Any]) -> None:
        tell(kind, change.new if change.new is not None else change.old, change.new is None)

    return on_change
