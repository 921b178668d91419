"""The rows with the highest scores."""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler.model.vectors import Floats, Rows

NEVER: Final = -np.inf
"""The score of a node that takes no task of a class."""
_FEW: Final = 8
"""Up to so many of the highest scores are sought one after the other, which is faster than to divide all."""


def highest(scores: Floats) -> int | None:
    """Return the row of the highest score, the first of equal ones; None where no node is feasible."""
    if not len(scores):
        return None
    row = int(scores.argmax())
    return row if scores[row] > NEVER else None


def highest_rows(scores: Floats, count: int) -> Rows:
    """Return the rows of the ``count`` highest scores, the highest first; of equal ones the first rows."""
    if count <= _FEW:
        return _few_highest_rows(scores, count)
    # Of equal scores a stable order keeps the first rows first, so that those beyond the count can be left off afterwards.
    least = np.partition(scores, -count)[-count] if count < len(scores) else NEVER
    rows = (scores >= least if least > NEVER else scores > NEVER).nonzero()[0]
    highest: Rows = rows[(-scores[rows]).argsort(kind="stable")[:count]]
    return highest


def _few_highest_rows(scores: Floats, count: int) -> Rows:
    left, rows = scores.copy(), list[int]()
    while len(rows) < count and (row := highest(left)) is not None:
        rows.append(row)
        left[row] = NEVER
    return np.array(rows, dtype=np.intp)
