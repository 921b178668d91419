"""The story of the README, with a worker alone: what admission would have written is there already."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muster.model import kinds, names

SIX = 6


def job(annotations: dict[str, str], *, on_template: bool, run_seconds: str = "2") -> dict[str, Any]:
    """A Job of six pods of 1 cpu each, as the mutating webhook stores it."""
    template = {**(annotations if on_template else {}), names.RUN_SECONDS: run_seconds}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "default",
            "annotations": {names.SUSPENDED: "true", **({} if on_template else annotations)},
        },
        "spec": {
            "parallelism": SIX,
            "completions": SIX,
            "suspend": True,
            "template": {
                "metadata": {"annotations": template},
                "spec": {
                    "schedulerName": names.SCHEDULER_NAME,
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
                },
            },
        },
    }


GROUP = {
    "apiVersion": kinds.PODGROUPS.api_version,
    "kind": "PodGroup",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {"minMember": SIX, "queue": "default"},
}


@pytest.mark.parametrize("named", [True, False], ids=["a PodGroup named by the pods", "only an annotation"])
async def test_a_gang_waits_whole_until_a_node_joins_and_then_runs_whole(world, named):
    await world.node("4")
    await world.work()
    if named:
        await world.create(GROUP, job({names.GROUP_NAME: "train"}, on_template=True))
        group = "train"
    else:
        await world.create(job({names.GROUP_MIN_MEMBER: "6"}, on_template=False))
        group = f"podgroup-{(await world.job('train')).metadata.uid}"

    # Before the Job and the queue are seen it says so; that is not what it waits for.
    waiting = await world.becomes(
        kinds.PODGROUPS,
        group,
        lambda found: found.status.conditions and found.status.conditions[0].reason == "NotEnoughResources",
    )
    assert waiting.status.phase == "Pending"
    condition = waiting.status.conditions[0]
    assert (condition.type, condition.status) == ("Unschedulable", "True")
    assert condition.message == "6 pods need 6 cpu; 4 cpu are free in the cluster: short by 2 cpu"
    assert condition.transition_id
    assert waiting.spec.min_member == SIX
    assert await world.pods() == []
    assert (await world.job("train")).spec.suspend

    await world.node("4")
    running = await world.phase(group, "Running")
    bound = await world.pods()
    assert len(bound) == SIX
    assert all(pod.spec.node_name for pod in bound)
    assert not (await world.job("train")).spec.suspend
    assert {each.type: each.status for each in running.status.conditions} == {
        "Unschedulable": "False",
        "Scheduled": "True",
    }

    done = await world.phase(group, "Completed")
    assert (done.status.running, done.status.succeeded, done.status.failed) == (0, SIX, 0)


@pytest.mark.only("sandbox", reason="that nothing happens is shown by waiting, which only virtual time gives")
async def test_an_idle_cluster_sees_no_writes(world):
    await world.node("4")
    await world.work()
    await world.create(job({names.GROUP_MIN_MEMBER: "6"}, on_template=False))
    await asyncio.sleep(60)
    versions = {
        (str(kind), each.name): each.metadata.resource_version
        for kind in (kinds.PODGROUPS, kinds.QUEUES, kinds.JOBS)
        for each in (await world.client.list(kind)).items
    }
    await asyncio.sleep(120)
    after = {
        (str(kind), each.name): each.metadata.resource_version
        for kind in (kinds.PODGROUPS, kinds.QUEUES, kinds.JOBS)
        for each in (await world.client.list(kind)).items
    }
    assert after == versions
    assert len(versions) > 2
