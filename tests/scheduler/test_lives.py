"""Whole lives of workloads on a control plane: let in, taken back, scaled, rolled over, seen by an autoscaler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from workloads import QUICK, deployment, group, job, pod, reason, said, unschedulable

from muster.cli.installation import cleanup
from muster.kube import autoscalers
from muster.kube.cache import ObjectCache
from muster.kube.reflector import Reflector
from muster.model import kinds, names

SCALING = QUICK.replace("inqueueTimeoutSeconds: 2", "autoscaling: true")
KARPENTER = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodepools.karpenter.sh", "annotations": {"api-approved.kubernetes.io": "none"}},
    "spec": {
        "group": "karpenter.sh",
        "scope": "Cluster",
        "names": {"plural": "nodepools", "singular": "nodepool", "kind": "NodePool", "listKind": "NodePoolList"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


async def test_a_queue_lets_no_more_groups_in_than_it_says_at_a_time(world):
    await world.node("4")
    await world.work(QUICK)
    team = world.plane.unique("team")
    await world.create({"kind": "Queue", "metadata": {"name": team}, "spec": {"maxPodGroups": 1}})
    await world.create(group("first", minMember=1, queue=team), pod("first", "first"))
    await world.phase("first", "Running")
    await world.create(group("second", minMember=1, queue=team), pod("second", "second"))
    words = f"queue {team} has 1 unfinished PodGroup past Pending and its maxPodGroups is 1: wait until one ends, or raise maxPodGroups"
    waiting = await world.becomes(kinds.PODGROUPS, "second", lambda one: said(one) == words)
    assert (waiting.status.phase, reason(waiting)) == ("Pending", "NotEnoughQuota")
    await world.client.delete(kinds.PODS, "first", world.namespace)
    await world.client.delete(kinds.PODGROUPS, "first", world.namespace)
    await world.phase("second", "Running")


# ── what becomes of those that ran ───────────────────────────────────────────────────────────────────────────────


async def test_a_gang_that_loses_pods_says_whether_they_failed_or_were_deleted(world):
    await world.node("2")
    await world.work()
    await world.create(group("g", minMember=2), pod("a", "g"), pod("b", "g"))
    await world.phase("g", "Running")
    await world.becomes(kinds.PODGROUPS, "g", lambda one: one.status.running == 2)
    await world.patch(kinds.PODS, "a", {"status": {"phase": "Failed"}}, subresource="status")
    failed = await world.becomes(kinds.PODGROUPS, "g", lambda one: reason(one) == "PodFailed")
    assert (failed.status.phase, failed.status.failed) == ("Unknown", 1)
    assert said(failed) == "1 of 2 pods of the minimum left: 1 pod failed"
    await world.becomes(kinds.QUEUES, names.DEFAULT_QUEUE, lambda one: one.status.unknown == 1)
    await world.client.delete(kinds.PODS, "a", world.namespace)
    deleted = await world.becomes(kinds.PODGROUPS, "g", lambda one: reason(one) == "PodDeleted")
    assert said(deleted) == "1 of 2 pods of the minimum left: the others were deleted"
    # A new one makes it whole again; without any pod it starts over.
    await world.create(pod("c", "g"))
    await world.phase("g", "Running")
    for name in ("b", "c"):
        await world.client.delete(kinds.PODS, name, world.namespace)
    await world.becomes(kinds.PODGROUPS, "g", lambda one: one.status.phase in {"Pending", "Inqueue"})


async def test_a_gang_of_which_a_pod_waits_is_not_completed(world):
    await world.node("2")
    await world.work()
    await world.create(group("g", minMember=1, minResources={"cpu": "1"}), pod("a", "g"), pod("b", "g", "9"))
    await world.phase("g", "Running")
    await world.becomes(kinds.PODS, "a", lambda one: one.status.phase == "Running")
    await world.patch(kinds.PODS, "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    await world.becomes(kinds.PODGROUPS, "g", lambda one: one.status.succeeded == 1)
    assert (await world.group("g")).status.phase == "Running"
    await world.client.delete(kinds.PODS, "b", world.namespace)
    await world.phase("g", "Completed")


# ── Deployments ──────────────────────────────────────────────────────────────────────────────────────────────────


async def rolled_out(world: Any, name: str, count: int, image: str) -> None:
    def done(pods: Any) -> bool:
        return len(pods) == count and all(
            each.status.phase == "Running" and each.spec.containers[0].image == image for each in pods
        )

    await world.plane.all(kinds.PODS, world.namespace, labels=f"app={name}", holds=done)


async def roll(world: Any, name: str, image: str, cpu: str = "1") -> None:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}
    await world.patch(kinds.DEPLOYMENTS, name, {"spec": {"template": {"spec": {"containers": [container]}}}})


async def test_a_deployment_keeps_its_one_group_over_four_rolling_updates_on_a_full_cluster(world):
    await world.node("3")
    await world.work()
    # With all of them needed and the cluster full, the surplus pod waits until one of the old ones has gone.
    await world.create(deployment("web", 3, maxSurge=1, maxUnavailable=1))
    made = await world.client.get(kinds.DEPLOYMENTS, "web", world.namespace)
    name = f"podgroup-{made.metadata.uid}"
    await world.phase(name, "Running")
    for number in range(4):
        await roll(world, "web", f"busybox:{number}")
        await rolled_out(world, "web", 3, f"busybox:{number}")
    await world.phase(name, "Running")
    groups = (await world.client.list(kinds.PODGROUPS, world.namespace)).items
    assert [each.name for each in groups] == [name]
    # Pods that make room for their own successors are no loss.
    events = (await world.client.list(kinds.EVENTS, world.namespace)).items
    assert not {each.reason for each in events} & {"Unknown", "PodDeleted"}


async def test_a_deployment_scaled_to_zero_and_back_leaves_no_group_inqueue(world):
    await world.node("2")
    await world.work()
    await world.create(deployment("web", 1))
    made = await world.client.get(kinds.DEPLOYMENTS, "web", world.namespace)
    name = f"podgroup-{made.metadata.uid}"
    await world.phase(name, "Running")
    await world.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 0}})
    await world.plane.all(kinds.PODS, world.namespace, holds=lambda pods: not pods)
    empty = await world.becomes(kinds.PODGROUPS, name, lambda one: said(one) == "its workload has no pods now")
    assert empty.status.phase == "Pending"
    assert empty.status.running == 0
    await world.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 1}})
    await world.phase(name, "Running")
    groups = (await world.client.list(kinds.PODGROUPS, world.namespace)).items
    assert [(each.name, each.status.phase) for each in groups] == [(name, "Running")]


# ── an autoscaler ────────────────────────────────────────────────────────────────────────────────────────────────


class Autoscaler:
    """Makes nodes of 2 cpu for pods that can't be scheduled, as cluster autoscalers do: each pod is planned for once."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.nodes = 0
        self.planned: dict[str, float] = {}
        self._pods: ObjectCache[Any] = ObjectCache()
        self._changed = asyncio.Event()
        self._pods.subscribe(lambda _: self._changed.set())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Reflector(self.world.client, kinds.PODS, self._pods).run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                for one in self._pods.by_namespace(self.world.namespace):
                    if unschedulable(one) and one.metadata.uid not in self.planned:
                        self.planned[one.metadata.uid] = 1.0
                while 2 * self.nodes < sum(self.planned.values()):
                    self.nodes += 1
                    await self.world.node("2")


