"""The actions preempt and reclaim: who goes for whom, and that nobody goes in vain."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.kube import errors
from muster.model import kinds
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.model.snapshot import OCCUPYING, TaskStatus

POLICY = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
WHOLE = POLICY + "configurations: [{name: preempt, arguments: {evictWholeJobs: true}}]\n"
HIGH = {"priorityClassName": "high"}


@pytest.fixture
def build(make_build):
    build = make_build().queue("default")
    build.priority("high", 1000)
    return build


def running(build, name, minimum, count, node, cpu="1", **spec):
    build.group(name, minimum, phase="Running", **spec)
    for number in range(count):
        build.pod(f"{name}-{number}", name, cpu, node=node)


def evicted(plan):
    return sorted(each.task.name for each in plan.evictions)


def test_a_gang_gives_only_what_it_has_beyond_its_minimum(build):
    build.node("n", "4")
    running(build, "low", 2, 4, "n")
    build.gang("urgent", 2, 2, **HIGH)
    plan = build.decide(POLICY)
    assert len(evicted(plan)) == 2
    assert {each.beneficiary.name for each in plan.evictions} == {"urgent"}
    assert len(plan.pipelined) == 2
    assert plan.binds == ()


def test_nobody_is_evicted_for_a_gang_that_could_not_start_all_the_same(build):
    build.node("n", "4")
    running(build, "low", 2, 4, "n")
    build.gang("urgent", 3, 3, **HIGH)
    plan = build.decide(POLICY)
    assert evicted(plan) == []
    assert plan.pipelined == ()


def apart(label):
    term = {"labelSelector": {"matchLabels": {"app": label}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_who_is_not_wanted_near_goes_and_nobody_else(build):
    build.node("n", "8", labels={"kubernetes.io/hostname": "n"}).group("low", 0, phase="Running")
    build.pod("low-beside", "low", node="n").pod("low-x", "low", node="n", labels={"app": "x"})
    build.group("urgent", 1, **HIGH).pod("urgent-0", "urgent", affinity=apart("x"))
    plan = build.decide(POLICY)
    assert evicted(plan) == ["low-x"]
    assert [bind.node for bind in plan.pipelined] == ["n"]


@pytest.mark.parametrize(
    ("node", "there", "asked", "words"),
    [
        ({}, {"ports": [{"hostPort": 80}], "labels": {"volcano.sh/preemptable": "false"}},
         {"ports": [{"hostPort": 80}]}, "using its host port already"),
        ({}, {}, {"nodeSelector": {"disk": "ssd"}}, "not matched by the node selector or affinity"),
        ({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, {}, {}, "tainted"),
        ({"labels": {"kubernetes.io/hostname": "n"}}, {"labels": {"app": "x", "volcano.sh/preemptable": "false"}},
         {"affinity": apart("x")}, "near pods that its own anti-affinity excludes"),
    ],
    ids=["host port of who may not go", "selector", "taint", "anti-affinity to who may not go"],
)  # fmt: skip
def test_nobody_goes_where_that_is_not_what_keeps_a_pod_off(build, node, there, asked, words):
    build.node("n", "2", **node)
    build.group("low", 0, phase="Running").pod("low-0", "low", node="n", **there).pod("low-1", "low", node="n")
    build.group("urgent", 1, **HIGH).pod("urgent-0", "urgent", **asked)
    plan = build.decide(POLICY)
    assert evicted(plan) == []
    (found,) = [each for key, each in plan.records.items() if key.name == "urgent"]
    assert words in " ".join(words for words, _ in found.nodes.refusals)
    assert words in found.message


PORT = {"ports": [{"hostPort": 80}]}


def on_port_80(build, *nodes):
    """Nodes, each with a pod that has the port, one with another, and one with none."""
    build.group("low", 0, phase="Running")
    for node in nodes:
        build.node(node, "9").pod(f"has-{node}", "low", node=node, **PORT)
        build.pod(f"other-{node}", "low", node=node, ports=[{"hostPort": 81}]).pod(f"none-{node}", "low", node=node)


def test_who_has_the_host_port_goes_and_nobody_else(build):
    on_port_80(build, "n")
    build.group("urgent", 1, **HIGH).pod("urgent-0", "urgent", **PORT)
    plan = build.decide(POLICY)
    assert evicted(plan) == ["has-n"]
    assert [bind.node for bind in plan.pipelined] == ["n"]


def test_a_promised_port_is_nobody_else_s_and_nobody_goes_twice_for_it(build):
    on_port_80(build, "m", "n")
    build.group("urgent", 1, **HIGH).pod("urgent-0", "urgent", **PORT)
    first = build.cycle(POLICY)
    assert len(evicted(first)) == 1
    (promised,) = first.pipelined
    build.group("next", 1, **HIGH).pod("next-0", "next", **PORT)
    second = build.cycle(POLICY)
    assert {each.task.name for each in second.pipelined} == {"urgent-0", "next-0"}
    assert sorted([*evicted(first), *evicted(second)]) == ["has-m", "has-n"]
    build.group("third", 1, **HIGH).pod("third-0", "third", **PORT)
    assert evicted(build.cycle(POLICY)) == []
    build.gone(f"has-{promised.node}")
    assert [(each.task.name, each.node) for each in build.cycle(POLICY).binds] == [("urgent-0", promised.node)]


def test_a_port_that_is_being_given_back_makes_nobody_leave(build):
    build.node("m", "9").node("n", "9").group("low", 0, phase="Running")
    build.pod("leaves", "low", node="m", leaving=True, **PORT).pod("stays", "low", node="n", **PORT)
    build.group("urgent", 1, **HIGH).pod("urgent-0", "urgent", **PORT)
    plan = build.decide(POLICY)
    assert evicted(plan) == []
    assert [bind.node for bind in plan.pipelined] == ["m"]


def test_nobody_goes_for_a_port_that_a_second_pod_has_too(build):
    build.node("n", "9").group("low", 0, phase="Running").pod("one", "low", node="n", **PORT)
    # The kubelet's own, say: nobody asked a scheduler for it.
    build.pod("static", node="n", priority=2 * 10**9, **PORT)
    build.group("urgent", 1, **HIGH).pod("urgent-0", "urgent", **PORT)
    assert evicted(build.decide(POLICY)) == []


def test_room_and_a_port_are_made_together(build):
    build.node("n", "3").group("low", 0, phase="Running").pod("has", "low", node="n", **PORT)
    build.pod("big", "low", "2", node="n").pod("small", "low", "0", node="n")
    build.group("urgent", 1, **HIGH).pod("urgent-0", "urgent", "2", **PORT)
    assert sorted(evicted(build.decide(POLICY))) == ["big", "has"]


def test_a_whole_job_goes_only_where_the_action_may_take_it(build):
    build.node("n", "4")
    running(build, "low", 4, 4, "n")
    build.gang("urgent", 1, 1, **HIGH)
    assert evicted(build.decide(POLICY)) == []
    assert evicted(build.decide(WHOLE)) == ["low-0", "low-1", "low-2", "low-3"]


def test_a_whole_job_stays_where_one_of_its_pods_may_not_go(build):
    build.node("n", "4")
    running(build, "low", 4, 3, "n")
    build.pod("low-kept", "low", node="n", labels={"volcano.sh/preemptable": "false"})
    build.gang("urgent", 1, 1, **HIGH)
    assert evicted(build.decide(WHOLE)) == []


def test_a_group_that_goes_as_a_whole_or_not_at_all_gives_no_pod_beyond_its_minimum(build):
    build.node("n", "4")
    running(build, "low", 1, 4, "n", annotations={"muster.sh/disruption-mode": "All"})
    build.gang("urgent", 1, 1, **HIGH)
    assert evicted(build.decide(POLICY)) == []
    assert evicted(build.decide(WHOLE)) == ["low-0", "low-1", "low-2", "low-3"]


def test_nothing_is_evicted_for_a_group_that_says_never(build):
    build.node("n", "4")
    running(build, "low", 1, 4, "n")
    build.gang("urgent", 1, 1, annotations={"muster.sh/preemption-policy": "Never"}, **HIGH)
    assert evicted(build.decide(POLICY)) == []


def test_no_more_go_than_are_needed(build):
    build.node("n", "4")
    build.group("low", 0, phase="Running")
    build.pod("low-big", "low", "3", node="n", priority=5)
    build.pod("low-small", "low", "1", node="n")
    build.gang("urgent", 1, 1, "3", **HIGH)
    assert evicted(build.decide(POLICY)) == ["low-big"]


def test_critical_pods_and_those_that_may_not_be_evicted_stay(build):
    build.node("n", "4")
    build.group("low", 0, phase="Running")
    build.pod("critical", "low", node="n", priority=2 * 10**9)
    build.pod("by-class", "low", node="n", priorityClassName="system-node-critical")
    build.pod("kept", "low", node="n", labels={"volcano.sh/preemptable": "false"})
    build.pod("other", "low", node="n")
    build.gang("urgent", 1, 1, **HIGH)
    assert evicted(build.decide(POLICY)) == ["other"]


def test_a_pod_whose_policy_is_never_makes_nobody_leave(build):
    build.node("n", "1")
    running(build, "low", 0, 1, "n")
    build.group("urgent", 1, **HIGH).pod("urgent-0", "urgent", preemptionPolicy="Never")
    assert evicted(build.decide(POLICY)) == []


def test_equals_do_not_evict_each_other(build):
    build.node("n", "1")
    running(build, "low", 0, 1, "n")
    build.gang("same", 1, 1)
    assert evicted(build.decide(POLICY)) == []


def test_a_queue_takes_back_what_it_deserves_and_no_more(build):
    build.node("n", "4").queue("other")
    running(build, "greedy", 0, 4, "n")
    build.gang("due", 2, 2, queue="other")
    assert len(evicted(build.decide(POLICY))) == 2
    build.gang("more", 1, 1, queue="other")
    assert len(evicted(build.decide(POLICY))) == 2


def borrowing(build, minimum, **spec):
    """Queue default runs groups of one pod of 1 cpu on all of 4 cpu; queue other, of the same weight, wants its part."""
    build.node("n", "4").queue("other")
    for number in range(4):
        running(build, f"single{number}", minimum, 1, "n", **spec)
    return build.gang("due", 3, 3, queue="other").gang("small", 1, 1, queue="other")


@pytest.mark.parametrize(
    "spec", [{}, {"minResources": {"cpu": "1"}}, {"minTaskMember": {"": 1}}], ids=["1", "minResources", "minTaskMember"]
)
def test_what_is_borrowed_is_given_back_by_groups_of_one_down_to_what_their_queue_deserves(build, spec):
    plan = borrowing(build, 1, **spec).decide(POLICY)
    assert len(evicted(plan)) == 1, "3 cpu would leave the queue under its share of 2, 1 doesn't"
    assert {each.beneficiary.name for each in plan.evictions} == {"small"}
    build.without("small").gone("small-0").gang("fits", 2, 2, queue="other")
    assert len(evicted(build.decide(POLICY))) == 2


def test_of_two_queues_that_borrowed_the_one_of_lower_priority_gives_back_first(build):
    build.node("n", "6").queue("low", priority=1).queue("high", priority=5).queue("due")
    running(build, "high", 0, 3, "n", queue="high")
    running(build, "low", 0, 3, "n", queue="low")
    build.gang("due", 1, 2, queue="due")
    assert [name.partition("-")[0] for name in evicted(build.decide(POLICY))] == ["low"]


def test_of_two_queues_that_are_due_the_one_of_higher_priority_takes_back_first(build):
    build.node("n", "4").queue("low", priority=1).queue("high", priority=5)
    running(build, "lent", 0, 1, "n")
    for number in range(1, 4):
        build.pod(f"lent-{number}", "lent", node="n", labels={"volcano.sh/preemptable": "false"})
    build.gang("a-low", 1, 1, queue="low").gang("b-high", 1, 1, queue="high")
    plan = build.decide(POLICY)
    assert [(each.task.name, each.beneficiary.name) for each in plan.evictions] == [("lent-0", "b-high")]


def test_a_gang_of_two_is_not_broken_for_what_its_queue_borrowed(build):
    build.node("n", "4").queue("other")
    for name in ("left", "right"):
        running(build, name, 2, 2, "n")
    build.gang("due", 2, 2, queue="other")
    assert evicted(build.decide(POLICY)) == []
    assert len(evicted(build.decide(WHOLE.replace("name: preempt", "name: reclaim")))) == 2


@pytest.mark.parametrize(("deserved", "gone"), [("4", 0), ("3", 1), ("1", 1)])
def test_a_group_of_one_makes_room_for_an_urgent_one_only_where_its_queue_borrowed(build, deserved, gone):
    build.node("n", "4").queue("default", deserved={"cpu": deserved})
    for number in range(4):
        running(build, f"single{number}", 1, 1, "n", minResources={"cpu": "1"})
    build.gang("urgent", 1, 1, **HIGH)
    assert len(evicted(build.decide(POLICY.replace("proportion", "capacity")))) == gone


def test_a_hundred_groups_of_one_do_not_keep_what_they_borrowed(build):
    build.node("n", "100").queue("other")
    for number in range(100):
        running(build, f"single{number}", 1, 1, "n")
    build.gang("due", 50, 50, queue="other")
    assert len(evicted(build.decide(POLICY))) == 50


def test_roles_are_no_minimum_where_they_exceed_that_of_the_group(build):
    build.node("n", "4")
    running(build, "low", 1, 4, "n", minTaskMember={"": 3})
    build.gang("urgent", 3, 3, minTaskMember={"": 3}, **HIGH)
    assert len(evicted(build.decide(POLICY))) == 3
    build.group("low", 3, phase="Running", minTaskMember={"": 3})
    assert evicted(build.decide(POLICY)) == []


def test_a_queue_that_says_so_is_not_reclaimed_from(build):
    build.node("n", "4").queue("kept", reclaimable=False).queue("other")
    running(build, "greedy", 0, 4, "n", queue="kept")
    build.gang("due", 1, 1, queue="other")
    assert evicted(build.decide(POLICY)) == []


def test_a_promise_is_kept_until_the_place_is_free_and_nobody_goes_twice(build):
    build.node("n", "1")
    running(build, "low", 0, 1, "n")
    build.gang("urgent", 1, 1, **HIGH)
    first = build.decide(POLICY)
    assert evicted(first) == ["low-0"]
    build.cluster.evicting("uid-low-0")
    build.cluster.nominate({each.task.uid: each.node for each in first.pipelined})
    build.gang("later", 1, 1, **HIGH)

    waiting = build.decide(POLICY)
    assert evicted(waiting) == []
    assert [each.task.name for each in waiting.pipelined] == ["urgent-0"]

    build.gone("low-0")
    assert [(each.task.name, each.node) for each in build.decide(POLICY).binds] == [("urgent-0", "n")]


def test_what_is_idle_on_a_promised_node_is_not_given_away(build):
    build.node("n", "2")
    running(build, "low", 0, 1, "n")
    build.gang("urgent", 1, 1, "2", **HIGH).gang("small", 1, 1)
    plan = build.decide(POLICY.replace("allocate, preempt", "preempt, allocate"))
    assert evicted(plan) == ["low-0"]
    assert plan.binds == ()


def test_a_pod_that_a_budget_protects_is_spared_for_another(build):
    build.node("n", "2")
    running(build, "low", 0, 2, "n")
    build.gang("urgent", 1, 1, **HIGH)
    (first,) = evicted(build.decide(POLICY))
    build.cluster.evicting(f"uid-{first}")
    build.cluster.spare(f"uid-{first}")
    (second,) = evicted(build.decide(POLICY))
    assert second != first
    build.cluster.unspare(f"uid-{first}")
    assert evicted(build.decide(POLICY)) == [first]


@st.composite
def crowded(draw, make):
    build = make()
    build.priority("high", 1000)
    build.queue("default", weight=draw(st.integers(1, 3))).queue("b", reclaimable=draw(st.booleans()))
    room = {f"n{number}": draw(st.integers(1, 6)) for number in range(draw(st.integers(1, 3)))}
    for name, cpu in room.items():
        build.node(name, str(cpu))
    for number in range(draw(st.integers(1, 5))):
        spec = {"queue": draw(st.sampled_from(["default", "b"])), **draw(st.sampled_from([{}, HIGH]))}
        count = draw(st.integers(1, 4))
        name = f"g{number}"
        build.group(name, draw(st.integers(0, count)), phase="Running" if draw(st.booleans()) else "Inqueue", **spec)
        for pod in range(count):
            cpu = draw(st.integers(1, 2))
            node = draw(st.sampled_from([None, *room]))
            placed = node is not None and room[node] >= cpu
            if placed:
                room[node] -= cpu
            build.pod(f"{name}-{pod}", name, str(cpu), **({"node": node} if placed else {}))
    return build


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_evictions_break_no_gang_starve_no_queue_and_let_somebody_start(make_build, data):
    build = data.draw(crowded(make_build))
    snapshot = build.cluster.snapshot()
    policy = config.parse(data.draw(st.sampled_from([POLICY, WHOLE, POLICY.replace("allocate, ", "")])))
    plan = decide(snapshot, policy, build.now)
    jobs = {job.key: job for job in snapshot.jobs}
    gone = [each.task.uid for each in plan.evictions]
    assert len(gone) == len(set(gone))

    for key in {each.group for each in plan.evictions}:
        left = sum(task.status in OCCUPYING and task.uid not in gone for task in jobs[key].tasks)
        whole = policy.arguments["preempt"].whole and left == 0
        # What a group of one has is protected only as far as its queue deserves it, which is checked below.
        single = jobs[key].min_member == 1
        assert left >= jobs[key].min_member or whole or single, f"{key} is broken by eviction"

    for key in {each.beneficiary for each in plan.evictions}:
        counts = plan.tasks[key]
        held = sum(counts.get(status, 0) for status in (*OCCUPYING, TaskStatus.PIPELINED))
        assert held >= jobs[key].min_member, f"others left for {key}, which doesn't start"

    for queue in {
        jobs[each.group].queue for each in plan.evictions if jobs[each.group].queue != jobs[each.beneficiary].queue
    }:
        share = plan.queues[queue]
        assert share.allocated.nano.get("cpu", 0) >= share.deserved.nano.get("cpu", 0), f"{queue} is below its share"

    future = dict(zip(snapshot.table.names, (snapshot.idle + snapshot.releasing).tolist(), strict=True))
    for sign, node, task in [(1, each.task.node, each.task) for each in plan.evictions] + [
        (-1, each.node, each.task) for each in (*plan.binds, *plan.pipelined)
    ]:
        future[node] = [a + sign * b for a, b in zip(future[node], task.task_class.vector(snapshot.axes), strict=True)]
    assert all(left >= 0 for each in future.values() for left in each)


async def test_a_pod_is_evicted_and_the_urgent_one_runs_in_its_place(world):
    await world.node("1", "4Gi")
    await world.create({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000})
    await world.create(group("low"), pod("low-0", "low"))
    await world.work(POLICY)
    await world.phase("low", "Running")
    await world.create(group("urgent", priorityClassName="high"), pod("urgent-0", "urgent"))
    await world.phase("urgent", "Running", within=120)
    assert await world.client.find(kinds.PODS, "low-0", world.namespace) is None


@pytest.mark.only("sandbox", reason="a refused eviction is put off for 30 seconds, which only virtual time gives")
async def test_a_budget_is_respected(world):
    await world.node("1", "4Gi")
    await world.create({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000})
    await world.create(group("low"), pod("low-0", "low"))
    await world.work(POLICY)
    await world.phase("low", "Running")
    asked = []

    async def refuse(self, namespace, name, uid):
        asked.append((namespace, name, uid))
        raise errors.TooManyRequestsError(429, "TooManyRequests", "the budget is spent", retry_after=30)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("muster.kube.client.Client.evict", refuse)
        await world.create(group("urgent", priorityClassName="high"), pod("urgent-0", "urgent"))
        await world.until(lambda: _enough(asked, 2), within=120)
    assert (await world.client.get(kinds.PODS, "low-0", world.namespace)).metadata.deletion_timestamp is None


async def _enough(asked, count):
    return len(asked) >= count


def group(name, **spec):
    meta = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"minMember": 0 if name == "low" else 1, "queue": "default", **spec},
    }


def pod(name, group_name):
    annotations = {"scheduling.k8s.io/group-name": group_name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "schedulerName": "muster",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    }
