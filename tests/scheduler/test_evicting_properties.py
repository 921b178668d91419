"""What holds of evictions on random clusters: with what ships, from Pending, and in simulations over time."""

from __future__ import annotations

import itertools
from collections import Counter

import msgspec
import pytest
from examples import examples
from hypothesis import event, given, settings
from hypothesis import strategies as st

from muster.model import kinds
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.engine.exhausted_nodes import ExhaustedNodes
from scheduler.model.snapshot import OCCUPYING, Phase, TaskStatus

PREEMPTING = config.DEFAULT.replace("allocate, reclaim", "allocate, preempt, reclaim")


def evicted(plan):
    return [each.task.name for each in plan.evictions]


def pods_of(snapshot, name):
    return next(job for job in snapshot.jobs if job.key.name == name).tasks


def cpu(vector):
    return vector[0]


def budget(build, app, allowed):
    body = {
        "metadata": {"name": app, "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }
    build.cluster.budget(msgspec.convert(body, kinds.DISRUPTIONBUDGETS.struct))


@st.composite
def shared(draw, make, *, sizes=(1,)):
    """A cluster of pods of some cpus each that two queues have filled, and a Pending gang of a third one."""
    build = make()
    build.queue("default", weight=draw(st.integers(1, 3))).queue("b", weight=draw(st.integers(1, 3)))
    build.queue("c", weight=draw(st.integers(1, 4)))
    room = {f"n{number}": draw(st.integers(1, 4)) for number in range(draw(st.integers(1, 3)))}
    for name, amount in room.items():
        build.node(name, str(amount))
    for number, (node, slot) in enumerate([(node, slot) for node, most in room.items() for slot in range(most)]):
        name, size = f"g{number // draw(st.sampled_from([1, 2, 3]))}", draw(st.sampled_from(sizes))
        if room[node] < size:
            continue
        room[node] -= size
        if not any(key.name == name for key in build.cluster._groups):
            queue = draw(st.sampled_from(["default", "b"]))
            build.group(name, draw(st.integers(0, 2)), phase="Running", queue=queue)
        labels = draw(st.sampled_from([{}, {"app": "x"}, {"app": "y"}, {"volcano.sh/preemptable": "false"}]))
        build.pod(f"p{number}-{slot}", name, str(size), node=node, labels=labels)
    for app in draw(st.sampled_from([(), (), ("x",), ("x", "y")])):
        budget(build, app, draw(st.integers(0, 2)))
    minimum = draw(st.integers(1, 4))
    build.gang("due", minimum, minimum, str(draw(st.sampled_from(sizes))), phase="Pending", queue="c")
    return build


def cpus(task):
    return task.task_class.request.nano.get("cpu", 0) // 10**9


def permitted(snapshot, queues, gone):
    """Whether these pods may go together: the rule of the design, without any of the engine's code."""
    for each in snapshot.budgets:
        if sum(each.peers in task.task_class.constraints.peers for task, _ in gone) > each.allowed:
            return False
    jobs = {job.key.name: job for job in snapshot.jobs}
    lost = Counter()
    for task, job in gone:
        if not task.preemptable:
            return False
        lost[job.key.name] += 1
    has = Counter()
    for job in snapshot.jobs:
        has[job.queue] += sum(cpus(task) for task in job.tasks if task.status in OCCUPYING)
    for name, count in lost.items():
        job = jobs[name]
        left = sum(task.status in OCCUPYING for task in job.tasks) - count
        if left < job.min_member and job.min_member > 1:
            return False
    for queue in {jobs[name].queue for name in lost}:
        left = has[queue] - sum(cpus(task) for task, job in gone if job.queue == queue)
        if left < queues[queue]:
            return False
    return True


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_after_reclaim_a_queue_is_under_its_share_only_where_no_permitted_victims_make_its_next_group_fit(
    make_build, data
):
    build = data.draw(shared(make_build))
    snapshot = build.cluster.snapshot()
    plan = build.decide()
    due = next(job for job in snapshot.jobs if job.key.name == "due")
    share = {name: each.deserved.nano.get("cpu", 0) / 10**9 for name, each in plan.queues.items()}
    event(f"{plan.groups[due.key].phase.value}, {len(evicted(plan))} evicted")
    if plan.groups[due.key].phase is not Phase.PENDING:
        assert len(evicted(plan)) == due.min_member
        assert len(plan.pipelined) == due.min_member
        return
    assert evicted(plan) == []
    if due.min_member > share["c"]:
        event("more than its queue deserves")
        return
    running = [(task, job) for job in snapshot.jobs for task in job.tasks if task.status in OCCUPYING]
    for gone in itertools.combinations(running, due.min_member):
        assert not permitted(snapshot, share, gone), f"{[task.name for task, _ in gone]} would have done"


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_of_pods_of_several_sizes_the_same_holds(make_build, data):
    """All subsets of what runs are tried, so the clusters are small: 4,096 subsets at most."""
    build = data.draw(shared(make_build, sizes=(1, 2)))
    plugin = data.draw(st.sampled_from(["proportion", "capacity"]))
    for name in ("default", "b", "c") if plugin == "capacity" else ():
        build.queue(name, deserved={"cpu": str(data.draw(st.integers(0, 5)))})
    snapshot = build.cluster.snapshot()
    plan = build.decide(config.DEFAULT.replace("proportion", plugin))
    due = next(job for job in snapshot.jobs if job.key.name == "due")
    share = {name: each.deserved.nano.get("cpu", 0) / 10**9 for name, each in plan.queues.items()}
    event(f"{plan.groups[due.key].phase.value}, {len(evicted(plan))} evicted")
    if plan.groups[due.key].phase is not Phase.PENDING:
        return
    assert evicted(plan) == []
    size = cpus(due.tasks[0])
    if due.min_member * size > share["c"]:
        event("more than its queue deserves")
        return
    running = [(task, job) for job in snapshot.jobs for task in job.tasks if task.status in OCCUPYING]
    for count in range(1, len(running) + 1):
        for gone in itertools.combinations(running, count):
            idle = {name: int(row[0]) // 1000 for name, row in zip(snapshot.table.names, snapshot.idle, strict=True)}
            for task, _ in gone:
                idle[task.node] += cpus(task)
            fits = sum(left // size for left in idle.values()) >= due.min_member
            assert not (fits and permitted(snapshot, share, gone)), f"{[task.name for task, _ in gone]} would have done"


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_two_groups_of_a_queue_never_take_from_each_other_for_overuse(make_build, data):
    build = make_build().queue("default").node("n", str(data.draw(st.integers(2, 6))))
    taken, made = set(), itertools.count(100)
    for round_ in range(10):
        if round_ < data.draw(st.integers(2, 4), label="groups"):
            name, minimum = f"g{round_}", data.draw(st.integers(0, 3))
            stated = data.draw(st.booleans(), label="states minResources")
            build.group(name, minimum, phase="Pending", **({"minResources": {"cpu": str(minimum)}} if stated else {}))
            for _ in range(data.draw(st.integers(minimum, 6))):
                build.pod(f"{name}-{next(made)}", name)
        plan = build.cycle(PREEMPTING)
        for each in plan.evictions:
            pair = (each.beneficiary.name, each.group.name)
            assert pair[::-1] not in taken, f"{pair} after the other way round"
            taken.add(pair)
            event("something was taken")
        for bind in plan.binds:
            build.cluster.pod(build.a_pod(bind.task.name, bind.group.name, node=bind.node))
        for each in plan.evictions:
            # Its controller makes another.
            build.gone(each.task.name).pod(f"{each.group.name}-{next(made)}", each.group.name)


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_nobody_is_evicted_for_a_group_that_does_not_start(make_build, data):
    """Played to its end on a cluster without faults: who was evicted, was so for a group that runs afterwards."""
    build = data.draw(shared(make_build)).priority("high", 10)
    build.gang("urgent", 1, data.draw(st.integers(1, 3)), phase="Pending", priorityClassName="high")
    wanted = set()
    for step in range(6):
        plan = build.cycle(PREEMPTING, later=step)
        wanted |= {each.beneficiary.name for each in plan.evictions}
        for each in plan.evictions:
            build.gone(each.task.name)
        for bind in plan.binds:
            build.cluster.pod(build.a_pod(bind.task.name, bind.group.name, node=bind.node))
    ran = {
        job.key.name
        for job in build.cluster.snapshot().jobs
        if sum(task.status in {*OCCUPYING, TaskStatus.SUCCEEDED} for task in job.tasks) >= max(job.min_member, 1)
    }
    event(f"evicted for {len(wanted)}")
    assert wanted <= ran


@st.composite
def alike(draw, make):
    """A cluster that groups of two queues have filled, and groups of a few kinds that wait, several of each kind."""
    build = make().priority("high", 10)
    for name in ("default", "b", "c"):
        build.queue(name, weight=draw(st.integers(1, 3)))
    nodes = draw(st.integers(1, 4))
    for number in range(nodes):
        build.node(f"n{number}", str(draw(st.integers(2, 6))))
    room = {f"n{number}": 6 for number in range(nodes)}
    for number in range(draw(st.integers(1, 6))):
        spec = draw(st.sampled_from([{}, {"minResources": {"cpu": "2"}}, {"priorityClassName": "high"}]))
        name, queue = f"g{number}", draw(st.sampled_from(["default", "b"]))
        build.group(name, draw(st.integers(0, 2)), phase="Running", queue=queue, **spec)
        for pod in range(draw(st.integers(1, 5))):
            node, size = draw(st.sampled_from(sorted(room))), draw(st.integers(1, 2))
            if room[node] >= size:
                room[node] -= size
                build.pod(f"{name}-{pod}", name, str(size), node=node, labels=draw(st.sampled_from([{}, {"app": "x"}])))
    if draw(st.booleans()):
        budget(build, "x", draw(st.integers(0, 2)))
    for kind in range(draw(st.integers(1, 3))):
        spec = draw(st.sampled_from([{}, {"priorityClassName": "high"}])) | {"queue": draw(st.sampled_from("bc"))}
        minimum, size = draw(st.integers(1, 3)), str(draw(st.integers(1, 2)))
        phase = draw(st.sampled_from(["Pending", "Inqueue"]))
        for number in range(draw(st.integers(2, 5))):
            build.gang(f"w{kind}-{number}", minimum, minimum + draw(st.integers(0, 1)), size, phase=phase, **spec)
    return build


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_what_is_remembered_of_exhausted_nodes_changes_no_plan(make_build, data):
    build = data.draw(alike(make_build))
    policy = data.draw(st.sampled_from([PREEMPTING, config.DEFAULT, PREEMPTING.replace("proportion", "capacity")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExhaustedNodes, "of", lambda *_: ())
        patch.setattr(ExhaustedNodes, "committed", lambda *_: None)
        afresh = decide(build.cluster.snapshot(), config.parse(policy), build.now)
    remembered = decide(build.cluster.snapshot(), config.parse(policy), build.now)
    event(f"{len(remembered.evictions)} evicted")
    assert remembered == afresh


@st.composite
def elastic(draw, make):
    """Queues with groups that grow, as those of Deployments do, on a cluster that is too small for all of them."""
    build, stated = make(), draw(st.booleans())
    for name in "abc":
        deserved = {"cpu": str(draw(st.integers(0, 4))), "memory": f"{draw(st.integers(0, 8))}Gi"}
        build.queue(name, weight=draw(st.integers(1, 3)), **({"deserved": deserved} if stated else {}))
    for number in range(draw(st.integers(1, 3))):
        build.node(f"n{number}", str(draw(st.integers(1, 4))), memory="8Gi")
    groups = []
    for name in "abc":
        size, memory = str(draw(st.integers(1, 2))), f"{draw(st.sampled_from([1, 4]))}Gi"
        groups.append((name, draw(st.integers(0, 2)), draw(st.integers(0, 10)), size, memory))
    policy = draw(st.sampled_from([PREEMPTING, config.DEFAULT]))
    return build, groups, policy.replace("proportion", "capacity") if stated else policy


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_queues_that_take_back_what_they_are_due_come_to_rest(make_build, data):
    """Who was evicted waits again; groups come one after the other, so that the first borrow."""
    build, groups, policy = data.draw(elastic(make_build))
    made, quiet, taken = itertools.count(100), 0, 0
    for step in range(80):
        if step % 5 == 0 and groups:
            name, minimum, pods, size, memory = groups.pop()
            build.group(f"of-{name}", minimum, phase="Pending", queue=name)
            for _ in range(pods):
                build.pod(f"of-{name}-{next(made)}", f"of-{name}", size, requests={"memory": memory})
        plan = build.cycle(policy, later=step)
        for bind in plan.binds:
            build.cluster.pod(remade(build, bind.task, bind.group.name, bind.task.name, node=bind.node))
        for each in plan.evictions:
            name = f"{each.group.name}-{next(made)}"
            build.gone(each.task.name).cluster.pod(remade(build, each.task, each.group.name, name))
        taken += len(plan.evictions)
        quiet = 0 if plan.evictions or plan.binds or groups else quiet + 1
        if quiet == 3:
            break
    event(f"{min(taken, 5)} taken")
    assert quiet == 3, f"{taken} evicted in 80 cycles, and no end"


def remade(build, task, group, name, **more):
    nano = task.task_class.request.nano
    memory = f"{nano['memory'] // 10**9}"
    return build.a_pod(name, group, str(nano["cpu"] // 10**9), requests={"memory": memory}, **more)
