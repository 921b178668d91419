"""Queues and jobs during a cycle: what of them changes while it decides."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from scheduler.model import vectors
from scheduler.model.network_topology import SubGroupKey
from scheduler.model.obstacle import Obstacle
from scheduler.model.snapshot import OCCUPYING, READY, JobInfo, Phase, QueueInfo, Task, TaskClass, TaskStatus
from scheduler.model.tasks import JobAmounts, RequestVectors
from scheduler.model.vectors import Axes, Vector

Place = tuple[SubGroupKey | None, str, TaskStatus]
"""A subgroup, a node's name, and ALLOCATED or PIPELINED."""

_UNFINISHED: Final = frozenset({Phase.INQUEUE, Phase.RUNNING, Phase.UNKNOWN})
_RAN: Final = frozenset({Phase.RUNNING, Phase.UNKNOWN})


class QueueState:
    """A queue during a cycle. ``allocated``: what its tasks have, places that are only reserved included."""

    def __init__(self, info: QueueInfo, axes: Axes) -> None:
        self.info = info
        self.jobs: list[JobState] = []
        self.allocated: Vector = axes.zero
        self._started: int | None = None

    @property
    def started(self) -> int:
        """How many of its jobs have started and haven't ended; counted once, then kept by `job_started`."""
        if self._started is None:
            self._started = sum(job.started for job in self.jobs)
        return self._started

    def job_started(self) -> None:
        """Count a job that has a place now and had none when `started` was asked for."""
        self._started = self.started + 1

    def requested(self) -> Vector:
        """What its tasks have and ask for.

        Pods that its Jobs have yet to make are asked for as well, or a queue of Jobs that are held back would ask for nothing.
        """
        requested = self.allocated
        for job in self.jobs:
            if job.waiting:
                requested = vectors.add(requested, job.amounts.wanted)
            for each in job.info.expected_pods if not job.info.inadmissible else ():
                requested = vectors.add(requested, vectors.scale(job.vector(each.task_class), each.count))
        return requested

    @property
    def name(self) -> str:
        """Its name."""
        return self.info.name

    @property
    def order(self) -> tuple[float, str]:
        """The last word where plugins see no difference."""
        return (self.info.created, self.info.name)


# Shared by all that have none, since there may be ten thousand: nothing can be put into the one, and of the other nothing
# is counted where minTaskMember doesn't ask.
_NOBODY: Final[deque[Task]] = deque(maxlen=0)
_NO_ROLES: Final[Counter[tuple[str, TaskStatus]]] = Counter()
_NO_PLACES: Final[Counter[Place]] = Counter()


