"""Mutated objects made what would be stored, and proved valid: the step between mutating and validating admission."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from muster.sandbox import schema
from muster.sandbox.admission import Attributes
from muster.sandbox.core.identities import Identities, timestamp
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import Cause, generate_name_conflict, invalid
from muster.sandbox.core.store import Store
from muster.sandbox.server import builtin_admission
from muster.sandbox.strategies import defaulting
from muster.sandbox.strategies.base import (
    Strategy,
    carry,
    validate_finalizers,
    validate_metadata,
    validate_metadata_update,
)
from muster.sandbox.strategies.table import strategy_of

Json = dict[str, Any]

_DEFINITIONS: Final = "apiextensions.k8s.io"  # a server of its own, with laxer rules
_JOBS: Final = ("batch", "jobs")
_NAME_TRIES: Final = 8
_NOT_SPEC: Final = frozenset({"metadata", "status", "apiVersion", "kind"})
_SERVER_SET: Final = ("name", "namespace", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class Completer:
    """Names, stamps, defaults and validates.

    ``native_groups``: Jobs may say what PodGroups of Kubernetes' own are to share, as with its feature gates; else that is dropped.
    """

    def __init__(
        self, store: Store, identities: Identities, now: Callable[[], datetime], *, native_groups: bool = False
    ) -> None:
        self._native_groups = native_groups
        self._store = store
        self._identities = identities
        self._now = now

    def complete(self, attributes: Attributes, obj: Json) -> Json:
        """See `muster.sandbox.server.requests.ApiServer.complete`."""
        if attributes.subresource not in {"", "status"}:
            return obj
        strategy = strategy_of(attributes.resource)
        if obj is not attributes.object:
            # A webhook made it: it may hold anything, and shares parts with what others hold.
            obj = defaulting.with_defaults(attributes.resource, obj, strategy, [])
            if attributes.operation == "CREATE":
                # It may also lack what was added before it was asked.
                builtin_admission.on_create(self._store, attributes.resource, obj)
        if attributes.operation == "CREATE":
            return self._created(attributes, obj, strategy)
        return self._updated(attributes, obj, strategy)

    def _created(self, attributes: Attributes, obj: Json, strategy: Strategy) -> Json:
        resource = attributes.resource
        metadata = obj["metadata"]
        self._identify(resource, metadata)
        strategy.prepare_create(obj)
        self._drop_disabled(resource, obj)
        builtin_admission.allocate(self._store, resource, obj)
        if strategy.counts_generations:
            metadata["generation"] = 1
        causes = validate_metadata(metadata, strategy, namespaced=resource.namespaced)
        if resource.group != _DEFINITIONS and not resource.custom:
            causes += validate_finalizers(metadata)
        _refuse(resource, metadata, causes + self._causes(resource, strategy, obj, None))
        return obj

    def _drop_disabled(self, resource: Resource, obj: Json) -> None:
        if resource.key == _JOBS and not self._native_groups:
            obj["spec"].pop("scheduling", None)

    def _identify(self, resource: Resource, metadata: Json) -> None:
        for key in ("resourceVersion", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(key, None)
        prefix = metadata.get("generateName")
        if prefix and not metadata.get("name"):
            metadata["name"] = self._free_name(resource, metadata.get("namespace", ""), prefix)
        metadata["uid"] = self._identities.uid()
        metadata["creationTimestamp"] = timestamp(self._now())

    def _free_name(self, resource: Resource, namespace: str, prefix: str) -> str:
        name = ""
        for _ in range(_NAME_TRIES):
            name = self._identities.name(prefix)
            if self._store.get(resource.key, namespace, name) is None:
                return name
        raise generate_name_conflict(resource, name)

    def _updated(self, attributes: Attributes, obj: Json, strategy: Strategy) -> Json:
        old, resource = attributes.old_object, attributes.resource
        assert old is not None, "an update has an old object"
        metadata, before = obj["metadata"], old["metadata"]
        for key in _SERVER_SET:
            carry(metadata, before, key)
        metadata.setdefault("uid", before["uid"])
        if attributes.subresource:
            strategy.prepare_status(obj, old)
        else:
            builtin_admission.on_update(resource, obj)
            strategy.prepare_update(obj, old)
            self._drop_disabled(resource, obj)
        carry(obj["metadata"], before, "generation")
        if strategy.counts_generations and not attributes.subresource and _spec_changed(obj, old):
            obj["metadata"]["generation"] = before.get("generation", 0) + 1
        causes = validate_metadata_update(obj["metadata"], before, custom=resource.custom)
        _refuse(resource, before, causes + self._update_causes(attributes, strategy, obj, old))
        return obj

    def _update_causes(self, attributes: Attributes, strategy: Strategy, obj: Json, old: Json) -> list[Cause]:
        if attributes.subresource and not attributes.resource.custom:
            return strategy.validate_status(obj, old)
        return self._causes(attributes.resource, strategy, obj, old)

    def _causes(self, resource: Resource, strategy: Strategy, obj: Json, old: Json | None) -> list[Cause]:
        if resource.custom:
            return schema.validate(resource.schema or {}, obj, old)
        return strategy.validate(obj) if old is None else strategy.validate_update(obj, old)


def _refuse(resource: Resource, metadata: Json, causes: list[Cause]) -> None:
    if causes:
        raise invalid(resource, metadata.get("name", ""), causes)


def _spec_changed(obj: Json, old: Json) -> bool:
    return any(obj.get(key) != old.get(key) for key in obj.keys() | old.keys() if key not in _NOT_SPEC)
