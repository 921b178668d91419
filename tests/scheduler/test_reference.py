"""The engine against a plain one: one task at a time, every node asked each time, nothing remembered."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.configuration import config
from scheduler.engine import picker, task_placement
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.engine.plugin import Nodes
from scheduler.engine.session import Session
from scheduler.engine.session_cache import SessionCache
from scheduler.model.snapshot import TaskStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICIES = (
    config.DEFAULT,
    config.DEFAULT.replace("  - name: binpack\n", ""),
    config.DEFAULT.replace("  - name: nodeorder\n", ""),
    'actions: "enqueue, allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}]}]',
    'actions: "allocate"\ntiers: [{plugins: [{name: drf}, {name: proportion}, {name: nodeorder}]}]',
    config.DEFAULT.replace("enqueue, allocate", "enqueue, allocate, preempt, reclaim"),
    """\
actions: "reclaim, preempt, allocate"
tiers: [{plugins: [{name: priority}, {name: gang}]}, {plugins: [{name: capacity}, {name: predicates}]}]
configurations: [{name: preempt, arguments: {evictWholeJobs: true}}]
""",
)


class PlainPicker(picker.Picker):
    """Asks about every node each time, one after the other, for one task."""

    def at_once(self, _):
        return False

    def pick(self, kind, count):
        assert count == 1
        row = self._highest(kind, self._idle)
        return [] if row is None else [row]

    def best_later(self, kind):
        return self._highest(kind, self._future)

    def fits(self, kind, row, free):
        return self._one(kind, row, free) > -np.inf

    def ranked(self, kind, free):
        scores = {row: self._one(kind, row, free) for row in range(len(self._all))}
        return sorted((row for row in scores if scores[row] > -np.inf), key=lambda row: (-scores[row], row))

    def _highest(self, kind, free):
        rows = self.ranked(kind, free)
        return rows[0] if rows else None

    def _one(self, kind, row, free):
        room, wanted = free[row].tolist(), kind.vector(self._table.axes)
        if any(want > have for want, have in zip(wanted, room, strict=True) if want):
            return -np.inf
        nodes = Nodes(self._table, np.array([row]), free[[row]], later=free is not self._idle)
        if not all(ask(kind, nodes)[0] for ask in self._feasible):
            return -np.inf
        return sum((rate(kind, nodes)[0] for rate in self._score), 0.0)


def plain_place(session, statement, queue, job, taken, allowed):
    """Place task after task until the job is ready."""
    failed, unplaced = set(), []
    while job.waiting:
        task = job.waiting.popleft()
        taken.append(task)
        if task.task_class in failed:
            unplaced.append(task)
            continue
        against = allowed(queue, task, 1)
        if against is None and task_placement.place_one(session, statement, job, task):
            job.obstacle = None
        else:
            job.obstacle = against
            unplaced.append(task)
            failed.add(task.task_class)
        if session.extensions.ready(job):
            break
    return unplaced


REQUIRED, PREFERRED = (f"{mood}DuringSchedulingIgnoredDuringExecution" for mood in ("required", "preferred"))
TERM = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
X = {"labels": {"app": "x"}}
SOCIABLE = (
    X,
    X | {"affinity": {"podAffinity": {REQUIRED: [TERM]}}},
    {"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}},
    X | {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": TERM}]}}},
    {"affinity": {"podAffinity": {PREFERRED: [{"weight": 50, "podAffinityTerm": TERM}]}}},
    X | {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}]},
    X | {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]},
)
SHAPES = st.tuples(
    st.sampled_from(["250m", "500m", "1", "2"]),
    st.sampled_from(["512Mi", "1Gi", "3Gi"]),
    st.sampled_from([{}] * 8 + [{"nodeSelector": {"zone": "1"}}] * 4 + [*SOCIABLE]),
)


@st.composite
def clusters(draw, make):
    build = make()
    build.queue("default").queue("b", weight=draw(st.integers(1, 3)), capability={"cpu": "5"})
    build.priority("high", 10)
    nodes = [f"n{number}" for number in range(draw(st.integers(1, 5)))]
    for number in range(len(nodes)):
        labels = {"zone": draw(st.sampled_from(["1", "2"]))}
        build.node(f"n{number}", str(draw(st.integers(1, 6))), memory=f"{draw(st.integers(1, 8))}Gi", labels=labels)
        if draw(st.booleans()):
            leaving = draw(st.booleans())
            build.pod(f"there{number}", cpu="500m", node=f"n{number}", leaving=leaving)
    for number in range(draw(st.integers(1, 6))):
        name = f"g{number}"
        count = draw(st.integers(1, 9))
        phase = draw(st.sampled_from(["Pending", "Inqueue", "Running"]))
        more = {"priorityClassName": "high"} if draw(st.booleans()) else {}
        queue = draw(st.sampled_from(["default", "b"]))
        build.group(name, draw(st.integers(0, count)), queue=queue, phase=phase, **more)
        # Most gangs are of equal pods: only those are followed ahead.
        alike = draw(st.integers(0, 3)) > 0
        shapes = [draw(SHAPES) for _ in range(1 if alike else count)]
        for pod in range(count):
            cpu, memory, more = shapes[pod % len(shapes)]
            if phase == "Running" and draw(st.booleans()):
                more = more | {"node": draw(st.sampled_from(nodes)), "priority": draw(st.integers(0, 1))}
            build.pod(f"{name}-{pod}", name, cpu, requests={"memory": memory}, **more)
    return build


def _assert_decided_like_the_plain_one(build, policy):
    fast = decide(build.cluster.snapshot(), policy, NOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scheduler.engine.session.Picker", PlainPicker)
        patch.setattr("scheduler.engine.placement._place", plain_place)
        plain = decide(build.cluster.snapshot(), policy, NOW)
    assert fast.binds == plain.binds
    assert fast.pipelined == plain.pipelined
    assert fast.evictions == plain.evictions
    assert [each.phase for each in fast.statuses] == [each.phase for each in plain.statuses]


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_the_fast_path_decides_like_the_plain_one(make_build, data):
    build = data.draw(clusters(make_build))
    _assert_decided_like_the_plain_one(build, config.parse(data.draw(st.sampled_from(POLICIES))))


PACKS = "  - name: nodeorder\n    arguments: {leastrequested.weight: 0, balancedresource.weight: 0}\n"


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_gangs_of_few_classes_in_turns_on_many_nodes_go_where_the_plain_one_puts_them(make_build, seed):
    """Between two gangs of a class others take many nodes: what is known of the rest still holds."""
    drawn = random.Random(seed)
    build = make_build()
    build.queue("default")
    cpu, memory = drawn.choice(["2", "4", "8"]), drawn.choice(["4Gi", "16Gi"])
    for number in range(drawn.randint(9, 40)):
        build.node(f"n{number:02}", cpu, memory=memory)
    shapes = [
        (drawn.choice(["250m", "500m", "1"]), drawn.choice(["256Mi", "1Gi", "2Gi"])) for _ in range(drawn.randint(1, 5))
    ]
    for number in range(drawn.randint(2, 14)):
        name, count = f"g{number:02}", drawn.choice([1, 2, 3, 9, 10, 12, 20])
        build.group(name, drawn.choice([count, count, max(1, count // 2)]))
        cpu, memory = drawn.choice(shapes)
        for pod in range(count):
            build.pod(f"{name}-{pod}", name, cpu, requests={"memory": memory})
    packs = config.DEFAULT.replace("  - name: nodeorder\n", PACKS)
    _assert_decided_like_the_plain_one(build, config.parse(drawn.choice([*POLICIES[:3], packs])))


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_no_plan_overfills_a_node_breaks_a_gang_or_exceeds_a_queue(make_build, data):
    build = data.draw(clusters(make_build))
    policy = data.draw(st.sampled_from(POLICIES))
    # Each cycle is held to the invariants.
    for _ in range(3):
        build.cycle(policy)
    build.cluster.validate()


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_a_plan_does_not_depend_on_what_was_decided_before(make_build, data):
    """What a cycle remembers of a snapshot's objects changes nothing, not even where the policy is another."""
    build = data.draw(clusters(make_build))
    first, second = (config.parse(data.draw(st.sampled_from(POLICIES))) for _ in range(2))
    build.cycle()
    snapshot = build.cluster.snapshot()
    cache = DecisionCache()
    decide(snapshot, first, NOW, cache)
    again = decide(snapshot, second, NOW, cache)
    jobs = tuple(replace(job) for job in snapshot.jobs)
    fresh = decide(replace(snapshot, jobs=jobs), second, NOW)
    for part in ("binds", "pipelined", "evictions", "groups", "tasks", "records", "queues", "statuses"):
        assert getattr(again, part) == getattr(fresh, part)


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_a_rolled_back_statement_leaves_no_trace(make_build, data):
    build = data.draw(clusters(make_build))
    policy = config.parse(config.DEFAULT)
    session = Session(build.cluster.snapshot(), policy, NOW, SessionCache())
    before = _state(session)
    tasks = [(job, task) for job in session.jobs for task in job.waiting]
    with session.statement() as statement:
        for job, task in tasks:
            row = session.picker.best(task.task_class)
            if row is not None:
                statement.allocate(job, [task], [row])
                session.picker.best(task.task_class)
    assert _state(session) == before
    fresh = Session(build.cluster.snapshot(), policy, NOW, SessionCache())
    for _, task in tasks:
        assert session.picker.best(task.task_class) == fresh.picker.best(task.task_class)


