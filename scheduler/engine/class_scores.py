"""Scores of the nodes for one class of tasks, as far as they are known."""

from __future__ import annotations

from math import isnan
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from scheduler.engine.plugin import Reach
from scheduler.model import vectors
from scheduler.model.vectors import Floats, Mask, Matrix, Rows, Vector

_NONE: Final[Floats] = np.zeros(0)
_MOST_STEPS: Final = 2**20
"""Amounts that many times over must not leave int64, for a row to be rated ahead."""


class UpcomingScores:
    """The scores of one row for the placements of one class to come, and how many of them were made.

    ``idle``: what was idle before; None where nobody asks whether the class is still what was placed there.
    """

    __slots__ = ("at", "idle", "scores")

    def __init__(self, scores: list[float], idle: Matrix | None) -> None:
        self.scores, self.idle = scores, idle
        self.at = 0


class Scope(NamedTuple):
    """Nodes that alone are looked at for a while, and what is added to the score of each so that some come before others.

    ``tier``: the number of that of the domain which they are, where domains of one tier are compared.
    """

    mask: Mask
    bonus: Floats
    tier: int | None = None


class PickedRows(Struct):
    """Rows that were picked for so many tasks at a time; ``after``: their scores once they are taken."""

    time: int
    scope: Scope | None
    asked: int
    rows: list[int]
    after: dict[int, float]
    steps: dict[int, int]

    def serves(self, time: int, scope: Scope | None, count: int) -> bool:
        """Whether it answers a question for ``count`` tasks as well."""
        return (
            self.time == time
            and self.scope is scope
            and (self.asked == count or len(self.rows) < min(self.asked, count))
        )


class ClassScores:
    """What is known of one class: its request, the scores, and of which time they are."""

    def __init__(self, vector: Vector, *, settled: bool) -> None:
        self.settled = settled
        self.wanted = vectors.wanted_row(vector)
        self.demands = vectors.demands(vector)
        self.scores: Floats = _NONE
        self._after: Floats | None = None
        self.reach = Reach.CLUSTER
        self.nearest = Reach.NODE if max(vector) >= 2**62 // _MOST_STEPS else Reach.IDLE
        self.asked = -1
        self.ahead: dict[int, UpcomingScores] = {}
        self.answer: PickedRows | None = None
        self.seen = -1

    def forget(self, rows: int) -> None:
        """Forget the scores of all ``rows``; each is set next."""
        self.ahead.clear()
        self.scores, self._after = np.empty(rows), None

    def set_score(self, row: int, score: float) -> None:
        """Remember the score of one row."""
        self.scores[row] = score
        if self._after is not None:
            self._after[row] = np.nan

    def set_scores(self, rows: Rows, scores: Floats, after: Floats | None = None) -> None:
        """Remember the scores of rows; ``after``: what they are with one more task of the class, if that was asked."""
        self.scores[rows] = scores
        if after is not None and self._after is None:
            self._after = np.full(len(self.scores), np.nan)
        if self._after is not None:
            self._after[rows] = after if after is not None else np.nan

    def with_unknown(self, rows: Rows) -> Rows:
        """Add to some rows those whose score with one more task isn't known."""
        if self._after is None:
            return rows
        self._after[rows] = np.nan
        return np.isnan(self._after).nonzero()[0]

    def after_one(self, rows: list[int]) -> dict[int, float]:
        """Return the scores of rows with one more task of the class, as far as they are known."""
        if self._after is None:
            return {}
        return {row: score for row, score in zip(rows, self._after[rows].tolist(), strict=True) if not isnan(score)}

    def advance(self, row: int, idle: Matrix) -> bool:
        """Take the next score of a row where what was taken there is what a task of the class takes, such as one whose claims had no devices.

        ``idle``: what is idle there now.
        """
        ahead = self.ahead.get(row)
        if ahead is None or ahead.idle is None or ahead.at + 1 >= len(ahead.scores):
            return False
        if not np.array_equal(idle, ahead.idle - (ahead.at + 1) * self.wanted):
            return False
        ahead.at += 1
        self.set_score(row, ahead.scores[ahead.at])
        return True
