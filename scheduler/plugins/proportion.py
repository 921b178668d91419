"""Shares of the cluster by weight: what each queue deserves, and who is beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from muster.model.amounts import NOTHING
from scheduler.engine import messages
from scheduler.engine.plugin import Key, Plugin, Vote
from scheduler.engine.states import JobState, QueueState
from scheduler.engine.view import SessionView
from scheduler.model import vectors
from scheduler.model.node_table import NodeTable
from scheduler.model.obstacle import Obstacle
from scheduler.model.snapshot import QueueInfo, Task
from scheduler.model.vectors import UNLIMITED, Axes, Vector
from scheduler.plugins.waterfill import Demand, fill


class Proportion(Plugin):
    """Water-filling over the queues, resource by resource; a queue takes no more than it deserves."""

    name = "proportion"
    guards = True
    by_amount = True
    divides = True

    def __init__(self, arguments: Any, session: SessionView) -> None:
        super().__init__(arguments, session)
        table, infos = session.snapshot.table, tuple([queue.info for queue in session.queues.values()])
        # A queue that changes becomes another object, as does the table.
        bounds = session.topology.cache.get_latest("bounds of queues", infos, lambda: _Bounds(table, infos))
        self._capability, self._within, self._guaranteed = bounds.capability, bounds.within, bounds.guaranteed
        self._scarce: set[int] = set()
        self._deserved = self._divide(bounds, session.axes, table.total)
        self._awaited: dict[str, Vector] = {}

    def _divide(self, bounds: _Bounds, axes: Axes, total: Vector) -> dict[str, Vector]:
        names, queues = bounds.order, self.session.queues
        wishes = [bounds.wish(name, queues[name].requested()) for name in names]
        sums = [sum(column) for column in zip(*[wish.least for wish in wishes], strict=True)]
        if bounds.weighted and all(sums[place] <= total[place] for place in axes.shared):
            # Nobody stands in anybody's way, which is nearly always so.
            return {name: wish.alone for name, wish in zip(names, wishes, strict=True)}
        columns = []
        for place in range(len(axes.names)):
            if place not in axes.shared:
                columns.append([UNLIMITED] * len(names))
                continue
            asked = [wish.most[place] for wish in wishes]
            if sum(asked) > total[place]:
                self._scarce.add(place)
            floors = [bounds.guarantee[name][place] for name in names]
            columns.append(fill(total[place], list(map(Demand, bounds.weights, asked, floors))))
        rows = zip(*columns, strict=True)
        return {name: vectors.least(row, bounds.capability[name]) for name, row in zip(names, rows, strict=False)}

    def queue_key(self, queue: QueueState) -> Key:
        """Order queues: the higher priority first, then the one with the smallest part of what it deserves."""
        share = vectors.share(queue.allocated, self._deserved[queue.name], self.session.axes.shared)
        return (-queue.info.priority, share)

    def deserved(self, queue: QueueState) -> Vector:
        """Tell what the division came to."""
        return self._deserved[queue.name]

    def overused(self, queue: QueueState) -> bool:
        """Whether a queue has all it deserves, of everything."""
        deserved = self._deserved[queue.name]
        return all(deserved[place] <= queue.allocated[place] for place in self.session.axes.shared)

    def allocatable(self, queue: QueueState, task: Task) -> Obstacle | None:
        """Object to a task that takes its queue beyond what it deserves."""
        wanted, axes = self.session.vector(task.task_class), self.session.axes
        free = vectors.subtract(self._deserved[queue.name], queue.allocated)
        if vectors.fits(wanted, free):
            return None
        where = f"left of what queue {queue.name} deserves"
        rest = vectors.subtract(self._capability[queue.name], queue.allocated)
        capped = not vectors.fits(wanted, rest)
        return messages.obstacle(1, wanted, free, axes, where, queue=queue.name, capped=capped)

    def preemptive(self, queue: QueueState, task: Task) -> bool:
        """Whether a queue stays within what it deserves of all that a task asks for."""
        wanted = self.session.vector(task.task_class)
        return vectors.fits(wanted, vectors.subtract(self._deserved[queue.name], queue.allocated))

    def reclaimable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose tasks without which their queues still have what they deserve.

        Of a resource of which there is enough for everybody a queue deserves what it asks for, so that it would be left
        with less without any of its tasks: such a resource is asked about only where a task uses nothing scarce.
        """
        del preemptor
        session, left = self.session, dict[str, Vector]()
        chosen = []
        for task in candidates:
            queue = session.queues[session.victims.job_of(task).info.queue]
            amounts = session.vector(task.task_class)
            rest = vectors.subtract(left.get(queue.name, queue.allocated), amounts)
            deserved = self._deserved[queue.name]
            used = {place for place in session.axes.shared if amounts[place]}
            if all(rest[place] >= deserved[place] for place in used & self._scarce or used):
                left[queue.name] = rest
                chosen.append(task)
        return chosen

    def enqueueable(self, job: JobState) -> Vote:
        """Reject what its queue could not hold beside what it holds and awaits.

        An estimate (a group without minResources) is held against the queue's own limit only, not against the size of
        the cluster, which may grow: that is for overcommit to judge.
        """
        queue, axes = self.session.queue_of(job), self.session.axes
        if queue is None:
            return None
        limit = (self._capability if job.info.min_resources is None else self._within)[queue.name]
        free = vectors.subtract(limit, vectors.add(queue.allocated, self._awaiting(queue)))
        wanted = job.lacking()
        if vectors.fits(wanted, free):
            return None
        count = max(job.info.min_member - job.ready, 1)
        own = vectors.add(free, vectors.subtract(self._capability[queue.name], limit))
        others = bool(self._guaranteed - {queue.name})
        return messages.queue_obstacle(count, wanted, own, free, axes, queue.name, guaranteed=others)

    def enqueued(self, job: JobState) -> None:
        """Set aside what an admitted job waits for."""
        queue = self.session.queue_of(job)
        if queue is not None and queue.name in self._awaited:
            self._awaited[queue.name] = vectors.add(self._awaited[queue.name], job.lacking())

    def _awaiting(self, queue: QueueState) -> Vector:
        known = self._awaited.get(queue.name)
        if known is None:
            known = self.session.axes.zero
            for job in queue.jobs:
                if job.unfinished and any(lacking := job.lacking()):
                    known = vectors.add(known, lacking)
            self._awaited[queue.name] = known
        return known


