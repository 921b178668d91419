"""Finds the best node for a task of a class, asking plugins again only about nodes that changed.

For each class there is one array of scores over all nodes, -inf where a task of it can't go. A placement touches one
node; the next question about a class first refreshes the rows touched since its last one, in one vectorised call, and
takes the maximum (ties: the first by name). A heap per class was the alternative: see docs/decisions/0062.
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


class _View:
    """What is known of one class: the request as a row, the scores, and how much of the log they reflect."""

    def __init__(self, wanted: Matrix, nodes: int) -> None:
        self.wanted = wanted
        self.columns = np.flatnonzero(wanted)
        self.scores: Floats = np.full(nodes, _NEVER)
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
        self._feasible, self._score = feasible, score
        self._local = all(_is_local(ask) for ask in (*feasible, *score))
        self._views: dict[TaskClass, _View] = {}
        self._log: list[int] = []
        self._all: Rows = np.arange(len(session.snapshot.table.nodes))

    def touched(self, row: int) -> None:
        """Note that a node changed."""
        self._log.append(row)

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

    def open_to(self, kind: TaskClass) -> Mask:
        """Tell which nodes accept the class, however full they are."""
        mask = np.ones(len(self._all), dtype=np.bool_)
        nodes = Nodes(self._session.snapshot.table, self._all, self._session.idle)
        for ask in self._feasible:
            mask &= ask(kind, nodes)
        return mask

    def room(self, kind: TaskClass) -> int:
        """Give how many tasks of the class fit in what is idle: no placement of them can do better."""
        view = self._view(kind)
        self._refresh(kind, view)
        idle = self._session.idle[view.scores > _NEVER][:, view.columns]
        return sum((idle // view.wanted[view.columns]).min(axis=1).tolist()) if len(idle) else 0

    def _view(self, kind: TaskClass) -> _View:
        view = self._views.get(kind)
        if view is None:
            wanted = vectors.wanted_row(kind.vector(self._session.axes))
            view = self._views[kind] = _View(wanted, len(self._all))
        return view

    def _refresh(self, kind: TaskClass, view: _View) -> None:
        if view.seen == len(self._log):
            return
        if view.seen < 0 or not self._local:
            rows = self._all
        else:
            rows = np.array(sorted(set(self._log[view.seen :])), dtype=np.intp)
        view.scores[rows] = self._scores(kind, view, rows, self._session.idle)
        view.seen = len(self._log)

    def _scores(self, kind: TaskClass, view: _View, rows: Rows, free: Matrix) -> Floats:
        nodes = Nodes(self._session.snapshot.table, rows, free[rows])
        mask: Mask = np.all(nodes.idle[:, view.columns] >= view.wanted[view.columns], axis=1)
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
