"""Jobs through the API, with nodes that run their pods and without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

Cluster = Any
NewJob = Callable[..., dict[str, Any]]


def conditions(job: Any) -> dict[str, str]:
    return {each["type"]: each["status"] for each in job["status"].get("conditions", ())}


async def test_a_job_runs_on_simulated_nodes_to_its_end(running: Cluster, new_job: NewJob) -> None:
    await running.create(new_job(parallelism=2, completions=3))
    await asyncio.sleep(30)

    job = await running.get("jobs", "j")
    assert conditions(job) == {"SuccessCriteriaMet": "True", "Complete": "True"}
    assert job["status"]["succeeded"] == 3
    assert "active" not in job["status"]
    pods = await running.list("pods", "default")
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded"] * 3
    assert not any("finalizers" in pod["metadata"] for pod in pods), "all are counted"
    reasons = [reason for reason, _ in await running.events("j")]
    assert sorted(reasons) == ["Completed", "SuccessfulCreate", "SuccessfulCreate", "SuccessfulCreate"]


async def test_the_pods_of_a_job_are_named_labelled_owned_and_tracked(cluster: Cluster, new_job: NewJob) -> None:
    job = await cluster.create(new_job())
    await asyncio.sleep(2)

    (pod,) = await cluster.list("pods", "default")
    metadata, uid = pod["metadata"], job["metadata"]["uid"]
    assert metadata["name"].startswith("j-")
    assert len(metadata["name"]) == len("j-") + 5
    assert metadata["labels"]["batch.kubernetes.io/job-name"] == metadata["labels"]["job-name"] == "j"
    assert metadata["labels"]["batch.kubernetes.io/controller-uid"] == uid
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert metadata["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert (await cluster.get("jobs", "j"))["status"] == {
        "active": 1,
        "ready": 0,
        "startTime": "2026-11-21T12:00:00Z",
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }


async def test_suspending_a_running_job_takes_its_pods_and_resuming_makes_new_ones(
    running: Cluster, new_job: NewJob
) -> None:
    await running.create(new_job(parallelism=2, completions=2, annotations={"sandbox.muster.sh/run-seconds": "60"}))
    await asyncio.sleep(10)
    first = await running.names("pods")
    assert (await running.get("jobs", "j"))["status"]["ready"] == 2

    await running.patch("jobs", "j", {"spec": {"suspend": True}})
    await asyncio.sleep(10)
    assert await running.names("pods") == []
    job = await running.get("jobs", "j")
    assert conditions(job) == {"Suspended": "True"}
    assert {"startTime", "active", "failed"}.isdisjoint(job["status"])

    await running.patch("jobs", "j", {"spec": {"suspend": False}})
    await asyncio.sleep(10)
    second = await running.names("pods")
    assert len(second) == 2
    assert not set(first) & set(second)
    reasons = [reason for reason, _ in await running.events("j")]
    assert [reason for reason in reasons if reason in {"Suspended", "Resumed"}] == ["Suspended", "Resumed"]
    assert reasons.count("SuccessfulDelete") == 2


async def test_a_job_that_is_made_suspended_gets_no_pod_until_it_is_released(cluster: Cluster, new_job: NewJob) -> None:
    await cluster.create(new_job(suspend=True))
    await asyncio.sleep(100)
    assert await cluster.names("pods") == []

    await cluster.patch("jobs", "j", {"spec": {"suspend": False}})
    await asyncio.sleep(1)

    assert len(await cluster.names("pods")) == 1


async def test_pods_that_fail_are_replaced_until_the_backoff_limit(running: Cluster, new_job: NewJob) -> None:
    await running.create(new_job(backoffLimit=2, annotations={"sandbox.muster.sh/exit-code": "1"}))
    await asyncio.sleep(600)

    job = await running.get("jobs", "j")
    assert job["status"]["failed"] == 3
    assert conditions(job)["Failed"] == "True"
    assert len(await running.names("pods")) == 3
    assert ("BackoffLimitExceeded", "Job has reached the specified backoff limit") in await running.events("j")


async def test_a_container_that_fails_is_restarted_in_its_pod_where_the_policy_says_so(
    running: Cluster, new_job: NewJob
) -> None:
    await running.create(new_job(policy="OnFailure", backoffLimit=2, annotations={"sandbox.muster.sh/exit-code": "1"}))
    await asyncio.sleep(10)
    (pod,) = await running.list("pods", "default")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1

    await asyncio.sleep(600)

    assert conditions(await running.get("jobs", "j"))["Failed"] == "True"


async def test_a_job_past_its_deadline_fails_with_its_pods_stopped(cluster: Cluster, new_job: NewJob) -> None:
    await cluster.create(new_job(activeDeadlineSeconds=30, parallelism=2, completions=2))
    await asyncio.sleep(29)
    assert len(await cluster.names("pods")) == 2

    await asyncio.sleep(5)

    assert await cluster.names("pods") == []
    job = await cluster.get("jobs", "j")
    assert conditions(job)["Failed"] == "True"
    assert job["status"]["failed"] == 2


async def test_a_finished_job_goes_with_its_pods_when_its_time_to_live_is_over(
    running: Cluster, new_job: NewJob
) -> None:
    await running.create(new_job(ttlSecondsAfterFinished=20))
    await asyncio.sleep(20)
    assert await running.get("jobs", "j") is not None

    await asyncio.sleep(20)

    assert await running.get("jobs", "j") is None
    assert await running.names("pods") == []


async def test_a_full_quota_refuses_pods_with_an_event_and_longer_pauses(cluster: Cluster, new_job: NewJob) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "1"}},
    }
    await cluster.create(quota)
    await asyncio.sleep(1)
    await cluster.create(new_job(parallelism=3, completions=3))
    await asyncio.sleep(8)

    assert len(await cluster.names("pods")) == 1
    assert (await cluster.get("jobs", "j"))["status"]["active"] == 1
    refusals = [message for reason, message in await cluster.events("j") if reason == "FailedCreate"]
    assert len(refusals) == 2 + 3, "two at once beside the one that was made, then one after 1, 3 and 7 seconds"
    assert all(text.startswith('Error creating: pods "j-') for text in refusals)
    limit = "is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"
    assert all(text.endswith(limit) for text in refusals)


async def test_a_job_goes_on_when_its_quota_has_room_again(running: Cluster, new_job: NewJob) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "1"}},
    }
    await running.create(quota)
    await asyncio.sleep(1)
    await running.create(new_job(parallelism=3, completions=3))

    await asyncio.sleep(120)

    assert conditions(await running.get("jobs", "j"))["Complete"] == "True"


async def test_deleting_a_job_in_the_background_takes_its_pods_too(cluster: Cluster, new_job: NewJob) -> None:
    await cluster.create(new_job(parallelism=3, completions=3))
    await asyncio.sleep(2)
    await cluster.delete("jobs", "j")
    assert await cluster.get("jobs", "j") is None

    await asyncio.sleep(2)

    assert await cluster.names("pods") == []


async def test_an_orphaned_pod_of_a_job_loses_its_owner_and_its_finalizer(cluster: Cluster, new_job: NewJob) -> None:
    await cluster.create(new_job())
    await asyncio.sleep(2)
    await cluster.delete("jobs", "j", propagation="Orphan")
    await asyncio.sleep(2)

    assert await cluster.get("jobs", "j") is None
    (pod,) = await cluster.list("pods", "default")
    assert "ownerReferences" not in pod["metadata"]
    assert "finalizers" not in pod["metadata"]


async def test_a_job_of_another_controller_is_left_alone(cluster: Cluster, new_job: NewJob) -> None:
    await cluster.create(new_job(managedBy="kueue.x-k8s.io/multikueue"))
    await asyncio.sleep(60)
    assert await cluster.names("pods") == []


async def test_the_pods_of_a_large_job_are_made_and_counted_once_each_with_few_events(
    cluster: Cluster, new_job: NewJob
) -> None:
    await cluster.create(new_job(parallelism=600, completions=600))
    await asyncio.sleep(5)
    assert (await cluster.get("jobs", "j"))["status"]["active"] == 600
    for name in await cluster.names("pods"):
        await cluster.end(name)
    await asyncio.sleep(60)

    job = await cluster.get("jobs", "j")
    assert job["status"]["succeeded"] == 600
    assert conditions(job)["Complete"] == "True"
    assert len(await cluster.names("pods")) == 600
    assert len(await cluster.events("j")) <= 25, "what one object gets at once"
