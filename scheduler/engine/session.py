"""A session: one cycle as the actions see it, with the plugins' answers, the jobs' allocations and the reserved nodes."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from functools import cached_property, partial
from hashlib import blake2b
from typing import Final

from muster.model.objects import NetworkTier
from scheduler.engine.allocations import Allocations
from scheduler.engine.deadlines import Deadlines
from scheduler.engine.extensions import Extensions
from scheduler.engine.node_reservation import NodeReservation
from scheduler.engine.picker import Picker
from scheduler.engine.policy import Policy
from scheduler.engine.session_cache import SessionCache
from scheduler.engine.statement import Statement
from scheduler.engine.states import JobState, QueueState
from scheduler.engine.victims import Victims
from scheduler.model.constraints import Constraints
from scheduler.model.kept_places import KeptPlaces
from scheduler.model.snapshot import GroupKey, Phase, Snapshot, TaskClass
from scheduler.model.tasks import RequestVectors
from scheduler.model.vectors import Vector
from scheduler.topology import tier_sizes, tiers
from scheduler.topology.device_claims import DeviceClaims
from scheduler.topology.domains import TopologyCounts
from scheduler.topology.extended_devices import with_devices
from scheduler.topology.tiers import TopologyTree
from scheduler.topology.volumes import Volumes

_TRIES: Final = 2000


class Session:
    """One cycle. Amounts change through `statement` only, phases through `admit` and `requeue`.

    Attributes:
        extensions: what the plugins say.
        allocations: what jobs and queues have, and what is left on the nodes.
        reservation: the nodes that are kept for one job.
        nominated: names of the nodes that are reserved for pods, by uid.
        kept: places that are kept for pods which don't exist yet.
        deadlines: when time alone would change what is decided.
        picker: finds the best nodes.
        tries_left: how often in this cycle a subgroup may still be moved for another.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, now: datetime, cache: SessionCache) -> None:
        snapshot = self.snapshot = with_devices(snapshot, cache.of_nodes)
        self.policy = policy
        self.now = now
        self.deadlines = Deadlines(now.timestamp())
        self.axes = snapshot.axes
        self._vectors = RequestVectors(self.axes)
        self.jobs = [
            JobState(job, self._vectors, cache.amounts(job.task_counts, self._vectors)) for job in snapshot.jobs
        ]
        self.queues = {name: QueueState(info, self.axes) for name, info in sorted(snapshot.queues.items())}
        self.topology = TopologyCounts(snapshot.table, snapshot.peer_counts, cache.of_nodes(snapshot.table))
        self.volumes = Volumes(snapshot.storage, self.topology)
        self.devices = DeviceClaims(snapshot.devices, self.topology)
        self._merge_classes()
        self.allocations = Allocations(
            snapshot, self.jobs, self.queues, self.topology, self.volumes, self.devices, self._vectors
        )
        self.idle, self.future = self.allocations.idle, self.allocations.future
        self.ports, self.ports_later = self.allocations.ports, self.allocations.ports_later
        self.reservation = NodeReservation(self.allocations, snapshot.priorities)
        self.nominated = dict(snapshot.nominated)
        self.kept: dict[GroupKey, KeptPlaces] = {}
        self.extensions = Extensions(policy, self, self.allocations, self.reservation)
        self.tries_left = _TRIES
        self._order_tasks()
        self.picker = Picker(
            snapshot.table,
            self.idle,
            self.future,
            self.extensions.methods("feasible"),
            self.extensions.methods("score"),
            self.devices.settled.number,
        )
        self.allocations.tell(self.picker.touched)

    def _merge_classes(self) -> None:
        merged, asked = self.devices.merged, self.devices.asked
        for job in self.jobs if self.snapshot.devices.known else ():
            if any(asked(task.task_class) for task in job.waiting):
                job.waiting = deque(merged(task, job.info) if asked(task.task_class) else task for task in job.waiting)

    def _order_tasks(self) -> None:
        key = self.extensions.waiting_key()
        if key is None:
            return
        for job in self.jobs:
            if len(job.waiting) > 1:
                job.waiting = deque(sorted(job.waiting, key=key))

    def close(self) -> None:
        """Let go of everything: plugins refer back to their session, and all of it is to be freed now, not when the garbage collector comes."""
        vars(self).clear()

    @property
    def victims(self) -> Victims:
        """The tasks that may be evicted, and the job of each task."""
        return self.allocations.victims

    @property
    def reserved_for(self) -> JobState | None:
        """The job that nodes are kept for."""
        return self.reservation.job

    @cached_property
    def offer(self) -> bytes:
        """A digest of what nodes have idle, and of what queues are given; the same in each process."""
        table = self.snapshot.table
        queues = [
            (info.name, info.weight, info.priority, info.state, info.parent, *map(str, info.amounts))
            for info in self.snapshot.queues.values()
        ]
        digest = blake2b(repr((table.names, table.ready, sorted(table.closed), queues)).encode(), digest_size=16)
        digest.update(self.snapshot.idle.tobytes())
        return digest.digest()

    @cached_property
    def network(self) -> TopologyTree:
        """The network between the nodes: of HyperNodes where there are any, else of the labels that the configuration lists."""
        table, cache, hypernodes = self.snapshot.table, self.topology.cache, self.snapshot.hypernodes
        keys = self.policy.topology_levels
        return cache.get_latest("network", (hypernodes, keys), lambda: tiers.read(table, hypernodes, keys))

    @cached_property
    def network_tiers(self) -> tuple[NetworkTier, ...]:
        """The tiers of the network, as admission needs them."""
        table, cache, network = self.snapshot.table, self.topology.cache, self.network
        autoscaled = bool(self.snapshot.autoscaler)
        sizes = partial(tier_sizes.of, network, autoscaled=autoscaled)
        return cache.get_latest("network tiers", (network, autoscaled), lambda: sizes(table))

    def trouble(self, demands: Constraints) -> str:
        """Say why no node can have a pod, as far as its claims on volumes and devices go; empty when one might."""
        volumes = self.volumes.trouble(demands) if demands.claims else ""
        return volumes or (self.devices.trouble(demands) if demands.devices else "")

    def queue_of(self, job: JobState) -> QueueState | None:
        """Return a job's queue, None where it doesn't exist."""
        return self.queues.get(job.info.queue)

    def vector(self, kind: TaskClass) -> Vector:
        """Return what a task of a class takes of a node: its request, and one pod."""
        return self._vectors.of(kind)

    def missing(self, job: JobState) -> int:
        """Return how many more tasks a job needs at least before it can be ready."""
        return self.extensions.missing(job)

    def deserved(self, queue: QueueState) -> Vector | None:
        """Return what a queue deserves, None when no plugin divides the cluster."""
        return self.extensions.deserved(queue)

    def at_once(self, kind: TaskClass) -> bool:
        """Whether many tasks of a class can be decided on together, as though one by one."""
        return self.extensions.by_amount and self.picker.at_once(kind)

    def statement(self) -> Statement:
        """Begin a statement."""
        return Statement(self.allocations)

    def admit(self, job: JobState) -> None:
        """Make a Pending job Inqueue."""
        self.allocations.move(job, Phase.INQUEUE)
        job.obstacle = None
        self.extensions.enqueued(job)

    def requeue(self, job: JobState) -> None:
        """Make an Inqueue job Pending again, to be admitted anew or not."""
        self.allocations.move(job, Phase.PENDING)

    def retry(self, job: JobState) -> None:
        """Put the tasks that found no place back in line, for another action to try."""
        if job.unplaced:
            job.waiting = deque(sorted([*job.waiting, *job.unplaced], key=self.extensions.task_key))
            job.unplaced = []
