"""The decisions of a cycle, as values that the worker performs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum

import msgspec
from msgspec import Struct, field

from muster.model import grouping
from muster.model.amounts import Resources
from muster.model.objects import Condition, NetworkTier, PodGroupStatus
from scheduler.model.claims import ChosenDevices, HeldClaim
from scheduler.model.holding import NO_HOLDING, Holding
from scheduler.model.kept_places import KeptPlaces
from scheduler.model.obstacle import PluginFault
from scheduler.model.records import Record
from scheduler.model.snapshot import GroupKey, Phase, RequeueState, ReservedNodes, Task, TaskStatus
from scheduler.model.storage import VolumeDecision


class Urgency(Enum):
    """How long the writing of a status may wait since the group's last one, in seconds."""

    NOW = 0.0
    SOON = 1.0
    """Only counters changed."""
    LATER = 30.0
    """Only the text of a condition changed: it names amounts, which change with every pod of anybody."""


# Of binds and evictions there are many at once. They refer to nothing that refers back.
class Bind(msgspec.Struct, frozen=True, gc=False):
    """A pod of a group goes to a node, once what was chosen for its ``volumes`` and ``devices`` is done."""

    task: Task
    node: str
    group: GroupKey
    volumes: tuple[VolumeDecision, ...] = ()
    devices: tuple[ChosenDevices, ...] = ()


class Eviction(msgspec.Struct, frozen=True, gc=False):
    """A pod of a group gives its place up; ``beneficiary`` is the group that gets it.

    ``priority`` and ``title`` are the beneficiary's; the title is what people know it by. ``reclaimed_by`` is the
    beneficiary's queue, where that isn't the pod's own.
    """

    task: Task
    group: GroupKey
    beneficiary: GroupKey
    title: str
    priority: int = 0
    reclaimed_by: str = ""


class GroupStatus(Struct, frozen=True):
    """A status to be written, whole.

    Attributes:
        reserves: the group holds more from then on, if the ledger agrees; so nothing may rest on it before.
        holding, held_before: what it says of what the group holds, and what the one before said.
        owner: kind and name of the workload that the group was generated for, as `grouping.owner_of` has it.
        since: when it came to its phase, in seconds of the epoch; 0 where nobody knows.
        lasted: for how many seconds it was in the phase before, where it is in another now and that is known.
    """

    key: GroupKey
    uid: str
    queue: str
    before: Phase
    phase: Phase
    conditions: tuple[Condition, ...]
    running: int
    succeeded: int
    failed: int
    urgency: Urgency
    reserves: bool = False
    holding: Holding = NO_HOLDING
    held_before: Holding = NO_HOLDING
    owner: str = ""
    since: float = 0.0
    lasted: float | None = None

    @property
    def called(self) -> str:
        """What the people of its namespace know it by: ``Job train``, or ``PodGroup g`` where they named it."""
        return grouping.called(self.key.name, self.owner)

    @property
    def title(self) -> str:
        """What everybody knows it by: ``Job ns/train``, or ``PodGroup ns/g`` where they named it."""
        return grouping.title(self.key.namespace, self.key.name, self.owner)

    @property
    def moves(self) -> bool:
        """Whether the group goes on by it, to another phase or by what it holds."""
        return self.phase is not self.before or self.holding != self.held_before

    def struct(self) -> PodGroupStatus:
        """Return it as the API has it."""
        noted = self.holding.min_resources
        return PodGroupStatus(
            phase=self.phase.value,
            last_phase_transition_time=datetime.fromtimestamp(self.since, UTC) if self.since else None,
            conditions=self.conditions or None,
            running=self.running,
            succeeded=self.succeeded,
            failed=self.failed,
            succeeded_before=self.holding.succeeded,
            min_resources=dict(noted.quantities()) if noted is not None else None,
        )


