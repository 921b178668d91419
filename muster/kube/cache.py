"""A view of all objects of one kind, updated by a reflector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from muster.kube.decoding import Unreadable
from muster.kube.subscription import DerivedState, Name, ObjectChange, Subscription, reason_of
from muster.model import objects, versions

__all__ = ["DerivedState", "Index", "ObjectCache", "ObjectChange", "Subscription"]

T = TypeVar("T", bound=objects.Object)

Index = Callable[[T], Iterable[str]]
"""Under which keys an object is found in an index. Must give the same keys for the same object each time."""


class ObjectCache(Generic[T]):
    """All objects of one kind (and namespace, and selector) as of `revision`.

    Attributes:
        synced: whether it has shown a whole list; never false again.
        revision: the resourceVersion that the view is at; empty before the first list.
        unreadable: why objects of the server couldn't be decoded, by namespace and name. Such an object keeps the last
            version that could: forgetting it would free what it holds.
        unreadable_items: those objects as far as they could be read.
        stirred: set whenever an object is quarantined, or one that is changes; `muster.kube.quarantine_retry` clears it.
    """

    def __init__(self, *, indexes: Mapping[str, Index[T]] | None = None) -> None:
        self.synced = False
        self.revision = ""
        self.unreadable: dict[Name, str] = {}
        self.unreadable_items: dict[Name, Unreadable] = {}
        self.stirred = asyncio.Event()
        self._objects: dict[str, dict[str, T]] = {}
        self._indexes = {name: _Index(keys) for name, keys in (indexes or {}).items()}
        self._unindexed: dict[Name, str] = {}
        self._subscribers: list[Subscription[T]] = []
        self._doubtful: list[Callable[[], None]] = []
        self._waiting: set[tuple[str, asyncio.Future[None]]] = set()

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def state(self) -> dict[str, int | str | bool]:
        """Return the state of the cache (revision, number of objects, faults), as JSON, for /debug/state."""
        return {
            "objects": len(self),
            "revision": self.revision,
            "synced": self.synced,
            "unreadable": len(self.unreadable),
            "quarantined": len(self.quarantined),
        }

    @property
    def quarantined(self) -> dict[Name, str]:
        """Why a subscriber failed on objects, by namespace and name: it isn't told of them until a retry succeeds.

        What was made of such an object can't be relied on.
        """
        found = dict(self._unindexed)
        for each in self._subscribers:
            if each.failed:
                found.update(each.failed)
        return found

    def doubtful(self) -> dict[Name, str]:
        """Return the objects of whose state nobody can be sure, each with the reason."""
        return {**self.quarantined, **self.unreadable}

    def unknown(self, namespace: str) -> list[str]:
        """Return the names of the objects of a namespace of whose state nobody can be sure."""
        return sorted(name for where, name in self.doubtful() if where == namespace)

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return the object of that name, or None."""
        objects = self._objects.get(namespace)
        return objects.get(name) if objects is not None else None

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

    def subscribe(
        self, callback: Callable[[ObjectChange[T]], None], derived: DerivedState | None = None
    ) -> Subscription[T]:
        """Have ``callback`` called for every change from now on, after the cache shows it.

        Where it raises, that is logged and the object quarantined: it isn't told of that object until a retry
        succeeds. ``derived`` is what callbacks like this one keep up to date change by change: a failure may leave it
        half-updated, so it becomes stale, and nothing is told until its owner has made it anew from `Subscription.items`.
        """
        subscription = Subscription(self, callback, derived, self._subscribers.remove)
        self._subscribers.append(subscription)
        return subscription

    def subscribe_doubtful(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called whenever `doubtful` may have changed."""
        self._doubtful.append(changed)

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
        before, self.unreadable, self.unreadable_items = self.unreadable, {}, {}
        for each in unreadable:
            key = (each.about.namespace, each.about.name)
            self._note_unreadable(each)
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
        if before != self.unreadable:
            self.doubt()

    def put(self, item: T) -> None:
        """Show a new or changed object."""
        changes = self._store(self.get(item.name, item.namespace), item)
        self.advance(item.metadata.resource_version)
        self._tell(changes)
        self._note_readable((item.namespace, item.name))

    def drop(self, about: objects.Object) -> None:
        """Show that an object is gone; ``about`` has its metadata as of its end."""
        changes = self._store(self.get(about.name, about.namespace), None)
        self.advance(about.metadata.resource_version)
        self._tell(changes)
        self._note_readable((about.namespace, about.name))

    def set_aside(self, item: Unreadable) -> None:
        """Note that a new state of an object can't be read. Its last readable state stays, unless it was another's."""
        about = item.about
        known = self.get(about.name, about.namespace)
        changes = self._store(known, None) if known is not None and known.metadata.uid != about.metadata.uid else []
        self._note_unreadable(item)
        self.advance(about.metadata.resource_version)
        self._tell(changes)
        self.doubt()

    def retry(self, name: Name) -> bool | None:
        """Show a quarantined object again to those that failed on it.

        Returns:
            Whether nobody fails on it any more; None where what it goes into is stale, so that nobody was asked.
        """
        if any(each.is_stale for each in self._subscribers if name in each.failed):
            return None
        item = self.get(name[1], name[0])
        if item is not None and self._unindexed.pop(name, None) is not None:
            self._reindex(item)
        for each in self._subscribers:
            each.retry(name, item)
        healed = name not in self.quarantined
        if healed:
            self.doubt()
        return healed

    def doubt(self) -> None:
        """Tell those who follow what is doubtful that this may have changed."""
        for changed in self._doubtful:
            changed()

    def _note_unreadable(self, item: Unreadable) -> None:
        name = (item.about.namespace, item.about.name)
        self.unreadable[name] = item.reason
        self.unreadable_items[name] = item

    def _note_readable(self, name: Name) -> None:
        self.unreadable_items.pop(name, None)
        if self.unreadable.pop(name, None) is not None:
            self.doubt()

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
            try:
                index.swap(old, new)
            except Exception as error:  # noqa: BLE001 - an index is written for objects as they should be
                self._leave_out(index, new or old, error)

    def _leave_out(self, index: _Index[T], item: T | None, error: Exception) -> None:
        """Have an index not show an object whose keys can't be told."""
        assert item is not None
        name = (item.namespace, item.name)
        index.purge(name)
        if self.get(item.name, item.namespace) is not None:
            self._unindexed[name] = reason_of(error)
            self.stirred.set()

    def _reindex(self, item: T) -> None:
        for index in self._indexes.values():
            try:
                index.swap(None, item)
            except Exception as error:  # noqa: BLE001 - as above
                self._leave_out(index, item, error)

    def _tell(self, changes: list[ObjectChange[T]]) -> None:
        if not changes:
            return
        known = self.quarantined
        for change in changes:
            item = change.new or change.old
            assert item is not None
            if known and (name := (item.namespace, item.name)) in known:
                self.stirred.set()
                if change.new is None:
                    self._unindexed.pop(name, None)
            for each in tuple(self._subscribers):
                each.tell(change)
        # Who asks about doubts reads what the subscribers made of all this.
        if known or self.quarantined:
            self.stirred.set()
            if known != self.quarantined:
                self.doubt()


class _Index(Generic[T]):
    """One index: from a key to the objects that have it."""

    def __init__(self, keys: Index[T]) -> None:
        self._keys = keys
        self._found: dict[str, dict[Name, T]] = {}

    def find(self, key: str) -> Iterable[T]:
        return self._found.get(key, {}).values()

    def swap(self, old: T | None, new: T | None) -> None:
        after = tuple(self._keys(new)) if new is not None else ()
        if old is not None:
            for key in self._keys(old):
                if key not in after:
                    self._remove(key, (old.namespace, old.name))
        if new is not None:
            for key in after:
                self._found.setdefault(key, {})[new.namespace, new.name] = new

    def purge(self, name: Name) -> None:
        """Take an object out wherever it is."""
        for key in [key for key, found in self._found.items() if name in found]:
            self._remove(key, name)

    def _remove(self, key: str, name: Name) -> None:
        found = self._found.get(key, {})
        found.pop(name, None)
        if not found:
            self._found.pop(key, None)
