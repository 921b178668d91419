"""Groups that are Pending on a full cluster, and the evictions that admit them."""

from __future__ import annotations

import asyncio

import pytest
from workloads import deployment, group, job, pod, said

from muster.model import kinds, names
from scheduler.configuration import config
from scheduler.model.snapshot import Phase

PREEMPTING = config.DEFAULT.replace("allocate, reclaim", "allocate, preempt, reclaim")
QUEUE = names.QUEUE_NAME_KEYS[0]
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
    await world.create(job("training", 2, **{QUEUE: "due"}))
    assert len(await world.until(lambda: running_pods(world, 2, "training"), within=180)) == 2
    assert len(await running_pods(world, 2, "borrowing")) == 2


async def test_a_held_job_of_high_priority_preempts_with_what_ships_and_preempt(world):
    await filled_by_a_deployment(world, PREEMPTING)
    urgent = job("urgent", 3, **{QUEUE: "lends"})
    urgent["spec"]["template"]["spec"]["priorityClassName"] = "high"
    await world.create(urgent)
    assert len(await world.until(lambda: running_pods(world, 3, "urgent"), within=180)) == 3


SOON = config.DEFAULT + "configurations: [{name: reclaim, arguments: {leastRunTime: 1s}}]\n"


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
    await world.becomes(kinds.PODGROUPS, name, lambda one: "since one was refused: pod borrowing-" in said(one), 120)
    assert {pod.metadata.uid for pod in await running_pods(world, 4, "borrowing")} == before
    await world.patch(kinds.DISRUPTIONBUDGETS, "all", {"spec": {"minAvailable": 0}})
    assert len(await world.until(lambda: running_pods(world, 2, "training"), within=180)) == 2


async def test_with_what_ships_a_budget_is_asked_first_and_bare_pods_stay(world):
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
