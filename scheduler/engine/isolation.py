"""Plugins of users, asked with care: one that raises, or answers with nonsense, is reported, and its answer is "no".

A vote is a rejection, a node isn't feasible, nobody is a victim, a score is nothing, and what it should have put in order
comes last. The cycle goes on. Plugins of Muster's own are asked directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from scheduler.engine.plugin import Key, Nodes, Permit, Plugin, Reach, Vote, defines
from scheduler.engine.states import JobState, QueueState
from scheduler.engine.view import SessionView
from scheduler.model.obstacle import Obstacle, Reason
from scheduler.model.snapshot import Task, TaskClass
from scheduler.model.vectors import Floats, Mask, Vector

T = TypeVar("T")

_LONGEST: Final = 200
_LAST: Final = (9,)
"""After all keys."""

Report = Callable[[str, str, str], None]
"""Takes the plugin's name, the extension point, and what went wrong, in one line."""


class IsolatedPlugin(Plugin):
    """Stands for a plugin; its points are those of the one it stands for."""

    def __init__(self, plugin: type[Plugin], arguments: Any, session: SessionView, report: Report) -> None:
        super().__init__(arguments, session)
        self.plugin = plugin
        self._report = report
        self._inner: Plugin | None = None
        self._failed: set[str] = set()
        for attribute in ("name", "guards", "by_amount", "divides", "about_room", "node_local"):
            setattr(self, attribute, getattr(plugin, attribute))
        try:
            self._inner = plugin(arguments, session)
        except Exception as error:  # noqa: BLE001 - anybody's code
            self._fault("__init__", _told(error))

    def _fault(self, point: str, words: str) -> None:
        self._failed.add(point)
        self._report(self.plugin.name, point, words)

    def _ask(self, point: str, no: Any, check: Callable[[Any], T], *given: object) -> T:
        try:
            if self._inner is not None:
                return check(getattr(self._inner, point)(*given))
        except Exception as error:  # noqa: BLE001 - anybody's code
            self._fault(point, _told(error))
        refusal: T = no
        return refusal

    def _objection(self) -> Obstacle:
        return Obstacle(
            Reason.NOT_ENOUGH_RESOURCES,
            f"plugin {self.plugin.name} failed, which counts as no; the scheduler's log says how",
        )

    def reach(self, kind: TaskClass) -> Reach:
        """Tell how far it looks."""
        return self._ask("reach", Reach.CLUSTER, _a(Reach), kind)

    def queue_key(self, queue: QueueState) -> Key:
        """Order queues."""
        return self._ask("queue_key", _LAST, _sortable, queue)

    def victim_queue_key(self, queue: QueueState, preemptor: QueueState) -> Key:
        """Order queues to take from."""
        return self._ask("victim_queue_key", _LAST, _sortable, queue, preemptor)

    def job_key(self, job: JobState) -> Key:
        """Order jobs."""
        return self._ask("job_key", _LAST, _sortable, job)

    def task_key(self, task: Task) -> Key:
        """Order tasks."""
        return self._ask("task_key", _LAST, _sortable, task)

    def enqueueable(self, job: JobState) -> Vote:
        """Vote."""
        return self._ask("enqueueable", self._objection(), _vote, job)

    def enqueued(self, job: JobState) -> None:
        """Pass it on."""
        self._ask("enqueued", None, lambda _: None, job)

    def valid(self, job: JobState) -> Obstacle | None:
        """Object, or not."""
        return self._ask("valid", self._objection(), _obstacle, job)

    def ready(self, job: JobState) -> bool:
        """Agree, or not."""
        return self._ask("ready", False, bool, job)

    def missing(self, job: JobState) -> int:
        """Count."""
        return self._ask("missing", 0, int, job)

    def pipelined(self, job: JobState) -> Vote:
        """Vote."""
        return self._ask("pipelined", self._objection(), _vote, job)

    def deserved(self, queue: QueueState) -> Vector:
        """Return what a queue deserves."""
        return self._ask("deserved", self.session.axes.zero, self._vector, queue)

    def overused(self, queue: QueueState) -> bool:
        """Tell."""
        return self._ask("overused", False, bool, queue)

    def allocatable(self, queue: QueueState, task: Task) -> Obstacle | None:
        """Object, or not."""
        return self._ask("allocatable", self._objection(), _obstacle, queue, task)

    def starving(self, job: JobState) -> bool:
        """Tell."""
        return self._ask("starving", False, bool, job)

    def preemptive(self, queue: QueueState, task: Task) -> bool:
        """Tell."""
        return self._ask("preemptive", False, bool, queue, task)

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task] | None:
        """Choose."""
        return self._ask("preemptable", (), _some_of(candidates), preemptor, candidates)

    def reclaimable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task] | None:
        """Choose."""
        return self._ask("reclaimable", (), _some_of(candidates), preemptor, candidates)

    def feasible(self, kind: TaskClass, nodes: Nodes) -> Mask:
        """Tell which nodes it leaves open."""
        return self._ask("feasible", np.zeros(len(nodes), dtype=np.bool_), _mask(len(nodes)), kind, nodes)

    def objections(self, kind: TaskClass, nodes: Nodes) -> Iterable[tuple[str, Mask]]:
        """Tell why not."""

        def check(found: Any) -> list[tuple[str, Mask]]:
            return [(str(words), _mask(len(nodes))(mask)) for words, mask in found]

        if not defines(self.plugin, "objections"):
            return self._refusals(kind, nodes)
        failed = [(f"refused by plugin {self.plugin.name}, which failed", np.ones(len(nodes), dtype=np.bool_))]
        return self._ask("objections", failed, check, kind, nodes)

    def _refusals(self, kind: TaskClass, nodes: Nodes) -> list[tuple[str, Mask]]:
        """Say of a plugin that gives no reasons itself at least that it is the one who refuses."""
        refused = ~self.feasible(kind, nodes)
        words = f"refused by plugin {self.plugin.name}"
        return [(f"{words}, which failed" if "feasible" in self._failed else words, refused)]

    def score(self, kind: TaskClass, nodes: Nodes) -> Floats:
        """Rate."""
        return self._ask("score", np.zeros(len(nodes)), _floats(len(nodes)), kind, nodes)

    def _vector(self, found: Any) -> Vector:
        vector = tuple(int(steps) for steps in found)
        if len(vector) != len(self.session.axes.names):
            raise TypeError(f"{len(vector)} amounts for {len(self.session.axes.names)} resources")
        return vector


