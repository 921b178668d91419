"""Counts of pods by node and by domain of nodes during a cycle, kept with each placement.

Arrays are over the rows of the node table. There are two states of it: ``now``, in which pods that are leaving are
still there, and ``later``, in which they are gone. A reserved place counts in both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.model.cache import Cache
from scheduler.model.constraints import Constraints
from scheduler.model.node_table import NodeTable
from scheduler.model.snapshot import PeerCounts, TaskStatus
from scheduler.model.vectors import Mask, Rows

Counts = npt.NDArray[np.int64]
"""Numbers of pods, by node or by domain."""

NOWHERE: Final = -1
"""The domain of a node without the label."""


class Domains:
    """Nodes by the value of a label.

    Attributes:
        codes: each node's domain as a number, `NOWHERE` for those that don't count, [nodes].
        size: how many numbers there are.
        found: the numbers that occur.
    """

    __slots__ = ("_numbers", "codes", "found", "size")

    def __init__(self, codes: Rows, numbers: Mapping[str, int]) -> None:
        self.codes = codes
        self._numbers = numbers
        self.size = len(numbers)
        self.found = np.unique(codes[codes >= 0])

    def of(self, mask: Mask) -> Domains:
        """Return the same domains, of which only some nodes count."""
        return Domains(np.where(mask, self.codes, NOWHERE), self._numbers)

    def among(self, values: Iterable[str]) -> Mask:
        """Tell which nodes have one of these values, [nodes]."""
        mask = np.zeros(len(self.codes), dtype=np.bool_)
        for value in values:
            if value in self._numbers:
                mask |= self.codes == self._numbers[value]
        return mask


class DomainCounts:
    """One count by domain. The last place, which `NOWHERE` points to, stays zero."""

    __slots__ = ("by", "later", "now")

    def __init__(self, by: Domains, now: Counts, later: Counts) -> None:
        self.by = by
        counted = by.codes >= 0
        self.now = self._total(now, counted)
        self.later = self._total(later, counted)

    def _total(self, counts: Counts, counted: Mask) -> Counts:
        sums = np.zeros(self.by.size + 1, dtype=np.int64)
        np.add.at(sums, self.by.codes[counted], counts[counted])
        return sums

    def add(self, row: int, now: int, later: int) -> None:
        """Count something on a node."""
        code = self.by.codes[row]
        if code >= 0:
            self.now[code] += now
            self.later[code] += later


class PodCounts:
    """How many pods of one kind each node has."""

    __slots__ = ("_sums", "later", "now")

    def __init__(self, now: Counts, later: Counts) -> None:
        self.now = now
        self.later = later
        self._sums: dict[Hashable, DomainCounts] = {}

    def at(self, *, later: bool) -> Counts:
        """Return the counts of one of the two states, [nodes]; not to be changed."""
        return self.later if later else self.now

    def add(self, row: int, now: int, later: int) -> None:
        """Count something on a node."""
        self.now[row] += now
        self.later[row] += later
        for sums in self._sums.values():
            sums.add(row, now, later)

    def by(self, name: Hashable, nodes: Domains, *, later: bool) -> Counts:
        """Return the counts by domain, kept from now on under ``name``; the last place is zero."""
        sums = self._sums.get(name)
        if sums is None:
            sums = self._sums[name] = DomainCounts(nodes, self.now, self.later)
        return sums.later if later else sums.now


class TopologyCounts:
    """The pod counts of one session; each is read from the snapshot when it is first asked for.

    Attributes:
        cache: answers that follow from the node table, for as long as the table is there.
    """

    def __init__(self, table: NodeTable, peers: PeerCounts, cache: Cache) -> None:
        self.table = table
        self.cache = cache
        self.inverse_terms = peers.inverse_terms
        self._peers = peers
        self._counts: dict[Hashable, PodCounts] = {}

    def domains(self, key: str) -> Domains:
        """Return the domains that a label divides the nodes into."""

        def divide() -> Domains:
            numbers: dict[str, int] = {}
            values = [(node.metadata.labels or {}).get(key) for node in self.table.nodes]
            codes = [NOWHERE if value is None else numbers.setdefault(value, len(numbers)) for value in values]
            return Domains(np.array(codes, dtype=np.intp), numbers)

        return self.cache.get(("domains", key), divide)

    def of(self, key: Hashable) -> PodCounts:
        """Return the counts of a set of pods, or of the pods that carry a term."""
        counts = self._counts.get(key)
        if counts is None:
            now = self._array(self._peers.present.get(key, {}))
            counts = self._counts[key] = PodCounts(now, now - self._array(self._peers.leaving.get(key, {})))
        return counts

    def empty(self, key: Hashable) -> bool:
        """Whether nobody counts; told without counting."""
        return key not in self._counts and key not in self._peers.present

    def rows(self, key: Hashable) -> list[int]:
        """Return the nodes where somebody counts; told without an array where nobody asked for one."""
        counts = self._counts.get(key)
        if counts is not None:
            found: list[int] = np.flatnonzero(counts.now).tolist()
            return found
        row = self.table.row
        return [row[name] for name in self._peers.present.get(key, ()) if name in row]

    def left(self, key: Hashable, row: int) -> bool:
        """Whether somebody on a node counts that doesn't leave; told without an array where nobody asked for one."""
        counts = self._counts.get(key)
        if counts is not None:
            return bool(counts.later[row])
        name = self.table.names[row]
        there = self._peers.present.get(key, {}).get(name, 0)
        return there > self._peers.leaving.get(key, {}).get(name, 0)

    def _array(self, counts: Mapping[str, int]) -> Counts:
        array = np.zeros(len(self.table.nodes), dtype=np.int64)
        for name, count in counts.items():
            row = self.table.row.get(name)
            if row is not None:
                array[row] = count
        return array

    def count(self, constraints: Constraints, row: int, status: TaskStatus, sign: int) -> None:
        """Count a mark on a pod with these constraints: ALLOCATED, PIPELINED or RELEASING, made (1) or taken back (-1)."""
        leaves = status is TaskStatus.RELEASING
        for key in constraints.counted_as:
            self.of(key).add(row, 0 if leaves else sign, -sign if leaves else sign)
