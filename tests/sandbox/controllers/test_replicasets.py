"""ReplicaSets and Deployments through the API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

Cluster = Any
New = Callable[..., dict[str, Any]]

QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}}


def condition(obj: Any, kind: str) -> Any:
    return next(each for each in obj["status"]["conditions"] if each["type"] == kind)


async def sizes(cluster: Cluster) -> dict[str, int]:
    """Return the sizes of ReplicaSets by revision."""
    found = await cluster.list("replicasets", "default")
    revision = "deployment.kubernetes.io/revision"
    return {each["metadata"]["annotations"][revision]: each["spec"]["replicas"] for each in found}


async def test_a_replicaset_replaces_a_pod_that_goes_and_one_that_failed(running: Cluster, new_deployment: New) -> None:
    await running.create(new_deployment(kind="ReplicaSet", replicas=2))
    await asyncio.sleep(5)
    first, second = await running.names("pods")

    await running.delete("pods", first)
    await running.end(second, "Failed")
    await asyncio.sleep(5)

    status = (await running.get("replicasets", "d"))["status"]
    assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (2, 2, 2)
    assert set(await running.names("pods")) & {first, second} == {second}, "the failed one stays to be looked at"


async def test_a_replicaset_adopts_a_pod_that_its_selector_takes_and_lets_go_of_one_it_does_not(
    running: Cluster, new_deployment: New, new_pod: New
) -> None:
    await running.create(new_pod("mine", labels={"app": "d"}))
    replicaset = await running.create(new_deployment(kind="ReplicaSet", replicas=1))
    await asyncio.sleep(3)
    assert await running.names("pods") == ["mine"]
    owners = (await running.get("pods", "mine"))["metadata"]["ownerReferences"]
    assert owners[0]["uid"] == replicaset["metadata"]["uid"]

    await running.patch("pods", "mine", {"metadata": {"labels": {"app": "other"}}})
    await asyncio.sleep(3)

    assert "ownerReferences" not in (await running.get("pods", "mine"))["metadata"]
    assert len(await running.names("pods")) == 2


async def test_a_replicaset_says_why_pods_are_missing_and_makes_them_when_it_can(
    running: Cluster, new_deployment: New
) -> None:
    await running.create(QUOTA)
    await asyncio.sleep(1)
    await running.create(new_deployment(kind="ReplicaSet", replicas=3))
    await asyncio.sleep(3)
    failure = condition(await running.get("replicasets", "d"), "ReplicaFailure")
    assert failure["reason"] == "FailedCreate"
    assert "exceeded quota: q" in failure["message"]

    await running.delete("resourcequotas", "q")
    await asyncio.sleep(60)

    status = (await running.get("replicasets", "d"))["status"]
    assert status["readyReplicas"] == 3
    assert "conditions" not in status


async def test_a_deployment_makes_a_replicaset_and_reports_what_rollout_status_reads(
    running: Cluster, new_deployment: New
) -> None:
    await running.create(new_deployment())
    await asyncio.sleep(5)

    deployment = await running.get("deployments", "d")
    assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    counts = {key: value for key, value in deployment["status"].items() if isinstance(value, int)}
    assert counts == {
        "replicas": 3,
        "updatedReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "terminatingReplicas": 0,
        "observedGeneration": 1,
    }
    assert condition(deployment, "Available")["reason"] == "MinimumReplicasAvailable"
    assert condition(deployment, "Progressing")["reason"] == "NewReplicaSetAvailable"
    (replicaset,) = await running.list("replicasets", "default")
    digest = replicaset["metadata"]["labels"]["pod-template-hash"]
    assert replicaset["metadata"]["name"] == f"d-{digest}"
    assert replicaset["spec"]["selector"]["matchLabels"] == {"app": "d", "pod-template-hash": digest}
    assert await running.events("d") == [("ScalingReplicaSet", f"Scaled up replica set d-{digest} from 0 to 3")]


async def test_a_new_template_takes_over_pod_by_pod_and_never_with_too_few(
    running: Cluster, new_deployment: New
) -> None:
    await running.create(new_deployment())
    await asyncio.sleep(5)
    seen = []

    await running.patch("deployments", "d", {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}})
    for _ in range(60):
        await asyncio.sleep(0.25)
        seen.append((await running.get("deployments", "d"))["status"].get("availableReplicas", 0))

    assert min(seen) >= 3
    assert await sizes(running) == {"1": 0, "2": 3}
    messages = [message.split(" ", 5)[-1] for _, message in await running.events("d")]
    assert len(messages) == 7
    deployment = await running.get("deployments", "d")
    assert condition(deployment, "Progressing")["reason"] == "NewReplicaSetAvailable"
    assert deployment["status"]["observedGeneration"] == 2


async def test_going_back_to_an_old_template_takes_its_replicaset_again_under_a_new_revision(
    running: Cluster, new_deployment: New
) -> None:
    await running.create(new_deployment(image="x:1"))
    await asyncio.sleep(5)
    old = (await running.get("deployments", "d"))["spec"]["template"]
    await running.patch("deployments", "d", {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}})
    await asyncio.sleep(20)

    await running.patch(
        "deployments", "d", {"spec": {"template": {**old, "metadata": {**old["metadata"], "annotations": None}}}}
    )
    await asyncio.sleep(20)

    assert await sizes(running) == {"2": 0, "3": 3}


async def test_recreate_ends_all_old_pods_before_it_makes_a_new_one(running: Cluster, new_deployment: New) -> None:
    await running.create(new_deployment(strategy={"type": "Recreate"}))
    await asyncio.sleep(5)
    first = set(await running.names("pods"))

    await running.patch("deployments", "d", {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}})
    mixed = False
    for _ in range(60):
        await asyncio.sleep(0.25)
        now = set(await running.names("pods"))
        mixed = mixed or bool(now & first and now - first)

    assert not mixed
    assert len(now) == 3
    assert not now & first


async def test_scaling_a_deployment_scales_its_replicaset_also_to_nothing_and_back(
    running: Cluster, new_deployment: New
) -> None:
    await running.create(new_deployment())
    await asyncio.sleep(5)
    for replicas in (5, 0, 2):
        await running.patch("deployments", "d", {"spec": {"replicas": replicas}})
        await asyncio.sleep(10)
        assert await sizes(running) == {"1": replicas}
        assert len(await running.names("pods")) == replicas


async def test_a_paused_deployment_scales_but_takes_no_new_template_until_it_is_resumed(
    running: Cluster, new_deployment: New
) -> None:
    await running.create(new_deployment())
    await asyncio.sleep(5)
    change = {"spec": {"paused": True, "replicas": 2, "template": {"metadata": {"annotations": {"v": "2"}}}}}
    await running.patch("deployments", "d", change)
    await asyncio.sleep(20)
    assert await sizes(running) == {"1": 2}
    assert condition(await running.get("deployments", "d"), "Progressing")["reason"] == "DeploymentPaused"

    await running.patch("deployments", "d", {"spec": {"paused": False}})
    await asyncio.sleep(20)

    assert await sizes(running) == {"1": 0, "2": 2}


async def test_a_rollout_that_makes_no_progress_says_so_after_its_deadline(
    cluster: Cluster, new_deployment: New
) -> None:
    await cluster.create(new_deployment(progressDeadlineSeconds=30))
    await asyncio.sleep(20)
    assert condition(await cluster.get("deployments", "d"), "Progressing")["reason"] == "ReplicaSetUpdated"

    await asyncio.sleep(20)

    progressing = condition(await cluster.get("deployments", "d"), "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "ProgressDeadlineExceeded")


async def test_old_replicasets_beyond_the_history_are_deleted(running: Cluster, new_deployment: New) -> None:
    await running.create(new_deployment(replicas=1, revisionHistoryLimit=1))
    for revision in range(2, 5):
        await asyncio.sleep(10)
        template = {"metadata": {"annotations": {"v": str(revision)}}}
        await running.patch("deployments", "d", {"spec": {"template": template}})
    await asyncio.sleep(10)

    assert await sizes(running) == {"3": 0, "4": 1}


async def test_deleting_a_deployment_takes_its_replicasets_and_pods(running: Cluster, new_deployment: New) -> None:
    await running.create(new_deployment())
    await asyncio.sleep(5)

    await running.delete("deployments", "d")
    await asyncio.sleep(10)

    assert await running.names("replicasets") == []
    assert await running.names("pods") == []
