"""The outcome of decisions in a row, as many as something comes of, and of those that went before. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from muster.whatif.cluster_view import PODGROUPS, ClusterObjects
from scheduler.engine.requeue import recorded_pause
from scheduler.model.kept_places import EvictionPause
from scheduler.model.obstacle import Stage
from scheduler.model.plan import Eviction, Plan
from scheduler.model.records import Record
from scheduler.model.snapshot import GroupKey, Phase


class RunOutcome(NamedTuple):
    """What came of some decisions in a row.

    Attributes:
        started: the groups that got nodes for their minimum, each with those that had to give way first.
        gave_way: the groups that were admitted, without nodes for too long, and taken back.
        later: those of the groups that started once time had gone by.
        evictions: who was evicted for them.
        reasons: why others of the groups found no nodes, or came up against a limit, when that was last so.
        last: the last of the decisions.
    """

    started: Mapping[GroupKey, frozenset[GroupKey]]
    gave_way: frozenset[GroupKey]
    later: frozenset[GroupKey] = frozenset()
    evictions: tuple[Eviction, ...] = ()
    reasons: Mapping[GroupKey, Record] = MappingProxyType({})
    last: Plan | None = None

    def evicted(self, key: GroupKey) -> tuple[Eviction, ...]:
        """Return who was evicted for a group."""
        return tuple(each for each in self.evictions if each.beneficiary == key)


class RunProgress:
    """What has come of the decisions so far, for some groups."""

    def __init__(self, wanted: Collection[GroupKey]) -> None:
        self._wanted = frozenset(wanted)
        self._started: dict[GroupKey, frozenset[GroupKey]] = {}
        self._gave_way = frozenset[GroupKey]()
        self._later: set[GroupKey] = set()
        self._evictions: list[Eviction] = []
        self._reasons: dict[GroupKey, Record] = {}
        self._last: Plan | None = None

    def observe(self, plan: Plan, admitted: Iterable[GroupKey], *, waited: bool) -> None:
        """Take over a decision; ``admitted`` count as started by it, ``waited``: time went by before it."""
        before = set(self._started)
        self._last = plan
        self._gave_way |= {key for key, status in plan.groups.items() if status.uid in plan.rolled_back}
        for key in {*(bind.group for bind in plan.binds), *admitted} & self._wanted - before:
            self._started[key] = self._gave_way - {key}
        self._later |= self._started.keys() - before if waited else set()
        found = ((key, plan.records.get(key)) for key in self._wanted - self._started.keys())
        self._reasons |= {key: each for key, each in found if each is not None and each.tells_what_lacks}
        self._evictions += [each for each in plan.evictions if each.beneficiary in self._wanted]

    @property
    def done(self) -> bool:
        """Whether all of them have started."""
        return len(self._started) == len(self._wanted)

    def outcome(self) -> RunOutcome:
        """Return it as a value."""
        return RunOutcome(
            self._started, self._gave_way, frozenset(self._later), tuple(self._evictions), self._reasons, self._last
        )


def is_stuck(plan: Plan, wanted: Container[GroupKey]) -> bool:
    """Whether groups other than some were admitted and find no nodes: they keep others waiting, for a while."""
    return any(
        plan.groups[key].phase is Phase.INQUEUE and record.stage is not Stage.BIND
        for key, record in plan.records.items()
        if key not in wanted
    )


def pauses(state: ClusterObjects) -> Mapping[str, EvictionPause]:
    """Return the pauses of evictions that groups' conditions tell of, by uid: only the leader knows of them else."""
    found = {
        group.metadata.uid: recorded_pause(group.status.conditions, state.taken)
        for kind in PODGROUPS
        for group in state.of(kind)
        if group.status.conditions
    }
    return {uid: pause for uid, pause in found.items() if pause is not None}
