"""Simulated nodes, what runs on them, and the scheduler that fills them, through the API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from muster.sandbox.controllers.default_scheduler import Pace

Cluster = Any
New = Callable[..., dict[str, Any]]


def condition(obj: Any, kind: str) -> Any:
    return next(each for each in obj["status"]["conditions"] if each["type"] == kind)


async def phases(cluster: Cluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in await cluster.list("pods", "default")}


# ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_simulated_node_is_ready_with_what_it_was_made_with(cluster: Cluster) -> None:
    await cluster.sandbox.add_node("n1", "4", "16Gi", pods=20, labels={"zone": "a"})

    node = await cluster.get("nodes", "n1")
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "20", "ephemeral-storage": "100Gi"}
    assert node["status"]["capacity"] == node["status"]["allocatable"] == amounts
    assert node["metadata"]["labels"] == {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": "n1",
        "kubernetes.io/os": "linux",
        "zone": "a",
    }
    assert condition(node, "Ready")["status"] == "True"
    assert not node["spec"].get("taints")


async def test_a_node_that_somebody_creates_is_simulated_too(cluster: Cluster, new_pod: New) -> None:
    await cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}})
    await cluster.create(new_pod("p"))
    await asyncio.sleep(5)

    node = await cluster.get("nodes", "mine")
    assert condition(node, "Ready")["status"] == "True"
    assert node["status"]["capacity"]["cpu"] == "4"
    assert not node["spec"].get("taints")
    assert await phases(cluster) == {"p": "Running"}


async def test_a_cordoned_node_gets_the_taint_and_keeps_its_pods(running: Cluster, new_pod: New) -> None:
    await running.create(new_pod("p", nodeName="n1"))
    await asyncio.sleep(3)

    await running.patch("nodes", "n1", {"spec": {"unschedulable": True}})
    await asyncio.sleep(60)
    taints = (await running.get("nodes", "n1"))["spec"]["taints"]
    assert taints == [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    assert await phases(running) == {"p": "Running"}

    await running.patch("nodes", "n1", {"spec": {"unschedulable": None}})
    await asyncio.sleep(1)
    assert not (await running.get("nodes", "n1"))["spec"].get("taints")


async def test_the_pods_of_a_deleted_node_are_lost_after_a_while(running: Cluster, new_pod: New) -> None:
    await running.create(new_pod("p", nodeName="n1"))
    await asyncio.sleep(3)

    await running.delete("nodes", "n1")
    await asyncio.sleep(30)
    assert await phases(running) == {"p": "Running"}
    await asyncio.sleep(20)

    assert await phases(running) == {}


# ── kubelet ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_deleted_pod_ends_before_it_goes(running: Cluster, new_pod: New) -> None:
    await running.create(new_pod("p", nodeName="n1"))
    await asyncio.sleep(3)

    await running.delete("pods", "p")
    pod = await running.get("pods", "p")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert pod["status"]["phase"] == "Running"
    await asyncio.sleep(2)

    assert await running.get("pods", "p") is None


async def test_nothing_happens_to_the_pods_of_a_node_that_is_not_ready(running: Cluster, new_pod: New) -> None:
    short = {"sandbox.muster.sh/run-seconds": "10"}
    await running.create(new_pod("p", nodeName="n1", annotations=short, restartPolicy="Never"))
    await asyncio.sleep(5)
    silent = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    await running.patch("nodes", "n1", {"status": {"conditions": [silent]}}, subresource="status")
    await asyncio.sleep(60)
    assert await phases(running) == {"p": "Running"}
    assert (await running.get("nodes", "n1"))["spec"]["taints"][0]["key"] == "node.kubernetes.io/not-ready"

    await running.patch("nodes", "n1", {"status": {"conditions": [{**silent, "status": "True"}]}}, subresource="status")
    await asyncio.sleep(2)

    assert await phases(running) == {"p": "Succeeded"}


async def test_a_node_refuses_pods_that_it_has_no_room_for(running: Cluster, new_pod: New) -> None:
    for name in ("a", "b", "c"):
        await running.create(new_pod(name, nodeName="n1", requests={"cpu": "1500m"}))
    await asyncio.sleep(3)

    assert await phases(running) == {"a": "Running", "b": "Running", "c": "Failed"}
    status = (await running.get("pods", "c"))["status"]
    assert status["reason"] == "OutOfcpu"
    figures = "requested: 1500, used: 3000, capacity: 4000"
    assert status["message"] == f"Pod was rejected: Node didn't have enough resource: cpu, {figures}"


async def test_an_ended_pod_makes_room_on_its_node(running: Cluster, new_pod: New) -> None:
    short = {"sandbox.muster.sh/run-seconds": "10"}
    await running.create(new_pod("a", nodeName="n1", requests={"cpu": "4"}, annotations=short, restartPolicy="Never"))
    await asyncio.sleep(20)
    await running.create(new_pod("b", nodeName="n1", requests={"cpu": "4"}))
    await asyncio.sleep(3)

    assert await phases(running) == {"a": "Succeeded", "b": "Running"}


async def test_a_pod_with_a_wrong_annotation_runs_and_tells_about_it(running: Cluster, new_pod: New) -> None:
    await running.create(new_pod("p", nodeName="n1", annotations={"sandbox.muster.sh/run-seconds": "soon"}))
    await asyncio.sleep(3)

    assert await phases(running) == {"p": "Running"}
    text = (
        'annotation sandbox.muster.sh/run-seconds: "soon" is not a number of seconds; write it like 30 or 0.5;'
        " it is ignored"
    )
    assert await running.events("p") == [("InvalidAnnotation", text)]


# ── default-scheduler ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_pod_for_the_default_scheduler_goes_to_the_first_node_with_room(running: Cluster, new_pod: New) -> None:
    for name in ("a", "b", "c"):
        await running.create(new_pod(name, requests={"cpu": "3"}))
        await asyncio.sleep(1)

    placed = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in await running.list("pods")}
    assert placed == {"a": "n1", "b": "n2", "c": None}
    scheduled = condition(await running.get("pods", "c"), "PodScheduled")
    assert (scheduled["reason"], scheduled["message"]) == (
        "Unschedulable",
        "0/2 nodes are available: 2 Insufficient cpu.",
    )
    assert await running.events("a") == [("Scheduled", "Successfully assigned default/a to n1")]


async def test_a_waiting_pod_is_placed_when_room_is_made(running: Cluster, new_pod: New) -> None:
    await running.create(new_pod("big", requests={"cpu": "8"}))
    await asyncio.sleep(5)
    assert await phases(running) == {"big": "Pending"}

    await running.sandbox.add_node("n3", "8", "16Gi")
    await asyncio.sleep(5)

    assert await phases(running) == {"big": "Running"}


@pytest.mark.parametrize(
    ("spec", "node"),
    [
        ({"nodeSelector": {"kubernetes.io/hostname": "n2"}}, "n2"),
        ({"nodeSelector": {"kubernetes.io/hostname": "n9"}}, None),
        ({}, "n2"),
        ({"tolerations": [{"key": "only", "operator": "Exists"}]}, "n1"),
        ({"tolerations": [{"key": "only", "value": "x", "effect": "NoSchedule"}]}, "n1"),
        ({"tolerations": [{"key": "only", "value": "y"}]}, "n2"),
        ({"tolerations": [{"operator": "Exists"}]}, "n1"),
    ],
)
async def test_selectors_and_taints_decide_where_a_pod_may_go(
    running: Cluster, new_pod: New, spec: dict[str, Any], node: str | None
) -> None:
    await running.patch("nodes", "n1", {"spec": {"taints": [{"key": "only", "value": "x", "effect": "NoSchedule"}]}})
    await running.create(new_pod("p", **spec))
    await asyncio.sleep(3)
    assert (await running.get("pods", "p"))["spec"].get("nodeName") == node


async def test_a_pod_that_asks_for_more_than_the_default_scheduler_can_do_is_told_so(
    running: Cluster, new_pod: New
) -> None:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    await running.create(new_pod("p", affinity=affinity))
    await asyncio.sleep(3)

    message = condition(await running.get("pods", "p"), "PodScheduled")["message"]
    assert "default-scheduler doesn't support podAntiAffinity; set schedulerName: muster" in message


async def test_a_pod_for_another_scheduler_waits_for_that_one(running: Cluster, new_pod: New) -> None:
    await running.create(new_pod("p", schedulerName="muster"))
    await asyncio.sleep(100)

    pod = await running.get("pods", "p")
    assert "nodeName" not in pod["spec"]
    assert not any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", ()))


async def test_pods_that_fit_nowhere_do_not_keep_smaller_ones_waiting(running: Cluster, new_pod: New) -> None:
    for number in range(5):
        await running.create(new_pod(f"big{number}", requests={"cpu": "100"}))
    await running.create(new_pod("small", requests={"cpu": "1"}))
    await asyncio.sleep(3)
    assert (await phases(running))["small"] == "Running"


async def test_many_pods_without_room_are_told_so_as_fast_as_the_real_scheduler_writes(
    running: Cluster, new_pod: New
) -> None:
    for number in range(250):
        await running.create(new_pod(f"huge-{number:03}", requests={"cpu": "100"}))
    await asyncio.sleep(1)
    told = [pod for pod in await running.list("pods") if pod["status"].get("conditions")]
    assert 100 <= len(told) <= 151

    await running.create(new_pod("small"))
    await asyncio.sleep(3)
    assert (await phases(running))["small"] == "Running"
    assert all(pod["status"].get("conditions") for pod in await running.list("pods"))


def test_turns_come_at_once_after_a_rest_and_then_one_by_one() -> None:
    pace = Pace(per_second=2, at_once=3)

    assert [pace.next(100.0) <= 100.0 for _ in range(3)] == [True] * 3
    assert [pace.next(100.0) for _ in range(2)] == [100.5, 101.0]
    assert pace.next(101.5) == 101.5
    assert [pace.next(200.0) <= 200.0 for _ in range(4)] == [True, True, True, False]
