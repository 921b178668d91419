"""Every group that doesn't run has a record: how far it is, what limits it, who is ahead, how near the nodes are."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model import kinds, names
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.model.obstacle import Stage
from scheduler.model.snapshot import GroupKey, Phase
from scheduler.simulator import state

TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "g"}}}
CAPACITY = config.DEFAULT.replace("proportion", "capacity")
RESERVING = config.DEFAULT + "configurations: [{name: allocate, arguments: {reserveAfter: 5m}}]\n"
PREEMPTING = config.DEFAULT.replace("allocate, reclaim", "allocate, preempt, reclaim")


@pytest.fixture
def record():
    return lambda plan, name: next((each for key, each in plan.records.items() if key.name == name), None)


def test_a_queue_that_does_not_exist(build, record):
    found = record(build.node("a").gang("g", 1, 1, queue="nowhere", phase="Pending").decide(), "g")
    assert found.stage is Stage.QUEUE
    assert "queue nowhere doesn't exist" in found.message


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_a_queue_that_is_closed(build, record, phase):
    build.queue("shut", state="Closed").node("a").gang("g", 1, 1, queue="shut", phase=phase)
    assert record(build.decide(), "g").stage is Stage.QUEUE


def test_which_ancestor_of_the_queue_is_too_small_and_by_how_much(build, record):
    build.queue("all", capability={"cpu": "3"}).queue("part", parent="all").node("a", "8")
    build.gang("g", 5, 5, queue="part", phase="Pending", minResources={"cpu": "5"})
    found = record(build.decide(CAPACITY), "g")
    assert found.stage is Stage.QUEUE
    assert (found.limit.kind, found.limit.name, str(found.limit.short)) == ("queue", "all", "2 cpu")


@pytest.mark.parametrize("policy", [config.DEFAULT, CAPACITY], ids=["proportion", "capacity"])
@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_a_capability_that_is_used_up_is_a_quota_and_no_lack_of_nodes(build, record, policy, phase):
    build.queue("capped", capability={"cpu": "2"}).node("a", "8")
    build.gang("g", 3, 3, queue="capped", phase=phase, minResources={"cpu": "3"})
    plan = build.decide(policy)
    found = record(plan, "g")
    assert (found.stage, found.reason.value) == (Stage.QUEUE, "NotEnoughQuota")
    (status,) = plan.groups.values()
    assert status.conditions[0].reason == "NotEnoughQuota"
    assert not plan.unplaced


def test_what_is_guaranteed_to_another_queue_is_no_quota_of_this_one(build, record):
    build.queue("theirs", guarantee={"resource": {"cpu": "6"}}).queue("ours").node("a", "8")
    build.gang("g", 4, 4, queue="ours", phase="Pending", minResources={"cpu": "4"})
    assert record(build.decide(CAPACITY), "g").reason.value == "NotEnoughResources"


def test_a_group_without_a_reservation_in_its_quota(build, record):
    build.node("a").gang("g", 1, 1)
    build.cluster.unreserved("ns", {("scheduling.volcano.sh", "g"): "the quota team has 0 cpu left"})
    found = record(build.decide(), "g")
    assert found.stage is Stage.QUOTA
    assert (found.limit.kind, found.limit.name) == ("namespace", "ns")
    assert found.message == "the quota team has 0 cpu left"


def test_room_in_the_cluster_that_others_let_in_before_are_waiting_for(build, record):
    build.node("a", "4").gang("first", 3, 1, phase="Inqueue", age=20)
    build.gang("g", 3, 3, phase="Pending", age=10)
    found = record(build.decide(), "g")
    assert found.stage is Stage.ENQUEUE
    assert str(found.limit.short) == "2 cpu"
    words = "3 pods need 3 cpu; 1 cpu is free in the cluster (3 cpu more are held for PodGroup ns/first, admitted earlier): short by 2 cpu"
    assert found.message == words


def test_a_group_of_another_namespace_is_not_named(build, record):
    waits = {"minMember": 3, "minResources": {"cpu": "3"}}
    meta = {"name": "secret", "namespace": "other", "uid": "other", "creationTimestamp": "2020-01-01T00:00:00Z"}
    other = msgspec.convert({"metadata": meta, "spec": waits, "status": {"phase": "Inqueue"}}, kinds.PODGROUPS.struct)
    build.cluster.group(kinds.PODGROUPS.group, other)
    found = record(build.node("a", "4").gang("g", 3, 3, phase="Pending", age=10).decide(), "g")
    assert "3 cpu more are held for a PodGroup of another namespace, admitted earlier" in found.message


def test_pods_that_do_not_exist_yet(build, record):
    found = record(build.node("a").gang("g", 3, 1).decide(), "g")
    assert found.stage is Stage.GANG
    assert found.nodes is None


def test_nodes_counted_by_why_they_do_not_take_a_pod(build, record):
    build.node("a", "1").node("b", "1", taints=[{"key": "gpu", "effect": "NoSchedule"}]).node("c", unschedulable=True)
    found = record(build.gang("g", 3, 3).decide(), "g")
    assert found.stage is Stage.NODES
    assert dict(found.nodes.refusals) == {"cordoned": 1, "tainted": 1}
    assert (found.nodes.total, found.nodes.fitting, found.nodes.room, found.nodes.needed) == (3, 1, 1, 3)


def test_pods_that_may_not_be_scheduled_yet(build, record):
    build.node("a").group("g", 1).pod("g-0", "g", schedulingGates=[{"name": "example.com/hold"}])
    found = record(build.decide(), "g")
    assert found.stage is Stage.GANG
    assert found.message == "1 pod has scheduling gates, and is scheduled once whoever set these removes them"


def test_nodes_with_room_for_each_pod_by_itself(build, record):
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
    build.node("a", labels={"kubernetes.io/hostname": "a"}).group("g", 2)
    for number in range(2):
        build.pod(f"g-{number}", "g", labels={"app": "g"}, affinity=apart)
    found = record(build.decide(), "g")
    assert list(found.nodes.sentences()) == ["1 of 1 node has room: for each of 2 pods by itself"]


def test_the_need_of_different_pods_is_their_sum(build, record):
    build.node("a", "5").group("g", 2).pod("g-0", "g", "2").pod("g-1", "g", "4")
    found = record(build.decide(), "g")
    assert found.message == "2 pods need 6 cpu; 5 cpu are free in the cluster: short by 1 cpu"


def test_of_pods_for_different_nodes_those_are_counted_that_find_none(build, record):
    build.node("a", "4").node("b", "1", labels={"gpu": "yes"}).group("g", 3)
    build.pod("g-0", "g", "1").pod("g-1", "g", "1").pod("g-2", "g", "2", nodeSelector={"gpu": "yes"})
    assert record(build.decide(), "g").message == (
        "1 pod needs 2 cpu; 1 cpu is free on the 1 node that takes it: short by 1 cpu"
        " (of 2 nodes 1 is not matched by the node selector or affinity)"
    )


def test_the_nearest_fit_names_the_resource_that_is_missing(build, record):
    build.node("a", "4", memory="1Gi").node("b", "4", memory="2560Mi").node("c", "1", memory="512Mi")
    build.group("g", 1).pod("g-0", "g", "2", requests={"memory": "4Gi"})
    nodes = record(build.decide(), "g").nodes
    assert nodes.nearest == "2 nodes have the cpu, none of these the memory: 1.5Gi short"


def test_the_nearest_fit_is_a_node_where_all_lack_more_than_one_resource(build, record):
    build.node("a", "1", memory="1Gi").node("b", "2", memory="3Gi")
    build.group("g", 1).pod("g-0", "g", "3", requests={"memory": "4Gi"})
    assert record(build.decide(), "g").nodes.nearest == "the nearest fit is node b: 1 cpu, 1Gi memory short"


def test_a_node_that_lacks_nothing_but_a_place(build, record):
    build.node("a", "4", pods="1").group("there", 1, phase="Running").pod("there-0", "there", node="a")
    nodes = record(build.gang("g", 1, 1).decide(), "g").nodes
    assert nodes.nearest == "1 node has the cpu, not a place for another pod"


def test_pods_on_their_way_to_nodes(build, record):
    found = record(build.node("a").gang("g", 2, 2).decide(), "g")
    assert found.stage is Stage.BIND
    assert found.message == "2 pods have nodes, none bound already; the minimum is 2 pods"


def test_of_more_pods_than_the_minimum_the_minimum_is_told_apart(build, record):
    build.node("a", "20").group("g", 3, phase="Unknown")
    for number in range(16):
        build.pod(f"g-{number}", "g", node="a", phase="Pending")
    found = record(build.decide(), "g")
    assert found.message == "16 pods have nodes, 16 bound already; the minimum is 3 pods"


@pytest.mark.parametrize(
    ("minimum", "running", "said"),
    [
        (3, 2, "3 pods have to start together; 2 exist, and no Job creates more"),
        (2, 1, "2 pods have to start together; 1 exists, and no Job creates more"),
    ],
)
def test_pods_that_nobody_creates_are_not_said_to_be_created(build, record, minimum, running, said):
    build.node("a", "8").group("g", minimum, phase="Unknown")
    for number in range(running):
        build.pod(f"g-{number}", "g", node="a")
    found = record(build.decide(), "g")
    assert (found.stage, found.message) == (Stage.GANG, said)


@pytest.mark.parametrize("policy", [config.DEFAULT, CAPACITY], ids=["proportion", "capacity"])
def test_a_queue_without_a_capability_is_not_said_to_have_used_it_up(build, record, policy):
    build.queue("default").node("a", "4").node("b", "4")
    build.gang("g", 9, 9, phase="Pending", minResources={"cpu": "9"})
    found = record(build.decide(policy.replace("overcommit-factor: 1.0", "overcommit-factor: 2.0")), "g")
    assert (
        found.message
        == "9 pods need 9 cpu; 8 cpu are left for queue default of all that the nodes have: short by 1 cpu"
    )


@pytest.mark.parametrize("policy", [config.DEFAULT, CAPACITY], ids=["proportion", "capacity"])
def test_only_what_a_capability_lists_is_short_of_it(build, record, policy):
    build.queue("lab", capability={"cpu": "2"}).node("a", "4", memory="1Gi")
    build.gang("g", 3, 3, queue="lab", phase="Pending", minResources={"cpu": "3", "memory": "4Gi"})
    found = record(build.decide(policy), "g")
    assert found.message == "3 pods need 3 cpu; 2 cpu are left of the capability of queue lab: short by 1 cpu"


def test_why_pods_beyond_the_minimum_of_a_group_that_runs_have_no_node(build):
    build.node("a", "3").group("g", 2, phase="Running").pod("g-0", "g", node="a").pod("g-1", "g", node="a")
    build.pod("g-2", "g", "2").pod("g-3", "g", "2")
    key = GroupKey(kinds.PODGROUPS.group, "ns", "g")
    assert key not in build.decide().records
    plan = decide(build.cluster.snapshot(), config.parse(config.DEFAULT), build.now, growing=[key])
    assert plan.records[key].stage is Stage.NODES
    assert plan.records[key].message == "1 pod needs 2 cpu; 1 cpu is free in the cluster: short by 1 cpu"


def test_places_that_others_are_leaving(build, record):
    build.node("a", "1").pod("leaving", node="a", leaving=True)
    found = record(build.gang("g", 1, 1).decide(), "g")
    assert found.stage is Stage.NODES
    assert found.message == "1 pod has a reserved place that other pods are leaving"


def test_how_many_groups_of_the_queue_are_ahead(build, record):
    build.queue("other").node("a", "1").priority("high", 10)
    for age, name in ((30, "old"), (20, "middle"), (10, "young")):
        build.gang(name, 2, 2, phase="Pending", age=age)
    build.gang("urgent", 2, 2, phase="Pending", priorityClassName="high").gang("beside", 2, 2, queue="other")
    plan = build.decide()
    ahead = {name: record(plan, name).ahead for name in ("urgent", "old", "middle", "young", "beside")}
    assert ahead == {"urgent": 0, "old": 1, "middle": 2, "young": 3, "beside": 0}


def test_nodes_kept_for_a_group_that_waits_for_longer(build, record):
    build.node("a", "4").group("there", 1, phase="Running").pod("there-0", "there", "1", node="a")
    build.gang("large", 1, 1, "4", age=300).cycle(RESERVING)
    found = record(build.gang("small", 1, 1, age=10).cycle(RESERVING, later=1), "small")
    assert found.nodes.kept == (1, "ns/large", "PodGroup ns/large")


def test_moments_in_conditions_are_whole_seconds_as_the_api_server_keeps_them(build):
    plan = build.gang("g", 1, 1).decide(later=0.75)
    (status,) = plan.groups.values()
    assert [each.last_transition_time for each in status.conditions] == [build.now]


def test_groups_that_run_or_ended_have_no_record(build):
    build.node("a").group("g", 1, phase="Running").pod("g-0", "g", node="a").group("done", 1, phase="Completed")
    assert build.decide().records == {}


def test_the_record_of_a_dumped_cluster(build):
    build.node("a").gang("g", 3, 1).group("runs", 1, phase="Running").pod("runs-0", "runs", node="a")
    policy = config.parse(config.DEFAULT)
    records = state.decide_once(build.cluster, policy, build.now).records
    assert {(key.namespace, key.name): each.stage for key, each in records.items()} == {("ns", "g"): Stage.GANG}


def test_a_record_as_programs_and_people_read_it(build, record):
    build.node("a", "1").node("b", "1", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    found = record(build.gang("g", 3, 3).decide(), "g")
    assert json.loads(json.dumps(found.data())) == {
        "podGroup": "ns/g",
        "queue": "default",
        "stage": "nodes",
        "reason": "NotEnoughResources",
        "message": "3 pods need 3 cpu; 1 cpu is free on the 1 node that takes them: short by 2 cpu (of 2 nodes 1 is tainted)",
        "groupsAhead": 0,
        "limit": {"kind": "cluster", "name": "", "short": {"cpu": "2"}},
        "nodes": {
            "total": 2,
            "refusals": {"tainted": 1},
            "fitting": 1,
            "room": 1,
            "needed": 3,
            "nearest": "",
            "kept": None,
        },
    }
    assert list(found.lines()) == [
        "PodGroup ns/g waits at stage 5 of 6: nodes (queue > quota > enqueue > gang > nodes > bind)",
        "3 pods need 3 cpu; 1 cpu is free on the 1 node that takes them: short by 2 cpu (of 2 nodes 1 is tainted)",
        "limit: cluster, short by 2 cpu",
        "ahead of it: no group of queue default",
        "nodes: 1 of 2 nodes is tainted",
        "nodes: 1 of 2 nodes has room: for 1 of 3 pods",
    ]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_group_that_does_not_run_has_a_record(make_build, data):
    build = make_build().queue("default").queue("tight", capability={"cpu": "1"})
    for number in range(data.draw(st.integers(0, 2))):
        build.node(f"n{number}", data.draw(st.sampled_from(["1", "4"])))
    for number in range(data.draw(st.integers(1, 5))):
        phase = data.draw(st.sampled_from(["Pending", "Inqueue", "Running", "Unknown", "Completed"]))
        queue = data.draw(st.sampled_from(["default", "tight", "nowhere"]))
        least = data.draw(st.integers(0, 3))
        build.gang(f"g{number}", least, data.draw(st.integers(0, 3)), queue=queue, phase=phase)
    plan = build.decide()
    idle = {key for key, status in plan.groups.items() if status.phase not in {Phase.RUNNING, Phase.COMPLETED}}
    assert set(plan.records) == idle
    assert all(each.message for each in plan.records.values())


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_a_queue_that_is_missing_or_closed_is_a_reason_of_its_own(build, record, phase):
    build.queue("shut", state="Closed").node("a", "8")
    build.gang("lost", 1, 1, queue="nowhere", phase=phase).gang("late", 1, 1, queue="shut", phase=phase)
    plan = build.decide()
    reasons = {key.name: status.conditions[0].reason for key, status in plan.groups.items()}
    assert reasons == {"lost": "QueueNotFound", "late": "QueueClosed"}
    assert {name: record(plan, name).reason.value for name in reasons} == reasons


def test_a_completed_group_with_waiting_pods_that_can_not_start_says_so(build, record):
    build.node("a", "8").gang("again", 2, 2, phase="Completed")
    build.cluster.refused(GroupKey(names.VOLCANO_GROUP, "ns", "again"), "quota q is short by 1 cpu")
    plan = build.decide()
    (status,) = plan.groups.values()
    words = "it is Completed, and 2 pods wait for its next start: quota q is short by 1 cpu"
    assert (status.phase.value, status.conditions[0].reason, status.conditions[0].message) == (
        "Completed",
        "NotEnoughQuota",
        words,
    )
    assert (record(plan, "again").stage, record(plan, "again").message) == (Stage.QUOTA, words)


def test_what_is_generated_is_named_by_its_workload(build, record):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "minpar", "uid": "1234"}
    meta = {"name": "podgroup-1234", "namespace": "ns", "uid": "first", "ownerReferences": [owner]}
    body = {"metadata": meta, "spec": {"minMember": 3, "minResources": {"cpu": "3"}}, "status": {"phase": "Inqueue"}}
    build.cluster.group(kinds.PODGROUPS.group, msgspec.convert(body, kinds.PODGROUPS.struct))
    build.pod("minpar-0", "podgroup-1234")
    found = record(build.node("a", "4").gang("g", 3, 3, phase="Pending", age=10).decide(), "g")
    assert "1 cpu is free in the cluster (3 cpu more are held for Job ns/minpar, admitted earlier)" in found.message


def test_who_leaves_is_told_for_which_workload(build):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "hi", "uid": "1234"}
    build.priority("high", 10).node("a", "1").group("low", 0, phase="Running").pod("low-0", "low", node="a")
    meta = {"name": "podgroup-1234", "namespace": "ns", "uid": "hi", "ownerReferences": [owner]}
    body = {"metadata": meta, "spec": {"minMember": 1, "priorityClassName": "high"}, "status": {"phase": "Inqueue"}}
    build.cluster.group(kinds.PODGROUPS.group, msgspec.convert(body, kinds.PODGROUPS.struct))
    build.pod("hi-0", "podgroup-1234")
    (eviction,) = build.decide(PREEMPTING).evictions
    assert (eviction.title, eviction.priority) == ("Job ns/hi", 10)
