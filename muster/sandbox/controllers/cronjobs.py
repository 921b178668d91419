"""The CronJob controller: makes the Jobs that `cronjob_plan.due` says are due, and keeps count of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.indexer import Indexer
from muster.sandbox.controllers.jobs import JOBS
from muster.sandbox.controllers.plans import cronjob_plan
from muster.sandbox.controllers.plans.pods import controller_of, controller_uid
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import CRONJOB_CONTROLLER
from muster.sandbox.server.requests import ApiServer

CRONJOBS: Final[Key] = ("batch", "cronjobs")


class CronJobController(Controller[tuple[str, str]]):
    """Starts Jobs by their schedules."""

    WORKERS = 5

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, CRONJOB_CONTROLLER, "cronjob-controller")
        self._jobs = Indexer(self.store, JOBS, controller_uid)

    def observe(self, event: StoreEvent) -> None:
        """A changed CronJob, and that of a changed Job."""
        if event.key == CRONJOBS and event.type != "DELETED":
            self.queue.add(identity(event.object))
        elif event.key == JOBS:
            owner = controller_of(event.object)
            if owner is not None and owner["kind"] == "CronJob":
                self.queue.add((identity(event.object)[0], owner["name"]))

    async def sync(self, name: tuple[str, str]) -> None:
        """Count, forget what is beyond the history, start what is due."""
        owner = self.store.get(CRONJOBS, *name)
        if owner is None:
            return
        now = self.server.clock.now()
        jobs = self._jobs.get(owner["metadata"]["uid"])
        for job in cronjob_plan.surplus(owner, jobs):
            await self._delete(owner, job)
        status, notes = cronjob_plan.noted(owner, jobs)
        due = cronjob_plan.due(owner, now)
        if due.start is not None:
            status = await self._start(owner, status, due.start, now)
        await self.write.update_status(CRONJOBS, owner, status)
        for note in (*notes, *due.notes):
            await self.events.record(owner, note)
        if due.wake is not None:
            self.queue.add_after(name, due.wake)

    async def _start(self, owner: Object, status: dict[str, Any], start: datetime, now: datetime) -> dict[str, Any]:
        """Make the Job that is due, unless something forbids it; return the status then."""
        active = status.get("active") or ()
        if any(each["name"] == cronjob_plan.job_name(owner, start) for each in active):
            return status
        why_not = cronjob_plan.held(owner, start, active, now)
        if why_not is not None:
            await self.events.record(owner, why_not)
            return status
        if owner["spec"]["concurrencyPolicy"] == "Replace":
            for each in active:
                job = self.store.get(JOBS, each["namespace"], each["name"])
                if job is not None:
                    await self._delete(owner, job)
                status = cronjob_plan.stopped(status, each["name"])
        try:
            made = await self.write.create(JOBS, identity(owner)[0], cronjob_plan.new_job(owner, start))
        except StatusError as error:
            before = self.store.get(JOBS, identity(owner)[0], cronjob_plan.job_name(owner, start))
            if before is not None and controller_uid(before) == owner["metadata"]["uid"]:
                return cronjob_plan.started(status, before, start)  # made, but then the status couldn't be written
            await self.events.warning(owner, "FailedCreate", f"Error creating job: {error.message}")
            raise
        await self.events.normal(owner, "SuccessfulCreate", f"Created job {made['metadata']['name']}")
        return cronjob_plan.started(status, made, start)

    async def _delete(self, owner: Object, job: Object) -> None:
        if await self.write.delete(JOBS, job) is not None:
            await self.events.normal(owner, "SuccessfulDelete", f"Deleted job {job['metadata']['name']}")
