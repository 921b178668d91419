"""How long `scheduler.engine.cycle.decide` takes: processor seconds on made-up clusters.

Run: python benchmarks/scheduler_decide.py [SHAPE ...] [--runs N]
Without a shape all are measured. Each line gives the median of N runs, the minimum, and what was decided. How time grows with
a cluster is shown by growth.py.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import calibration
import msgspec

from muster.kube.garbage import uncollected
from muster.model import kinds, names
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.model.plan import Plan
from scheduler.state.apply import apply_plan
from scheduler.state.cluster import Cluster

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
EVICTING: Final = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""

Measured = tuple[float, Plan]
Shape = Callable[[], Measured]


class World:
    """A cluster made object by object."""

    def __init__(self, nodes: int, cpu: str = "64", memory: str = "256Gi", policy: str = config.DEFAULT) -> None:
        self.cluster = Cluster({names.SCHEDULER_NAME})
        self.policy = config.parse(policy)
        self.cache = DecisionCache()
        self.queue("default")
        for number in range(nodes):
            amounts = {"cpu": cpu, "memory": memory, "pods": "256"}
            labels = {"kubernetes.io/hostname": f"node-{number:05}", "zone": f"z{number % 3}"}
            # 40 nodes a rack, 8 racks a row, 4 rows a building.
            labels |= {"rack": f"r{number // 40}", "row": f"r{number // 320}", "building": f"b{number // 1280}"}
            self.cluster.node(
                _as(
                    kinds.NODES,
                    {"metadata": {"name": f"node-{number:05}", "labels": labels}, "status": {"allocatable": amounts}},
                )
            )

    def queue(self, name: str, **spec: Any) -> None:
        self.cluster.queue(_as(kinds.QUEUES, {"metadata": {"name": name}, "spec": spec}))

    def priority(self, name: str, value: int) -> None:
        self.cluster.priority_class(_as(kinds.PRIORITYCLASSES, {"metadata": {"name": name}, "value": value}))

    def gang(self, name: str, count: int, requests: dict[str, str], *, least: int | None = None, **more: Any) -> None:
        """A group and its pods; ``nodes`` says where they run, in turn; ``pod`` has further fields of their spec."""
        nodes: list[str] = more.pop("nodes", [])
        pod: dict[str, Any] = more.pop("pod", {})
        phase = "Running" if nodes else more.pop("phase", "Pending")
        spec = {"minMember": count if least is None else least, **more}
        meta = {"name": name, "namespace": "ns", "uid": name}
        body = {"metadata": meta, "spec": spec, "status": {"phase": phase}}
        self.cluster.group(kinds.PODGROUPS.group, _as(kinds.PODGROUPS, body))
        for number in range(count):
            self.pod(f"{name}-{number}", name, requests, nodes[number % len(nodes)] if nodes else "", **pod)

    def pod(self, name: str, group: str, requests: dict[str, str], node: str = "", **spec: Any) -> None:
        meta = {"name": name, "namespace": "ns", "uid": name, "annotations": {names.GROUP_NAME: group}}
        meta["labels"] = {"group": group}
        body = {
            "schedulerName": names.SCHEDULER_NAME,
            "nodeName": node,
            "containers": [{"resources": {"requests": requests}}],
            **spec,
        }
        status = {"phase": "Running" if node else "Pending"}
        self.cluster.pod(_as(kinds.PODS, {"metadata": meta, "spec": body, "status": status}))

    def decide(self) -> Measured:
        """Take a snapshot, then time one decision on it."""
        snapshot = self.cluster.snapshot()
        return _timed(lambda: decide(snapshot, self.policy, NOW, self.cache))


def _as(kind: Any, body: dict[str, Any]) -> Any:
    return msgspec.convert(body, kind.struct)


def _timed(work: Callable[[], Plan]) -> Measured:
    # As the worker does: what is there stays, and isn't looked through for garbage.
    gc.collect()
    gc.freeze()
    with uncollected():
        begun = time.process_time()
        plan = work()
        took = time.process_time() - begun
    gc.unfreeze()
    return took, plan


def request(number: int) -> dict[str, str]:
    return {"cpu": f"{100 + 50 * (number % 10)}m", "memory": f"{256 + 64 * (number // 10)}Mi"}


# ── shapes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def gangs(count: int, size: int, classes: int, nodes: int) -> Shape:
    world = World(nodes)
    for number in range(count):
        world.gang(f"g{number:05}", size, request(number % classes))
    return world.decide


LEVELS: Final = """
  - name: network-topology-aware
    arguments: {levels: [building, row, rack]}
