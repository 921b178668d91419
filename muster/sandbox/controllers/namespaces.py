"""The namespace controller: empties a namespace that is deleted, says what holds it up, and lets it go."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, Final

import msgspec

from muster.kube.transport import Request
from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.times import stamp
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import NAMESPACE_CONTROLLER
from muster.sandbox.server.requests import ApiServer

NAMESPACES: Final[Key] = ("", "namespaces")

Json = dict[str, Any]

_FINE: Final = (
    ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
)


class NamespaceController(Controller[str]):
    """Ends namespaces."""

    LONGEST_PAUSE = 60.0

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, NAMESPACE_CONTROLLER, "namespace-controller")
        self._ending: set[str] = set()

    def observe(self, event: StoreEvent) -> None:
        """A namespace that is deleted; one that is, when something in it goes."""
        if event.key == NAMESPACES:
            name = event.object["metadata"]["name"]
            if event.type == "DELETED":
                self._ending.discard(name)
            elif p.leaving(event.object):
                self._ending.add(name)
                self.queue.add(name)
        elif self._ending:
            namespace = identity(event.object)[0]
            if namespace in self._ending:
                self.queue.add(namespace)

    async def sync(self, name: str) -> None:
        """Delete what is left; finish when nothing is."""
        namespace = self.store.get(NAMESPACES, "", name)
        if namespace is None or not p.leaving(namespace):
            return
        refusals = await self._empty(name)
        left = self._contents(name)
        namespace = self.store.get(NAMESPACES, "", name) or namespace
        if left or refusals:
            status = {
                **(namespace.get("status") or {}),
                "conditions": _conditions(namespace, left, refusals, self._now()),
            }
            await self.write.update_status(NAMESPACES, namespace, status)
        elif namespace["spec"].get("finalizers"):
            whole = {**namespace, "spec": {**namespace["spec"], "finalizers": []}}
            path = f"/api/v1/namespaces/{name}/finalize"
            await self.write.request(Request("PUT", path, {}, msgspec.json.encode(whole)))
        if refusals:
            raise refusals[0]

    def _now(self) -> datetime:
        return self.server.clock.now()

    async def _empty(self, name: str) -> list[StatusError]:
        refusals = []
        for resource, obj in self._contents(name):
            if p.leaving(obj):
                continue
            try:
                await self.write.delete(resource.key, obj)
            except StatusError as error:
                refusals.append(error)
        return refusals

    def _contents(self, name: str) -> list[tuple[Resource, Object]]:
        found = []
        kinds = self.store.keys()
        for key in kinds:
            resource = self.server.registry.by_key(key)
            if resource is not None and resource.namespaced:
                found += [(resource, obj) for obj in self.store.list(key, name)]
        return found


def _conditions(
    namespace: Object, left: list[tuple[Resource, Object]], refusals: list[StatusError], now: datetime
) -> list[Json]:
    kinds = Counter(resource.qualified if resource.group else f"{resource.plural}." for resource, _ in left)
    finalizers = Counter(each for _, obj in left for each in obj["metadata"].get("finalizers") or ())
    content = ("False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization")
    if refusals:
        texts = ", ".join(sorted({refusal.message for refusal in refusals}))
        content = (
            "True",
            "ContentDeletionFailed",
            f"Failed to delete all resource types, {len(refusals)} remaining: {texts}",
        )
    rows = [
        *_FINE,
        ("NamespaceDeletionContentFailure", *content),
        ("NamespaceContentRemaining", *_remaining(kinds)),
        ("NamespaceFinalizersRemaining", *_held(finalizers)),
    ]
    return [_condition(namespace, kind, status, reason, message, now) for kind, status, reason, message in rows]


def _remaining(kinds: Counter[str]) -> tuple[str, str, str]:
    if not kinds:
        return "False", "ContentRemoved", "All content successfully removed"
    texts = ", ".join(f"{kind} has {number} resource instances" for kind, number in sorted(kinds.items()))
    return "True", "SomeResourcesRemain", f"Some resources are remaining: {texts}"


def _held(finalizers: Counter[str]) -> tuple[str, str, str]:
    if not finalizers:
        return "False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"
    texts = ", ".join(f"{name} in {number} resource instances" for name, number in sorted(finalizers.items()))
    return "True", "SomeFinalizersRemain", f"Some content in the namespace has finalizers remaining: {texts}"


def _condition(namespace: Object, kind: str, status: str, reason: str, message: str, now: datetime) -> Json:
    old = p.condition(namespace, kind)
    since = old["lastTransitionTime"] if old and old["status"] == status else stamp(now)
    return {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
