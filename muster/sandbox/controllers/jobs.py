"""The Job controller: performs what `job_plan.plan` says. Jobs of another ``spec.managedBy`` are left alone."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.indexer import PODS, Indexer
from muster.sandbox.controllers.plans import job_plan
from muster.sandbox.controllers.plans.job_counts import TRACKING, Backoff, tracked
from muster.sandbox.controllers.plans.job_plan import Plan
from muster.sandbox.controllers.plans.pods import controller_of, controller_uid
from muster.sandbox.controllers.writer import slow_start
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import JOB_CONTROLLER
from muster.sandbox.server.requests import ApiServer

JOBS: Final[Key] = ("batch", "jobs")

_BATCH_SECONDS: Final = 1.0
"""How long changes of pods are collected: the real controller's figure. Ten thousand pods end in one look, or ten."""

Name = tuple[Key, str, str]
"""A Job; or a pod that no Job will count."""


class JobController(Controller[Name]):
    """Runs Jobs to completion."""

    WORKERS = 5
    PAUSE = 1.0
    LONGEST_PAUSE = 60.0

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, JOB_CONTROLLER, "job-controller")
        self._pods = Indexer(self.store, PODS, controller_uid)
        self._backoffs: dict[str, Backoff] = {}

    def observe(self, event: StoreEvent) -> None:
        """A changed Job at once; a changed pod's Job with others of its kind; a deleted Job's pods."""
        if event.key == JOBS:
            self._observe_job(event)
        elif event.key == PODS:
            self._observe_pod(event.object)

    def _observe_job(self, event: StoreEvent) -> None:
        if event.type != "DELETED":
            self.queue.add((JOBS, *identity(event.object)))
            return
        uid = event.object["metadata"]["uid"]
        self._backoffs.pop(uid, None)
        for pod in self._pods.get(uid):
            self._observe_pod(pod)

    def _observe_pod(self, pod: Object) -> None:
        owner = controller_of(pod)
        namespace, name = identity(pod)
        if owner is not None and owner["kind"] == "Job" and self._job(namespace, owner["name"], owner["uid"]):
            self.queue.add_after((JOBS, namespace, owner["name"]), _BATCH_SECONDS)
        elif tracked(pod):
            self.queue.add((PODS, namespace, name))

    def _job(self, namespace: str, name: str, uid: str) -> Object | None:
        job = self.store.get(JOBS, namespace, name)
        return job if job is not None and job["metadata"]["uid"] == uid else None

    async def sync(self, name: Name) -> None:
        """Bring a Job forward, or release a pod without one."""
        current = self.store.get(*name)
        if current is None:
            return
        if name[0] == PODS:
            await self._release_orphan(current)
        elif current["spec"].get("managedBy", job_plan.CONTROLLER) == job_plan.CONTROLLER:
            await self._sync_job(current)

    async def _release_orphan(self, pod: Object) -> None:
        owner = controller_of(pod)
        if owner is None or self._job(identity(pod)[0], owner["name"], owner["uid"]) is None:
            await self._release(pod)

    async def _sync_job(self, job: Object) -> None:
        uid, now = job["metadata"]["uid"], self.server.clock.now()
        plan = job_plan.plan(job, self._pods.get(uid), now, self._backoffs.get(uid, Backoff()))
        if plan.remove:
            await self.write.delete(JOBS, job, propagation="Foreground")
            return
        await asyncio.gather(*(self._delete(job, pod, forget=plan.forget) for pod in plan.delete))
        created, refusal = await self._create(job, plan)
        status = _with_active(plan.status, created)
        await self.write.update_status(JOBS, job, status)
        self._backoffs[uid] = plan.backoff
        for note in plan.notes:
            await self.events.record(job, note)
        await asyncio.gather(*(self._release(pod) for pod in plan.release))
        if plan.wake is not None:
            self.queue.add_after((JOBS, *identity(job)), plan.wake)
        if refusal is not None:
            raise refusal

    async def _create(self, job: Object, plan: Plan) -> tuple[int, StatusError | None]:
        """Make the pods that the plan asks for; return how many were made, and the first refusal."""
        made = 0

        async def create(number: int) -> None:
            nonlocal made
            await self._create_pod(job, plan.create[number])
            made += 1

        refusal = await slow_start(len(plan.create), create)
        return made, refusal

    async def _create_pod(self, job: Object, index: int | None) -> None:
        try:
            pod = await self.write.create(PODS, identity(job)[0], job_plan.new_pod(job, index))
        except StatusError as error:
            await self.events.warning(job, "FailedCreate", f"Error creating: {error.message}")
            raise
        await self.events.normal(job, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")

    async def _delete(self, job: Object, pod: Object, *, forget: bool) -> None:
        if forget:
            await self._release(pod)
        if await self.write.delete(PODS, pod) is not None:
            await self.events.normal(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    async def _release(self, pod: Object) -> None:
        """Take the finalizer off a pod, if it is still there and has it."""
        current = self.store.get(PODS, *identity(pod))
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"] or not tracked(current):
            return
        others = [each for each in current["metadata"]["finalizers"] if each != TRACKING]
        try:
            await self.write.patch(PODS, current, {"metadata": {"finalizers": others or None}})
        except StatusError as error:
            if error.code != 404:
                raise


def _with_active(status: dict[str, Any], created: int) -> dict[str, Any]:
    active = status.get("active", 0) + created
    return {**status, "active": active} if active else status
