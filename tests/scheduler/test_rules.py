"""What the designs of schedulers promise and few keep: one test a rule."""

from __future__ import annotations

import pytest

from scheduler.configuration import config

EVICTING = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def phases(plan):
    return {key.name: status.phase.value for key, status in plan.groups.items()}


# ── enqueue ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_groups_are_let_in_first_come_first_served(build):
    build.node("a", "4")
    for name, age in (("third", 10), ("first", 30), ("second", 20)):
        build.gang(name, 2, 2, phase="Pending", age=age)
    assert phases(build.decide()) == {"first": "Inqueue", "second": "Inqueue", "third": "Pending"}


def test_priority_goes_before_age_and_age_before_name(build):
    build.node("a", "2").priority("high", 10)
    build.gang("a-old", 2, 2, phase="Pending", age=30)
    build.gang("z-urgent", 2, 2, phase="Pending", age=10, priorityClassName="high")
    assert phases(build.decide()) == {"a-old": "Pending", "z-urgent": "Inqueue"}


def test_the_queue_that_has_less_of_its_share_goes_before_older_groups_of_others(build):
    build.node("a", "5").queue("other").group("there", 1, phase="Running").pod("there-0", "there", node="a")
    build.gang("old", 2, 2, phase="Pending", age=30).gang("older", 2, 2, phase="Pending", age=40)
    build.gang("young", 2, 2, phase="Pending", queue="other", age=10)
    found = phases(build.decide())
    assert (found["young"], found["older"], found["old"]) == ("Inqueue", "Inqueue", "Pending")


def test_who_has_to_wait_holds_up_nobody_behind(build):
    build.node("a", "4")
    build.gang("large", 5, 5, phase="Pending", age=30).gang("small", 2, 2, phase="Pending", age=10)
    assert phases(build.decide()) == {"large": "Pending", "small": "Inqueue"}


