"""Amounts as vectors over the resource names of a cluster: the scheduler's own, exact arithmetic.

`muster.model.amounts.Resources` is exact but a mapping; a cycle adds and compares hundreds of thousands of amounts.
Here an amount is a tuple of whole steps (thousandths of a cpu, else units), one per name of `Axes`. Tuples hold Python
integers, so sums over a cluster can't overflow; arrays over nodes are int64, and `clipped` is the one way into them.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from muster.model.amounts import NANO, NOTHING, Resources

Vector = tuple[int, ...]
Matrix = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Array = TypeVar("Array", bound=npt.NDArray[Any])

PODS: Final = "pods"
UNLIMITED: Final = 2**80
"""More than any sum of amounts that Kubernetes can write."""
OTHERS: Final = "other resources that no node has"
"""The place of all names that have none of their own: how many of them a request lists. No node has any."""
MOST_UNOFFERED: Final = 8
"""Names that no node has and that have a place of their own all the same, so that sentences can name them."""
_CAP: Final = 2**62
_FIRST: Final = ("cpu", "memory", PODS)
_LOW: Final = 2**32 - 1
_OVERFLOW: Final = 2**63


class Axes(Struct, frozen=True, dict=True):
    """Which resource name is which place of a vector."""

    names: tuple[str, ...] = _FIRST

    @cached_property
    def place(self) -> Mapping[str, int]:
        """The place of each name."""
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """The places that count for shares and fairness: all but the number of pods."""
        return tuple(index for index, name in enumerate(self.names) if name != PODS)

    @cached_property
    def zero(self) -> Vector:
        """Nothing of everything."""
        return (0,) * len(self.names)

    def with_names(self, names: Iterable[str]) -> Axes:
        """Return axes that know ``names`` too; itself when it does."""
        new = sorted({name for name in names if name not in self.place})
        return Axes(self.names + tuple(new)) if new else self

    def needed(self, asked: AbstractSet[str], offered: Container[str]) -> Axes:
        """Return axes for what is ``asked`` for: all of it that is ``offered``, and few names besides; itself where it is those.

        A name keeps its place while it is asked for. Anybody may ask for anything, so names that nobody offers don't get
        a place each: every matrix would be as wide as one pod likes.
        """
        kept, unoffered = list(_FIRST), 0
        for name in (*self.names[len(_FIRST) :], *sorted(asked - set(self.names))):
            if name not in asked or name in _FIRST:
                continue
            unoffered += name not in offered
            if name in offered or unoffered <= MOST_UNOFFERED:
                kept.append(name)
        if unoffered > MOST_UNOFFERED:
            kept.append(OTHERS)
        return self if tuple(kept) == self.names else Axes(tuple(kept))

    def request(self, amounts: Resources) -> Vector:
        """Write what pods ask for, as `vector`; names without a place are counted in that of `OTHERS`, where there is one."""
        vector = self.vector(amounts)
        if OTHERS not in self.place:
            return vector
        others = sum([name not in self.place and amount > 0 for name, amount in amounts.nano.items()])
        return tuple([others if place == self.place[OTHERS] else steps for place, steps in enumerate(vector)])

    def vector(self, amounts: Resources) -> Vector:
        """Write amounts in steps, rounded up; names without a place are left out."""
        return tuple(amounts.units(name) if name in amounts else 0 for name in self.names)

    def limit(self, amounts: Resources | None) -> Vector:
        """Write a limit in steps; what it doesn't list is unlimited."""
        listed = amounts or NOTHING
        return tuple(listed.units(name) if name in listed else UNLIMITED for name in self.names)

    def resources(self, vector: Vector) -> Resources:
        """Turn steps into amounts, leaving out zeros and what is unlimited."""
        return Resources(
            {
                name: steps * (10**6 if name == "cpu" else NANO)
                for name, steps in zip(self.names, vector, strict=True)
                if steps and steps < UNLIMITED
            }
        )


def add(first: Vector, second: Vector) -> Vector:
    """Add by place."""
    # A cycle does this and `subtract` ten times a group, and `strict` takes longer than the sum: that vectors are of the
    # same axes, `added`, `fits` and `least` look at.
    return tuple(map(operator.add, first, second))


def subtract(first: Vector, second: Vector) -> Vector:
    """Subtract by place; the result may be negative."""
    return tuple(map(operator.sub, first, second))


