"""Groups that state no minResources, under a quota: what their pods take is reserved as soon as it is known."""

from __future__ import annotations

import pytest

from muster.kube import errors
from muster.model import kinds, names


def group(name, member, **annotations):
    """As kube-batch's example has it: no minResources."""
    meta = {"name": name, "annotations": annotations}
    return {"kind": "PodGroup", "metadata": meta, "spec": {"minMember": member}}


def job(name, named, count, seconds="600"):
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    annotations = {names.GROUP_NAME: named, names.RUN_SECONDS: seconds}
    spec = {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never", "containers": [main]}
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    return {
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": count, "completions": count, "template": template},
    }


def pod(name, named, seconds="600"):
    template = job("", named, 1, seconds)["spec"]["template"]
    return {"kind": "Pod", "metadata": {"name": name, **template["metadata"]}, "spec": template["spec"]}


async def short(world, name):
    """The message of a group that waits for its quota."""
    found = await world.becomes(
        kinds.PODGROUPS,
        name,
        lambda one: any("short by" in each.message for each in one.status.conditions or ()),
    )
    assert found.status.phase == "Pending"
    told = next(each for each in found.status.conditions if each.status == "True")
    assert told.reason == "NotEnoughQuota"
    return told.message


async def events(world):
    return {each.reason for each in (await world.client.list(kinds.EVENTS, world.namespace)).items}


async def test_applied_when_the_group_is_known_such_a_job_is_refused(under_quota):
    await under_quota.create(group("qj", 6))
    await under_quota.becomes(kinds.PODGROUPS, "qj", lambda one: one.status.phase)

    async def refused():
        try:
            await under_quota.create(job("qj", "qj", 6))
        except errors.ForbiddenError as error:
            return error.message
        await under_quota.client.delete(kinds.JOBS, "qj", under_quota.namespace, propagation="Background")
        return ""

    message = await under_quota.until(refused)
    assert "the Job's PodGroup requests 6 requests.cpu, but" in message
    assert "4 requests.cpu hard, 0 reserved, so 4 are free: short by 2 requests.cpu" in message


async def test_a_job_that_came_before_its_group_waits_without_one_pod(under_quota):
    await under_quota.create(job("qj", "qj", 6))
    await under_quota.create(group("qj", 6))
    assert "short by 2 requests.cpu" in await short(under_quota, "qj")
    assert await under_quota.pods() == []
    assert "SuccessfulCreate" not in await events(under_quota)
    await under_quota.patch(kinds.RESOURCEQUOTAS, "team", {"spec": {"hard": {"requests.cpu": "6"}}})
    running = await under_quota.phase("qj", "Running", within=120)
    assert running.status.min_resources == {"cpu": "6", "pods": "6"}


async def test_what_such_a_group_reserved_no_other_gets(under_quota):
    await under_quota.create(job("qj", "qj", 3), group("qj", 3))
    await under_quota.phase("qj", "Running")
    spec = {"minMember": 1, "queue": "default", "minResources": {"cpu": "2"}}
    with pytest.raises(errors.ForbiddenError, match=r"3 reserved \(qj 3\)"):
        await under_quota.create({"kind": "PodGroup", "metadata": {"name": "other"}, "spec": spec})


async def test_under_the_policy_queue_it_waits_for_those_before_it(under_quota):
    late = {names.QUOTA_POLICY: names.POLICY_QUEUE}
    await under_quota.create(group("first", 3, **late), job("first", "first", 3, "1"))
    await under_quota.phase("first", "Running")
    await under_quota.create(group("second", 3, **late), job("second", "second", 3, "1"))
    await under_quota.phase("second", "Completed", within=120)


async def test_bare_pods_start_when_the_minimum_of_their_group_fits(under_quota):
    await under_quota.create(pod("alone", ""))
    await under_quota.create(group("gang", 4), *(pod(f"gang-{number}", "gang") for number in range(3)))
    assert "short by 1 requests.cpu" in await short(under_quota, "gang")
    assert not any(each.spec.node_name for each in await under_quota.pods() if each.name.startswith("gang"))
    await under_quota.client.delete(kinds.PODS, "alone", under_quota.namespace)
    await under_quota.until(lambda: created(under_quota, pod("gang-3", "gang")))
    await under_quota.phase("gang", "Running", within=120)


async def created(world, manifest):
    try:
        await world.create(manifest)
    except errors.ForbiddenError:
        return False
    return True
