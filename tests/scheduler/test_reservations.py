"""A large job doesn't starve behind small ones, and a gang that is bound in part is finished or undone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.configuration import config
from scheduler.engine.partial_gangs import GRACE

WAIT = 300
POLICY = config.DEFAULT + "configurations: [{name: allocate, arguments: {reserveAfter: 5m}}]\n"
NEVER = config.DEFAULT + "configurations: [{name: allocate, arguments: {reserveAfter: never}}]\n"


@pytest.fixture
def crowded(build):
    """Two nodes that small jobs keep half full; a large one waits for both halves of one."""
    build.node("a", "4").node("b", "4")
    for node in "ab":
        build.group(f"on-{node}", 1, phase="Running", age=1000)
        build.pod(f"there-{node}", f"on-{node}", "3", node=node)
    return build.gang("large", 1, 1, "4", phase="Pending", age=WAIT)


def test_small_jobs_pass_a_large_one_until_it_has_waited_for_long(crowded, binds):
    first = crowded.cycle(POLICY, later=-1)
    assert first.reserved_nodes is None
    crowded.gang("early", 1, 1, phase="Pending", age=10)
    assert binds(crowded.cycle(POLICY, later=-1)) == {"early-0": "a"}


def test_then_nodes_are_kept_for_it_and_it_starts_there(crowded, binds):
    plan = crowded.cycle(POLICY)
    assert plan.reserved_nodes is not None
    assert plan.reserved_nodes.key.name == "large"
    (kept,) = plan.reserved_nodes.nodes
    crowded.gang("small", 1, 1, phase="Pending", age=10).gang("smaller", 1, 1, phase="Pending", age=5)
    assert binds(crowded.cycle(POLICY, later=1)) == {"small-0": "b" if kept == "a" else "a"}
    crowded.gone(f"there-{kept}")
    plan = crowded.cycle(POLICY, later=2)
    assert binds(plan) == {"large-0": kept}
    assert plan.reserved_nodes is None


@pytest.mark.parametrize(("policy", "starts"), [(NEVER, False), (POLICY, True)])
def test_a_stream_of_small_jobs_starves_a_large_one_only_without_reservations(build, binds, policy, starts):
    """Whenever a small job ends, the next one is there already."""
    running, started = [], {}
    for node in "abab":
        name = f"there-{node}{len(running)}"
        build.group(name, 1, phase="Running", age=1000).pod(name, name, "2", node=node)
        running.append(name)
    build.node("a", "4").node("b", "4").gang("large", 1, 1, "4", phase="Pending", age=WAIT)
    for number in range(10):
        build.gone(running.pop(0))
        build.gang(f"s{number}", 1, 1, "2", phase="Pending", age=100 - number)
        placed = binds(build.cycle(policy, later=number))
        running += [name for name in placed if name != "large-0"]
        started |= placed
        if "large-0" in started or not running:
            break
    assert ("large-0" in started) is starts


def test_backfill_fills_what_is_not_kept(crowded, binds):
    crowded.cycle(POLICY)
    crowded.queue("narrow", weight=1)
    crowded.gang("filler", 1, 1, queue="narrow", age=10)
    plan = crowded.cycle(POLICY, later=1)
    assert plan.reserved_nodes is not None
    assert list(binds(plan)) == ["filler-0"]
    assert binds(plan)["filler-0"] not in plan.reserved_nodes.nodes


def test_a_job_of_higher_priority_is_not_held_up(crowded, binds):
    (kept,) = crowded.priority("high", 10).cycle(POLICY).reserved_nodes.nodes
    crowded.gang("equal", 1, 1, "1", phase="Pending", age=10).gang("equals", 1, 1, "1", phase="Pending", age=9)
    crowded.gang("urgent", 2, 2, "1", phase="Pending", age=5, priorityClassName="high")
    plan = crowded.cycle(POLICY, later=1)
    assert sorted(binds(plan)) == ["urgent-0", "urgent-1"]
    assert kept in binds(plan).values()
    assert plan.reserved_nodes.key.name == "large"


def test_a_job_that_an_empty_cluster_could_not_hold_keeps_no_nodes_from_others(build, binds):
    build.node("a", "4")
    build.gang("huge", 1, 1, "5", phase="Pending", age=WAIT)
    assert build.cycle(POLICY).reserved_nodes is None
    build.gang("small", 1, 1, phase="Pending", age=10)
    assert binds(build.cycle(POLICY, later=1)) == {"small-0": "a"}


def test_a_job_that_its_queue_holds_back_keeps_no_nodes_from_others(build):
    build.node("a", "4").queue("tight", capability={"cpu": "1"})
    build.group("there", 1, phase="Running").pod("there-0", "there", "3", node="a")
    build.gang("large", 1, 1, "4", phase="Pending", queue="tight", age=WAIT)
    assert build.cycle(POLICY).reserved_nodes is None


def test_a_reservation_ends_with_its_group(crowded, binds):
    assert crowded.cycle(POLICY).reserved_nodes is not None
    crowded.gone("large-0")
    crowded.without("large")
    crowded.gang("small", 1, 1, phase="Pending", age=10).gang("next", 1, 1, phase="Pending", age=5)
    plan = crowded.cycle(POLICY, later=1)
    assert plan.reserved_nodes is None
    assert sorted(binds(plan)) == ["next-0", "small-0"]


def test_what_pods_of_no_group_use_is_not_counted_on(build):
    build.node("a", "4").node("b", "4")
    build.pod("daemon", cpu="1", node="a")
    build.group("there", 1, phase="Running").pod("there-0", "there", "2", node="b")
    build.gang("large", 1, 1, "4", phase="Pending", age=WAIT)
    plan = build.cycle(POLICY)
    assert plan.reserved_nodes is not None
    assert plan.reserved_nodes.nodes == ("b",)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_large_job_starts_however_many_small_ones_come(make_build, data):
    """Each cycle small jobs come and the oldest of those that run ends; the large one waits for two empty nodes."""
    build = make_build().queue("default").node("a", "2").node("b", "2").node("c", "2")
    build.gang("large", 2, 2, "2", phase="Pending", age=WAIT - 5)
    running = []
    for number in range(40):
        for pod in range(data.draw(st.integers(1, 4))):
            build.gang(f"s{number}-{pod}", 1, 1, data.draw(st.sampled_from(["500m", "1"])), phase="Pending", age=1)
        plan = build.cycle(POLICY, later=number)
        placed = [bind.task.name for bind in plan.binds]
        if "large-0" in placed:
            return
        running += placed
        for name in running[: data.draw(st.integers(1, 2))]:
            build.gone(name)
            running.remove(name)
    pytest.fail("the large job never started")


def test_what_is_bound_of_a_gang_is_finished_where_there_is_room(build, binds):
    build.node("a", "4")
    build.group("g", 3).pod("g-0", "g", node="a", phase="Pending").pod("g-1", "g").pod("g-2", "g")
    plan = build.cycle()
    assert sorted(binds(plan)) == ["g-1", "g-2"]
    assert not plan.partially_bound


def test_what_is_bound_of_a_gang_is_undone_where_the_rest_finds_no_room(build):
    build.node("a", "2")
    build.group("other", 1, phase="Running").pod("other-0", "other", node="a")
    build.group("g", 3).pod("g-0", "g", node="a", phase="Pending").pod("g-1", "g").pod("g-2", "g")
    assert list(build.cycle().partially_bound) == [key for key in build.cycle().groups if key.name == "g"]
    assert build.cycle(later=GRACE - 1).evictions == ()
    (eviction,) = build.cycle(later=GRACE).evictions
    assert eviction.task.name == "g-0"
    assert eviction.beneficiary == eviction.group


def test_a_gang_that_ran_and_lost_a_pod_is_not_undone(build):
    build.node("a", "1")
    build.group("g", 2, phase="Running").pod("g-0", "g", node="a").pod("g-1", "g")
    assert not build.cycle().partially_bound
    assert build.cycle(later=10 * GRACE).evictions == ()
