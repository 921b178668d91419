"""Who gets which node, on values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.configuration import config
from scheduler.engine.cycle import decide

MAX_INT64 = 2**63 - 1


def test_a_gang_that_fits_is_bound_whole(build, binds):
    plan = build.node("a").node("b").gang("g", 6, 6).decide()
    assert len(binds(plan)) == 6


def test_a_gang_that_does_not_fit_is_not_bound_in_part(build, binds, message):
    plan = build.node("a").gang("g", 6, 6).decide()
    assert binds(plan) == {}
    assert message(plan, "g") == "6 pods need 6 cpu; 4 cpu are free in the cluster: short by 2 cpu"


def test_a_gang_of_different_pods_is_undone_when_its_last_pod_finds_no_node(build, binds):
    build.node("a").group("g", 3).pod("small-1", "g").pod("small-2", "g").pod("big", "g", cpu="3")
    assert binds(build.decide()) == {}


def test_a_gang_that_gave_up_leaves_its_room_to_others(build, binds):
    plan = build.node("a").gang("big", 6, 6).gang("small", 4, 4).decide()
    assert set(binds(plan)) == {"small-0", "small-1", "small-2", "small-3"}


def test_a_mixed_gang_that_gave_up_leaves_its_room_to_others(build, binds):
    build.node("a").group("mixed", 3).pod("m1", "mixed").pod("m2", "mixed").pod("m3", "mixed", cpu="3")
    plan = build.gang("small", 4, 4).decide()
    assert set(binds(plan)) == {"small-0", "small-1", "small-2", "small-3"}


def test_beyond_its_minimum_a_gang_takes_turns_with_others(build, binds):
    build.node("a", "6").gang("first", 2, 6).gang("second", 2, 6)
    placed = list(binds(build.decide()))
    assert sum(name.startswith("first") for name in placed) == 3
    assert sum(name.startswith("second") for name in placed) == 3


def test_room_in_the_cluster_that_no_single_node_has_is_told_apart_from_shortage(build, binds, message):
    plan = build.node("a", "1500m").node("b", "1500m").group("g").pod("p", "g", cpu="2").decide()
    assert binds(plan) == {}
    assert message(plan, "g") == "1 pod of 2 cpu needs a node; the nodes have room for none"


def test_pods_wait_for_the_ones_that_are_leaving(build):
    build.node("a", "2").pod("old", cpu="2", node="a", leaving=True).group("g").pod("p", "g", cpu="2")
    plan = build.decide()
    assert plan.binds == ()
    assert [(bind.task.name, bind.node) for bind in plan.pipelined] == [("p", "a")]


def test_pods_of_other_schedulers_use_their_nodes(build, binds):
    build.node("a", "2").pod("theirs", cpu="1500m", node="a", schedulerName="default-scheduler")
    assert binds(build.group("g").pod("p", "g").decide()) == {}


def test_ended_pods_use_nothing(build, binds):
    build.node("a", "2").pod("done", cpu="2", node="a", phase="Succeeded").group("g").pod("p", "g")
    assert binds(build.decide()) == {"p": "a"}


def test_a_node_holds_no_more_pods_than_it_says(build, binds):
    plan = build.node("a", "8", pods="2").gang("g", 1, 5).decide()
    assert len(binds(plan)) == 2


def test_a_debt_in_one_resource_is_no_hindrance_to_who_does_not_ask_for_it(build, binds):
    build.node("a", "2", memory="1Gi").pod("fat", cpu="1", node="a", requests={"memory": "2Gi"})
    assert binds(build.group("g").pod("p", "g").decide()) == {"p": "a"}


@pytest.mark.parametrize(
    ("more", "node"),
    [
        ({"nodeSelector": {"zone": "west"}}, "west"),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}], "nodeSelector": {"zone": "north"}}, "north"),
        ({"nodeSelector": {"zone": "north"}}, None),
        ({"nodeSelector": {"zone": "south"}}, None),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["east"]}]}
                            ]
                        }
                    }
                }
            },
            "west",
        ),
    ],
    ids=["selector", "toleration", "taint", "cordon", "affinity"],
)
def test_a_pod_goes_only_where_it_may(build, binds, more, node):
    build.node("east", labels={"zone": "east"}).node("west", labels={"zone": "west"})
    build.node("north", labels={"zone": "north"}, taints=[{"key": "gpu", "effect": "NoSchedule"}])
    build.node("south", labels={"zone": "south"}, unschedulable=True)
    plan = build.group("g").pod("p", "g", **more).decide()
    assert binds(plan) == ({"p": node} if node else {})


def test_host_ports_are_given_once_per_node(build, binds):
    ports = [{"containerPort": 80, "hostPort": 80}]
    build.node("a").node("b").pod("there", node="a", ports=ports).group("g", 1)
    for number in range(3):
        build.pod(f"p{number}", "g", ports=ports)
    assert binds(build.decide()) == {"p0": "b"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"volumes": [{"name": "data", "rbd": {"image": "x"}}]}, "volume 'data' of type rbd"),
        ({"resourceClaims": [{"name": "gpu"}]}, "resource claims of an unknown form"),
        (
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
            "its pods use resource claims, and there is no ResourceClaim",
        ),
    ],
)
def test_what_is_not_evaluated_waits_and_says_why(build, binds, message, more, words):
    plan = build.node("a").group("g").pod("p", "g", **more).decide()
    assert binds(plan) == {}
    assert words in message(plan, "g")


def test_a_running_pods_anti_affinity_is_respected(build, binds):
    anti = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
            ]
        }
    }
    build.node("a", "8", labels={"zone": "1"}).node("b", "2", labels={"zone": "2"})
    build.pod("there", node="a", affinity=anti).group("g").group("h")
    plan = build.pod("web", "g", labels={"app": "web"}).pod("other", "h", labels={"app": "db"}).decide()
    assert binds(plan)["web"] == "b"


def test_gated_pods_are_left_alone(build, binds):
    plan = build.node("a").group("g").pod("p", "g", schedulingGates=[{"name": "wait"}]).decide()
    assert binds(plan) == {}


def test_sums_beyond_int64_are_no_trouble(build, binds):
    for number in range(4):
        build.node(f"n{number}", "4", memory=str(MAX_INT64))
    build.group("g").pod("p", "g", requests={"memory": "1Gi"})
    build.group("h").pod("q", "h", requests={"memory": str(MAX_INT64)})
    plan = build.decide()
    assert "p" in binds(plan)
    assert plan.queues["default"].share == pytest.approx(0.25, abs=0.3)


def test_a_queue_gets_no_more_than_its_capability(build, binds):
    build.queue("small", capability={"cpu": "2"}).node("a", "8").gang("g", 1, 6, queue="small")
    assert len(binds(build.decide())) == 2


def test_queues_share_by_weight_when_both_want_everything(build, binds):
    build.queue("one", weight=1).queue("three", weight=3).node("a", "4").node("b", "4")
    for number in range(8):
        build.gang(f"x{number}", 1, 1, queue="one").gang(f"y{number}", 1, 1, queue="three")
    names = list(binds(build.decide()))
    assert (sum(name.startswith("x") for name in names), sum(name.startswith("y") for name in names)) == (2, 6)


BACKFILL = (
    'actions: "enqueue, allocate, backfill"\ntiers: [{plugins: [{name: gang}, {name: predicates}, {name: proportion}]}]'
)


def test_backfill_fills_what_shares_leave_idle(build, binds):
    build.queue("one", weight=1).queue("three", weight=3).node("a", "3")
    build.gang("x", 1, 1, "2", queue="one").gang("y", 1, 1, "8", queue="three")
    assert binds(build.decide(BACKFILL.replace(", backfill", ""))) == {}
    assert binds(build.decide(BACKFILL)) == {"x-0": "a"}


def test_backfill_leaves_alone_what_is_guaranteed_to_others(build, binds):
    build.queue("one").queue("safe", guarantee={"resource": {"cpu": "2"}}).node("a", "3")
    assert binds(build.gang("x", 1, 1, "2", queue="one").decide(BACKFILL)) == {}


def test_backfill_stays_within_the_capability(build, binds):
    build.queue("one", capability={"cpu": "1"}).node("a", "3").gang("x", 1, 1, "2", queue="one")
    assert binds(build.decide(BACKFILL)) == {}


def test_backfill_takes_nothing_of_a_node_that_a_job_that_is_due_waits_for(build, binds):
    build.queue("one").queue("three").node("a", "4").node("b", "2").node("c", "4")
    build.group("runs", 1, phase="Running", queue="three").pod("runs-0", "runs", "1", node="a")
    build.group("had", 1, phase="Running", queue="one").pod("had-0", "had", "4", node="c")
    build.gang("due", 1, 1, "4", queue="three").gang("late", 1, 2, "2", queue="one")
    assert binds(build.decide(BACKFILL)) == {"late-0": "b"}, "b is too small for due; a is what it waits for"


def full(build, cpu="1"):
    """Two queues, each with its share of 8 cpu and more to run; on node b, 2 cpu are left by nobody's leave."""
    build.queue("one").queue("two").node("a", "6").node("b", "2")
    build.group("had", 0, phase="Running", queue="one")
    for number in range(4):
        build.pod(f"had-{number}", "had", node="a")
    return build.gang("late", 1, 1, cpu, queue="one")


