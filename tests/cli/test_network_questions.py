"""What users are told of a gang that has to be in one domain: why, what would help, and the tree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from asked import TAKEN, gang, key, made, node, queue, state

from muster.whatif import network, why
from muster.whatif.cluster import WhatIfCluster
from scheduler.configuration import config
from scheduler.engine.policy import Policy

STAGE = "example.com/stage"
POLICY = config.parse(
    """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: proportion}, {name: nodeorder}]
- plugins: [{name: network-topology-aware, arguments: {levels: [zone, rack]}}]
"""
)


def near(tier: int | str) -> dict[str, Any]:
    return {"mode": "hard", "highestTierAllowed" if isinstance(tier, int) else "highestTierName": tier}


def racks(**cpus: list[int]) -> list[Any]:
    return [
        node(f"{rack}-{number}", {"cpu": str(cpu)}, {"zone": rack[0], "rack": rack})
        for rack, each in cpus.items()
        for number, cpu in enumerate(each)
    ]


def close(objects: list[Any], *, owner: str = "", stages: list[int] | None = None, **spec: Any) -> list[Any]:
    """A gang with more in its spec; generated for an ``owner`` of that kind, or with ``stages`` of so many pods each."""
    group, *pods = objects
    group["spec"] |= spec
    if owner:
        group["metadata"]["name"] = "podgroup-uid"
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "uid", "controller": True}
        group["metadata"]["ownerReferences"] = [reference]
        for pod in pods:
            pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "podgroup-uid"}
    numbers = [number for number, size in enumerate(stages or []) for _ in range(size)]
    for pod, number in zip(pods, numbers, strict=False):
        pod["metadata"]["labels"] = {STAGE: str(number)}
    return [group, *pods]


def told(objects: Iterable[Any], name: str = "train", policy: Policy = POLICY) -> tuple[str, list[str]]:
    found = why.ask(WhatIfCluster(state([queue("default"), *objects], TAKEN), policy, ["muster"]), key(name))
    assert found.record is not None
    return found.record.message, [each.text for each in found.changes]


@pytest.mark.parametrize("owner", ["", "Job", "Deployment", "StatefulSet"])
def test_a_gang_that_no_rack_holds_is_told_the_best_one_and_which_tier_would_do(owner):
    objects = close(gang("train", [1] * 6, "default"), owner=owner, networkTopology=near(1))
    name = "podgroup-uid" if owner else "train"
    message, changes = told([*racks(a1=[4], a2=[3], b1=[5]), *objects], name)
    assert "no rack has 6 cpu free for 6 pods: the best, b1, has 5 cpu; 12 cpu are free in the cluster" in message
    where = (
        "annotation volcano.sh/network-topology-highest-tier" if owner else "spec.networkTopology.highestTierAllowed"
    )
    assert f"tier 2 (zone) allowed for its pods: {where}" in changes
    message, changes = told([*racks(a1=[4], b1=[5]), *objects], name)
    mode = "annotation volcano.sh/network-topology-mode" if owner else "spec.networkTopology.mode"
    assert f"mode soft for its pods: {mode}" in changes
    # Done, it starts; a suggestion was tried.
    soft = [objects[0] | {"spec": objects[0]["spec"] | {"networkTopology": {"mode": "soft"}}}, *objects[1:]]
    cluster = WhatIfCluster(state([queue("default"), *racks(a1=[4], b1=[5]), *soft], TAKEN), POLICY, ["muster"])
    assert cluster.run_until_idle([key(name)]).started


def test_one_more_node_of_its_rack_is_suggested_only_where_that_helps():
    objects = close(gang("train", [1] * 6, "default"), networkTopology=near(1))
    _, changes = told([*racks(a1=[4, 1], a2=[3]), *objects])
    assert any(each.startswith("1 more node") for each in changes)


def parts(tier: int, *sizes: int) -> list[dict[str, Any]]:
    return [
        {
            "name": f"s{number}",
            "labelSelector": {"matchLabels": {STAGE: str(number)}},
            "subGroupSize": size,
            "minSubGroups": 1,
            "networkTopology": near(tier),
        }
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_subgroups_that_find_no_racks_are_told_so_and_which_tier_would_do(phase):
    objects = close(
        gang("train", [1] * 8, "default", phase=phase),
        stages=[5, 3],
        subGroupPolicy=parts(1, 5, 3),
        networkTopology=near(2),
    )
    message, changes = told([*racks(a1=[4], a2=[4], a3=[1]), *objects])
    assert "no rack has 5 cpu free for 5 pods: the best, a1, has 4 cpu; 9 cpu are free in the cluster" in message
    assert (
        "tier 2 (zone) allowed for the pods of each subgroup: spec.subGroupPolicy[].networkTopology.highestTierAllowed"
        in changes
    )
    twice = close(
        gang("train", [1] * 8, "default", phase=phase),
        stages=[4, 4],
        subGroupPolicy=parts(1, 4, 4),
        networkTopology=near(2),
    )
    message, _ = told([*racks(a1=[7], a2=[3]), *twice])
    assert (
        "the pods of each subgroup 's0' have room in rack a1, but no choice of domains was found that has room for all subgroups of the "
        "minimum at once" in message
    )


def test_the_tree_shows_what_is_free_of_what_nobody_asks_for_yet():
    nodes = [
        node("a1-0", {"cpu": "4", "nvidia.com/gpu": "8"}, {"zone": "a", "rack": "a1"}),
        node("a2-0", {"cpu": "4", "nvidia.com/gpu": "4"}, {"zone": "a", "rack": "a2"}, unschedulable=True),
    ]
    found = network.report(WhatIfCluster(state([queue("default"), *nodes]), POLICY, ["muster"]))
    (zone,) = found.domains
    assert (zone.allocatable["nvidia.com/gpu"], zone.free["nvidia.com/gpu"]) == ("12", "8")
    assert [each.free["nvidia.com/gpu"] for each in zone.domains] == ["8", "0"]


def test_a_hypernode_of_files_is_part_of_the_network_that_admission_knows():
    members = [{"type": "Node", "selector": {"exactMatch": {"name": "a1-0"}}}]
    rack = made("topology.volcano.sh/v1alpha1", "HyperNode", {"name": "r"}, spec={"tier": 1, "members": members})
    (hypernode,) = state([rack]).objects[next(each for each in state([rack]).objects if each.name == "HyperNode")]
    before = state([queue("default"), *racks(a1=[4])])
    after = network.with_tiers(before, [hypernode], config.read(None))
    (default,) = [each for kind, items in after.objects.items() if kind.name == "Queue" for each in items]
    (tier,) = default.status.network_tiers
    assert (tier.tier, tier.domains, tier.largest) == (1, 1, {"cpu": "4", "memory": "16Gi", "pods": "20"})
    assert not [items for kind, items in after.objects.items() if kind.name == "HyperNode" and items]