class QueueShare(Struct, frozen=True):
    """What a queue has and deserves at the end of a cycle. ``deserved`` is None when no plugin divides."""

    allocated: Resources
    deserved: Resources | None
    share: float | None


class Plan(Struct, frozen=True):
    """The decisions of one cycle.

    Attributes:
        evictions: pods to evict, each for a group that will start once they are gone.
        pipelined: places reserved for pods, to be free once others have left.
        reserved_nodes: the nodes that are kept for a group in the next cycle.
        kept_places: places that are kept for pods that don't exist yet, by their group.
        partially_bound: groups of which only a part is bound and the rest has no room, and since when.
        statuses: the groups whose status changes.
        groups: the status of every group, changed or not.
        records: why each group that doesn't run stands where it does.
        tasks: each group's tasks by status, as they would be seen once the plan is performed.
        released: uids of the sleeping Jobs that may create their pods.
        held_claims: claims to be deallocated: those for whom they are reserved found no nodes.
        rolled_back: uids of the groups that were taken back because nothing came of them; with each, for how long.
        unplaced: by group, the pods that wait for nothing but nodes.
        waiting: whether some group waits for something, so that another cycle is worth while.
        lacks_victims: it was looked for pods to evict, and those of satisfied groups weren't known, as `Snapshot.satisfied` may leave it.
        faults: what plugins of users did wrong.
        network_tiers, network_faults: the network between nodes, for admission; what is wrong with HyperNodes, a sentence each.
        next_deadline: the first moment, in seconds of the epoch, at which the same snapshot may get another plan; infinity
            where time alone changes nothing.
    """

    binds: tuple[Bind, ...]
    evictions: tuple[Eviction, ...]
    pipelined: tuple[Bind, ...]
    reserved_nodes: ReservedNodes | None
    partially_bound: Mapping[GroupKey, float]
    statuses: tuple[GroupStatus, ...]
    queues: Mapping[str, QueueShare]
    groups: Mapping[GroupKey, GroupStatus]
    records: Mapping[GroupKey, Record]
    tasks: Mapping[GroupKey, Mapping[TaskStatus, int]]
    released: frozenset[str]
    waiting: bool
    kept_places: Mapping[GroupKey, KeptPlaces] = field(default_factory=dict)
    held_claims: tuple[HeldClaim, ...] = ()
    rolled_back: Mapping[str, RequeueState] = field(default_factory=dict)
    unplaced: Mapping[GroupKey, tuple[Task, ...]] = field(default_factory=dict)
    faults: tuple[PluginFault, ...] = ()
    network_tiers: tuple[NetworkTier, ...] = ()
    network_faults: tuple[str, ...] = ()
    lacks_victims: bool = False
    next_deadline: float = float("inf")

    @property
    def wakes_at(self) -> float:
        """When to decide again for its deadline: a moment is written in microseconds, and timers may be early by one."""
        return self.next_deadline + 0.001

    @property
    def left_out(self) -> bool:
        """Whether it leaves pods without a place, or groups that aren't admitted."""
        return any(TaskStatus.PENDING in counts for counts in self.tasks.values()) or any(
            status.phase is Phase.PENDING for status in self.groups.values()
        )

    def unsettles(self, kept: ReservedNodes | None) -> bool:
        """Whether it does what those that it left out may wait for, and was looked for before it was done.

        A pod may have to be beside one that was bound after it was looked at, say. Nothing else tells of that: that a
        binding arrived is no news. ``kept``: the reservation before.
        """
        # What the ledger has yet to agree to, nothing is built on; its answer comes by itself.
        moved = any(
            each.phase is not each.before and Phase.PENDING in (each.phase, each.before) and not each.reserves
            for each in self.statuses
        )
        return self.left_out and bool(
            self.binds or self.evictions or moved or _nodes(kept) != _nodes(self.reserved_nodes)
        )


def _nodes(reservation: ReservedNodes | None) -> tuple[str, ...]:
    return reservation.nodes if reservation is not None else ()
