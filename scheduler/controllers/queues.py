"""The queue controller: states and counters of queues, recomputed from the caches, never incremented."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.kube import errors
from muster.kube.cache import Change
from muster.kube.client import Client
from muster.kube.events import Recorder
from muster.model import grouping, kinds, names
from muster.model.amounts import NOTHING, Resources
from muster.model.kinds import Kind
from muster.model.objects import Job, PodGroup, Queue, QueueStatus
from scheduler import intake
from scheduler.plan import QueueShare
from scheduler.snapshot import Phase
from scheduler.views import Views, queue_of
from scheduler.work import Work

OPEN, CLOSING, CLOSED = "Open", "Closing", "Closed"
_UNFINISHED: Final = frozenset(Phase) - {Phase.COMPLETED}
_QUIET: Final = 1.0
"""Seconds between two writings of the counters of one queue."""
_PERMANENT: Final = frozenset({names.DEFAULT_QUEUE, names.ROOT_QUEUE})


@dataclass(frozen=True, slots=True)
class Content:
    """What a queue holds: each of its groups, and the Jobs whose pods are in it."""

    groups: tuple[tuple[PodGroup, tuple[Job, ...]], ...]
    allocated: Resources = NOTHING


def status(queue: Queue, content: Content) -> QueueStatus:
    """Compute a queue's status from what it is asked to be and what it holds."""
    phases = Counter(intake.phase_of(group) for group, _ in content.groups)
    return QueueStatus(
        state=_state(queue, any(phases[phase] for phase in _UNFINISHED)),
        unknown=phases[Phase.UNKNOWN],
        pending=phases[Phase.PENDING],
        inqueue=phases[Phase.INQUEUE],
        running=phases[Phase.RUNNING],
        completed=phases[Phase.COMPLETED],
        failed=sum(any(_failed(job) for job in jobs) for _, jobs in content.groups),
        aborted=sum(any(_aborted(group, job) for job in jobs) for group, jobs in content.groups),
        allocated=content.allocated.quantities() or None,
    )


def _state(queue: Queue, busy: bool) -> str:  # noqa: FBT001 - two facts in, one word out
    if queue.metadata.deletion_timestamp is not None:
        return CLOSING
    if queue.spec.desired_state != CLOSED:
        return OPEN
    return CLOSING if busy else CLOSED


def _failed(job: Job) -> bool:
    return any(each.type == "Failed" and each.status == "True" for each in job.status.conditions or ())


def _aborted(group: PodGroup, job: Job) -> bool:
    """Whether a Job was stopped by its user while its pods ran."""
    started = intake.phase_of(group) in {Phase.RUNNING, Phase.UNKNOWN}
    return started and (intake.held_by_user(job) or job.metadata.deletion_timestamp is not None)


