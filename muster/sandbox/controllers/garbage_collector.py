"""The garbage collector: deletes or orphans an object when its owners are deleted.

An object whose owners are all gone is deleted; one that has another owner left loses its references to those that
aren't there. An owner that is deleted in the foreground waits for the dependents that block it; one that is deleted
with propagation Orphan lets go of its dependents first. An owner is known by its uid: one of the same name that was made
anew is another one, and so is one of a cluster-scoped object in some namespace.

Owners of a kind that the server doesn't serve can't be looked up; their dependents are left alone, as by the real one.
"""

from __future__ import annotations

from typing import Any, Final

from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import GARBAGE_COLLECTOR
from muster.sandbox.server.requests import ApiServer

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"

Name = tuple[Key, str, str]
Owner = dict[str, Any]

_UNOWNED: Final[frozenset[Key]] = frozenset({("", "events")})
"""Kinds that have no owners, and so many objects that looking at them would be felt."""


class GarbageCollector(Controller[Name]):
    """Follows ownerReferences."""

    WORKERS = 8

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, GARBAGE_COLLECTOR, "garbage-collector-controller")
        self._dependents: dict[str, dict[Name, None]] = {}

    def observe(self, event: StoreEvent) -> None:
        """The object itself, its dependents when it goes, its owners when it does or stops blocking them."""
        if event.key in _UNOWNED:
            return
        name = (event.key, *identity(event.object))
        old = _owners(event.old) if event.old is not None else []
        new = _owners(event.object) if event.type != "DELETED" else []
        if old != new:
            self._relink(name, old, new)
        if event.type == "DELETED":
            for dependent in self._dependents.get(event.object["metadata"]["uid"], ()):
                self.queue.add(dependent)
            self._add_owners(event.object, old)
        elif self._concerns(event, changed=old != new):
            self.queue.add(name)
            self._add_owners(event.object, old if old != new else new)

    def _relink(self, name: Name, old: list[Owner], new: list[Owner]) -> None:
        for owner in old:
            group = self._dependents.get(owner["uid"], {})
            group.pop(name, None)
            if not group:
                self._dependents.pop(owner["uid"], None)
        for owner in new:
            self._dependents.setdefault(owner["uid"], {})[name] = None

    @staticmethod
    def _concerns(event: StoreEvent, *, changed: bool) -> bool:
        return changed or (p.leaving(event.object) and bool(event.object["metadata"].get("finalizers")))

    def _add_owners(self, obj: Object, owners: list[Owner]) -> None:
        """Look at owners that wait for their dependents."""
        for owner in owners:
            found = self._find(obj, owner)
            if found is not None and p.leaving(found[1]):
                self.queue.add((found[0], *identity(found[1])))

    async def sync(self, name: Name) -> None:
        """Delete, unlink or release an object, if that is what its owners or dependents ask for."""
        obj = self.store.get(*name)
        if obj is None:
            return
        finalizers = obj["metadata"].get("finalizers") or ()
        if p.leaving(obj):
            if ORPHAN in finalizers:
                await self._orphan(name, obj)
            elif FOREGROUND in finalizers:
                await self._wait_for_dependents(name, obj)
            return
        if _owners(obj):
            await self._check_owners(name, obj)

    # ── an owner that goes ───────────────────────────────────────────────────────────────────────────────────────

    async def _orphan(self, name: Name, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for key, dependent in self._present(uid):
            await self._unlink(key, dependent, {uid})
        await self._drop_finalizer(name[0], owner, ORPHAN)

    async def _wait_for_dependents(self, name: Name, owner: Object) -> None:
        """Delete what blocks the owner; when nothing does any more, let it go."""
        uid = owner["metadata"]["uid"]
        blocking = [(key, each) for key, each in self._present(uid) if _blocks(each, uid)]
        for key, dependent in blocking:
            if not p.leaving(dependent):
                self.queue.add((key, *identity(dependent)))
        if not blocking:
            await self._drop_finalizer(name[0], owner, FOREGROUND)

    def _present(self, uid: str) -> list[tuple[Key, Object]]:
        names = list(self._dependents.get(uid, ()))
        found = [(name[0], self.store.get(*name)) for name in names]
        return [(key, obj) for key, obj in found if obj is not None]

    async def _drop_finalizer(self, key: Key, obj: Object, finalizer: str) -> None:
        others = [each for each in obj["metadata"]["finalizers"] if each != finalizer]
        await self._patch(key, obj, {"finalizers": others or None})

    # ── an object whose owners went ──────────────────────────────────────────────────────────────────────────────

    async def _check_owners(self, name: Name, obj: Object) -> None:
        owners = _owners(obj)
        if any(self._unknown_kind(owner) for owner in owners):
            return
        found = {owner["uid"]: self._find(obj, owner) for owner in owners}
        waiting = {uid for uid, each in found.items() if each is not None and _waits(each[1])}
        gone = {uid for uid, each in found.items() if each is None}
        if len(gone) + len(waiting) < len(found):
            if gone or waiting:
                await self._unlink(name[0], obj, gone | waiting)
            return
        await self.write.delete(name[0], obj, propagation=self._propagation(obj, waiting=bool(waiting)))

    def _propagation(self, obj: Object, *, waiting: bool) -> str:
        """A dependent of an owner that waits goes the same way, so that the owner waits for all below it."""
        finalizers = obj["metadata"].get("finalizers") or ()
        if waiting and self._dependents.get(obj["metadata"]["uid"]):
            return "Foreground"
        if ORPHAN in finalizers:
            return "Orphan"
        return "Foreground" if FOREGROUND in finalizers else "Background"

    async def _unlink(self, key: Key, obj: Object, uids: set[str]) -> None:
        remaining = [owner for owner in _owners(obj) if owner["uid"] not in uids]
        await self._patch(key, obj, {"ownerReferences": remaining or None})

    async def _patch(self, key: Key, obj: Object, metadata: dict[str, Any]) -> None:
        uid = obj["metadata"]["uid"]
        try:
            await self.write.patch(key, obj, {"metadata": {"uid": uid, **metadata}})
        except StatusError as error:
            if error.code != 404:
                raise

    def _unknown_kind(self, owner: Owner) -> bool:
        group, _, version = owner["apiVersion"].rpartition("/")
        return self.server.registry.by_kind(group, owner["kind"], version) is None

    def _find(self, obj: Object, owner: Owner) -> tuple[Key, Object] | None:
        """Return an owner that exists, with its key; None when there is none of that uid."""
        group, _, version = owner["apiVersion"].rpartition("/")
        resource = self.server.registry.by_kind(group, owner["kind"], version)
        if resource is None:
            return None
        namespace = identity(obj)[0] if resource.namespaced else ""
        found = self.store.get(resource.key, namespace, owner["name"])
        if found is None or found["metadata"]["uid"] != owner["uid"]:
            return None
        return resource.key, found


def _owners(obj: Object) -> list[Owner]:
    return obj["metadata"].get("ownerReferences") or []


def _blocks(dependent: Object, uid: str) -> bool:
    return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in _owners(dependent))


def _waits(owner: Object) -> bool:
    return p.leaving(owner) and FOREGROUND in (owner["metadata"].get("finalizers") or ())