def _state(session):
    jobs = [(job.ready, job.pipelined, job.allocated, +job.roles, list(job.waiting)) for job in session.jobs]
    queues = [queue.allocated for queue in session.queues.values()]
    ports = {row: taken for row, taken in session.ports.items() if taken}
    return session.idle.tolist(), session.future.tolist(), jobs, queues, ports, session.allocations.committed


SCRIPT = """
import random, sys
sys.path.insert(0, {tests!r})
import conftest
from msgspec.structs import replace
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.model.snapshot import RequeueState
from scheduler.state.apply import apply_plan
from test_reference import POLICIES, SOCIABLE
for seed in range(12):
    draw = random.Random(seed)
    build = conftest.Build().queue("default").queue("b", weight=3, capability={{"cpu": "9"}}).priority("high", 10)
    for number in range(7):
        build.node(f"n{{number}}", "3", labels={{"zone": str(number % 2)}})
    for number in range(9):
        phase, more = draw.choice(["Pending", "Inqueue", "Running"]), draw.choice(SOCIABLE)
        if draw.random() < 0.3:
            more = {{**more, "ports": [{{"containerPort": 80, "hostPort": 80}}, {{"containerPort": 81, "hostPort": 81}}]}}
        name, queue = f"g{{number}}", draw.choice(["default", "b"])
        build.group(name, draw.randrange(5), phase=phase, queue=queue, age=draw.choice([5, 700]),
                    priorityClassName=draw.choice(["", "high"]))
        for pod in range(4):
            where = {{"node": f"n{{draw.randrange(7)}}"}} if phase == "Running" and draw.random() < 0.6 else {{}}
            build.pod(f"{{name}}-{{pod}}", name, draw.choice(["250m", "750m"]), **where, **more)
    policy = draw.choice(POLICIES)
    began = conftest.START.timestamp() - 1000
    for _ in range(2):
        snapshot = build.cluster.snapshot()
        requeues = {{job.uid: RequeueState(since=began, pods=9) for job in snapshot.jobs}}
        plan = decide(replace(snapshot, requeues=requeues), config.parse(policy), conftest.START)
        for each in (*plan.binds, *plan.pipelined):
            print("place", each.task, each.node)
        for each in plan.evictions:
            print("evict", each.task, each.beneficiary)
        print(plan.reserved_nodes, plan.rolled_back, list(plan.unplaced), plan.queues)
        print([(str(each.key), each.phase.value, each.conditions) for each in plan.statuses])
        apply_plan(build.cluster, plan)
"""


@pytest.mark.processes
def test_a_plan_does_not_depend_on_the_hash_seed():
    here = Path(__file__).parent
    script = SCRIPT.format(tests=str(here))
    # What this process can import, the helpers of other tests among it.
    paths = os.pathsep.join([str(here.parents[1]), *sys.path])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "12345")
    }
    assert len(outputs) == 1
    said = outputs.pop()
    assert all(word in said for word in ("place", "evict", "idle="))


def test_statuses_of_tasks_add_up(make_build):
    build = make_build().queue("default").node("a").gang("g", 2, 6)
    plan = build.decide()
    (counts,) = plan.tasks.values()
    assert counts == {TaskStatus.BINDING: 4, TaskStatus.PENDING: 2}
