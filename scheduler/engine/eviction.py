"""The evictions that let one job start, or none at all."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any

import numpy as np
from msgspec import Struct

from scheduler.engine import cleared_domains, kept_places, placement, requeue, subgroup_placement
from scheduler.engine.class_scores import Scope
from scheduler.engine.cleared_domains import Cost
from scheduler.engine.eviction_admission import awaits_admission, is_due, may_start
from scheduler.engine.exhausted_nodes import ExhaustedNodes
from scheduler.engine.session import Session
from scheduler.engine.statement import Statement
from scheduler.engine.states import JobState, QueueState
from scheduler.engine.useful_victims import Helps, gives_way, helps
from scheduler.model import vectors
from scheduler.model.kept_places import KeptPlace
from scheduler.model.snapshot import OCCUPYING, Task, TaskClass
from scheduler.model.vectors import Matrix, Vector
from scheduler.topology.node_filters import eligible

_MOST_CROWDED = 100
"""Nodes that are looked at pod by pod, for who is in the way of a task by affinities, ports or volumes: each takes a while."""


class EvictionRules(Struct, frozen=True):
    """What tells one eviction action from another.

    Attributes:
        sources: the queues to take from.
        choose: which of the candidates, the one to go first first, may go for a task.
        eligible: whether others may be evicted for a task at all.
        permits: whether a pod may be evicted by this action, whoever it is for.
        order: what the least important pods have most of.
        whole: whether a job may be evicted as a whole, where its surplus isn't enough.
    """

    sources: Callable[[QueueState], Iterable[QueueState]]
    choose: Callable[[Task, Sequence[Task]], list[Task]]
    eligible: Callable[[QueueState, Task], bool]
    permits: Callable[[Task], bool]
    order: Callable[[Task], tuple[Any, ...]]
    whole: bool


class EvictionRun:
    """The evictions of one run of an action, by one set of rules or several.

    Attributes:
        looked_at: how many nodes were looked at in vain; for a task a node counts once, by however many rules it is looked at.
    """

    def __init__(self, session: Session, rules: Sequence[EvictionRules]) -> None:
        self._session = session
        self._rules = rules
        self._hopeless: set[object] = set()
        self._barred: dict[tuple[int, str], Matrix] = {}
        self._exhausted = ExhaustedNodes()
        # A plugin of a user's may go by anything.
        self._foreign = session.extensions.asks_users("preemptable", "reclaimable")
        self._in_vain = self._largest_first = False
        self._in_vain_for_task: set[int] = set()
        self.looked_at = 0

    def attempt(self, queue: QueueState, job: JobState) -> bool:
        """Evict what lets a job start, and reserve the places for it; leave everything as it was where that fails.

        A Pending job is admitted then. One that reserves of a quota only now is admitted and nothing else: once it has
        its reservation, it is tried again.
        """
        session, waiting = self._session, job.waiting
        if requeue.evictions_paused(session, job):
            return False
        whole = session.extensions.valid(job) is None
        if not whole:
            job.waiting = deque(kept_places.stand_ins(session, job))
        # Which subgroup a pod that doesn't exist yet will be in, nobody knows.
        known = whole or not job.info.parts_bound
        scopes = placement.scopes_to_clear(session, job, lambda: self._whole_room(queue)) if known else ()
        if not job.info.parts_bound:
            scopes = cleared_domains.fewest_first(scopes, partial(self._cost, queue, job), len(job.waiting))
        done = any(self._try(queue, job, scope, whole=whole) for scope in scopes)
        if not whole:
            job.waiting = waiting
        if done and awaits_admission(session, job):
            session.admit(job)
        return done

    def grow(self, queue: QueueState, job: JobState) -> bool:
        """Evict what one more task of a job needs, and reserve the place for it; leave everything as it was where that fails.

        Where no queue is due anything, two of them would take from each other for ever.
        """
        session, task = self._session, job.waiting[0]
        if not is_due(session, queue, task) or requeue.evictions_paused(session, job):
            return False
        scopes = placement.scopes_to_clear(session, job, lambda: self._whole_room(queue))
        return any(self._grow_in(scope, queue, job) for scope in scopes)

    def _grow_in(self, scope: Scope | None, queue: QueueState, job: JobState) -> bool:
        session, task = self._session, job.waiting.popleft()
        with session.reservation.visible_to(job), session.picker.within(scope), session.statement() as statement:
            place, room = partial(self._place, statement, queue, job), partial(self._whole_room, queue)
            if subgroup_placement.clear_for_one(session, job, task, place, room) and statement.evicts:
                statement.commit()
                self._remember(statement, job)
                return True
        self._exhausted.rolled_back()
        job.waiting.appendleft(task)
        return False

    def _cost(self, queue: QueueState, job: JobState, scope: Scope | None) -> Cost | None:
        """Return what it costs to clear a domain for a job; None where that isn't enough."""
        session, waiting, looked_at = self._session, tuple(job.waiting), self.looked_at
        with session.picker.within(scope), session.reservation.visible_to(job), session.statement() as statement:
            self._place_all(statement, queue, job)
            known = cleared_domains.cost_of(session, statement) if may_start(session, statement, job) else None
        self._exhausted.rolled_back()
        job.waiting, self.looked_at = deque(waiting), looked_at
        return known

    def _try(self, queue: QueueState, job: JobState, scope: Scope | None, *, whole: bool) -> bool:
        counts = bool(queue.info.max_groups) and not job.started
        if counts and placement.crowded(queue, queue.started) is not None:
            return False
        with self._session.picker.within(scope):
            if self._try_once(queue, job, whole=whole, counts=counts):
                return True
            if not self._in_vain or not self._sizes_differ:
                return False
            # Who went for the first tasks may be all that their queues can do without; one that is larger may make room for more.
            self._largest_first = True
            done = self._try_once(queue, job, whole=whole, counts=counts)
            self._largest_first = False
        return done

    def _try_once(self, queue: QueueState, job: JobState, *, whole: bool, counts: bool) -> bool:
        session, waiting = self._session, tuple(job.waiting)
        with session.reservation.visible_to(job), session.statement() as statement:
            unplaced = self._place_all(statement, queue, job)
            done = may_start(session, statement, job)
            if done and counts:
                queue.job_started()
            if done and not job.info.about_to_reserve:
                statement.commit()
                self._remember(statement, job)
                job.unplaced += unplaced if whole else ()
                if not whole:
                    self._keep(statement, job)
                return True
            self._in_vain = statement.evicts
        self._exhausted.rolled_back()
        job.waiting = deque(waiting)
        return done

    def _remember(self, statement: Statement, job: JobState) -> None:
        if job.info.task_counts.occupying:
            self._exhausted.clear()
        else:
            self._exhausted.committed(statement.rows)

    def _keep(self, statement: Statement, job: JobState) -> None:
        """Have the next cycles keep the places for pods that are yet to come; for pods that exist they do in any case."""
        names = self._session.snapshot.table.names
        places = [KeptPlace(names[row], task.task_class, task.role) for task, row in statement.placed]
        kept_places.keep(self._session, job, places, self._session.now.timestamp())

    def _place_all(self, statement: Statement, queue: QueueState, job: JobState) -> list[Task]:
        """Place tasks until the job starves no more; return those that found no place."""
        if job.info.parts_bound:
            place, room = partial(self._place, statement, queue, job), partial(self._whole_room, queue)
            return subgroup_placement.clear(self._session, statement, job, place, room, self._exhausted.rolled_back)
        unplaced, failed = list[Task](), set[TaskClass]()
        while job.waiting and self._session.extensions.starving(job):
            task, before = job.waiting.popleft(), len(statement)
            if task.task_class in failed or not self._place(statement, queue, job, task):
                failed.add(task.task_class)
                unplaced.append(task)
            elif len(statement) > before + 1:
                # Who left may leave more than this one takes.
                failed.clear()
        return unplaced

    def _place(self, statement: Statement, queue: QueueState, job: JobState, task: Task) -> bool:
        """Reserve a place for a task: one that is or gets free anyway, else one that others are evicted from."""
        session = self._session
        self._in_vain_for_task.clear()
        if session.extensions.allocatable(queue, task) is None:
            row = session.picker.best_later(task.task_class)
            if row is not None:
                statement.pipeline(job, task, row)
                return True
        return any(self._take(statement, queue, job, task, rules) for rules in self._rules)

    def _take(self, statement: Statement, queue: QueueState, job: JobState, task: Task, rules: EvictionRules) -> bool:
        """Reserve a place for a task that others are evicted from by some rules."""
        session = self._session
        # A later job that is like one before it and finds less isn't tried: nothing but evictions came between.
        alike = (id(rules), queue.name, task.task_class, task.priority, job.info.priority_class)
        never = task.never_preempts or job.info.disruption.never_preempts
        if never or alike in self._hopeless or not rules.eligible(queue, task):
            return False
        room = self._room(queue, rules)
        rows = session.picker.ranked(task.task_class, room)
        others = self._crowded(task, room, rows) if task.task_class.constraints.conflicts_beyond_resources else ()
        in_the_way = ((row, self._candidates(queue, job, task, row, rules, gives_way)) for row in others)
        give_way = ((row, rules.choose(task, candidates) if candidates else []) for row, candidates in in_the_way)
        for row, victims in chain(self._offers(queue, job, task, rules, rows), give_way):
            if self._make_room(statement, queue, job, task, row, rules, victims):
                return True
        if not statement and session.picker.scope is None:
            self._hopeless.add(alike)
        return False

    def _room(self, queue: QueueState, rules: EvictionRules) -> Matrix:
        """What each node would have if all that may be evicted were, [nodes, resources]."""
        room = self._session.future.copy()
        for source in rules.sources(queue):
            room += self._session.victims.amounts(source.name) - self._protected(source.name, rules)
        return room

    def _whole_room(self, queue: QueueState) -> Matrix:
        """What each node would have by the rules that evict the most there."""
        room: Matrix = np.maximum.reduce([self._room(queue, rules) for rules in self._rules])
        return room

    def _protected(self, source: str, rules: EvictionRules) -> Matrix:
        """What pods use that these rules never evict, [nodes, resources]; they stay, so it is counted once."""
        known = self._barred.get((id(rules), source))
        if known is None:
            session = self._session
            known = np.zeros_like(session.victims.amounts(source))
            for row, task in session.victims.of_queue(source):
                if task.uid not in session.allocations.leaving and not rules.permits(task):
                    known[row] += session.allocations.request(task.task_class)
            self._barred[id(rules), source] = known
        return known

    def _crowded(self, task: Task, room: Matrix, known: Sequence[int]) -> list[int]:
        """Return nodes on which others may be in its way by more than what they use: at most so many."""
        wanted = self._session.picker.row_of(task.task_class)
        mask = eligible(self._session.topology, task.task_class.constraints) & (room >= wanted).all(axis=1)
        mask[list(known)] = False
        return [int(row) for row in np.flatnonzero(mask)[:_MOST_CROWDED]]

    def _offers(
        self, queue: QueueState, job: JobState, task: Task, rules: EvictionRules, rows: Iterable[int]
    ) -> Iterator[tuple[int, list[Task]]]:
        """Return each node with whom it could lose for a task; those that can lose nobody are left out."""
        if self._largest_first:
            offers = self._largest(task, rules, self._who_may_go(queue, job, task, rules, rows))
            yield from sorted(offers, key=lambda offer: self._size(offer[1][0]), reverse=True)
            return
        for row, candidates, victims in self._who_may_go(queue, job, task, rules, rows):
            yield row, victims
            if len({each.task_class for each in candidates}) > 1:
                # Those who were chosen may leave no more to be taken, and too little room; fewer that are larger may do.
                yield from self._largest(task, rules, [(row, candidates, victims)])

    def _largest(
        self, task: Task, rules: EvictionRules, offers: Iterable[tuple[int, list[Task], list[Task]]]
    ) -> list[tuple[int, list[Task]]]:
        """Choose anew among the candidates of some nodes, the largest first; of so many nodes at most."""
        found = (
            (row, rules.choose(task, sorted(candidates, key=self._size, reverse=True))) for row, candidates, _ in offers
        )
        return list(islice((each for each in found if each[1]), _MOST_CROWDED))

    def _who_may_go(
        self, queue: QueueState, job: JobState, task: Task, rules: EvictionRules, rows: Iterable[int]
    ) -> Iterator[tuple[int, list[Task], list[Task]]]:
        """Return candidates and who may go together, by node; nodes where nobody may go aren't looked at again for tasks alike."""
        alike = self._likeness(queue, job, task, rules)
        exhausted = self._exhausted.of(alike, [source.allocated for source in rules.sources(queue)]) if alike else ()
        for row in rows:
            candidates = self._candidates(queue, job, task, row, rules, helps) if row not in exhausted else []
            victims = rules.choose(task, candidates) if candidates else []
            if victims:
                yield row, candidates, victims
                continue
            self._count(row)
            if alike and row not in exhausted:
                self._exhausted.note(alike, row)

    def _count(self, row: int) -> None:
        if row not in self._in_vain_for_task:
            self._in_vain_for_task.add(row)
            self.looked_at += 1

    def _likeness(self, queue: QueueState, job: JobState, task: Task, rules: EvictionRules) -> object:
        """Return what plugins go by who are asked whom to evict for a task; None where nobody knows, or whole jobs may go."""
        if rules.whole or self._foreign:
            return None
        info = job.info
        own = info.uid if info.task_counts.occupying else ""
        stage = (job.allocated, job.ready + job.pipelined, info.min_member)
        return (id(rules), queue.name, task.task_class, task.priority, info.priority_class, own, stage)

    def _make_room(
        self,
        statement: Statement,
        queue: QueueState,
        job: JobState,
        task: Task,
        row: int,
        rules: EvictionRules,
        victims: Sequence[Task],
    ) -> bool:
        """Evict from a node until a task fits, and reserve the place for it; nothing where that can't be."""
        start, gone = len(statement), list[Task]()

        def fits_without(going: list[Task]) -> bool:
            statement.undo_to(start)
            for victim in going:
                self._evict(statement, job, task, victim, rules)
            return self._fits(queue, task, row)

        for victim in victims:
            gone.append(victim)
            if fits_without(gone):
                break
        else:
            statement.undo_to(start)
            self._count(row)
            return False
        # The last one was needed; of those before it some may not be, now that it goes.
        for victim in gone[-2::-1]:
            others = [each for each in gone if each is not victim]
            gone = others if fits_without(others) else gone
        if len(gone) > 1:
            fits_without(gone)
        statement.pipeline(job, task, row)
        return True

    def _fits(self, queue: QueueState, task: Task, row: int) -> bool:
        session = self._session
        return (
            session.picker.fits(task.task_class, row, session.future)
            and session.extensions.allocatable(queue, task) is None
        )

    def _size(self, task: Task) -> Vector:
        return self._session.vector(task.task_class)

    @cached_property
    def _sizes_differ(self) -> bool:
        return len({self._session.vector(kind) for kind in self._session.victims.classes()}) > 1

    def _candidates(
        self, queue: QueueState, job: JobState, task: Task, row: int, rules: EvictionRules, useful: Helps
    ) -> list[Task]:
        """Return the tasks on a node whose going helps, the least important first."""
        session = self._session
        short = vectors.short(session.vector(task.task_class), tuple(session.future[row].tolist()))
        candidates = [
            each
            for source in rules.sources(queue)
            for each in session.victims.on_node(source.name, row)
            if session.victims.job_of(each) is not job and useful(session, task, each, short) and rules.permits(each)
        ]
        candidates.sort(key=rules.order, reverse=True)
        if session.extensions.methods("victim_queue_key"):
            candidates.sort(key=lambda each: session.extensions.victim_queue_key(self._queue_of(each), queue))
        return candidates

    def _queue_of(self, task: Task) -> QueueState:
        return self._session.queues[self._session.victims.job_of(task).info.queue]

    def _evict(self, statement: Statement, job: JobState, task: Task, victim: Task, rules: EvictionRules) -> None:
        """Evict a task; and with it all of its job, where it would be left below its minimum and that is allowed."""
        session = self._session
        owner = session.victims.job_of(victim)
        if victim.uid in session.allocations.leaving:
            return
        rows = session.snapshot.table.row
        going = [victim]
        if (rules.whole or owner.info.disruption.whole) and not owner.spares(Counter([victim.role])):
            going = [
                each
                for each in owner.info.tasks
                if each.status in OCCUPYING and each.uid not in session.allocations.leaving
            ]
            chosen = rules.choose(task, going)
            if any(
                each not in chosen or not each.preemptable or not rules.permits(each) or each.node not in rows
                for each in going
            ):
                return
        for each in going:
            statement.evict(owner, each, rows[each.node], job)
