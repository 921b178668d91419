"""A scheduler for pods that ask for ``default-scheduler``, so that ``kubectl run`` works in the sandbox.

First fit by name: a pod goes to the first node, in the order of their names, that is ready, not cordoned, has the room,
the name and labels that it asks for and no taint that it doesn't tolerate. Pods that ask for more than that (affinity to
pods, spread, volumes, gates) stay Pending with a PodScheduled condition that says so. Muster's own scheduler serves ``muster``.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

import msgspec

from muster.model.amounts import Resources
from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.indexer import PODS
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.node_filters import fits, tolerated
from muster.sandbox.controllers.plans.node_usage import NodeUsage, requests
from muster.sandbox.controllers.plans.nodes import NODES
from muster.sandbox.controllers.plans.pods import node_name
from muster.sandbox.controllers.plans.times import stamp
from muster.sandbox.core.store import Object, StoreEvent, identity
from muster.sandbox.core.users import User
from muster.sandbox.server.requests import ApiServer

NAME: Final = "default-scheduler"

_USER: Final = User("system:kube-scheduler", groups=("system:authenticated",))
_RETRY_SECONDS: Final = 0.1
"""How long freed room is collected before the waiting pods are tried again."""

_REFUSALS_PER_SECOND: Final = 50.0
_REFUSALS_AT_ONCE: Final = 100
"""How fast the real scheduler's client writes, unless its configuration says otherwise. Here it holds for pods that fit
nowhere: telling ten thousand of them takes two writes each, and would take the server from those who wait for it."""

_CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_BEYOND: Final = ("topologySpreadConstraints", "schedulingGates", "resourceClaims", "schedulingGroup")


class DefaultScheduler(Controller[tuple[str, str]]):
    """Binds pods one by one, in the order in which they came."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, _USER, NAME)
        self._held = NodeUsage()
        self._waiting: dict[tuple[str, str], None] = {}
        self._hopeless: dict[bytes, str] = {}
        """Why pods of a shape fit nowhere, until there is new room: ten thousand alike are tried once."""
        self._pace = Pace(_REFUSALS_PER_SECOND, _REFUSALS_AT_ONCE)
        self._turns: dict[tuple[str, str], float] = {}
        """When waiting pods are told why, in loop time."""

    def observe(self, event: StoreEvent) -> None:
        """A pod to place; or room: a node that changed, a pod that ended."""
        if event.key == NODES:
            self._retry()
        elif event.key == PODS:
            self._observe_pod(event)

    def _observe_pod(self, event: StoreEvent) -> None:
        pod, name = event.object, identity(event.object)
        uid = pod["metadata"]["uid"]
        if event.type == "DELETED" or p.ended(pod):
            self._forget(name)
            if self._held.holds(uid):
                self._held.give_back(uid)
                self._retry()
        elif node_name(pod):
            self._forget(name)
            if not self._held.holds(uid):
                self._held.take(uid, node_name(pod), requests(pod))
        elif _mine(pod) and name not in self._waiting:
            self._waiting[name] = None
            self.queue.add(name)

    def _forget(self, name: tuple[str, str]) -> None:
        self._waiting.pop(name, None)
        self._turns.pop(name, None)

    def _retry(self) -> None:
        self._hopeless.clear()
        for name in self._waiting:
            self.queue.add_after(name, _RETRY_SECONDS)

    async def sync(self, name: tuple[str, str]) -> None:
        """Bind a pod, or say why not."""
        pod = self.store.get(PODS, *name)
        if pod is None or node_name(pod) or p.ended(pod) or not _mine(pod):
            self._forget(name)
            return
        why = _unsupported(pod)
        if why:
            await self._refuse(pod, why)
            return
        shape = _shape(pod)
        node, message = (None, self._hopeless[shape]) if shape in self._hopeless else self._first_fit(pod)
        if node is not None:
            await self._bind(pod, node)
            return
        self._hopeless[shape] = message
        await self._refuse(pod, message)

    def _first_fit(self, pod: Object) -> tuple[Object | None, str]:
        """Return the first node that takes the pod, or None and why none does."""
        reasons: dict[str, int] = {}
        asked = requests(pod)
        for node in self.store.list(NODES):
            reason = self._obstacle(pod, asked, node)
            if not reason:
                return node, ""
            reasons[reason] = reasons.get(reason, 0) + 1
        texts = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
        return None, f"0/{sum(reasons.values())} nodes are available: {texts or 'there are none'}."

    def _obstacle(self, pod: Object, asked: Resources, node: Object) -> str:
        """Why a pod can't go to a node, as the real scheduler words it; empty when it can."""
        if node["spec"].get("unschedulable") and not tolerated(pod["spec"], _CORDONED):
            return "node(s) were unschedulable"
        if not p.holds(node, "Ready"):
            return "node(s) were not ready"
        if not fits(pod["spec"], node):
            return "node(s) didn't match Pod's node affinity/selector"
        for taint in node["spec"].get("taints") or ():
            if taint["effect"] in {"NoSchedule", "NoExecute"} and not tolerated(pod["spec"], taint):
                return f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"
        allocatable = Resources.parse((node.get("status") or {}).get("allocatable"))
        short = self._held.short(node["metadata"]["name"], asked, allocatable)
        if short:
            return "Too many pods" if short[0] == "pods" else f"Insufficient {short[0]}"
        return ""

    async def _bind(self, pod: Object, node: Object) -> None:
        namespace, name = identity(pod)
        await self.write.bind(pod, node["metadata"]["name"])
        assigned = f"Successfully assigned {namespace}/{name} to {node['metadata']['name']}"
        await self.events.normal(pod, "Scheduled", assigned)

    async def _refuse(self, pod: Object, message: str) -> None:
        condition = p.condition(pod, "PodScheduled")
        if condition is not None and condition.get("message") == message:
            return
        wait = self._wait(identity(pod))
        if wait > 0:
            self.queue.add_after(identity(pod), wait)
            return
        others = [each for each in (pod.get("status") or {}).get("conditions") or () if each["type"] != "PodScheduled"]
        unscheduled: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": stamp(self.server.clock.now()),
            "reason": "Unschedulable",
            "message": message,
        }
        status = {**(pod.get("status") or {}), "conditions": [*others, unscheduled]}
        await self.write.update_status(PODS, pod, status)
        await self.events.warning(pod, "FailedScheduling", message)

    def _wait(self, name: tuple[str, str]) -> float:
        """Return the seconds until it is a pod's turn to be told; its turn is over when there are none."""
        now = asyncio.get_running_loop().time()
        if name not in self._turns:
            self._turns[name] = self._pace.next(now)
        wait = self._turns[name] - now
        if wait <= 0:
            del self._turns[name]
        return wait


