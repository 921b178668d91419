"""Groups that are Pending on a full cluster, and the evictions that admit them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from workloads import deployment, group, held_job, job, pod, said

from muster.model import kinds, names
from muster.model.objects import OwnerReference
from scheduler.configuration import config
from scheduler.engine.eviction import EvictionRun
from scheduler.model.snapshot import Phase

PREEMPTING = config.DEFAULT.replace("allocate, reclaim", "allocate, preempt, reclaim")
QUEUE = names.QUEUE_NAME_KEYS[0]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HIGH = {"priorityClassName": "high"}


@pytest.fixture
def build(build):
    return build.priority("high", 1000).node("n", "4")


def running(build, name, minimum, count, node="n", cpu="1", **spec):
    build.group(name, minimum, phase="Running", **spec)
    for number in range(count):
        build.pod(f"{name}-{number}", name, cpu, node=node)


def phase(plan, name):
    return next(status.phase for key, status in plan.groups.items() if key.name == name)


def evicted(plan):
    return sorted(each.task.name for each in plan.evictions)


def test_a_pending_group_of_high_priority_is_admitted_on_a_full_cluster_by_preemption(build):
    running(build, "low", 1, 4)
    build.gang("urgent", 2, 2, phase="Pending", **HIGH)
    plan = build.cycle(PREEMPTING)
    assert phase(plan, "urgent") is Phase.INQUEUE
    assert len(evicted(plan)) == 2
    assert {bind.task.name for bind in plan.pipelined} == {"urgent-0", "urgent-1"}


def test_a_pending_group_is_admitted_by_reclaim_with_what_ships(build):
    build.queue("other")
    running(build, "greedy", 1, 4)
    build.gang("due", 2, 2, phase="Pending", queue="other")
    plan = build.cycle()
    assert phase(plan, "due") is Phase.INQUEUE
    assert len(evicted(plan)) == 2


def lent(build):
    """A full cluster of one queue, and another that deserves half of it."""
    build.queue("other")
    running(build, "greedy", 1, 4)
    return build


def test_a_held_job_is_tried_by_its_template_and_its_places_are_kept_until_its_pods_come(build):
    lent(build).group("due", 2, phase="Pending", queue="other").cluster.batch_job(held_job("due", 2))
    plan = build.cycle()
    assert (phase(plan, "due"), len(evicted(plan))) == (Phase.INQUEUE, 2)
    assert plan.released == {"job-due"}
    assert [place.node for kept in plan.kept_places.values() for place in kept.places] == ["n", "n"]
    assert plan.pipelined == ()
    for name in evicted(plan):
        build.gone(name).pod(f"{name}-again", "greedy")
    waiting = build.cycle(later=1)
    # The successors of those who left don't get the places, nor does anybody leave again.
    assert (waiting.binds, evicted(waiting)) == ((), [])
    build.pod("due-0", "due").pod("due-1", "due")
    assert sorted(bind.task.name for bind in build.cycle(later=2).binds) == ["due-0", "due-1"]


def test_kept_places_are_given_up_when_its_user_suspends_its_job(build):
    lent(build).group("due", 2, phase="Pending", queue="other").cluster.batch_job(held_job("due", 2))
    for name in evicted(build.cycle()):
        build.gone(name).pod(f"{name}-again", "greedy")
    build.cluster.batch_job(
        replace(held_job("due", 2), metadata=replace(held_job("due", 2).metadata, annotations=None))
    )
    given_up = build.cycle(later=1)
    assert given_up.kept_places == {}


def test_kept_places_are_given_up_when_no_pod_came_for_the_inqueue_time_out(build):
    lent(build).group("due", 2, phase="Pending", queue="other").cluster.batch_job(held_job("due", 2))
    for name in evicted(build.cycle()):
        build.gone(name)
    resumed = held_job("due", 2)
    build.cluster.batch_job(replace(resumed, spec=replace(resumed.spec, suspend=False)))
    kept = build.cycle(later=59)
    assert [len(each.places) for each in kept.kept_places.values()] == [2]
    assert kept.next_deadline == (NOW + timedelta(seconds=60)).timestamp()
    assert build.cycle(later=61).kept_places == {}


def test_a_job_that_its_user_suspended_makes_nobody_leave(build):
    lent(build).group("due", 2, phase="Pending", queue="other").cluster.batch_job(held_job("due", 2, by_us=False))
    plan = build.decide()
    assert (phase(plan, "due"), evicted(plan)) == (Phase.PENDING, [])


def test_a_held_job_whose_pods_never_preempt_makes_nobody_leave(build):
    lent(build).group("due", 2, phase="Pending", queue="other")
    build.cluster.batch_job(held_job("due", 2, preemptionPolicy="Never"))
    assert evicted(build.decide()) == []


def test_of_which_nothing_is_known_but_its_minimum_nobody_leaves_for(build):
    lent(build).group("due", 2, phase="Pending", queue="other", minResources={"cpu": "2"})
    plan = build.decide(later=10)
    assert (phase(plan, "due"), evicted(plan)) == (Phase.PENDING, [])


def test_it_is_all_of_the_minimum_or_nobody(build):
    lent(build).group("due", 3, phase="Pending", queue="other").cluster.batch_job(held_job("due", 3))
    # Its queue deserves 2.
    plan = build.decide()
    assert (phase(plan, "due"), evicted(plan)) == (Phase.PENDING, [])


def stored(pod, *, age, controlled):
    """A pod as an API server has it, that its node took so many seconds ago."""
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="r", uid="r", controller=True)
    began = NOW - timedelta(seconds=age)
    metadata = replace(pod.metadata, creation_timestamp=began, owner_references=(owner,) if controlled else None)
    return replace(pod, metadata=metadata, status=replace(pod.status, start_time=began))


@pytest.mark.parametrize(
    ("age", "controlled", "arguments", "goes"),
    [
        (61, True, "", True),
        (59, True, "", False),
        (61, False, "", False),
        (61, False, "barePods: true", True),
        (59, False, "barePods: true", False),
        (2, True, "leastRunTime: 1s", True),
    ],
)
def test_reclaim_spares_bare_pods_and_those_that_have_just_begun(build, age, controlled, arguments, goes):
    build.queue("other").group("greedy", 0, phase="Running")
    for number in range(4):
        pod = build.a_pod(f"greedy-{number}", "greedy", node="n")
        build.cluster.pod(stored(pod, age=age, controlled=controlled))
    build.gang("due", 1, 1, phase="Pending", queue="other")
    configured = f"configurations: [{{name: reclaim, arguments: {{{arguments}}}}}]\n" if arguments else ""
    plan = build.decide(config.DEFAULT + configured)
    assert bool(evicted(plan)) is goes
    # Somebody looks again when the minute is over.
    assert goes or not controlled or plan.next_deadline == (NOW + timedelta(seconds=1)).timestamp()


def test_of_bare_pods_and_others_the_others_go_first(build):
    build.queue("other").group("greedy", 0, phase="Running")
    for number in range(4):
        pod = build.a_pod(f"greedy-{number}", "greedy", node="n")
        build.cluster.pod(stored(pod, age=100, controlled=number == 1))
    build.gang("due", 1, 1, phase="Pending", queue="other")
    plan = build.decide(config.DEFAULT + "configurations: [{name: reclaim, arguments: {barePods: true}}]\n")
    assert evicted(plan) == ["greedy-1"]


def test_overuse_is_a_reason_at_equal_priority_and_only_for_a_minimum(build):
    build.group("wide", 1, phase="Running", minResources={"cpu": "1"})
    for number in range(4):
        build.pod(f"wide-{number}", "wide", node="n")
    build.gang("due", 2, 3, phase="Pending", minResources={"cpu": "2"})
    policy = PREEMPTING.replace("  - name: drf\n", "")
    assert len(evicted(build.decide(policy))) == 2


@pytest.mark.parametrize(
    ("minimum", "cpus", "gone"),
    [
        (1, ["1"] * 4, 2),
        (2, ["1"] * 4, 2),
        (3, ["1"] * 4, 0),
        (0, ["1"] * 4, 2),
        (1, ["2", "2"], 1),
        (2, ["2", "2"], 0),
    ],
)
def test_who_states_no_resources_needs_its_minimum_times_what_its_pods_ask_for(build, minimum, cpus, gone):
    build.group("wide", minimum, phase="Running")
    for number, cpu in enumerate(cpus):
        build.pod(f"wide-{number}", "wide", cpu, node="n")
    build.gang("due", 2, 3, phase="Pending")
    assert len(evicted(build.decide(PREEMPTING))) == gone


def test_a_group_without_a_minimum_keeps_its_last_pod_at_equal_priority(build):
    build.group("wide", 0, phase="Running").pod("wide-0", "wide", "4", node="n")
    build.gang("due", 1, 1, phase="Pending")
    assert evicted(build.decide(PREEMPTING)) == []


def test_who_states_as_much_as_it_uses_gives_nothing_at_equal_priority(build):
    build.group("wide", 1, phase="Running", minResources={"cpu": "4"})
    for number in range(4):
        build.pod(f"wide-{number}", "wide", node="n")
    build.gang("due", 2, 2, phase="Pending", minResources={"cpu": "2"})
    assert evicted(build.decide(PREEMPTING)) == []


def test_with_thousands_that_wait_few_are_tried_in_a_cycle_and_others_in_the_next(build, monkeypatch):
    tried = []
    attempt = EvictionRun.attempt
    monkeypatch.setattr(
        EvictionRun, "attempt", lambda run, queue, job: tried.append(job.info.key.name) or attempt(run, queue, job)
    )
    lent(build).cluster.pod(build.a_pod("greedy-0", "greedy", node="n", labels={"volcano.sh/preemptable": "false"}))
    for number in range(1, 4):
        build.cluster.pod(
            build.a_pod(f"greedy-{number}", "greedy", node="n", labels={"volcano.sh/preemptable": "false"})
        )
    for number in range(60):
        build.gang(f"due-{number:02}", 1, 1, f"{100 + number}m", phase="Pending", queue="other")
        build.gang(f"alike-{number:02}", 1, 1, "50m", phase="Pending", queue="other")
    found = set()
    for seconds in range(0, 100, 10):
        tried.clear()
        plan = build.decide(later=seconds)
        assert len(tried) <= 16
        assert sum(name.startswith("alike") for name in tried) <= 1
        assert plan.next_deadline <= (NOW + timedelta(seconds=seconds + 10)).timestamp()
        found |= set(tried)
    assert len([name for name in found if name.startswith("due")]) == 60


async def filled_by_a_deployment(world, policy, **more):
    """A cluster of 4 cpu that a Deployment's pods have taken, of a queue of its own."""
    await world.node("4")
    await world.create({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000})
    for name in ("lends", "due"):
        await world.create({"apiVersion": kinds.QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}})
    await world.work(policy)
    borrowing = deployment("borrowing", 4)
    annotations = borrowing["spec"]["template"]["metadata"]["annotations"]
    annotations |= {names.GROUP_MIN_MEMBER: "1", QUEUE: "lends", **more}
    await world.create(borrowing)
    await world.until(lambda: running_pods(world, 4))


