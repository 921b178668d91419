"""The evictions that let one job start, or none at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta, Struct, field

from scheduler.engine import placement
from scheduler.engine.action import ActionArguments
from scheduler.engine.arguments import without_effect
from scheduler.engine.session import Session
from scheduler.engine.statement import Statement
from scheduler.engine.states import JobState, QueueState
from scheduler.model import vectors
from scheduler.model.constraints import ports_clash
from scheduler.model.snapshot import OCCUPYING, Task
from scheduler.model.vectors import Matrix, Vector
from scheduler.topology.node_filters import eligible

_ALL_JUDGED: Final = without_effect("all nodes are judged, with all predicates")

Helps = Callable[[Session, Task, Task, Vector], bool]
"""Whether a task gains by a victim's going, on a node that is short of some amounts."""

_MOST_CROWDED = 100
"""Nodes that are looked at pod by pod, for who is in the way of a task by affinities, ports or volumes: each takes a while."""


class EvictionArguments(ActionArguments, frozen=True, kw_only=True):
    """Arguments of the actions that evict."""

    whole: bool = field(default=False, name="evictWholeJobs")
    topology: Annotated[bool, _ALL_JUDGED] = field(default=False, name="enableTopologyAwarePreemption")
    workers: Annotated[int, Meta(ge=1), _ALL_JUDGED] = field(default=16, name="topologyAwarePreemptWorkerNum")
    least_part: Annotated[int, Meta(ge=0, le=100), _ALL_JUDGED] = field(default=10, name="minCandidateNodesPercentage")
    least: Annotated[int, Meta(ge=0), _ALL_JUDGED] = field(default=1, name="minCandidateNodesAbsolute")
    most: Annotated[int, Meta(ge=1), _ALL_JUDGED] = field(default=100, name="maxCandidateNodesAbsolute")


class Rules(Struct, frozen=True):
    """What tells one eviction action from another.

    Attributes:
        sources: the queues to take from.
        choose: which of the candidates, the one to go first first, may go for a task.
        eligible: whether others may be evicted for a task at all.
        whole: whether a job may be evicted as a whole, where its surplus isn't enough.
    """

    sources: Callable[[QueueState], Iterable[QueueState]]
    choose: Callable[[Task, Sequence[Task]], list[Task]]
    eligible: Callable[[QueueState, Task], bool]
    whole: bool


def starving_jobs(session: Session) -> list[JobState]:
    """Return the jobs for which others may be evicted."""
    found = []
    for job in session.jobs:
        session.retry(job)
        before = job.obstacle
        if session.extensions.starving(job) and placement.may_run(session, job):
            found.append(job)
        job.obstacle = job.obstacle or before
    return found


