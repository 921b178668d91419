"""Room for pods that share a claim, so that it doesn't get devices on a node where the others can't follow.

A scheduler that places pod by pod gives such a claim the first devices that it finds: a gang whose first pod goes to a node too small
for the rest is undone, and tried the same way in the next cycle.
"""

from __future__ import annotations

from collections import Counter
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
    refused = np.zeros(len(nodes), dtype=np.bool_)
    rows = nodes.rows.tolist()
    reaches: list[tuple[Placement, ...]] | None = None
    for tasks in session.devices.sharing(kind):
        room = _Room(session, Counter(tasks), session.future if nodes.later else session.idle, open_to)
        if session.devices.local:
            enough = room.alone[nodes.rows]
        else:
            if reaches is None:
                found = zip(rows, able.tolist(), strict=True)
                reaches = [session.devices.reaches(kind.constraints, row) if can else () for row, can in found]
            enough = np.array([room.at(row, reach) for row, reach in zip(rows, reaches, strict=True)])
        if (enough & able).any():
            return ~enough
    return refused


class _Room:
    """Room for some tasks by what reaches their devices."""

    def __init__(self, session: SessionView, tasks: Counter[TaskClass], free: Matrix, open_to: Open) -> None:
        self._session, self._tasks, self._free, self._open_to = session, tasks, free, open_to
        self._nodes = session.topology.table.nodes
        self._known: dict[tuple[Placement, ...], bool] = {}

    @cached_property
    def alone(self) -> Mask:
        """Which nodes have room by themselves, [nodes]."""
        return self._within(np.arange(len(self._nodes), dtype=np.intp))

    def at(self, row: int, reach: tuple[Placement, ...]) -> bool:
        """Whether the nodes that reach devices which were found from a node have room."""
        if any(each.name for each in reach):
            return bool(self.alone[row])
        if reach not in self._known:
            codes = [0 if all(each.reaches(node) for each in reach) else NOWHERE for node in self._nodes]
            self._known[reach] = bool(self._within(np.array(codes, dtype=np.intp)).any())
        return self._known[reach]

    def _within(self, codes: Rows) -> Mask:
        domains = Domains(codes, {str(number): number for number in range(int(codes.max(initial=0)) + 1)})
        return with_room(self._session, self._tasks, domains, self._free, self._open_to)
