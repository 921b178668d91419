"""Finds the objects that belong to something without looking at all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from muster.sandbox.core.store import Key, Object, Store, StoreEvent, identity

PODS: Final[Key] = ("", "pods")


class Indexer:
    """The objects of one kind by a value read from each. Follows the store from its making on."""

    def __init__(self, store: Store, key: Key, value: Callable[[Object], str]) -> None:
        """Index ``key`` by ``value``; an object for which that is empty is left out."""
        self._key = key
        self._value = value
        self._found: dict[str, dict[tuple[str, str], Object]] = {}
        for obj in store.list(key):
            self._put(obj)
        self.close = store.subscribe(self._follow)
        """Follow the store no longer."""

    def get(self, value: str) -> list[Object]:
        """Return the objects of that value, in the order of their creation."""
        return list(self._found.get(value, {}).values())

    def _follow(self, event: StoreEvent) -> None:
        if event.key != self._key:
            return
        if event.old is not None and (event.type == "DELETED" or self._value(event.old) != self._value(event.object)):
            self._drop(event.old)
        if event.type != "DELETED":
            self._put(event.object)

    def _put(self, obj: Object) -> None:
        value = self._value(obj)
        if value:
            self._found.setdefault(value, {})[identity(obj)] = obj

    def _drop(self, obj: Object) -> None:
        value = self._value(obj)
        group = self._found.get(value)
        if group is not None:
            group.pop(identity(obj), None)
            if not group:
                del self._found[value]
