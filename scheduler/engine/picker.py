"""Finds the best nodes for tasks of a class, asking plugins again only about nodes that changed.

For each class there is one array of scores over all nodes, -inf where a task of it can't go, and for all classes one array
that tells when each node last changed. A question first brings the rows up to date that were touched since the class
last asked, in one vectorised call. Many tasks of a class are placed by one question: of the nodes with the highest scores a heap is
made, and each is rated for the placements to come, several at once (ties: the first by name). docs/decisions/0090 has
the alternatives.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

import numpy as np

from scheduler.engine.class_scores import ClassScores, PickedRows, Scope, UpcomingScores
from scheduler.engine.highest_scores import NEVER, highest, highest_rows
from scheduler.engine.isolation import IsolatedPlugin
from scheduler.engine.plugin import Nodes, Plugin, Reach
from scheduler.model.node_table import NodeTable
from scheduler.model.snapshot import TaskClass
from scheduler.model.vectors import Floats, Mask, Matrix, Rows

_AS_IT_IS: Final = nullcontext()
_MANY: Final = 8
"""More touched rows than these are rated for their present state only: others will touch them again, too."""
_STEPS: Final = 16
"""For how many placements of its own a row is rated at once."""
_FEW_STEPS: Final = 4
"""The same, where placements spread over the nodes."""
_WIDTH: Final = 16
"""How many rows are rated for placements to come at once, at first."""
_WIDEST: Final = 128
"""The same, at most."""
_PAIRED: Final = 1024
"""Of so many nodes at most, rows are rated for one placement more in the same call: that of more takes longer than what it spares."""
_PLENTY: Final = 2**31
"""More tasks than any node takes."""


class Picker:
    """The nodes of a session, as classes of tasks see them.

    ``idle`` and ``future`` are what they have, [nodes, resources], and change under way: `touched` tells where. ``scope`` is what
    `within` has restricted it to. ``settled``: `SettledClasses.number`.
    """

    def __init__(
        self,
        table: NodeTable,
        idle: Matrix,
        future: Matrix,
        feasible: list[Callable[[TaskClass, Nodes], Mask]],
        score: list[Callable[[TaskClass, Nodes], Floats]],
        settled: Callable[[TaskClass], int | None],
    ) -> None:
        self._table, self._idle, self._future = table, idle, future
        self._feasible, self._score, self._settled = feasible, score, settled
        self._plugins = {
            plugin: None for ask in (*feasible, *score) if isinstance(plugin := getattr(ask, "__self__", None), Plugin)
        }
        self._views: dict[Hashable, ClassScores] = {}
        self._time = 0
        self._touched: Rows = np.zeros(len(self._table.nodes), dtype=np.intp)
        self._all = self._table.every
        # What a user's plugin takes for a node, nobody knows.
        ours = not any(isinstance(plugin, IsolatedPlugin) for plugin in self._plugins)
        self._pairs = ours and len(self._all) <= _PAIRED
        self._spreads = True
        self.scope: Scope | None = None

    def within(self, scope: Scope | None) -> AbstractContextManager[None]:
        """Look at some nodes only for a while; None for all."""
        return _AS_IT_IS if scope is self.scope else self._restricted(scope)

    @contextmanager
    def _restricted(self, scope: Scope | None) -> Iterator[None]:
        before, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = before

    def touched(self, rows: Sequence[int], kind: TaskClass | None, sign: int) -> None:
        """Note that tasks of a class were placed on nodes (1), or taken back (-1); None for any other change."""
        view = self._views.get(self._key(kind)) if kind is not None and sign > 0 else None
        answer = view.answer if view is not None else None
        before = self._time
        self._time += 1
        self._touched[rows[0] if len(rows) == 1 else rows] = self._time
        # Who takes what it was just offered need not be rated again.
        if view is not None and answer is not None and view.seen == before == answer.time and answer.rows == rows:
            self._take_over(view, answer)

    def _take_over(self, view: ClassScores, answer: PickedRows) -> None:
        for row, steps in answer.steps.items():
            ahead = view.ahead.get(row)
            if row not in answer.after or (ahead is not None and ahead.at + steps >= len(ahead.scores)):
                return
        for row, steps in answer.steps.items():
            ahead = view.ahead.get(row)
            if ahead is not None:
                ahead.at += steps
            view.set_score(row, answer.after[row])
        view.seen = self._time

    def row_of(self, kind: TaskClass) -> Matrix:
        """What a task of this class takes, as a row."""
        return self._view(kind).wanted

    def at_once(self, kind: TaskClass) -> bool:
        """Whether many tasks of the class can be asked for in one question."""
        return self._view(kind).reach is Reach.IDLE

    def best(self, kind: TaskClass) -> int | None:
        """Return the best node that has room for a task now, or None."""
        rows = self.pick(kind, 1)
        return rows[0] if rows else None

    def pick(self, kind: TaskClass, count: int) -> list[int]:
        """Return the best nodes for ``count`` tasks, as though each were taken before the next is sought; fewer where there is no more room.

        Nothing is taken. Only of classes that are `at_once` more than one may be asked for.
        """
        view = self._view(kind)
        self._refresh(kind, view, count)
        if view.answer is None or not view.answer.serves(self._time, self.scope, count):
            view.answer = self._one(view) if count == 1 else self._many(kind, view, count)
        return view.answer.rows

    def _seen(self, scores: Floats) -> Floats:
        """Return scores as they are within the scope."""
        scope = self.scope
        return scores if scope is None else np.where(scope.mask, scores + scope.bonus, NEVER)

    def _one(self, view: ClassScores) -> PickedRows:
        row = highest(self._seen(view.scores))
        if row is None:
            return PickedRows(self._time, self.scope, 1, [], {}, {})
        ahead = view.ahead.get(row)
        known = ahead is not None and ahead.at + 1 < len(ahead.scores)
        after = {row: ahead.scores[ahead.at + 1]} if ahead is not None and known else {}
        return PickedRows(self._time, self.scope, 1, [row], after, {row: 1})

    def _many(self, kind: TaskClass, view: ClassScores, count: int) -> PickedRows:
        """Take the best again and again, among as many nodes with the highest scores as there are tasks.

        Of the others none can be reached: each task uses up at most one node that wasn't used before.
        """
        scores = self._seen(view.scores)
        line = highest_rows(scores, count)
        heap = list(zip((-scores[line]).tolist(), line.tolist(), strict=True))
        bonus = self.scope.bonus if self.scope is not None else None
        foresight = _PredictedScores(self, kind, view, line.tolist())
        rows: list[int] = []
        while heap and len(rows) < count:
            row = heap[0][1]
            rows.append(row)
            after = foresight.next(row, len(rows))
            if after > NEVER:
                heapq.heapreplace(heap, (-after if bonus is None else -after - float(bonus[row]), row))
            else:
                heapq.heappop(heap)
        self._spreads = len(rows) < 2 * len(foresight.used)
        return PickedRows(self._time, self.scope, count, rows, foresight.after, foresight.used)

    def best_later(self, kind: TaskClass) -> int | None:
        """Return the best node that will have room once the pods that are leaving it are gone, or None."""
        view = self._view(kind)
        return highest(self._seen(self._scores(kind, view, self._all, self._future)))

    def fits(self, kind: TaskClass, row: int, free: Matrix) -> bool:
        """Whether a task fits on one node with ``free`` of each node, [nodes, resources]."""
        if self.scope is not None and not self.scope.mask[row]:
            return False
        return bool(self._scores(kind, self._view(kind), np.array([row]), free)[0] > NEVER)

    def ranked(self, kind: TaskClass, free: Matrix) -> list[int]:
        """Return the nodes that have room for a task with ``free`` of each, [nodes, resources]; the best first."""
        scores = self._seen(self._scores(kind, self._view(kind), self._all, free))
        order = np.argsort(-scores, kind="stable")
        return [int(row) for row in order[scores[order] > NEVER]]

    def open_to(self, kind: TaskClass) -> Mask:
        """Tell which nodes accept the class, however full they are."""
        mask = np.ones(len(self._all), dtype=np.bool_)
        nodes = Nodes(self._table, self._all, self._idle)
        for ask in self._feasible:
            mask &= ask(kind, nodes)
        return mask

    def fitting(self, kind: TaskClass, *, later: bool = False) -> Rows:
        """Return how many tasks of the class each node takes now, or once the pods that are leaving are gone, [nodes]."""
        view = self._view(kind)
        if later:
            free = self._future
            open_now = self._scores(kind, view, self._all, free) > NEVER
        else:
            self._refresh(kind, view)
            free, open_now = self._idle, view.scores > NEVER
        return np.where(open_now, self.places(kind, free), 0)

    def room(self, kind: TaskClass) -> int:
        """Return how many tasks of the class fit in what is idle: no placement of them can do better."""
        view = self._view(kind)
        self._refresh(kind, view)
        return self.capacity(kind, view.scores > NEVER, self._idle)

    def capacity(self, kind: TaskClass, mask: Mask, free: Matrix) -> int:
        """Return how many tasks of the class fit in what is ``free`` on the nodes of ``mask``, [nodes, resources]."""
        return sum(self.places(kind, free[mask]).tolist())

    def places(self, kind: TaskClass, free: Matrix) -> Rows:
        """Return how many tasks of the class fit on each of some nodes with ``free`` of each, [nodes, resources]."""
        wanted = self._view(kind).wanted
        columns = np.flatnonzero(wanted)
        places: Rows = (free[:, columns].clip(min=0) // wanted[columns]).min(axis=1, initial=_PLENTY)
        return places

    def look_ahead(self, kind: TaskClass, view: ClassScores, rows: list[int], steps: int) -> None:
        """Rate rows as they are, and for placements of a class to come: ``steps`` scores of each."""
        for row, scores in zip(rows, self.rated_ahead(kind, view, rows, 0, steps), strict=True):
            view.ahead[row] = UpcomingScores(scores, self._idle[row].copy() if view.settled else None)

    def rated_ahead(
        self, kind: TaskClass, view: ClassScores, rows: list[int], first: int, steps: int
    ) -> list[list[float]]:
        """Rate rows for the placements of a class after ``first`` more, ``steps`` of them."""
        which = np.array(rows)
        more = np.arange(first, first + steps)
        idle = (self._idle[which][:, None, :] - more[:, None] * view.wanted).reshape(len(rows) * steps, -1)
        ahead = more.reshape(1, -1).repeat(len(rows), axis=0).ravel()
        rated: list[list[float]] = (
            self._rate(kind, view, which.repeat(steps), idle, ahead=ahead).reshape(len(rows), steps).tolist()
        )
        return rated

    def _view(self, kind: TaskClass) -> ClassScores:
        key = self._key(kind)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = ClassScores(kind.vector(self._table.axes), settled=key is not kind)
        self._look_again(kind, view, changes=not view.settled and bool(kind.constraints.devices))
        return view

    def _key(self, kind: TaskClass) -> Hashable:
        """Return by what its scores are known: classes whose claims have devices already may have them together."""
        return (self._settled(kind) or kind) if kind.constraints.devices else kind

    def _look_again(self, kind: TaskClass, view: ClassScores, *, changes: bool) -> None:
        """Ask how far its plugins look: less far once claims that it shares have devices, and as far as before when that is undone."""
        if view.asked == self._time or (view.asked >= 0 and not changes):
            return
        view.asked = self._time
        reach = max((plugin.reach(kind) for plugin in self._plugins), key=_far, default=Reach.IDLE)
        reach = max(reach, view.nearest, key=_far)
        if reach is not view.reach:
            view.reach, view.seen = reach, -1

    def _refresh(self, kind: TaskClass, view: ClassScores, count: int = 1) -> None:
        """Bring all scores up to date; ``count``: how many tasks are sought."""
        if view.seen == self._time:
            return
        if view.seen < 0 or view.reach is Reach.CLUSTER:
            view.forget(len(self._all))
            self._rate_anew(kind, view, self._all, count)
        else:
            self._catch_up(kind, view, count)
        view.seen = self._time

    def _catch_up(self, kind: TaskClass, view: ClassScores, count: int) -> None:
        """Bring the rows up to date that were touched since the last question."""
        rows = (self._touched > view.seen).nonzero()[0]
        if len(rows) <= _MANY and view.reach is Reach.IDLE:
            few = [row for row in rows.tolist() if not (view.settled and view.advance(row, self._idle[row]))]
            if few:
                self.look_ahead(kind, view, few, _STEPS)
            for row in few:
                view.set_score(row, view.ahead[row].scores[0])
        else:
            view.ahead.clear()
            self._rate_anew(kind, view, rows, count)

    def _rate_anew(self, kind: TaskClass, view: ClassScores, rows: Rows, count: int) -> None:
        """Rate rows as they are; where several tasks are sought that will spread over the nodes, with one task more there, too."""
        paired = self._pairs and self._spreads and count > 1 and view.reach is Reach.IDLE
        if not paired or kind.constraints.devices:
            view.set_scores(rows, self._scores(kind, view, rows, self._idle))
            return
        rows = view.with_unknown(rows)
        idle = self._idle.take(rows, axis=0)
        ahead = np.zeros(2 * len(rows), dtype=np.intp)
        ahead[len(rows) :] = 1
        both = self._rate(
            kind, view, np.concatenate((rows, rows)), np.concatenate((idle, idle - view.wanted)), ahead=ahead
        )
        view.set_scores(rows, both[: len(rows)], both[len(rows) :])

    def _scores(self, kind: TaskClass, view: ClassScores, rows: Rows, free: Matrix) -> Floats:
        idle = free.copy() if rows is self._all else free.take(rows, axis=0)
        return self._rate(kind, view, rows, idle, later=free is not self._idle)

    def _rate(
        self,
        kind: TaskClass,
        view: ClassScores,
        rows: Rows,
        idle: Matrix,
        *,
        later: bool = False,
        ahead: Rows | None = None,
    ) -> Floats:
        nodes = Nodes(self._table, rows, idle, later=later, ahead=ahead)
        # There is a first: each task takes a pod's place.
        (place, least), *others = view.demands
        mask: Mask = idle[:, place] >= least
        for place, least in others:
            mask &= idle[:, place] >= least
        for ask in self._feasible:
            mask &= ask(kind, nodes)
        first, *rest = [rate(kind, nodes) for rate in self._score] or [np.zeros(len(rows))]
        # What a plugin gave may be its own, so that nothing is added to it in place.
        for each in rest:
            first = first + each
        rated: Floats = np.where(mask, first, NEVER)
        return rated


class _PredictedScores:
    """How rows will be rated while one question is answered, worked out in blocks.

    Attributes:
        used: by row, how many tasks it was given.
        after: by row, its score after them.
    """

    def __init__(self, picker: Picker, kind: TaskClass, view: ClassScores, line: list[int]) -> None:
        self._picker, self._kind, self._view = picker, kind, view
        self._line = line
        self._once = view.after_one(line)
        self._rated = 0
        self._width = _WIDTH
        self.used: dict[int, int] = {}
        self.after: dict[int, float] = {}

    def next(self, row: int, given: int) -> float:
        """Return the score of a row after one more task; ``given``: how many tasks all rows got."""
        used = self.used.get(row, 0) + 1
        ahead = self._view.ahead.get(row)
        if ahead is None and used == 1 and (once := self._once.get(row)) is not None:
            self.used[row] = 1
            self.after[row] = once
            return once
        while ahead is None:
            self._rate_next(given)
            ahead = self._view.ahead.get(row)
        if ahead.at + used >= len(ahead.scores):
            first = len(ahead.scores) - ahead.at
            ahead.scores += self._picker.rated_ahead(self._kind, self._view, [row], first, 2 * _STEPS)[0]
        self.used[row] = used
        self.after[row] = after = ahead.scores[ahead.at + used]
        return after

    def _rate_next(self, given: int) -> None:
        """Rate the next rows in line; it is taken from its head on, so the row that is asked for is among them."""
        steps = _STEPS if given > 2 * len(self.used) else _FEW_STEPS
        rows: list[int] = []
        while self._rated < len(self._line) and len(rows) < self._width:
            row = self._line[self._rated]
            self._rated += 1
            if row not in self._view.ahead:
                rows.append(row)
        self._picker.look_ahead(self._kind, self._view, rows, steps + 1)
        self._width = min(2 * self._width, _WIDEST)


def _far(reach: Reach) -> int:
    return reach.value
