"""Pods as the scheduler sees them: tasks, the classes that no node can tell apart, and how they are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import msgspec
from msgspec import Struct

from muster.model.amounts import Resources
from scheduler.model import vectors
from scheduler.model.constraints import Constraints
from scheduler.model.network_topology import SubGroupKey
from scheduler.model.vectors import PODS, Axes, Vector


class TaskStatus(Enum):
    """Where a task stands. ALLOCATED and PIPELINED exist within a cycle only."""

    PENDING = "Pending"
    GATED = "Gated"
    ALLOCATED = "Allocated"
    PIPELINED = "Pipelined"
    BINDING = "Binding"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    # Members are unique, and the hash of a name is worked out in Python each time.
    __hash__ = object.__hash__


_OCCUPYING = (TaskStatus.RUNNING, TaskStatus.BOUND, TaskStatus.BINDING)
OCCUPYING = frozenset(_OCCUPYING)
"""On a node, and meant to stay there."""
READY = OCCUPYING | {TaskStatus.SUCCEEDED}
"""What counts toward a gang's minimum without being placed."""


class TaskClass(Struct, frozen=True, eq=False, weakref=True):
    """Tasks that no node can tell apart: the same request and the same constraints. Compared by identity."""

    request: Resources
    constraints: Constraints

    def vector(self, axes: Axes) -> Vector:
        """What a task of this class takes of a node: its request, and one pod. `RequestVectors` remembers it."""
        steps = list(axes.request(self.request))
        steps[axes.place[PODS]] = 1
        return tuple(steps)


class Task(msgspec.Struct, frozen=True, gc=False):
    """A pod of a group. It refers to nothing that refers back, so the garbage collector passes over it.

    ``node`` is the name of its node, empty when it has none; ``role`` its task in minTaskMember; ``controller`` the uid
    of the object that controls it; ``preemptable``: it may be evicted; ``never_preempts``: nothing may be evicted for it;
    ``started``: when its node took it, in seconds of the epoch, 0 where nobody said; ``subgroup``: which one of its group it
    is in.
    """

    uid: str
    namespace: str
    name: str
    task_class: TaskClass
    status: TaskStatus
    node: str = ""
    priority: int = 0
    created: float = 0.0
    role: str = ""
    controller: str = ""
    preemptable: bool = True
    never_preempts: bool = False
    started: float = 0.0
    subgroup: SubGroupKey | None = None

    @property
    def bare(self) -> bool:
        """Whether nobody makes another when it is evicted. Of a pod that no API server has stored nobody knows."""
        return bool(self.created) and not self.controller

    def __str__(self) -> str:
        """Write it as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class ExpectedPods(Struct, frozen=True):
    """Pods that a Job has yet to make: ``count`` of one class.

    ``job`` is its uid; ``suspended``: by us, so that they come when we resume it; the rest as of `Task`.
    """

    task_class: TaskClass
    count: int
    job: str
    suspended: bool
    priority: int = 0
    role: str = ""
    never_preempts: bool = False


class JobAmounts(NamedTuple):
    """What the tasks of a job have on nodes, and what those that have none ask for."""

    allocated: Vector
    wanted: Vector


class TaskCounts(NamedTuple):
    """The tasks of a job, counted: by status, and by class those on nodes that are meant to stay and those that wait.

    ``ready``: how many count toward a minimum.
    """

    counts: Mapping[TaskStatus, int]
    pending: tuple[Task, ...]
    occupying: Mapping[TaskClass, int]
    wanting: Mapping[TaskClass, int]
    ready: int


class RequestVectors:
    """What a task of each class takes of a node, by one `Axes`; worked out once. It keeps classes alive, so it lives for one cycle."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self._vectors: dict[TaskClass, Vector] = {}

    def of(self, kind: TaskClass) -> Vector:
        """Return the request of a task of a class, and one pod."""
        vector = self._vectors.get(kind)
        if vector is None:
            vector = self._vectors[kind] = kind.vector(self.axes)
        return vector

    def amounts(self, counts: TaskCounts) -> JobAmounts:
        """Return what the tasks of a job have and want."""
        return JobAmounts(self._total(counts.occupying), self._total(counts.wanting))

    def _total(self, kinds: Mapping[TaskClass, int]) -> Vector:
        amounts = self.axes.zero
        for kind, count in kinds.items():
            if count:
                amounts = vectors.add(amounts, vectors.scale(self.of(kind), count))
        return amounts


def count_tasks(tasks: tuple[Task, ...]) -> TaskCounts:
    """Count tasks."""
    counts: dict[TaskStatus, int] = {}
    kinds: dict[TaskStatus, dict[TaskClass, int]] = {}
    for task in tasks:
        status, kind = task.status, task.task_class
        counts[status] = counts.get(status, 0) + 1
        of_status = kinds.get(status)
        if of_status is None:
            of_status = kinds[status] = {}
        of_status[kind] = of_status.get(kind, 0) + 1
    occupying: Counter[TaskClass] = Counter()
    for status in _OCCUPYING:
        for kind, count in kinds.get(status, {}).items():
            occupying[kind] += count
    pending = [task for task in tasks if task.status is TaskStatus.PENDING] if TaskStatus.PENDING in counts else []
    ready = sum([counts.get(status, 0) for status in READY])
    return TaskCounts(counts, tuple(sorted(pending, key=_age)), occupying, kinds.get(TaskStatus.PENDING, {}), ready)


def _age(task: Task) -> tuple[float, str, str, str]:
    return (task.created, task.uid, task.namespace, task.name)


NO_TASKS = count_tasks(())


# With slots: there are as many as groups, and a cached property would give each a dictionary.
