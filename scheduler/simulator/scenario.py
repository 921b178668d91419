"""The subject of a simulation, from objects and a trace; made anew for each run, since a run uses it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from muster.model import kinds, names
from muster.model.amounts import NOTHING
from muster.model.kinds import Kind
from muster.model.objects import Job, Object, Pod, PodSpec, Queue
from scheduler.engine.policy import Policy
from scheduler.simulator import state
from scheduler.simulator.admission import SimulatedAdmission
from scheduler.simulator.engine import SimulationSetup
from scheduler.simulator.state import GROUP_KINDS, UnreadableObjectError
from scheduler.simulator.trace import TraceJob
from scheduler.simulator.workloads import UidSource
from scheduler.state import conversion
from scheduler.state.cluster import Cluster
from scheduler.state.handlers import handlers
from scheduler.topology import tier_sizes, tiers

DAWN: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When a simulation begins whose objects don't say what time it is."""

_MADE: Final[tuple[Kind[Any], ...]] = (*GROUP_KINDS, kinds.JOBS, kinds.PODS)
_RULED: Final[tuple[Kind[Any], ...]] = (kinds.RESOURCEQUOTAS, kinds.QUEUES)
_READ: Final[tuple[Kind[Any], ...]] = tuple(dict.fromkeys((kinds.NAMESPACES, kinds.NODES, *_RULED, *state.READ)))
_CLAIMING: Final = frozenset({"persistentVolumeClaim", "ephemeral"})


