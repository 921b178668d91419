"""The choice of the resource names that get a place in every vector: the requested ones, as far as somebody offers them.

Pods may ask for whatever they like, nodes and queues are an administrator's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from muster.model.objects import Node, Queue
from scheduler.model.snapshot import JobInfo
from scheduler.model.vectors import Axes
from scheduler.state.task_classes import TaskClasses

_MORE_NAMES: Final = 64
"""New names after which those that nobody asks for any more are looked for, and forgotten."""


class AxesChooser:
    """Chooses axes, and the same ones again where nothing that they depend on has changed."""

    def __init__(self) -> None:
        self._offered: Counter[str] = Counter()
        self._changes = 0
        self._queues: dict[str, frozenset[str]] = {}
        self._stood_for: Collection[str] = ()
        self._most = _MORE_NAMES
        self._last: tuple[Axes, int, int] | None = None

    def node(self, old: Node | None, new: Node | None) -> None:
        """Learn of a node's new version; None where it is gone."""
        before = old.status.allocatable if old is not None else None
        after = new.status.allocatable if new is not None else None
        if before != after:
            self._swap(frozenset(before or ()), frozenset(after or ()))

    def queue(self, name: str, new: Queue | None) -> None:
        """Learn of a queue's new version; None where it is gone."""
        after = _stated(new) if new is not None else frozenset[str]()
        self._swap(self._queues.pop(name, frozenset()), after)
        if after:
            self._queues[name] = after

    def devices(self, resources: Collection[str]) -> None:
        """Learn for which resources classes of devices stand."""
        if resources is not self._stood_for:
            self._swap(frozenset(self._stood_for), frozenset(resources))
            self._stood_for = resources

    def _swap(self, before: frozenset[str], after: frozenset[str]) -> None:
        for name in after - before:
            self._offered[name] += 1
            self._changes += self._offered[name] == 1
        for name in before - after:
            self._offered[name] -= 1
            if not self._offered[name]:
                del self._offered[name]
                self._changes += 1

    def needed(self, last: Axes, classes: TaskClasses, jobs: Collection[JobInfo]) -> Axes:
        """Return the axes for what classes and jobs ask for; ``last`` where they still do."""
        if len(classes.named) > self._most:
            classes.recount(_minimums(jobs))
            self._most, self._last = 2 * len(classes.named) + _MORE_NAMES, None
        if self._last != (last, len(classes.named), self._changes):
            last = last.needed(classes.named, self._offered)
            self._last = (last, len(classes.named), self._changes)
        return last


def _minimums(jobs: Iterable[JobInfo]) -> Iterable[str]:
    stated = [job.min_resources for job in jobs if job.min_resources is not None]
    return (name for amounts in stated for name in amounts)


def _stated(queue: Queue) -> frozenset[str]:
    spec = queue.spec
    guaranteed = spec.guarantee.resource if spec.guarantee else None
    return frozenset({*(spec.capability or ()), *(spec.deserved or ()), *(guaranteed or ())})