class Pace:
    """Turns: so many a second, and so many at once after a rest."""

    def __init__(self, per_second: float, at_once: int) -> None:
        self._apart = 1 / per_second
        self._rest = (at_once - 1) * self._apart
        self._free = -math.inf

    def next(self, now: float) -> float:
        """Return the next free turn and take it; it is at most ``now`` when it has come."""
        turn = max(self._free, now - self._rest)
        self._free = turn + self._apart
        return turn


def _shape(pod: Object) -> bytes:
    """What decides where a pod fits; equal for the pods of one workload."""
    spec = pod["spec"]
    containers = [[each.get("resources") for each in spec.get(kind) or ()] for kind in ("initContainers", "containers")]
    fields = [spec.get(field) for field in ("resources", "overhead", "nodeSelector", "affinity", "tolerations")]
    return msgspec.json.encode([containers, fields])


def _mine(pod: Object) -> bool:
    return pod["spec"].get("schedulerName", NAME) == NAME and not p.leaving(pod)


def _unsupported(pod: Object) -> str:
    claims = any("persistentVolumeClaim" in volume for volume in pod["spec"].get("volumes") or ())
    affinity = pod["spec"].get("affinity") or {}
    used = [field for field in ("podAffinity", "podAntiAffinity") if affinity.get(field)]
    used += [field for field in _BEYOND if pod["spec"].get(field)]
    used += ["persistentVolumeClaim volumes"] if claims else []
    if not used:
        return ""
    return f"the sandbox's {NAME} doesn't support {', '.join(used)}; set schedulerName: muster, or take it out"
