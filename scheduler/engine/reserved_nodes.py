"""Nodes kept free for one large job, so that it doesn't starve behind small ones.

A job that waited for longer than `NodeReservationArguments` says, and lacks nothing but room, gets nodes of its own: those
that have its place soonest. Nobody else is placed there while the pods on them end, until it starts. One job at a time
has that, the first in the order of jobs; from cycle to cycle it is remembered in `Snapshot.reserved_nodes`. Where pods don't end
in time, nodes are chosen anew for the same job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, islice
from typing import Annotated, Any, Final

import numpy as np
from msgspec import field

from muster.model.durations import duration
from scheduler.engine import network_domains, placement, requeue, subgroups
from scheduler.engine.action import ActionArguments
from scheduler.engine.arguments import read_by
from scheduler.engine.class_scores import Scope
from scheduler.engine.session import Session
from scheduler.engine.states import JobState
from scheduler.model import vectors
from scheduler.model.obstacle import Obstacle, Stage
from scheduler.model.snapshot import OCCUPYING, Phase, ReservedNodes, TaskClass
from scheduler.model.vectors import Matrix

_TRIES: Final = 8
"""For so many of those that wait nodes are sought, so that many that fit nowhere don't make a cycle long."""
_DOUBLINGS: Final = 6
"""So often the time that pods on kept nodes have to end is doubled, from one choice to the next."""


def _wait(text: Any) -> float | None:
    return None if text == "never" else duration(text)


class NodeReservationArguments(ActionArguments, frozen=True, kw_only=True):
    """After how long a job that waits for room gets nodes of its own; ``never`` is an answer, too."""

    after: Annotated[float | None, read_by(_wait)] = field(default=600.0, name="reserveAfter")


def honour(session: Session) -> None:
    """Let the one who has a reservation go first; what it can't use yet is withheld from all others."""
    reservation = session.snapshot.reserved_nodes
    job = next((each for each in session.jobs if reservation and each.info.key == reservation.key), None)
    if reservation is None or job is None or (queue := session.queue_of(job)) is None or session.extensions.ready(job):
        return
    if placement.may_run(session, job):
        placement.turn(session, queue, job, session.extensions.allocatable)
    if not session.extensions.ready(job):
        session.reservation.keep(job, _rows_of(session, reservation.nodes))


def choose(session: Session, arguments: NodeReservationArguments) -> ReservedNodes | None:
    """Return who has a reservation in the next cycle, and where; the one who had it keeps it while it waits."""
    after, deadlines = arguments.after, session.deadlines
    if after is None:
        return None
    # All pods are looked through for it, so once at most.
    later = cache(partial(drained, session))
    held, holder = session.snapshot.reserved_nodes, session.reservation.job
    if held is not None and holder is not None and _keeps(session, holder, held.since + after):
        kept = _rows_of(session, held.nodes)
        lasts = not deadlines.passed(held.since + after * 2 ** min(held.choices, _DOUBLINGS))
        if lasts and fit(session, tuple(needs(holder)), session.snapshot.table.allocatable, kept):
            return held
        if (moved := _choose_anew(session, holder, held, later)) is not None:
            return moved
    waiting = [
        job
        for job in session.jobs
        if (job.waiting or job.phase is Phase.PENDING)
        and job.info.created
        and deadlines.passed(job.info.created + after)
        # Until its next attempt, nodes would stand idle for one that was taken back.
        and (job.phase is not Phase.PENDING or requeue.postponed(session, job) is None)
    ]
    if not waiting:
        return None
    line = (job for job in sorted(waiting, key=session.extensions.job_key) if _lacks_room(session, job))
    for job in islice(line, _TRIES):
        nodes = _nodes(session, job, later)
        if nodes:
            deadlines.after(after)
            return ReservedNodes(job.info.key, _names_of(session, nodes), session.now.timestamp())
    return None


def awaits_others(session: Session, job: JobState) -> bool:
    """Whether all pods of a job's minimum are there, and nodes are kept for it on which pods of others have to end first."""
    if job is not session.reservation.job or session.extensions.valid(job) is not None:
        return False
    return not fit(session, tuple(needs(job)), _idle(session), session.reservation.rows)