class _QueueDemand(NamedTuple):
    """What a queue uses and asks for, as far as its bounds let it; its floor at least; what it deserves if nobody minds."""

    asked: Vector
    most: Vector
    least: Vector
    alone: Vector


class _Bounds:
    """What queues state and the nodes allow: all of a division but what queues use and ask for.

    Attributes:
        order: names, in the order in which what can't be divided is given away; ``weights`` in the same order.
        within: what a queue may have at most: its capability, and what isn't guaranteed to others.
        guaranteed: the queues that something is guaranteed to.
        floors: what it has in any case; what isn't divided is unlimited.
        weighted: whether each has a weight.
    """

    def __init__(self, table: NodeTable, infos: Sequence[QueueInfo]) -> None:
        axes, guaranteed = table.axes, table.axes.zero
        order = sorted(infos, key=lambda info: (-info.priority, info.created, info.name))
        self.order = [info.name for info in order]
        self.weights = [info.weight for info in order]
        self.weighted = bool(order) and min(self.weights) > 0
        self.guarantee = {info.name: axes.vector(info.guarantee or NOTHING) for info in order}
        self.capability = {info.name: axes.limit(info.capability) for info in order}
        self.guaranteed = frozenset(name for name, each in self.guarantee.items() if any(each))
        for each in self.guarantee.values():
            guaranteed = vectors.add(guaranteed, each)
        undivided = tuple([0 if place in axes.shared else UNLIMITED for place in range(len(axes.names))])
        self.floors = {name: vectors.most(each, undivided) for name, each in self.guarantee.items()}
        self._wishes: dict[str, _QueueDemand] = {}
        rest = vectors.above_zero(vectors.subtract(table.total, guaranteed))
        self.within = {
            name: vectors.least(limit, vectors.add(rest, self.guarantee[name]))
            for name, limit in self.capability.items()
        }

    def wish(self, name: str, asked: Vector) -> _QueueDemand:
        """Return what a queue may hope for; most queues ask for what they asked for in the cycle before."""
        known = self._wishes.get(name)
        if known is None or known.asked != asked:
            most = vectors.least(self.within[name], asked)
            least = vectors.most(most, self.floors[name])
            known = _QueueDemand(asked, most, least, vectors.least(least, self.capability[name]))
            self._wishes[name] = known
        return known
