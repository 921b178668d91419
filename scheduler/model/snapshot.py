"""The input of one cycle: an immutable view of nodes, groups and queues.

Nodes are rows of int64 matrices (nodes x resources, steps of `scheduler.model.vectors.Axes`), in the order of their names.
A group and its pods are a `JobInfo`; pods that a node can't tell apart share a `TaskClass`. Everything a snapshot refers
to is shared with the next one unless it changed: `scheduler.state.cluster` builds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from muster.ledger.table import Table
from muster.model import grouping
from muster.model.amounts import Resources
from muster.model.objects import Condition, PodGroupStatus
from scheduler.model.affinity import PeerCounts, PodSet
from scheduler.model.claims import NO_DEVICES, Devices
from scheduler.model.failing import Failing
from scheduler.model.holding import NO_HOLDING, Holding
from scheduler.model.kept_places import EvictionPause, KeptPlaces
from scheduler.model.network_topology import NO_HYPERNODES, HyperNodes, SubGroups, TopologyConstraint
from scheduler.model.node_table import NodeTable
from scheduler.model.pod_claims import SharedClaims
from scheduler.model.storage import Storage
from scheduler.model.tasks import (
    NO_TASKS,
    OCCUPYING,
    READY,
    ExpectedPods,
    JobAmounts,
    RequestVectors,
    Task,
    TaskClass,
    TaskCounts,
    TaskStatus,
)
from scheduler.model.vectors import Axes, Matrix, Vector, added

__all__ = [
    "OCCUPYING",
    "READY",
    "DisruptionBudget",
    "ExpectedPods",
    "GroupKey",
    "JobInfo",
    "PeerCounts",
    "Phase",
    "QueueInfo",
    "RequeueState",
    "ReservedNodes",
    "SatisfiedJobs",
    "Snapshot",
    "Task",
    "TaskClass",
    "TaskStatus",
    "seconds",
]


class GroupKey(NamedTuple):
    """Which PodGroup. The API group is part of its name: the kind exists in several."""

    group: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Write it as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Phase(Enum):
    """The phases of a PodGroup, as users see them."""

    PENDING = "Pending"
    INQUEUE = "Inqueue"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"

    # As of `TaskStatus`.
    __hash__ = object.__hash__


class ReservedNodes(NamedTuple):
    """The nodes that are kept for one group.

    Attributes:
        nodes: their names.
        since: when they were chosen, in seconds of the epoch.
        choices: how often nodes were chosen for it before.
        occupied: names of nodes that were kept for it, and on which pods of others did not end in time.
    """

    key: GroupKey
    nodes: tuple[str, ...]
    since: float
    choices: int = 0
    occupied: tuple[str, ...] = ()


class Disruption(Struct, frozen=True):
    """What a group says of evictions: ``whole``: all of it goes or nothing; ``never_preempts``: nothing goes for it."""

    whole: bool = False
    never_preempts: bool = False


NO_DISRUPTION: Final = Disruption()


class JobInfo(Struct, frozen=True, eq=False, dict=True):
    """A PodGroup with its pods.

    Attributes:
        min_resources: the group's own minResources; None when it has none.
        tasks: its pods; none where they are aggregated, so that only ``task_counts``, the pods counted, knows of them.
        expected_pods: pods of its Jobs that don't exist yet.
        owner: kind and name of the workload that it was generated for; empty for one that people wrote.
        inadmissible: why it must not be admitted, as a sentence; empty when nothing is in the way.
        unreserved: why it holds nothing of its namespace's quota, so that its pods get no node; empty when it may run.
        sla: after how many seconds of waiting it should go first, by its own word; None where it says nothing.
        scope_facts: what decides in which scopes of quotas it counts (`muster.model.scopes`); empty where that isn't known.
        reserves_late: it reserves of its namespace's quota when it becomes Inqueue, and not when it is created.
        holding, since: what its status says of what it holds, and when it came to its phase, in seconds of the epoch or 0.
        topology: how close its pods have to be; None where it asks for nothing.
        disruption: what it says of evictions.
        subgroups: what it is divided into, by policy; `Task.subgroup` refers to them by place.
        next_holding: what its status has to say before it may go on; None where it says so, or is Completed for good.
        failing: what is wrong with its pods beside their placement; None where nothing is.
        finished: nothing of it runs or will run again.
        written: the status has a phase in the cluster; where it has none, Pending is meant and has yet to be written.
    """

    key: GroupKey
    uid: str
    queue: str
    min_member: int
    min_task_member: Mapping[str, int]
    priority_class: str
    min_resources: Resources | None
    phase: Phase
    conditions: tuple[Condition, ...]
    counters: tuple[int, int, int]
    created: float
    owner: str = ""
    tasks: tuple[Task, ...] = ()
    task_counts: TaskCounts = NO_TASKS
    expected_pods: tuple[ExpectedPods, ...] = ()
    inadmissible: str = ""
    unreserved: str = ""
    reserves_late: bool = False
    scope_facts: str = ""
    holding: Holding = NO_HOLDING
    next_holding: Holding | None = None
    sla: float | None = None
    failing: Failing | None = None
    finished: bool = False
    written: bool = True
    since: float = 0.0
    topology: TopologyConstraint | None = None
    subgroups: tuple[SubGroups, ...] = ()
    disruption: Disruption = NO_DISRUPTION
    shared_claims: SharedClaims | None = None

    @property
    def network_bound(self) -> bool:
        """Whether it matters which of its pods are near each other."""
        return self.topology is not None or bool(self.subgroups)

    @property
    def parts_bound(self) -> bool:
        """Whether the pods of some subgroup have to be together."""
        return any(each.topology is not None and each.topology.required for each in self.subgroups)

    @property
    def counts(self) -> Mapping[TaskStatus, int]:
        """How many tasks there are in each status that occurs."""
        return self.task_counts.counts

    @property
    def pending(self) -> tuple[Task, ...]:
        """The tasks that wait for a node, the older first."""
        return self.task_counts.pending

    def amounts(self, axes: Axes) -> JobAmounts:
        """What its tasks have and want, added up now; within a cycle `JobState` has it."""
        return RequestVectors(axes).amounts(self.task_counts)

    def restated(self, phase: Phase, status: PodGroupStatus) -> JobInfo:
        """Return the same one where it stands otherwise now and holds the same; its tasks needn't be counted again."""
        counters, conditions = (status.running, status.succeeded, status.failed), status.conditions or ()
        written, since = bool(status.phase), seconds(status.last_phase_transition_time)
        return replace(self, phase=phase, conditions=conditions, counters=counters, written=written, since=since)

    @property
    def title(self) -> str:
        """What people know it by: ``Job ns/train``, or ``PodGroup ns/name`` where they named it."""
        return grouping.title(self.key.namespace, self.key.name, self.owner)

    @property
    def suspended_by_us(self) -> bool:
        """Whether nothing of it exists, because we suspend all of it."""
        return not self.tasks and bool(self.expected_pods) and all(each.suspended for each in self.expected_pods)

    @property
    def reservation(self) -> Resources:
        """What it holds of its namespace's quota once it reserved, as far as nodes have it."""
        return self.holding.of(self.min_resources, self.min_member)

    @property
    def restarts(self) -> bool:
        """Whether it is Completed, and named by a live pod or an unfinished Job."""
        return self.phase is Phase.COMPLETED and self.next_holding is not None

    @property
    def about_to_reserve(self) -> bool:
        """Whether it holds nothing of its quota until a phase past Pending is stored, so that none of it may start."""
        return self.reserves_late and self.phase is Phase.PENDING

    @cached_property
    def order(self) -> tuple[float, str, GroupKey]:
        """The last word where plugins see no difference: the older first."""
        return (self.created, self.uid, self.key)


