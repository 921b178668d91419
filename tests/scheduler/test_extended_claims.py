"""Pods that request what a class of devices stands for: the claim that is made for them before they are bound, and deleted where they aren't."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from plane import PATIENCE

from muster.kube.cache import ObjectCache
from muster.model import kinds, names
from scheduler.leader.device_binder import DeviceBinder
from scheduler.model.claims import DELETE_PROTECTION, ChosenDevices
from scheduler.model.devices import DeviceId, Placement
from scheduler.model.extended_resources import key_of

beside = pytest.mark.only(
    "kubernetes", reason="cycles with devices are decided in a thread, which virtual time doesn't wait for"
)


class Extended:
    """A class that stands for a resource, with the devices of a driver: all names are the world's own."""

    def __init__(self, world):
        self.world = world
        self.driver = f"{world.plane.unique('gpu')}.example.com"
        self.device_class = world.plane.unique("gpu")
        self.resource = f"{self.driver}/gpu"

    async def publish(self, *devices):
        selectors = [{"cel": {"expression": f"device.driver == '{self.driver}'"}}]
        stated = {"selectors": selectors, "extendedResourceName": self.resource}
        await self.world.plane.create(kinds.DEVICECLASSES, {"metadata": {"name": self.device_class}, "spec": stated})
        pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
        offered = [{"name": each} for each in devices]
        spec = {"driver": self.driver, "pool": pool, "allNodes": True, "devices": offered}
        await self.world.plane.create(kinds.RESOURCESLICES, {"metadata": {"name": self.driver}, "spec": spec})

    async def gang(self, *pods, count=1):
        amounts = {self.resource: str(count)}
        resources = {"requests": {"cpu": "100m", **amounts}, "limits": amounts}
        group = {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": len(pods), "queue": "default"}}
        made = [
            {
                "kind": "Pod",
                "metadata": {"name": name, "annotations": {names.GROUP_NAME: "g"}},
                "spec": {
                    "schedulerName": names.SCHEDULER_NAME,
                    "containers": [{"name": "main", "image": "busybox", "resources": resources}],
                },
            }
            for name in pods
        ]
        await self.world.create(group, *made)

    async def claims(self):
        return (await self.world.client.page(kinds.RESOURCECLAIMS, self.world.namespace)).items


@pytest.fixture
async def extended(world):
    await world.node("4")
    return Extended(world)


@beside
async def test_a_gang_is_bound_once_its_claims_are_made_and_allocated(world, extended):
    await extended.publish("d1", "d2", "d3", "d4")
    await world.work()
    await extended.gang("p1", "p2", count=2)
    bound = {each: await world.becomes(kinds.PODS, each, lambda pod: pod.spec.node_name) for each in ("p1", "p2")}
    claims = {each.metadata.controller().uid: each for each in await extended.claims()}
    assert len(claims) == 2
    given = []
    for name, pod in bound.items():
        claim = claims[pod.metadata.uid]
        assert claim.name.startswith(f"{name}-extended-resources-")
        assert DELETE_PROTECTION in claim.metadata.finalizers
        assert [each["uid"] for each in claim.status.reserved_for] == [pod.metadata.uid]
        given += [each["device"] for each in claim.status.allocation["devices"]["results"]]
    assert sorted(given) == ["d1", "d2", "d3", "d4"]


@beside
async def test_a_gang_that_lacks_a_device_has_no_claim_made(world, extended):
    await extended.publish("d1")
    await world.work()
    await extended.gang("p1", "p2")
    await world.becomes(
        kinds.PODGROUPS,
        "g",
        lambda group: any(f"short by 1 {extended.resource}" in each.message for each in group.status.conditions or ()),
    )
    assert not await extended.claims()


@beside
async def test_a_bind_that_is_refused_is_tried_again_with_the_same_claim(world, extended):
    await extended.publish("d1", "d2")
    refused = []

    def refuse_first(request):
        first = request.path.endswith("/binding") and not refused
        refused.extend([request] * first)
        return first

    world.line.refuse = refuse_first
    await world.work()
    await extended.gang("p")
    bound = await world.becomes(kinds.PODS, "p", lambda pod: pod.spec.node_name)
    assert refused
    (claim,) = await extended.claims()
    assert [each["uid"] for each in claim.status.reserved_for] == [bound.metadata.uid]


async def test_a_claim_that_was_made_is_deleted_where_the_pod_got_no_node(world, extended):
    await extended.publish("d1")
    await extended.gang("p")
    pod = await world.client.get(kinds.PODS, "p", world.namespace)
    existing, classes = ObjectCache(), ObjectCache()
    classes.put(await world.client.get(kinds.DEVICECLASSES, extended.device_class))
    binder = DeviceBinder(world.client, existing, classes)
    devices = ((extended.resource, DeviceId(extended.driver, "pool", "d1"), False),)
    choice = ChosenDevices(key_of(world.namespace, pod.metadata.uid), "", Placement(everywhere=True), devices)
    task = SimpleNamespace(name="p", namespace=world.namespace, uid=pod.metadata.uid)
    bind = SimpleNamespace(task=task, node="n", devices=(choice,))

    async def follow():
        while True:
            page = await world.client.page(kinds.RESOURCECLAIMS, world.namespace)
            for claim in page.items:
                existing.put(claim)
            existing.advance(page.resource_version)
            await asyncio.sleep(0.01)

    following = asyncio.create_task(follow())
    try:
        async with asyncio.timeout(PATIENCE):
            assert await binder.prepare(bind)
            (claim,) = await extended.claims()
            assert [each["device"] for each in claim.status.allocation["devices"]["results"]] == ["d1"]
            await binder.undo(bind)
    finally:
        following.cancel()
    assert not await extended.claims()
