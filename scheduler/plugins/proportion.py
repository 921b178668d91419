"""Shares of the cluster by weight: what each queue deserves, and who is beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.model.amounts import NOTHING
from scheduler import messages, vectors
from scheduler.plugin import Key, Obstacle, Plugin, Vote
from scheduler.session import JobState, QueueState, Session
from scheduler.snapshot import Task
from scheduler.vectors import UNLIMITED, Axes, Vector
from scheduler.waterfill import Claim, fill


class Proportion(Plugin):
    """Water-filling over the queues, resource by resource; a queue takes no more than it deserves."""

    name = "proportion"
    guards = True
    by_amount = True
    divides = True

    def __init__(self, arguments: Any, session: Session) -> None:
        super().__init__(arguments, session)
        axes, total = session.axes, session.snapshot.table.total
        guarantees = {name: axes.vector(queue.info.guarantee or NOTHING) for name, queue in session.queues.items()}
        promised = axes.zero
        for each in guarantees.values():
            promised = vectors.add(promised, each)
        self._capability = {name: axes.limit(queue.info.capability) for name, queue in session.queues.items()}
        self._within = {
            name: vectors.least(
                limit, vectors.add(vectors.above_zero(vectors.subtract(total, promised)), guarantees[name])
            )
            for name, limit in self._capability.items()
        }
        self._scarce: set[int] = set()
        self._deserved = self._divide(axes, total, guarantees)
        self._awaited: dict[str, Vector] = {}

    def _divide(self, axes: Axes, total: Vector, guarantees: dict[str, Vector]) -> dict[str, Vector]:
        order = sorted(self.session.queues.values(), key=lambda queue: (-queue.info.priority, queue.order))
        requested = {queue.name: _requested(queue, axes) for queue in order}
        columns = []
        for place in range(len(axes.names)):
            if place not in axes.shared:
                columns.append([UNLIMITED] * len(order))
                continue
            claims = [
                Claim(
                    queue.info.weight,
                    min(self._within[queue.name][place], requested[queue.name][place]),
                    guarantees[queue.name][place],
                )
                for queue in order
            ]
            columns.append(fill(total[place], claims))
            if sum(claim.most for claim in claims) > total[place]:
                self._scarce.add(place)
        rows = zip(*columns, strict=True)
        return {
            queue.name: vectors.least(row, self._capability[queue.name])
            for queue, row in zip(order, rows, strict=False)
        }

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
        wanted, axes = task.kind.vector(self.session.axes), self.session.axes
        free = vectors.subtract(self._deserved[queue.name], queue.allocated)
        if vectors.fits(wanted, free):
            return None
        where = f"left of what queue {queue.name} deserves"
        rest = vectors.subtract(self._capability[queue.name], queue.allocated)
        capped = not vectors.fits(wanted, rest)
        return messages.obstacle(1, wanted, free, axes, where, queue=queue.name, capped=capped)

    def preemptive(self, queue: QueueState, task: Task) -> bool:
        """Whether a queue stays within what it deserves of all that a task asks for."""
        wanted = task.kind.vector(self.session.axes)
        return vectors.fits(wanted, vectors.subtract(self._deserved[queue.name], queue.allocated))

    def reclaimable(self, claimant: Task, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose tasks without which their queues still have what they deserve.

        Of a resource of which there is enough for everybody a queue deserves what it asks for, so that it would be left
        with less without any of its tasks: such a resource is asked about only where a task uses nothing scarce.
        """
        del claimant
        session, left = self.session, dict[str, Vector]()
        chosen = []
        for task in candidates:
            queue = session.queues[session.tenants.owner(task).job.queue]
            amounts = task.kind.vector(session.axes)
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
        limit = (self._capability if job.job.stated is None else self._within)[queue.name]
        free = vectors.subtract(limit, vectors.add(queue.allocated, self._awaiting(queue)))
        wanted = job.lacking()
        if vectors.fits(wanted, free):
            return None
        count = max(job.job.min_member - job.ready, 1)
        where = f"left of the capability of queue {queue.name}"
        own = vectors.add(free, vectors.subtract(self._capability[queue.name], limit))
        grows = vectors.fits(wanted, own)
        return messages.obstacle(count, wanted, free, axes, where, queue=queue.name, nodes=grows, capped=not grows)

    def enqueued(self, job: JobState) -> None:
        """Set aside what a job let in waits for."""
        queue = self.session.queue_of(job)
        if queue is not None and queue.name in self._awaited:
            self._awaited[queue.name] = vectors.add(self._awaited[queue.name], job.lacking())

    def _awaiting(self, queue: QueueState) -> Vector:
        known = self._awaited.get(queue.name)
        if known is None:
            known = self.session.axes.zero
            for job in queue.jobs:
                if job.unfinished:
                    known = vectors.add(known, job.lacking())
            self._awaited[queue.name] = known
        return known


def _requested(queue: QueueState, axes: Axes) -> Vector:
    requested = queue.allocated
    for job in queue.jobs:
        if job.waiting:
            requested = vectors.add(requested, job.job.sums(axes).wanted)
    return requested