class Scenario(Struct, frozen=True):
    """Objects by kind, in the order of the files, and what arrives later.

    Attributes:
        others: kinds of objects in the files that a simulation has nothing to do with, and how many of each.
    """

    objects: Mapping[Kind[Any], tuple[Any, ...]]
    schedulers: tuple[str, ...]
    seed: int
    until: float
    trace: tuple[TraceJob, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of the queues."""
        return tuple(queue.name for queue in self.objects[kinds.QUEUES])

    @property
    def priorities(self) -> tuple[str, ...]:
        """The names of the PriorityClasses."""
        return tuple(each.name for each in self.objects[kinds.PRIORITYCLASSES])

    def setting(self, policy: Policy, admission: SimulatedAdmission) -> SimulationSetup:
        """Return what a run starts from.

        Raises:
            StateError: admission refuses a queue or a quota of the files.
        """
        start = _start(self.objects)
        cluster = Cluster(frozenset(self.schedulers))
        cluster.devices.suppose()
        learn = handlers(cluster) | {kinds.QUEUES: cluster.queue}
        for kind in (each for each in _READ if each not in _MADE):
            for one in self.objects[kind]:
                if kind in _RULED and not _exists(one):
                    self._admit(kind, one, admission, start)
                else:
                    admission.show(kind, one)
                if kind in learn:
                    learn[kind](one)
        self._show_network(cluster, policy, admission)
        made = [(kind, one) for kind in _MADE for one in self.objects[kind]]
        return SimulationSetup(
            cluster=cluster,
            policy=policy,
            admission=admission,
            start=start,
            capacity=sum((conversion.allocatable(node) or NOTHING for node in self.objects[kinds.NODES]), NOTHING),
            queues=self.queues,
            uids=UidSource(self.seed, self.schedulers),
            existing=tuple((kind, one) for kind, one in made if _exists(one)),
            created=tuple((kind, one) for kind, one in made if not _exists(one)),
            priorities=self.objects[kinds.PRIORITYCLASSES],
            trace=self.trace,
            until=self.until,
        )

    def _show_network(self, cluster: Cluster, policy: Policy, admission: SimulatedAdmission) -> None:
        """Tell admission of the network, as a leader writes it on queue ``default``."""
        snapshot = cluster.snapshot()
        tree = tiers.read(snapshot.table, snapshot.hypernodes, policy.topology_levels)
        found = tier_sizes.of(tree, snapshot.table, autoscaled=bool(snapshot.autoscaler))
        for queue in self.objects[kinds.QUEUES]:
            if queue.name == names.DEFAULT_QUEUE:
                admission.show(kinds.QUEUES, replace(queue, status=replace(queue.status, network_tiers=found)))

    def _admit(self, kind: Kind[Any], one: Object, admission: SimulatedAdmission, start: datetime) -> None:
        uid = one.metadata.uid or UidSource(self.seed, self.schedulers)(f"{kind} {one.namespace}/{one.name}")
        refusal = admission.admit(kind, replace(one, metadata=replace(one.metadata, uid=uid)), start).refusal
        if refusal:
            raise UnreadableObjectError(f"{kind.name} {one.name}: {refusal}")


def read(raw: Sequence[Mapping[str, Any]], schedulers: tuple[str, ...], *, seed: int, until: float) -> Scenario:
    """Read objects as JSON. The queue ``default`` exists whether it is listed or not.

    Raises:
        StateError: an object isn't what its kind says, is there twice, or asks for what isn't simulated.
    """
    found: dict[Kind[Any], list[Any]] = {kind: [] for kind in _READ}
    others: Counter[str] = Counter()
    seen: set[tuple[Kind[Any], str, str]] = set()
    for each in raw:
        kind = state.kind_of(each, _READ)
        if kind is None:
            state.refuse_maker(each)
            others[str(each.get("kind"))] += 1
            continue
        one = _placed(state.decoded(kind, each), kind)
        place = (kind, one.namespace, one.name)
        if place in seen:
            raise UnreadableObjectError(f"{kind.name} {one.name} is in the files twice; leave one of them")
        seen.add(place)
        _check(one)
        found[kind].append(one)
    if not any(queue.name == names.DEFAULT_QUEUE for queue in found[kinds.QUEUES]):
        found[kinds.QUEUES].insert(0, msgspec.convert({"metadata": {"name": names.DEFAULT_QUEUE}}, Queue))
    if not found[kinds.NODES]:
        raise UnreadableObjectError("the files have no Node: add those of the cluster")
    objects = {kind: tuple(items) for kind, items in found.items()}
    return Scenario(objects, schedulers, seed, until, others=others)


def of_objects(
    objects: Mapping[Kind[Any], Iterable[Any]], schedulers: tuple[str, ...], seed: int, until: float
) -> Scenario:
    """Make a scenario of a cluster's objects. What pods claim of volumes is left out: it isn't simulated over time."""
    found = {kind: tuple(objects.get(kind, ())) for kind in _READ}
    found[kinds.PODS] = tuple(map(without_claims, found[kinds.PODS]))
    if not any(queue.name == names.DEFAULT_QUEUE for queue in found[kinds.QUEUES]):
        default = msgspec.convert({"metadata": {"name": names.DEFAULT_QUEUE}}, Queue)
        found[kinds.QUEUES] = (default, *found[kinds.QUEUES])
    return Scenario(found, schedulers, seed, until)


def without_claims(pod: Pod) -> Pod:
    """Return a pod without what it claims of volumes."""
    spec = pod.spec
    if not any(_CLAIMING & each.keys() for each in spec.volumes or ()):
        return pod
    rest = tuple(each for each in spec.volumes or () if not _CLAIMING & each.keys())
    return replace(pod, spec=replace(spec, volumes=rest))


def _placed(one: Object, kind: Kind[Any]) -> Object:
    if not kind.namespaced or one.namespace:
        return one
    return replace(one, metadata=replace(one.metadata, namespace="default"))


def _check(one: Object) -> None:
    spec: PodSpec | None = one.spec if isinstance(one, Pod) else None
    if isinstance(one, Job):
        spec = one.spec.template.spec
    if spec is not None and not spec.node_name and any(_CLAIMING & each.keys() for each in spec.volumes or ()):
        raise UnreadableObjectError(
            f"{type(one).__name__} {one.name}: volumes of claims aren't simulated over time; leave them out, or decide"
            " once with --cycles"
        )


def _exists(one: Object) -> bool:
    """Whether an object was read from a cluster; one of a manifest is yet to be created."""
    return one.metadata.creation_timestamp is not None


def _start(objects: Mapping[Kind[Any], Iterable[Any]]) -> datetime:
    """Begin when the files were read from a cluster, as far as they tell."""
    created = [one.metadata.creation_timestamp for items in objects.values() for one in items if _exists(one)]
    return max(created, default=DAWN)
