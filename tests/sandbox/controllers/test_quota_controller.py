"""ResourceQuotas and PodDisruptionBudgets: figures in a status, recomputed, through the API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from muster.kube import errors

Cluster = Any
New = Callable[..., dict[str, Any]]


def quota(name: str = "q", **hard: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": {key.replace("_", "."): value for key, value in hard.items()}},
    }


def budget(**spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "d"}}
    metadata = {"name": "b"}
    whole = {"selector": selector, **spec}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": whole}


async def used(cluster: Cluster, name: str = "q") -> Any:
    return (await cluster.get("resourcequotas", name))["status"]["used"]


# ── quotas ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_new_quota_counts_what_is_already_there(running: Cluster, new_pod: New) -> None:
    await running.create(new_pod("p", requests={"cpu": "500m", "memory": "1Gi"}))
    await running.create(quota(pods="5", requests_cpu="2", requests_memory="4Gi", configmaps="9"))
    await asyncio.sleep(1)

    status = (await running.get("resourcequotas", "q"))["status"]
    assert status["hard"] == {"pods": "5", "requests.cpu": "2", "requests.memory": "4Gi", "configmaps": "9"}
    assert status["used"] == {"pods": "1", "requests.cpu": "500m", "requests.memory": "1Gi", "configmaps": "1"}


async def test_a_deleted_pod_gives_back_what_it_used(cluster: Cluster, new_pod: New) -> None:
    await cluster.create(quota(pods="1", cpu="1"))
    await asyncio.sleep(1)
    await cluster.create(new_pod("p", requests={"cpu": "1"}))
    assert await used(cluster) == {"pods": "1", "cpu": "1"}
    with pytest.raises(errors.ForbiddenError, match="exceeded quota: q"):
        await cluster.create(new_pod("second", requests={"cpu": "1"}))

    await cluster.delete("pods", "p")
    await asyncio.sleep(1)

    assert await used(cluster) == {"pods": "0", "cpu": "0"}
    await cluster.create(new_pod("second", requests={"cpu": "1"}))


async def test_an_ended_pod_gives_back_its_requests_but_is_still_an_object(running: Cluster, new_pod: New) -> None:
    await running.create(quota(pods="5", cpu="2"))
    await running.create(quota("objects", **{"count/pods": "5"}))
    await asyncio.sleep(1)
    short = {"sandbox.muster.sh/run-seconds": "5"}
    await running.create(new_pod("p", requests={"cpu": "1"}, annotations=short, restartPolicy="Never"))
    await asyncio.sleep(20)

    assert await used(running) == {"pods": "0", "cpu": "0"}
    assert await used(running, "objects") == {"count/pods": "1"}


async def test_a_changed_limit_is_taken_over(cluster: Cluster) -> None:
    await cluster.create(quota(pods="1"))
    await asyncio.sleep(1)
    await cluster.patch("resourcequotas", "q", {"spec": {"hard": {"pods": "7", "services": "2"}}})
    await asyncio.sleep(1)

    status = (await cluster.get("resourcequotas", "q"))["status"]
    assert status["hard"] == {"pods": "7", "services": "2"}
    assert status["used"] == {"pods": "0", "services": "0"}


async def test_a_wrong_count_is_put_right_in_time(cluster: Cluster) -> None:
    await cluster.create(quota(pods="5"))
    await asyncio.sleep(1)
    await cluster.patch("resourcequotas", "q", {"status": {"used": {"pods": "3"}}}, subresource="status")
    await asyncio.sleep(310)
    assert await used(cluster) == {"pods": "0"}


# ── budgets ──────────────────────────────────────────────────────────────────────────────────────────────────────


def figures(obj: Any) -> tuple[int, ...]:
    keys = ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")
    return tuple(obj["status"][key] for key in keys)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 2}, (4, 4, 2, 2)),
        ({"minAvailable": "80%"}, (4, 4, 4, 0)),
        ({"minAvailable": "50%"}, (4, 4, 2, 2)),
        ({"maxUnavailable": 1}, (4, 4, 3, 1)),
        ({"maxUnavailable": "30%"}, (4, 4, 2, 2)),
    ],
)
async def test_a_budget_says_how_many_pods_may_go(
    running: Cluster, new_deployment: New, spec: dict[str, Any], expected: tuple[int, ...]
) -> None:
    await running.create(budget(**spec))
    await running.create(new_deployment(replicas=4))
    await asyncio.sleep(5)

    found = await running.get("poddisruptionbudgets", "b")
    assert figures(found) == expected
    reason = "SufficientPods" if expected[-1] else "InsufficientPods"
    assert found["status"]["conditions"][0]["reason"] == reason


async def test_a_budget_knows_of_pods_that_are_not_ready(cluster: Cluster, new_deployment: New) -> None:
    await cluster.create(new_deployment(replicas=3))
    await cluster.create(budget(minAvailable=2))
    await asyncio.sleep(5)
    assert figures(await cluster.get("poddisruptionbudgets", "b")) == (3, 0, 2, 0)


async def test_a_budget_over_pods_whose_controller_has_no_size_allows_nothing_and_says_why(
    cluster: Cluster, new_job: New
) -> None:
    job = new_job(parallelism=2, completions=2)
    job["spec"]["template"]["metadata"]["labels"] = {"app": "d"}
    await cluster.create(job)
    await cluster.create(budget(maxUnavailable=1))
    await asyncio.sleep(3)

    found = await cluster.get("poddisruptionbudgets", "b")
    assert figures(found) == (0, 0, 0, 0)
    condition = found["status"]["conditions"][0]
    assert (condition["reason"], condition["message"]) == (
        "SyncFailed",
        "jobs.batch does not implement the scale subresource",
    )


async def test_an_eviction_takes_what_the_budget_allows_and_no_more(running: Cluster, new_deployment: New) -> None:
    await running.create(budget(minAvailable=3))
    await running.create(new_deployment(replicas=4))
    await asyncio.sleep(5)
    first, second = (await running.list("pods", "default"))[:2]
    await running.client.evict("default", first["metadata"]["name"], first["metadata"]["uid"])

    with pytest.raises(errors.TooManyRequestsError, match="disruption budget"):
        await running.client.evict("default", second["metadata"]["name"], second["metadata"]["uid"])

    await asyncio.sleep(10)
    assert figures(await running.get("poddisruptionbudgets", "b")) == (4, 4, 3, 1)