async def running_pods(world, count, of=""):
    found = [pod for pod in await world.pods() if pod.status.phase == "Running" and pod.name.startswith(of)]
    return found if len(found) >= count else None


async def test_a_held_job_gets_its_queue_s_share_back_from_a_deployment_with_what_ships(world):
    await filled_by_a_deployment(world, config.DEFAULT)
    lent = min(pod.status.start_time for pod in await world.pods())
    await world.create(job("training", 2, **{QUEUE: "due"}))
    came = await world.until(lambda: running_pods(world, 2, "training"), within=180)
    assert len(await running_pods(world, 2, "borrowing")) == 2
    # None of the four had run for less than leastRunTime when it went: moments that the control plane wrote.
    assert min(pod.status.start_time for pod in came) >= lent + timedelta(seconds=60)


async def test_a_group_gives_what_it_has_beyond_its_minimum_at_equal_priority(world):
    await filled_by_a_deployment(world, PREEMPTING)
    await world.create(job("training", 2, **{QUEUE: "lends"}))
    assert len(await world.until(lambda: running_pods(world, 2, "training"), within=120)) == 2
    # It has its minimum of one pod and more, and takes nothing back.
    assert len(await running_pods(world, 2, "borrowing")) == 2


async def test_a_held_job_of_high_priority_preempts_with_what_ships_and_preempt(world):
    await filled_by_a_deployment(world, PREEMPTING)
    urgent = job("urgent", 3, **{QUEUE: "lends"})
    urgent["spec"]["template"]["spec"]["priorityClassName"] = "high"
    await world.create(urgent)
    assert len(await world.until(lambda: running_pods(world, 3, "urgent"), within=180)) == 3


