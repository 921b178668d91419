"""The worker's caches of the cluster: one for each kind, updated by a reflector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.kube.reflector import ReflectorSet
from muster.kube.subscription import DerivedState, Subscription
from muster.model import grouping, kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Job, Object, Pod, PodGroup, Queue
from scheduler.model.snapshot import GroupKey
from scheduler.state import conversion
from scheduler.state.blame import Culprit
from scheduler.state.handlers import DEVICES, WATCHED

T = TypeVar("T", bound=Object)

BY_GROUP = "group"
BY_CONTROLLER = "controller"
BY_QUEUE = "queue"
BY_NATIVE_GROUP = "native group"


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
        self.pods: ObjectCache[Pod] = ObjectCache(
            indexes={BY_CONTROLLER: _controllers, BY_NATIVE_GROUP: _native_groups}
        )
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
        self._fed: dict[Kind[Any], Subscription[Any]] = {}
        # An installation may be older than the CRD, and a cluster than Kubernetes 1.34.
        self.watching = ReflectorSet(self._caches, optional={kinds.HYPERNODES, *DEVICES})

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

    def feed(self, tell: Callable[[Kind[Any], Any, bool], None], derived: DerivedState) -> None:
        """Call ``tell`` with each new version of an object, or with its last one and true when it is gone.

        Of queues of one name it is told the one that holds, under the primary kind. ``derived`` becomes stale where
        ``tell`` raises: see `tell_all`.
        """
        for kind in (*WATCHED, *self.groups):
            self._fed[kind] = self._caches[kind].subscribe(_passing(kind, tell), derived)
        for kind, cache in self.queues.items():
            self._fed[kind] = cache.subscribe(partial(self._pass_queue, tell), derived)

    def _pass_queue(self, tell: Callable[[Kind[Any], Any, bool], None], change: ObjectChange[Queue]) -> None:
        one = change.new or change.old
        if one is not None:
            holds = self.queue(one.name)
            tell(kinds.QUEUES, holds or one, holds is None)

    def tell_all(self, tell: Callable[[Kind[Any], Any], None]) -> bool:
        """Call ``tell`` with each object that isn't quarantined; return whether that worked for all.

        Those that it fails on are quarantined.
        """
        whole = True
        for kind, subscription in self._fed.items():
            for item in list(subscription.items()):
                if kind in self.queues and self.queue(item.name) is not item:
                    continue  # An alias.
                try:
                    tell(kinds.QUEUES if kind in self.queues else kind, item)
                except Exception as error:  # noqa: BLE001 - it is this object's
                    subscription.fail(item, error)
                    whole = False
        return whole

    def quarantine(self, culprit: Culprit, error: Exception) -> bool:
        """Have an object left out of what `feed` and `tell_all` tell, for an error that came of it; tell whether it is there."""
        found = (each for each in self._fed if (each.group, each.plural) == (culprit.group, culprit.plural))
        kind = next(found, None)
        item = self._caches[kind].get(culprit.name, culprit.namespace) if kind is not None else None
        if kind is None or item is None:
            return False
        self._fed[kind].fail(item, error)
        return True

    def closed_nodes(self) -> set[str]:
        """Return the nodes with a pod of which nobody knows what it takes."""
        closed: set[str] = set()
        for where in self.pods.doubtful():
            known, unreadable = self.pods.get(where[1], where[0]), self.pods.unreadable_items.get(where)
            closed |= {known.spec.node_name if known is not None else "", unreadable.node if unreadable else ""}
        return closed - {""}

    def doubtful(self) -> Iterator[tuple[Kind[Any], Object, str]]:
        """Iterate over the objects of whose state nobody can be sure, each with the reason."""
        for kind, cache in self._caches.items():
            for where, reason in cache.doubtful().items():
                unreadable = cache.unreadable_items.get(where)
                known = unreadable.about if unreadable is not None else cache.get(where[1], where[0])
                if known is not None:
                    yield kind, known, reason

    def subscribe_doubtful(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called whenever `doubtful` may have changed."""
        for cache in self._caches.values():
            cache.subscribe_doubtful(changed)

    async def run(self, client: Client, synced: asyncio.Event) -> None:
        """Keep all caches up to date, until cancelled; ``synced`` is set when each has shown a whole list."""
        await self.watching.run(client, synced)


_PLAIN: tuple[Kind[Any], ...] = (
    *[kind for kind in WATCHED if kind not in {kinds.PODS, kinds.JOBS}],
    kinds.DEPLOYMENTS,
    kinds.REPLICASETS,
    kinds.STATEFULSETS,
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


def _native_groups(pod: Pod) -> tuple[str, ...]:
    if not pod.spec.scheduling_group:
        return ()
    name = grouping.native_group(pod.spec.scheduling_group)
    return (group_index_key(pod.namespace, name),) if name else ()


def _passing(kind: Kind[Any], tell: Callable[[Kind[Any], Any, bool], None]) -> Callable[[ObjectChange[Any]], None]:
    def on_change(change: ObjectChange[Any]) -> None:
        tell(kind, change.new if change.new is not None else change.old, change.new is None)

    return on_change
