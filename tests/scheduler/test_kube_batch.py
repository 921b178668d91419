"""What was written for kube-batch, unchanged: its two API groups, its scheduler's name, its annotations."""

from __future__ import annotations

from typing import Any

import pytest

from muster.kube import errors
from muster.model import kinds, names

GROUPS = {kind.group: kind for kind in kinds.LEGACY_PODGROUPS}


def classic(kind: Any, minimum: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """kube-batch's first example: a Job of six pods of one cpu, and the group that they name."""
    container = {"name": "qj-1", "image": "busybox", "resources": {"requests": {"cpu": 1}}}
    template = {
        "metadata": {"annotations": {"scheduling.k8s.io/group-name": "qj-1"}},
        "spec": {"containers": [container], "restartPolicy": "Never", "schedulerName": "kube-batch"},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "qj-1"},
        "spec": {"backoffLimit": 6, "completions": 6, "parallelism": 6, "template": template},
    }
    group = {
        "apiVersion": kind.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "qj-1"},
        "spec": {"minMember": minimum},
    }
    return job, group


@pytest.fixture
async def drop_in(world: Any) -> Any:
    """A world with kube-batch's kinds, and a worker that serves kube-batch's pods."""
    await world.plane.legacy_apis()
    await world.node("2")
    await world.node("2")
    await world.work(schedulers=("muster", "kube-batch"), legacy_apis=True)
    return world


def shortage(found: Any) -> str:
    return next((each.message for each in found.status.conditions or () if each.status == "True"), "")


@pytest.mark.parametrize("group", GROUPS)
async def test_of_six_pods_on_four_cpus_that_have_to_start_together_none_runs(drop_in, group):
    kind = GROUPS[group]
    job, podgroup = classic(kind, 6)
    await drop_in.client.create(kind, podgroup, drop_in.namespace)
    await drop_in.create(job)
    await drop_in.becomes(kind, "qj-1", lambda one: shortage(one).endswith("short by 2 cpu"))
    # Its pods are taken back before any of them runs: the Job waits, suspended.
    await drop_in.plane.all(kinds.PODS, drop_in.namespace, holds=lambda pods: not pods)
    assert (await drop_in.job("qj-1")).spec.suspend
    # What is written is written to the group that the user made; there is no other.
    assert not (await drop_in.client.list(kinds.PODGROUPS, drop_in.namespace)).items
    await drop_in.node("2")
    running = await drop_in.becomes(kind, "qj-1", lambda one: one.status.phase == "Running")
    assert running.status.running + running.status.succeeded == 6


@pytest.mark.parametrize("group", GROUPS)
async def test_with_a_minimum_of_one_four_of_them_run_at_a_time(drop_in, group):
    kind = GROUPS[group]
    job, podgroup = classic(kind, 1)
    job["spec"]["template"]["metadata"]["annotations"]["sandbox.muster.sh/run-seconds"] = "100000"
    await drop_in.client.create(kind, podgroup, drop_in.namespace)
    await drop_in.create(job)

    def four_of_six(pods: Any) -> bool:
        return len(pods) == 6 and sum(each.status.phase == "Running" for each in pods) == 4

    # Without admission its first pods may be taken back, as above, just when some of them have begun to run.
    await drop_in.plane.all(kinds.PODS, drop_in.namespace, holds=four_of_six)
    await drop_in.becomes(kind, "qj-1", lambda one: one.status.running == 4)
    assert (await drop_in.client.get(kind, "qj-1", drop_in.namespace)).status.phase == "Running"


async def test_pods_that_carry_only_the_annotation_get_a_group_of_the_primary_kind(drop_in):
    template = {
        "schedulerName": "kube-batch",
        "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
    }
    meta = {"name": "shadow", "annotations": {names.GROUP_MIN_MEMBER: "1"}}
    await drop_in.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template})
    pod = await drop_in.becomes(kinds.PODS, "shadow", lambda one: one.spec.node_name)
    await drop_in.phase(f"podgroup-{pod.metadata.uid}", "Running")


async def test_its_queue_default_is_an_alias_and_its_other_queues_are_queues(drop_in):
    for legacy in kinds.LEGACY_QUEUES:
        await drop_in.plane.create(legacy, {"metadata": {"name": "test"}, "spec": {"weight": 1}})
        for name in ("default", "test"):
            await drop_in.becomes(legacy, name, lambda one: one.status.state == "Open")
    primary = await drop_in.client.get(kinds.QUEUES, "default")
    assert primary.status.state == "Open"
    with pytest.raises(errors.NotFoundError):
        await drop_in.client.get(kinds.QUEUES, "test")