SOON = config.DEFAULT + "configurations: [{name: reclaim, arguments: {leastRunTime: 1s}}]\n"


async def test_a_deployment_of_a_queue_that_is_due_gets_all_of_its_share_and_no_more(world):
    await filled_by_a_deployment(world, SOON)
    late = deployment("late", 4)
    late["spec"]["template"]["metadata"]["annotations"] |= {names.GROUP_MIN_MEMBER: "1", QUEUE: "due"}
    await world.create(late)
    assert len(await world.until(lambda: running_pods(world, 2, "late"), within=180)) == 2
    await world.rest(10)
    assert [len(await running_pods(world, 2, name)) for name in ("late", "borrowing")] == [2, 2]


@pytest.mark.parametrize("lost", ["/eviction", "/status", "/binding"])
async def test_the_next_leader_goes_on_where_the_last_was_lost_and_evicts_nobody_twice(world, lost):
    await filled_by_a_deployment(world, SOON)
    before = {pod.metadata.uid for pod in await world.pods()}
    refused = []

    def refuse(request):
        # The status of PodGroups only: Jobs and queues have one, too.
        mine = request.writes and request.path.endswith(lost) and ("podgroups" in request.path or lost != "/status")
        refused.extend([request.path] if mine else [])
        return mine

    world.line.refuse = refuse
    await world.create(job("training", 2, **{QUEUE: "due"}))
    await world.until(lambda: attempted(refused), within=120)
    await world.stop()
    world.line.refuse = lambda _: False
    await world.work(SOON)
    assert len(await world.until(lambda: running_pods(world, 2, "training"), within=180)) == 2
    assert len({pod.metadata.uid for pod in await running_pods(world, 2, "borrowing")} & before) == 2


