"""The queue controller: states and counters of queues, recomputed from the caches, never incremented."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.kube import errors
from muster.kube.cache import ObjectChange
from muster.kube.client import Client
from muster.kube.events import EventRecorder
from muster.kube.workqueue import WorkQueue
from muster.model import grouping, kinds, names, versions
from muster.model.amounts import NOTHING, Resources
from muster.model.kinds import Kind
from muster.model.objects import Job, NetworkTier, PodGroup, Queue, QueueStatus
from scheduler.engine.lifecycle import SCHEDULED
from scheduler.model.plan import QueueShare
from scheduler.model.snapshot import Phase
from scheduler.state import conversion
from scheduler.state.informers import Informers, queue_of

log = logging.getLogger(__name__)

OPEN, CLOSING, CLOSED, UNKNOWN = "Open", "Closing", "Closed", "Unknown"
_UNFINISHED: Final = frozenset(Phase) - {Phase.COMPLETED}
_QUIET: Final = 1.0
"""Seconds between two writings of the counters of one queue."""
_TICK: Final = 0.001
_AT_ONCE: Final = 64
"""Queues written at a time, two thirds of all requests that may be under way: as many as a busy server gets from those who create.
See docs/decisions/0167-counters-are-written-oldest-first-64-at-a-time.md."""
_NO_DEFAULT: Final = 1.0
"""Seconds until queue default is tried again while webhooks, or the API server, can't be reached: nothing starts before it is there,
and pauses that grew would leave it out for a minute after the first replica got ready."""
_PERMANENT: Final = frozenset({names.DEFAULT_QUEUE, names.ROOT_QUEUE})


class QueueContent(Struct, frozen=True):
    """What a queue holds: each of its groups, and the Jobs whose pods are in it.

    ``circle``: the queue and its ancestors, where following parents leads back to it.
    """

    groups: tuple[tuple[PodGroup, tuple[Job, ...]], ...]
    allocated: Resources = NOTHING
    circle: tuple[str, ...] = ()


def status(queue: Queue, content: QueueContent) -> QueueStatus:
    """Compute a queue's status from what it is asked to be and what it holds. Each group counts once.

    A foreign controller's group counts as unknown: how its job stands can't be read.
    """
    unfinished = any(conversion.phase_of(group) in _UNFINISHED for group, _ in content.groups)
    state, message = _state(queue, content, unfinished)
    counters = Counter(_counter(group, jobs) for group, jobs in content.groups)
    allocated = content.allocated.quantities() or None
    counted = QueueStatus(state=state, message=message, total=len(content.groups), allocated=allocated)
    return replace(counted, **counters)


def _counter(group: PodGroup, jobs: Collection[Job]) -> str:
    """Return the counter in which a group counts."""
    if grouping.is_foreign(group.metadata):
        return "unknown"
    if any(map(_failed, jobs)) and all(map(conversion.job_finished, jobs)):
        return "failed"
    if any(_aborted(group, job) for job in jobs) or (not jobs and _abandoned(group)):
        return "aborted"
    return conversion.phase_of(group).value.lower()


def circle(name: str, parent: Callable[[str], str]) -> tuple[str, ...]:
    """Follow parents from a queue; return the way where it leads back to the queue itself, else nothing."""
    path = [name]
    while (above := parent(path[-1])) and above not in path:
        path.append(above)
    return tuple(path) if above == name else ()


def _state(queue: Queue, content: QueueContent, busy: bool) -> tuple[str, str]:  # noqa: FBT001 - facts in, words out
    if queue.metadata.deletion_timestamp is not None:
        return CLOSING, ""
    if content.circle:
        way = " -> ".join([*content.circle, queue.name])
        return UNKNOWN, f"spec.parent leads back to the queue itself ({way}): give one of them another parent"
    if queue.spec.desired_state != CLOSED:
        return OPEN, ""
    return (CLOSING if busy else CLOSED), ""


def _is_open(queue: Queue) -> bool:
    shown = queue.status.state == OPEN
    return shown and queue.spec.desired_state != CLOSED and queue.metadata.deletion_timestamp is None


def _counted_as(group: PodGroup) -> tuple[str, Phase, bool, bool, bool]:
    """Return all of a group that its queue's status depends on, the queue first."""
    foreign, runs = grouping.is_foreign(group.metadata), group.status.running > 0
    return queue_of(group), conversion.phase_of(group), foreign, _started(group), runs


