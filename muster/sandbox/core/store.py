"""The state of the sandbox: objects by kind, namespace and name; one revision counter; a bounded history per kind.

Objects are raw JSON dictionaries and immutable by convention: whoever has one may keep it and must not change it.
A write replaces the object and shares every part of it that didn't change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Struct, field

Object = dict[str, Any]
Objects = list[Object]
Key = tuple[str, str]
"""(group, plural) of what is stored; all versions of a kind share one."""

HISTORY: Final = 20_000
"""Events kept per kind. A watch or page that needs an older one is told to start anew (410)."""

_AFTER_NAMESPACE: Final = "\x00"  # sorts behind the namespace itself and before any longer name


class ExpiredError(Exception):
    """The asked-for revision is older than the history."""


class StoreEvent(Struct, frozen=True):
    """One change. ``object`` is the new state, or the last one (at the revision of its deletion) when DELETED."""

    type: str
    key: Key
    object: Object
    old: Object | None
    revision: int


Events = list[StoreEvent]


class _Table(Struct):
    """All objects of one key, with their names in order as etcd has them."""

    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    names: list[tuple[str, str]] = field(default_factory=list)
    sorted: bool = True
    history: deque[StoreEvent] = field(default_factory=deque)
    forgotten: int = 0
    """Revision of the newest event that is no longer in the history."""

    def ordered(self) -> list[tuple[str, str]]:
        if not self.sorted:
            self.names.sort()
            self.sorted = True
        return self.names

    def within(self, namespace: str) -> Iterator[tuple[str, str]]:
        names = self.ordered()
        if not namespace:
            return iter(names)
        return islice(
            names, bisect_left(names, (namespace, "")), bisect_left(names, (namespace + _AFTER_NAMESPACE, ""))
        )


class Store:
    """Objects and their history. Every write is one revision.

    Subscribers hear of a write before it returns; of one that a subscriber does, as soon as all have heard of its cause.
    """

    def __init__(self, *, history: int = HISTORY) -> None:
        self.revision = 1  # a list of nothing must not be at "0", which means "any version" to a watch
        self._limit = history
        self._tables: dict[Key, _Table] = {}
        self._subscribers: dict[int, Callable[[StoreEvent], None]] = {}
        self._next_subscriber = 0
        self._pending: deque[StoreEvent] = deque()

    def get(self, key: Key, namespace: str, name: str) -> Object | None:
        """Return the object, or None."""
        table = self._tables.get(key)
        return table.objects.get((namespace, name)) if table else None

    def list(self, key: Key, namespace: str = "") -> Objects:
        """Return all objects, of one namespace or of all, in the order of (namespace, name)."""
        table = self._tables.get(key)
        if table is None:
            return []
        objects = table.objects
        return [objects[name] for name in table.within(namespace)]

    def count(self, key: Key) -> int:
        """Return how many objects there are."""
        table = self._tables.get(key)
        return len(table.objects) if table else 0

    def keys(self) -> tuple[Key, ...]:
        """Return every key under which something is stored now."""
        return tuple(key for key, table in self._tables.items() if table.objects)

    def snapshot(self, key: Key, revision: int, namespace: str = "") -> Objects:
        """Return the list as it was at ``revision``.

        Raises:
            ExpiredError: the history doesn't reach back that far.
        """
        table = self._tables.get(key)
        if table is None or revision >= self.revision:
            return self.list(key, namespace)
        if revision < table.forgotten:
            raise ExpiredError
        objects = dict(table.objects)
        for event in reversed(table.history):
            if event.revision <= revision:
                break
            if event.old is None:
                objects.pop(identity(event.object), None)
            else:
                objects[identity(event.object)] = event.old
        return [objects[name] for name in sorted(objects) if not namespace or name[0] == namespace]

    def put(self, key: Key, obj: Object) -> Object:
        """Store an object under its metadata's namespace and name; return it as stored, with its resourceVersion."""
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = _Table()
        name = identity(obj)
        old = table.objects.get(name)
        self.revision += 1
        stored = _at(obj, self.revision)
        table.objects[name] = stored
        if old is None:
            table.sorted = table.sorted and (not table.names or table.names[-1] < name)
            table.names.append(name)
        self._record(table, StoreEvent("MODIFIED" if old is not None else "ADDED", key, stored, old, self.revision))
        return stored

    def remove(self, key: Key, namespace: str, name: str) -> Object:
        """Take an object out; return its last state at the revision of the deletion.

        Raises:
            KeyError: there is no such object.
        """
        table = self._tables[key]
        old = table.objects.pop((namespace, name))
        names = table.ordered()
        del names[bisect_left(names, (namespace, name))]
        self.revision += 1
        last = _at(old, self.revision)
        self._record(table, StoreEvent("DELETED", key, last, old, self.revision))
        return last

    def since(self, key: Key, revision: int) -> Events:
        """Return the key's events after ``revision``, oldest first.

        Raises:
            ExpiredError: some of them are forgotten.
        """
        table = self._tables.get(key)
        if table is None:
            return []
        if revision < table.forgotten:
            raise ExpiredError
        events = []
        for event in reversed(table.history):
            if event.revision <= revision:
                break
            events.append(event)
        events.reverse()
        return events

    def compact(self, revision: int) -> None:
        """Forget all events up to ``revision``, as etcd's compaction does."""
        for table in self._tables.values():
            while table.history and table.history[0].revision <= revision:
                table.history.popleft()
            table.forgotten = max(table.forgotten, min(revision, self.revision))

    def subscribe(self, callback: Callable[[StoreEvent], None]) -> Callable[[], None]:
        """Call ``callback`` after each change, of all kinds; return the function that ends it. It must not block."""
        self._next_subscriber += 1
        number = self._next_subscriber
        self._subscribers[number] = callback

        def unsubscribe() -> None:
            self._subscribers.pop(number, None)

        return unsubscribe

    def _record(self, table: _Table, event: StoreEvent) -> None:
        if len(table.history) >= self._limit:
            table.forgotten = table.history.popleft().revision
        table.history.append(event)
        self._pending.append(event)
        if len(self._pending) > 1:
            return  # a subscriber wrote: what it caused comes after what caused it, for everybody
        while self._pending:
            for callback in list(self._subscribers.values()):
                callback(self._pending[0])
            self._pending.popleft()


def identity(obj: Object) -> tuple[str, str]:
    """Return (namespace, name) of an object."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _at(obj: Object, revision: int) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


def deep_copy(obj: Object) -> Object:
    """Return a deep copy of an object, which its holder may change."""
    copied: Object = msgspec.json.decode(msgspec.json.encode(obj))
    return copied
