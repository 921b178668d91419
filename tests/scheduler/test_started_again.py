"""Groups that were Completed and are started again: by a live pod, or by an unfinished Job. With worker and admission."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from plane import Plane

from muster.kube import errors
from muster.model import kinds, names
from webhooks.compose import Options, serving
from webhooks.server import Listen

TEAM = {"kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "4"}}}


@pytest.fixture
async def admitted(world, plane: Plane):
    """The world with webhooks in front and a worker, under a quota of 4 cpu."""
    async with AsyncExitStack() as stack:
        await plane.client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}}, manager="test")
        options = Options(plane.certificate, Listen("127.0.0.1", 0, 0.0))
        server = await stack.enter_async_context(serving(await plane.connect(), plane.clock, options))
        await plane.register(server, namespace=world.namespace)
        stack.push_async_callback(plane.unregister)
        stack.push_async_callback(world.stop)
        await world.create(TEAM)
        await world.becomes(kinds.RESOURCEQUOTAS, "team", lambda quota: quota.status.hard)
        await world.node("16")
        await world.work()
        yield world


def group(name, member, cpu):
    spec = {"minMember": member, "queue": "default", "minResources": {"cpu": cpu}}
    return {"kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def template(named, seconds="1", code="0"):
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    annotations = {names.GROUP_NAME: named, names.RUN_SECONDS: seconds, names.EXIT_CODE: code}
    spec = {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never", "containers": [main]}
    return {"metadata": {"annotations": annotations}, "spec": spec}


def job(name, named, count, seconds="1"):
    spec = {"parallelism": count, "completions": count, "template": template(named, seconds)}
    return {"kind": "Job", "metadata": {"name": name}, "spec": spec}


def pod(name, named, seconds="1", code="0"):
    made = template(named, seconds, code)
    return {"kind": "Pod", "metadata": {"name": name, **made["metadata"]}, "spec": made["spec"]}


async def deleted(world, kind, name):
    await world.client.delete(kind, name, world.namespace, propagation="Background")
    await world.plane.until(kind, name, world.namespace, lambda found: found is None)


async def told(world, name):
    """The condition of a group that is Completed and would be started again."""
    found = await world.becomes(
        kinds.PODGROUPS,
        name,
        lambda one: any(each.reason == "NotEnoughQuota" and each.status == "True" for each in one.status.conditions),
    )
    assert found.status.phase == "Completed"
    return next(each for each in found.status.conditions if each.status == "True")


async def test_a_job_applied_again_under_its_old_group_runs_again(admitted):
    await admitted.create(group("train", 3, "3"), job("train", "train", 3))
    await admitted.phase("train", "Completed")
    await deleted(admitted, kinds.JOBS, "train")
    await admitted.plane.all(kinds.PODS, admitted.namespace, holds=lambda pods: not pods)
    await admitted.create(job("train", "train", 3))
    await admitted.becomes(kinds.JOBS, "train", lambda found: found.status.succeeded == 3)
    again = await admitted.phase("train", "Completed")
    assert (again.status.succeeded, again.status.succeeded_before) == (3, 0)


async def test_the_second_step_of_a_workflow_runs_in_the_group_of_the_first(admitted):
    await admitted.create(group("flow", 1, "1"), pod("first", "flow"))
    await admitted.phase("flow", "Completed")
    await admitted.create(pod("second", "flow"))
    await admitted.becomes(kinds.PODS, "second", lambda found: found.status.phase == "Succeeded")
    await admitted.becomes(
        kinds.PODGROUPS, "flow", lambda found: found.status.phase == "Completed" and found.status.succeeded == 2
    )


async def test_an_operator_restarts_its_only_failed_pod_and_only_the_missing_part_is_reserved(admitted):
    pods = [pod(f"worker-{number}", "mpi", code=code) for number, code in enumerate("001")]
    await admitted.create(group("mpi", 3, "3"), *pods)
    before = await admitted.phase("mpi", "Completed")
    assert (before.status.succeeded, before.status.failed) == (2, 1)
    # In the meantime others take what it held, but for the one that it needs.
    await admitted.create(group("other", 1, "3"))
    await deleted(admitted, kinds.PODS, "worker-2")
    await admitted.create(pod("worker-2", "mpi", seconds="600"))
    again = await admitted.phase("mpi", "Running")
    assert again.status.succeeded_before == 2
    # What it holds now is 1 cpu: with the 3 of the other the quota is full.
    with pytest.raises(errors.ForbiddenError, match=r"short by 1 requests\.cpu"):
        await admitted.create(group("third", 1, "1"))


async def test_a_group_that_does_not_fit_again_stays_completed_says_so_and_starts_when_it_fits(admitted):
    await admitted.create(group("train", 3, "3"), job("first", "train", 3))
    await admitted.phase("train", "Completed")
    await deleted(admitted, kinds.JOBS, "first")
    await admitted.plane.all(kinds.PODS, admitted.namespace, holds=lambda pods: not pods)
    await admitted.create(group("other", 1, "2"), job("second", "train", 3))
    condition = await told(admitted, "train")
    assert 'quota "team" has 4 requests.cpu hard, 2 reserved (other 2)' in condition.message
    assert "short by 1 requests.cpu" in condition.message
    assert await admitted.pods() == []
    await deleted(admitted, kinds.PODGROUPS, "other")
    await admitted.becomes(kinds.JOBS, "second", lambda found: found.status.succeeded == 3, within=120)


async def test_a_job_that_its_user_suspended_does_not_start_a_completed_group(admitted):
    await admitted.create(group("train", 1, "1"), job("first", "train", 1))
    await admitted.phase("train", "Completed")
    held = job("second", "train", 1)
    held["spec"]["suspend"] = True
    await admitted.create(held)
    await admitted.rest(3)
    assert (await admitted.group("train")).status.phase == "Completed"
    await admitted.patch(kinds.JOBS, "second", {"spec": {"suspend": False}})
    await admitted.becomes(kinds.JOBS, "second", lambda found: found.status.succeeded == 1)


@pytest.mark.only("sandbox", reason="how often something is told is for virtual time")
async def test_events_tell_each_phase_once_and_after_that_one_a_minute(admitted):
    await admitted.create(group("flow", 1, "1"))
    began = admitted.plane.clock.now()
    for number in range(12):
        await admitted.create(pod(f"step-{number}", "flow"))
        await admitted.phase("flow", "Running")
        await admitted.phase("flow", "Completed")
        await asyncio.sleep(5)
    seconds = (admitted.plane.clock.now() - began).total_seconds()
    found = (await admitted.client.list(kinds.EVENTS, admitted.namespace)).items
    phases = {"Pending", "Inqueue", "Running", "Unknown", "Completed"}
    told = [each for each in found if each.involved_object["name"] == "flow" and each.reason in phases]
    assert {"Inqueue", "Running", "Completed", "Pending"} == {each.reason for each in told}
    assert sum(each.count for each in told) <= len(phases) + seconds / 60
