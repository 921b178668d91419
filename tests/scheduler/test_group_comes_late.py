"""Workloads and the PodGroup that they name, applied in either order, as examples of kube-batch have it."""

from __future__ import annotations

import pytest
from workloads import group, reason, said

from muster.model import kinds, names

KINDS = ("Deployment", "StatefulSet", "Job")
ONE_ON_BOTH = (
    KINDS[0],
    *(pytest.param(kind, marks=pytest.mark.only("sandbox", reason="one kind will do there")) for kind in KINDS[1:]),
)


def workload(kind, name, named, count):
    labels = {"app": name}
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [main]}
    meta = {"labels": labels, "annotations": {names.GROUP_NAME: named, names.RUN_SECONDS: "600"}}
    template = {"metadata": meta, "spec": spec}
    if kind == "Job":
        spec["restartPolicy"] = "Never"
        body = {"parallelism": count, "completions": count, "template": template}
    else:
        body = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        body |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": body}


ABSENT = "PodGroup web does not exist: create it, or remove the annotation scheduling.k8s.io/group-name"


async def told(world, kind, reason):
    """The messages of events of that reason about objects of a kind."""
    events = (await world.client.list(kinds.EVENTS, world.namespace)).items
    return [each.message for each in events if (each.involved_object["kind"], each.reason) == (kind, reason)]


async def has_nodes(world, count):
    return sum(bool(pod.spec.node_name) for pod in await world.pods()) == count


@pytest.mark.parametrize("kind", ONE_ON_BOTH)
async def test_a_workload_whose_group_was_there_before_starts(under_quota, kind):
    await under_quota.create(group("web", minMember=3, queue="default"), workload(kind, "web", "web", 3))
    await under_quota.phase("web", "Running", within=120)
    assert await has_nodes(under_quota, 3)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_workload_that_came_before_its_group_is_told_so_and_starts_when_the_group_comes(under_quota, kind):
    await under_quota.create(workload(kind, "web", "web", 3))

    async def all_told():
        found = await (
            told(under_quota, "Job", "Held") if kind == "Job" else told(under_quota, "Pod", "FailedScheduling")
        )
        return found == [ABSENT] * (1 if kind == "Job" else 3)

    await under_quota.until(all_told, within=60)
    assert await has_nodes(under_quota, 0)
    await under_quota.create(group("web", minMember=3, queue="default"))
    await under_quota.phase("web", "Running", within=120)
    assert await has_nodes(under_quota, 3)


@pytest.mark.parametrize("kind", ONE_ON_BOTH)
async def test_where_its_group_does_not_fit_a_workload_that_came_before_it_waits_whole(under_quota, kind):
    await under_quota.create(workload(kind, "web", "web", 6))
    await under_quota.rest(5)
    await under_quota.create(group("web", minMember=6, queue="default"))
    waiting = await under_quota.becomes(kinds.PODGROUPS, "web", lambda one: "short by" in said(one), within=60)
    assert (waiting.status.phase, reason(waiting)) == ("Pending", "NotEnoughQuota")
    assert said(waiting).endswith("short by 2 requests.cpu; lower spec.minResources or raise the quota")
    assert await has_nodes(under_quota, 0)
    await under_quota.patch(kinds.RESOURCEQUOTAS, "team", {"spec": {"hard": {"requests.cpu": "6"}}})
    await under_quota.phase("web", "Running", within=180)
    assert await has_nodes(under_quota, 6)


NATIVE = (
    "PodGroup workers of scheduling.k8s.io (spec.schedulingGroup) is not evaluated, and the pod waits: the API server does not"
    " serve scheduling.k8s.io/v1beta1 podgroups; serve it, or create the pod without spec.schedulingGroup"
)


@pytest.mark.only(
    "sandbox", reason="the real server drops spec.schedulingGroup where its feature gate is off, as it is by default"
)
@pytest.mark.parametrize("kind", KINDS)
async def test_pods_in_a_group_of_kubernetes_own_that_is_not_served_wait_and_are_told_so(under_quota, kind):
    made = workload(kind, "web", "", 2)
    template = made["spec"]["template"]
    template["spec"]["schedulingGroup"] = {"podGroupName": "workers"}
    del template["metadata"]["annotations"][names.GROUP_NAME]
    await under_quota.create(made)

    async def all_told():
        return await told(under_quota, "Pod", "FailedScheduling") == [NATIVE] * 2

    await under_quota.until(all_told, within=60)
    await under_quota.rest(30)
    assert await has_nodes(under_quota, 0)
    assert await told(under_quota, "Pod", "FailedScheduling") == [NATIVE] * 2
    assert (await under_quota.client.list(kinds.PODGROUPS, under_quota.namespace)).items == ()


@pytest.mark.only(
    "sandbox", reason="the real server drops spec.schedulingGroup where its feature gate is off, as it is by default"
)
async def test_pods_that_name_a_group_of_muster_too_are_in_that_one(under_quota):
    made = workload("Deployment", "web", "web", 3)
    made["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "workers"}
    await under_quota.create(group("web", minMember=3, queue="default"), made)
    await under_quota.phase("web", "Running", within=120)
    assert await has_nodes(under_quota, 3)