@pytest.fixture
async def autoscaler(world: Any) -> AsyncIterator[Autoscaler]:
    player = Autoscaler(world)
    playing = asyncio.create_task(player.run())
    yield player
    playing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await playing


async def test_an_autoscaler_makes_exactly_the_nodes_that_gangs_need_and_none_for_what_waits_for_quota(
    world, autoscaler
):
    await world.work(SCALING)
    capped = world.plane.unique("capped")
    await world.create({"kind": "Queue", "metadata": {"name": capped}, "spec": {"capability": {"cpu": "1"}}})
    await world.create(
        group("bound", minMember=2, queue=capped, minResources={"cpu": "2"}), pod("b-0", "bound"), pod("b-1", "bound")
    )
    await world.create(job("train", 4))
    name = f"podgroup-{(await world.job('train')).metadata.uid}"
    await world.phase(name, "Running")
    # Of pods that exist without waiting for Inqueue, too.
    await world.create(group("bare", minMember=2, minResources={"cpu": "2"}), pod("p-0", "bare"), pod("p-1", "bare"))
    await world.phase("bare", "Running")
    pods = await world.pods()
    assert autoscaler.nodes == 3
    assert not [one.name for one in pods if unschedulable(one)]
    assert (await world.group("bound")).status.phase == "Pending"


async def test_with_the_shipped_configuration_jobs_get_nodes_where_an_autoscaler_is_seen(world, autoscaler):
    """Without a node no pod is made, and a Job that is held back shows an autoscaler nothing."""
    status = {"metadata": {"name": autoscalers.STATUS}, "data": {"status": "Cluster-autoscaler status at …"}}
    await world.client.create(kinds.CONFIGMAPS, status, autoscalers.NAMESPACES[0])
    try:
        await world.work()
        await world.create(job("train", 4))
        await world.phase(f"podgroup-{(await world.job('train')).metadata.uid}", "Running")
        assert autoscaler.nodes == 2
    finally:
        await world.client.delete(kinds.CONFIGMAPS, autoscalers.STATUS, autoscalers.NAMESPACES[0])