def _keeps(session: Session, holder: JobState, pods_until: float) -> bool:
    """Whether it still waits for room, or was admitted and its pods are on their way.

    Where enqueue runs, it takes one back whose pods don't come; else they have to come by ``pods_until``.
    """
    if session.extensions.ready(holder):
        return False
    if _lacks_room(session, holder):
        return True
    coming = not holder.waiting or session.extensions.valid(holder) is not None
    if holder.phase is not Phase.INQUEUE or not coming:
        return False
    return session.policy.enqueues or not session.deadlines.passed(pods_until)


def _choose_anew(
    session: Session, holder: JobState, held: ReservedNodes, later: Callable[[], Matrix]
) -> ReservedNodes | None:
    """Keep other nodes for the same job; None where none suffice.

    Where pods of others haven't ended in time they may never end, so that of these nodes only what is idle counts from now on;
    once what is left of nodes doesn't suffice, all count again.
    """
    kinds, idle, kept = dict(needs(holder)), _idle(session), set(_rows_of(session, held.nodes))
    room = {kind: session.picker.places(kind, idle) < session.picker.places(kind, later()) for kind in kinds}
    slow = {row for row in kept if any(short[row] for short in room.values())}
    avoided = sorted({*_rows_of(session, held.occupied), *slow})

    def without_slow() -> Matrix:
        free = later().copy()
        free[avoided] = np.minimum(free, idle)[avoided]
        return free

    nodes = _nodes(session, holder, without_slow)
    if not nodes:
        nodes, avoided = _nodes(session, holder, later), []
    if not nodes:
        return None
    names, now = _names_of(session, nodes), session.now.timestamp()
    return ReservedNodes(held.key, names, now, held.choices + 1, _names_of(session, avoided))


def _idle(session: Session) -> Matrix:
    """What nodes have idle, what is kept included, [nodes, resources]."""
    return session.idle + session.reservation.set_aside


def _rows_of(session: Session, names: Iterable[str]) -> list[int]:
    rows = session.snapshot.table.row
    return [rows[name] for name in names if name in rows]


def _names_of(session: Session, rows: Iterable[int]) -> tuple[str, ...]:
    names = session.snapshot.table.names
    return tuple(names[row] for row in rows)


def _lacks_room(session: Session, job: JobState) -> bool:
    """Whether nothing but what others use, of the nodes or of its queue, keeps a job from starting."""
    queue, against = session.queue_of(job), job.obstacle
    if queue is None or job.pipelined or session.extensions.ready(job):
        return False
    with session.reservation.visible_to(job), session.allocations.counting(queue, vectors.scale(queue.allocated, -1)):
        if job.phase is Phase.PENDING and session.policy.enqueues:
            return _is_for_amounts(against) and session.extensions.enqueueable(job, room=False) is None
        if not job.unfinished or not (job.blocked_class is not None if against is None else _is_for_amounts(against)):
            return False
        first = {task.task_class: task for task in job.waiting}
        return all(
            session.extensions.allocatable(queue, first[kind], count) is None
            for kind, count in needs(job)
            if kind in first
        )


def _is_for_amounts(against: Obstacle | None) -> bool:
    """Whether an objection is to what a job takes of its queue or of the cluster, which others may give back."""
    if against is None or against.nodes:
        return against is not None
    return against.limit is not None and against.stage in {Stage.QUEUE, Stage.ENQUEUE}


def needs(job: JobState) -> Iterator[tuple[TaskClass, int]]:
    """Return what is still to be placed for the minimum, by class."""
    missing = job.info.min_member - job.ready
    for kind, count in (
        *job.info.task_counts.wanting.items(),
        *((each.task_class, each.count) for each in job.info.expected_pods),
    ):
        if missing > 0:
            yield kind, min(count, missing)
            missing -= count