def _told(error: Exception) -> str:
    """Write an error in one line, with the place in the plugin's code that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    words = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
    if trace is None:
        return words
    return f"{words} ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"


def _sortable(key: Any) -> Key:
    """Make keys of any types comparable with each other."""
    if isinstance(key, bool | int | float | np.number | np.bool_):
        if math.isnan(key):
            raise ValueError("a key is not a number")
        return (0, key)
    if isinstance(key, str):
        return (1, key)
    if isinstance(key, tuple | list):
        return (2, tuple(_sortable(each) for each in key))
    raise TypeError(f"a key is {type(key).__name__}; give a number, a text or a tuple of these")


def _a(kind: type[T]) -> Callable[[Any], T]:
    def check(found: Any) -> T:
        if not isinstance(found, kind):
            raise TypeError(f"the answer is {type(found).__name__}, not {kind.__name__}")
        return found

    return check


def _vote(found: Any) -> Vote:
    if found is None or isinstance(found, Permit | Obstacle):
        return found
    raise TypeError(f"the answer is {type(found).__name__}, not PERMIT, an Obstacle or None")


def _obstacle(found: Any) -> Obstacle | None:
    if found is None or isinstance(found, Obstacle):
        return found
    raise TypeError(f"the answer is {type(found).__name__}, not an Obstacle or None")


def _some_of(candidates: Sequence[Task]) -> Callable[[Any], Sequence[Task] | None]:
    def check(found: Any) -> Sequence[Task] | None:
        if found is None:
            return None
        known = {task.uid for task in candidates}
        if any(task.uid not in known for task in found):
            raise ValueError("a chosen task is none of the candidates")
        return list(found)

    return check


def _mask(length: int) -> Callable[[Any], Mask]:
    def check(found: Any) -> Mask:
        mask = np.asarray(found)
        if mask.dtype != np.bool_ or mask.shape != (length,):
            raise TypeError(f"the answer has type {mask.dtype} and shape {mask.shape}, not bool and ({length},)")
        return mask

    return check


def _floats(length: int) -> Callable[[Any], Floats]:
    def check(found: Any) -> Floats:
        ratings = np.asarray(found, dtype=np.float64)
        if ratings.shape != (length,) or not np.isfinite(ratings).all():
            raise ValueError(f"the answer has shape {ratings.shape}, not ({length},), or isn't finite")
        return ratings

    return check
