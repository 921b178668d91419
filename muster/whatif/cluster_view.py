"""A cluster as Muster sees it at one moment: read from its API server, or from a file that `muster dump` wrote."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Final, TypeVar

import click
from msgspec import Struct

from muster.kube import decoding, errors
from muster.kube.client import Client
from muster.kube.transport import Request, Response
from muster.ledger.rows import MalformedLedgerError
from muster.ledger.table import Table
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Object

T = TypeVar("T", bound=Object)

PODGROUPS: Final = (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)
_NEEDED: Final = (kinds.NODES, kinds.PODS, kinds.PODGROUPS, kinds.QUEUES)
KINDS: Final[tuple[Kind[Any], ...]] = (
    *_NEEDED,
    kinds.NAMESPACES,
    kinds.JOBS,
    kinds.RESOURCEQUOTAS,
    kinds.QUOTALEDGERS,
    kinds.PRIORITYCLASSES,
    kinds.DISRUPTIONBUDGETS,
    kinds.CLAIMS,
    kinds.VOLUMES,
    kinds.STORAGECLASSES,
    kinds.CSINODES,
    kinds.CONFIGMAPS,
    *kinds.LEGACY_PODGROUPS,
    *kinds.LEGACY_QUEUES,
)
"""What admission, scheduling and their explanations look at. Of ConfigMaps only those in Muster's own namespace."""

_LEGACY: Final[tuple[Kind[Any], ...]] = (*kinds.LEGACY_PODGROUPS, *kinds.LEGACY_QUEUES)
LEGACY_VERSIONS: Final = frozenset(kind.api_version for kind in _LEGACY)

_TRIES: Final = 5
_PLACES: Final[Mapping[Kind[Any], str]] = {kinds.CONFIGMAPS: names.SYSTEM_NAMESPACE}


class NotInstalledError(click.ClickException):
    """The cluster doesn't serve Muster's kinds."""

    def __init__(self) -> None:
        super().__init__("this cluster doesn't know Muster's kinds: run `muster install`")


class State(Struct, frozen=True, dict=True):
    """All objects that matter, by kind.

    Attributes:
        taken: when it was read: what a decision on it takes for now.
        unread: what could not be read and is taken not to be there, a sentence each.
        serves_legacy: whether kube-batch's API groups are served; None where nobody said so, as in a dump.
    """

    taken: datetime
    objects: Mapping[Kind[Any], tuple[Any, ...]]
    unread: tuple[str, ...] = ()
    serves_legacy: bool | None = None

    # A short one: asyncio.run writes one of what its coroutine gave, whether somebody reads it or not.
    def __repr__(self) -> str:
        return f"State(taken={self.taken})"

    def of(self, kind: Kind[T], namespace: str = "") -> tuple[T, ...]:
        """Return the objects of a kind, of one namespace or of all."""
        found: tuple[T, ...] = self.objects.get(kind, ())
        return self._of_namespaces(kind).get(namespace, ()) if namespace else found

    def find(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """Return an object, or None."""
        return next((each for each in self._of_namespaces(kind).get(namespace, ()) if each.name == name), None)

    def _of_namespaces(self, kind: Kind[T]) -> Mapping[str, tuple[T, ...]]:
        """Return the objects of a kind by namespace; once, for who asks about one pod of ten thousand asks about several."""
        known = self._index
        if kind not in known:
            found: defaultdict[str, list[T]] = defaultdict(list)
            for each in self.objects.get(kind, ()):
                found[each.metadata.namespace].append(each)
            known[kind] = {namespace: tuple(items) for namespace, items in found.items()}
        return known[kind]

    @cached_property
    def _index(self) -> dict[Kind[Any], Mapping[str, tuple[Any, ...]]]:
        return {}

    def ledger(self, namespace: str) -> Table | None:
        """Return what a namespace has reserved; None where there is no ledger, or one that can't be read."""
        ledger = self.find(kinds.QUOTALEDGERS, names.LEDGER_NAME, namespace)
        try:
            return Table.parse(ledger.data) if ledger is not None else None
        except MalformedLedgerError:
            return None  # `malformed` tells of it

    def malformed(self) -> Iterator[str]:
        """Tell which ledgers can't be read."""
        for ledger in self.of(kinds.QUOTALEDGERS):
            try:
                Table.parse(ledger.data)
            except MalformedLedgerError as error:
                yield f"QuotaLedger {ledger.namespace}/{ledger.name}: {error}; delete it, and it is made again"

    def legacy(self, wanted: Iterable[str]) -> bool:
        """Whether kube-batch's API groups count: they are served, or, as far as one knows, in use, be it by what is ``wanted`` (apiVersions)."""
        if self.serves_legacy is not None:
            return self.serves_legacy
        return any(map(self.objects.get, _LEGACY)) or not LEGACY_VERSIONS.isdisjoint(wanted)


async def read(client: Client, now: datetime) -> State:
    """Read a cluster, all kinds at once. Kinds that it doesn't serve are empty.

    Raises:
        NotInstalledError: it serves no PodGroups of ours.
        ForbiddenError: nodes, pods, PodGroups or queues may not be listed; of others that is noted in `State.unread`.
        KubeError: something couldn't be read.
    """
    unread: list[str] = []
    found = await asyncio.gather(*(_listed(client, kind, unread) for kind in KINDS))
    objects = {kind: items or () for kind, items in zip(KINDS, found, strict=True)}
    served = any(items is not None for kind, items in zip(KINDS, found, strict=True) if kind in kinds.LEGACY_PODGROUPS)
    return State(now, objects, tuple(unread), served)


async def _sent(client: Client, request: Request) -> Response:
    """Ask again, as kubectl does, where the server says that it can't answer yet."""
    for _ in range(_TRIES - 1):
        try:
            return await client.send(request)
        except errors.TooManyRequestsError as error:
            await asyncio.sleep(error.retry_after or 1.0)
    return await client.send(request)


async def _listed(client: Client, kind: Kind[T], unread: list[str]) -> tuple[T, ...] | None:
    """Return the objects of a kind; None of one that isn't served."""
    # In one piece, and no older than the question: who has just applied something asks about that.
    request = Request("GET", kind.path(_PLACES.get(kind, "")))
    try:
        answer = await _sent(client, request)
    except errors.NotFoundError as error:
        if kind in {kinds.PODGROUPS, kinds.QUEUES}:
            raise NotInstalledError from error
        return None
    except errors.ForbiddenError as error:
        if kind in _NEEDED:
            raise
        unread.append(f"{kind.plural} are taken not to be there, for want of a right: {error}")
        return ()
    page = decoding.page(kind, answer.body)
    unread += [f"{kind.name} {each.about.namespace}/{each.about.name} is left out: {each.reason}" for each in page.unreadable]  # fmt: skip
    return page.items
