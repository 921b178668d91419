"""Whole lives of workloads on a control plane: let in, taken back, scaled, rolled over, seen by an autoscaler."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from plane import running

from muster.cli import install
from muster.kube.cache import Cache, Change
from muster.kube.reflector import Reflector
from muster.model import kinds, names
from scheduler.rollback import recorded

QUICK = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit, arguments: {overcommit-factor: 1.0}}, {name: predicates}, {name: proportion}]
configurations:
- {name: enqueue, arguments: {inqueueTimeoutSeconds: 2}}
"""
SCALING = QUICK.replace("inqueueTimeoutSeconds: 2", "autoscaling: true")


def template(cpu: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}


def job(name: str, count: int, cpu: str = "1", seconds: int = 600, **annotations: str) -> dict[str, Any]:
    """Give a Job that runs for as long as a test may take, unless told otherwise."""
    held = {names.SUSPENDED: "true", names.GROUP_MIN_MEMBER: str(count)} | annotations
    spec = {"parallelism": count, "completions": count, "suspend": True}
    meta = {"annotations": {names.RUN_SECONDS: str(seconds)}}
    spec["template"] = {"metadata": meta, "spec": {**template(cpu), "restartPolicy": "Never"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": held}, "spec": spec}


def pod(name: str, group: str, cpu: str = "1") -> dict[str, Any]:
    meta = {"name": name, "annotations": {names.GROUP_NAME: group}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template(cpu)}


def group(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def deployment(name: str, replicas: int, cpu: str = "1", **strategy: Any) -> dict[str, Any]:
    labels = {"app": name}
    annotations = {names.GROUP_MIN_MEMBER: str(replicas)}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": template(cpu)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": strategy},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have who was taken back try again after two seconds, where that is ten."""
    monkeypatch.setattr("scheduler.rollback._FIRST", 2.0)


def said(one: Any) -> str:
    """Give what stands in a group's way."""
    return next((each.message for each in one.status.conditions or () if each.status == "True"), "")


def reason(one: Any) -> str:
    return next((each.reason for each in one.status.conditions or () if each.status == "True"), "")


async def test_a_queue_lets_no_more_groups_in_than_it_says_at_a_time(world):
    await world.node("4")
    await world.work(QUICK)
    team = world.plane.unique("team")
    await world.create({"kind": "Queue", "metadata": {"name": team}, "spec": {"maxPodGroups": 1}})
    await world.create(group("first", minMember=1, queue=team), pod("first", "first"))
    await world.phase("first", "Running")
    await world.create(group("second", minMember=1, queue=team), pod("second", "second"))
    words = f"queue {team} has 1 unfinished PodGroup past Pending and its maxPodGroups is 1"
    waiting = await world.becomes(kinds.PODGROUPS, "second", lambda one: said(one) == words)
    assert (waiting.status.phase, reason(waiting)) == ("Pending", "NotEnoughQuota")
    await world.client.delete(kinds.PODS, "first", world.namespace)
    await world.client.delete(kinds.PODGROUPS, "first", world.namespace)
    await world.phase("second", "Running")


# ── back to Pending ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("soon")
async def test_a_job_whose_pods_find_no_node_is_suspended_again_until_one_comes(world):
    await world.node("2")
    await world.node("2")
    await world.work(QUICK)
    await world.create(job("wide", 1, "3"))
    name = f"podgroup-{(await world.job('wide')).metadata.uid}"
    await world.phase(name, "Inqueue")
    why = "no place was found within 2 s: 1 pod of 3 cpu needs a node"
    await world.becomes(kinds.PODGROUPS, name, lambda one: one.status.phase == "Pending" and said(one).startswith(why))
    (postponed,) = [each for each in (await world.group(name)).status.conditions if each.type == "Postponed"]
    # More than one on a busy machine, where the first may be over before there is a pod.
    assert re.match(r"(1 attempt|[2-9] attempts) came to nothing; the next is after ", postponed.message)
    assert postponed.transition_id
    assert postponed.last_transition_time is not None
    suspended = await world.becomes(kinds.JOBS, "wide", lambda one: one.spec.suspend)
    assert suspended.metadata.annotation(names.SUSPENDED) == "true"
    await world.plane.all(kinds.PODS, world.namespace, holds=lambda pods: not pods)
    await world.node("4")
    await world.phase(name, "Running")


async def postponements(world: Any, name: str, found: dict[int, datetime]) -> None:
    """Note of each attempt of a group that came to nothing when the next may be."""

    def note(change: Change[Any]) -> None:
        wait = recorded(change.new.status.conditions or ()) if change.new is not None else None
        if wait is not None and change.new.name == name:
            found[wait.tries] = datetime.fromtimestamp(wait.until, UTC)

    groups: Cache[Any] = Cache()
    groups.subscribe(note)
    await Reflector(world.client, kinds.PODGROUPS, groups, namespace=world.namespace).run()


async def test_a_job_whose_pods_can_not_be_created_goes_back_for_longer_each_time_and_runs_when_they_can(
    world, monkeypatch
):
    monkeypatch.setattr("scheduler.rollback._FIRST", 1.0)
    await world.node("4")
    quota = {"kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await world.create(quota)
    await world.client.patch(kinds.NAMESPACES, world.namespace, {"metadata": {"labels": {names.QUOTA_MODE: "off"}}})
    await world.becomes(kinds.RESOURCEQUOTAS, "none", lambda one: one.status.hard)
    await world.create(job("refused", 2))
    name = f"podgroup-{(await world.job('refused')).metadata.uid}"
    until: dict[int, datetime] = {}
    async with running(postponements(world, name, until)):
        await world.work(QUICK)
        why = "none of 2 pods came within 2 s"
        await world.becomes(
            kinds.PODGROUPS, name, lambda one: one.status.phase == "Pending" and said(one).startswith(why)
        )
        await world.becomes(kinds.JOBS, "refused", lambda one: one.spec.suspend)
        await world.becomes(kinds.PODGROUPS, name, lambda _: len(until) > 1)
        await world.client.delete(kinds.RESOURCEQUOTAS, "none", world.namespace)
        await world.phase(name, "Running")
    # Nobody is let in before it is time, and each attempt takes the 2 s in which pods may come.
    assert world.plane.clock.now() >= max(until.values())
    for (one, earlier), (other, later) in itertools.pairwise(sorted(until.items())):
        pauses = sum(2 + 2 ** (number - 1) for number in range(one + 1, other + 1))
        assert later - earlier >= timedelta(seconds=pauses), until


async def test_a_group_goes_back_whose_nodes_are_gone_before_its_job_was_started(world):
    await world.create(job("train", 2))
    name = f"podgroup-{(await world.job('train')).metadata.uid}"
    await world.create(group(name, minMember=2, minResources={"cpu": "2"}))
    # The last leader let it in, and went, as did a node.
    await world.patch(kinds.PODGROUPS, name, {"status": {"phase": "Inqueue"}}, subresource="status")
    await world.node("1")
    await world.work()
    words = "1 cpu is free in the cluster: short by 1 cpu"
    back = await world.becomes(kinds.PODGROUPS, name, lambda one: said(one).endswith(words))
    assert (back.status.phase, reason(back)) == ("Pending", "NotEnoughResources")
    assert (await world.job("train")).spec.suspend
    assert await world.pods() == []
    await world.node("1")
    await world.phase(name, "Running")


async def test_a_new_leader_lets_nobody_in_earlier_than_the_last_one_said(world):
    await world.node("4")
    await world.create(job("twice", 2))
    await world.work(QUICK)
    name = f"podgroup-{(await world.job('twice')).metadata.uid}"
    await world.plane.until(kinds.PODGROUPS, name, world.namespace)
    await world.stop()
    words = "3 attempts came to nothing; the next is after 2099-01-01T00:00:00Z"
    told = {"type": "Postponed", "status": "True", "reason": "NotEnoughTasks", "message": words}
    back = {"status": {"phase": "Pending", "conditions": [told]}}
    await world.patch(kinds.PODGROUPS, name, back, subresource="status")
    await world.patch(kinds.JOBS, "twice", {"spec": {"suspend": True}})
    await world.plane.all(kinds.PODS, world.namespace, holds=lambda pods: not pods)

    await world.work(QUICK)
    await world.create(job("beside", 1))
    beside = f"podgroup-{(await world.job('beside')).metadata.uid}"
    await world.phase(beside, "Running")
    text = "its pods did not come (3 attempts); the next is after 00:00:00 UTC"

    def waits(one: Any) -> bool:
        return [each.message for each in one.status.conditions] == [words, text]

    assert (await world.becomes(kinds.PODGROUPS, name, waits)).status.phase == "Pending"


async def test_only_what_has_not_started_is_suspended_again(world):
    await world.node("1")
    await world.create(group("both", minMember=3, minResources={"cpu": "1"}))
    for name, cpu in (("small", "1"), ("large", "2")):
        manifest = job(name, 1, cpu)
        manifest["spec"]["suspend"] = False
        manifest["metadata"]["annotations"] = {}
        manifest["spec"]["template"]["metadata"]["annotations"][names.GROUP_NAME] = "both"
        await world.create(manifest)
    await world.patch(kinds.PODGROUPS, "both", {"status": {"phase": "Inqueue"}}, subresource="status")
    # One of them was bound by a leader that is gone.
    (small,) = await world.plane.all(
        kinds.PODS, world.namespace, labels="job-name=small", holds=lambda pods: len(pods) == 1
    )
    (node,) = (await world.client.list(kinds.NODES)).items
    await world.client.bind(world.namespace, small.name, small.metadata.uid, node.name)
    await world.work(QUICK)
    await world.phase("both", "Pending")
    await world.becomes(kinds.JOBS, "large", lambda one: one.spec.suspend)
    assert not (await world.job("small")).spec.suspend


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
        self._pods: Cache[Any] = Cache()
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


def unschedulable(one: Any) -> bool:
    found = (each for each in one.status.conditions or () if each.type == "PodScheduled")
    return any(each.status == "False" and each.reason == "Unschedulable" for each in found)


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


# ── when nothing happens, and when Muster goes ───────────────────────────────────────────────────────────────────


async def populated(world: Any) -> None:
    """Have work in every phase that lasts; there is room for all that isn't to wait, whoever comes first."""
    await world.node("5")
    await world.work()
    await world.create(job("runs", 2), job("waits", 9))
    await world.create(job("ends", 1, seconds=0))
    await world.create(deployment("web", 2), group("pods-wait", minMember=9, minResources={"cpu": "9"}))
    await world.create(*(pod(f"p-{number}", "pods-wait") for number in range(9)))
    await world.becomes(kinds.JOBS, "ends", lambda one: one.status.succeeded)
    await world.becomes(kinds.PODS, "p-8", unschedulable)


async def test_a_hundred_cycles_in_which_nothing_changes_write_nothing(world, monkeypatch):
    # They take longer together than a status may be put off whose numbers changed.
    monkeypatch.setattr("scheduler.worker.PACE", 0.02)
    await populated(world)
    await world.rest(100)
    phases = {each.status.phase for each in (await world.client.list(kinds.PODGROUPS, world.namespace)).items}
    assert phases >= {"Pending", "Running", "Completed"}


@pytest.mark.only("sandbox", reason="two minutes pass; the test above has as many cycles, on both")
async def test_nothing_is_written_in_two_idle_minutes(world):
    await populated(world)
    await asyncio.sleep(60)
    before = len(world.line.written())
    await asyncio.sleep(120)
    assert world.line.written()[before:] == []


async def test_uninstalling_leaves_no_job_suspended_by_us_and_the_others_as_their_users_want_them(world):
    await world.node("1")
    await world.work()
    mine = job("mine", 9)
    mine["metadata"]["annotations"] = {}
    await world.create(job("waits", 9), mine)
    waits = await world.job("waits")
    await world.phase(f"podgroup-{waits.metadata.uid}", "Pending")
    await world.stop()
    resumed = await install.resume_jobs(world.client)
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
    monkeypatch.setattr("scheduler.worker.MANY", 0)
    monkeypatch.setattr("asyncio.to_thread", never)
    await world.node("4")
    await asyncio.sleep(305)
    assert world.worker.not_alive() == ["a cycle is being decided for more than 300 seconds"]
    await world.stop()
    assert world.worker.not_alive() == []