async def attempted(refused):
    return refused


WHY = "since one was refused: pod borrowing-"


async def test_where_a_budget_refuses_one_of_them_nobody_goes_and_the_group_is_told(world):
    policy = SOON.replace("  - name: pdb\n", "")
    await filled_by_a_deployment(world, policy)
    before = {pod.metadata.uid for pod in await world.pods()}
    budget = {"minAvailable": 4, "selector": {"matchLabels": {"app": "borrowing"}}}
    await world.client.create(
        kinds.DISRUPTIONBUDGETS,
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all"}, "spec": budget},
        world.namespace,
    )
    await world.create(job("training", 2, **{QUEUE: "due"}))
    name = f"podgroup-{(await world.job('training')).metadata.uid}"
    await world.becomes(kinds.PODGROUPS, name, lambda one: WHY in said(one), 120)
    # Long before its time is over.
    await world.becomes(kinds.PODGROUPS, name, lambda one: one.status.phase == "Pending" and WHY in said(one), 20)
    assert {pod.metadata.uid for pod in await running_pods(world, 4, "borrowing")} == before
    await world.patch(kinds.DISRUPTIONBUDGETS, "all", {"spec": {"minAvailable": 0}})
    assert len(await world.until(lambda: running_pods(world, 2, "training"), within=180)) == 2


