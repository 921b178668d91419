"""DaemonSets through the API. What their objects look like, tests/differential holds against the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

Cluster = Any
New = Callable[..., dict[str, Any]]


@pytest.fixture
def new_daemon(new_deployment: New) -> New:
    """Makes the manifest of a DaemonSet ``d``."""

    def make(*, rolling: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
        made = new_deployment(kind="DaemonSet", **spec)
        made["spec"].pop("replicas", None)
        if rolling:
            made["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
        return made

    return make


async def nodes_of_pods(cluster: Cluster) -> list[str]:
    return sorted(each["spec"].get("nodeName", "") for each in await cluster.list("pods", "default"))


async def test_each_node_gets_a_pod_also_one_that_comes_later_and_one_that_is_cordoned(
    running: Cluster, new_daemon: New
) -> None:
    await running.patch("nodes", "n2", {"spec": {"unschedulable": True}}, namespace="")
    await running.create(new_daemon())
    await asyncio.sleep(5)
    await running.sandbox.add_node("n3", "4", "16Gi")
    await asyncio.sleep(5)
    assert await nodes_of_pods(running) == ["n1", "n2", "n3"]


async def test_a_taint_keeps_new_pods_off_and_one_that_evicts_takes_the_old_one_away(
    running: Cluster, new_daemon: New
) -> None:
    await running.create(new_daemon())
    await asyncio.sleep(5)
    taint = {"key": "keep", "value": "off", "effect": "NoSchedule"}
    await running.patch("nodes", "n2", {"spec": {"taints": [taint]}}, namespace="")
    await asyncio.sleep(5)
    status = (await running.get("daemonsets", "d"))["status"]
    assert (status["desiredNumberScheduled"], status["numberMisscheduled"]) == (1, 1)
    assert await nodes_of_pods(running) == ["n1", "n2"]

    await running.patch("nodes", "n2", {"spec": {"taints": [taint | {"effect": "NoExecute"}]}}, namespace="")
    await asyncio.sleep(5)
    assert await nodes_of_pods(running) == ["n1"]


@pytest.mark.parametrize(
    ("rolling", "fewest", "most"),
    [({"maxUnavailable": 1}, 1, 2), ({"maxUnavailable": 0, "maxSurge": 1}, 2, 3)],
    ids=["old first", "new first"],
)
async def test_a_new_template_takes_over_node_by_node(
    running: Cluster, new_daemon: New, rolling: dict[str, Any], fewest: int, most: int
) -> None:
    await running.create(new_daemon(rolling=rolling))
    await asyncio.sleep(5)
    await running.patch("daemonsets", "d", {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}})
    ready, there = [], []
    for _ in range(80):
        await asyncio.sleep(0.25)
        pods = await running.list("pods", "default")
        there.append(sum("deletionTimestamp" not in each["metadata"] for each in pods))
        ready.append(sum(each["status"]["phase"] == "Running" for each in pods))
    assert (min(ready), max(there)) == (fewest, most)
    status = (await running.get("daemonsets", "d"))["status"]
    assert (status["updatedNumberScheduled"], status["numberAvailable"]) == (2, 2)
    assert await nodes_of_pods(running) == ["n1", "n2"]
    assert {each["revision"] for each in await running.list("controllerrevisions", "default")} == {1, 2}


async def test_a_pod_that_fails_again_and_again_is_made_again_at_longer_and_longer_pauses(
    running: Cluster, new_daemon: New
) -> None:
    await running.create(new_daemon())
    await asyncio.sleep(5)
    for _ in range(100):
        for pod in await running.list("pods", "default"):
            if pod["spec"].get("nodeName") == "n1" and pod["status"]["phase"] != "Failed":
                await running.end(pod["metadata"]["name"], "Failed")
        await asyncio.sleep(0.5)
    failures = [message for reason, message in await running.events("d") if reason == "FailedDaemonPod"]
    assert 4 <= len(failures) <= 7
    assert "on node n1, will try to kill it" in failures[0]
