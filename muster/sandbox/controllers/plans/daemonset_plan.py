"""The next steps of a DaemonSet, from the set, its pods, the nodes and the time. Pure.

A pod for each node that takes it. Nothing binds it here: it asks for its node by name, in its node affinity, and waits
for a scheduler as every pod does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.int_or_percent import pods_of
from muster.sandbox.controllers.plans.node_filters import NAME_FIELD, fits, named_node, tolerated
from muster.sandbox.controllers.plans.templates import HASH
from muster.sandbox.core.store import Object
from muster.sandbox.strategies.workloads import TEMPLATE_GENERATION

GENERATION: Final = "pod-template-generation"

_KEPT_OFF: Final = ("NoSchedule", "NoExecute")
_TOLERATIONS: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_OF_HOST_NETWORK: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")


class Plan(Struct, frozen=True):
    """Nodes to make pods for; pods to delete, of those ``ended`` because they are over; when to look again."""

    create: Sequence[str] = ()
    delete: Sequence[Object] = ()
    ended: Sequence[tuple[str, Object]] = ()
    wake: float | None = None


class View(Struct, frozen=True, dict=True):
    """A DaemonSet as it stands: its pods by node, the nodes, and the hash of its template."""

    owner: Object
    pods: Mapping[str, Sequence[Object]]
    nodes: Sequence[Object]
    hash: str
    now: datetime

    @cached_property
    def template(self) -> Object:
        """Its template, with the tolerations that its pods will have."""
        return _with_tolerations(self.owner["spec"]["template"])

    @cached_property
    def wanted(self) -> Sequence[str]:
        """The nodes that are to have a pod."""
        return [node["metadata"]["name"] for node in self.nodes if self._takes(node, _KEPT_OFF)]

    @cached_property
    def kept(self) -> frozenset[str]:
        """The nodes whose pod may stay: a taint that came later only keeps off new ones, unless it evicts."""
        return frozenset(node["metadata"]["name"] for node in self.nodes if self._takes(node, _KEPT_OFF[1:]))

    def _takes(self, node: Object, effects: Sequence[str]) -> bool:
        taints = [each for each in node["spec"].get("taints") or () if each["effect"] in effects]
        spec = self.template["spec"]
        return fits(spec, node) and all(tolerated(spec, taint) for taint in taints)

    @property
    def surges(self) -> int:
        """How many nodes may have a new pod beside the old one; 0 where the old one goes first."""
        return self._limit("maxSurge", 0)

    @property
    def unavailable(self) -> int:
        """How many nodes may be without an available pod during an update."""
        return self._limit("maxUnavailable", 1)

    def _limit(self, name: str, default: int) -> int:
        rolling = self.owner["spec"]["updateStrategy"].get("rollingUpdate") or {}
        return pods_of(rolling.get(name, default), len(self.wanted), up=True)

    @property
    def rolls(self) -> bool:
        """Whether pods of an old template are replaced."""
        return bool(self.owner["spec"]["updateStrategy"]["type"] == "RollingUpdate")

    def available(self, pod: Object) -> bool:
        """Whether a pod is ready for long enough."""
        since = p.available_at(pod, self.owner["spec"].get("minReadySeconds", 0))
        return since is not None and since <= self.now

    def new(self, pod: Object) -> bool:
        """Whether a pod is of the template."""
        labels = pod["metadata"].get("labels") or {}
        return labels.get(HASH) == self.hash or labels.get(GENERATION) == generation(self.owner)


def generation(owner: Object) -> str:
    """Return which template of the set's life this is."""
    text: str = (owner["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "")
    return text


def by_node(pods: Iterable[Object]) -> dict[str, list[Object]]:
    """Return the pods by the node they are on or are for, the oldest first."""
    found: dict[str, list[Object]] = {}
    for pod in sorted(pods, key=lambda each: each["metadata"]["creationTimestamp"]):
        found.setdefault(named_node(pod), []).append(pod)
    return found


def plan(view: View) -> Plan:
    """Decide what to do next: what nodes lack or have too much of; where that is nothing, an update's next step."""
    if p.leaving(view.owner):
        return Plan()
    create = [node for node in view.wanted if node not in view.pods]
    delete: list[Object] = []
    ended: list[tuple[str, Object]] = []
    for node, pods in view.pods.items():
        staying = [pod for pod in pods if not p.leaving(pod)]
        if node not in view.kept:
            delete += staying
            continue
        ended += [(node, pod) for pod in staying if p.ended(pod)]
        delete += _too_many(view, [pod for pod in staying if not p.ended(pod)])
    if create or delete or ended or not view.rolls:
        return Plan(create, delete, ended, wake=_wake(view))
    return _surge(view) if view.surges else _roll(view)


def _too_many(view: View, running: Sequence[Object]) -> list[Object]:
    """Return what is beyond one pod for a node; while an update surges, beyond an old one and a new one."""
    if not view.surges:
        return list(running[1:])
    new = [pod for pod in running if view.new(pod)]
    old = [pod for pod in running if not view.new(pod)]
    surplus = [*new[1:], *old[1:]]
    if new and old and (view.available(new[0]) or not p.ready(old[0])):
        surplus.append(old[0])
    return surplus


def _roll(view: View) -> Plan:
    """Delete old pods: those that aren't available anyway, others as far as enough stay available."""
    broken: list[Object] = []
    serving: list[Object] = []
    missing = 0
    for node in view.wanted:
        pods = [pod for pod in view.pods[node] if not p.leaving(pod)]
        if len(pods) != 1:
            missing += 1
        elif view.new(pods[0]):
            missing += not view.available(pods[0])
        elif view.available(pods[0]):
            serving.append(pods[0])
        else:
            broken.append(pods[0])
            missing += 1
    return Plan(delete=[*broken, *serving[: max(0, view.unavailable - missing)]], wake=_wake(view))


def _surge(view: View) -> Plan:
    """Make new pods beside old ones; `_too_many` takes the old ones when the new ones serve."""
    broken: list[str] = []
    serving: list[str] = []
    surging = 0
    for node in view.wanted:
        pods = [pod for pod in view.pods[node] if not p.leaving(pod)]
        new, old = (any(view.new(pod) is each for pod in pods) for each in (True, False))
        if old and new:
            surging += 1
        elif old:
            (serving if view.available(pods[0]) else broken).append(node)
    return Plan(create=[*broken, *serving[: max(0, view.surges - surging)]], wake=_wake(view))


def _wake(view: View) -> float | None:
    seconds = view.owner["spec"].get("minReadySeconds", 0)
    times = [p.available_at(pod, seconds) for pods in view.pods.values() for pod in pods] if seconds else []
    ahead = [(at - view.now).total_seconds() for at in times if at is not None and at > view.now]
    return min(ahead, default=None)


def status(view: View) -> dict[str, Any]:
    """Return the whole status."""
    wanted = set(view.wanted)
    oldest = [view.pods[node][0] for node in view.wanted if node in view.pods]
    available = sum(map(view.available, oldest))
    counts = {
        "updatedNumberScheduled": sum(map(view.new, oldest)),
        "numberAvailable": available,
        "numberUnavailable": len(wanted) - available,
    }
    collisions = (view.owner.get("status") or {}).get("collisionCount", 0)
    there = {node["metadata"]["name"] for node in view.nodes}
    return {
        "currentNumberScheduled": len(oldest),
        "numberMisscheduled": sum(node in there and node not in wanted for node in view.pods),
        "desiredNumberScheduled": len(wanted),
        "numberReady": sum(map(p.ready, oldest)),
        "observedGeneration": view.owner["metadata"]["generation"],
        **{name: number for name, number in counts.items() if number},
        **({"collisionCount": collisions} if collisions else {}),
    }


# ── what is made ─────────────────────────────────────────────────────────────────────────────────────────────────


def new_pod(view: View, node: str) -> Object:
    """Make the pod of a node, which it asks for by name."""
    made = p.from_template(view.template, view.owner, f"{view.owner['metadata']['name']}-")
    labels = {**(made["metadata"].get("labels") or {}), HASH: view.hash, GENERATION: generation(view.owner)}
    affinity = made["spec"].get("affinity") or {}
    of_node = affinity.get("nodeAffinity") or {}
    this = {"matchFields": [{"key": NAME_FIELD, "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [this]}}
    spec = {**made["spec"], "affinity": {**affinity, "nodeAffinity": {**of_node, **required}}}
    return {**made, "metadata": {**made["metadata"], "labels": labels}, "spec": spec}


def _with_tolerations(template: Object) -> Object:
    spec = template["spec"]
    wanted = [*_TOLERATIONS, _OF_HOST_NETWORK] if spec.get("hostNetwork") else _TOLERATIONS
    given = list(spec.get("tolerations") or ())
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in wanted]
    return {**template, "spec": {**spec, "tolerations": [*given, *(each for each in added if each not in given)]}}
