"""What the designs of this family promise of plugins, and Muster keeps: a test for each rule."""

from __future__ import annotations

from collections import Counter

import pytest

from muster.model.amounts import NANO
from scheduler.simulator import state

TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
PREEMPT = 'actions: "enqueue, allocate, preempt"' + TIERS
RECLAIM = 'actions: "enqueue, allocate, reclaim"' + TIERS
WHOLE = "configurations:\n" + "".join(
    f"- {{name: {action}, arguments: {{evictWholeJobs: true}}}}\n" for action in ("preempt", "reclaim")
)
HIGH = {"priorityClassName": "high"}


@pytest.fixture
def build(make_build):
    build = make_build().queue("default").queue("b")
    build.priority("high", 1000)
    yield build
    build.cluster.validate()


def running(build, name, minimum, count, node="n", cpu="1", **spec):
    build.group(name, minimum, phase="Running", **spec)
    for number in range(count):
        build.pod(f"{name}-{number}", name, cpu, node=node)


def evicted(plan):
    return Counter(each.group.name for each in plan.evictions)


# ── gangs ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", [PREEMPT, RECLAIM], ids=["preempt", "reclaim"])
@pytest.mark.parametrize(("minimum", "goes"), [(4, 0), (3, 1), (2, 2), (0, 2)])
def test_a_gang_is_never_broken_below_its_minimum(build, policy, minimum, goes):
    running(build.node("n", "4"), "low", minimum, 4)
    queue = "b" if policy is RECLAIM else "default"
    build.gang("urgent", 1, 2, cpu="1", queue=queue, **HIGH)
    plan = build.decide(policy)
    # One place is enough for the urgent group to start: more isn't taken, whatever there is.
    assert evicted(plan)["low"] == min(goes, 1)


@pytest.mark.parametrize("policy", [PREEMPT, RECLAIM], ids=["preempt", "reclaim"])
def test_each_role_of_a_gang_keeps_its_minimum(build, policy):
    build.node("n", "4").group("low", 2, phase="Running", minTaskMember={"ps": 1, "worker": 1})
    build.pod("ps-0", "low", node="n", labels={"volcano.sh/task-spec": "ps"})
    for number in range(3):
        build.pod(f"worker-{number}", "low", node="n", labels={"volcano.sh/task-spec": "worker"})
    build.gang("urgent", 2, 2, queue="b" if policy is RECLAIM else "default", **HIGH)
    plan = build.decide(policy)
    assert [each.task.name.partition("-")[0] for each in plan.evictions] == ["worker", "worker"]


@pytest.mark.parametrize("policy", [PREEMPT, RECLAIM], ids=["preempt", "reclaim"])
@pytest.mark.parametrize(("whole", "goes"), [("", []), (WHOLE, [2])], ids=["surplus only", "evictWholeJobs"])
def test_a_whole_gang_goes_only_where_evict_whole_jobs_allows_it(build, policy, whole, goes):
    build.node("n", "4")
    running(build, "low", 2, 2)
    running(build, "other", 2, 2)
    build.gang("urgent", 1, 1, cpu="2", queue="b" if policy is RECLAIM else "default", **HIGH)
    assert list(evicted(build.decide(policy + whole)).values()) == goes


def test_a_minimum_of_one_is_a_minimum(build):
    """The decision 0104: kube-batch exempts such groups."""
    running(build.node("n", "1"), "low", 1, 1)
    build.gang("urgent", 1, 1, **HIGH)
    assert build.decide(PREEMPT).evictions == ()
    assert evicted(build.decide(PREEMPT + WHOLE)) == {"low": 1}


def test_a_group_that_promises_itself_nothing_gives_everything(build):
    running(build.node("n", "1"), "low", 0, 1)
    build.gang("urgent", 1, 1, **HIGH)
    assert evicted(build.decide(PREEMPT)) == {"low": 1}


# ── minResources ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("stated", "goes"), [("4", 0), ("3", 1), ("1", 2)])
def test_preempt_takes_from_groups_that_use_more_than_their_min_resources(build, stated, goes):
    running(build.node("n", "4"), "low", 1, 4, minResources={"cpu": stated})
    build.gang("urgent", 1, 1, cpu=str(goes or 1), **HIGH)
    assert evicted(build.decide(PREEMPT))["low"] == goes


def test_what_its_min_resources_do_not_name_may_be_taken(build):
    running(build.node("n", "2"), "low", 0, 2, minResources={"memory": "1Gi"})
    build.gang("urgent", 1, 1, **HIGH)
    assert evicted(build.decide(PREEMPT)) == {"low": 1}


# ── shares ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_reclaim_no_victim_queue_is_below_its_deserved_share(build):
    build.queue("c", weight=2).node("n", "9")
    running(build, "most", 0, 9)
    for number in range(9):
        build.gang(f"mine-{number}", 1, 1, queue="b").gang(f"too-{number}", 1, 1, queue="c")
    for _ in range(12):
        plan = build.decide(RECLAIM)
        state.perform(build.cluster, plan)
        for eviction in plan.evictions:
            build.gone(eviction.task.name)
    for name, share in plan.queues.items():
        # 9 cpu by weights 1, 1 and 2: pods of 1 cpu can't divide them evenly.
        assert share.allocated["cpu"] >= share.deserved["cpu"] // NANO * NANO, name
    assert plan.queues["default"].allocated["cpu"] >= plan.queues["default"].deserved["cpu"]


def test_each_of_two_queues_gets_one_pod_that_fits_neither_share(build, binds):
    """kube-batch's issue 492: what proportion leaves idle is filled."""
    policy = 'actions: "enqueue, allocate, backfill"' + TIERS
    build.node("n", "3").gang("one", 1, 1, cpu="2").gang("other", 1, 1, cpu="2", queue="b")
    assert len(binds(build.decide('actions: "enqueue, allocate"' + TIERS))) == 0
    assert len(binds(build.decide(policy))) == 1


def test_shares_are_by_weight_and_what_one_queue_does_not_want_goes_to_the_others(build, binds):
    build.queue("c", weight=3).node("n", "9")
    build.gang("small", 0, 1).gang("large", 0, 8, queue="b").gang("larger", 0, 8, queue="c")
    counts = Counter(name.partition("-")[0] for name in binds(build.decide('actions: "allocate"' + TIERS)))
    assert counts == {"small": 1, "large": 2, "larger": 6}


def test_a_queue_without_weight_or_wish_takes_no_part(build, binds):
    build.queue("idle", weight=100).node("n", "4").gang("one", 0, 4).gang("two", 0, 4, queue="b")
    counts = Counter(name.partition("-")[0] for name in binds(build.decide('actions: "allocate"' + TIERS)))
    assert counts == {"one": 2, "two": 2}
