"""What one tenant's pods cost everybody: names of resources that no node has and no quota limits, and thousands of affinity terms.

    python benchmarks/hostile_pods.py [TERMS]

Prints how long a snapshot and a cycle take, with 500 nodes and 5,000 pods that run, before and with the pods of the tenant; and
what a change costs in the ledger's view of the tenant's namespace.
TERMS is how many affinity terms its pods have: 4,000 unless told otherwise.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Any, Final

import calibration
import msgspec

from muster.ledger.namespace_view import NamespaceView, Tombstones
from muster.ledger.view import ObservedPod, ObservedQuota
from muster.model import kinds, names
from muster.model.amounts import Resources
from scheduler.configuration.config import read
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.state.cluster import Cluster

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
NODES: Final = 500
RUNNING: Final = 5000
NAMES: Final = 4000


def _made(kind: Any, body: dict[str, Any]) -> Any:
    return msgspec.convert(body, kind.struct)


def _pod(
    name: str, requests: dict[str, str], *, node: str = "", scheduler: str = names.SCHEDULER_NAME, **spec: Any
) -> Any:
    labels = {"app": f"app-{name}"}
    meta = {"name": name, "namespace": "ns", "uid": name, "labels": labels, "annotations": {names.GROUP_NAME: "g"}}
    containers = [{"name": "main", "image": "i", "resources": {"requests": requests}}]
    whole = {"schedulerName": scheduler, "nodeName": node, "containers": containers, **spec}
    status = {"phase": "Running" if node else "Pending"}
    return _made(kinds.PODS, {"metadata": meta, "spec": whole, "status": status})


def _cluster() -> Cluster:
    cluster = Cluster({names.SCHEDULER_NAME})
    for number in range(NODES):
        status = {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}}
        cluster.node(_made(kinds.NODES, {"metadata": {"name": f"n{number:04}"}, "status": status}))
    for number in range(RUNNING):
        cluster.pod(_pod(f"p{number:05}", {"cpu": "1", "memory": "1Gi"}, node=f"n{number % NODES:04}"))
    queue = {"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open"}}
    cluster.queue(_made(kinds.QUEUES, queue))
    group = {"metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": {"minMember": 1}}
    cluster.group(kinds.PODGROUPS.group, _made(kinds.PODGROUPS, group | {"status": {"phase": "Running"}}))
    return cluster


def _cycle(cluster: Cluster, cache: DecisionCache) -> float:
    """Return the seconds of a cycle after one node's heartbeat."""
    began = time.perf_counter()
    decide(cluster.snapshot(), read(None), NOW, cache)
    return time.perf_counter() - began


def _steady(cluster: Cluster) -> float:
    cache = DecisionCache()
    _cycle(cluster, cache)
    taken = []
    for number in range(5):
        cluster.pod(_pod(f"again-{number}", {"cpu": "1"}, node="n0000"))
        taken.append(_cycle(cluster, cache))
    return min(taken)


def _names() -> None:
    cluster = _cluster()
    before = _steady(cluster)
    hostile = _pod("hostile", {"cpu": "1"} | {f"example.com/r{number}": "1" for number in range(NAMES)})
    cluster.pod(hostile)
    amid = _steady(cluster)
    cluster.pod(hostile, gone=True)
    print(
        f"{NAMES} names: a cycle {before * 1e3:.1f} ms, with the pod {amid * 1e3:.1f}, when it is gone {_steady(cluster) * 1e3:.1f}"
    )


def _terms(scheduler: str, count: int) -> None:
    cluster = _cluster()
    cluster.snapshot()
    terms = [
        {
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"a{number}"]}]},
            "topologyKey": "zone",
        }
        for number in range(count)
    ]
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = _pod("hostile", {"cpu": "1"}, scheduler=scheduler, affinity=near)
    began = time.perf_counter()
    cluster.pod(pod)
    cluster.snapshot()
    taken = time.perf_counter() - began
    print(
        f"{count} terms, scheduler {scheduler}: a snapshot {taken:.3f} s, a cycle {_cycle(cluster, DecisionCache()):.3f} s"
    )


def _ledger(invented: int, pods: int = 100) -> None:
    """Print what a change of a small pod costs in the ledger's view of a namespace whose other pods invent resources."""
    view = NamespaceView({}, Tombstones())
    view.put_quota(ObservedQuota("compute", "q", 1, Resources.parse({"requests.cpu": "10"})))
    began = time.perf_counter()
    for number in range(pods):
        names_ = {f"example.com/r{number}-{each}": "1" for each in range(invented)}
        view.put_pod(ObservedPod(f"hostile-{number}", "", number, Resources.parse({"cpu": "1m"} | names_)))
    theirs = (time.perf_counter() - began) / pods
    began = time.perf_counter()
    for number in range(20):
        view.put_pod(ObservedPod(f"small-{number}", "g", number, Resources.parse({"cpu": "1m"})))
    own = (time.perf_counter() - began) / 20
    print(
        f"{pods} pods that invent {invented} resources each, in the ledger's view: {theirs * 1e3:.3f} ms each, a small pod {own * 1e3:.3f} ms"
    )


if __name__ == "__main__":
    calibration.tell()
    _names()
    _ledger(0)
    _ledger(2000)
    terms = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    _terms("another", terms)
    _terms(names.SCHEDULER_NAME, terms)