def added(vectors: Iterable[Vector], axes: Axes) -> Vector:
    """Add many by place."""
    return tuple(map(sum, zip(axes.zero, *vectors, strict=True)))


def scale(vector: Vector, count: int) -> Vector:
    """Take ``count`` times the vector."""
    return tuple([a * count for a in vector])


def least(first: Vector, second: Vector) -> Vector:
    """Take the smaller of each place."""
    return tuple([a if a < b else b for a, b in zip(first, second, strict=True)])  # noqa: FURB136 - a call takes longer than all the rest


def most(first: Vector, second: Vector) -> Vector:
    """Take the larger of each place."""
    return tuple([a if a > b else b for a, b in zip(first, second, strict=True)])  # noqa: FURB136 - a call takes longer than all the rest


def above_zero(vector: Vector) -> Vector:
    """Keep what is above zero."""
    return tuple([a if a > 0 else 0 for a in vector])  # noqa: FURB136 - a call takes longer than all the rest


def short(wanted: Vector, available: Vector) -> Vector:
    """What ``available`` lacks, looking only at what is wanted: a debt elsewhere is nobody's hindrance."""
    return tuple([max(want - max(have, 0), 0) if want > 0 else 0 for want, have in zip(wanted, available, strict=True)])


def fits(wanted: Vector, available: Vector) -> bool:
    """Whether nothing that is wanted is short."""
    # A loop, since this is asked for every job: `all` of a generator takes twice as long.
    for want, have in zip(wanted, available, strict=True):  # noqa: SIM110 - as said
        if want > have and want > 0:
            return False
    return True


def share(part: Vector, whole: Vector, places: Iterable[int]) -> float:
    """The dominant share: the largest of part / whole over ``places``; of nothing, something is 1."""
    if not any(part):
        return 0.0
    shares = [part[i] / whole[i] if whole[i] > 0 else float(part[i] > 0) for i in places if part[i] > 0]
    return max(shares, default=0.0)


def total(matrix: Matrix, bound: Vector | None = None) -> Vector:
    """Sum the rows exactly: the sum of 5,000 nodes can be more than int64 holds.

    ``bound``: sums that are no smaller, where some are known and no amount is below zero.
    """
    # A resource a row: numpy sums what lies side by side several times as fast.
    columns = np.ascontiguousarray(matrix.T)
    if bound is not None and max(bound) < _OVERFLOW:
        return tuple(np.add.reduce(columns, axis=1).tolist())
    high, low = np.add.reduce(columns >> 32, axis=1), np.add.reduce(columns & _LOW, axis=1)
    return tuple([(above << 32) + below for above, below in zip(high.tolist(), low.tolist(), strict=True)])


def read_only(array: Array) -> Array:
    """Return the array itself, which can't be written to from now on."""
    array.setflags(write=False)
    return array


def clipped(vector: Vector) -> list[int]:
    """Write what a node has so that int64 can hold it and differences of it."""
    if max(vector) <= _CAP and min(vector) >= -_CAP:
        return list(vector)
    return [min(max(steps, -_CAP), _CAP) for steps in vector]


def matrix(rows: Sequence[Vector], width: int) -> Matrix:
    """Write what nodes have, one a row, each so that int64 can hold it and differences of it."""
    # This is asked for all nodes at once: one by one only where one has too much.
    with contextlib.suppress(OverflowError):
        written = np.array(rows, dtype=np.int64).reshape(len(rows), width)
        if not ((written > _CAP) | (written < -_CAP)).any():
            return written
    return np.array([clipped(row) for row in rows], dtype=np.int64).reshape(len(rows), width)


def constant(number: float) -> Floats:
    """Write a number that many short arrays are multiplied with: numpy takes as long for a Python number as for the array."""
    return np.array(number, dtype=np.float64)


def demands(vector: Vector) -> list[tuple[int, Matrix]]:
    """Return the places of what is asked for, and how much of each has to be idle: what isn't asked for is no hindrance."""
    # Arrays, for the same reason as `constant`.
    return [(place, np.array(min(steps, _CAP + 1))) for place, steps in enumerate(vector) if steps > 0]


def wanted_row(vector: Vector) -> npt.NDArray[np.int64]:
    """Write a request for comparison with nodes: one beyond what an array can count fits nowhere."""
    return np.array([min(steps, _CAP + 1) for steps in vector], dtype=np.int64)
