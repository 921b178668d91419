"""The nodes of a snapshot as rows of matrices, with the answers that follow from nodes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from muster.model.objects import Node
from scheduler.model.vectors import Axes, Floats, Mask, Matrix, Rows, Vector, read_only, total


class NodeTable(Struct, frozen=True, eq=False, weakref=True, dict=True):
    """What about nodes changes rarely; its arrays are read-only.

    Attributes:
        closed: the names of nodes with pods that can't be read: nobody knows what is free there.
    """

    nodes: tuple[Node, ...]
    axes: Axes
    allocatable: Matrix
    ready: tuple[bool, ...]
    closed: frozenset[str] = frozenset()

    @cached_property
    def serving(self) -> Mask:
        """Which nodes take new pods at all: ready, not cordoned, and with known pods."""
        serving = np.array(
            [up and not node.spec.unschedulable for up, node in zip(self.ready, self.nodes, strict=True)],
            dtype=np.bool_,
        )
        for name in self.closed & self.row.keys() if self.closed else ():
            serving[self.row[name]] = False
        return read_only(serving)

    @cached_property
    def all_serve(self) -> bool:
        """Whether there is no other."""
        return bool(self.serving.all())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The nodes' names, in order."""
        return tuple(node.name for node in self.nodes)

    @cached_property
    def row(self) -> Mapping[str, int]:
        """The row of each node."""
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def avoided(self) -> bool:
        """Whether some node asks pods to keep away if they can."""
        return any(taint.effect == "PreferNoSchedule" for node in self.nodes for taint in node.spec.taints or ())

    @cached_property
    def every(self) -> Rows:
        """All rows."""
        return read_only(np.arange(len(self.nodes)))

    @cached_property
    def amounts(self) -> Floats:
        """`allocatable` as floats, for ratings; what is there of one resource lies side by side."""
        return read_only(self.allocatable.astype(np.float64, order="F"))

    @cached_property
    def inverses(self) -> Floats:
        """One over `amounts`; zero where there is nothing."""
        return read_only(np.divide(1.0, self.amounts, out=np.zeros_like(self.amounts), where=self.amounts > 0))

    @cached_property
    def columns(self) -> Sequence[tuple[Floats, Floats]]:
        """Of each resource, its column of `amounts` and of `inverses`."""
        return tuple([(self.amounts[:, place], self.inverses[:, place]) for place in range(len(self.axes.names))])

    @cached_property
    def served(self) -> Vector:
        """What those have together that take new pods."""
        return total(self.allocatable[self.serving])

    @cached_property
    def total(self) -> Vector:
        """What all nodes have together."""
        return total(self.allocatable)
