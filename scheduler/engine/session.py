"""A session: the state of one cycle, and the extension points through which plugins shape it.

How tiers combine: of ordering keys the first that differs decides (then creation time, then uid); of votes a rejection
wins at once and a tier with a permit decides; valid, ready and allocatable: all must agree; overused: any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import numpy as np

from scheduler.engine import tiers as votes
from scheduler.engine.deadlines import Deadlines
from scheduler.engine.isolation import IsolatedPlugin
from scheduler.engine.picker import Picker
from scheduler.engine.plugin import POINTS, Key, Nodes, Plugin
from scheduler.engine.policy import Enabled, Policy
from scheduler.engine.statement import Mark, Statement
from scheduler.engine.states import JobState, QueueState
from scheduler.engine.victims import Victims
from scheduler.model import vectors
from scheduler.model.constraints import Port
from scheduler.model.obstacle import Obstacle, PluginFault
from scheduler.model.snapshot import Phase, Snapshot, Status, Task, TaskClass
from scheduler.model.vectors import Matrix, Vector
from scheduler.topology.domains import TopologyCounts
from scheduler.topology.volumes import Volumes

__all__ = ["JobState", "QueueState", "Session"]


_USER_PLUGIN_SECONDS: Final = 60.0
"""Seconds between two cycles where a plugin of a user may decide by the clock."""
_NOTHING: Final[Matrix] = np.zeros((1, 1), dtype=np.int64)
"""Nothing of any node."""


class Session:
    """One cycle's state. Actions change it through `statement` and `let_in` only."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: datetime) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.now = now
        self.deadlines = Deadlines(now.timestamp())
        self.axes = snapshot.axes
        self.idle = snapshot.idle.copy()
        self.future = snapshot.idle + snapshot.releasing
        self.holder: JobState | None = None
        self.withheld = _NOTHING
        self._withheld_later = self.withheld
        self.kept: list[int] = []
        self._lifted = False
        row = snapshot.table.row
        self.ports = {row[name]: list(taken) for name, taken in snapshot.ports.items()}
        self.ports_later = {row[name]: list(taken) for name, taken in snapshot.ports_later.items()}
        self.around = TopologyCounts(snapshot.table, snapshot.neighbours)
        self.volumes = Volumes(snapshot.storage, snapshot.table, self.around)
        self.queues = {name: QueueState(info, self.axes) for name, info in sorted(snapshot.queues.items())}
        for name in snapshot.beside.keys() & self.queues.keys():
            self.queues[name].allocated = snapshot.beside[name].allocated(self.axes)
        self.jobs = [JobState(job, self.axes) for job in snapshot.jobs]
        for job in self.jobs:
            queue = self.queue_of(job)
            if queue is not None:
                queue.jobs.append(job)
                queue.allocated = vectors.add(queue.allocated, job.allocated)
        self.releasing = bool(np.count_nonzero(snapshot.releasing))
        self.placed: list[Mark] = []
        self.leaving: set[str] = set()
        self._held: list[Matrix] = []
        self.faults: dict[tuple[str, str], PluginFault] = {}
        self._tiers = self._open_plugins()
        self._without_room = [[ask for ask in tier if not votes.about_room(ask)] for tier in self._tiers["enqueueable"]]
        self._beyond_shares = [ask for tier in self._tiers["allocatable"] for ask in tier if not votes.divides(ask)]
        self._points = {point: [ask for tier in tiers for ask in tier] for point, tiers in self._tiers.items()}
        self._counts_amounts = all(votes.by_amount(ask) for ask in self._points["allocatable"])
        asks = self._points["task_key"]
        for job in self.jobs if asks else ():
            if len(job.waiting) > 1:
                job.waiting = deque(sorted(job.waiting, key=asks[0] if len(asks) == 1 else self._task_key))
        self.picker = Picker(self, self._flat("feasible"), self._flat("score"))

    def _open_plugins(self) -> dict[str, list[list[Callable[..., Any]]]]:
        tiers: dict[str, list[list[Callable[..., Any]]]] = {point: [] for point in POINTS}
        for tier in self.policy.tiers:
            asks: dict[str, list[Callable[..., Any]]] = {}
            for each in tier:
                plugin = self._open_plugin(each)
                for point in votes.points(each.plugin, each.points, guarded=each.guarded):
                    asks.setdefault(point, []).append(getattr(plugin, point))
            for point, found in asks.items():
                tiers[point].append(found)
        return tiers

    def _open_plugin(self, enabled: Enabled) -> Plugin:
        if enabled.guarded:
            # It may look at the clock, of which nobody knows.
            self.deadlines.after(_USER_PLUGIN_SECONDS)
            return IsolatedPlugin(enabled.plugin, enabled.arguments, self, self._note_fault)
        return enabled.plugin(enabled.arguments, self)

    def _note_fault(self, plugin: str, point: str, text: str) -> None:
        self.faults.setdefault((plugin, point), PluginFault(plugin, point, text))

    def _flat(self, point: str) -> list[Callable[..., Any]]:
        return self._points[point]

    def close(self) -> None:
        """Let go of everything: plugins refer back to their session, and all of it is to be freed now, not when the garbage collector comes."""
        vars(self).clear()

    # ── extension points ─────────────────────────────────────────────────────────────────────────────────────────

    def queue_key(self, queue: QueueState) -> Key:
        """Where a queue stands among the queues."""
        return (*[ask(queue) for ask in self._flat("queue_key")], *queue.order)

    def job_key(self, job: JobState) -> Key:
        """Where a job stands among the jobs of its queue."""
        return (*[ask(job) for ask in self._flat("job_key")], job.order)

    def task_key(self, task: Task) -> Key:
        """Where a task stands among the tasks of its job."""
        return (*self._task_key(task), task.created, task.uid, task.namespace, task.name)

    def _task_key(self, task: Task) -> Key:
        return tuple([ask(task) for ask in self._flat("task_key")])

    def enqueueable(self, job: JobState, *, room: bool = True) -> Obstacle | None:
        """Let plugins vote on admitting a job, with or without asking for room; None when nothing is against it."""
        with self._beside_holder(job):
            return votes.vote(self._tiers["enqueueable"] if room else self._without_room, job)

    def _beside_holder(self, job: JobState) -> AbstractContextManager[None]:
        """Count what a reservation is for as used of its queue, while others are asked about."""
        queue, holder = self.queue_of(job), self.holder
        if queue is None or holder is None or self.sees_kept(job) or self.queue_of(holder) is not queue:
            return nullcontext()
        return queue.counted_with(holder.lacking())

    def valid(self, job: JobState) -> Obstacle | None:
        """Return the first objection to placing a job."""
        return next(filter(None, (ask(job) for ask in self._flat("valid"))), None)

    def ready(self, job: JobState) -> bool:
        """Whether a job may start with what it has."""
        for ask in self._points["ready"]:  # noqa: SIM110 - asked for every job, several times: `all` takes twice as long
            if not ask(job):
                return False
        return True

    def missing(self, job: JobState) -> int:
        """Return how many more tasks a job needs at least before it can be ready."""
        return max((ask(job) for ask in self._flat("missing")), default=0)

    def pipelined(self, job: JobState) -> bool:
        """Whether a job may hold what is reserved for it."""
        return votes.vote(self._tiers["pipelined"], job) is None

    def deserved(self, queue: QueueState) -> Vector | None:
        """Return what a queue deserves, None when no plugin divides the cluster."""
        asks = self._points["deserved"]
        return asks[0](queue) if asks else None

    def overused(self, queue: QueueState) -> bool:
        """Whether a queue has had all it may have."""
        return any(ask(queue) for ask in self._flat("overused"))

    def allocatable(self, queue: QueueState, task: Task, count: int = 1, *, beyond: bool = False) -> Obstacle | None:
        """Return the first objection to a queue's taking one more task, or the last of ``count`` tasks of a class.

        ``beyond`` its share of the cluster, too: how that is divided doesn't count then.
        """
        asks = self._flat("allocatable") if not beyond else self._beyond_shares
        more = vectors.scale(task.kind.vector(self.axes), count - 1)
        if self.holder is not None and not self._lifted and self.queue_of(self.holder) is queue:
            more = vectors.add(more, self.holder.lacking())
        with queue.counted_with(more):
            return next(filter(None, (ask(queue, task) for ask in asks)), None)

    def at_once(self, kind: TaskClass) -> bool:
        """Whether many tasks of a class can be decided on together, as though one by one."""
        return self._counts_amounts and self.picker.at_once(kind)

    def starving(self, job: JobState) -> bool:
        """Whether others may be evicted for a job: all plugins of the first tier with an opinion say so."""
        tier = next(iter(self._tiers["starving"]), [])
        return bool(tier) and all(ask(job) for ask in tier)

    def preemptive(self, queue: QueueState, task: Task) -> bool:
        """Whether a queue may take what other queues use, to place a task."""
        return all(ask(queue, task) for ask in self._flat("preemptive"))

    def preemptable(self, claimant: Task, candidates: Sequence[Task]) -> list[Task]:
        """Choose victims within a queue: those that all plugins of the first tier with an answer agree on."""
        return votes.victims(self._tiers["preemptable"], claimant, candidates)

    def reclaimable(self, claimant: Task, candidates: Sequence[Task]) -> list[Task]:
        """Choose victims in other queues: those that all plugins of the first tier with an answer agree on."""
        return votes.victims(self._tiers["reclaimable"], claimant, candidates)

    def objections(self, kind: TaskClass) -> list[tuple[str, int]]:
        """Tell why nodes don't take a class, and of how many nodes each reason is the first."""
        rows = np.arange(len(self.snapshot.table.nodes))
        nodes, left, found = Nodes(self.snapshot.table, rows, self.idle), np.ones(len(rows), dtype=np.bool_), []
        for ask in self._flat("objections"):
            for words, mask in ask(kind, nodes):
                found.append((words, int((mask & left).sum())))
                left &= ~mask
        return [(words, count) for words, count in found if count]

    # ── state ────────────────────────────────────────────────────────────────────────────────────────────────────

    def queue_of(self, job: JobState) -> QueueState | None:
        """Return a job's queue, None where it doesn't exist."""
        return self.queues.get(job.job.queue)

    @cached_property
    def offer(self) -> int:
        """A hash of what nodes have idle, and of what queues are given."""
        table = self.snapshot.table
        queues = [
            (info.name, info.weight, info.priority, info.state, info.parent, *map(str, info.amounts))
            for info in self.snapshot.queues.values()
        ]
        return hash((table.names, table.ready, self.snapshot.idle.tobytes(), *queues))

    @cached_property
    def tenants(self) -> Victims:
        """Who runs where; worked out when somebody is to be evicted."""
        return Victims(self)

    def withhold(self, holder: JobState, rows: list[int]) -> None:
        """Keep what is and will be idle on some nodes from all but one job."""
        self.holder, self.kept = holder, rows
        self._withhold()

    @contextmanager
    def lifted(self, job: JobState) -> Iterator[None]:
        """Let those for whom something is withheld see it; to all others nothing changes."""
        if not self.sees_kept(job):
            yield
            return
        self.idle += self.withheld
        self.future += self._withheld_later
        self._lifted = True
        self.picker.touched(self.kept, None, 1)
        try:
            yield
        finally:
            self._lifted = False
            self._withhold()

    def sees_kept(self, job: JobState) -> bool:
        """Whether nodes are kept for a job, or for one of lower priority, which doesn't hold it up."""
        return self.holder is not None and (job is self.holder or self._rank(job) > self._rank(self.holder))

    def _rank(self, job: JobState) -> int:
        priorities = self.snapshot.priorities
        return priorities.get(job.job.priority_class, priorities.get("", 0))

    def _withhold(self) -> None:
        rows = self.kept
        self.withheld, self._withheld_later = np.zeros_like(self.idle), np.zeros_like(self.future)
        self.withheld[rows] = self.idle[rows].clip(min=0)
        self._withheld_later[rows] = self.future[rows].clip(min=0)
        self.idle -= self.withheld
        self.future -= self._withheld_later
        self.picker.touched(rows, None, 1)

    def let_in(self, job: JobState) -> None:
        """Make a Pending job Inqueue."""
        job.phase, job.obstacle = Phase.INQUEUE, None
        for tell in self._flat("enqueued"):
            tell(job)

    def take_back(self, job: JobState) -> None:
        """Make an Inqueue job Pending again, to be admitted anew or not."""
        job.phase = Phase.PENDING

    def reconsider(self, job: JobState) -> None:
        """Put the tasks that found no place back in line, for another action to try."""
        if job.passed:
            job.waiting = deque(sorted([*job.waiting, *job.passed], key=self.task_key))
            job.passed = []

    def statement(self) -> Statement:
        """Begin a statement."""
        return Statement(self)

    def apply(self, mark: Mark) -> None:
        """Make a mark; only `Statement` calls this."""
        self._count(mark, 1)

    def unapply(self, mark: Mark) -> None:
        """Take a mark back; only `Statement` calls this."""
        self._count(mark, -1)

    def keep(self, journal: Sequence[Mark]) -> None:
        """Take over the marks of a committed statement."""
        self.placed += journal
        self.releasing = self.releasing or bool(self.leaving)

    def _count(self, mark: Mark, sign: int) -> None:
        job, kind, count = mark.job, mark.tasks[0].kind, len(mark.tasks)
        gain = -sign if mark.status is Status.RELEASING else sign
        change = vectors.scale(kind.vector(self.axes), gain * count)
        self._count_on_nodes(mark, kind, sign)
        if mark.status is Status.PIPELINED:
            job.pipelined += sign * count
        else:
            job.ready += gain * count
        for task in mark.tasks if job.job.min_task_member else ():
            role = Status.PIPELINED if mark.status is Status.PIPELINED else Status.ALLOCATED
            job.roles[task.role, role] += gain
        job.allocated = vectors.add(job.allocated, change)
        queue = self.queue_of(job)
        if queue is not None:
            queue.allocated = vectors.add(queue.allocated, change)
        for row in mark.rows if kind.constraints.ports else ():
            if mark.status is not Status.RELEASING:
                _count_ports(self.ports.setdefault(row, []), kind, sign)
            _count_ports(self.ports_later.setdefault(row, []), kind, gain)
        for row in mark.rows if kind.constraints.tallied else ():
            self.around.count(kind.constraints, row, mark.status, sign)
        for task, row in zip(mark.tasks, mark.rows, strict=True) if kind.constraints.claims else ():
            self.volumes.count(task.uid, kind.constraints, row, mark.status, sign)

    def _count_on_nodes(self, mark: Mark, kind: TaskClass, sign: int) -> None:
        wanted = self.picker.row_of(kind)
        if mark.status is Status.ALLOCATED:
            self._take(mark.rows, sign * wanted)
            self.picker.touched(mark.rows, kind, sign)
            return
        row = mark.rows[0]
        self.future[row] -= sign * wanted if mark.status is Status.PIPELINED else -sign * wanted
        if mark.status is Status.PIPELINED:
            self._hold(row, sign)
            self.picker.touched(mark.rows, None, sign)
        else:
            (self.leaving.add if sign > 0 else self.leaving.remove)(mark.tasks[0].uid)
            self.tenants.evicted(mark.job, kind, row, sign)

    def _take(self, rows: Sequence[int], amounts: Matrix) -> None:
        """Take amounts of each row, as often as it occurs, of what is idle and of what will be."""
        if len(rows) == 1:
            self.idle[rows[0]] -= amounts
            self.future[rows[0]] -= amounts
            return
        which = np.array(rows)
        np.subtract.at(self.idle, which, amounts)
        np.subtract.at(self.future, which, amounts)

    def _hold(self, row: int, sign: int) -> None:
        """Keep idle what of it was reserved, so that nobody else takes it; statements undo the last one first."""
        if sign > 0:
            self._held.append(self.idle[row].copy())
            self.idle[row] = np.minimum(self.idle[row], self.future[row])
        else:
            self.idle[row] = self._held.pop()


def _count_ports(taken: list[Port], kind: TaskClass, sign: int) -> None:
    for port in sorted(kind.constraints.ports):
        (taken.append if sign > 0 else taken.remove)(port)
