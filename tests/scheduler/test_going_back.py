"""Groups that were let in, came to nothing, and wait in Pending for another try."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from plane import running
from workloads import QUICK, group, job, pod, reason, said

from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.reflector import Reflector
from muster.model import kinds, names
from scheduler.engine.requeue import recorded


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have who was taken back try again after two seconds, where that is ten."""
    monkeypatch.setattr("scheduler.engine.requeue._FIRST", 2.0)


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


@pytest.mark.usefixtures("soon")
async def test_a_job_whose_pods_can_not_be_created_goes_back_and_has_another_try(world):
    await world.node("4")
    quota = {"kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await world.create(quota)
    await world.client.patch(kinds.NAMESPACES, world.namespace, {"metadata": {"labels": {names.QUOTA_MODE: "off"}}})
    await world.becomes(kinds.RESOURCEQUOTAS, "none", lambda one: one.status.hard)
    await world.work(QUICK)
    await world.create(job("refused", 2))
    name = f"podgroup-{(await world.job('refused')).metadata.uid}"

    why = "none of 2 pods came within 2 s"
    await world.becomes(kinds.PODGROUPS, name, lambda one: one.status.phase == "Pending" and said(one).startswith(why))
    await world.becomes(kinds.JOBS, "refused", lambda one: one.spec.suspend)
    await world.client.delete(kinds.RESOURCEQUOTAS, "none", world.namespace)
    await world.phase(name, "Running")


async def postponements(world: Any, found: dict[int, datetime]) -> None:
    """Note of each attempt of a group that came to nothing when the next may be."""

    def note(change: ObjectChange[Any]) -> None:
        wait = recorded(change.new.status.conditions or ()) if change.new is not None else None
        if wait is not None:
            found[wait.tries] = datetime.fromtimestamp(wait.until, UTC)

    groups: ObjectCache[Any] = ObjectCache()
    groups.subscribe(note)
    await Reflector(world.client, kinds.PODGROUPS, groups, namespace=world.namespace).run()


async def test_each_attempt_that_comes_to_nothing_makes_the_next_wait_longer(world, monkeypatch):
    monkeypatch.setattr("scheduler.engine.requeue._FIRST", 1.0)
    await world.node("4")
    until: dict[int, datetime] = {}
    async with running(postponements(world, until)):
        await world.work(QUICK.replace("Seconds: 2", "Seconds: 1"))
        # Whoever makes its pods waits for Inqueue, and then makes none.
        await world.create(group("g", minMember=2, minResources={"cpu": "2"}))
        await world.becomes(kinds.PODGROUPS, "g", lambda _: len(until) > 1)
    (postponed,) = [each for each in (await world.group("g")).status.conditions if each.type == "Postponed"]
    assert postponed.reason == "NotEnoughTasks"
    # It isn't let in before it is time, and each attempt takes the second in which pods may come.
    for (one, earlier), (other, later) in itertools.pairwise(sorted(until.items())):
        pauses = sum(1 + 2 ** (number - 1) for number in range(one + 1, other + 1))
        assert later - earlier >= timedelta(seconds=pauses), until
    await world.create(pod("a", "g"), pod("b", "g"))
    back = await world.phase("g", "Running")
    assert {each.type: each.status for each in back.status.conditions}["Postponed"] == "False"


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
