"""Creating, changing and deleting, as transactions on the store with admission in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from msgspec.structs import replace

from muster.kube.clock import Clock
from muster.sandbox.admission import Attributes
from muster.sandbox.core.registry import Registry
from muster.sandbox.core.request_info import RequestInfo
from muster.sandbox.core.status import (
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    unsupported,
    wrong,
)
from muster.sandbox.core.store import Object, Store, identity
from muster.sandbox.fieldmanager.ownership import Ownership
from muster.sandbox.server import builtin_admission, deletion
from muster.sandbox.strategies.table import strategy_of

Json = dict[str, Any]
Change = Callable[[Object], Json]
"""Makes the new object, private to the caller, of the stored one."""

_TRIES: Final = 6
_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")


class Admission(Protocol):
    """What stands between a write and the store."""

    async def admit(self, attributes: Attributes, warnings: list[str]) -> Json | None:
        """Return the object to store, or None for a deletion; add to ``warnings`` what the user shall read.

        In the real server's order: mutating steps, then `ApiServer.complete` on the result (it names the object,
        resets what a client may not set, applies defaults and validates), then validating steps on what it gave.

        Raises:
            StatusError: the write is refused.
        """
        ...


class Writes:
    """The writes to one store.

    Attributes:
        store: what is written to.
        clock: what time it is.
        admission: whom a write has to pass.
    """

    def __init__(
        self, store: Store, clock: Clock, registry: Registry, ownership: Ownership, admission: Admission
    ) -> None:
        self.store = store
        self.clock = clock
        self.admission = admission
        self._registry = registry
        self._ownership = ownership

    async def create(self, info: RequestInfo, obj: Json) -> Object:
        """Create an object, private to this request; return it as stored.

        Raises:
            StatusError: whatever speaks against it.
        """
        target, resource = info.target, info.resource
        strategy = strategy_of(resource)
        if strategy.refused:
            raise unsupported(strategy.refused)
        metadata = obj["metadata"]
        if resource.namespaced:
            _fit_namespace(metadata, target.namespace)
        if metadata.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        self._check_place(info, metadata.get("name", ""))
        self._ownership.created(info, obj)
        builtin_admission.on_create(self.store, resource, obj)
        admitted = await self._admit(info, "CREATE", obj, None)
        assert admitted is not None, "admission gives the object of a CREATE"
        # Admission may have waited for a webhook: what was true before it has to be true still.
        self._check_place(info, metadata.get("name", ""))
        namespace, name = identity(admitted)
        if self.store.get(resource.key, namespace, name) is not None:
            raise already_exists(resource, name)
        if strategy.uncontrolled:
            info.warnings.append(strategy.uncontrolled)
        return admitted if info.dry_run else self.store.put(resource.key, admitted)

    async def update(
        self, info: RequestInfo, change: Change, *, subresource: str | None = None, pinned: bool | None = None
    ) -> Object:
        """Change an object; ``change`` may be asked again when somebody else was faster.

        ``pinned``: whether the change is of one version only; None where the object that it gives says so.

        Raises:
            StatusError: whatever speaks against it.
        """
        subresource = info.target.subresource if subresource is None else subresource
        for _ in range(_TRIES):
            old = self._existing(info)
            obj = change(old)
            if info.resource.namespaced:
                _fit_namespace(obj["metadata"], info.target.namespace)
            versioned = self._check_versions(info, obj, old)
            self._ownership.updated(info, obj, old)
            admitted = await self._admit(info, "UPDATE", obj, old, subresource)
            assert admitted is not None, "admission gives the object of an UPDATE"
            if self._existing(info) is old:
                return self._keep(info, admitted, old)
            if versioned if pinned is None else pinned:
                break
        raise conflict(info.resource, info.target.name)

    async def delete(self, info: RequestInfo, options: Json) -> tuple[Object, bool]:
        """Delete an object, or begin to; return its last state, and whether it is gone.

        Raises:
            StatusError: whatever speaks against it.
        """
        builtin_admission.check_deletion(info.target)
        for _ in range(_TRIES):
            old = self._existing(info)
            deletion.check_preconditions(info.resource, old, options)
            await self._admit(info, "DELETE", None, old)
            if self._existing(info) is old:
                return self._delete_now(info, old, options)
        raise conflict(info.resource, info.target.name)

    def _delete_now(self, info: RequestInfo, old: Object, options: Json) -> tuple[Object, bool]:
        now = self.clock.now()
        outcome = deletion.decide(info.resource, old, options, now)
        if outcome.gone:
            if info.dry_run:
                return outcome.object, True
            if outcome.object is not old:
                self.store.put(info.resource.key, outcome.object)
            removed = self.store.remove(info.resource.key, *identity(old))
            return removed, True
        if info.dry_run or outcome.object == old:
            return outcome.object, False
        return self.store.put(info.resource.key, outcome.object), False

    def _keep(self, info: RequestInfo, admitted: Json, old: Object) -> Object:
        admitted["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if deletion.finished(info.resource, admitted):
            if not info.dry_run:
                self.store.remove(info.resource.key, *identity(old))
            return admitted
        if admitted == old:
            return old
        return admitted if info.dry_run else self.store.put(info.resource.key, admitted)

    def _existing(self, info: RequestInfo) -> Object:
        target = info.target
        found = self.store.get(info.resource.key, target.namespace, target.name)
        if found is None:
            raise not_found(info.resource, target.name)
        return found

    def _check_versions(self, info: RequestInfo, obj: Json, old: Object) -> bool:
        metadata, resource = obj["metadata"], info.resource
        given = metadata.get("resourceVersion") or ""
        if given in {"", "0"}:
            if not strategy_of(resource).unconditional:
                cause = wrong("metadata.resourceVersion", 0, "must be specified for an update")
                raise invalid(replace(resource, kind=resource.plural), info.target.name, [cause])
            return False
        if given != old["metadata"]["resourceVersion"]:
            raise conflict(resource, info.target.name)
        return True

    def _check_place(self, info: RequestInfo, name: str) -> None:
        namespaces = self._registry.find("", "v1", "namespaces")
        assert namespaces is not None, "namespaces are built in"
        builtin_admission.check_namespace(self.store, namespaces, info.target, name)
        if info.resource.custom:
            definition = self.store.get(_DEFINITIONS, "", info.resource.crd)
            if definition is not None and definition["metadata"].get("deletionTimestamp"):
                why = "create not allowed while custom resource definition is terminating"
                raise forbidden(info.resource, name, why)

    async def _admit(
        self, info: RequestInfo, operation: str, obj: Json | None, old: Object | None, subresource: str | None = None
    ) -> Json | None:
        target = info.target
        name = target.name or (obj or {}).get("metadata", {}).get("name", "")
        attributes = Attributes(
            operation=operation,
            resource=target.resource,
            subresource=target.subresource if subresource is None else subresource,
            namespace=target.namespace,
            name=name,
            object=obj,
            old_object=old,
            user=info.user,
            dry_run=info.dry_run,
            options=_told(info.options, operation),
        )
        return await self.admission.admit(attributes, info.warnings)

    async def admit_subresource(self, info: RequestInfo, operation: str, obj: Json, old: Object | None = None) -> Json:
        """Admit what isn't the object itself: a Scale, a Binding, an Eviction."""
        admitted = await self._admit(info, operation, obj, old)
        assert admitted is not None, "admission gives the object of a write"
        return admitted


def _told(options: Json, operation: str) -> Json:
    """Return the options as admission is told: a patch is to it the update, or the creation, that it comes to."""
    if options.get("kind") != "PatchOptions":
        return options
    kept = {key: value for key, value in options.items() if key != "force"}
    return {**kept, "kind": "CreateOptions" if operation == "CREATE" else "UpdateOptions"}


def _fit_namespace(metadata: Json, namespace: str) -> None:
    given = metadata.setdefault("namespace", namespace)
    if given != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def check_uid(info: RequestInfo, obj: Json, old: Object) -> None:
    """Refuse a replacement that is meant for another object of the same name (409)."""
    given, actual = obj["metadata"].get("uid", ""), old["metadata"]["uid"]
    if given and given != actual:
        resource, target = info.resource, info.target
        place = "/".join(part for part in (resource.group * resource.custom, resource.plural, target.namespace) if part)
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{place}/{target.name}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {actual}"
        )
        raise conflict(info.resource, info.target.name, why)
