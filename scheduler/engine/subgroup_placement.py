"""Places the subgroups of a job: each whole or not at all, and in another domain where one took what another needs.

Subgroups are placed one after the other, each where `network_domains` says. Where the minimum isn't reached that way, the last one that may
go elsewhere goes there, and those behind it are tried again: all choices of domains, at most so many. Subgroups that are alike need that
never: whichever domain one takes, that domain has room for one less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final

from scheduler.engine import cleared_domains, network_domains, subgroups, task_placement
from scheduler.engine.class_scores import Scope
from scheduler.engine.cleared_domains import Cost
from scheduler.engine.session import Session
from scheduler.engine.statement import Statement
from scheduler.engine.states import JobState, QueueState
from scheduler.engine.subgroups import Chunk
from scheduler.engine.task_placement import Allowed
from scheduler.model.network_topology import SubGroupKey
from scheduler.model.snapshot import Task
from scheduler.model.vectors import Matrix

_MOST_TRIES: Final = 200
"""How often one attempt goes back; of what the cycle has left for that, it takes a quarter at most."""


def place(
    session: Session, statement: Statement, queue: QueueState, job: JobState, taken: list[Task], allowed: Allowed
) -> list[Task]:
    """Place subgroups, each whole or not at all, until the job is ready; return the tasks that found no place.

    A job that was ready gets one more subgroup, or one more task. Where what starts together isn't the minimum, all that wait of a
    subgroup are tried together, too: else others may be put where its last pods have to go.
    """
    was_ready, attempt = session.extensions.ready(job), None
    for whole in (False, True):
        attempt = _Attempt(session, statement, queue, job, allowed, whole=whole)
        if (attempt.add_one() if was_ready else attempt.find()) or was_ready:
            break
        statement.undo_to(0)
    assert attempt is not None
    taken += [task for task in job.waiting if task.uid in attempt.tried]
    job.waiting = deque(task for task in job.waiting if task.uid not in attempt.tried)
    return attempt.unplaced


class _Attempt:
    """One way to divide what waits of a job into chunks, and the search for domains for them."""

    def __init__(
        self, session: Session, statement: Statement, queue: QueueState, job: JobState, allowed: Allowed, *, whole: bool
    ) -> None:
        self._session, self._statement, self._queue, self._job, self._allowed = session, statement, queue, job, allowed
        self._begun, self._single = subgroups.chunks(job, whole=whole)
        self.tried: set[str] = set()
        self._skipped: list[Chunk] = []
        self._left_over: list[Task] = []
        self._dead_ends: set[tuple[int, int, bytes]] = set()
        alike = {self._likeness(key, tasks) for key, tasks in self._begun}
        self._tries = 0 if len(alike) < 2 else min(_MOST_TRIES, session.tries_left // 4)

    @property
    def unplaced(self) -> list[Task]:
        """The tasks that were tried and found no place."""
        return [*(task for _, tasks in self._skipped for task in tasks), *self._left_over]

    def _likeness(self, key: SubGroupKey | None, tasks: Sequence[Task]) -> object:
        """Return what subgroups share for which it doesn't matter which of them goes where; those of which pods run go where these are."""
        runs = key if self._job.in_subgroup(key, pipelined=True) else None
        topology = self._job.info.subgroups[key[0]].topology if key is not None else None
        return runs, topology, tuple(id(task.task_class) for task in tasks)

    def add_one(self) -> bool:
        """Place one more subgroup, or task, of a job that is ready."""
        for key, tasks in (*self._begun, *self._single):
            self.tried |= {task.uid for task in tasks}
            if any(self._options(key, tasks)):
                return True
            self._left_over += tasks
        return False

    def find(self) -> bool:
        """Place subgroups and then other tasks until the job is ready, or its places are reserved; nothing stays where that can't be."""
        levels = [self._level(0)] if self._begun else []
        if not levels:
            return self._finish()
        first = None
        while levels:
            if not next(levels[-1], False):
                levels.pop()
                continue
            at = len(levels)
            if self._session.extensions.ready(self._job) or (at == len(self._begun) and self._finish()):
                return True
            if at < len(self._begun):
                levels.append(self._level(at))
            elif first is None:
                first = self._job.obstacle, self._job.blocked_class
                # Who may take no more of its queue's share may not elsewhere either.
                self._tries = 0 if self._job.obstacle is not None else self._tries
        if first is not None:
            self._job.obstacle, self._job.blocked_class = first
        return False

    def _level(self, at: int) -> Iterator[bool]:
        """Put a subgroup where it may go, one place after the other, and at last nowhere."""
        key, tasks = self._begun[at]
        self.tried |= {task.uid for task in tasks}
        state = self._state(at) if self._tries else None
        if state in self._dead_ends:
            return
        for _ in self._options(key, tasks):
            yield True
            if not self._tries:
                return
            self._tries -= 1
            self._session.tries_left -= 1
        self._skipped.append(self._begun[at])
        yield True
        self._skipped.pop()
        if state is not None and self._tries:
            self._dead_ends.add(state)

    def _options(self, key: SubGroupKey | None, tasks: Sequence[Task]) -> Iterator[bool]:
        """Put tasks where others of their subgroup are, all or none of them; with no key, tasks that are in none. What was put is undone afterwards."""
        session, statement, job = self._session, self._statement, self._job
        if key is not None and not subgroups.completed_by(job, key, tasks):
            return
        constraint = job.info.subgroups[key[0]].topology if key is not None else None
        # Where all of them have room, the rest follows.
        waiting = [task for task in job.waiting if task.subgroup == key]
        members, start = network_domains.members_of(session, job, waiting, len(tasks), key), len(statement)
        for scope in network_domains.scopes(session, constraint, members, session.picker.scope):
            with session.picker.within(scope):
                placed = task_placement.place_together(session, statement, self._queue, job, tasks, self._allowed)
            if placed:
                yield True
            statement.undo_to(start)

    def _finish(self) -> bool:
        """Place what isn't part of a subgroup that starts; tell whether the job may start then, else undo it."""
        start, extensions = len(self._statement), self._session.extensions
        self._left_over = []
        for key, tasks in self._single:
            if extensions.ready(self._job) and self._statement:
                break
            self.tried |= {task.uid for task in tasks}
            if not next(self._options(key, tasks), False):
                self._left_over += tasks
        if extensions.ready(self._job) or extensions.pipelined(self._job):
            return True
        self._statement.undo_to(start)
        return False

    def _state(self, at: int) -> tuple[int, int, bytes]:
        """Return what decides whether the subgroups from one on can be placed: what is free, and how many were left out."""
        session, digest = self._session, blake2b(digest_size=16)
        scope = session.picker.scope
        for free in (session.idle, session.future) if session.allocations.releasing else (session.idle,):
            digest.update((free if scope is None else free[scope.mask]).tobytes())
        return at, len(self._skipped), digest.digest()