class JobState:
    """A job during a cycle.

    Attributes:
        amounts: what its tasks have and want at the cycle's beginning.
        waiting: tasks without a place, in the order in which they get one.
        unplaced: tasks that found no place in this cycle.
        ready: tasks that count toward the minimum: placed, placed in this cycle, or succeeded.
        pipelined: tasks for which this cycle reserved a place.
        kept: how many of these stand for pods that don't exist yet.
        roles: by role, how many tasks are ready and how many pipelined; kept where minTaskMember asks.
        places: how many tasks of each subgroup each node has or will have; kept where the network between them matters. Those
            that ended count as ALLOCATED on no node.
        obstacle: why it got no further in this cycle, as far as an action knows.
        rolled_back: why it was taken back in this cycle, after it had been admitted for too long in vain.
        voted_down: it is Pending, and nothing but the plugins' votes keeps it there.
        lapsed_after: it is Unknown, and for so many seconds what it lacks came to nothing; None where that is still held for it.
        blocked_class: the class of a task that found no node.
    """

    # What few jobs come to have in a cycle is of the class, since there may be ten thousand jobs.
    pipelined = 0
    kept = 0
    roles = _NO_ROLES
    places = _NO_PLACES
    obstacle: Obstacle | None = None
    rolled_back: Obstacle | None = None
    voted_down = False
    lapsed_after: float | None = None
    blocked_class: TaskClass | None = None
    _need: Vector | None = None
    _lacking: tuple[bool, Vector, Vector] | None = None

    def __init__(self, job: JobInfo, requests: RequestVectors, amounts: JobAmounts) -> None:
        self.info = job
        self.amounts = amounts
        self.axes = requests.axes
        self._requests = requests
        self.phase = job.phase
        counts = job.task_counts
        self.waiting: deque[Task] = deque(counts.pending) if counts.pending else _NOBODY
        self.unplaced: list[Task] = []
        self.ready = counts.ready
        if job.min_task_member:
            self.roles = Counter((task.role, TaskStatus.ALLOCATED) for task in job.tasks if task.status in READY)
        if job.network_bound:
            self.places = Counter(
                (task.subgroup, task.node if task.status in OCCUPYING else "", TaskStatus.ALLOCATED)
                for task in job.tasks
                if task.status in READY
            )
        self.allocated: Vector = amounts.allocated

    @property
    def order(self) -> Any:
        """The last word where plugins see no difference."""
        return self.info.order

    @property
    def unfinished(self) -> bool:
        """Whether it has been admitted and hasn't completed."""
        return self.phase in _UNFINISHED

    @property
    def started(self) -> bool:
        """Whether it was admitted, or has places without that, and hasn't ended."""
        return self.unfinished or (self.phase is Phase.PENDING and bool(self.ready + self.pipelined))

    def vector(self, kind: TaskClass) -> Vector:
        """What a task of this class takes; one pod among it."""
        return self._requests.of(kind)

    def need(self) -> Vector:
        """What it takes to start: its minResources, else minMember times what its pods ask for.

        Where the pods differ, those that run and then those that are placed first count, and pods that nobody has
        seen yet are taken to be like the last one.
        """
        if self._need is None:
            stated = self.info.min_resources
            self._need = self.axes.request(stated) if stated is not None else self._estimate()
        return self._need

    def _estimate(self) -> Vector:
        counts = self.info.task_counts
        if self.waiting and len(counts.wanting) == 1 and not counts.occupying:
            # All that are known of are alike, as in most groups.
            return vectors.scale(self.vector(self.waiting[0].task_class), self.info.min_member)
        amounts, missing = self.axes.zero, self.info.min_member
        last: Vector = self.axes.zero
        for kind, count in self._members():
            last, taken = self.vector(kind), min(count, missing)
            amounts, missing = vectors.add(amounts, vectors.scale(last, taken)), missing - taken
            if not missing:
                break
        return vectors.add(amounts, vectors.scale(last, missing))

    def _members(self) -> Iterator[tuple[TaskClass, int]]:
        """Return its pods by class: those that run, those that are placed first, those that don't exist yet."""
        yield from self.info.task_counts.occupying.items()
        for kind, alike in groupby(self.waiting, key=_task_class):
            yield kind, len(list(alike))
        yield from ((each.task_class, each.count) for each in self.info.expected_pods)

    def spares(self, roles: Counter[str]) -> bool:
        """Whether it can do without so many tasks of these roles: it has its minimum without, and need not go as a whole."""
        if self.info.disruption.whole:
            return False
        if self.ready - roles.total() < self.info.min_member:
            return False
        least = self.info.min_task_member
        return all(self.roles[role, TaskStatus.ALLOCATED] - roles[role] >= least[role] for role in least)

    def in_subgroup(self, key: SubGroupKey | None, *, pipelined: bool = False) -> int:
        """Return how many tasks of a subgroup are ready; with ``pipelined``, those that have a place reserved, too."""
        return sum(
            count
            for (subgroup, _, status), count in self.places.items()
            if subgroup == key and (pipelined or status is TaskStatus.ALLOCATED)
        )

    def complete_subgroups(self, policy: int, *, pipelined: bool = False) -> int:
        """Return how many subgroups of a policy have as many tasks as start together."""
        size = self.info.subgroups[policy].size
        keys = {key for key, _, _ in self.places if key is not None and key[0] == policy}
        return sum(self.in_subgroup(key, pipelined=pipelined) >= size for key in keys)

    def lapse(self, seconds: float) -> None:
        """Hold nothing any more for what is missing of its minimum, since nothing came of it for so long."""
        self.lapsed_after, self._lacking = seconds, None

    @property
    def unknown_need(self) -> bool:
        """Whether nothing says what it takes to start: no minResources, no pod, no Job."""
        return (
            self.info.min_resources is None
            and not self.info.tasks
            and not self.info.expected_pods
            and self.info.min_member > 0
        )

    def lacking(self) -> Vector:
        """What of the need it doesn't have yet, nor had: what its ended pods gave back, it doesn't wait for.

        A group that ran and has no pods waits for nothing: it goes back to Pending. Nor does one that `lapse` was called of.
        """
        # Several plugins ask for each job of a cycle.
        known, ran = self._lacking, self.phase in _RAN
        if known is None or known[0] is not ran or known[1] is not self.allocated:
            known = self._lacking = ran, self.allocated, self._lacks(ran=ran)
        return known[2]

    def _runs_as_estimated(self) -> bool:
        """Whether its need is that of its first pods, and as many have nodes: then it lacks nothing, whatever these ask for."""
        if self.info.min_resources is not None or self.allocated is not self.amounts.allocated:
            return False
        return sum(self.info.task_counts.occupying.values()) >= self.info.min_member

    def _lacks(self, *, ran: bool) -> Vector:
        waits_in_vain = self.lapsed_after is not None or (ran and not self.info.tasks)
        if self.info.finished or waits_in_vain or (self.info.min_resources is None and not self.info.min_member):
            return self.axes.zero
        if self._runs_as_estimated():
            return self.axes.zero
        had = self.allocated
        if TaskStatus.SUCCEEDED in self.info.counts:
            for task in self.info.tasks:
                if task.status is TaskStatus.SUCCEEDED:
                    had = vectors.add(had, self.vector(task.task_class))
        return vectors.above_zero(vectors.subtract(self.need(), had))


_task_class: Final = attrgetter("task_class")


def priority(info: JobInfo, priorities: Mapping[str, int]) -> int:
    """Return the priority of a job's class; of a job without a class, or of one that does not exist, the default."""
    return priorities.get(info.priority_class, priorities.get("", 0))
