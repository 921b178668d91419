"""ControllerRevisions: the templates that a StatefulSet or DaemonSet had, numbered; what ``kubectl rollout undo`` reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.controllers.indexer import Indexer
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.pods import controller_uid
from muster.sandbox.controllers.plans.templates import template_hash
from muster.sandbox.controllers.writer import Writer
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, identity

REVISIONS: Final[Key] = ("apps", "controllerrevisions")


class History(Struct, frozen=True):
    """The revisions of an object, oldest first; ``update`` is that of its template, the last one."""

    revisions: Sequence[Object]

    @property
    def update(self) -> Object:
        """Return the newest."""
        return self.revisions[-1]

    def named(self, name: str) -> Object:
        """Return the revision of that name, or the newest where there is none."""
        return next((each for each in self.revisions if each["metadata"]["name"] == name), self.update)


class Revisions:
    """Keeps the history of one kind's objects. ``label`` is that of a revision with its hash."""

    def __init__(self, write: Writer, key: Key, label: str) -> None:
        self._write = write
        self._key = key
        self._label = label
        self._known = Indexer(write.server.store, REVISIONS, controller_uid)

    async def record(self, owner: Object) -> History:
        """See that the newest revision is that of the owner's template.

        Raises:
            StatusError: a write was refused; where another object has the name, the next try takes another.
        """
        known = sorted(self._known.get(owner["metadata"]["uid"]), key=_age)
        data = _data(owner)
        same = [each for each in known if each["data"] == data]
        if not same:
            return History([*known, await self._create(owner, data, _next(known))])
        if same[-1] is known[-1]:
            return History(known)
        # Back to an earlier template: it is the newest now.
        renewed = await self._write.patch(REVISIONS, same[-1], {"revision": _next(known)})
        return History([*(each for each in known if each is not same[-1]), renewed])

    async def forget(self, owner: Object, history: History, live: Collection[str]) -> None:
        """Delete the oldest of those that no pod is of (``live`` names the others), beyond the limit."""
        unused = [each for each in history.revisions[:-1] if each["metadata"]["name"] not in live]
        for each in unused[: max(0, len(unused) - owner["spec"].get("revisionHistoryLimit", 10))]:
            await self._write.delete(REVISIONS, each)

    async def _create(self, owner: Object, data: Object, number: int) -> Object:
        namespace, name = identity(owner)
        collisions = (owner.get("status") or {}).get("collisionCount", 0)
        digest = template_hash(owner["spec"]["template"], collisions)
        labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
        metadata: Mapping[str, Any] = {
            "name": f"{name}-{digest}",
            "labels": {**labels, self._label: digest},
            "annotations": owner["metadata"].get("annotations") or {},
            "ownerReferences": [p.owner_reference(owner)],
        }
        body = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata}
        try:
            return await self._write.create(REVISIONS, namespace, {**body, "data": data, "revision": number})
        except StatusError as error:
            if error.reason == "AlreadyExists":
                orphan = self._write.server.store.get(REVISIONS, namespace, metadata["name"])
                if orphan is not None and not controller_uid(orphan) and orphan["data"] == data:
                    taken = {"metadata": {"ownerReferences": metadata["ownerReferences"]}, "revision": number}
                    return await self._write.patch(REVISIONS, orphan, taken)
                counted = {**(owner.get("status") or {}), "collisionCount": collisions + 1}
                await self._write.update_status(self._key, owner, counted)
            raise


def _data(owner: Object) -> Object:
    return {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}


def _next(known: Sequence[Object]) -> int:
    return known[-1]["revision"] + 1 if known else 1


def _age(revision: Object) -> tuple[int, str, str]:
    metadata = revision["metadata"]
    return revision["revision"], metadata["creationTimestamp"], metadata["name"]
