"""The node lifecycle controller: status and taints of nodes, and the pods of deleted nodes.

Of the real node-lifecycle controller and pod garbage collector: the taint of a cordoned node; pods whose node is gone
for 40 seconds are marked Failed and deleted; so is a deleted pod that was never bound and waits for a finalizer. Not
done: heartbeats, eviction by NoExecute taints, clearing away of many ended pods.
"""

from __future__ import annotations

from typing import Any, Final

from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.indexer import PODS, Indexer
from muster.sandbox.controllers.plans import nodes
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.nodes import NODES
from muster.sandbox.controllers.plans.pods import node_name
from muster.sandbox.controllers.plans.times import stamp
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import service_account
from muster.sandbox.server.requests import ApiServer

DEFAULT_CAPACITY: Final = {"cpu": "4", "ephemeral-storage": "100Gi", "memory": "16Gi", "pods": "110"}

_QUARANTINE_SECONDS: Final = 40.0


class NodeLifecycleController(Controller[tuple[Key, str, str]]):
    """Looks after nodes, and after pods that no kubelet will."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, service_account("kube-system", "node-controller"), "node-controller")
        self._on_node = Indexer(self.store, PODS, node_name)

    def observe(self, event: StoreEvent) -> None:
        """A changed node; the pods of a deleted one; a pod without a node to end it."""
        if event.key == NODES:
            if event.type != "DELETED":
                self.queue.add((NODES, *identity(event.object)))
                return
            for pod in self._on_node.get(event.object["metadata"]["name"]):
                self.queue.add_after((PODS, *identity(pod)), _QUARANTINE_SECONDS)
        elif event.key == PODS and event.type != "DELETED":
            self._observe_pod(event.object)

    def _observe_pod(self, pod: Object) -> None:
        if not node_name(pod):
            if p.leaving(pod) and not p.ended(pod):
                self.queue.add((PODS, *identity(pod)))
        elif not self._node(pod):
            self.queue.add_after((PODS, *identity(pod)), _QUARANTINE_SECONDS)

    def _node(self, pod: Object) -> Object | None:
        return self.store.get(NODES, "", node_name(pod))

    async def sync(self, name: tuple[Key, str, str]) -> None:
        """Return a node what it lacks, or end a pod that is lost."""
        current = self.store.get(*name)
        if current is None:
            return
        if name[0] == NODES:
            await self._sync_node(current)
        elif not node_name(current):
            if p.leaving(current) and not p.ended(current):
                await self._end(current, {})
        elif self._node(current) is None:
            await self._end(current, self._lost(current))

    async def _sync_node(self, node: Object) -> None:
        if p.condition(node, "Ready") is None:
            given = node.get("status") or {}
            ip = next((each["address"] for each in given.get("addresses") or ()), "127.0.0.1")
            capacity = given.get("capacity") or DEFAULT_CAPACITY
            status = nodes.status(node["metadata"]["name"], capacity, ip, self.server.clock.now())
            node = await self.write.update_status(NODES, node, status)
        taints = nodes.taints(node)
        if taints != (node["spec"].get("taints") or []):
            await self.write.patch(NODES, node, {"spec": {"taints": taints or None}})

    async def _end(self, pod: Object, status: dict[str, Any]) -> None:
        if not p.ended(pod):
            status = {**(pod.get("status") or {}), **status, "phase": "Failed"}
            pod = await self.write.update_status(PODS, pod, status)
        if pod["metadata"].get("deletionGracePeriodSeconds") != 0:
            await self.write.delete(PODS, pod, grace=0)

    def _lost(self, pod: Object) -> dict[str, Any]:
        reason = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": stamp(self.server.clock.now()),
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        }
        others = [each for each in (pod.get("status") or {}).get("conditions") or () if each["type"] != reason["type"]]
        return {"conditions": [*others, reason]}
