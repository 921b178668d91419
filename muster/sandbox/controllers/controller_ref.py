"""Owner references of pods: controllers adopt pods without a controller, and release pods that they don't select."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster.sandbox.codec import selectors
from muster.sandbox.controllers.indexer import PODS, Indexer
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.pods import controller_of
from muster.sandbox.controllers.writer import Writer
from muster.sandbox.core.store import Key, Object, Store, StoreEvent, identity


def selects(owner: Object, pod: Object) -> bool:
    """Whether the owner's selector takes a pod; an empty one takes none."""
    requirements = selectors.from_object(owner["spec"]["selector"])
    if not requirements:
        return False
    return selectors.matches_labels(requirements, pod["metadata"].get("labels"))


def claimants(store: Store, key: Key, kind: str, pod: Object) -> list[tuple[str, str]]:
    """Return the names of the owners of a kind that a pod concerns: its controller, or, without one, who could take it."""
    namespace = identity(pod)[0]
    controller = controller_of(pod)
    if controller is not None:
        return [(namespace, controller["name"])] if controller["kind"] == kind else []
    if not pod["metadata"].get("labels") or not p.active(pod):
        return []
    return [identity(owner) for owner in store.list(key, namespace) if selects(owner, pod)]


def concerned(store: Store, key: Key, kind: str, event: StoreEvent) -> set[tuple[str, str]]:
    """Return the names of the owners of a kind that a pod's change concerns: as the pod was, and as it is."""
    return {name for pod in (event.object, event.old) if pod for name in claimants(store, key, kind, pod)}


class ControllerRefManager:
    """Adopts and releases the pods of one kind's objects; ``fits`` says what they need beside the selector."""

    def __init__(self, write: Writer, pods: Indexer, fits: Callable[[Object, Object], bool] = lambda *_: True) -> None:
        """Work on ``pods``, an index by the uid of the controller."""
        self._write = write
        self._pods = pods
        self._fits = fits
        self._orphans = Indexer(write.server.store, PODS, lambda pod: "" if controller_of(pod) else identity(pod)[0])

    async def settle(self, owner: Object) -> None:
        """Take over what nobody controls and the selector takes; let go of own pods that it doesn't.

        An owner that is being deleted does neither.

        Raises:
            StatusError: a write was refused.
        """
        if p.leaving(owner):
            return
        for pod in self._orphans.get(identity(owner)[0]):
            if p.active(pod) and self._takes(owner, pod):
                await self._own(pod, [*(pod["metadata"].get("ownerReferences") or ()), p.owner_reference(owner)])
        uid = owner["metadata"]["uid"]
        for pod in self._pods.get(uid):
            if not p.leaving(pod) and not self._takes(owner, pod):
                await self._own(pod, [each for each in pod["metadata"]["ownerReferences"] if each["uid"] != uid])

    def _takes(self, owner: Object, pod: Object) -> bool:
        return selects(owner, pod) and self._fits(owner, pod)

    async def _own(self, pod: Object, owners: list[Any]) -> None:
        await self._write.patch(PODS, pod, {"metadata": {"ownerReferences": owners or None}})