async def test_karpenter_is_seen_by_its_api_group(world):
    assert await autoscalers.find(world.client) == ""
    await world.client.create(kinds.CRDS, KARPENTER)
    try:
        await world.until(lambda: autoscalers.find(world.client))
        assert await autoscalers.find(world.client) == autoscalers.KARPENTER
    finally:
        await world.client.delete(kinds.CRDS, "nodepools.karpenter.sh")
        # A real API server names the group for a while longer, and a worker that is told of it admits what has no nodes.
        await world.until(lambda: _is_gone(world))


async def _is_gone(world: Any) -> bool:
    return not await autoscalers.find(world.client)


async def test_a_pod_that_comes_to_wait_for_its_queue_instead_of_nodes_is_not_shown_any_more(world):
    await world.node("1")
    await world.work()
    team = world.plane.unique("team")
    await world.create({"kind": "Queue", "metadata": {"name": team}, "spec": {}})
    await world.create(group("g", minMember=2, queue=team, minResources={"cpu": "2"}), pod("a", "g"), pod("b", "g"))
    for name in ("a", "b"):
        await world.becomes(kinds.PODS, name, unschedulable)
    await world.patch(kinds.QUEUES, team, {"spec": {"capability": {"cpu": "1"}}})
    for name in ("a", "b"):
        await world.becomes(kinds.PODS, name, lambda one: not unschedulable(one))


# ── when Muster goes, and when it hangs ──────────────────────────────────────────────────────────────────────────


async def test_uninstalling_leaves_no_job_suspended_by_us_and_the_others_as_their_users_want_them(world):
    await world.node("1")
    await world.work()
    mine = job("mine", 9)
    mine["metadata"]["annotations"] = {}
    await world.create(job("waits", 9), mine)
    waits = await world.job("waits")
    await world.phase(f"podgroup-{waits.metadata.uid}", "Pending")
    await world.stop()
    resumed = await cleanup.resume_jobs(world.client)
    assert f"{world.namespace}/waits" in resumed
    left = {name: await world.job(name) for name in ("waits", "mine")}
    assert {name: bool(one.spec.suspend) for name, one in left.items()} == {"waits": False, "mine": True}
    assert not left["waits"].metadata.annotation(names.SUSPENDED)


@pytest.mark.only("sandbox", reason="minutes pass")
async def test_a_cycle_that_never_ends_is_told_as_what_only_a_new_start_can_mend(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    await world.work()
    assert world.worker.not_alive() == []
    # As where a thread decides, and a plugin in it never returns.
    monkeypatch.setattr("scheduler.leader.leadership.INLINE_PENDING_PODS", 0)
    monkeypatch.setattr("asyncio.to_thread", never)
    await world.node("4")
    await asyncio.sleep(35)
    assert world.worker.not_alive() == ["a cycle is being decided for more than 30 seconds"]
    await world.stop()
    assert world.worker.not_alive() == []


async def test_a_gang_that_is_never_whole_again_holds_up_others_for_the_time_out_alone(world):
    await world.node("2")
    await world.work(QUICK)
    await world.create(group("g", minMember=2, minResources={"cpu": "2"}), pod("a", "g"), pod("b", "g"))
    await world.phase("g", "Running")
    await world.becomes(kinds.PODGROUPS, "g", lambda one: one.status.running == 2)
    # Of two that fail one is replaced; its successor is there first, or all would have ended for a moment.
    successor = pod("c", "g")
    successor["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await world.create(successor)
    for name in ("a", "b"):
        await world.patch(kinds.PODS, name, {"status": {"phase": "Failed"}}, subresource="status")
    await world.phase("g", "Unknown")
    await world.patch(kinds.PODS, "c", {"spec": {"schedulingGates": []}})
    await world.client.delete(kinds.PODS, "a", world.namespace)
    broken = await world.becomes(kinds.PODGROUPS, "g", lambda one: "1 exists; waiting for 1 more" in said(one))
    assert broken.status.phase == "Unknown"
    await world.create(group("other", minMember=1, minResources={"cpu": "1"}), pod("d", "other"))
    await world.phase("other", "Running")
    words = "; what it lacks was held for it for 2 s, and others may use it now"
    await world.becomes(kinds.PODGROUPS, "g", lambda one: said(one).endswith(words))