class QueueController:
    """Keeps every queue's status, finalizer and content as its spec asks."""

    def __init__(self, client: Client, views: Views, recorder: Recorder) -> None:
        self._client = client
        self._views = views
        self._recorder = recorder
        self._queues = views.cache(kinds.QUEUES)
        self._shares: Mapping[str, QueueShare] = {}
        self._written: dict[str, float] = {}
        self._work = Work("queue", self._reconcile, at_once=4)
        self._queues.subscribe(self._on_queue)
        views.jobs.subscribe(self._on_job)
        for cache in views.groups.values():
            cache.subscribe(self._on_group)

    async def run(self) -> None:
        """Work until cancelled."""
        self._work.add(names.DEFAULT_QUEUE)
        await self._work.run()

    def shares(self, shares: Mapping[str, QueueShare]) -> None:
        """Learn what each queue has, after a cycle."""
        before, self._shares = self._shares, shares
        for name, share in shares.items():
            if name not in before or before[name].allocated != share.allocated:
                self._work.add(name)

    def _on_queue(self, change: Change[Queue]) -> None:
        one = change.new or change.old
        if one is not None:
            self._work.add(one.name)

    def _on_group(self, change: Change[PodGroup]) -> None:
        for one in (change.old, change.new):
            if one is not None:
                self._work.add(queue_of(one))

    def _on_job(self, change: Change[Job]) -> None:
        one = change.new or change.old
        found = self._views.find_group(one.namespace, intake.group_of_job(one)) if one is not None else None
        if found is not None:
            self._work.add(queue_of(found[1]))

    async def _reconcile(self, name: str) -> None:
        queue = self._queues.get(name)
        if queue is None:
            self._written.pop(name, None)
            if name == names.DEFAULT_QUEUE:
                await self._create_default()
            return
        if queue.metadata.deletion_timestamp is not None:
            await self._empty(queue)
        elif names.QUEUE_FINALIZER not in (queue.metadata.finalizers or ()) and name not in _PERMANENT:
            await self._set_finalizers(queue, [*(queue.metadata.finalizers or ()), names.QUEUE_FINALIZER])
        await self._write_status(queue)

    async def _create_default(self) -> None:
        manifest = {"metadata": {"name": names.DEFAULT_QUEUE}, "spec": {"weight": 1}}
        try:
            await self._client.create(kinds.QUEUES, manifest)
        except errors.AlreadyExistsError:
            return  # The watch will show it.

    def _content(self, name: str) -> Content:
        groups = ((group, tuple(self._views.jobs_of(group))) for _, group in self._views.groups_of(name))
        share = self._shares.get(name)
        return Content(tuple(groups), share.allocated if share is not None else NOTHING)

    async def _write_status(self, queue: Queue) -> None:
        wanted = status(queue, self._content(queue.name))
        if wanted == queue.status:
            return
        now = asyncio.get_running_loop().time()
        due = self._written.get(queue.name, float("-inf")) + _QUIET
        if now < due and wanted.state == queue.status.state:
            asyncio.get_running_loop().call_later(due - now, self._work.add, queue.name)
            return
        self._written[queue.name] = now
        change = {"metadata": {"uid": queue.metadata.uid}, "status": _json(wanted)}
        try:
            await self._client.patch(kinds.QUEUES, queue.name, change, subresource="status")
        except (errors.NotFoundError, errors.ConflictError):
            return  # Gone, or another of its name: the watch will show it.
        if wanted.state != (queue.status.state or OPEN):
            self._recorder.record(kinds.QUEUES, queue, wanted.state, f"{queue.status.state or OPEN} before")

    async def _empty(self, queue: Queue) -> None:
        """Delete what is in a queue that is being deleted, and let the queue go once nothing is left."""
        if names.QUEUE_FINALIZER not in (queue.metadata.finalizers or ()):
            return
        left = list(self._members(queue.name))
        for kind, one in left:
            if one.metadata.deletion_timestamp is None:
                await self._delete(kind, one)
        if not left:
            rest = [each for each in queue.metadata.finalizers or () if each != names.QUEUE_FINALIZER]
            await self._set_finalizers(queue, rest)

    def _members(self, name: str) -> Iterable[tuple[Kind[Any], PodGroup | Job]]:
        namespaces = self._views.cache(kinds.NAMESPACES)
        yield from list(self._views.groups_of(name))
        for job in list(self._views.jobs.items()):
            found = self._views.find_group(job.namespace, intake.group_of_job(job))
            space = namespaces.get(job.namespace)
            metas = (job.spec.template.metadata, job.metadata, space.metadata if space is not None else None)
            annotated = grouping.queue_name(*metas) if not grouping.group_of(job.spec.template.metadata) else ""
            if (queue_of(found[1]) if found is not None else annotated) == name:
                yield kinds.JOBS, job

    async def _delete(self, kind: Kind[Any], one: PodGroup | Job) -> None:
        try:
            await self._client.delete(kind, one.name, one.namespace, uid=one.metadata.uid)
        except (errors.NotFoundError, errors.ConflictError):
            return  # Gone already, or another of its name.

    async def _set_finalizers(self, queue: Queue, finalizers: list[str]) -> None:
        # With the version, since a merge patch replaces the whole list.
        meta = {"resourceVersion": queue.metadata.resource_version, "finalizers": finalizers or None}
        try:
            await self._client.patch(kinds.QUEUES, queue.name, {"metadata": meta})
        except errors.NotFoundError:
            return
        except errors.ConflictError:
            self._work.add(queue.name)


def _json(wanted: QueueStatus) -> dict[str, Any]:
    """Write a status for a merge patch: zeros too, and no amount that isn't allocated any more."""
    counts = {
        phase: getattr(wanted, phase)
        for phase in ("unknown", "pending", "inqueue", "running", "completed", "failed", "aborted")
    }
    phases = sum(counts[phase] for phase in ("unknown", "pending", "inqueue", "running", "completed"))
    return {"state": wanted.state, "total": phases, **counts, "allocated": wanted.allocated}