UNKNOWN: Final = -1
"""No picture of what is idle: a digest is never that."""


class RequeueState(Struct, frozen=True):
    """What a worker remembers of a group that was admitted; times are seconds of the epoch.

    Attributes:
        since: when something last happened to it.
        pods: how many pods it had then.
        tries: how often it was taken back since something of it ran.
        until: when it may be admitted again, once taken back.
        idle: a digest of what was idle when it was taken back for lack of room; zero where that doesn't matter,
            ``UNKNOWN`` where another leader saw it.
    """

    since: float
    tries: int = 0
    until: float = 0.0
    idle: int = 0
    pods: int = 0


class QueueInfo(Struct, frozen=True, eq=False, dict=True):
    """A queue as the cycle sees it. ``capability`` etc. are None when the queue says nothing."""

    name: str
    weight: int = 1
    priority: int = 0
    state: str = "Open"
    capability: Resources | None = None
    deserved: Resources | None = None
    guarantee: Resources | None = None
    reclaimable: bool = True
    parent: str = ""
    max_groups: int = 0
    created: float = 0.0

    @property
    def amounts(self) -> tuple[Resources | None, Resources | None, Resources | None]:
        """Its capability, what it deserves, and its guarantee."""
        return self.capability, self.deserved, self.guarantee


