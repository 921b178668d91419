"""Gangs, and nodes in racks and zones, for tests of the network."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from muster.model import names
from scheduler.configuration import config
from scheduler.simulator import state

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEVELS = """\
actions: "enqueue, allocate, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: proportion}, {name: nodeorder}]
- plugins:
  - name: network-topology-aware
    arguments: {levels: [zone, rack]}
"""


def node(name: str, gpus: int, **labels: str) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }


def racks(**gpus: list[int]) -> list[dict[str, Any]]:
    """Nodes with so many GPUs each, by rack; racks a* are in zone a."""
    return [
        node(f"{rack}-{number}", count, zone=rack[0], rack=rack)
        for rack, counts in gpus.items()
        for number, count in enumerate(counts)
    ]


def gang(name: str, pods: int, *, least: int | None = None, gpus: int = 1, on: list[str] | None = None, **spec: Any):
    """A PodGroup and its pods; the first ones run on the nodes ``on``."""
    yield {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"minMember": pods if least is None else least, **spec},
        "status": {"phase": "Running" if on else "Inqueue"},
    }
    for number in range(pods):
        where = {"nodeName": on[number]} if on and number < len(on) else {}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": "ns",
                "annotations": {"scheduling.k8s.io/group-name": name},
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}], **where},
            "status": {"phase": "Running" if where else "Pending"},
        }


def hard(tier: int | str) -> dict[str, Any]:
    return {"mode": "hard", "highestTierAllowed" if isinstance(tier, int) else "highestTierName": tier}


def decided(*objects: Any, policy: str = LEVELS) -> dict[str, Any]:
    cluster = state.load([*objects], [names.SCHEDULER_NAME])
    return state.run(cluster, config.parse(policy), NOW, 1).json()


def hypernode(name: str, tier: int, *members: str, kind: str = "Node", tier_name: str = "") -> dict[str, Any]:
    listed = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    spec = {"tier": tier, "tierName": tier_name, "members": listed}
    return {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name}, "spec": spec}


CLUSTERS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 5)), min_size=1, max_size=9
)  # zone, rack, GPUs


def nodes_of(drawn: list[tuple[str, int, int]]) -> list[dict[str, Any]]:
    return [
        node(f"{zone}{rack}-{at}", gpus, zone=zone, rack=f"{zone}{rack}") for at, (zone, rack, gpus) in enumerate(drawn)
    ]


def why(found: dict[str, Any], name: str) -> str:
    return next(each["message"] for each in found["podgroups"][f"ns/{name}"]["conditions"] if each["status"] == "True")
