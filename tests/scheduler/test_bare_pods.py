"""Pods outside every group, under a quota: each is counted once, while its own group is being made too."""

from __future__ import annotations

from muster.model import names


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