class DisruptionBudget(Struct, frozen=True):
    """A PodDisruptionBudget: its pods, and how many of them may go now."""

    name: str
    peers: PodSet
    allowed: int


class SatisfiedJobs(Struct, frozen=True, eq=False):
    """Groups of one queue that no cycle does anything about. ``amounts``: what they have on nodes, by ``axes``."""

    jobs: tuple[JobInfo, ...]
    axes: Axes
    amounts: Vector

    @classmethod
    def of(cls, jobs: Iterable[JobInfo], axes: Axes) -> SatisfiedJobs:
        """Add up what jobs have."""
        members, vectors = tuple(jobs), RequestVectors(axes)
        return cls(members, axes, added([vectors.amounts(job.task_counts).allocated for job in members], axes))

    def allocated(self, axes: Axes) -> Vector:
        """What they have, by other axes, too."""
        return self.amounts if axes is self.axes else SatisfiedJobs.of(self.jobs, axes).amounts


class Snapshot(Struct, frozen=True, eq=False):
    """The cluster at one moment.

    Attributes:
        satisfied: by queue, groups that aren't among the jobs but use what they use (`scheduler.engine.satisfied`).
        aggregated: pods of groups that are no tasks but only counted: by class, how many each node has.
        idle: allocatable minus the requests of all pods on each node, ours or not; negative where overcommitted.
        releasing: what pods that are being deleted will give back.
        ports: host ports taken, by node name, as (protocol, address, port), once for each pod that has one.
        ports_later: the same, once the pods that are leaving are gone.
        ledgers: what is reserved, by namespace; of those with Pending groups that reserve late.
        unreadable: queues that take no part because of what is wrong with them, and what that is.
        nominated: names of the nodes that former cycles reserved for pods, by uid.
        reserved_nodes: the nodes that a former cycle set aside for a group.
        kept_places: places that others left, or are leaving, for groups that were admitted and whose pods are yet to come.
        eviction_pauses: by uid, the groups for which nobody is evicted for a while.
        partially_bound: groups of which former cycles saw only a part bound and no room for the rest, and since when.
        images: by container image, its size in bytes on each node that has it.
        requeues: by uid, how long groups that were admitted have waited for something to come of it.
        hypernodes: what describes the network between nodes.
        autoscaler: the name of a program that makes nodes for pods that lack them; empty where none was seen.
        revision: a text that differs between any two states of the cluster that a worker saw.
    """

    table: NodeTable
    idle: Matrix
    releasing: Matrix
    jobs: tuple[JobInfo, ...]
    queues: Mapping[str, QueueInfo]
    priorities: Mapping[str, int]
    ports: Mapping[str, tuple[tuple[str, str, int], ...]]
    ports_later: Mapping[str, tuple[tuple[str, str, int], ...]]
    revision: str = ""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    nominated: Mapping[str, str] = field(default_factory=dict)
    reserved_nodes: ReservedNodes | None = None
    kept_places: Mapping[GroupKey, KeptPlaces] = field(default_factory=dict)
    eviction_pauses: Mapping[str, EvictionPause] = field(default_factory=dict)
    partially_bound: Mapping[GroupKey, float] = field(default_factory=dict)
    requeues: Mapping[str, RequeueState] = field(default_factory=dict)
    ledgers: Mapping[str, Table] = field(default_factory=dict)
    peer_counts: PeerCounts = field(default_factory=PeerCounts)
    images: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    storage: Storage = field(default_factory=Storage)
    devices: Devices = NO_DEVICES
    budgets: tuple[DisruptionBudget, ...] = ()
    satisfied: Mapping[str, SatisfiedJobs] = field(default_factory=dict)
    aggregated: Mapping[TaskClass, Mapping[str, int]] = field(default_factory=dict)
    hypernodes: HyperNodes = NO_HYPERNODES
    autoscaler: str = ""

    @property
    def axes(self) -> Axes:
        """The resource names."""
        return self.table.axes


def seconds(moment: datetime | None) -> float:
    """Write a moment as a number that sorts; zero for none."""
    return moment.timestamp() if moment is not None else 0.0
