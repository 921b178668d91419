"""The domains of the network in which the pods of a group, or of a subgroup, may be placed together, the best first.

Required: the smallest domain that holds all of the minimum, of at most the tier allowed; of several the fullest. Preferred: the
same, then the whole cluster. In a domain that is made of smaller ones the fewest of these are filled. Where some of the pods run
already, the others go to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.engine.class_scores import Scope
from scheduler.engine.session import Session
from scheduler.engine.states import JobState
from scheduler.model.network_topology import SubGroupKey, TopologyConstraint
from scheduler.model.snapshot import Task, TaskClass
from scheduler.model.vectors import Floats, Mask, Matrix, Rows
from scheduler.topology.tiers import NOWHERE, Tier

_STEP: Final = 1e6
"""More than plugins tell nodes apart by: which domain is filled first counts before that."""


class Members(NamedTuple):
    """Pods that belong together: by class those to be placed now, how many of them at least, and the rows where others are."""

    kinds: Mapping[TaskClass, int]
    least: int
    rows: Collection[int]


def members_of(session: Session, job: JobState, tasks: Iterable[Task], least: int, key: SubGroupKey | None) -> Members:
    """Gather a subgroup's pods, or with no key all of a job's."""
    return members(session, job, Counter(task.task_class for task in tasks), least, key)


def members(
    session: Session, job: JobState, kinds: Mapping[TaskClass, int], least: int, key: SubGroupKey | None = None
) -> Members:
    """Gather a subgroup's pods, or with no key all of a job's, where some to be placed don't exist yet."""
    row = session.snapshot.table.row
    nodes = {name for (subgroup, name, _), count in job.places.items() if count and key in {None, subgroup}}
    return Members(kinds, least, {row[name] for name in nodes if name in row})


def scopes(
    session: Session, constraint: TopologyConstraint | None, members: Members, within: Scope | None = None
) -> Iterator[Scope | None]:
    """Return where pods that belong together may go, the best first; None for everywhere.

    Nothing, where they have to be together and no domain can hold them.
    """
    if constraint is None:
        yield within
        return
    tiers = session.network.allowed(constraint) if constraint.required else session.network.tiers
    for later in (False, True) if session.allocations.releasing else (False,):
        yield from _of_tiers(session, tiers, members, within, later=later)
    if not constraint.required:
        mask = within.mask if within is not None else np.ones(len(session.snapshot.table.nodes), dtype=np.bool_)
        yield Scope(mask, _bonus(session, tiers, mask, members, _rooms(session, members, later=False)))


def scopes_to_clear(
    session: Session, constraint: TopologyConstraint, members: Members, free: Matrix, within: Scope | None = None
) -> Iterator[Scope | None]:
    """Return where room may be made for pods that belong together, the emptiest domains first.

    ``free``: what each node would have if all that may be evicted were, [nodes, resources].
    """
    tiers = session.network.allowed(constraint) if constraint.required else session.network.tiers
    picker, now = session.picker, _rooms(session, members, later=bool(session.allocations.releasing))
    rooms = {kind: np.where(picker.open_to(kind), picker.places(kind, free), 0) for kind in now}
    for tier in tiers:
        held = dict.fromkeys(_holding(tier, members, rooms, within), 0)
        for room in now.values():
            visible = room if within is None else np.where(within.mask, room, 0)
            sums = np.bincount(tier.places, weights=visible, minlength=len(tier.names) + 1)
            held = {domain: fits + int(sums[domain]) for domain, fits in held.items()}
        for domain in sorted(held, key=lambda each: (-held[each], tier.names[each])):
            mask = tier.mask(domain)
            yield Scope(mask if within is None else mask & within.mask, np.zeros(len(free)), tier.number)
    if not constraint.required:
        yield within


