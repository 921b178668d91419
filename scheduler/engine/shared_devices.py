"""Room for pods that share a claim, so that it doesn't get devices on a node where the others can't follow.

A scheduler that places pod by pod gives such a claim the first devices that it finds: a gang whose first pod goes to a node too small
for the rest is undone, and tried the same way in the next cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from scheduler.engine.colocation import Open, with_room
from scheduler.engine.plugin import Nodes
from scheduler.engine.view import SessionView
from scheduler.model.devices import Placement
from scheduler.model.snapshot import TaskClass
from scheduler.model.vectors import Mask, Matrix, Rows
from scheduler.topology.domains import NOWHERE, Domains


def without_the_rest(session: SessionView, kind: TaskClass, nodes: Nodes, able: Mask, open_to: Open) -> Mask:
    """Tell on which of some nodes a pod would get shared devices that have too little room for the others in reach, [nodes].

    Where none has room for all, those with room for the minimum will do; where none has that either, any. ``able``: which of them
    could have the pod.
    """
    devices = session.devices
    refused = np.zeros(len(nodes), dtype=np.bool_)
    sharing = list(devices.sharing(kind))
    if not sharing:
        return refused
    alike = list(devices.reach.alike(nodes.rows[able])) if not devices.reach.local else []
    if len(alike) == 1 and _obviously_enough(session, kind, nodes, able, sharing[0], alike[0][0]):
        return refused
    for tasks in sharing:
        room = _Room(session, Counter(tasks), session.future if nodes.later else session.idle, open_to)
        has = room.alone.copy() if devices.reach.local else np.zeros(len(nodes.table.nodes), dtype=np.bool_)
        for first, others in alike:
            has[others] = room.within(devices.reaches(kind.constraints, first))[others]
        enough = has[nodes.rows]
        if (enough & able).any():
            return ~enough
    return refused


def _obviously_enough(
    session: SessionView, kind: TaskClass, nodes: Nodes, able: Mask, tasks: Sequence[TaskClass], first: int
) -> bool:
    """Whether each of some tasks could have a node for itself, wherever they go: then nothing has to be added up."""
    if any(each is not kind for each in tasks):
        return False
    reach = session.devices.reaches(kind.constraints, first)
    if not reach or not all(each.everywhere for each in reach):
        return False
    room = able.copy()
    for place, amount in enumerate(session.vector(kind)):
        if amount > 0:
            room &= nodes.idle[:, place] >= amount
    return int(np.count_nonzero(room)) >= len(tasks)


class _Room:
    """Room for some tasks by what reaches their devices."""

    def __init__(self, session: SessionView, tasks: Counter[TaskClass], free: Matrix, open_to: Open) -> None:
        self._session, self._tasks, self._free, self._open_to = session, tasks, free, open_to
        self._nodes = session.topology.table.nodes
        self._known: dict[tuple[Placement, ...], Mask] = {}

    @cached_property
    def alone(self) -> Mask:
        """Which nodes have room by themselves, [nodes]."""
        return self._inside(np.arange(len(self._nodes), dtype=np.intp))

    def within(self, reach: tuple[Placement, ...]) -> Mask:
        """Tell for which nodes all that reach the same devices have room, [nodes]."""
        if any(each.name for each in reach):
            return self.alone
        if reach not in self._known:
            masks = [self._session.devices.reach.reached_by(each) for each in reach]
            whole = np.logical_and.reduce(masks) if masks else np.ones(len(self._nodes), dtype=np.bool_)
            self._known[reach] = self._inside(np.where(whole, 0, NOWHERE))
        return self._known[reach]

    def _inside(self, codes: Rows) -> Mask:
        domains = Domains(codes, {str(number): number for number in range(int(codes.max(initial=0)) + 1)})
        return with_room(self._session, self._tasks, domains, self._free, self._open_to)