class EvictionRun:
    """The evictions of one run of an action."""

    def __init__(self, session: Session, rules: Rules) -> None:
        self._session = session
        self._rules = rules
        self._hopeless: set[object] = set()

    def attempt(self, queue: QueueState, job: JobState) -> bool:
        """Evict what lets a job start, and reserve the places for it; leave everything as it was where that fails."""
        session = self._session
        taken: list[Task] = []
        unplaced: list[Task] = []
        counts = bool(queue.info.max_groups) and not job.started
        if counts and placement.crowded(queue, queue.started) is not None:
            return False
        with session.reservation.visible_to(job), session.statement() as statement:
            while job.waiting and session.extensions.starving(job):
                task = job.waiting.popleft()
                taken.append(task)
                if not self._place(statement, queue, job, task):
                    unplaced.append(task)
            # One that needs no evictions is left to the action allocate.
            if statement.evicts and session.extensions.pipelined(job):
                statement.commit()
                if counts:
                    queue.job_started()
                job.unplaced += unplaced
                return True
        job.waiting.extendleft(reversed(taken))
        return False

    def _place(self, statement: Statement, queue: QueueState, job: JobState, task: Task) -> bool:
        """Reserve a place for a task: one that is or gets free anyway, else one that others are evicted from."""
        session = self._session
        if session.extensions.allocatable(queue, task) is None:
            row = session.picker.best_later(task.task_class)
            if row is not None:
                statement.pipeline(job, task, row)
                return True
        # A later job that is like one before it and finds less isn't tried: nothing but evictions came between.
        alike = (queue.name, task.task_class, task.priority, job.info.priority_class)
        if task.never_preempts or alike in self._hopeless or not self._rules.eligible(queue, task):
            return False
        room = self._room(queue)
        rows = session.picker.ranked(task.task_class, room)
        if any(self._make_room(statement, queue, job, task, row, _helps) for row in rows):
            return True
        others = self._crowded(task, room, rows) if task.task_class.constraints.conflicts_beyond_resources else ()
        if any(self._make_room(statement, queue, job, task, row, _gives_way) for row in others):
            return True
        if not statement:
            self._hopeless.add(alike)
        return False

    def _room(self, queue: QueueState) -> Matrix:
        """What each node would have if all that may be evicted were, [nodes, resources]."""
        room = self._session.future.copy()
        for source in self._rules.sources(queue):
            room += self._session.victims.amounts(source.name)
        return room

    def _crowded(self, task: Task, room: Matrix, known: Sequence[int]) -> list[int]:
        """Return nodes on which others may be in its way by more than what they use: at most so many."""
        wanted = self._session.picker.row_of(task.task_class)
        mask = eligible(self._session.topology, task.task_class.constraints) & (room >= wanted).all(axis=1)
        mask[list(known)] = False
        return [int(row) for row in np.flatnonzero(mask)[:_MOST_CROWDED]]

    def _make_room(
        self, statement: Statement, queue: QueueState, job: JobState, task: Task, row: int, helps: Helps
    ) -> bool:
        """Evict from a node until a task fits, and reserve the place for it; nothing where that can't be."""
        start, gone = len(statement), list[Task]()

        def fits_without(going: list[Task]) -> bool:
            statement.undo_to(start)
            for victim in going:
                self._evict(statement, job, task, victim)
            return self._fits(queue, task, row)

        for victim in self._victims(queue, job, task, row, helps):
            gone.append(victim)
            if fits_without(gone):
                break
        else:
            statement.undo_to(start)
            return False
        # The last one was needed; of those before it some may not be, now that it goes.
        for victim in gone[-2::-1]:
            others = [each for each in gone if each is not victim]
            gone = others if fits_without(others) else gone
        fits_without(gone)
        statement.pipeline(job, task, row)
        return True

    def _fits(self, queue: QueueState, task: Task, row: int) -> bool:
        session = self._session
        return (
            session.picker.fits(task.task_class, row, session.future)
            and session.extensions.allocatable(queue, task) is None
        )

    def _victims(self, queue: QueueState, job: JobState, task: Task, row: int, helps: Helps) -> list[Task]:
        """Return the tasks on a node that may go and whose going helps, the least important first."""
        session = self._session
        short = vectors.short(session.vector(task.task_class), tuple(session.future[row].tolist()))
        candidates = [
            each
            for source in self._rules.sources(queue)
            for each in session.victims.on_node(source.name, row)
            if session.victims.job_of(each) is not job and helps(session, task, each, short)
        ]
        candidates.sort(key=self._importance, reverse=True)
        candidates.sort(key=lambda each: session.extensions.victim_queue_key(self._queue_of(each), queue))
        return self._rules.choose(task, candidates) if candidates else []

    def _queue_of(self, task: Task) -> QueueState:
        return self._session.queues[self._session.victims.job_of(task).info.queue]

    def _importance(self, task: Task) -> tuple[Any, ...]:
        session = self._session
        job = session.victims.job_of(task)
        return (
            session.extensions.queue_key(self._queue_of(task)),
            session.extensions.job_key(job),
            session.extensions.task_key(task),
        )

    def _evict(self, statement: Statement, job: JobState, task: Task, victim: Task) -> None:
        """Evict a task; and with it all of its job, where it would be left below its minimum and that is allowed."""
        session = self._session
        owner = session.victims.job_of(victim)
        if victim.uid in session.allocations.leaving:
            return
        rows = session.snapshot.table.row
        going = [victim]
        if self._rules.whole and not owner.spares(Counter([victim.role])):
            going = [
                each
                for each in owner.info.tasks
                if each.status in OCCUPYING and each.uid not in session.allocations.leaving
            ]
            chosen = self._rules.choose(task, going)
            if any(each not in chosen or not each.preemptable or each.node not in rows for each in going):
                return
        for each in going:
            statement.evict(owner, each, rows[each.node], job)


def _helps(session: Session, task: Task, victim: Task, short: Vector) -> bool:
    """Whether a node that is ``short`` gains by something's going; one that isn't is left for its queue's sake."""
    del task
    amounts = session.vector(victim.task_class)
    return not any(short) or any(has > 0 and lacks > 0 for has, lacks in zip(amounts, short, strict=True))


def _gives_way(session: Session, task: Task, victim: Task, short: Vector) -> bool:
    """Whether a pod makes way for what isn't to be had beside it: not one that says itself that it is as important."""
    queues = [session.victims.job_of(each).info.queue for each in (task, victim)]
    if queues[0] == queues[1] and victim.priority and victim.priority >= task.priority:
        return False
    mine, its = task.task_class.constraints, victim.task_class.constraints
    # Who is unwanted near is told by trying.
    frees = mine.depends_on_other_pods or ports_clash(mine.ports, its.ports) or bool(mine.claims and its.claims)
    return frees or (any(short) and _helps(session, task, victim, short))