def _of_tiers(
    session: Session, tiers: Sequence[Tier], members: Members, within: Scope | None, *, later: bool
) -> Iterator[Scope]:
    rooms = _rooms(session, members, later=later)
    for depth, tier in enumerate(tiers):
        for domain in _holding(tier, members, rooms, within):
            mask = tier.mask(domain)
            if within is not None:
                mask &= within.mask
            yield Scope(mask, _bonus(session, tiers[:depth], mask, members, rooms))


def _rooms(session: Session, members: Members, *, later: bool) -> Mapping[TaskClass, Rows]:
    """Return for how many tasks of each class each node has room, [nodes]."""
    return {kind: session.picker.fitting(kind, later=later) for kind in members.kinds}


def _holding(tier: Tier, members: Members, rooms: Mapping[TaskClass, Rows], within: Scope | None) -> list[int]:
    """Return the domains of a tier that may hold the minimum: those that hold all that wait first, then the fullest."""
    count = len(tier.names)
    enough = np.ones(count, dtype=np.bool_)
    if members.rows:
        there = set(tier.codes[list(members.rows)].tolist())
        if len(there) > 1 or NOWHERE in there:
            return []
        enough[:] = False
        enough[there.pop()] = True
    every = members.kinds
    holds_all, total, usable = np.ones(count, dtype=np.bool_), np.zeros(count), np.zeros(count)
    for kind, room in rooms.items():
        visible = room if within is None else np.where(within.mask, room, 0)
        sums = np.bincount(tier.places, weights=visible, minlength=count + 1)[:count]
        holds_all &= sums >= every[kind]
        total += sums
        usable += np.minimum(sums, every[kind])
    found = np.flatnonzero(enough & (usable >= members.least)).tolist()
    return sorted(found, key=lambda domain: (not holds_all[domain], total[domain], tier.names[domain]))


def _bonus(
    session: Session, tiers: Sequence[Tier], mask: Mask, members: Members, rooms: Mapping[TaskClass, Rows]
) -> Floats:
    """Rate nodes so that the fewest of the smaller domains are filled, those first in which others of the pods are."""
    bonus = np.zeros(len(session.snapshot.table.nodes))
    if not tiers or not rooms:
        return bonus
    every = members.kinds
    kind = max(rooms, key=lambda each: every[each])
    order = _FillingOrder(tiers, np.minimum(rooms[kind], every[kind]), members.rows)
    order.fill(len(tiers) - 1, mask, every[kind])
    for rank, filled in enumerate(order.filled):
        bonus[filled] = _STEP * (len(order.filled) - rank)
    return bonus


class _FillingOrder:
    """Which of the smallest domains to fill in which order, until so many pods have a place."""

    def __init__(self, tiers: Sequence[Tier], room: Rows, rows: Collection[int]) -> None:
        self._tiers, self._room = tiers, room
        self._rows = list(rows)
        self.filled: list[Mask] = []

    def fill(self, depth: int, mask: Mask, wanted: int) -> int:
        """Add the domains in ``mask`` of a tier and below; return how many pods are left."""
        if depth < 0:
            self.filled.append(mask)
            return wanted - int(self._room[mask].sum())
        tier = self._tiers[depth]
        codes = np.where(mask, tier.codes, NOWHERE)
        sums = np.bincount(np.where(codes >= 0, codes, len(tier.names)), weights=self._room, minlength=1)
        near = set(codes[self._rows].tolist())
        left = {domain: int(sums[domain]) for domain in np.unique(codes[codes >= 0]).tolist()}
        while left and wanted > 0:
            domain = min(left, key=lambda each: (each not in near, *_least_left(left[each], wanted), each))
            if left.pop(domain):
                wanted = self.fill(depth - 1, codes == domain, wanted)
        beside = mask & (codes == NOWHERE)
        if wanted > 0 and beside.any():
            self.filled.append(beside)
            wanted -= int(self._room[beside].sum())
        return wanted


def _least_left(room: int, wanted: int) -> tuple[bool, int]:
    """Order domains: the fullest that takes all; where none does, the emptiest."""
    return (room < wanted, room if room >= wanted else -room)
