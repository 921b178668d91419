"""The read-only view of a cycle that plugins get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.deadlines import Deadlines
from scheduler.engine.states import JobState, QueueState
from scheduler.engine.victims import Victims
from scheduler.model.constraints import Constraints, Port
from scheduler.model.snapshot import Snapshot, TaskClass
from scheduler.model.vectors import Axes, Matrix, Vector
from scheduler.topology.device_claims import DeviceClaims
from scheduler.topology.domains import TopologyCounts
from scheduler.topology.tiers import TopologyTree
from scheduler.topology.volumes import Volumes


class PolicyView(Protocol):
    """The policy of a cycle, as far as plugins go by it."""

    @property
    def arguments(self) -> Mapping[str, BuiltinArguments]:
        """The arguments of each action that runs, by its name."""


class SessionView(Protocol):
    """A cycle, as plugins see it. What it refers to isn't theirs to change; the matrices can't be."""

    @property
    def snapshot(self) -> Snapshot:
        """The cluster at the cycle's beginning."""

    @property
    def policy(self) -> PolicyView:
        """What the cycle follows."""

    @property
    def now(self) -> datetime:
        """The moment that the cycle decides at."""

    @property
    def deadlines(self) -> Deadlines:
        """The rules about time: who waits for a moment asks there whether it has come."""

    @property
    def axes(self) -> Axes:
        """Which resource is which place of a vector."""

    @property
    def jobs(self) -> Sequence[JobState]:
        """All jobs, in the order of the snapshot."""

    @property
    def queues(self) -> Mapping[str, QueueState]:
        """All queues by name, in the order of the names."""

    @property
    def idle(self) -> Matrix:
        """What of each node nobody has, [nodes, resources]."""

    @property
    def future(self) -> Matrix:
        """What will be idle once the pods that are leaving are gone, [nodes, resources]."""

    @property
    def ports(self) -> Mapping[int, Sequence[Port]]:
        """Host ports taken, by row."""

    @property
    def ports_later(self) -> Mapping[int, Sequence[Port]]:
        """The same, once the pods that are leaving are gone."""

    @property
    def topology(self) -> TopologyCounts:
        """How many pods of each kind that terms ask about are where."""

    @property
    def volumes(self) -> Volumes:
        """The volumes of pods, and what they mean for where these may run."""

    @property
    def devices(self) -> DeviceClaims:
        """The resource claims of pods, and what they mean for where these may run."""

    @property
    def victims(self) -> Victims:
        """The tasks that may be evicted, and the job of each task."""

    @property
    def reserved_for(self) -> JobState | None:
        """The job that nodes are kept for."""

    @property
    def network(self) -> TopologyTree:
        """The network between the nodes."""

    def trouble(self, demands: Constraints) -> str:
        """Say why no node can have a pod, as far as its claims on volumes and devices go; empty when one might."""

    def queue_of(self, job: JobState) -> QueueState | None:
        """Return a job's queue, None where it doesn't exist."""

    def vector(self, kind: TaskClass) -> Vector:
        """Return what a task of a class takes of a node: its request, and one pod."""

    def missing(self, job: JobState) -> int:
        """Return how many more tasks a job needs at least before it can be ready."""

    def deserved(self, queue: QueueState) -> Vector | None:
        """Return what a queue deserves, None when no plugin divides the cluster."""
