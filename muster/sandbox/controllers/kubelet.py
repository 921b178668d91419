"""The kubelets of all simulated nodes in one: admits bound pods, lets them live as `pod_lifecycle.step` says, ends them."""

from __future__ import annotations

from itertools import count

from muster.model.amounts import Resources
from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.indexer import PODS, Indexer
from muster.sandbox.controllers.plans import pod_lifecycle
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.node_usage import NodeUsage, requests
from muster.sandbox.controllers.plans.nodes import NODES, address
from muster.sandbox.controllers.plans.pods import node_name
from muster.sandbox.controllers.writer import Writer
from muster.sandbox.core import users
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Object, StoreEvent, identity
from muster.sandbox.server.requests import ApiServer


class Kubelet(Controller[tuple[str, str]]):
    """Runs every pod that is bound to a node: all nodes of a sandbox are simulated.

    On a node that isn't Ready nothing happens to pods, neither beginning nor end: patch its status to see that.
    """

    WORKERS = 8

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, users.kubelet("sandbox"), "kubelet")
        self._on_node = Indexer(self.store, PODS, node_name)
        self._held = NodeUsage()
        self._numbers = count(1)
        self._writers: dict[str, Writer] = {}

    def observe(self, event: StoreEvent) -> None:
        """A pod that a node has to do with; all pods of a node that gets ready."""
        if event.key == NODES:
            if p.holds(event.object, "Ready") and not (event.old and p.holds(event.old, "Ready")):
                for pod in self._on_node.get(event.object["metadata"]["name"]):
                    self.queue.add(identity(pod))
        elif event.key == PODS and node_name(event.object):
            self._observe_pod(event)

    def _observe_pod(self, event: StoreEvent) -> None:
        pod = event.object
        if event.type == "DELETED" or p.ended(pod):
            self._held.give_back(pod["metadata"]["uid"])
        elif _admitted(pod):
            self._take(pod)
        if event.type != "DELETED" and (p.leaving(pod) or not p.ended(pod)):
            self.queue.add(identity(pod))

    def _take(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if not self._held.holds(uid):
            self._held.take(uid, node_name(pod), requests(pod))

    async def sync(self, name: tuple[str, str]) -> None:
        """Bring a pod one step forward."""
        pod = self.store.get(PODS, *name)
        node = self.store.get(NODES, "", node_name(pod)) if pod is not None else None
        if pod is None or node is None or not p.holds(node, "Ready"):
            return
        now = self.server.clock.now()
        if not (_admitted(pod) or p.leaving(pod) or p.ended(pod)):
            refusal = self._refusal(pod, node)
            if refusal:
                await self._reject(pod, *refusal)
                return
            self._take(pod)
            await self._warn(pod)
        pod_ip = address(128, next(self._numbers)) if p.phase(pod) == "Pending" else ""
        step = pod_lifecycle.step(pod, now, host_ip=_address(node), pod_ip=pod_ip)
        await self._perform(pod, step)

    async def _perform(self, pod: Object, step: pod_lifecycle.Step) -> None:
        write = self._writer(pod)
        try:
            if step.status is not None:
                await write.update_status(PODS, pod, step.status)
        except StatusError as error:
            if error.code != 404:
                raise
            return  # deleted by force meanwhile
        if step.remove:
            await write.delete(PODS, pod, grace=0)
        if step.wake is not None:
            self.queue.add_after(identity(pod), step.wake)

    def _writer(self, pod: Object) -> Writer:
        """Return the writer that is the kubelet of the pod's node."""
        node = node_name(pod)
        if node not in self._writers:
            self._writers[node] = Writer(self.server, users.kubelet(node))
        return self._writers[node]

    def _refusal(self, pod: Object, node: Object) -> tuple[str, str] | None:
        """Why the node has no room for a pod: reason and message. A scheduler that overbooks finds out here."""
        name, allocatable = node_name(pod), Resources.parse(node["status"].get("allocatable"))
        claimed = _claimed(pod) - allocatable.nano.keys()
        asked = Resources({each: amount for each, amount in requests(pod).nano.items() if each not in claimed})
        short = self._held.short(name, asked, allocatable)
        if not short:
            return None
        first, used = short[0], self._held.on(name)
        figures = f"requested: {asked.units(first)}, used: {used.units(first)}, capacity: {allocatable.units(first)}"
        return f"OutOf{first}", f"Node didn't have enough resource: {first}, {figures}"

    async def _reject(self, pod: Object, reason: str, message: str) -> None:
        status = pod_lifecycle.rejected(pod, self.server.clock.now(), reason, f"Pod was rejected: {message}")
        await self._writer(pod).update_status(PODS, pod, status)
        await self.events.warning(pod, reason, message)

    async def _warn(self, pod: Object) -> None:
        wrong = pod_lifecycle.wrong_annotation(pod)
        if wrong:
            await self.events.warning(pod, "InvalidAnnotation", f"{wrong}; it is ignored")


def _claimed(pod: Object) -> set[str]:
    """Return the extended resources that a pod has devices for, by a claim: no node needs to have those."""
    told = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return {each["resourceName"] for each in told.get("requestMappings") or ()}


def _admitted(pod: Object) -> bool:
    return bool((pod.get("status") or {}).get("startTime"))


def _address(node: Object) -> str:
    addresses = node["status"].get("addresses") or ()
    return next((each["address"] for each in addresses if each["type"] == "InternalIP"), "")
