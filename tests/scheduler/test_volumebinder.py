"""Pods whose claims wait for them, from the decision to the binding: what is written for their volumes, and awaited."""

from __future__ import annotations

import asyncio

import pytest

from muster.model import kinds, names
from scheduler.leader.volume_binder import CLAIMS_BOUND_WITHIN_SECONDS

MADE = "csi.example.com"


@pytest.fixture
async def storage(world):
    """Names of the world's own for what has no namespace; ``bind`` does what the volume controller does."""
    await world.node("4")
    return Storage(world)


class Storage:
    def __init__(self, world):
        self.world = world
        self.late = world.plane.unique("late")
        self.disk = world.plane.unique("disk")

    async def class_(self, provisioner="kubernetes.io/no-provisioner"):
        meta = {"name": self.late}
        await self.world.plane.create(
            kinds.STORAGECLASSES,
            {"metadata": meta, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"},
        )

    async def volume(self):
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.late,
            "hostPath": {"path": "/data"},
        }
        await self.world.plane.create(kinds.VOLUMES, {"metadata": {"name": self.disk}, "spec": spec})
        await self.world.client.patch(
            kinds.VOLUMES, self.disk, {"status": {"phase": "Available"}}, subresource="status"
        )

    async def pod(self):
        spec = {
            "storageClassName": self.late,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        await self.world.plane.create(kinds.CLAIMS, {"metadata": {"name": "data"}, "spec": spec}, self.world.namespace)
        annotations = {names.GROUP_NAME: "solo"}
        await self.world.create(
            {"kind": "PodGroup", "metadata": {"name": "solo"}, "spec": {"minMember": 1, "queue": "default"}},
            {
                "kind": "Pod",
                "metadata": {"name": "p", "annotations": annotations},
                "spec": {
                    "schedulerName": names.SCHEDULER_NAME,
                    "containers": [{"name": "main", "image": "busybox"}],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                },
            },
        )

    async def bind(self, volume):
        annotations = {"pv.kubernetes.io/bind-completed": "yes"}
        await self.world.patch(
            kinds.CLAIMS, "data", {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume}}
        )
        await self.world.patch(kinds.CLAIMS, "data", {"status": {"phase": "Bound"}}, subresource="status")

    async def placed(self):
        return bool((await self.world.client.get(kinds.PODS, "p", self.world.namespace)).spec.node_name)


async def test_a_volume_that_exists_is_given_to_the_claim_before_its_pod_is_bound(world, storage):
    await storage.class_()
    await storage.volume()
    await world.work()
    await storage.pod()
    volume = await world.becomes(kinds.VOLUMES, storage.disk, lambda volume: volume.spec.claim_ref is not None)
    claim = await world.client.get(kinds.CLAIMS, "data", world.namespace)
    assert (volume.spec.claim_ref.name, volume.spec.claim_ref.uid) == ("data", claim.metadata.uid)
    # A real control plane has a controller that binds the two; the sandbox has none.
    placed = await storage.placed()
    # Its status follows what it says in the annotation, in a write of its own.
    claim = await world.client.get(kinds.CLAIMS, "data", world.namespace)
    assert not placed or claim.metadata.annotation("pv.kubernetes.io/bind-completed")
    await storage.bind(storage.disk)
    await world.becomes(kinds.PODS, "p", lambda pod: pod.spec.node_name)


async def test_a_provisioner_is_told_the_node_and_the_pod_is_bound_to_it(world, storage):
    await storage.class_(MADE)
    await world.work()
    await storage.pod()
    selected = "volume.kubernetes.io/selected-node"
    claim = await world.becomes(kinds.CLAIMS, "data", lambda claim: claim.metadata.annotation(selected))
    assert not await storage.placed()
    await storage.volume()
    await storage.bind(storage.disk)
    pod = await world.becomes(kinds.PODS, "p", lambda pod: pod.spec.node_name)
    assert pod.spec.node_name == claim.metadata.annotation(selected)


async def test_a_provisioner_that_gives_up_has_the_pod_placed_anew(world, storage):
    await storage.class_(MADE)
    await world.work()
    await storage.pod()
    selected = "volume.kubernetes.io/selected-node"
    first = await world.becomes(kinds.CLAIMS, "data", lambda claim: claim.metadata.annotation(selected))
    await world.patch(kinds.CLAIMS, "data", {"metadata": {"annotations": {selected: None}}})
    again = await world.becomes(
        kinds.CLAIMS,
        "data",
        lambda claim: (
            claim.metadata.annotation(selected) and claim.metadata.resource_version != first.metadata.resource_version
        ),
    )
    await storage.volume()
    await storage.bind(storage.disk)
    pod = await world.becomes(kinds.PODS, "p", lambda pod: pod.spec.node_name)
    assert pod.spec.node_name == again.metadata.annotation(selected)


async def test_a_worker_that_takes_over_finishes_what_was_begun(world, storage):
    await storage.class_(MADE)
    await world.work()
    await storage.pod()
    selected = "volume.kubernetes.io/selected-node"
    claim = await world.becomes(kinds.CLAIMS, "data", lambda claim: claim.metadata.annotation(selected))
    await world.stop()
    await world.work()
    await storage.volume()
    await storage.bind(storage.disk)
    pod = await world.becomes(kinds.PODS, "p", lambda pod: pod.spec.node_name)
    assert pod.spec.node_name == claim.metadata.annotation(selected)


@pytest.mark.only("sandbox", reason="ten minutes pass, which only virtual time gives")
async def test_a_pod_whose_claim_is_never_bound_gives_its_place_up_in_the_end(world, storage, caplog):
    await storage.class_(MADE)
    await world.work()
    await storage.pod()
    await world.becomes(
        kinds.CLAIMS, "data", lambda claim: claim.metadata.annotation("volume.kubernetes.io/selected-node")
    )
    await asyncio.sleep(CLAIMS_BOUND_WITHIN_SECONDS + 5)
    assert "gives up its place" in caplog.text
    assert not await storage.placed()
