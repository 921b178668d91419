"""The extension points: the combined answers of a policy's plugins.

How tiers combine: of ordering keys the first that differs decides (then creation time, then uid); of votes a rejection
wins at once and a tier with a permit decides; valid, ready and allocatable: all must agree; overused: any.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import numpy as np

from scheduler.engine import tiers
from scheduler.engine.allocations import Allocations
from scheduler.engine.isolation import IsolatedPlugin
from scheduler.engine.node_reservation import NodeReservation
from scheduler.engine.plugin import POINTS, Key, Nodes, Plugin
from scheduler.engine.policy import ConfiguredPlugin, Policy
from scheduler.engine.states import JobState, QueueState
from scheduler.engine.view import SessionView
from scheduler.model import vectors
from scheduler.model.obstacle import Obstacle, PluginFault
from scheduler.model.snapshot import Task, TaskClass
from scheduler.model.vectors import Vector

_USER_PLUGIN_SECONDS: Final = 60.0
"""Seconds between two cycles where a plugin of a user may decide by the clock."""

Methods = list[Callable[..., Any]]

_AS_IT_IS: Final = nullcontext()


class Extensions:
    """The plugins of one cycle, asked together.

    Attributes:
        faults: what plugins of users did wrong, by plugin and extension point.
    """

    def __init__(
        self, policy: Policy, session: SessionView, allocations: Allocations, reservation: NodeReservation
    ) -> None:
        self._session, self._allocations, self._reservation = session, allocations, reservation
        self.faults: dict[tuple[str, str], PluginFault] = {}
        self._tiers = self._open_plugins(policy)
        self._methods = {point: [method for tier in each for method in tier] for point, each in self._tiers.items()}
        self._votes_without_room = [
            [method for method in tier if not tiers.plugin_of(method).about_room] for tier in self._tiers["enqueueable"]
        ]
        allocatable = self._methods["allocatable"]
        self._beyond_shares = [method for method in allocatable if not tiers.plugin_of(method).divides]
        self.by_amount = all(tiers.plugin_of(method).by_amount for method in allocatable)

    def _open_plugins(self, policy: Policy) -> dict[str, list[Methods]]:
        opened: dict[str, list[Methods]] = {point: [] for point in POINTS}
        for tier in policy.tiers:
            methods: dict[str, Methods] = {}
            for each in tier:
                plugin = self._open_plugin(each)
                for point in tiers.points(each.plugin, each.points, isolated=each.isolated):
                    methods.setdefault(point, []).append(getattr(plugin, point))
            for point, found in methods.items():
                opened[point].append(found)
        return opened

    def _open_plugin(self, enabled: ConfiguredPlugin) -> Plugin:
        if enabled.isolated:
            # It may look at the clock, of which nobody knows.
            self._session.deadlines.after(_USER_PLUGIN_SECONDS)
            return IsolatedPlugin(enabled.plugin, enabled.arguments, self._session, self._note_fault)
        return enabled.plugin(enabled.arguments, self._session)

    def _note_fault(self, plugin: str, point: str, text: str) -> None:
        self.faults.setdefault((plugin, point), PluginFault(plugin, point, text))

    def methods(self, point: str) -> Methods:
        """Return the methods of all plugins that have an extension point, in the order of the tiers."""
        return self._methods[point]

    def asks_users(self, *points: str) -> bool:
        """Whether a user's plugin has one of some extension points."""
        methods = (method for point in points for method in self._methods[point])
        return any(isinstance(tiers.plugin_of(method), IsolatedPlugin) for method in methods)

    # ── order ────────────────────────────────────────────────────────────────────────────────────────────────────

    def queue_key(self, queue: QueueState) -> Key:
        """Where a queue stands among the queues."""
        return (*[method(queue) for method in self._methods["queue_key"]], *queue.order)

    def victim_queue_key(self, queue: QueueState, preemptor: QueueState) -> Key:
        """Where a queue stands among those that another takes from, before how important they are."""
        return tuple([method(queue, preemptor) for method in self._methods["victim_queue_key"]])

    def job_key(self, job: JobState) -> Key:
        """Where a job stands among the jobs of its queue."""
        return (*[method(job) for method in self._methods["job_key"]], job.order)

    def task_key(self, task: Task) -> Key:
        """Where a task stands among the tasks of its job."""
        return (*self._task_key(task), task.created, task.uid, task.namespace, task.name)

    def victim_key(self, job: JobState, task: Task) -> Key:
        """Where a task stands among those that may be evicted: by what plugins say of its job, then of itself, the older first."""
        jobs = [method(job) for method in self._methods["job_key"]]
        return (*jobs, *self._task_key(task), job.order, task.created, task.uid, task.namespace, task.name)

    def waiting_key(self) -> Callable[[Task], Key] | None:
        """Return the key by which tasks that are in the order of their creation are sorted; None where they stay so."""
        methods = self._methods["task_key"]
        if not methods:
            return None
        return methods[0] if len(methods) == 1 else self._task_key

    def _task_key(self, task: Task) -> Key:
        return tuple([method(task) for method in self._methods["task_key"]])

    # ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def enqueueable(self, job: JobState, *, room: bool = True) -> Obstacle | None:
        """Let plugins vote on admitting a job, with or without asking for room; None when nothing is against it."""
        with self._beside_reservation(job):
            return tiers.vote(self._tiers["enqueueable"] if room else self._votes_without_room, job)

    def _beside_reservation(self, job: JobState) -> AbstractContextManager[None]:
        """Count what nodes are kept for as used of its queue, while others are asked about."""
        holder = self._reservation.job
        if holder is None or self._reservation.serves(job):
            return _AS_IT_IS
        queue = self._session.queue_of(job)
        if queue is None or self._session.queue_of(holder) is not queue:
            return _AS_IT_IS
        return self._allocations.counting(queue, holder.lacking())

    def enqueued(self, job: JobState) -> None:
        """Tell plugins that a job was admitted."""
        for method in self._methods["enqueued"]:
            method(job)

    def valid(self, job: JobState) -> Obstacle | None:
        """Return the first objection to placing a job."""
        return _first_objection(self._methods["valid"], job)

    def ready(self, job: JobState) -> bool:
        """Whether a job may start with what it has."""
        for method in self._methods["ready"]:  # noqa: SIM110 - asked for every job, several times: `all` takes twice as long
            if not method(job):
                return False
        return True

    def missing(self, job: JobState) -> int:
        """Return how many more tasks a job needs at least before it can be ready."""
        return max([method(job) for method in self._methods["missing"]], default=0)

    def pipelined(self, job: JobState) -> bool:
        """Whether a job may hold the places that it waits for."""
        return tiers.vote(self._tiers["pipelined"], job) is None

    def starving(self, job: JobState) -> bool:
        """Whether others may be evicted for a job: all plugins of the first tier with an opinion say so."""
        tier = next(iter(self._tiers["starving"]), [])
        return bool(tier) and all(method(job) for method in tier)

    # ── queues ───────────────────────────────────────────────────────────────────────────────────────────────────

    def deserved(self, queue: QueueState) -> Vector | None:
        """Return what a queue deserves, None when no plugin divides the cluster."""
        methods = self._methods["deserved"]
        return methods[0](queue) if methods else None

    def overused(self, queue: QueueState) -> bool:
        """Whether a queue has had all it may have."""
        for method in self._methods["overused"]:  # noqa: SIM110 - asked at each turn, as `ready` is
            if method(queue):
                return True
        return False

    def allocatable(self, queue: QueueState, task: Task, count: int = 1, *, beyond: bool = False) -> Obstacle | None:
        """Return the first objection to a queue's taking one more task, or the last of ``count`` tasks of a class.

        ``beyond`` its share of the cluster, too: how that is divided doesn't count then.
        """
        methods = self._beyond_shares if beyond else self._methods["allocatable"]
        holder = self._reservation.job
        if holder is None and count == 1:
            # Most groups of one pod: nothing is to be counted beside what the queue has.
            return _first_objection(methods, queue, task)
        more = vectors.scale(self._session.vector(task.task_class), count - 1)
        if holder is not None and not self._reservation.visible and self._session.queue_of(holder) is queue:
            more = vectors.add(more, holder.lacking())
        with self._allocations.counting(queue, more):
            return _first_objection(methods, queue, task)

    def preemptive(self, queue: QueueState, task: Task) -> bool:
        """Whether a queue may take what other queues use, to place a task."""
        return all(method(queue, task) for method in self._methods["preemptive"])

    # ── victims and nodes ────────────────────────────────────────────────────────────────────────────────────────

    def preemptable(
        self, preemptor: Task, candidates: Sequence[Task], *, besides: Collection[str] = frozenset()
    ) -> list[Task]:
        """Choose victims within a queue: those that all plugins of the first tier with an answer agree on.

        ``besides``: uids of others that may go, if no plugin protects them.
        """
        return tiers.victims(self._tiers["preemptable"], preemptor, candidates, besides)

    def reclaimable(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        """Choose victims in other queues: those that all plugins of the first tier with an answer agree on."""
        return tiers.victims(self._tiers["reclaimable"], preemptor, candidates)

    def objections(self, kind: TaskClass) -> list[tuple[str, int]]:
        """Return why nodes don't take a class, and of how many nodes each reason is the first."""
        table = self._session.snapshot.table
        rows = np.arange(len(table.nodes))
        nodes, left, found = Nodes(table, rows, self._session.idle), np.ones(len(rows), dtype=np.bool_), []
        for method in self._methods["objections"]:
            for words, mask in method(kind, nodes):
                found.append((words, int((mask & left).sum())))
                left &= ~mask
        return [(words, count) for words, count in found if count]


def _first_objection(methods: Methods, *asked: JobState | QueueState | Task) -> Obstacle | None:
    for method in methods:
        objection: Obstacle | None = method(*asked)
        if objection is not None:
            return objection
    return None
