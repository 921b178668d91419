"""The view of the cluster that the webhook server keeps: one watched cache per kind that policies ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry

from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.reflector import ReflectorSet
from muster.kube.subscription import DerivedState
from muster.ledger.committer import Committer
from muster.ledger.metrics import LedgerMetrics
from muster.ledger.observer import Observer, guaranteed_in
from muster.model import kinds, objects
from muster.model.amounts import NOTHING, QuantityError, Resources
from muster.model.kinds import Kind
from muster.model.objects import Node, Queue
from webhooks.view import parent_of

T = TypeVar("T", bound=objects.Object)

_PARENT: Final = "parent"

PRIMARY: Final[tuple[Kind[Any], ...]] = (
    kinds.QUEUES,
    kinds.PODGROUPS,
    kinds.NAMESPACES,
    kinds.RESOURCEQUOTAS,
    kinds.QUOTALEDGERS,
    kinds.NODES,
    # Of these, admission reads who owns them.
    kinds.JOBS,
    kinds.REPLICASETS,
    # Of these the ledger reads what they take of quotas.
    kinds.PODS,
    kinds.RESOURCECLAIMS,
    # Of these admission reads what the pods of a gang will claim.
    kinds.RESOURCECLAIMTEMPLATES,
    kinds.DEVICECLASSES,
)
OPTIONAL: Final[frozenset[Kind[Any]]] = frozenset(
    {kinds.RESOURCECLAIMS, kinds.RESOURCECLAIMTEMPLATES, kinds.DEVICECLASSES}
)
"""Those that a cluster before Kubernetes 1.34 doesn't serve."""
LEGACY: Final[tuple[Kind[Any], ...]] = (*kinds.LEGACY_QUEUES, *kinds.LEGACY_PODGROUPS)


class CachedView:
    """A `webhooks.view.AdmissionView` over caches. Readers and reflectors share the loop, so a read is always whole.

    Attributes:
        kinds: those that there is a cache of.
        watching: what keeps the caches, and knows how they stand.
    """

    def __init__(self, *, legacy_apis: bool = False) -> None:
        watched = (*PRIMARY, *LEGACY) if legacy_apis else PRIMARY
        self._queues: ObjectCache[Queue] = ObjectCache(indexes={_PARENT: lambda queue: (parent_of(queue),)})
        # By names: their hash is known, a Kind's is worked out each time.
        self._caches: dict[tuple[str, str], ObjectCache[Any]] = {
            (kind.group, kind.plural): ObjectCache() for kind in watched
        }
        self._caches[kinds.QUEUES.group, kinds.QUEUES.plural] = self._queues
        self.kinds = watched
        self.watching = ReflectorSet({kind: self.cache(kind) for kind in watched}, optional=OPTIONAL)
        self._capacity = NOTHING
        self._counted = DerivedState()
        self._synced = asyncio.Event()
        self._nodes = self.cache(kinds.NODES).subscribe(self._count, self._counted)

    def get(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """Return an object, or None where no cache shows it."""
        cache = self._caches.get((kind.group, kind.plural))
        return cache.get(name, namespace) if cache is not None else None

    def items(self, kind: Kind[T], namespace: str = "") -> Iterable[T]:
        """Return the objects of a kind, of one namespace or of all; not across an await."""
        cache = self._caches.get((kind.group, kind.plural))
        if cache is None:
            return ()
        return cache.by_namespace(namespace) if namespace else cache.items()

    def children(self, queue: str) -> Iterable[Queue]:
        """Return the queues whose parent is the queue of that name; not across an await."""
        return self._queues.indexed(_PARENT, queue)

    def capacity(self) -> Resources | None:
        """Return what all nodes together have; None until they are known."""
        if self._counted.stale:
            self._recount()
        return self._capacity if self.cache(kinds.NODES).synced else None

    def watches(self, kind: Kind[Any]) -> bool:
        """Whether this view has a cache of that kind."""
        return (kind.group, kind.plural) in self._caches

    def cache(self, kind: Kind[T]) -> ObjectCache[T]:
        """Return the cache of a kind that it watches, for who wants its changes too."""
        return self._caches[kind.group, kind.plural]

    async def run(self, client: Client) -> None:
        """Keep all caches up to date, until cancelled."""
        await self.watching.run(client, self._synced)

    async def synced(self) -> None:
        """Wait until every cache has shown a whole list."""
        await self._synced.wait()

    def _recount(self) -> None:
        self._capacity = NOTHING
        for node in list(self._nodes.items()):
            try:
                self._capacity = self._capacity + _allocatable(node)
            except Exception as error:  # noqa: BLE001 - it is this node's
                self._nodes.fail(node, error)
        self._counted.stale = False

    def _count(self, change: ObjectChange[Node]) -> None:
        before, after = (_allocatable(node) for node in (change.old, change.new))
        # Nodes report themselves all the time, and hardly ever with other amounts.
        if before != after:
            self._capacity = self._capacity + after - before


def committer(
    client: Client, clock: Clock, view: CachedView, registry: CollectorRegistry, schedulers: Collection[str]
) -> Committer:
    """Make the ledger's committer over a view: it reads what the view shows, and writes through ``client``.

    Pods of ``schedulers`` are members of the groups that they name.
    """
    groups = {kind: view.cache(kind) for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS) if view.watches(kind)}
    observer = Observer(
        groups,
        view.cache(kinds.RESOURCEQUOTAS),
        view.cache(kinds.PODS),
        view.cache(kinds.RESOURCECLAIMS),
        view.watching.timeline,
        schedulers,
    )
    waits = guaranteed_in(view.cache(kinds.NAMESPACES))
    return Committer(client, view.cache(kinds.QUOTALEDGERS), observer, clock, LedgerMetrics(registry), waits)


def _allocatable(node: Node | None) -> Resources:
    try:
        return Resources.parse(node.status.allocatable) if node is not None else NOTHING
    except QuantityError:
        return NOTHING
