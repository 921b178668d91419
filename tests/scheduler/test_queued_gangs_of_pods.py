"""The policy Queue and gangs of bare pods: what a gang that can never start would hold."""

from __future__ import annotations

from muster.kube import errors
from muster.model import kinds, names

WORDS = (
    'exceeded quota: PodGroup "big" requests 6 requests.cpu, but quota "team" has 4 requests.cpu hard: short by 2'
    " requests.cpu; lower what its pods request or raise the quota"
)


def group(name, member, **spec):
    meta = {"name": name, "annotations": {names.QUOTA_POLICY: names.POLICY_QUEUE}}
    return {"kind": "PodGroup", "metadata": meta, "spec": {"minMember": member, "queue": "default"} | spec}


def pod(name, named):
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never", "containers": [main]}
    annotations = {names.GROUP_NAME: named, names.RUN_SECONDS: "600"}
    return {"kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


async def refusal(world, made):
    """Return the words that a pod is refused with; nothing, and no pod, where it is admitted."""
    try:
        await world.create(made)
    except errors.ForbiddenError as error:
        return error.message
    await world.client.delete(kinds.PODS, made["metadata"]["name"], world.namespace)
    return ""


async def test_pods_of_a_group_larger_than_the_quota_are_refused_and_others_start(under_quota):
    await under_quota.create(group("big", 6, minResources={"cpu": "6"}))
    # The namespace's pods are checked once its label is there, a moment after its first group.
    await under_quota.becomes(kinds.PODGROUPS, "big", lambda one: one.status.conditions)
    message = await under_quota.until(lambda: refusal(under_quota, pod("big-0", "big")))
    assert message.endswith(WORDS)
    await under_quota.create(group("small", 4, minResources={"cpu": "4"}))
    await under_quota.create(*[pod(f"small-{number}", "small") for number in range(4)])
    await under_quota.phase("small", "Running")


async def test_once_the_quota_is_raised_its_pods_are_admitted_and_start(under_quota):
    await under_quota.create(group("big", 6, minResources={"cpu": "6"}))
    await under_quota.until(lambda: refusal(under_quota, pod("big-0", "big")))
    await under_quota.patch(kinds.RESOURCEQUOTAS, "team", {"spec": {"hard": {"requests.cpu": "6"}}})

    async def admitted():
        return not await refusal(under_quota, pod("probe", "big"))

    await under_quota.until(admitted)
    for number in range(6):
        await under_quota.until(lambda: created(under_quota, pod(f"big-{number}", "big")))  # noqa: B023
    await under_quota.phase("big", "Running", within=120)


async def created(world, made):
    try:
        await world.create(made)
    except errors.ForbiddenError:
        return False
    return True
