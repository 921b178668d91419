"""Finds the best node for a task of a class, asking plugins again only about nodes that changed.

For each class there is one array of scores over all nodes, -inf where a task of it can't go. A placement touches one
node; the next question about a class first refreshes the rows touched since its last one, in one vectorised call, and
takes the maximum (ties: the first by name). Where the touches were the class's own, the score was looked up ahead:
a row is rated for the next few placements of its class at once. docs/decisions/0062 has the alternatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler import vectors
from scheduler.plugin import Nodes, Plugin
from scheduler.snapshot import TaskClass
from scheduler.vectors import Floats, Mask, Matrix, Rows

if TYPE_CHECKING:
    from scheduler.session import Session

_NEVER: Final = -np.inf
_AHEAD: Final = 16
"""How many placements of its own a row is rated ahead."""
_MANY: Final = 8
"""More touched rows than these are rated for their present state only: others will touch them again, too."""


class _Ahead:
    """The scores of one row for the next placements of one class, and how many of them were made."""

    __slots__ = ("at", "scores")

    def __init__(self, scores: list[float]) -> None:
        self.scores = scores
        self.at = 0


class _View:
    """What is known of one class: its request, the scores, and how much of the log they reflect."""

    def __init__(self, wanted: Matrix, demand: Matrix, nodes: int) -> None:
        self.wanted = wanted
        self.demand = demand
        self.scores: Floats = np.full(nodes, _NEVER)
        # Amounts that many times over must not leave int64.
        self.countable = bool((wanted < 2**62 // _AHEAD).all())
        self.ahead: dict[int, _Ahead] = {}
        self.seen = -1


class Picker:
    """The nodes of a session, as classes of tasks see them."""

    def __init__(
        self,
        session: Session,
        feasible: list[Callable[[TaskClass, Nodes], Mask]],
        score: list[Callable[[TaskClass, Nodes], Floats]],
    ) -> None:
        self._session = session
        self._table = session.snapshot.table
        self._feasible, self._score = feasible, score
        self._local = all(_is_local(ask) for ask in (*feasible, *score))
        self._views: dict[TaskClass, _View] = {}
        # The log: which node, by a task of which class, placed (1) or taken back (-1). As columns, to be sliced.
        self._rows: list[int] = []
        self._by: list[tuple[TaskClass | None, int]] = []
        self._all: Rows = np.arange(len(self._table.nodes))

    def touched(self, row: int, kind: TaskClass | None, sign: int) -> None:
        """Note that a task of a class was placed on a node (1), or taken back (-1); None for any other change."""
        self._rows.append(row)
        self._by.append((kind, sign))

    def row_of(self, kind: TaskClass) -> Matrix:
        """What a task of this class takes, as a row."""
        return self._view(kind).wanted

    def best(self, kind: TaskClass) -> int | None:
        """Give the best node that has room for a task now, or None."""
        view = self._view(kind)
        self._refresh(kind, view)
        return _highest(view.scores)

    def best_later(self, kind: TaskClass) -> int | None:
        """Give the best node that will have room once the pods that are leaving it are gone, or None."""
        view = self._view(kind)
        return _highest(self._scores(kind, view, self._all, self._session.future))

    def fits(self, kind: TaskClass, row: int, free: Matrix) -> bool:
        """Whether a task fits on one node with ``free`` of each node, [nodes, resources]."""
        return bool(self._scores(kind, self._view(kind), np.array([row]), free)[0] > _NEVER)

    def ranked(self, kind: TaskClass, free: Matrix) -> list[int]:
        """Give the nodes that have room for a task with ``free`` of each, [nodes, resources]; the best first."""
        scores = self._scores(kind, self._view(kind), self._all, free)
        order = np.argsort(-scores, kind="stable")
        return [int(row) for row in order[scores[order] > _NEVER]]

    def open_to(self, kind: TaskClass) -> Mask:
        """Tell which nodes accept the class, however full they are."""
        mask = np.ones(len(self._all), dtype=np.bool_)
        nodes = Nodes(self._table, self._all, self._session.idle)
        for ask in self._feasible:
            mask &= ask(kind, nodes)
        return mask

    def room(self, kind: TaskClass) -> int:
        """Give how many tasks of the class fit in what is idle: no placement of them can do better."""
        view = self._view(kind)
        self._refresh(kind, view)
        columns = np.flatnonzero(view.wanted)
        idle = self._session.idle[view.scores > _NEVER][:, columns]
        return sum((idle // view.wanted[columns]).min(axis=1).tolist()) if len(idle) else 0

    def _view(self, kind: TaskClass) -> _View:
        view = self._views.get(kind)
        if view is None:
            vector = kind.vector(self._session.axes)
            view = _View(vectors.wanted_row(vector), vectors.demand_row(vector), len(self._all))
            self._views[kind] = view
        return view

    def _refresh(self, kind: TaskClass, view: _View) -> None:
        if view.seen == len(self._rows):
            return
        if view.seen < 0 or not self._local:
            view.scores[:] = self._scores(kind, view, self._all, self._session.idle)
        else:
            self._catch_up(kind, view)
        view.seen = len(self._rows)

    def _catch_up(self, kind: TaskClass, view: _View) -> None:
        """Bring the rows up to date that were touched since the last question."""
        rows = sorted(self._followed(kind, view) if view.ahead else set(self._rows[view.seen :]))
        if 0 < len(rows) <= _MANY and view.countable and not kind.constraints.ports:
            self._look_ahead(kind, view, rows)
        elif rows:
            view.scores[rows] = self._scores(kind, view, np.array(rows), self._session.idle)

    def _followed(self, kind: TaskClass, view: _View) -> set[int]:
        """Follow what was rated ahead, and give the rows for which that doesn't reach or others came between."""
        stale: set[int] = set()
        for row, (by, sign) in zip(self._rows[view.seen :], self._by[view.seen :], strict=True):
            ahead = view.ahead.get(row) if by is kind else None
            if ahead is not None and 0 <= ahead.at + sign < len(ahead.scores):
                ahead.at += sign
                view.scores[row] = ahead.scores[ahead.at]
            else:
                view.ahead.pop(row, None)
                stale.add(row)
        return stale

    def _look_ahead(self, kind: TaskClass, view: _View, rows: list[int]) -> None:
        steps = np.arange(_AHEAD).reshape(1, _AHEAD, 1)
        idle = self._session.idle[rows][:, None, :] - steps * view.wanted
        repeated = np.repeat(np.array(rows), _AHEAD)
        scores = self._rate(kind, view, repeated, idle.reshape(len(repeated), -1)).reshape(len(rows), _AHEAD).tolist()
        for row, ahead in zip(rows, scores, strict=True):
            view.ahead[row] = _Ahead(ahead)
            view.scores[row] = ahead[0]

    def _scores(self, kind: TaskClass, view: _View, rows: Rows, free: Matrix) -> Floats:
        return self._rate(kind, view, rows, free[rows])

    def _rate(self, kind: TaskClass, view: _View, rows: Rows, idle: Matrix) -> Floats:
        nodes = Nodes(self._table, rows, idle)
        mask: Mask = np.all(idle >= view.demand, axis=1)
        for ask in self._feasible:
            mask &= ask(kind, nodes)
        scores = np.zeros(len(rows))
        for rate in self._score:
            scores += rate(kind, nodes)
        scores[~mask] = _NEVER
        return scores


def _highest(scores: Floats) -> int | None:
    if not len(scores):
        return None
    row = int(scores.argmax())
    return row if scores[row] > _NEVER else None


def _is_local(ask: Callable[..., object]) -> bool:
    plugin = getattr(ask, "__self__", None)
    return not isinstance(plugin, Plugin) or plugin.node_local
