"""The plugin capacity: limits along the ancestors, and reclaim of what queues state to deserve."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.configuration import config
from scheduler.engine.cycle import decide

POLICY = """\
actions: "enqueue, allocate, reclaim"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: capacity
    arguments: {ancestorReclaimLevel: 1}
"""


@pytest.fixture
def tree(make_build):
    """Two departments of 2 cpu each on 4 cpu, with two queues each."""
    build = make_build().node("n", "4")
    for parent in ("red", "blue"):
        build.queue(parent, deserved={"cpu": "2"}, parent="root")
        for child in "12":
            build.queue(f"{parent}{child}", deserved={"cpu": "1"}, parent=parent)
    return build


def greedy(build, queue, count):
    build.group("greedy", 0, phase="Running", queue=queue)
    for number in range(count):
        build.pod(f"greedy-{number}", "greedy", node="n")


def test_an_ancestor_holds_its_queues_to_its_capability(make_build, binds):
    build = make_build().node("n", "8").queue("all", capability={"cpu": "3"})
    build.queue("a", parent="all").queue("b", parent="all")
    build.gang("first", 2, 2, queue="a").gang("second", 2, 2, queue="b")
    assert len(binds(build.decide(POLICY))) == 2


def test_backfill_takes_no_ancestor_beyond_its_capability(make_build, binds):
    build = make_build().node("n", "8").queue("all", capability={"cpu": "3"}).queue("part", parent="all")
    build.gang("g", 1, 5, queue="part")
    assert len(binds(build.decide(POLICY.replace("reclaim", "backfill")))) == 3


def test_what_is_guaranteed_to_one_queue_is_not_given_to_another(make_build, binds, message):
    build = make_build().node("n", "4").queue("safe", guarantee={"resource": {"cpu": "3"}}).queue("other")
    build.gang("large", 2, 2, queue="other")
    plan = build.decide(POLICY)
    assert binds(plan) == {}
    assert message(plan, "large") == (
        "1 pod needs 1 cpu; nothing is left for queue other of all that the nodes have, beside what is guaranteed to other"
        " queues: short by 1 cpu"
    )


def test_a_group_waits_while_an_ancestor_could_not_hold_what_it_states(make_build):
    build = make_build().node("n", "8").queue("all", capability={"cpu": "2"})
    build.queue("a", parent="all").queue("b", parent="all")
    for name, queue in (("first", "a"), ("second", "b")):
        build.group(name, 1, phase="Pending", queue=queue, minResources={"cpu": "2"})
    phases = {each.key.name: each.phase.value for each in build.decide(POLICY).groups.values()}
    assert phases == {"first": "Inqueue", "second": "Pending"}


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_a_queue_with_children_starts_no_work_itself(make_build, binds, phase):
    build = make_build().node("n", "8").queue("all").queue("part", parent="all")
    build.gang("g", 1, 1, queue="all", phase=phase).gang("h", 1, 1, queue="part")
    build.group("before", 1, queue="all", phase="Running").pod("runs", "before", node="n").pod("next", "before")
    plan = build.decide(POLICY)
    assert sorted(binds(plan)) == ["h-0", "next"]
    said = {str(key): record.message for key, record in plan.records.items()}
    assert said["ns/g"] == "queue all has children and starts no work itself; move it to one of them: part"


def test_a_queue_takes_back_what_it_deserves_from_another_department(tree):
    greedy(tree, "red1", 4)
    tree.gang("due", 1, 1, queue="blue1")
    assert len(tree.decide(POLICY).evictions) == 1


def test_nothing_is_taken_from_a_department_that_has_no_more_than_it_deserves(tree):
    greedy(tree, "red1", 2)
    tree.group("other", 0, phase="Running", queue="blue2")
    for number in range(2):
        tree.pod(f"other-{number}", "other", node="n")
    tree.gang("due", 1, 1, queue="blue1")
    assert {each.task.name[:5] for each in tree.decide(POLICY).evictions} == {"other"}


@pytest.mark.parametrize(("memory", "taken"), [("1Gi", 2), ("4Gi", 1)])
def test_what_is_not_scarce_is_no_reason_to_keep_what_is(make_build, memory, taken):
    """8 GiB are plenty for pods of 1 GiB, and too little for those of 4 GiB."""
    build = make_build().node("n", "4", memory="8Gi" if memory == "1Gi" else "16Gi")
    build.queue("lends", deserved={"cpu": "2", "memory": "12Gi"}).queue("due", deserved={"cpu": "2", "memory": "4Gi"})
    build.group("lent", 0, phase="Running", queue="lends")
    for number in range(4):
        build.pod(f"lent-{number}", "lent", node="n", requests={"memory": memory})
    build.group("back", 1, queue="due")
    for number in range(2):
        build.pod(f"back-{number}", "back", requests={"memory": memory})
    build.group("more", 1, queue="due").pod("more-0", "more", requests={"memory": memory})
    assert len(build.decide(POLICY).evictions) == taken


LEVEL = "ancestorReclaimLevel: 1"


def departments(build, red, red1, blue):
    """Two departments on 8 cpu; red1 runs four pods of 1 cpu, blue1 waits for 1 cpu that is its due."""
    build.node("n", "4").queue("red", deserved={"cpu": red}).queue("red1", parent="red", deserved={"cpu": red1})
    build.queue("blue", deserved={"cpu": blue}).queue("blue1", parent="blue", deserved={"cpu": blue})
    greedy(build, "red1", 4)
    return build.gang("due", 1, 1, queue="blue1")


@pytest.mark.parametrize(
    ("level", "red", "taken"),
    [(0, "6", 1), (1, "6", 0), (1, "3", 1), (2, "6", 0)],
    ids=[
        "the parent isn't looked at",
        "the parent is within its share",
        "the parent is beyond it",
        "deeper than the tree",
    ],
)
def test_so_many_ancestors_are_looked_at_as_the_level_says(make_build, level, red, taken):
    build = departments(make_build(), red, "1", "1")
    assert len(build.decide(POLICY.replace(LEVEL, f"ancestorReclaimLevel: {level}")).evictions) == taken


def test_a_grandparent_counts_from_the_second_level_on(make_build):
    build = make_build().node("n", "4")
    build.queue("company", deserved={"cpu": "6"}).queue("red", parent="company", deserved={"cpu": "1"})
    build.queue("red1", parent="red", deserved={"cpu": "1"}).queue("other", deserved={"cpu": "2"})
    greedy(build, "red1", 4)
    build.gang("due", 1, 1, queue="other")
    taken = [len(build.decide(POLICY.replace(LEVEL, f"ancestorReclaimLevel: {n}")).evictions) for n in range(4)]
    assert taken == [1, 1, 0, 0]


def test_what_an_ancestor_is_guaranteed_stays_at_any_level(make_build):
    build = make_build().node("n", "4").queue("red", guarantee={"resource": {"cpu": "4"}}, deserved={"cpu": "4"})
    build.queue("red1", parent="red", deserved={"cpu": "1"}).queue("other", deserved={"cpu": "2"})
    greedy(build, "red1", 4)
    build.gang("due", 1, 1, queue="other")
    assert build.decide(POLICY.replace(LEVEL, "ancestorReclaimLevel: 0")).evictions == ()


def borrowers(build, priorities):
    """Queues that deserve nothing, each with a pod of 1 cpu of its name, on a full node; and red-due, which deserves 1 cpu."""
    build.node("n", str(len(priorities))).queue("red", deserved={"cpu": "1"}).queue("blue")
    build.queue("red-due", parent="red", deserved={"cpu": "1"})
    for name, priority in priorities.items():
        build.queue(name, parent=name.partition("-")[0], priority=priority)
        build.group(name, 0, phase="Running", queue=name).pod(name, name, node="n")
    return build.gang("due", 1, 2, queue="red-due")


def first_to_go(build):
    return [each.task.name for each in build.decide(POLICY.replace(LEVEL, "ancestorReclaimLevel: 0")).evictions]


def test_who_shares_a_parent_is_taken_from_before_others_whatever_the_priority_of_its_queue(make_build):
    assert first_to_go(borrowers(make_build(), {"red-sibling": 9, "blue-low": 0})) == ["red-sibling"]


def test_among_queues_as_near_the_one_of_lower_priority_is_taken_from_first(make_build):
    assert first_to_go(borrowers(make_build(), {"red-high": 9, "red-low": 1, "red-mid": 5})) == ["red-low"]


def test_a_queue_of_higher_priority_takes_back_first(make_build):
    build = make_build().node("n", "2").queue("lent").queue("low", deserved={"cpu": "1"}, priority=1)
    build.queue("high", deserved={"cpu": "1"}, priority=5).group("lent", 1, phase="Running", queue="lent")
    build.pod("lent-0", "lent", node="n").pod("lent-1", "lent", node="n", labels={"volcano.sh/preemptable": "false"})
    build.gang("a-low", 1, 1, queue="low").gang("b-high", 1, 1, queue="high")
    plan = build.decide(POLICY)
    assert [(each.task.name, each.beneficiary.name) for each in plan.evictions] == [("lent-0", "b-high")]


def test_departments_take_turns_before_the_queues_in_them_do(make_build, binds):
    build = make_build().node("n", "4")
    for parent, children in (("red", "1"), ("blue", "123")):
        build.queue(parent, deserved={"cpu": "4"})
        for child in children:
            name = f"{parent}{child}"
            build.queue(name, parent=parent, deserved={"cpu": "1"}).gang(name, 1, 4, queue=name)
    names = [name.partition("-")[0].rstrip("123") for name in binds(build.decide(POLICY))]
    assert (names.count("red"), names.count("blue")) == (2, 2)


def test_parents_in_a_circle_do_no_harm(make_build, binds):
    build = make_build().node("n", "4").queue("a", parent="b").queue("b", parent="a")
    build.gang("g", 1, 1, queue="a")
    assert binds(build.decide(POLICY)) == {"g-0": "n"}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_queue_nor_ancestor_that_counts_ends_below_what_it_deserves(make_build, data):
    draw = data.draw
    build = make_build().node("n", "6")
    parents = {}
    for name in ("p", "q", "a", "b", "c"):
        parents[name] = draw(st.sampled_from(["", "p", "q"])) if name in "abc" else ""
        deserved = draw(st.sampled_from([{}, {"cpu": "1"}, {"cpu": "2"}, {"cpu": "4"}]))
        build.queue(name, parent=parents[name], deserved=deserved)
    room = 6
    for number in range(draw(st.integers(1, 5))):
        build.group(f"g{number}", draw(st.integers(0, 2)), queue=draw(st.sampled_from("abc")))
        for pod in range(draw(st.integers(1, 3))):
            placed = room > 0 and draw(st.booleans())
            room -= placed
            build.pod(f"g{number}-{pod}", f"g{number}", **({"node": "n"} if placed else {}))
    snapshot = build.cluster.snapshot()
    level = draw(st.integers(0, 2))
    plan = decide(snapshot, config.parse(POLICY.replace(LEVEL, f"ancestorReclaimLevel: {level}")), build.now)
    queue_of = {job.key: job.queue for job in snapshot.jobs}
    above = {name: [name, *([parents[name]] if parents[name] else [])] for name in parents}
    used = dict.fromkeys(parents, 0)
    for name, share in plan.queues.items():
        for each in above[name]:
            used[each] += share.allocated.nano.get("cpu", 0)
    for eviction in plan.evictions:
        mine, theirs = above[queue_of[eviction.beneficiary]], above[queue_of[eviction.group]]
        for name in set(theirs[: level + 1]) - set(mine):
            deserved = plan.queues[name].deserved
            assert used[name] >= deserved.nano.get("cpu", 0), f"{name} is below what it deserves"