def _nodes(session: Session, job: JobState, later: Callable[[], Matrix]) -> list[int]:
    """Choose nodes for the minimum of a job: those that have the most places now. None where all nodes don't suffice."""
    table = session.snapshot.table
    wanted = tuple(needs(job))
    if not fit(session, wanted, table.allocatable, range(len(table.nodes))):
        return []
    found = (_fit_in(session, job, wanted, later().copy(), scope) for scope in _domains(session, job, wanted, later))
    return sorted(next(filter(None, found), ()))


def _domains(
    session: Session, job: JobState, wanted: Sequence[tuple[TaskClass, int]], later: Callable[[], Matrix]
) -> Iterable[Scope | None]:
    """Return the domains of the network that may hold a job, None for all nodes; those first of which the most is idle."""
    topology = job.info.topology
    if topology is None or not topology.required:
        return (None,)
    members = network_domains.members(session, job, dict(wanted), sum(count for _, count in wanted))
    return network_domains.scopes_to_clear(session, topology, members, later())


def _fit_in(
    session: Session, job: JobState, wanted: Sequence[tuple[TaskClass, int]], free: Matrix, scope: Scope | None
) -> set[int]:
    """Choose nodes of one domain for the minimum of a job, for each subgroup those of a domain within; ``free`` is used up."""
    found, left = set[int](), Counter(dict(wanted))
    for key, tasks in subgroups.chunks(job, whole=False)[0] if job.info.parts_bound else ():
        kinds = Counter(task.task_class for task in tasks)
        topology = job.info.subgroups[key[0]].topology
        if topology is None or not topology.required or not left >= kinds:
            continue
        members = network_domains.members(session, job, kinds, len(tasks), key)
        within = network_domains.scopes_to_clear(session, topology, members, free, scope)
        taken = (_take(session, tuple(kinds.items()), free, _rows(session, each)) for each in within)
        rows = next(filter(None, taken), None)
        if rows is None:
            return set()
        found |= rows
        left -= kinds
    rest = _take(session, tuple(left.items()), free, _rows(session, scope)) if left else set()
    return found | rest if rest or not left else set()


def _rows(session: Session, scope: Scope | None) -> Iterable[int]:
    return range(len(session.snapshot.table.nodes)) if scope is None else np.flatnonzero(scope.mask).tolist()


def drained(session: Session) -> Matrix:
    """What nodes have once all pods of groups have ended, [nodes, resources]: daemons and strangers stay."""
    free, rows = session.future + session.reservation.set_aside, session.snapshot.table.row
    others = chain.from_iterable(each.jobs for each in session.snapshot.satisfied.values())
    for job in (*session.snapshot.jobs, *others):
        for task in job.tasks:
            if task.status in OCCUPYING and task.node in rows:
                free[rows[task.node]] += session.picker.row_of(task.task_class)
    for kind, nodes in session.snapshot.aggregated.items():
        counts = np.zeros((len(free), 1), dtype=np.int64)
        for node, count in nodes.items():
            if node in rows:
                counts[rows[node]] = count
        free += counts * session.picker.row_of(kind)
    return free


def fit(session: Session, wanted: Sequence[tuple[TaskClass, int]], free: Matrix, rows: Iterable[int]) -> set[int]:
    """Return the rows that it takes to place so many tasks of each class on ``free``; none where they don't suffice."""
    return _take(session, wanted, free.copy(), rows)


def _take(session: Session, wanted: Sequence[tuple[TaskClass, int]], free: Matrix, rows: Iterable[int]) -> set[int]:
    """Do as `fit`, and take what is placed from ``free``; where they don't suffice, nothing."""
    among, taken, before = np.array(list(rows), dtype=np.intp), set[int](), free.copy()
    now = _idle(session)
    for kind, count in wanted:
        request = session.picker.row_of(kind)
        open_ = among[session.picker.open_to(kind)[among]]
        places = session.picker.places(kind, free[open_])
        soon = session.picker.places(kind, now[open_])
        left = count
        for index in np.lexsort((open_, -places, -np.minimum(soon, places))).tolist():
            if left <= 0 or not places[index]:
                break
            row, here = int(open_[index]), min(int(places[index]), left)
            free[row] -= here * request
            taken.add(row)
            left -= here
        if left > 0:
            free[:] = before
            return set()
    return taken
