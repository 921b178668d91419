"""The quota controller: recounts what admission, which only ever adds, has no way to give back.

On a new limit, when something goes or ends, and every five minutes, because a write that fails after it was counted
leaves the count too high.
"""

from __future__ import annotations

from typing import Final

from muster.sandbox.admission import usage
from muster.sandbox.admission.quota import QUOTAS
from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.indexer import PODS
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.core.store import StoreEvent, identity
from muster.sandbox.core.users import service_account
from muster.sandbox.server.requests import ApiServer

_BATCH_SECONDS: Final = 0.2
"""How long changes are collected: a recount looks at every object of the namespace."""

_RESYNC_SECONDS: Final = 300.0


class QuotaController(Controller[tuple[str, str]]):
    """Keeps ``status`` of ResourceQuotas."""

    def __init__(self, server: ApiServer) -> None:
        user = service_account("kube-system", "resourcequota-controller")
        super().__init__(server, user, "resourcequota-controller")

    def observe(self, event: StoreEvent) -> None:
        """A quota whose limits changed; the quotas of a namespace in which something went."""
        if event.key == QUOTAS:
            if event.type != "DELETED" and (event.old is None or event.old.get("spec") != event.object.get("spec")):
                self.queue.add(identity(event.object))
        elif identity(event.object)[0] and _may_free(event):
            for quota in self.store.list(QUOTAS, identity(event.object)[0]):
                if usage.tracked(event.key, (quota.get("spec") or {}).get("hard") or ()):
                    self.queue.add_after(identity(quota), _BATCH_SECONDS)

    async def sync(self, name: tuple[str, str]) -> None:
        """Recount a quota."""
        quota = self.store.get(QUOTAS, *name)
        if quota is None or p.leaving(quota):
            return
        hard = (quota.get("spec") or {}).get("hard") or {}
        counted = usage.used(quota, hard, lambda key: self.store.list(key, name[0]), self._kinds())
        status = {"hard": hard, "used": {resource: str(amount) for resource, amount in counted.items()}}
        self.queue.add_after(name, _RESYNC_SECONDS)
        await self.write.update_status(QUOTAS, quota, status)

    def _kinds(self) -> list[tuple[str, str]]:
        return list({resource.key: None for resource in self.server.registry.all() if resource.namespaced})


def _may_free(event: StoreEvent) -> bool:
    if event.type == "DELETED":
        return True
    if event.key == PODS:
        return event.old is not None and p.ended(event.object) != p.ended(event.old)
    return event.type == "MODIFIED" and event.key in {usage.SERVICES, usage.CLAIMS}
