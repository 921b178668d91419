"""Shows a cluster autoscaler the pods that lack nodes: exactly these have PodScheduled=False with reason Unschedulable.

Autoscalers make nodes for such pods, whatever else keeps them waiting. So a pod that waits for its queue, its quota or
its turn doesn't have that condition, and loses it when it comes to wait for these.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Final

from muster.kube import errors, transport
from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.workqueue import WorkQueue
from muster.model import kinds
from muster.model.objects import Condition, Pod
from scheduler.engine import lifecycle
from scheduler.engine.lifecycle import UNSCHEDULABLE
from scheduler.model.plan import Plan
from scheduler.model.snapshot import GroupKey

log = logging.getLogger(__name__)

_SCHEDULED: Final = "PodScheduled"

_Place = tuple[str, str]


class UnplacedPods:
    """Keeps the condition of pods as the last plan has it. What a former leader wrote is found in the pods."""

    def __init__(self, client: Client, clock: Clock, pods: ObjectCache[Pod], scheduler_names: Collection[str]) -> None:
        self._client = client
        self._clock = clock
        self._pods = pods
        self._names = frozenset(scheduler_names)
        self._marked: set[_Place] = set()
        self._due: dict[_Place, str] = {}
        self._over: set[_Place] = set()
        self._work: WorkQueue[_Place] = WorkQueue("condition of pod", self._write)
        pods.subscribe(self._on_pod)

    def observe(self, plan: Plan) -> None:
        """Take over which pods lack nodes."""
        wanted = {(task.namespace, task.name): key for key, tasks in plan.unplaced.items() for task in tasks}
        # Amounts in a message change all the time; what is written stands for the fact, not for them.
        self._due = {place: _message(plan, key) for place, key in wanted.items() if place not in self._marked}
        self._over = self._marked - wanted.keys()
        for place in (*self._due, *self._over):
            self._work.add(place)

    async def run(self) -> None:
        """Write, until cancelled."""
        await self._work.run()

    def _on_pod(self, change: ObjectChange[Pod]) -> None:
        pod = change.new or change.old
        if pod is None or pod.spec.scheduler_name not in self._names:
            return
        place = (pod.namespace, pod.name)
        if change.new is not None and not pod.spec.node_name and _unschedulable(pod) is not None:
            self._marked.add(place)
        else:
            self._marked.discard(place)

    async def _write(self, place: _Place) -> None:
        namespace, name = place
        pod = self._pods.get(name, namespace)
        if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return
        message = self._due.pop(place, None)
        if (place in self._marked) if message is not None else (place not in self._over):
            return  # It was written meanwhile, or is no longer to be.
        condition: dict[str, Any] = {"type": _SCHEDULED, "$patch": "delete"}
        if message is not None:
            condition = {
                "type": _SCHEDULED,
                "status": "False",
                "reason": UNSCHEDULABLE,
                "message": message,
                "lastTransitionTime": self._since(pod),
            }
        # The uid makes the server refuse it for another pod of the same name.
        change = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                kinds.PODS, name, change, namespace, subresource="status", content_type=transport.STRATEGIC_PATCH
            )
        except (errors.NotFoundError, errors.ConflictError) as error:
            log.info("the condition of pod %s/%s isn't written: %s", namespace, name, error)
        else:
            # The watch tells later; until then it isn't to be written again.
            (self._marked.discard if message is None else self._marked.add)(place)
            self._over.discard(place)

    def _since(self, pod: Pod) -> str:
        """Return when the condition came to be False: now, unless it was so before for another reason."""
        found = next((each for each in pod.status.conditions or () if each.type == _SCHEDULED), None)
        known = found.last_transition_time if found is not None and found.status == "False" else None
        return (known or self._clock.now()).strftime("%Y-%m-%dT%H:%M:%SZ")


def _unschedulable(pod: Pod) -> Condition | None:
    found = (each for each in pod.status.conditions or () if each.type == _SCHEDULED)
    return next((each for each in found if each.status == "False" and each.reason == UNSCHEDULABLE), None)


def _message(plan: Plan, key: GroupKey) -> str:
    status = plan.groups[key]
    wrong = lifecycle.obstacle(status.conditions)
    return f"{status.called}: {wrong.message if wrong is not None else 'no node has room for more of its pods now'}"
