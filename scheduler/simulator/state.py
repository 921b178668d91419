"""One or more cycles on objects as they are given: no controllers, no clock, no server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from muster.model import kinds, names
from muster.model.kinds import Kind
from scheduler.engine.cycle import decide
from scheduler.engine.policy import Policy
from scheduler.model.plan import Bind, Plan, QueueShare
from scheduler.model.snapshot import GroupKey
from scheduler.state.apply import apply_plan
from scheduler.state.cluster import Cluster
from scheduler.state.handlers import WATCHED, handlers

GROUP_KINDS: Final = (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)
# What groups reserve of quotas is admission's business, which cycles on given objects are without.
_KNOWN: Final = tuple(kind for kind in WATCHED if kind is not kinds.RESOURCEQUOTAS)
READ: Final[tuple[Kind[Any], ...]] = (*_KNOWN, kinds.QUEUES, *GROUP_KINDS)
_MAKERS: Final = frozenset(
    [
        *(("apps", name) for name in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")),
        ("", "ReplicationController"),
        ("batch", "CronJob"),
        ("batch.volcano.sh", "Job"),
    ]
)
"""Kinds of which controllers make pods, that no simulation has."""


class UnreadableObjectError(ValueError):
    """An object that can't be read. The text names it."""


def load(objects: Iterable[Mapping[str, Any]], scheduler_names: Iterable[str]) -> Cluster:
    """Make a cluster of objects as JSON; kinds that scheduling doesn't look at are passed over, but for `refuse_maker`.

    A pod without a uid gets its name for one. The queue ``default`` exists whether it is listed or not.

    Raises:
        StateError: an object isn't what its kind says, or its pods would have to be made.
    """
    cluster = Cluster(frozenset(scheduler_names))
    cluster.devices.suppose()
    cluster.queue(msgspec.convert({"metadata": {"name": names.DEFAULT_QUEUE}}, kinds.QUEUES.struct))
    learn = handlers(cluster) | {kinds.QUEUES: cluster.queue}
    for raw in objects:
        kind = kind_of(raw)
        if kind is None:
            refuse_maker(raw)
            continue
        one = decoded(kind, raw)
        if kind in GROUP_KINDS:
            cluster.group(kind.group, one)
        else:
            learn[kind](one)
    return cluster


def kind_of(raw: Mapping[str, Any], among: Iterable[Kind[Any]] = READ) -> Kind[Any] | None:
    """Return the kind of an object, None where it is none of those."""
    return next(
        (kind for kind in among if (raw.get("apiVersion"), raw.get("kind")) == (kind.api_version, kind.name)), None
    )


def refuse_maker(raw: Mapping[str, Any]) -> None:
    """Refuse a workload that is yet to be created and whose pods nobody would make here.

    One that was read from a cluster is no trouble: the pods that it has are objects of their own.

    Raises:
        StateError: it is one.
    """
    group, _, version = str(raw.get("apiVersion")).rpartition("/")
    metadata, kind = raw.get("metadata") or {}, str(raw.get("kind"))
    if (group, kind) in _MAKERS and version and not metadata.get("creationTimestamp"):
        what = kind if kind != "Job" else f"Job of {group}"
        raise UnreadableObjectError(
            f"{what} {metadata.get('name', '(no name)')}: its pods aren't simulated; leave it out, or put a PodGroup with"
            " its pods, or a Job of batch/v1, in its place"
        )


def decoded(kind: Kind[Any], raw: Mapping[str, Any]) -> Any:
    """Read an object; a pod without a uid gets its name for one.

    Raises:
        StateError: it isn't what its kind says.
    """
    metadata = dict(raw.get("metadata") or {})
    if kind is kinds.PODS:
        metadata.setdefault("namespace", "default")
        metadata.setdefault("uid", f"{metadata['namespace']}/{metadata.get('name', '')}")
    try:
        return msgspec.convert({**raw, "metadata": metadata}, kind.struct)
    except msgspec.ValidationError as error:
        raise UnreadableObjectError(f"{kind.name} {metadata.get('name', '(no name)')}: {error}") from error


def decide_once(cluster: Cluster, policy: Policy, now: datetime) -> Plan:
    """Run one cycle on the state."""
    return decide(cluster.snapshot(), policy, now)


class SimulatedCycles(Struct, frozen=True):
    """What the cycles came to. ``volumes``: what is to be done for claims before their pods are bound."""

    cycles: int
    binds: Mapping[str, str]
    plan: Plan
    volumes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """Write it as ``muster simulate -o json`` prints it: a contract for programs."""
        plan = self.plan
        pipelined: dict[str, dict[str, str]] = {}
        for bind in plan.pipelined:
            pipelined.setdefault(str(bind.group), {})[str(bind.task)] = bind.node
        return {
            "cycles": self.cycles,
            "binds": dict(self.binds),
            "volumes": {pod: dict(claims) for pod, claims in self.volumes.items()},
            "evicted": [str(each.task) for each in plan.evictions],
            "pipelined": pipelined,
            "podgroups": {str(key): _group(plan, key) for key in plan.groups},
            "queues": {name: queue_json(share) for name, share in plan.queues.items()},
            "tasks": {
                str(key): {status.value: count for status, count in counts.items()}
                for key, counts in plan.tasks.items()
            },
        }


def run(cluster: Cluster, policy: Policy, now: datetime, cycles: int) -> SimulatedCycles:
    """Decide ``cycles`` times; what one cycle places is taken as bound, and its statuses as written, in the next."""
    binds: dict[str, str] = {}
    volumes: dict[str, dict[str, str]] = {}
    plan = decide_once(cluster, policy, now)
    for number in range(cycles):
        if number:
            plan = decide_once(cluster, policy, now)
        # A worker waits for volumes first: the pod has its place, and isn't bound yet.
        binds |= {str(bind.task): bind.node for bind in plan.binds if not bind.volumes}
        volumes |= {str(bind.task): _volumes(bind) for bind in plan.binds if bind.volumes}
        if number + 1 < cycles:
            apply_plan(cluster, plan)
    return SimulatedCycles(cycles, binds, plan, volumes)


def _volumes(bind: Bind) -> dict[str, str]:
    return {str(each.claim): each.volume or f"to be made for node {each.node}" for each in bind.volumes}


def _group(plan: Plan, key: GroupKey) -> dict[str, Any]:
    status = plan.groups[key]
    wrong = next((each.reason for each in status.conditions if each.status == "True"), "")
    return {
        "phase": status.phase.value,
        "conditions": [msgspec.to_builtins(each) for each in status.conditions],
        "reason": wrong,
    }


def queue_json(share: QueueShare) -> dict[str, Any]:
    """Write what a queue has and deserves."""
    return {
        "deserved": share.deserved.quantities() if share.deserved is not None else None,
        "allocated": share.allocated.quantities(),
        "share": share.share,
    }
