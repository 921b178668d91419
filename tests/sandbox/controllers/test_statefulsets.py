"""StatefulSets through the API. What their objects look like, tests/differential holds against the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

Cluster = Any
New = Callable[..., dict[str, Any]]

QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}


@pytest.fixture
def new_set(new_deployment: New) -> New:
    """Makes the manifest of a StatefulSet ``s``."""

    def make(**spec: Any) -> dict[str, Any]:
        return new_deployment("s", kind="StatefulSet", **{"serviceName": "s", **spec})

    return make


def template(version: str) -> dict[str, Any]:
    return {"spec": {"template": {"metadata": {"annotations": {"v": version}}}}}


async def versions(cluster: Cluster) -> dict[str, str]:
    pods = await cluster.list("pods", "default")
    return {each["metadata"]["name"]: each["metadata"].get("annotations", {}).get("v", "1") for each in pods}


async def test_pods_come_one_after_the_other_and_go_from_the_last(running: Cluster, new_set: New) -> None:
    await running.create(new_set(replicas=3, minReadySeconds=5))
    seen = []
    for _ in range(30):
        await asyncio.sleep(1)
        seen.append(len(await running.names("pods")))
    assert sorted(set(seen)) == [1, 2, 3]
    assert seen.count(1) >= 5, "the second waits until the first has been ready for five seconds"

    await running.patch("statefulsets", "s", {"spec": {"replicas": 1}})
    await asyncio.sleep(20)

    assert await running.names("pods") == ["s-0"]
    deleted = [message for reason, message in await running.events("s") if reason == "SuccessfulDelete"]
    assert deleted == [f"Delete Pod s-{number} in StatefulSet s successful" for number in (2, 1)]


async def test_in_parallel_a_pod_that_never_runs_holds_up_nobody(running: Cluster, new_set: New) -> None:
    large = new_set(replicas=3, podManagementPolicy="Parallel")
    large["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    await running.create(large)
    await asyncio.sleep(5)
    status = (await running.get("statefulsets", "s"))["status"]
    assert (status["replicas"], status["availableReplicas"]) == (3, 2)


async def test_a_new_template_comes_from_the_end_down_to_the_partition(running: Cluster, new_set: New) -> None:
    await running.create(
        new_set(replicas=3, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}})
    )
    await asyncio.sleep(10)
    await running.patch("statefulsets", "s", template("2"))
    await asyncio.sleep(30)
    assert await versions(running) == {"s-0": "1", "s-1": "2", "s-2": "2"}
    status = (await running.get("statefulsets", "s"))["status"]
    assert (status["currentReplicas"], status["updatedReplicas"]) == (1, 2)
    assert status["currentRevision"] != status["updateRevision"]

    await running.delete("pods", "s-0")
    await asyncio.sleep(10)
    assert (await versions(running))["s-0"] == "1", "below the partition the old template is used"

    rolling = {"rollingUpdate": {"partition": 0}}
    await running.patch("statefulsets", "s", {"spec": {"updateStrategy": rolling}})
    await asyncio.sleep(20)
    status = (await running.get("statefulsets", "s"))["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert set((await versions(running)).values()) == {"2"}


async def test_on_delete_a_pod_is_renewed_when_somebody_deletes_it(running: Cluster, new_set: New) -> None:
    await running.create(new_set(replicas=2, updateStrategy={"type": "OnDelete"}))
    await asyncio.sleep(10)
    await running.patch("statefulsets", "s", template("2"))
    await asyncio.sleep(10)
    assert set((await versions(running)).values()) == {"1"}
    await running.delete("pods", "s-0")
    await asyncio.sleep(10)
    assert await versions(running) == {"s-0": "2", "s-1": "1"}


async def test_an_update_of_several_at_once_keeps_as_many_as_it_says(running: Cluster, new_set: New) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    await running.create(new_set(replicas=4, podManagementPolicy="Parallel", updateStrategy=rolling))
    await asyncio.sleep(10)
    await running.patch("statefulsets", "s", template("2"))
    seen = []
    for _ in range(60):
        await asyncio.sleep(0.25)
        seen.append((await running.get("statefulsets", "s"))["status"]["availableReplicas"])
    assert min(seen) == 2
    assert set((await versions(running)).values()) == {"2"}


async def test_back_to_an_earlier_template_is_its_old_revision_with_a_new_number(
    running: Cluster, new_set: New
) -> None:
    await running.create(new_set(replicas=1, revisionHistoryLimit=1))
    for version in ("2", "3", "2"):
        await asyncio.sleep(10)
        await running.patch("statefulsets", "s", template(version))
    await asyncio.sleep(10)
    revisions = await running.list("controllerrevisions", "default")
    kept = {each["revision"]: each["data"]["spec"]["template"]["metadata"]["annotations"]["v"] for each in revisions}
    assert kept == {3: "3", 4: "2"}


async def test_claims_outlive_pods_unless_the_set_says_otherwise(running: Cluster, new_set: New) -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    policy = {"whenScaled": "Delete", "whenDeleted": "Retain"}
    for delete in (False, True):
        retention = {"persistentVolumeClaimRetentionPolicy": policy} if delete else {}
        body = new_set(replicas=2, podManagementPolicy="Parallel", volumeClaimTemplates=[claim], **retention)
        await running.create(body)
        await asyncio.sleep(5)
        await running.patch("statefulsets", "s", {"spec": {"replicas": 1}})
        await asyncio.sleep(40)
        assert await running.names("persistentvolumeclaims") == (["data-s-0"] if delete else ["data-s-0", "data-s-1"])
        await running.delete("statefulsets", "s")
        await asyncio.sleep(40)
        assert "data-s-0" in await running.names("persistentvolumeclaims")


async def test_a_pod_that_ended_is_made_again_and_one_that_a_quota_refuses_is_told_of(
    running: Cluster, new_set: New
) -> None:
    await running.create(QUOTA)
    await running.create(new_set(replicas=2))
    await asyncio.sleep(5)
    first = await running.get("pods", "s-0")
    await running.end("s-0", "Failed")
    await asyncio.sleep(10)
    assert (await running.get("pods", "s-0"))["metadata"]["uid"] != first["metadata"]["uid"]
    said = await running.events("s")
    assert ("RecreatingFailedPod", "StatefulSet default/s is recreating failed Pod s-0") in said
    refused = [message for reason, message in said if reason == "FailedCreate"]
    start = 'Create Pod s-1 in StatefulSet s failed error: pods "s-1" is forbidden: exceeded quota: q'
    assert any(message.startswith(start) for message in refused)
