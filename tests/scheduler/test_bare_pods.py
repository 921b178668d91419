"""Pods outside every group, under a quota: each is counted once, while its own group is being made too."""

from __future__ import annotations

from muster.kube import errors
from muster.model import kinds, names


def pod(name, cpu):
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "annotations": {names.RUN_SECONDS: "600"}}
    return {"kind": "Pod", "metadata": metadata, "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [main]}}


async def test_as_many_as_the_quota_has_room_for_are_admitted_and_start(under_quota):
    for number in range(4):
        await under_quota.create(pod(f"pod-{number}", "1"))

    async def all_run():
        return [each.spec.node_name for each in await under_quota.pods()].count("") == 0

    await under_quota.until(all_run)


async def test_one_that_takes_the_whole_quota_starts(under_quota):
    await under_quota.create(pod("whole", "4"))

    async def runs():
        return all(each.spec.node_name for each in await under_quota.pods())

    await under_quota.until(runs)


async def test_those_that_are_being_deleted_are_told_apart_in_a_refusal(under_quota):
    held = pod("held", "4")
    held["metadata"]["finalizers"] = ["example.com/held"]
    held["spec"]["schedulerName"] = "default-scheduler"
    await under_quota.create(held)
    await under_quota.until(lambda: _refused(under_quota, "4 used by other pods, so none is free"))
    await under_quota.client.delete(kinds.PODS, "held", under_quota.namespace)
    try:
        await under_quota.until(lambda: _refused(under_quota, "4 used by other pods (4 by pods that are being deleted"))
    finally:
        await under_quota.patch(kinds.PODS, "held", {"metadata": {"finalizers": None}})


async def _refused(world, words):
    """Whether one more group is refused in these words; none is made."""
    group = {"metadata": {"name": "late"}, "spec": {"minMember": 1, "minResources": {"cpu": "1"}}}
    try:
        await world.client.create(kinds.PODGROUPS, group, world.namespace, dry_run=True)
    except errors.ForbiddenError as error:
        return words in error.message
    return False
