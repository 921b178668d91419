"""Keeps the registry in step with the CustomResourceDefinitions in the store, and empties those that go."""

from __future__ import annotations

from typing import Final

from muster.kube.clock import Clock
from muster.sandbox.core.registry import Registry, Resource
from muster.sandbox.core.store import Key, Object, Store, StoreEvent, identity
from muster.sandbox.server import deletion
from muster.sandbox.strategies.definitions import CLEANUP, declared

_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")


class Definitions:
    """Serves what definitions declare, from the moment they are stored."""

    def __init__(self, store: Store, registry: Registry, clock: Clock) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._leaving: dict[Key, str] = {}
        """Keys whose definition is being deleted, and its name."""
        for definition in store.list(_DEFINITIONS):
            self._serve(definition)
        self.close = store.subscribe(self._on_change)

    def _on_change(self, event: StoreEvent) -> None:
        if event.key == _DEFINITIONS:
            self._on_definition(event)
        elif event.type == "DELETED" and event.key in self._leaving:
            self._finish_when_empty(event.key)

    def _on_definition(self, event: StoreEvent) -> None:
        definition = event.object
        key = (definition["spec"]["group"], definition["spec"]["names"]["plural"])
        if event.type == "DELETED":
            self._leaving.pop(key, None)
            self._registry.remove(*key)
            return
        if event.old is None or event.old["spec"] != definition["spec"]:
            self._serve(definition)
        if definition["metadata"].get("deletionTimestamp") and key not in self._leaving:
            self._leaving[key] = definition["metadata"]["name"]
            self._empty(key)

    def _serve(self, definition: Object) -> None:
        resources = declared(definition)
        first = resources[0]
        self._registry.remove(first.group, first.plural)
        for resource in resources:
            self._registry.add(resource)

    def _empty(self, key: Key) -> None:
        """Delete every object of a kind that goes, without admission, as the real server does."""
        resource = self._registry.by_key(key)
        assert resource is not None, "it is served until its definition is gone"
        for obj in self._store.list(key):
            self._delete(resource, obj)
        self._finish_when_empty(key)

    def _delete(self, resource: Resource, obj: Object) -> None:
        outcome = deletion.decide(resource, obj, {}, self._clock.now())
        if outcome.gone:
            self._store.remove(resource.key, *identity(obj))
        elif outcome.object is not obj:
            self._store.put(resource.key, outcome.object)

    def _finish_when_empty(self, key: Key) -> None:
        name = self._leaving.get(key)
        definition = self._store.get(_DEFINITIONS, "", name) if name else None
        if definition is None or self._store.count(key):
            return
        finalizers = [each for each in definition["metadata"].get("finalizers") or () if each != CLEANUP]
        if not finalizers:
            self._store.remove(_DEFINITIONS, "", definition["metadata"]["name"])
        elif len(finalizers) < len(definition["metadata"]["finalizers"]):
            metadata = {**definition["metadata"], "finalizers": finalizers}
            self._store.put(_DEFINITIONS, {**definition, "metadata": metadata})
