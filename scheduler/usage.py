"""What pods use of each node: sums kept by increments, and the matrices made of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from muster.model.amounts import NOTHING
from muster.model.objects import Node
from scheduler import intake, vectors
from scheduler.snapshot import NodeTable, Status, Task
from scheduler.vectors import Axes, Matrix, Vector


class Usage:
    """Sums per node. Only nodes that changed since the last matrices are written again."""

    def __init__(self) -> None:
        self.axes = Axes()
        self._used: dict[str, Vector] = {}
        self._leaving: dict[str, Vector] = {}
        self._tasks: dict[str, dict[str, Task]] = {}
        self._dirty: set[str] = set()
        self._table: NodeTable | None = None
        self._idle: Matrix = np.zeros((0, 0), dtype=np.int64)
        self._releasing: Matrix = np.zeros((0, 0), dtype=np.int64)

    def table_changed(self) -> None:
        """Note that a node came, went or changed."""
        self._table = None

    def take(self, task: Task) -> None:
        """Count a task on its node."""
        self._tasks.setdefault(task.node, {})[task.uid] = task
        self._add(task, 1)

    def give_back(self, task: Task) -> None:
        """Count it no longer."""
        self._tasks[task.node].pop(task.uid)
        self._add(task, -1)

    def _add(self, task: Task, sign: int) -> None:
        amounts = vectors.scale(task.kind.vector(self.axes), sign)
        self._used[task.node] = vectors.add(self._used.get(task.node, self.axes.zero), amounts)
        if task.status is Status.RELEASING:
            self._leaving[task.node] = vectors.add(self._leaving.get(task.node, self.axes.zero), amounts)
        self._dirty.add(task.node)

    def matrices(self, axes: Axes, nodes: Mapping[str, Node]) -> tuple[NodeTable, Matrix, Matrix]:
        """Give the node table, what is idle and what is being released, [nodes, resources]; yours to change."""
        if axes is not self.axes:
            self._recount(axes)
        if self._table is None:
            self._table = _table(axes, nodes)
            self._idle = np.zeros_like(self._table.allocatable)
            self._releasing = np.zeros_like(self._table.allocatable)
            self._dirty = set(self._table.names)
        for name in self._dirty:
            row = self._table.row.get(name)
            if row is not None:
                used = vectors.clipped(self._used.get(name, axes.zero))
                self._idle[row] = self._table.allocatable[row] - np.array(used, dtype=np.int64)
                self._releasing[row] = vectors.clipped(self._leaving.get(name, axes.zero))
        self._dirty.clear()
        return self._table, self._idle.copy(), self._releasing.copy()

    def compare(self, recount: Usage) -> None:
        """Hold it against sums that were counted anew.

        Raises:
            AssertionError: they disagree.
        """
        recount._recount(self.axes)
        for sums, again in ((self._used, recount._used), (self._leaving, recount._leaving)):
            nodes = sums.keys() | again.keys()
            differing = {name for name in nodes if sums.get(name, self.axes.zero) != again.get(name, self.axes.zero)}
            assert not differing, f"the amounts on nodes {sorted(differing)} don't match the pods"

    def _recount(self, axes: Axes) -> None:
        self.axes, self._table = axes, None
        self._used, self._leaving = {}, {}
        for tasks in self._tasks.values():
            for task in tasks.values():
                self._add(task, 1)


def _table(axes: Axes, nodes: Mapping[str, Node]) -> NodeTable:
    ordered = tuple(node for _, node in sorted(nodes.items()))
    amounts = [intake.allocatable(node) for node in ordered]
    rows = [vectors.clipped(axes.vector(each or NOTHING)) for each in amounts]
    return NodeTable(
        nodes=ordered,
        axes=axes,
        allocatable=np.array(rows, dtype=np.int64).reshape(len(ordered), len(axes.names)),
        ready=tuple(each is not None and intake.ready(node) for each, node in zip(amounts, ordered, strict=True)),
    )
