"""The StatefulSet controller: performs what `statefulset_plan.plan` says, and keeps the claims and revisions."""

from __future__ import annotations

import asyncio
from typing import Final

from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.controller_ref import ControllerRefManager, concerned
from muster.sandbox.controllers.indexer import PODS, Indexer
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans import statefulset_plan
from muster.sandbox.controllers.plans.pods import controller_uid
from muster.sandbox.controllers.plans.statefulset_plan import Plan, View
from muster.sandbox.controllers.revisions import History, Revisions
from muster.sandbox.controllers.writer import slow_start
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import STATEFULSET_CONTROLLER
from muster.sandbox.server.requests import ApiServer

STATEFULSETS: Final[Key] = ("apps", "statefulsets")
CLAIMS: Final[Key] = ("", "persistentvolumeclaims")

_HASH: Final = "controller.kubernetes.io/hash"


class StatefulSetController(Controller[tuple[str, str]]):
    """Keeps StatefulSets at their size and on their template."""

    WORKERS = 5

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, STATEFULSET_CONTROLLER, "statefulset-controller")
        self._pods = Indexer(self.store, PODS, controller_uid)
        self._claims = ControllerRefManager(
            self.write, self._pods, lambda owner, pod: statefulset_plan.ordinal(owner, pod) is not None
        )
        self._revisions = Revisions(self.write, STATEFULSETS, _HASH)

    def observe(self, event: StoreEvent) -> None:
        """A changed set, and those that a changed pod belongs to, or could."""
        if event.key == STATEFULSETS and event.type != "DELETED":
            self.queue.add(identity(event.object))
        elif event.key == PODS:
            for name in concerned(self.store, STATEFULSETS, "StatefulSet", event):
                self.queue.add(name)

    async def sync(self, name: tuple[str, str]) -> None:
        """Take the next step; its effect brings another."""
        owner = self.store.get(STATEFULSETS, *name)
        if owner is None:
            return
        await self._claims.settle(owner)
        history = await self._revisions.record(owner)
        view = self._view(owner, history)
        todo = statefulset_plan.plan(view)
        refusal = await self._perform(view, todo)
        view = self._view(owner, history)
        owner = await self.write.update_status(STATEFULSETS, owner, statefulset_plan.status(view))
        live = {history.update["metadata"]["name"], owner["status"]["currentRevision"]}
        await self._revisions.forget(owner, history, live | set(map(statefulset_plan.revision_of, view.pods.values())))
        if todo.wake is not None:
            self.queue.add_after(name, todo.wake)
        if refusal is not None:
            raise refusal

    def _view(self, owner: Object, history: History) -> View:
        pods = statefulset_plan.by_ordinal(owner, self._pods.get(owner["metadata"]["uid"]))
        current = history.named((owner.get("status") or {}).get("currentRevision", ""))
        return View(owner, pods, current, history.update, self.server.clock.now())

    async def _perform(self, view: View, todo: Plan) -> StatusError | None:
        """Make and delete; return the first refusal."""
        owner = view.owner
        refusal = await slow_start(len(todo.create), lambda at: self._create(owner, *todo.create[at]))
        await asyncio.gather(*(self._keep_claims(view, number, pod) for number, pod in view.pods.items()))
        await asyncio.gather(*(self._recreate(owner, pod) for pod in todo.ended))
        await asyncio.gather(*(self._delete(owner, pod) for pod in todo.delete))
        return refusal

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _create(self, owner: Object, number: int, revision: Object) -> None:
        namespace, name = identity(owner)
        body = statefulset_plan.new_pod(owner, revision, number)
        about = f"Pod {body['metadata']['name']} in StatefulSet {name}"
        try:
            await self._create_claims(owner, number, about)
            await self.write.create(PODS, namespace, body)
        except StatusError as error:
            await self.events.warning(owner, "FailedCreate", f"Create {about} failed error: {error.message}")
            raise
        await self.events.normal(owner, "SuccessfulCreate", f"Create {about} successful")

    async def _recreate(self, owner: Object, pod: Object) -> None:
        """Delete a pod that ended, so that there can be another of its name."""
        namespace, name = identity(owner)
        failed = p.phase(pod) == "Failed"
        state = "failed" if failed else "terminated"
        text = f"StatefulSet {namespace}/{name} is recreating {state} Pod {pod['metadata']['name']}"
        record = self.events.warning if failed else self.events.normal
        await record(owner, f"Recreating{state.capitalize()}Pod", text)
        await self._delete(owner, pod)

    async def _delete(self, owner: Object, pod: Object) -> None:
        if await self.write.delete(PODS, pod) is not None:
            about = f"Pod {pod['metadata']['name']} in StatefulSet {identity(owner)[1]}"
            await self.events.normal(owner, "SuccessfulDelete", f"Delete {about} successful")

    # ── claims ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _create_claims(self, owner: Object, number: int, about: str) -> None:
        namespace = identity(owner)[0]
        for body in statefulset_plan.claims(owner, number):
            name = body["metadata"]["name"]
            if self.store.get(CLAIMS, namespace, name) is None:
                body["metadata"]["ownerReferences"] = statefulset_plan.claim_owners(owner, {}, condemned=False)
                await self.write.create(CLAIMS, namespace, body)
                await self.events.normal(owner, "SuccessfulCreate", f"Create Claim {name} {about} success")

    async def _keep_claims(self, view: View, number: int, pod: Object) -> None:
        """See that claims go with whom the set's policy says."""
        ours = {view.owner["metadata"]["uid"], pod["metadata"]["uid"]}
        for body in statefulset_plan.claims(view.owner, number):
            claim = self.store.get(CLAIMS, identity(pod)[0], body["metadata"]["name"])
            if claim is None:
                continue
            before = claim["metadata"].get("ownerReferences") or []
            owners = [each for each in before if each["uid"] not in ours]
            owners += statefulset_plan.claim_owners(view.owner, pod, condemned=number not in view.wanted)
            if owners != before:
                await self.write.patch(CLAIMS, claim, {"metadata": {"ownerReferences": owners or None}})
