"""The ReplicaSet controller: as many active pods as asked for, adopted or made; and what ``kubectl`` reads of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.controller_ref import ControllerRefManager, claimants
from muster.sandbox.controllers.indexer import PODS, Indexer
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.pods import controller_uid
from muster.sandbox.controllers.plans.times import stamp
from muster.sandbox.controllers.writer import slow_start
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import REPLICASET_CONTROLLER
from muster.sandbox.server.requests import ApiServer

REPLICASETS: Final[Key] = ("apps", "replicasets")

_AT_ONCE: Final = 500
_BATCH_SECONDS: Final = 0.1
"""How long changes of pods are collected, so that a thousand of them don't cost a thousand looks at a thousand pods."""


class Plan(Struct, frozen=True):
    """Pods to make and to delete, the status (without the condition of a refusal), and when to look again."""

    create: int
    delete: Sequence[Object]
    status: dict[str, Any]
    wake: float | None


def plan(replicaset: Object, pods: Sequence[Object], now: datetime) -> Plan:
    """Decide about a ReplicaSet that controls exactly ``pods``."""
    active = [pod for pod in pods if p.active(pod)]
    surplus = len(active) - replicaset["spec"].get("replicas", 1)
    create, delete = (0, []) if p.leaving(replicaset) else (max(0, -surplus), _surplus(active, surplus))
    available_from = [p.available_at(pod, replicaset["spec"].get("minReadySeconds", 0)) for pod in active]
    pending = [at for at in available_from if at is not None and at > now]
    template_labels = replicaset["spec"]["template"]["metadata"].get("labels") or {}
    counts = {
        "fullyLabeledReplicas": sum(_labelled(pod, template_labels) for pod in active),
        "readyReplicas": sum(map(p.ready, active)),
        "availableReplicas": sum(at is not None and at <= now for at in available_from),
    }
    status = {
        "replicas": len(active),
        "terminatingReplicas": sum(p.leaving(pod) and not p.ended(pod) for pod in pods),
        "observedGeneration": replicaset["metadata"]["generation"],
        **{name: count for name, count in counts.items() if count},
    }
    wake = (min(pending) - now).total_seconds() if pending else None
    return Plan(min(create, _AT_ONCE), delete[:_AT_ONCE], status, wake)


def _surplus(active: list[Object], surplus: int) -> list[Object]:
    return p.least_valuable_first(active)[:surplus] if surplus > 0 else []


def _labelled(pod: Object, labels: dict[str, str]) -> bool:
    return labels.items() <= (pod["metadata"].get("labels") or {}).items()


class ReplicaSetController(Controller[tuple[str, str]]):
    """Keeps ReplicaSets at their size."""

    WORKERS = 5

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, REPLICASET_CONTROLLER, "replicaset-controller")
        self._pods = Indexer(self.store, PODS, controller_uid)
        self._claims = ControllerRefManager(self.write, self._pods)

    def observe(self, event: StoreEvent) -> None:
        """A changed ReplicaSet at once; those that a changed pod belongs to, or could, with others."""
        if event.key == REPLICASETS and event.type != "DELETED":
            self.queue.add(identity(event.object))
        elif event.key == PODS:
            self._observe_pod(event.object)
            if event.old is not None and controller_uid(event.old) != controller_uid(event.object):
                self._observe_pod(event.old)

    def _observe_pod(self, pod: Object) -> None:
        for name in claimants(self.store, REPLICASETS, "ReplicaSet", pod):
            self.queue.add_after(name, _BATCH_SECONDS)

    async def sync(self, name: tuple[str, str]) -> None:
        """Bring a ReplicaSet to its size."""
        replicaset = self.store.get(REPLICASETS, *name)
        if replicaset is None:
            return
        await self._claims.settle(replicaset)
        todo = plan(replicaset, self._pods.get(replicaset["metadata"]["uid"]), self.server.clock.now())
        refusal = await slow_start(todo.create, lambda _: self._create(replicaset))
        await asyncio.gather(*(self._delete(replicaset, pod) for pod in todo.delete))
        status = todo.status | _conditions(replicaset, refusal, self.server.clock.now())
        await self.write.update_status(REPLICASETS, replicaset, status)
        if todo.wake is not None:
            self.queue.add_after(name, todo.wake)
        if refusal is not None:
            raise refusal

    async def _create(self, replicaset: Object) -> None:
        namespace, name = identity(replicaset)
        pod = p.from_template(replicaset["spec"]["template"], replicaset, f"{name}-")
        try:
            made = await self.write.create(PODS, namespace, pod)
        except StatusError as error:
            await self.events.warning(replicaset, "FailedCreate", f"Error creating: {error.message}")
            raise
        await self.events.normal(replicaset, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")

    async def _delete(self, replicaset: Object, pod: Object) -> None:
        if await self.write.delete(PODS, pod) is not None:
            await self.events.normal(replicaset, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")


def _conditions(replicaset: Object, refusal: StatusError | None, now: datetime) -> dict[str, Any]:
    """Return the status' conditions: ReplicaFailure as long as pods can't be made."""
    kind = "ReplicaFailure"
    old = (replicaset.get("status") or {}).get("conditions") or ()
    others = [each for each in old if each["type"] != kind]
    if refusal is not None:
        # The first refusal stays: each names another pod, and a changed condition would bring the next try at once.
        failure = {"type": kind, "status": "True", "reason": "FailedCreate", "message": refusal.message}
        others.append(p.condition(replicaset, kind) or {**failure, "lastTransitionTime": stamp(now)})
    return {"conditions": others} if others else {}
