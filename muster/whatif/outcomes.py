"""The outcome of decisions in a row, as many as something comes of. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from scheduler.model.obstacle import Stage
from scheduler.model.plan import Plan
from scheduler.model.snapshot import GroupKey, Phase


class RunOutcome(NamedTuple):
    """What came of some decisions in a row.

    Attributes:
        started: the groups that got nodes for their minimum, each with those that had to give way first.
        gave_way: the groups that were admitted, without nodes for too long, and taken back.
        later: those of the groups that started once time had gone by.
    """

    started: Mapping[GroupKey, frozenset[GroupKey]]
    gave_way: frozenset[GroupKey]
    later: frozenset[GroupKey] = frozenset()


def is_stuck(plan: Plan, wanted: Container[GroupKey]) -> bool:
    """Whether groups other than some were admitted and find no nodes: they keep others waiting, for a while."""
    return any(
        plan.groups[key].phase is Phase.INQUEUE and record.stage is not Stage.BIND
        for key, record in plan.records.items()
        if key not in wanted
    )
