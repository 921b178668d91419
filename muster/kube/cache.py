"""A view of all objects of one kind, updated by a reflector."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Literal, TypeVar

import msgspec

from muster.kube import errors
from muster.kube.decoding import Unreadable
from muster.model import objects, versions

T = TypeVar("T", bound=objects.Object)

log = logging.getLogger(__name__)

Index = Callable[[T], Iterable[str]]
"""Under which keys an object is found in an index. Must give the same keys for the same object each time."""


class ObjectChange(msgspec.Struct, Generic[T], frozen=True):
    """What happened to one object: ``old`` is as the view showed it, ``new`` as it shows it now.

    An object that was deleted and made again under its name is two changes, a DELETED and an ADDED.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    old: T | None
    new: T | None


class ObjectCache(Generic[T]):
    """All objects of one kind (and namespace, and selector) as of `revision`.

    Attributes:
        synced: whether it has shown a whole list; never false again.
        revision: the resourceVersion that the view is at; empty before the first list.
        unreadable: why objects of the server couldn't be decoded, by namespace and name. Such an object keeps the last
            version that could: forgetting it would free what it holds.
        quarantined: why a subscriber failed on objects, by namespace and name, until they change: what was made of such an
            object can't be relied on.
    """

    def __init__(self, *, indexes: Mapping[str, Index[T]] | None = None) -> None:
        self.synced = False
        self.revision = ""
        self.unreadable: dict[tuple[str, str], str] = {}
        self.quarantined: dict[tuple[str, str], str] = {}
        self._objects: dict[str, dict[str, T]] = {}
        self._indexes = {name: _Index(keys) for name, keys in (indexes or {}).items()}
        self._subscribers: list[Callable[[ObjectChange[T]], None]] = []
        self._waiting: set[tuple[str, asyncio.Future[None]]] = set()

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def state(self) -> dict[str, int | str | bool]:
        """Say how it stands, for a person who looks for a fault."""
        return {
            "objects": len(self),
            "revision": self.revision,
            "synced": self.synced,
            "unreadable": len(self.unreadable),
            "quarantined": len(self.quarantined),
        }

    def unknown(self, namespace: str) -> list[str]:
        """Return the names of the objects of a namespace of whose state nobody can be sure."""
        found = self.unreadable.keys() | self.quarantined.keys() if self.unreadable or self.quarantined else ()
        return sorted(name for where, name in found if where == namespace)

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return the object of that name, or None."""
        return self._objects.get(namespace, {}).get(name)

    def items(self) -> Iterator[T]:
        """Iterate over all objects; not across an await."""
        for namespace in self._objects.values():
            yield from namespace.values()

    def by_namespace(self, namespace: str) -> Iterable[T]:
        """Return the objects of one namespace; not to be kept across an await."""
        return self._objects.get(namespace, {}).values()

    def indexed(self, index: str, key: str) -> Iterable[T]:
        """Return the objects that the named index has under ``key``; not to be kept across an await."""
        return self._indexes[index].find(key)

    def subscribe(self, callback: Callable[[ObjectChange[T]], None]) -> Callable[[], None]:
        """Have ``callback`` called for every change from now on, after the view shows it; gives what ends that.

        Where a callback raises, that is logged and its object quarantined; it is called again for the next change.
        """
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    async def reached(self, version: str) -> None:
        """Wait until the view shows everything up to ``version``: one that an object of this very kind had.

        Where the view is of a selection, changes outside it move `revision` only by bookmarks, once a minute.

        Raises:
            ValueError: that is no resourceVersion.
        """
        if versions.at_least(self.revision, version):
            return
        waiting = (version, asyncio.get_running_loop().create_future())
        self._waiting.add(waiting)
        try:
            await waiting[1]
        finally:
            self._waiting.discard(waiting)

    # ── writing: its reflector only ──────────────────────────────────────────────────────────────────────────────

    def replace(self, items: Iterable[T], revision: str, unreadable: Iterable[Unreadable] = ()) -> None:
        """Show a whole list instead, then tell what is different."""
        fresh = {(item.namespace, item.name): item for item in items}
        self.unreadable = {}
        for each in unreadable:
            key = (each.about.namespace, each.about.name)
            self.unreadable[key] = each.reason
            known = self.get(each.about.name, each.about.namespace)
            if known is not None and known.metadata.uid == each.about.metadata.uid:
                fresh[key] = known
        gone = [old for old in self.items() if (old.namespace, old.name) not in fresh]
        changes = [change for old in gone for change in self._store(old, None)]
        for (namespace, name), item in fresh.items():
            changes += self._store(self.get(name, namespace), item)
        self.synced = True
        self.advance(revision)
        self._tell(changes)

    def put(self, item: T) -> None:
        """Show a new or changed object."""
        self.unreadable.pop((item.namespace, item.name), None)
        changes = self._store(self.get(item.name, item.namespace), item)
        self.advance(item.metadata.resource_version)
        self._tell(changes)

    def drop(self, about: objects.Object) -> None:
        """Show that an object is gone; ``about`` has its metadata as of its end."""
        self.unreadable.pop((about.namespace, about.name), None)
        changes = self._store(self.get(about.name, about.namespace), None)
        self.advance(about.metadata.resource_version)
        self._tell(changes)

    def set_aside(self, item: Unreadable) -> None:
        """Note that a new state of an object can't be read. Its last readable state stays, unless it was another's."""
        about = item.about
        known = self.get(about.name, about.namespace)
        changes = self._store(known, None) if known is not None and known.metadata.uid != about.metadata.uid else []
        self.unreadable[about.namespace, about.name] = item.reason
        self.advance(about.metadata.resource_version)
        self._tell(changes)

    def advance(self, revision: str) -> None:
        """Note that nothing else happened up to ``revision``."""
        self.revision = revision
        for version, waiter in list(self._waiting):
            if not waiter.done() and versions.at_least(revision, version):
                waiter.set_result(None)

    def _store(self, old: T | None, new: T | None) -> list[ObjectChange[T]]:
        if old is not None and new is not None and old.metadata.uid == new.metadata.uid:
            # The same version is the same state, unless the server was restored and counts anew.
            if old.metadata.resource_version == new.metadata.resource_version and old == new:
                return []
            self._swap(old, new)
            return [ObjectChange("MODIFIED", old, new)]
        changes: list[ObjectChange[T]] = []
        if old is not None:
            self._swap(old, None)
            changes.append(ObjectChange("DELETED", old, None))
        if new is not None:
            self._swap(None, new)
            changes.append(ObjectChange("ADDED", None, new))
        return changes

    def _swap(self, old: T | None, new: T | None) -> None:
        if new is not None:
            self._objects.setdefault(new.namespace, {})[new.name] = new
        elif old is not None:
            namespace = self._objects[old.namespace]
            del namespace[old.name]
            if not namespace:
                del self._objects[old.namespace]
        for index in self._indexes.values():
            index.swap(old, new)

    def _tell(self, changes: Iterable[ObjectChange[T]]) -> None:
        for change in changes:
            item = change.new or change.old
            assert item is not None
            key = (item.namespace, item.name)
            self.quarantined.pop(key, None)
            for callback in tuple(self._subscribers):
                try:
                    callback(change)
                except Exception as error:
                    log.exception("a subscriber failed on %s of %s/%s", change.type, *key)
                    if change.new is not None:
                        self.quarantined[key] = errors.bounded(f"{type(error).__name__}: {error}")


class _Index(Generic[T]):
    """One index: from a key to the objects that have it."""

    def __init__(self, keys: Index[T]) -> None:
        self._keys = keys
        self._found: dict[str, dict[tuple[str, str], T]] = {}

    def find(self, key: str) -> Iterable[T]:
        return self._found.get(key, {}).values()

    def swap(self, old: T | None, new: T | None) -> None:
        after = self._keys(new) if new is not None else ()
        if old is not None:
            for key in self._keys(old):
                if key not in after:
                    self._remove(key, (old.namespace, old.name))
        if new is not None:
            for key in after:
                self._found.setdefault(key, {})[new.namespace, new.name] = new

    def _remove(self, key: str, name: tuple[str, str]) -> None:
        found = self._found[key]
        del found[name]
        if not found:
            del self._found[key]
