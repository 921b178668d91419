"""Groups that hold nothing of their namespace's quota: their pods get no node, and they say why."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from muster.ledger import wording
from muster.model import kinds, names
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.leader.backoff import RequeueTimers

WHY = {(names.VOLCANO_GROUP, "late"): "its minimum isn't reserved"}


def test_pods_of_a_group_that_holds_nothing_get_no_node_and_the_group_says_why(build, binds):
    build.node("node").gang("late", 1, 2).gang("early", 1, 1)
    build.cluster.unreserved("ns", WHY)
    plan = build.decide()
    assert binds(plan) == {"early-0": "node"}
    condition = next(status.conditions[0] for key, status in plan.groups.items() if key.name == "late")
    assert (condition.type, condition.reason) == ("Unschedulable", "NotEnoughQuota")
    assert condition.message == "its minimum isn't reserved"


def test_it_is_not_let_in_either(build):
    build.node("node").gang("late", 1, 1, phase="Pending").gang("early", 1, 1, phase="Pending")
    build.cluster.unreserved("ns", WHY)
    phases = {key.name: status.phase.value for key, status in build.decide().groups.items()}
    assert phases == {"late": "Pending", "early": "Inqueue"}


def test_it_runs_as_soon_as_it_holds_its_minimum(build, binds):
    build.node("node").gang("late", 1, 1)
    build.cluster.unreserved("ns", WHY)
    assert not binds(build.decide())
    build.cluster.unreserved("ns", {})
    assert binds(build.decide()) == {"late-0": "node"}


GENERATED = "podgroup-web"
REFUSED = {(names.VOLCANO_GROUP, GENERATED): "quota team is short by 2 cpu"}


@pytest.mark.parametrize("pods", [0, 1])
def test_the_pods_of_a_group_that_was_refused_have_twenty_minutes_once_it_is_let_in(build, pods):
    timers = RequeueTimers()

    def at(seconds):
        snapshot = msgspec.structs.replace(build.cluster.snapshot(), requeues=timers.requeues)
        now = build.now + timedelta(seconds=seconds)
        plan = decide(snapshot, config.parse(config.DEFAULT), now)
        timers.observe(plan, now.timestamp())
        for status in plan.statuses:
            group = build.cluster.find_group(status.key)
            build.cluster.group(status.key.group, msgspec.structs.replace(group, status=status.struct()))
        found = next(status for key, status in plan.groups.items() if key.name == GENERATED)
        reserved = next(((each.status, each.reason) for each in found.conditions if each.type == "Reserved"), None)
        return found.phase.value, reserved

    build.node("node").gang(GENERATED, 3, pods, phase="Pending", minResources={"cpu": "3"})
    build.cluster.unreserved("ns", REFUSED)
    assert at(0) == ("Pending", ("False", "NotEnoughQuota"))
    build.cluster.unreserved("ns", {})
    at(600)
    assert at(601) == ("Inqueue", ("True", ""))
    # A ReplicaSet that was refused for long tries again after 1,000 seconds at the latest.
    assert at(1790) == ("Inqueue", ("True", ""))
    assert at(1802)[0] == "Pending"
    assert at(1803)[0] == "Pending"


def test_a_group_that_was_never_refused_does_not_say_that_it_is_reserved(build):
    build.node("node").gang(GENERATED, 1, 1, phase="Pending")
    build.cluster.unreserved("ns", {(names.VOLCANO_GROUP, GENERATED): wording.unreserved(())})
    conditions = next(iter(build.decide().groups.values())).conditions
    assert {each.type for each in conditions} == {"Unschedulable"}


async def test_a_late_group_that_does_not_fit_waits_until_the_quota_is_raised(world):
    await world.node("16")
    quota = {"kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "4"}}}
    await world.create(quota)
    await world.work()
    await world.until(lambda: seeded(world))
    # No webhook is called here, so that each of these comes as if it had been under way when the quota came.
    await world.create(_group("fits", "3"), _pod("fits"))
    await world.phase("fits", "Running")
    await world.create(_group("late", "2"), _pod("late"))
    waiting = await world.until(lambda: told(world, "late"))
    assert waiting.reason == "NotEnoughQuota"
    assert 'quota "team" is short by 1 requests.cpu' in waiting.message
    await world.patch(kinds.RESOURCEQUOTAS, "team", {"spec": {"hard": {"requests.cpu": "5"}}})
    await world.phase("late", "Running")


async def seeded(world):
    found = await world.client.find(kinds.QUOTALEDGERS, names.LEDGER_NAME, world.namespace)
    return found is not None and found.data.seeded_at


async def told(world, name):
    conditions = (await world.group(name)).status.conditions or ()
    return next((each for each in conditions if each.status == "True" and "short by" in each.message), None)


def _group(name, cpu):
    spec = {"minMember": 1, "queue": "default", "minResources": {"cpu": cpu}}
    return {"kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def _pod(group):
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [_container()]}
    return {"kind": "Pod", "metadata": {"name": group, "annotations": {names.GROUP_NAME: group}}, "spec": spec}


def _container():
    return {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}


def test_a_group_made_with_its_workload_says_that_pods_are_missing_only_once_they_had_time_to_come(build):
    build.node("node").group(GENERATED, 2, phase="Pending", minResources={"cpu": "2"}, age=1)

    def said(seconds):
        plan = build.decide(later=seconds)
        (status,) = plan.groups.values()
        return [each.message for each in status.conditions], plan.wakes_at, plan.records[status.key].message

    messages, wakes, told = said(0)
    assert (messages, told) == ([], "its workload has no pods yet")
    assert wakes - build.now.timestamp() == pytest.approx(2, abs=0.01)
    messages, _, told = said(2)
    assert (messages, told) == (["its workload has no pods now"], "its workload has no pods now")
    build.pod("a", GENERATED).pod("b", GENERATED)
    assert [status.phase.value for status in build.decide().groups.values()] == ["Inqueue"]
