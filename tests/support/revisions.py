"""Every revision of what quotas hold during a siege, from watches: sums are added up at each, not at the moments of a look."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import plane as planes
import siege

from muster.kube import decoding, errors
from muster.kube.client import Client
from muster.kube.decoding import Unreadable
from muster.kube.reflector import IDLE, WatchEvent
from muster.kube.transport import Request
from muster.ledger.audit import AuditedNamespace
from muster.ledger.conversion import observed_group, observed_pod, observed_quota
from muster.ledger.table import Table
from muster.ledger.view import ObservedGroup, ObservedPod, ObservedQuota, source
from muster.model import grouping, kinds, objects, versions
from muster.model.kinds import Kind

WATCHED: tuple[Kind[Any], ...] = (kinds.PODGROUPS, kinds.PODS, kinds.RESOURCEQUOTAS, kinds.QUOTALEDGERS)

Value = ObservedGroup | ObservedPod | ObservedQuota | Table
_T = TypeVar("_T", bound=Value)


@dataclass(frozen=True)
class Change:
    """One object of a namespace as of a revision; ``value`` is None once it is gone."""

    revision: int
    namespace: str
    uid: str
    value: Value | None


@dataclass
class _Namespace:
    """What a namespace has at a revision; ``born`` is the revision at which an object was first seen."""

    objects: dict[str, Value] = field(default_factory=dict)
    born: dict[str, int] = field(default_factory=dict)

    def put(self, change: Change) -> bool:
        """Bring a change in; tell whether it may change a sum."""
        before = self.objects.pop(change.uid, None)
        if change.value is None:
            self.born.pop(change.uid, None)
            return isinstance(before, Table)
        self.objects[change.uid] = change.value
        self.born.setdefault(change.uid, change.revision)
        if isinstance(change.value, ObservedGroup | ObservedPod):
            return bool(change.value.amounts) and (before is None or _held(before) != _held(change.value))
        return before != change.value

    def wrong(self) -> str:
        """Return what is wrong now; empty where nothing is."""
        tables = self._of(Table)
        if not tables:
            return "the ledger is gone"
        (ledger,) = tables
        late = self._late(ledger)
        if others := [each.name for each in late if not grouping.is_generated(each.name)]:
            return f"stored without a reservation: {others}"
        stored = AuditedNamespace(self._of(ObservedGroup), self._of(ObservedPod), self._of(ObservedQuota))
        over = siege.excess(stored, ledger.unreserved | {each.uid for each in late})
        return f"held beyond the limit: {over}" if over else ""

    def _late(self, ledger: Table) -> list[ObservedGroup]:
        """Return the groups that didn't exist yet at the revision that the ledger counts, and have no row."""
        counted = ledger.observed.get(source(kinds.PODGROUPS.group), 0)
        known = {row.uid for row in ledger.rows}
        quotas = self._of(ObservedQuota)
        shown = [each for each in self._of(ObservedGroup) if each.uid not in known and siege.counts(each, quotas)]
        return [each for each in shown if counted and self.born[each.uid] > counted]

    def _of(self, sort: type[_T]) -> tuple[_T, ...]:
        # What takes nothing is left out: most of what a hostile tenant stores.
        found = (each for each in self.objects.values() if isinstance(each, sort))
        return tuple(each for each in found if not isinstance(each, ObservedGroup | ObservedPod) or each.amounts)


def _held(value: Value) -> tuple[object, ...]:
    assert isinstance(value, ObservedGroup | ObservedPod)
    name = value.name if isinstance(value, ObservedGroup) else value.group
    return name, value.amounts, value.scope_facts


def violations(before: Iterable[Change], changes: Sequence[Change]) -> Iterator[tuple[int, str, str]]:
    """Return each revision at which more was held than allowed, with its namespace and what was wrong."""
    namespaces: dict[str, _Namespace] = {}
    for change in before:
        namespaces.setdefault(change.namespace, _Namespace()).put(change)
    for change in sorted(changes, key=lambda each: each.revision):
        namespace = namespaces[change.namespace]
        if namespace.put(change) and (wrong := namespace.wrong()):
            yield change.revision, change.namespace, wrong


class Recorder:
    """Watches some namespaces, and keeps each change that counts for their quotas."""

    def __init__(self, client: Client, namespaces: Collection[str]) -> None:
        self.changes: list[Change] = []
        self._client = client
        self._namespaces = namespaces
        self._before: list[Change] = []
        self._seen: dict[tuple[str, Kind[Any]], str] = {}

    async def begin(self) -> None:
        """List what there is."""
        for namespace in self._namespaces:
            for kind in WATCHED:
                listed = await self._client.list(kind, namespace)
                assert listed.unreadable == ()
                self._before += [_change(kind, namespace, each) for each in listed.items]
                self._seen[namespace, kind] = listed.resource_version

    async def follow(self) -> None:
        """Watch all of them from there on, until cancelled; fails where a revision can't be had any more."""
        async with asyncio.TaskGroup() as group:
            for namespace, kind in self._seen:
                group.create_task(self._follow(namespace, kind))

    async def violations(self) -> list[tuple[int, str, str]]:
        """Return what was wrong at any revision until now."""
        async with asyncio.timeout(planes.PATIENCE):
            for namespace, kind in self._seen:
                listed = await self._client.list(kind, namespace)
                latest = max((versions.number(each.metadata.resource_version) for each in listed.items), default=0)
                while versions.number(self._seen[namespace, kind]) < latest:  # noqa: ASYNC110 - a watch tells nobody
                    await asyncio.sleep(0.05)
        return await asyncio.to_thread(lambda: list(violations(self._before, tuple(self.changes))))

    async def _follow(self, namespace: str, kind: Kind[Any]) -> None:
        while True:
            query = {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": self._seen[namespace, kind],
                "timeoutSeconds": "600",
            }
            request = Request("GET", kind.path(namespace), query)
            try:
                async with self._client.transport.watch(request, idle=IDLE) as lines:
                    async for line in lines:
                        self._take(namespace, kind, decoding.strictly(WatchEvent, line))
            except (errors.UnreachableError, errors.ServerError):
                await asyncio.sleep(0.2)  # an API server that has no time; the watch goes on where it was

    def _take(self, namespace: str, kind: Kind[Any], event: WatchEvent) -> None:
        if event.type == "ERROR":
            status = decoding.strictly(dict[str, Any], event.object)
            raise errors.from_status(int(status.get("code", 500)), status)
        about = decoding.strictly(objects.Object, event.object).metadata
        self._seen[namespace, kind] = about.resource_version
        if event.type == "DELETED":
            self.changes.append(Change(versions.number(about.resource_version), namespace, about.uid, None))
        elif event.type != "BOOKMARK":
            item = decoding.item(kind, event.object)
            assert not isinstance(item, Unreadable), item
            self.changes.append(_change(kind, namespace, item))


def _change(kind: Kind[Any], namespace: str, item: Any) -> Change:
    value: Value
    if kind is kinds.PODGROUPS:
        value = observed_group(kind.group, item, 0)
    elif kind is kinds.PODS:
        value = observed_pod(item)
    elif kind is kinds.RESOURCEQUOTAS:
        value = observed_quota(item)
    else:
        value = Table.parse(item.data)
    return Change(versions.number(item.metadata.resource_version), namespace, item.metadata.uid, value)