def _failed(job: Job) -> bool:
    return any(each.type == "Failed" and each.status == "True" for each in job.status.conditions or ())


def _aborted(group: PodGroup, job: Job) -> bool:
    """Whether a Job was stopped by its user after it had started."""
    return _started(group) and (conversion.suspended_by_user(job) or job.metadata.deletion_timestamp is not None)


def _abandoned(group: PodGroup) -> bool:
    """Whether a group that a user made ran, and lost its Job and all its pods since; it isn't deleted with them."""
    lost = conversion.phase_of(group) is Phase.PENDING and not group.status.running
    return lost and _started(group) and not grouping.is_generated(group.name)


def _started(group: PodGroup) -> bool:
    """Whether a group runs, or did: one whose pods were all removed is Pending again."""
    if conversion.phase_of(group) in {Phase.RUNNING, Phase.UNKNOWN}:
        return True
    return any(each.type == SCHEDULED for each in group.status.conditions or ())


class _QueueRef(NamedTuple):
    kind: Kind[Queue]
    name: str

    def __str__(self) -> str:
        return self.name if self.kind is kinds.QUEUES else f"{self.name} ({self.kind})"


_NETWORK_PLACE: Final = _QueueRef(kinds.QUEUES, names.DEFAULT_QUEUE)
"""The queue on whose status admission finds the network: always there, and followed by each webhook server."""