CAREFUL = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: overcommit, arguments: {overcommit-factor: 1.0}}]
"""


@pytest.mark.parametrize("above", [False, True], ids=["its queue's", "the parent's"])
def test_what_is_enlarged_after_its_admission_holds_no_more_than_a_capability(build, above):
    limited = {"parent": "team"} if above else {"capability": {"cpu": "3"}}
    build.node("a", "8").queue("team", capability={"cpu": "3"}).queue("greedy", **limited).queue("other")
    for number in range(3):
        build.group(f"enlarged-{number}", 1, queue="greedy", minResources={"cpu": "100"}, age=30)
    build.gang("victim", 5, 5, phase="Pending", queue="other", age=10)
    build.gang("late", 1, 1, phase="Pending", queue="other", age=5)
    found = phases(build.decide(CAREFUL))
    assert (found["victim"], found["late"]) == ("Inqueue", "Pending")


# ── what is malformed ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_that_cannot_be_read_is_set_aside_with_its_reason(build, binds, message):
    build.node("a").queue("broken", capability={"cpu": "a lot"})
    build.gang("lost", 1, 1, queue="broken").gang("fine", 1, 1)
    plan = build.decide()
    assert binds(plan) == {"fine-0": "a"}
    words = "queue broken can't be read and takes no part: spec.capability: cpu: 'a lot' is not a quantity"
    assert message(plan, "lost").startswith(words)


def test_a_queue_that_is_corrected_takes_part_again(build, binds):
    build.node("a").queue("broken", capability={"cpu": "a lot"}).gang("g", 1, 1, queue="broken")
    assert binds(build.decide()) == {}
    build.queue("broken", capability={"cpu": "2"})
    assert binds(build.decide()) == {"g-0": "a"}


def test_a_group_that_cannot_be_read_is_set_aside_with_its_reason(build, binds, message):
    build.node("a").gang("lost", 1, 1, phase="Pending", minResources={"cpu": "a lot"}).gang("fine", 1, 1)
    plan = build.decide()
    assert binds(plan) == {"fine-0": "a"}
    assert message(plan, "lost").startswith("spec.minResources: cpu: 'a lot' is not a quantity")


def test_a_pod_that_cannot_be_read_waits_and_the_others_are_placed(build, binds, message):
    build.node("a").group("lost", 1).pod("lost-0", "lost", "a lot").gang("fine", 1, 1)
    plan = build.decide()
    assert binds(plan) == {"fine-0": "a"}
    assert "an amount that can't be read" in message(plan, "lost")


def test_a_node_that_cannot_be_read_takes_nothing(build, binds):
    build.node("a", "a lot").node("b")
    assert binds(build.gang("g", 1, 1).decide()) == {"g-0": "b"}


def test_queues_that_are_each_others_parent_hold_up_nobody(build, binds):
    build.node("a").queue("one", parent="two").queue("two", parent="one").gang("g", 1, 1, queue="one")
    assert binds(build.decide(config.DEFAULT.replace("proportion", "capacity"))) == {"g-0": "a"}


# ── what gets free ───────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_leaving_pod_uses_is_promised_in_this_cycle_and_used_once_it_is_gone(build, binds):
    build.node("a", "1").pod("there", node="a", leaving=True).gang("g", 1, 1)
    plan = build.cycle()
    assert (binds(plan), [bind.node for bind in plan.pipelined]) == ({}, ["a"])
    build.gone("there")
    assert binds(build.cycle()) == {"g-0": "a"}


def test_what_a_gang_that_gave_up_had_taken_is_used_in_the_same_cycle(build, binds):
    build.node("a", "3")
    build.gang("large", 4, 4, phase="Inqueue", age=30).gang("small", 3, 3, phase="Inqueue", age=10)
    assert len(binds(build.decide())) == 3


# ── evictions ────────────────────────────────────────────────────────────────────────────────────────────────────


def settled(build, policy, evictions, cycles=30):
    """Run cycles in which who is evicted goes, and comes again as a new pod, until nothing happens; count the evictions."""
    seen = 0
    for number in range(cycles):
        plan = build.cycle(policy, later=number)
        seen += len(plan.evictions)
        for each in plan.evictions:
            build.gone(each.task.name)
            build.pod(f"{each.task.name}x", each.group.name)
        if not plan.evictions and not plan.binds and not plan.pipelined:
            assert seen == evictions
            return
    pytest.fail(f"still something happens after {cycles} cycles and {seen} evictions")


def test_preemption_comes_to_an_end(build):
    build.node("a", "4").priority("high", 10)
    build.group("low", 1, phase="Running")
    for number in range(4):
        build.pod(f"low-{number}", "low", node="a")
    build.gang("urgent", 2, 2, priorityClassName="high")
    settled(build, EVICTING, 2)


def test_reclaim_comes_to_an_end_where_shares_do_not_divide_evenly(build):
    build.queue("other").node("a", "5")
    build.group("greedy", 1, phase="Running")
    for number in range(5):
        build.pod(f"greedy-{number}", "greedy", node="a")
    build.group("late", 1, queue="other")
    for number in range(5):
        build.pod(f"late-{number}", "late")
    # Half of 5 cpu is 2.5: the third pod would leave its queue with less than that.
    settled(build, EVICTING, 2)


def test_reclaim_shares_what_is_scarce_also_where_pods_use_what_there_is_enough_of(build):
    build.queue("other").node("a", "4", memory="64Gi")
    build.group("greedy", 1, phase="Running")
    for number in range(4):
        build.pod(f"greedy-{number}", "greedy", node="a", requests={"memory": "1Gi"})
    build.group("late", 2, queue="other")
    for number in range(4):
        build.pod(f"late-{number}", "late", requests={"memory": "1Gi"})
    # Each queue deserves all the memory that its pods ask for: that is no reason to keep more than half of the cpu.
    settled(build, EVICTING, 2)


def test_nobody_is_evicted_for_a_group_that_its_queue_would_not_let_run(build):
    build.queue("tight", capability={"cpu": "1"}).node("a", "4")
    build.group("greedy", 1, phase="Running")
    for number in range(4):
        build.pod(f"greedy-{number}", "greedy", node="a")
    build.gang("late", 2, 2, queue="tight")
    assert build.decide(EVICTING).evictions == ()


def test_preempt_takes_from_a_group_that_uses_more_than_its_minimum_resources_only(build):
    build.node("a", "4").priority("high", 10)
    build.group("modest", 0, phase="Running", minResources={"cpu": "2"})
    build.group("ample", 0, phase="Running", minResources={"cpu": "1"})
    for number in range(2):
        build.pod(f"modest-{number}", "modest", node="a").pod(f"ample-{number}", "ample", node="a")
    build.gang("urgent", 2, 2, priorityClassName="high")
    assert [each.task.name for each in build.decide(EVICTING).evictions] == []
    build.gang("smaller", 1, 1, priorityClassName="high")
    assert [each.group.name for each in build.decide(EVICTING).evictions] == ["ample"]
