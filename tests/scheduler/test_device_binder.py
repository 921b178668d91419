"""Pods with resource claims on a control plane that has them: what is written before the binding, and what is undone with it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from plane import PATIENCE

from muster.kube.cache import ObjectCache
from muster.model import kinds, names
from scheduler.leader.device_binder import DeviceBinder
from scheduler.model.claims import DELETE_PROTECTION, ChosenDevices, HeldClaim
from scheduler.model.devices import DeviceId, Placement
from scheduler.model.pod_claims import ClaimingGroup, ResourceClaimKey

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


class Binding:
    """A binder by itself, and what a plan would have it do for pod ``p`` and claim ``c``."""

    def __init__(self, devices, claim, pod, cache):
        self.devices, self.cache = devices, cache
        self.binder = DeviceBinder(devices.world.client, cache, ObjectCache())
        self.key = ResourceClaimKey(devices.world.namespace, "c")
        self.claim, self.pod = claim, pod

    def bind(self, group=None):
        chosen = (("r", DeviceId(self.devices.driver, "pool", "d1"), False),)
        choice = ChosenDevices(self.key, self.claim.metadata.uid, Placement(everywhere=True), chosen, group)
        task = SimpleNamespace(name="p", namespace=self.devices.world.namespace, uid=self.pod.metadata.uid)
        return SimpleNamespace(task=task, node="n", devices=(choice,))

    def held(self, user):
        return HeldClaim(self.key, self.claim.metadata.uid, user)

    async def status(self):
        return (await self.devices.find("c")).status


@pytest.fixture
async def binding(world, devices):
    await devices.publish("d1")
    await devices.claim("c")
    await devices.gang(1, p="c")
    cache = ObjectCache()

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
            pod = await world.client.get(kinds.PODS, "p", world.namespace)
            yield Binding(devices, await devices.find("c"), pod, cache)
    finally:
        following.cancel()


async def test_what_was_written_is_undone_where_the_pod_got_no_node(binding):
    bind = binding.bind()
    assert await binding.binder.prepare(bind)
    assert (await binding.status()).allocation is not None
    await binding.binder.undo(bind)
    found = await binding.status()
    assert (found.allocation, found.reserved_for or ()) == (None, ())


async def test_a_claim_of_its_group_is_reserved_once_and_stays_where_one_of_its_pods_got_no_node(binding):
    bind = binding.bind(ClaimingGroup("n", "uid-n"))
    assert await binding.binder.prepare(bind)
    assert await binding.binder.prepare(bind)
    await binding.binder.undo(bind)
    found = await binding.status()
    expected = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "n", "uid": "uid-n"}
    assert (found.reserved_for, found.allocation is not None) == ((expected,), True)


async def test_devices_are_given_back_by_their_only_user_and_may_be_given_anew(binding):
    bind = binding.bind(ClaimingGroup("n", "uid-n"))
    assert await binding.binder.prepare(bind)
    await binding.binder.give_back(binding.held("another"))
    assert (await binding.status()).allocation is not None
    # As often as cycles say so: the second begins before the first was seen.
    await asyncio.gather(*[binding.binder.give_back(binding.held("uid-n")) for _ in range(2)])
    found = await binding.status()
    assert (found.allocation, found.reserved_for or ()) == (None, ())
    assert await binding.binder.prepare(binding.bind())
    assert [each["resource"] for each in (await binding.status()).reserved_for] == ["pods"]