"""


def networked(count: int, size: int, classes: int, nodes: int, **asked: Any) -> Shape:
    """Gangs that ask for a domain of the network, which has three levels; with nothing ``asked`` the same without one."""
    world = World(nodes, policy=config.DEFAULT + LEVELS.lstrip("\n") if asked else config.DEFAULT)
    spec: dict[str, Any] = {"networkTopology": asked} if asked else {}
    for number in range(count):
        world.gang(f"g{number:05}", size, request(number % classes), **spec)
    return world.decide


def running(nodes: int, groups: int, size: int) -> World:
    """Groups that run, as the worker knows them once it wrote their statuses."""
    world = World(nodes)
    for number in range(groups):
        places = [f"node-{(number * size + pod) % nodes:05}" for pod in range(size)]
        world.gang(f"g{number:05}", size, request(number % 10), nodes=places)
    for _ in range(2):
        apply_plan(world.cluster, world.decide()[1])
    return world


def idle(nodes: int, groups: int, size: int) -> Shape:
    world = running(nodes, groups, size)

    def cycle() -> Measured:
        return _timed(lambda: decide(world.cluster.snapshot(), world.policy, NOW, world.cache))

    return cycle


def arrival(nodes: int, groups: int, size: int) -> Shape:
    """One new pod, with its group, from its event to the decision."""
    world = running(nodes, groups, size)
    numbers = iter(range(10**6))

    def cycle() -> Measured:
        name = f"new-{next(numbers)}"

        def work() -> Plan:
            world.gang(name, 1, request(0))
            return decide(world.cluster.snapshot(), world.policy, NOW, world.cache)

        took, plan = _timed(work)
        assert len(plan.binds) == 1
        apply_plan(world.cluster, plan)
        return took, plan

    return cycle


def preemption(nodes: int, groups: int, size: int, preemptors: int) -> Shape:
    world = World(nodes, policy=EVICTING, cpu=str(groups * size // nodes))
    world.priority("high", 1000)
    for number in range(groups):
        places = [f"node-{(number * size + pod) % nodes:05}" for pod in range(size)]
        world.gang(f"low{number:05}", size, {"cpu": "1"}, least=1, nodes=places)
    for number in range(preemptors // 10):
        world.gang(f"high{number:05}", 10, {"cpu": "1"}, phase="Inqueue", priorityClassName="high")
    return world.decide


def reclaiming(nodes: int, jobs: int) -> Shape:
    """Two queues of equal weight; one has everything, the jobs of the other take their half back."""
    world = World(nodes, cpu="10", policy=EVICTING)
    world.queue("late")
    for number in range(jobs):
        places = [f"node-{(number * 10 + pod) % nodes:05}" for pod in range(10)]
        world.gang(f"early{number:05}", 10, {"cpu": "1"}, least=1, nodes=places)
    for number in range(jobs // 2):
        world.gang(f"late{number:05}", 10, {"cpu": "1"}, phase="Inqueue", queue="late")
    return world.decide


def affine(pods: int, nodes: int) -> Shape:
    """Pods that keep away from their like on a node."""
    world = World(nodes)
    for number in range(pods // 100):
        labels = {"matchLabels": {"group": f"g{number:05}"}}
        term = {"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"}
        anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        world.gang(f"g{number:05}", 100, request(number), pod={"affinity": anti})
    return world.decide


def sociable(pods: int, nodes: int, spec: Callable[[dict[str, Any]], dict[str, Any]]) -> Shape:
    """Gangs of a hundred pods, of whose like each pod says something; ``spec`` is given a selector of them."""
    world = World(nodes)
    for number in range(pods // 100):
        selector = {"labelSelector": {"matchLabels": {"group": f"g{number:05}"}}, "topologyKey": "zone"}
        world.gang(f"g{number:05}", 100, request(number), pod=spec(selector))
    return world.decide


def _near(term: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _spread(term: dict[str, Any]) -> dict[str, Any]:
    return {"topologySpreadConstraints": [term | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}


def _preferred(term: dict[str, Any]) -> dict[str, Any]:
    wish = {"weight": 10, "podAffinityTerm": term}
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}}


def claiming(pods: int, nodes: int) -> Shape:
    """A claim of each pod's own, and a local volume on each node."""
    world = World(nodes)
    shelf = world.cluster.storage
    late = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    shelf.storage_class(_as(kinds.STORAGECLASSES, {"metadata": {"name": "late"}, **late}))
    for number in range(nodes):
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [f"node-{number:05}"]}
        spec = {"capacity": {"storage": "1Gi"}, "storageClassName": "late"}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
        shelf.volume(_as(kinds.VOLUMES, {"metadata": {"name": f"v{number}"}, "spec": spec}))
    for number in range(pods // 100):
        world.gang(f"g{number:05}", 0, {}, least=100)
        for pod in range(100):
            name = f"g{number:05}-{pod}"
            spec = {"storageClassName": "late", "resources": {"requests": {"storage": "1Gi"}}}
            meta = {"name": name, "namespace": "ns", "uid": name}
            shelf.claim(_as(kinds.CLAIMS, {"metadata": meta, "spec": spec}))
            volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
            world.pod(name, f"g{number:05}", request(number), volumes=[volume])
    return world.decide


def queued(queues: int) -> Shape:
    world = World(1000)
    for number in range(queues):
        world.queue(f"q{number:04}", weight=1 + number % 3)
    for number in range(1000):
        world.gang(f"g{number:05}", 10, request(number % 50), queue=f"q{number % queues:04}")
    return world.decide


def full(count: int, nodes: int) -> Shape:
    """Gangs that wait for room: all is taken."""
    world = World(nodes, cpu="10")
    for number in range(nodes):
        world.gang(f"there{number:05}", 10, {"cpu": "1"}, nodes=[f"node-{number:05}"])
    for number in range(count):
        world.gang(f"g{number:05}", 10, request(number % 50), phase="Inqueue")
    return world.decide


SHAPES: Final[dict[str, Callable[[], Shape]]] = {
    "gangs-20": lambda: gangs(20, 500, 20, 1000),
    "gangs-1000": lambda: gangs(1000, 10, 50, 1000),
    "singletons": lambda: gangs(10_000, 1, 50, 1000),
    "large": lambda: gangs(200, 500, 20, 5000),
    "large-rack": lambda: networked(200, 500, 20, 5000, mode="hard", highestTierAllowed=1),
    "large-row": lambda: networked(200, 500, 20, 5000, mode="hard", highestTierAllowed=2),
    "large-soft": lambda: networked(200, 500, 20, 5000, mode="soft"),
    "idle": lambda: idle(5000, 200, 500),
    "idle-2000": lambda: idle(5000, 2000, 50),
    "arrival": lambda: arrival(5000, 200, 500),
    "arrival-2000": lambda: arrival(5000, 2000, 50),
    "preempt": lambda: preemption(1000, 200, 50, 1000),
    "full": lambda: full(1000, 1000),
    "affinity": lambda: affine(1000, 1000),
    "affinity-near": lambda: sociable(1000, 1000, _near),
    "affinity-preferred": lambda: sociable(1000, 1000, _preferred),
    "spread": lambda: sociable(1000, 1000, _spread),
    "claims": lambda: claiming(1000, 1000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", choices=[[], *SHAPES])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    calibration.tell()
    for name, make in SHAPES.items():
        if options.shapes and name not in options.shapes:
            continue
        measure = make()
        runs = [measure() for _ in range(options.runs)]
        times, plan = [took for took, _ in runs], runs[-1][1]
        print(
            f"{name:22} median {statistics.median(times):.3f} s, min {min(times):.3f}; {len(plan.binds)} binds, "
            f"{len(plan.evictions)} evictions, {len(plan.pipelined)} nominations"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
