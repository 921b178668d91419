"""The DaemonSet controller: performs what `daemonset_plan.plan` says, and keeps the revisions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.controller_ref import ControllerRefManager, concerned
from muster.sandbox.controllers.indexer import PODS, Indexer
from muster.sandbox.controllers.plans import daemonset_plan
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.daemonset_plan import Plan, View
from muster.sandbox.controllers.plans.nodes import NODES
from muster.sandbox.controllers.plans.pods import controller_uid
from muster.sandbox.controllers.plans.templates import HASH
from muster.sandbox.controllers.revisions import History, Revisions
from muster.sandbox.controllers.writer import slow_start
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import DAEMONSET_CONTROLLER
from muster.sandbox.server.requests import ApiServer

DAEMONSETS: Final[Key] = ("apps", "daemonsets")

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 900.0
"""Seconds before a failed pod of a node is replaced: twice as long each time. A pod that its node refuses would
otherwise be made again forever, as fast as it goes."""

_AT_ONCE: Final = 250


class DaemonSetController(Controller[tuple[str, str]]):
    """Keeps a pod of each DaemonSet on each node that takes it."""

    WORKERS = 5

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, DAEMONSET_CONTROLLER, "daemonset-controller")
        self._pods = Indexer(self.store, PODS, controller_uid)
        self._claims = ControllerRefManager(self.write, self._pods)
        self._revisions = Revisions(self.write, DAEMONSETS, HASH)
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}
        """How often pods of a set and node failed, and when in loop time the last one goes."""

    def observe(self, event: StoreEvent) -> None:
        """A changed set; those that a changed pod belongs to, or could; all, when what a node takes changed."""
        if event.key == DAEMONSETS and event.type != "DELETED":
            self.queue.add(identity(event.object))
        elif event.key == NODES and (event.type != "MODIFIED" or _different(event)):
            for owner in self.store.list(DAEMONSETS):
                self.queue.add(identity(owner))
        elif event.key == PODS:
            for name in concerned(self.store, DAEMONSETS, "DaemonSet", event):
                self.queue.add(name)

    async def sync(self, name: tuple[str, str]) -> None:
        """Take the next step; its effect brings another."""
        owner = self.store.get(DAEMONSETS, *name)
        if owner is None:
            return
        await self._claims.settle(owner)
        history = await self._revisions.record(owner)
        view = self._view(owner, history)
        todo = daemonset_plan.plan(view)
        refusal = await self._perform(name, view, todo)
        view = self._view(owner, history)
        await self.write.update_status(DAEMONSETS, owner, daemonset_plan.status(view))
        await self._revisions.forget(owner, history, _live(history, view))
        if todo.wake is not None:
            self.queue.add_after(name, todo.wake)
        if refusal is not None:
            raise refusal

    def _view(self, owner: Object, history: History) -> View:
        pods = daemonset_plan.by_node(self._pods.get(owner["metadata"]["uid"]))
        digest = history.update["metadata"]["labels"][HASH]
        return View(owner, pods, self.store.list(NODES), digest, self.server.clock.now())

    async def _perform(self, name: tuple[str, str], view: View, todo: Plan) -> StatusError | None:
        """Make and delete; return the first refusal."""
        nodes = todo.create[:_AT_ONCE]
        refusal = await slow_start(len(nodes), lambda at: self._create(view, nodes[at]))
        await asyncio.gather(*(self._delete(view.owner, pod) for pod in todo.delete[:_AT_ONCE]))
        for node, pod in todo.ended:
            wait = self._pause(view.owner, node)
            if wait > 0:
                self.queue.add_after(name, wait)
            else:
                await self._replace(view.owner, node, pod)
        return refusal

    def _pause(self, owner: Object, node: str) -> float:
        """Return the seconds until the node's ended pod is to go."""
        now = asyncio.get_running_loop().time()
        count, until = self._failures.get((owner["metadata"]["uid"], node), (0, 0.0))
        if now < until:
            return until - now
        if now > until + 2 * _LONGEST_PAUSE:
            count = 0
        pause = min(_FIRST_PAUSE * 2.0 ** min(count, 32), _LONGEST_PAUSE)
        self._failures[owner["metadata"]["uid"], node] = (count + 1, now + pause)
        return 0.0

    async def _create(self, view: View, node: str) -> None:
        try:
            made = await self.write.create(PODS, identity(view.owner)[0], daemonset_plan.new_pod(view, node))
        except StatusError as error:
            await self.events.warning(view.owner, "FailedCreate", f"Error creating: {error.message}")
            raise
        await self.events.normal(view.owner, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")

    async def _replace(self, owner: Object, node: str, pod: Object) -> None:
        about = f"{'/'.join(identity(pod))} on node {node}"
        if p.phase(pod) == "Failed":
            text = f"Found failed daemon pod {about}, will try to kill it"
            await self.events.warning(owner, "FailedDaemonPod", text)
        else:
            text = f"Found succeeded daemon pod {about}, will try to delete it"
            await self.events.normal(owner, "SucceededDaemonPod", text)
        await self._delete(owner, pod)

    async def _delete(self, owner: Object, pod: Object) -> None:
        if await self.write.delete(PODS, pod) is not None:
            await self.events.normal(owner, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")


def _different(event: StoreEvent) -> bool:
    """Whether a node's labels or spec changed: its status is a heartbeat."""
    old, new = event.old, event.object
    return old is None or old["spec"] != new["spec"] or old["metadata"].get("labels") != new["metadata"].get("labels")


def _live(history: History, view: View) -> Sequence[str]:
    """Return the names of the revisions that pods are of."""
    hashes = {(pod["metadata"].get("labels") or {}).get(HASH) for pods in view.pods.values() for pod in pods}
    return [each["metadata"]["name"] for each in history.revisions if each["metadata"]["labels"][HASH] in hashes]