@pytest.mark.parametrize(
    "hopeless",
    [
        {"nodeSelector": {"no": "node"}},
        {"cpu": "7"},
        {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
    ],
    ids=["a selector that no node has", "more than any node has", "what Muster doesn't do"],
)
def test_a_job_that_no_node_would_ever_hold_keeps_nobody_from_backfill(build, binds, hopeless):
    full(build).group("hopeless", 1, queue="two").pod("hopeless-0", "hopeless", **({"cpu": "100m"} | hopeless))
    assert binds(build.decide(BACKFILL)) == {"late-0": "a"}


def test_a_gang_that_all_nodes_together_could_not_hold_keeps_nobody_from_backfill(build, binds):
    full(build).gang("hopeless", 5, 5, "2", queue="two")
    assert binds(build.decide(BACKFILL)) == {"late-0": "a"}


def test_a_gang_that_does_not_fit_beside_daemons_keeps_nobody_from_backfill(build, binds):
    full(build).pod("daemon", "", "1", node="a").gang("hopeless", 1, 1, "6", queue="two")
    assert binds(build.decide(BACKFILL)) == {"late-0": "a"}


def test_a_gang_that_its_own_queue_has_no_share_for_keeps_nobody_from_backfill(build, binds):
    full(build).group("uses", 0, phase="Running", queue="two").pod("uses-0", "uses", "1", node="b")
    build.gang("undue", 4, 4, "1", queue="two")
    assert "late-0" in binds(build.decide(BACKFILL))


def test_who_waits_for_another_resource_keeps_nobody_from_backfill(build, binds):
    full(build).group("memory", 1, queue="two").pod("memory-0", "memory", "0", requests={"memory": "17Gi"})
    build.node("large", "1", memory="32Gi").group("holds", 1, phase="Running", queue="two")
    build.pod("holds-0", "holds", "0", node="large", requests={"memory": "30Gi"})
    assert "late-0" in binds(build.decide(BACKFILL))


def test_two_jobs_of_two_queues_that_each_ask_for_more_than_their_share_do_not_both_wait(build, binds):
    build.queue("one").queue("two").queue("three").node("n", "4")
    build.gang("first", 1, 1, "3", queue="one").gang("second", 1, 1, "3", queue="two")
    assert binds(build.decide(BACKFILL.replace(", backfill", ""))) == {}
    assert binds(build.decide(BACKFILL)) == {"first-0": "n"}
    build.group("hopeless", 1, queue="three").pod("hopeless-0", "hopeless", "100m", nodeSelector={"no": "node"})
    assert binds(build.decide(BACKFILL)) == {"first-0": "n"}


def test_who_was_left_out_of_backfill_is_told_that_its_queue_has_had_its_share(build, binds, message):
    build.queue("one").queue("two").node("a", "4").node("b", "4").group("had", 0, phase="Running", queue="one")
    build.pod("had-0", "had", "3", node="a").pod("had-1", "had", "3", node="b")
    build.gang("late", 1, 1, "1", queue="one")
    build.gang("due", 1, 1, "4", queue="two")
    plan = build.decide(BACKFILL)
    assert binds(plan) == {}
    words = "queue one has had its share, and what is idle is left to groups that are due and wait for nodes"
    assert message(plan, "late") == words


WITHOUT_ENQUEUE = (
    'actions: "allocate, backfill"\ntiers: [{plugins: [{name: gang}, {name: predicates}, {name: proportion}]}]'
)


def test_a_queue_that_takes_so_many_groups_starts_no_more_without_enqueue(build, binds, message):
    build.queue("few", maxPodGroups=2).node("n", "9")
    build.group("runs", 1, phase="Running", queue="few").pod("runs-0", "runs", node="n")
    for name in ("first", "second", "third"):
        build.gang(name, 1, 2, queue="few", phase="Pending")
    plan = build.cycle(WITHOUT_ENQUEUE)
    assert {name.split("-")[0] for name in binds(plan)} == {"first"}
    assert (
        message(plan, "third")
        == "queue few has 2 unfinished PodGroups past Pending and its maxPodGroups is 2: wait until one ends, or raise maxPodGroups"
    )
    assert binds(build.cycle(WITHOUT_ENQUEUE)) == {}, "what was bound and doesn't run yet counts"
    build.without("runs").gone("runs-0")
    assert {name.split("-")[0] for name in binds(build.cycle(WITHOUT_ENQUEUE))} == {"second"}


def test_nobody_is_evicted_for_a_group_that_its_queue_takes_no_more_of(build):
    build.queue("few", maxPodGroups=1).node("n", "2").priority("high", 10)
    build.group("runs", 0, phase="Running", queue="few").pod("runs-0", "runs", "2", node="n")
    build.gang("next", 1, 1, queue="few", phase="Pending", priorityClassName="high")
    text = 'actions: "allocate, preempt"\ntiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}]}]'
    assert build.decide(text).evictions == ()
    build.queue("few", maxPodGroups=2)
    assert len(build.decide(text).evictions) == 1


@pytest.mark.parametrize("phase", ["Running", "Unknown"])
def test_a_group_that_ran_and_has_no_pods_keeps_nobody_from_being_admitted(build, phase):
    build.node("n", "4").group("gone", 1, phase=phase, minResources={"cpu": "4"})
    build.group("next", 1, phase="Pending", minResources={"cpu": "4"}).pod("next-0", "next", "4")
    phases = {key.name: each.phase.value for key, each in build.decide().groups.items()}
    assert phases == {"gone": "Pending", "next": "Inqueue"}


def test_a_running_group_that_needs_no_pod_stays_running_without_one(build):
    build.node("n").group("g", 0, phase="Running")
    assert [each.phase.value for each in build.decide().groups.values()] == ["Running"]


def test_roles_are_waited_for_where_the_minimum_of_the_group_holds_them(build, binds):
    build.node("n", "9").gang("any", 2, 2, minTaskMember={"worker": 3}).gang("each", 3, 3, minTaskMember={"worker": 3})
    build.gang("unstated", 0, 2, minTaskMember={"worker": 3})
    plan = build.decide()
    assert {name.partition("-")[0] for name in binds(plan)} == {"any"}


def places(plan):
    return {bind.task.name: bind.node for bind in plan.binds}


@st.composite
def shared(draw, make):
    """Queues of several weights on nodes that are partly used; each pod asks for cpu and for some of much memory."""
    build, room = make(), {}
    for name in ("default", "one", "two"):
        build.queue(name, weight=draw(st.integers(1, 3)))
    for number in range(draw(st.integers(1, 3))):
        room[f"n{number}"] = draw(st.integers(1, 6))
        build.node(f"n{number}", str(room[f"n{number}"]), memory="1Ti")
    for number in range(draw(st.integers(1, 6))):
        count, name = draw(st.integers(1, 3)), f"g{number}"
        build.group(name, draw(st.integers(0, count)), queue=draw(st.sampled_from(["default", "one", "two"])))
        for pod in range(count):
            cpu, node = draw(st.integers(1, 4)), draw(st.sampled_from([None, *room]))
            placed = {"node": node} if node is not None and room[node] >= cpu else {}
            room[node] = room.get(node, 0) - cpu if placed else room.get(node, 0)
            build.pod(f"{name}-{pod}", name, str(cpu), requests={"memory": "1Gi"}, **placed)
    return build


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_hopeless_pod_changes_nothing_for_anybody(make_build, data):
    build = data.draw(shared(make_build))
    policy = config.parse(BACKFILL)
    before = places(decide(build.cluster.snapshot(), policy, build.now))
    build.queue("three").group("hopeless", 1, queue="three")
    build.pod("hopeless-0", "hopeless", "0", requests={"memory": "1Mi"}, nodeSelector={"no": "node"})
    assert places(decide(build.cluster.snapshot(), policy, build.now)) == before


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_backfill_takes_no_place_that_allocate_gave(make_build, data):
    build = data.draw(shared(make_build))
    with_it, without = (
        decide(build.cluster.snapshot(), config.parse(text), build.now)
        for text in (BACKFILL, BACKFILL.replace(", backfill", ""))
    )
    assert places(without).items() <= places(with_it).items()