class QueueController:
    """Keeps every queue's status, finalizer and content as its spec asks.

    A legacy queue of the name of a primary one is an alias of that: it has its status, and nothing of its own.

    Attributes:
        work: what it has to do. Counters must be right soon, however much there is to write about each group.
    """

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, scheduler_names: Collection[str]
    ) -> None:
        self._client = client
        self._informers = informers
        self._recorder = recorder
        self._names = frozenset(scheduler_names)
        self._shares: Mapping[str, QueueShare] = {}
        self._network: tuple[NetworkTier, ...] | None = None
        self._written: dict[_QueueRef, float] = {}
        self._stored: dict[_QueueRef, Queue] = {}
        self._postponed: set[_QueueRef] = set()
        self.work: WorkQueue[_QueueRef] = WorkQueue("queue", self._reconcile, at_once=_AT_ONCE)
        for queues in informers.queues.values():
            queues.subscribe(self._on_queue)
        informers.jobs.subscribe(self._on_job)
        for groups in informers.groups.values():
            groups.subscribe(self._on_group)

    async def run(self) -> None:
        """Work until cancelled."""
        self._look(names.DEFAULT_QUEUE)
        await self.work.run()

    def observe(self, shares: Mapping[str, QueueShare], network: tuple[NetworkTier, ...]) -> None:
        """Learn what each queue has, and what the network is, after a cycle."""
        if network != self._network:
            self._network = network
            self.work.add(_NETWORK_PLACE)
        before, self._shares = self._shares, shares
        for name, share in shares.items():
            if name not in before or before[name].allocated != share.allocated:
                self._count(name)

    # ── what to look at ──────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, name: str) -> None:
        for kind, cache in self._informers.queues.items():
            if kind is kinds.QUEUES or name == names.DEFAULT_QUEUE or cache.get(name) is not None:
                self.work.add(_QueueRef(kind, name))

    def _on_queue(self, change: ObjectChange[Queue]) -> None:
        for one in (change.old, change.new):
            if one is not None:
                self._look(one.name)
        before, after = (one.spec.parent if one is not None else "" for one in (change.old, change.new))
        if before != after:
            # A circle may have been closed, or opened, for all that are on the way.
            for parent in filter(None, (before, after)):
                for name in self._way_up(parent):
                    self._look(name)

    def _way_up(self, name: str) -> list[str]:
        path = [name]
        while (above := self._parent(path[-1])) and above not in path:
            path.append(above)
        return path

    def _parent(self, name: str) -> str:
        queue = self._informers.queue(name)
        return queue.spec.parent if queue is not None and name != names.ROOT_QUEUE else ""

    def _on_group(self, change: ObjectChange[PodGroup]) -> None:
        old, new = (_counted_as(one) if one is not None else None for one in (change.old, change.new))
        if old == new:
            return  # Most changes are of what is said about it.
        for counted in (old, new):
            if counted is not None:
                self._count(counted[0])

    def _count(self, name: str) -> None:
        """Have a queue's content counted: at once, or where that was done just now, when it may be written again."""
        for kind, cache in self._informers.queues.items():
            key, queue = _QueueRef(kind, name), cache.get(name)
            if queue is not None and _is_open(queue):
                self._again(key)
            else:
                self._look(name)  # Whether it may be closed, or deleted, depends on what is in it.

    def _again(self, key: _QueueRef) -> None:
        left = self._quiet_for(key)
        if not left:
            self.work.add(key)
        elif key not in self._postponed:
            self._postponed.add(key)
            asyncio.get_running_loop().call_later(left, self._postponed_no_more, key)

    def _quiet_for(self, key: _QueueRef) -> float:
        """Return the seconds until a queue's counters may be written again; loops call a little before it is time."""
        left = self._written.get(key, float("-inf")) + _QUIET - asyncio.get_running_loop().time()
        return left if left > _TICK else 0.0

    def _postponed_no_more(self, key: _QueueRef) -> None:
        self._postponed.discard(key)
        self.work.add(key)

    def _on_job(self, change: ObjectChange[Job]) -> None:
        one = change.new or change.old
        found = self._informers.find_group(one.namespace, conversion.group_of_job(one)) if one is not None else None
        if found is not None:
            self._count(queue_of(found[1]))

    async def _reconcile(self, key: _QueueRef) -> None:
        shown = self._informers.queues[key.kind].get(key.name)
        if shown is None:
            self._written.pop(key, None)
            self._stored.pop(key, None)
            if key.name == names.DEFAULT_QUEUE:
                await self._create_default(key)
            return
        queue = self._newest(key, shown)
        if self._informers.queue(key.name) is shown:
            await self._keep(key, queue)
        elif names.QUEUE_FINALIZER in (queue.metadata.finalizers or ()):
            await self._let_go(key, queue)  # It became an alias: what it held is the other's.
        await self._write_status(key, self._newest(key, shown))

    def _newest(self, key: _QueueRef, shown: Queue) -> Queue:
        """Return a queue as it was stored last, as far as is known.

        A busy API server shows what was written seconds later; until then it would be written again.
        """
        stored = self._stored.get(key)
        if stored is None:
            return shown
        newer = not versions.at_least(shown.metadata.resource_version, stored.metadata.resource_version)
        if newer and stored.metadata.uid == shown.metadata.uid:
            return stored
        del self._stored[key]
        return shown

    async def _change(self, key: _QueueRef, change: dict[str, Any], *, subresource: str = "") -> bool:
        """Change a queue; tell whether that very queue was there to be changed.

        Where it was gone, or another, or is at another version, the watch will show it.
        """
        try:
            self._stored[key] = await self._client.patch(key.kind, key.name, change, subresource=subresource)
        except (errors.NotFoundError, errors.ConflictError):
            return False
        return True

    async def _keep(self, key: _QueueRef, queue: Queue) -> None:
        if queue.metadata.deletion_timestamp is not None:
            await self._empty(key, queue)
        elif names.QUEUE_FINALIZER not in (queue.metadata.finalizers or ()) and queue.name not in _PERMANENT:
            await self._set_finalizers(key, queue, [*(queue.metadata.finalizers or ()), names.QUEUE_FINALIZER])

    async def _create_default(self, key: _QueueRef) -> None:
        manifest = {"metadata": {"name": key.name}, "spec": {"weight": 1}}
        try:
            await self._client.create(key.kind, manifest)
        except errors.AlreadyExistsError:
            return  # The watch will show it.
        except (errors.ServerError, errors.TooManyRequestsError, errors.UnreachableError) as error:
            log.info("queue %s can't be created yet, again in %g s: %s", key, _NO_DEFAULT, error)
            self.work.add_after(key, _NO_DEFAULT)

    # ── status ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _content(self, name: str) -> QueueContent:
        groups = ((group, tuple(self._informers.jobs_of(group))) for _, group in self._informers.groups_of(name))
        share = self._shares.get(name)
        return QueueContent(
            tuple(groups), share.allocated if share is not None else NOTHING, circle(name, self._parent)
        )

    async def _write_status(self, key: _QueueRef, queue: Queue) -> None:
        governing = self._informers.queue(key.name) if key.kind is not kinds.QUEUES else None
        wanted = status(governing or queue, self._content(queue.name))
        if key == _NETWORK_PLACE:
            # Until a first cycle has looked at the network, what a leader before wrote stays.
            network = self._network if self._network is not None else queue.status.network_tiers
            wanted = replace(wanted, network_tiers=network)
        if wanted == queue.status:
            return
        if self._quiet_for(key) and wanted.state == queue.status.state:
            self._again(key)
            return
        self._written[key] = asyncio.get_running_loop().time()
        change = {"metadata": {"uid": queue.metadata.uid}, "status": _json(wanted)}
        if not await self._change(key, change, subresource="status"):
            return
        before = queue.status.state or OPEN
        if wanted.state != before:
            text = wanted.message or f"{wanted.state}; was {before}"
            self._recorder.record(key.kind, queue, wanted.state, text, type_="Warning" if wanted.message else "Normal")

    # ── deletion ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _empty(self, key: _QueueRef, queue: Queue) -> None:
        """Delete what is in a queue that is being deleted, and let the queue go once nothing is left."""
        if names.QUEUE_FINALIZER not in (queue.metadata.finalizers or ()):
            return
        left = list(self._members(queue.name))
        for kind, one in left:
            if one.metadata.deletion_timestamp is None:
                await self._delete(kind, one)
        if not left:
            await self._let_go(key, queue)

    def _members(self, name: str) -> Iterable[tuple[Kind[Any], PodGroup | Job]]:
        """Return the groups of a queue, and the Jobs: those in one of its groups, and those of ours whose group isn't there."""
        yield from list(self._informers.groups_of(name))
        namespaces = self._informers.cache(kinds.NAMESPACES)
        for job in list(self._informers.jobs.items()):
            if job.spec.template.spec.scheduler_name not in self._names:
                continue
            found = self._informers.find_group(job.namespace, conversion.group_of_job(job))
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

    async def _let_go(self, key: _QueueRef, queue: Queue) -> None:
        rest = [each for each in queue.metadata.finalizers or () if each != names.QUEUE_FINALIZER]
        await self._set_finalizers(key, queue, rest)

    async def _set_finalizers(self, key: _QueueRef, queue: Queue, finalizers: list[str]) -> None:
        # With the version, since a merge patch replaces the whole list.
        meta = {"resourceVersion": queue.metadata.resource_version, "finalizers": finalizers or None}
        await self._change(key, {"metadata": meta})


_COUNTS: Final = ("total", "unknown", "pending", "inqueue", "running", "completed", "failed", "aborted")


def _json(wanted: QueueStatus) -> dict[str, Any]:
    """Write a status for a merge patch: zeros too, and nothing that isn't so any more."""
    counts = {name: getattr(wanted, name) for name in _COUNTS}
    network = {"networkTiers": msgspec.to_builtins(wanted.network_tiers)} if wanted.network_tiers is not None else {}
    return {
        "state": wanted.state,
        "message": wanted.message or None,
        **counts,
        "allocated": wanted.allocated,
        **network,
    }