async def test_with_what_ships_pods_that_a_budget_protects_are_passed_over_for_others(world):
    await world.node("4")
    for name in ("lends", "due"):
        await world.create({"apiVersion": kinds.QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}})
    await world.work(SOON)
    for name in ("kept", "other"):
        borrowing = deployment(name, 2)
        borrowing["spec"]["template"]["metadata"]["annotations"] |= {names.GROUP_MIN_MEMBER: "1", QUEUE: "lends"}
        await world.create(borrowing)
    await world.until(lambda: running_pods(world, 4))
    before = {pod.metadata.uid for pod in await running_pods(world, 2, "kept")}
    budget = {"minAvailable": 2, "selector": {"matchLabels": {"app": "kept"}}}
    await world.client.create(
        kinds.DISRUPTIONBUDGETS,
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept"}, "spec": budget},
        world.namespace,
    )
    await world.create(job("training", 2, **{QUEUE: "due"}))
    assert len(await world.until(lambda: running_pods(world, 2, "training"), within=180)) == 2
    assert {pod.metadata.uid for pod in await running_pods(world, 2, "kept")} == before


async def test_with_what_ships_bare_pods_stay_unless_reclaim_may_take_them(world):
    await world.node("2")
    for name in ("lends", "due"):
        await world.create({"apiVersion": kinds.QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}})
    await world.work(SOON)
    await world.create(group("bare", minMember=1, queue="lends"), pod("bare-0", "bare"), pod("bare-1", "bare"))
    await world.until(lambda: running_pods(world, 2))
    await world.create(job("training", 1, **{QUEUE: "due"}))
    name = f"podgroup-{(await world.job('training')).metadata.uid}"
    await world.becomes(kinds.PODGROUPS, name, lambda one: "1 cpu" in said(one))
    await asyncio.sleep(5)
    assert len(await running_pods(world, 2, "bare")) == 2
    world.worker.adopt(config.parse(SOON.replace("leastRunTime: 1s", "leastRunTime: 1s, barePods: true")))
    assert len(await world.until(lambda: running_pods(world, 1, "training"), within=180)) == 1


@pytest.mark.only(
    "sandbox", reason="that evictions count as failures is the Job controller's, and its kubelet is simulated"
)
@pytest.mark.parametrize("ignored", [True, False])
async def test_a_job_that_lends_fails_by_evictions_unless_it_says_that_they_do_not_count(world, *, ignored):
    await world.node("4")
    for name in ("lends", "due"):
        await world.create({"apiVersion": kinds.QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}})
    await world.work(SOON)
    lending = job("lending", 4, **{QUEUE: "lends", names.GROUP_MIN_MEMBER: "1"})
    lending["spec"] |= {"backoffLimit": 0}
    if ignored:
        disrupted = [{"type": "DisruptionTarget", "status": "True"}]
        lending["spec"]["podFailurePolicy"] = {"rules": [{"action": "Ignore", "onPodConditions": disrupted}]}
    await world.create(lending)
    await world.until(lambda: running_pods(world, 4, "lending"))
    await world.create(job("training", 2, **{QUEUE: "due"}))
    await world.until(lambda: running_pods(world, 2, "training"), within=180)
    await world.rest(5)
    lent = await world.job("lending")
    failed = {each.type for each in lent.status.conditions or () if each.status == "True"} & {"Failed", "FailureTarget"}
    assert bool(failed) is not ignored
    if ignored:
        assert lent.status.failed == 0
        assert len(await running_pods(world, 2, "lending")) == 2