def clear(
    session: Session,
    statement: Statement,
    job: JobState,
    place_task: Callable[[Task], bool],
    room: Callable[[], Matrix],
    undone: Callable[[], None],
) -> list[Task]:
    """Clear a domain for each subgroup that a job's minimum needs; return the tasks that were tried and found no place.

    ``place_task`` finds a place for one task, with evictions; ``room``: what nodes would have if all that may be evicted were; ``undone`` is
    called after evictions were taken back. A subgroup goes where the fewest have to leave, and nobody goes back on that for another.
    """
    tried, unplaced = set[str](), list[Task]()
    begun, single = subgroups.chunks(job, whole=False)
    for key, tasks in (*begun, *single):
        if not session.extensions.starving(job):
            break
        tried |= {task.uid for task in tasks}
        trial = _ClearedPart(session, statement, tasks, place_task, undone)
        scopes = _scopes_to_clear(session, job, key, tasks, room)
        if not any(map(trial.clear, cleared_domains.fewest_first(scopes, trial.cost, len(tasks)))):
            unplaced += tasks
    job.waiting = deque(task for task in job.waiting if task.uid not in tried)
    return unplaced


class _ClearedPart:
    """Tasks of a subgroup for which domains are cleared, one after the other."""

    def __init__(
        self,
        session: Session,
        statement: Statement,
        tasks: Sequence[Task],
        place_task: Callable[[Task], bool],
        undone: Callable[[], None],
    ) -> None:
        self._session, self._statement, self._tasks = session, statement, tasks
        self._place_task, self._undone = place_task, undone

    def clear(self, scope: Scope | None) -> bool:
        """Place all of them in a domain, or none; tell whether that was done."""
        start = len(self._statement)
        with self._session.picker.within(scope):
            done = all(map(self._place_task, self._tasks))
        if not done:
            self._undo_to(start)
        return done

    def cost(self, scope: Scope | None) -> Cost | None:
        """Return what it costs to clear a domain for them, and leave it as it was; None where it can't be."""
        start = len(self._statement)
        if not self.clear(scope):
            return None
        known = cleared_domains.cost_of(self._session, self._statement, start)
        self._undo_to(start)
        return known

    def _undo_to(self, start: int) -> None:
        self._statement.undo_to(start)
        self._undone()


def clear_for_one(
    session: Session, job: JobState, task: Task, place_task: Callable[[Task], bool], room: Callable[[], Matrix]
) -> bool:
    """Clear the place of one more task, in the domain where others of its subgroup are; tell whether that was done."""
    if not job.info.parts_bound:
        return place_task(task)
    if task.subgroup is not None and not subgroups.completed_by(job, task.subgroup, [task]):
        return False
    for scope in _scopes_to_clear(session, job, task.subgroup, [task], room):
        with session.picker.within(scope):
            if place_task(task):
                return True
    return False


def _scopes_to_clear(
    session: Session, job: JobState, key: SubGroupKey | None, tasks: Sequence[Task], room: Callable[[], Matrix]
) -> Iterator[Scope | None]:
    within = session.picker.scope
    constraint = job.info.subgroups[key[0]].topology if key is not None else None
    if constraint is None:
        yield within
        return
    members = network_domains.members_of(session, job, tasks, len(tasks), key)
    yield from network_domains.scopes(session, constraint, members, within)
    yield from network_domains.scopes_to_clear(session, constraint, members, room(), within)
