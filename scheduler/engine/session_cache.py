"""The part of `DecisionCache` that sessions use: answers about node tables, and the sums of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

from scheduler.model.cache import Cache
from scheduler.model.node_table import NodeTable
from scheduler.model.tasks import JobAmounts, RequestVectors, TaskCounts
from scheduler.model.vectors import Axes
from scheduler.topology.device_offers import SELECTORS
from scheduler.topology.device_selectors import SelectorAnswers, Selectors

SPARE: Final = 256
"""Entries of what is gone that are borne with, beside as many as there are jobs or queues."""


class SessionCache:
    """Answers about values of snapshots, found by the identity of the value."""

    def __init__(self, answers: SelectorAnswers | None = None) -> None:
        self._nodes: WeakKeyDictionary[NodeTable, Cache] = WeakKeyDictionary()
        self._selectors = Selectors(answers)
        self._axes = Axes()
        self._sums: dict[int, tuple[TaskCounts, JobAmounts]] = {}

    def of_nodes(self, table: NodeTable) -> Cache:
        """Return the answers that follow from a node table. They go with it, so none may refer to it."""
        known = self._nodes.get(table)
        if known is None:
            known = self._nodes[table] = Cache()
            # Which devices expressions choose doesn't follow from nodes.
            known.get(SELECTORS, lambda: self._selectors)
        return known

    def successor(self) -> SessionCache:
        """Return one for another thread, which shares what holds of other snapshots, too."""
        return SessionCache(self._selectors.answers)

    def amounts(self, counts: TaskCounts, vectors: RequestVectors) -> JobAmounts:
        """Return what the tasks of a job have and want; a job whose phase changed keeps its counts."""
        if vectors.axes is not self._axes:
            self._axes = vectors.axes
            self._sums.clear()
        known = self._sums.get(id(counts))
        if known is None:
            known = self._sums[id(counts)] = (counts, vectors.amounts(counts))
        return known[1]

    def prune(self, there: Iterable[TaskCounts], jobs: int) -> None:
        """Forget the sums of jobs that are gone, once they are many."""
        if len(self._sums) > 2 * jobs + SPARE:
            kept = {id(counts) for counts in there}
            self._sums = {key: each for key, each in self._sums.items() if key in kept}
