"""The phases of jobs, and the amounts of jobs, queues and nodes, during a cycle. Only this module writes them.

Everybody else sees them; the matrices that others get can't be written to. `Allocations.validate` counts all of it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from scheduler.engine.states import JobState, QueueState
from scheduler.engine.victims import Victims
from scheduler.model import vectors
from scheduler.model.constraints import Port
from scheduler.model.snapshot import JobInfo, Phase, Snapshot, Task, TaskClass, TaskStatus
from scheduler.model.tasks import RequestVectors
from scheduler.model.vectors import Matrix, Vector
from scheduler.topology.device_claims import DeviceClaims
from scheduler.topology.domains import TopologyCounts
from scheduler.topology.volumes import Volumes

OnChange = Callable[[Sequence[int], TaskClass | None, int], None]
"""Learns on which rows something changed: tasks of a class were placed there (1) or undone (-1); None: anything else."""


class Operation(Struct, frozen=True):
    """One entry of a statement.

    ``tasks`` of ``job``, all of one class, got one of ``rows`` each, now (ALLOCATED) or once it is free (PIPELINED); or
    they give their places there up (RELEASING) for ``beneficiary``.
    """

    job: JobState
    tasks: Sequence[Task]
    rows: Sequence[int]
    status: TaskStatus
    beneficiary: JobState | None = None


class HiddenAmounts(NamedTuple):
    """What is taken out of sight on some nodes, of what is idle and of what will be, [nodes, resources]."""

    rows: Sequence[int]
    idle: Matrix
    future: Matrix


NOTHING_HIDDEN: Final = HiddenAmounts((), np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1), dtype=np.int64))
"""Nothing of any node."""


class Allocations:
    """The phases and amounts of one cycle.

    Attributes:
        idle: what of each node nobody has, [nodes, resources]; read-only.
        future: what will be idle once the pods that are leaving are gone, [nodes, resources]; read-only.
        committed: the operations of all statements that were committed, in order.
        hidden: what `hide` keeps out of sight.
        leaving: uids of the tasks that are evicted.
        stand_ins: by uid, the jobs of tasks that stand for pods which don't exist yet.
        releasing: whether anything will be idle that isn't yet.
        ports, ports_later: host ports taken by row, now and once the pods that are leaving are gone.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        jobs: Sequence[JobState],
        queues: dict[str, QueueState],
        topology: TopologyCounts,
        volumes: Volumes,
        devices: DeviceClaims,
        requests: RequestVectors,
    ) -> None:
        self._snapshot, self._axes = snapshot, snapshot.axes
        self._vectors = requests
        self._jobs, self._queues = jobs, queues
        self._topology, self._volumes, self._devices = topology, volumes, devices
        self._idle, self._future = snapshot.idle.copy(), snapshot.idle + snapshot.releasing
        self.idle, self.future = _read_only(self._idle), _read_only(self._future)
        row = snapshot.table.row
        self.ports = {row[name]: list(taken) for name, taken in snapshot.ports.items()}
        self.ports_later = {row[name]: list(taken) for name, taken in snapshot.ports_later.items()}
        self.committed: list[Operation] = []
        self.leaving: set[str] = set()
        self.stand_ins: dict[str, JobState] = {}
        self.releasing = bool(np.count_nonzero(snapshot.releasing))
        self._set_aside: HiddenAmounts | None = None
        self.hidden = NOTHING_HIDDEN
        self._before_pipelining: list[Matrix] = []
        self._requests: dict[TaskClass, Matrix] = {}
        self._phases: dict[int, Phase] = {}
        self._on_change: OnChange = _nobody
        for name in snapshot.satisfied.keys() & queues.keys():
            queues[name].allocated = snapshot.satisfied[name].allocated(self._axes)
        for job in jobs:
            if job.info.queue in queues:
                queues[job.info.queue].jobs.append(job)
        for queue in queues.values():
            queue.allocated = vectors.added((queue.allocated, *[job.allocated for job in queue.jobs]), self._axes)

    def tell(self, on_change: OnChange) -> None:
        """Tell of each change of nodes from now on."""
        self._on_change = on_change

    def request(self, kind: TaskClass) -> Matrix:
        """Return what a task of a class takes, as a row, [resources]; not to be changed."""
        known = self._requests.get(kind)
        if known is None:
            known = self._requests[kind] = vectors.wanted_row(self._vectors.of(kind))
        return known

    @cached_property
    def victims(self) -> Victims:
        """Who runs where; worked out when somebody is to be evicted."""
        return Victims(
            (*self._jobs, *self._satisfied), self._snapshot.table, self.leaving, self.request, self.stand_ins
        )

    @property
    def lacks_victims(self) -> bool:
        """Whether somebody asked who may be evicted, and of satisfied jobs that have pods nobody knows which these are."""
        beside = (job for each in self._snapshot.satisfied.values() for job in each.jobs)
        return "victims" in vars(self) and any(not job.tasks and job.task_counts.occupying for job in beside)

    def jobs_of(self, queue: str) -> Iterator[JobState]:
        """Return all jobs of a queue, those that a snapshot has beside its jobs, too; for who explains, not for who decides."""
        beside = self._snapshot.satisfied.get(queue)
        yield from (job for job in self._jobs if job.info.queue == queue)
        yield from (self._job_state(job) for job in (beside.jobs if beside is not None else ()) if not job.tasks)
        yield from (job for job in self._satisfied if job.info.queue == queue)

    @cached_property
    def _satisfied(self) -> list[JobState]:
        """The jobs that a snapshot has beside its jobs, as far as their tasks are known; who evicts needs them."""
        return [self._job_state(job) for each in self._snapshot.satisfied.values() for job in each.jobs if job.tasks]

    def _job_state(self, job: JobInfo) -> JobState:
        return JobState(job, self._vectors, self._vectors.amounts(job.task_counts))

    # ── phases ───────────────────────────────────────────────────────────────────────────────────────────────────

    def move(self, job: JobState, phase: Phase) -> None:
        """Put a job into another phase; only `Session` calls this."""
        job.phase = self._phases[id(job)] = phase

    # ── statements ───────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, operation: Operation) -> None:
        """Count an operation; only `Statement` calls this."""
        self._count(operation, 1)

    def undo(self, operation: Operation) -> None:
        """Take an operation back; only `Statement` calls this, the last one first."""
        self._count(operation, -1)

    def commit(self, operations: Sequence[Operation]) -> None:
        """Take over the operations of a statement."""
        self.committed += operations
        self.releasing = self.releasing or bool(self.leaving)

    def _count(self, operation: Operation, sign: int) -> None:
        job, status, rows = operation.job, operation.status, operation.rows
        kind, count = operation.tasks[0].task_class, len(operation.tasks)
        gain = -sign if status is TaskStatus.RELEASING else sign
        change = vectors.scale(self._vectors.of(kind), gain * count)
        self._count_on_nodes(operation, kind, sign)
        if status is TaskStatus.PIPELINED:
            job.pipelined += sign * count
        else:
            job.ready += gain * count
        if job.info.min_task_member or job.info.network_bound:
            self._count_members(job, operation, gain)
        job.allocated = vectors.add(job.allocated, change)
        queue = self._queues.get(job.info.queue)
        if queue is not None:
            queue.allocated = vectors.add(queue.allocated, change)
        for row in rows if kind.constraints.ports else ():
            if status is not TaskStatus.RELEASING:
                _count_ports(self.ports.setdefault(row, []), kind, sign)
            _count_ports(self.ports_later.setdefault(row, []), kind, gain)
        for row in rows if kind.constraints.counted_as else ():
            self._topology.count(kind.constraints, row, status, sign)
        for task, row in zip(operation.tasks, rows, strict=True) if kind.constraints.claims else ():
            self._volumes.count(task.uid, kind.constraints, row, status, sign)
        for task, row in zip(operation.tasks, rows, strict=True) if kind.constraints.devices else ():
            self._devices.count(task.uid, kind.constraints, row, status, sign)

    def _count_members(self, job: JobState, operation: Operation, gain: int) -> None:
        status = operation.status if operation.status is TaskStatus.PIPELINED else TaskStatus.ALLOCATED
        for task in operation.tasks if job.info.min_task_member else ():
            job.roles[task.role, status] += gain
        for task, row in zip(operation.tasks, operation.rows, strict=True) if job.info.network_bound else ():
            job.places[task.subgroup, self._snapshot.table.names[row], status] += gain

    def _count_on_nodes(self, operation: Operation, kind: TaskClass, sign: int) -> None:
        request = self.request(kind)
        if operation.status is TaskStatus.ALLOCATED:
            self._take(operation.rows, request if sign > 0 else -request)
            self._on_change(operation.rows, kind, sign)
            return
        row = operation.rows[0]
        self._future[row] -= sign * request if operation.status is TaskStatus.PIPELINED else -sign * request
        if operation.status is TaskStatus.PIPELINED:
            self._keep_for_pipelined(row, sign)
            self._on_change(operation.rows, None, sign)
        else:
            (self.leaving.add if sign > 0 else self.leaving.remove)(operation.tasks[0].uid)
            self.victims.evicted(operation.job, kind, row, sign)

    def _take(self, rows: Sequence[int], amounts: Matrix) -> None:
        """Take amounts of each row, as often as it occurs, of what is idle and of what will be."""
        if len(rows) == 1:
            self._idle[rows[0]] -= amounts
            self._future[rows[0]] -= amounts
            return
        which = np.array(rows)
        np.subtract.at(self._idle, which, amounts)
        np.subtract.at(self._future, which, amounts)

    def _keep_for_pipelined(self, row: int, sign: int) -> None:
        """Keep idle what of it a pipelined task gets, so that nobody else takes it; statements undo the last one first."""
        if sign > 0:
            self._before_pipelining.append(self._idle[row].copy())
            self._idle[row] = np.minimum(self._idle[row], self._future[row])
        else:
            self._idle[row] = self._before_pipelining.pop()

    # ── for a while ──────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def counting(self, queue: QueueState, more: Vector) -> Iterator[None]:
        """Let plugins see a queue as though it had so much more, or less."""
        before = queue.allocated
        queue.allocated = vectors.add(before, more)
        try:
            yield
        finally:
            queue.allocated = before

    def set_aside(self, rows: Sequence[int]) -> HiddenAmounts:
        """Take out of sight what is and will be idle on some nodes; `give_back` ends it."""
        aside = HiddenAmounts(rows, np.zeros_like(self._idle), np.zeros_like(self._future))
        aside.idle[rows] = self._idle[rows].clip(min=0)
        aside.future[rows] = self._future[rows].clip(min=0)
        self._idle -= aside.idle
        self._future -= aside.future
        self._set_aside = aside
        self._on_change(rows, None, 1)
        return aside

    def give_back(self, aside: HiddenAmounts) -> None:
        """Show again what was set aside."""
        self._idle += aside.idle
        self._future += aside.future
        self._set_aside = None
        self._on_change(aside.rows, None, 1)

    def hide(self, rows: Sequence[int]) -> None:
        """Take what is idle on some nodes out of sight, beside what is set aside, and show again what was hidden before."""
        if self.hidden.rows:
            aside, hidden = self._set_aside, self.hidden
            self.give_back(hidden)
            self._set_aside, self.hidden = aside, NOTHING_HIDDEN
        if rows:
            aside = self._set_aside
            self.hidden = self.set_aside(rows)
            self._set_aside = aside

    # ── the proof ────────────────────────────────────────────────────────────────────────────────────────────────

    def validate(self) -> None:
        """Count all amounts and tasks again, from the snapshot and the committed operations.

        Raises:
            AssertionError: a sum is another than what is kept, as it is while a statement is open.
        """
        self._validate_jobs()
        self._validate_tasks()
        self._validate_nodes()
        self._validate_ports()

    def _validate_jobs(self) -> None:
        beside = self._satisfied if "_satisfied" in vars(self) else []
        again = {id(job): self._job_state(job.info) for job in (*self._jobs, *beside)}
        for operation in self.committed:
            job, kind = again[id(operation.job)], operation.tasks[0].task_class
            gain = -1 if operation.status is TaskStatus.RELEASING else 1
            more = vectors.scale(self._vectors.of(kind), gain * len(operation.tasks))
            job.allocated = vectors.add(job.allocated, more)
            job.pipelined += len(operation.tasks) if operation.status is TaskStatus.PIPELINED else 0
            job.ready += gain * len(operation.tasks) if operation.status is not TaskStatus.PIPELINED else 0
            self._count_members(job, operation, gain)
        queues = {name: QueueState(queue.info, self._axes) for name, queue in self._queues.items()}
        for name in self._snapshot.satisfied.keys() & queues.keys():
            queues[name].allocated = self._snapshot.satisfied[name].allocated(self._axes)
        for job in self._jobs:
            counted = again[id(job)]
            for amount in ("allocated", "ready", "pipelined", "roles", "places"):
                _same(f"{amount} of PodGroup {job.info.key}", getattr(job, amount), getattr(counted, amount))
            _same(f"phase of PodGroup {job.info.key}", job.phase, self._phases.get(id(job), job.info.phase))
            if job.info.queue in queues:
                queue = queues[job.info.queue]
                queue.allocated = vectors.add(queue.allocated, counted.allocated)
        for job in beside:
            queue, counted = queues[job.info.queue], again[id(job)]
            change = vectors.subtract(counted.allocated, job.amounts.allocated)
            queue.allocated = vectors.add(queue.allocated, change)
        for name, queue in self._queues.items():
            _same(f"allocated of queue {name}", queue.allocated, queues[name].allocated)

    def _validate_tasks(self) -> None:
        """Each task that waited when the cycle began waits, found no place, or has one."""
        placed = Counter(
            task.uid
            for operation in self.committed
            if operation.status is not TaskStatus.RELEASING
            for task in operation.tasks
        )
        for job in self._jobs:
            there = [task.uid for task in (*job.waiting, *job.unplaced)]
            there += [task.uid for task in job.info.pending for _ in range(placed[task.uid])]
            _same(f"tasks of PodGroup {job.info.key}", sorted(there), sorted(task.uid for task in job.info.pending))

    def _validate_nodes(self) -> None:
        idle, future = self._snapshot.idle.copy(), self._snapshot.idle + self._snapshot.releasing
        bounded = np.zeros(len(idle), dtype=np.bool_)
        leaving = set()
        for operation in self.committed:
            request = self.request(operation.tasks[0].task_class)
            for task, row in zip(operation.tasks, operation.rows, strict=True):
                future[row] -= request if operation.status is not TaskStatus.RELEASING else -request
                if operation.status is TaskStatus.ALLOCATED:
                    idle[row] -= request
                elif operation.status is TaskStatus.PIPELINED:
                    idle[row] = np.minimum(idle[row], future[row])
                    bounded[row] = True
                else:
                    leaving.add(task.uid)
        aside = self._set_aside or HiddenAmounts((), np.zeros_like(idle), np.zeros_like(future))
        _same("leaving", self.leaving, leaving)
        _same("future of nodes", (self._future + aside.future).tolist(), future.tolist())
        # What a pipelined task of another job keeps on a node that is set aside depends on what was out of its sight then.
        bounded &= np.isin(np.arange(len(idle)), aside.rows)
        now = self._idle + aside.idle
        _same("idle of nodes", now[~bounded].tolist(), idle[~bounded].tolist())
        if "victims" in vars(self):
            self._validate_victims()

    def _validate_victims(self) -> None:
        jobs = (*self._jobs, *self._satisfied)
        again = Victims(jobs, self._snapshot.table, self.leaving, self.request, self.stand_ins)
        for operation in self.committed:
            if operation.status is TaskStatus.RELEASING:
                again.evicted(operation.job, operation.tasks[0].task_class, operation.rows[0], 1)
        for name in self._queues:
            kept, counted = self.victims.amounts(name), again.amounts(name)
            _same(f"what may be evicted of queue {name}", kept.tolist(), counted.tolist())

    def _validate_ports(self) -> None:
        row, committed = self._snapshot.table.row, self.committed
        for kept, before, later in (
            (self.ports, self._snapshot.ports, False),
            (self.ports_later, self._snapshot.ports_later, True),
        ):
            again = {row[name]: Counter(taken) for name, taken in before.items()}
            for operation in committed:
                leaves = operation.status is TaskStatus.RELEASING
                for place in operation.rows if later or not leaves else ():
                    ports = dict.fromkeys(operation.tasks[0].task_class.constraints.ports, -1 if leaves else 1)
                    again.setdefault(place, Counter()).update(ports)
            for place in kept.keys() | again.keys():
                name = self._snapshot.table.names[place]
                _same(f"host ports of node {name}", Counter(kept.get(place, ())), +again.get(place, Counter()))


def _read_only(matrix: Matrix) -> Matrix:
    view = matrix.view()
    view.setflags(write=False)
    return view


def _nobody(rows: Sequence[int], kind: TaskClass | None, sign: int) -> None:
    """Tell nobody: nobody has looked at the nodes yet."""


def _count_ports(taken: list[Port], kind: TaskClass, sign: int) -> None:
    for port in sorted(kind.constraints.ports):
        (taken.append if sign > 0 else taken.remove)(port)


def _same(what: str, kept: object, counted: object) -> None:
    assert kept == counted, f"{what}: {kept} is kept, {counted} is counted"
