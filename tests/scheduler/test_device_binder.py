"""Pods with resource claims on a control plane that has them: what is written before the binding, and what is undone with it."""

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
from scheduler.model.pod_claims import ResourceClaimKey

pytestmark = pytest.mark.only("kubernetes", reason="the sandbox has no resource claims")


@pytest.fixture
async def devices(world):
    await world.node("4")
    return Devices(world)


class Devices:
    """A driver's slices, by hand: all names are the world's own."""

    def __init__(self, world):
        self.world = world
        self.driver = f"{world.plane.unique('gpu')}.example.com"
        self.device_class = world.plane.unique("gpu")

    async def publish(self, *devices):
        await self.world.plane.create(
            kinds.DEVICECLASSES,
            {
                "metadata": {"name": self.device_class},
                "spec": {
                    "selectors": [{"cel": {"expression": f"device.driver == '{self.driver}'"}}],
                    "config": [{"opaque": {"driver": self.driver, "parameters": {"apiVersion": "x/v1", "kind": "X"}}}],
                },
            },
        )
        pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
        stated = [{"name": each} for each in devices]
        spec = {"driver": self.driver, "pool": pool, "allNodes": True, "devices": stated}
        await self.world.plane.create(kinds.RESOURCESLICES, {"metadata": {"name": self.driver}, "spec": spec})

    async def claim(self, name):
        request = {"name": "r", "exactly": {"deviceClassName": self.device_class}}
        body = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
        await self.world.plane.create(kinds.RESOURCECLAIMS, body, self.world.namespace)

    async def gang(self, minimum, **claims):
        await self.world.create(
            {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": minimum, "queue": "default"}},
            *[
                {
                    "kind": "Pod",
                    "metadata": {"name": name, "annotations": {names.GROUP_NAME: "g"}},
                    "spec": {
                        "schedulerName": names.SCHEDULER_NAME,
                        "containers": [
                            {"name": "main", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}
                        ],
                        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
                    },
                }
                for name, claim in claims.items()
            ],
        )

    async def find(self, name):
        return await self.world.client.get(kinds.RESOURCECLAIMS, name, self.world.namespace)


async def test_a_gang_is_bound_once_its_claims_are_allocated_and_reserved(world, devices):
    await devices.publish("d1", "d2")
    await devices.claim("c1")
    await devices.claim("c2")
    await world.work()
    await devices.gang(2, p1="c1", p2="c2")
    for pod, name in (("p1", "c1"), ("p2", "c2")):
        bound = await world.becomes(kinds.PODS, pod, lambda pod: pod.spec.node_name)
        claim = await devices.find(name)
        assert DELETE_PROTECTION in claim.metadata.finalizers
        assert [each["uid"] for each in claim.status.reserved_for] == [bound.metadata.uid]
        (config,) = claim.status.allocation["devices"]["config"]
        assert (config["source"], config["requests"]) == ("FromClass", ["r"])
    given = [(await devices.find(name)).status.allocation["devices"]["results"] for name in ("c1", "c2")]
    assert {each["device"] for results in given for each in results} == {"d1", "d2"}


async def test_a_gang_that_lacks_a_device_gets_none(world, devices):
    await devices.publish("d1")
    await devices.claim("c1")
    await devices.claim("c2")
    await world.work()
    await devices.gang(2, p1="c1", p2="c2")
    group = await world.becomes(
        kinds.PODGROUPS,
        "g",
        lambda group: any("devices that its claims request" in each.message for each in group.status.conditions or ()),
    )
    assert group.status.phase
    assert [(await devices.find(name)).status.allocation for name in ("c1", "c2")] == [None, None]


async def test_pods_that_share_a_claim_are_both_reserved(world, devices):
    await devices.publish("d1")
    await devices.claim("c")
    await world.work()
    await devices.gang(2, p1="c", p2="c")
    bound = [await world.becomes(kinds.PODS, pod, lambda pod: pod.spec.node_name) for pod in ("p1", "p2")]
    users = (await devices.find("c")).status.reserved_for
    assert sorted(each["uid"] for each in users) == sorted(each.metadata.uid for each in bound)


async def test_a_bind_that_is_refused_is_tried_again_with_the_same_devices(world, devices):
    await devices.publish("d1", "d2")
    await devices.claim("c")
    refused = []

    def refuse_first(request):
        first = request.path.endswith("/binding") and not refused
        refused.extend([request] * first)
        return first

    world.line.refuse = refuse_first
    await world.work()
    await devices.gang(1, p="c")
    bound = await world.becomes(kinds.PODS, "p", lambda pod: pod.spec.node_name)
    assert refused
    claim = await devices.find("c")
    assert [each["uid"] for each in claim.status.reserved_for] == [bound.metadata.uid]


async def test_what_was_written_is_undone_where_the_pod_got_no_node(world, devices):
    await devices.publish("d1")
    await devices.claim("c")
    await devices.gang(1, p="c")
    pod = await world.client.get(kinds.PODS, "p", world.namespace)
    claim = await devices.find("c")
    cache = ObjectCache()
    binder = DeviceBinder(world.client, cache, ObjectCache())
    key = ResourceClaimKey(world.namespace, "c")
    choice = ChosenDevices(
        key, claim.metadata.uid, Placement(everywhere=True), (("r", DeviceId(devices.driver, "pool", "d1"), False),)
    )
    task = SimpleNamespace(name="p", namespace=world.namespace, uid=pod.metadata.uid)
    bind = SimpleNamespace(task=task, node="n", devices=(choice,))

    async def follow():
        while True:
            # One read: what a cache has reached, it shows.
            seen = await devices.find("c")
            cache.put(seen)
            cache.advance(seen.metadata.resource_version)
            await asyncio.sleep(0.01)

    following = asyncio.create_task(follow())
    try:
        async with asyncio.timeout(PATIENCE):
            while cache.get("c", world.namespace) is None:  # noqa: ASYNC110 - the cache tells nobody
                await asyncio.sleep(0.01)
            assert await binder.prepare(bind)
            assert (await devices.find("c")).status.allocation is not None
            await binder.undo(bind)
    finally:
        following.cancel()
    found = await devices.find("c")
    assert (found.status.allocation, found.status.reserved_for or ()) == (None, ())
