"""The usage of each node by pods: sums kept by increments, and the matrices made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import msgspec
import numpy as np

from muster.model.amounts import NOTHING
from muster.model.objects import Node
from scheduler.model import vectors
from scheduler.model.cache import Cache
from scheduler.model.node_table import NodeTable
from scheduler.model.snapshot import Task, TaskClass, TaskStatus
from scheduler.model.vectors import Axes, Matrix, Vector
from scheduler.state import conversion
from scheduler.state.blame import about

_encode: Final = msgspec.json.Encoder().encode


class NodeUsage:
    """Sums per node. Only nodes that changed since the last matrices are written again."""

    def __init__(self) -> None:
        self.axes = Axes()
        self._vectors: WeakKeyDictionary[TaskClass, Vector] = WeakKeyDictionary()
        self._used: dict[str, Vector] = {}
        self._leaving: dict[str, Vector] = {}
        self._tasks: dict[str, dict[str, Task]] = {}
        self._aggregated: dict[str, dict[TaskClass, int]] = {}
        self._dirty: set[str] = set()
        self._table: NodeTable | None = None
        self._tables: WeakSet[NodeTable] = WeakSet()
        self._rows: dict[str, _NodeRow] = {}
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

    def aggregate(self, node: str, kind: TaskClass, count: int) -> None:
        """Count so many more pods of a class on a node, or fewer, of which nobody needs to know which they are."""
        aggregated = self._aggregated.setdefault(node, {})
        aggregated[kind] = aggregated.get(kind, 0) + count
        if not aggregated[kind]:
            del aggregated[kind]
        self._use(node, vectors.scale(self._vector(kind), count))

    def _add(self, task: Task, sign: int) -> None:
        amounts, node = self._vector(task.task_class), task.node
        if sign < 0:
            amounts = vectors.scale(amounts, sign)
        self._use(node, amounts)
        if task.status is TaskStatus.RELEASING:
            self._leaving[node] = vectors.add(self._leaving.get(node, self.axes.zero), amounts)

    def _vector(self, kind: TaskClass) -> Vector:
        vector = self._vectors.get(kind)
        if vector is None:
            vector = self._vectors[kind] = kind.vector(self.axes)
        return vector

    def _use(self, node: str, amounts: Vector) -> None:
        used = self._used.get(node)
        self._used[node] = amounts if used is None else vectors.add(used, amounts)
        self._dirty.add(node)

    def matrices(
        self, axes: Axes, nodes: Mapping[str, Node], closed: frozenset[str] = frozenset()
    ) -> tuple[NodeTable, Matrix, Matrix]:
        """Return the node table, what is idle and what is being released, [nodes, resources]; not to be changed.

        ``closed``: the nodes that take no more pods, for what is on them can't be read.
        """
        if axes is not self.axes:
            self._recount(axes)
        if self._table is None:
            self._table = self._known_table(axes, nodes, closed) or self._new_table(axes, nodes, closed)
            self._tables.add(self._table)
            self._idle = self._table.allocatable - _matrix(axes, self._used, self._table.names)
            self._releasing = _matrix(axes, self._leaving, self._table.names)
            self._dirty.clear()
        names = [name for name in self._dirty if name in self._table.row]
        if names:
            rows = [self._table.row[name] for name in names]
            # What was given before stays as it is.
            self._idle = self._idle.copy()
            self._idle[rows] = self._table.allocatable[rows] - _matrix(axes, self._used, names)
            if self._leaving:
                self._releasing = self._releasing.copy()
                self._releasing[rows] = _matrix(axes, self._leaving, names)
        self._dirty.clear()
        return self._table, vectors.read_only(self._idle), vectors.read_only(self._releasing)

    def _known_table(self, axes: Axes, nodes: Mapping[str, Node], closed: frozenset[str]) -> NodeTable | None:
        """Return the table of just these nodes where somebody has kept it: what is remembered of it is of use again."""
        for table in self._tables:
            same = table.axes is axes and len(table.nodes) == len(nodes) and table.closed == closed
            if same and all(nodes.get(node.name) is node for node in table.nodes):
                return table
        return None

    def _new_table(self, axes: Axes, nodes: Mapping[str, Node], closed: frozenset[str]) -> NodeTable:
        """Make the table; most nodes are those of the last one."""
        known, self._rows, alike = self._rows, {}, Cache()
        for name, node in sorted(nodes.items()):
            row = known.get(name)
            if row is None or row.node is not node or row.axes is not axes:
                with about("", "nodes", "", name):
                    row = _row(axes, node, alike)
            self._rows[name] = row
        rows = self._rows.values()
        allocatable = np.array([row.amounts for row in rows], dtype=np.int64).reshape(len(rows), len(axes.names))
        return NodeTable(
            nodes=tuple([row.node for row in rows]),
            axes=axes,
            allocatable=vectors.read_only(allocatable),
            ready=tuple([row.ready for row in rows]),
            closed=closed,
        )

    def compare(self, recount: NodeUsage) -> None:
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
        self._used, self._leaving, self._vectors = {}, {}, WeakKeyDictionary()
        for tasks in self._tasks.values():
            for task in tasks.values():
                self._add(task, 1)
        for node, aggregated in self._aggregated.items():
            for kind, count in aggregated.items():
                self._use(node, vectors.scale(self._vector(kind), count))


class _NodeRow(NamedTuple):
    """What the table says of a node."""

    node: Node
    axes: Axes
    amounts: Vector
    ready: bool


def _row(axes: Axes, node: Node, alike: Cache) -> _NodeRow:
    # Most nodes are as large as many others.
    amounts: tuple[Vector, bool] = alike.get(_encode(node.status.allocatable), lambda: _amounts(axes, node))
    return _NodeRow(node, axes, amounts[0], amounts[1] and conversion.ready(node))


def _amounts(axes: Axes, node: Node) -> tuple[Vector, bool]:
    """Return what a node has, and whether that can be read."""
    has = conversion.allocatable(node)
    return tuple(vectors.clipped(axes.vector(has or NOTHING))), has is not None


def _matrix(axes: Axes, sums: Mapping[str, Vector], names: Sequence[str]) -> Matrix:
    if not sums:
        return np.zeros((len(names), len(axes.names)), dtype=np.int64)
    return vectors.matrix([sums.get(name, axes.zero) for name in names], len(axes.names))
