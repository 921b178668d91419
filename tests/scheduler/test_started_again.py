"""Groups that were Completed and are started again: by a live pod, or by an unfinished Job. With worker and admission."""

from __future__ import annotations

import asyncio

import pytest

from muster.kube import errors
from muster.model import kinds, names


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


async def test_a_job_applied_again_under_its_old_group_runs_again(under_quota):
    await under_quota.create(group("train", 3, "3"), job("train", "train", 3))
    await under_quota.phase("train", "Completed")
    await deleted(under_quota, kinds.JOBS, "train")
    await under_quota.plane.all(kinds.PODS, under_quota.namespace, holds=lambda pods: not pods)
    await under_quota.create(job("train", "train", 3))
    await under_quota.becomes(kinds.JOBS, "train", lambda found: found.status.succeeded == 3)
    again = await under_quota.phase("train", "Completed")
    assert (again.status.succeeded, again.status.succeeded_before) == (3, 0)


async def test_the_second_step_of_a_workflow_runs_in_the_group_of_the_first(under_quota):
    await under_quota.create(group("flow", 1, "1"), pod("first", "flow"))
    await under_quota.phase("flow", "Completed")
    await under_quota.create(pod("second", "flow"))
    await under_quota.becomes(kinds.PODS, "second", lambda found: found.status.phase == "Succeeded")
    await under_quota.becomes(
        kinds.PODGROUPS, "flow", lambda found: found.status.phase == "Completed" and found.status.succeeded == 2
    )


async def test_an_operator_restarts_its_only_failed_pod_and_only_the_missing_part_is_reserved(under_quota):
    pods = [pod(f"worker-{number}", "mpi", code=code) for number, code in enumerate("001")]
    await under_quota.create(group("mpi", 3, "3"), *pods)
    before = await under_quota.phase("mpi", "Completed")
    assert (before.status.succeeded, before.status.failed) == (2, 1)
    # In the meantime others take what it held, but for the one that it needs.
    await under_quota.create(group("other", 1, "3"))
    await deleted(under_quota, kinds.PODS, "worker-2")
    await under_quota.create(pod("worker-2", "mpi", seconds="600"))
    again = await under_quota.phase("mpi", "Running")
    assert again.status.succeeded_before == 2
    # What it holds now is 1 cpu: with the 3 of the other the quota is full.
    with pytest.raises(errors.ForbiddenError, match=r"short by 1 requests\.cpu"):
        await under_quota.create(group("third", 1, "1"))


async def test_a_group_that_does_not_fit_again_stays_completed_says_so_and_starts_when_it_fits(under_quota):
    await under_quota.create(group("train", 3, "3"), job("first", "train", 3))
    await under_quota.phase("train", "Completed")
    await deleted(under_quota, kinds.JOBS, "first")
    await under_quota.plane.all(kinds.PODS, under_quota.namespace, holds=lambda pods: not pods)
    await under_quota.create(group("other", 1, "2"), job("second", "train", 3))
    condition = await told(under_quota, "train")
    assert 'quota "team" has 4 requests.cpu hard, 2 reserved (other 2)' in condition.message
    assert "short by 1 requests.cpu" in condition.message
    assert await under_quota.pods() == []
    await deleted(under_quota, kinds.PODGROUPS, "other")
    await under_quota.becomes(kinds.JOBS, "second", lambda found: found.status.succeeded == 3, within=120)


async def test_a_job_that_its_user_suspended_does_not_start_a_completed_group(under_quota):
    await under_quota.create(group("train", 1, "1"), job("first", "train", 1))
    await under_quota.phase("train", "Completed")
    held = job("second", "train", 1)
    held["spec"]["suspend"] = True
    await under_quota.create(held)
    await under_quota.rest(3)
    assert (await under_quota.group("train")).status.phase == "Completed"
    await under_quota.patch(kinds.JOBS, "second", {"spec": {"suspend": False}})
    await under_quota.becomes(kinds.JOBS, "second", lambda found: found.status.succeeded == 1)


@pytest.mark.only("sandbox", reason="how often something is told is for virtual time")
async def test_events_tell_each_phase_once_and_after_that_one_a_minute(under_quota):
    await under_quota.create(group("flow", 1, "1"))
    began = under_quota.plane.clock.now()
    for number in range(12):
        await under_quota.create(pod(f"step-{number}", "flow"))
        await under_quota.phase("flow", "Running")
        await under_quota.phase("flow", "Completed")
        await asyncio.sleep(5)
    seconds = (under_quota.plane.clock.now() - began).total_seconds()
    found = (await under_quota.client.list(kinds.EVENTS, under_quota.namespace)).items
    phases = {"Pending", "Inqueue", "Running", "Unknown", "Completed"}
    told = [each for each in found if each.involved_object["name"] == "flow" and each.reason in phases]
    assert {"Inqueue", "Running", "Completed", "Pending"} == {each.reason for each in told}
    assert sum(each.count for each in told) <= len(phases) + seconds / 60
