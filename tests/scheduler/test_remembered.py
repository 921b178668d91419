"""What is remembered from one cycle to the next decides nothing: a snapshot that remembers nothing gives the same plan."""

from __future__ import annotations

import gc
import weakref
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.engine.session_cache import SPARE, SessionCache
from scheduler.model.snapshot import Phase
from scheduler.model.tasks import RequestVectors
from scheduler.state.apply import apply_plan

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICIES = {
    "default": config.DEFAULT,
    "capacity": config.DEFAULT.replace("name: proportion", "name: capacity"),
    "evicting": config.DEFAULT.replace("allocate, reclaim", "allocate, preempt, reclaim"),
}
GROUPS = [f"g{number}" for number in range(6)]
STEPS = st.one_of(
    st.tuples(
        st.just("come"), st.sampled_from(GROUPS), st.integers(1, 4), st.sampled_from("ab"), st.sampled_from("123")
    ),
    st.tuples(st.just("run"), st.sampled_from(GROUPS)),
    st.tuples(st.just("go"), st.sampled_from(GROUPS)),
    st.tuples(st.just("queue"), st.sampled_from("ab"), st.integers(1, 5), st.sampled_from([None, "3", "9"])),
    st.tuples(st.just("node"), st.sampled_from(["n1", "n2"]), st.sampled_from("248"), st.booleans()),
)


class Story:
    """A cluster to which things happen."""

    def __init__(self, build):
        self.build = build
        self.there = {}
        build.queue("a").queue("b").node("n1").node("n2")

    def come(self, name, count, queue, cpu):
        if name not in self.there:
            self.there[name] = (count, cpu)
            self.build.gang(name, count, count, cpu, queue=queue, phase="Pending", age=5)

    def run(self, name):
        """What was bound of a group starts."""
        count, cpu = self.there.get(name, (0, ""))
        job = next((each for each in self.build.cluster.snapshot().jobs if each.key.name == name), None)
        nodes = {task.name: task.node for task in job.tasks if task.node} if job else {}
        for number in range(count):
            pod = f"{name}-{number}"
            if pod in nodes:
                self.build.pod(pod, name, cpu, node=nodes[pod], phase="Running")

    def go(self, name):
        count, _ = self.there.pop(name, (0, ""))
        for number in range(count):
            self.build.gone(f"{name}-{number}")
        if count:
            self.build.without(name)

    def queue(self, name, weight, cpu):
        self.build.queue(name, weight=weight, capability={"cpu": cpu} if cpu else None)

    def node(self, name, cpu, cordoned):
        self.build.node(name, cpu, unschedulable=cordoned)


def forgetful(snapshot):
    """The same snapshot, made of values of which nothing is remembered."""
    return replace(
        snapshot,
        table=replace(snapshot.table),
        jobs=tuple(replace(job) for job in snapshot.jobs),
        queues={name: replace(queue) for name, queue in snapshot.queues.items()},
    )


@pytest.mark.parametrize("policy", POLICIES)
@given(st.lists(STEPS, min_size=4, max_size=16))
@settings(max_examples=15)
def test_what_is_remembered_decides_nothing(policy, make_build, steps):
    cache = DecisionCache()
    story, parsed = Story(make_build()), config.parse(POLICIES[policy])
    for number, (deed, *how) in enumerate(steps):
        getattr(story, deed)(*how)
        snapshot, now = story.build.cluster.snapshot(), NOW + timedelta(seconds=number)
        plan = decide(snapshot, parsed, now, cache)
        assert plan == decide(forgetful(snapshot), parsed, now)
        apply_plan(story.build.cluster, plan)


def test_nobody_can_write_to_a_snapshot(build):
    snapshot = build.node("a").gang("g", 2, 2).cluster.snapshot()
    table = snapshot.table
    arrays = [snapshot.idle, snapshot.releasing, table.allocatable, table.serving, table.every, table.amounts]
    for array in [*arrays, table.inverses]:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_what_is_remembered_of_nodes_goes_with_them(build):
    cache, policy = DecisionCache(), config.parse(config.DEFAULT)
    build.node("a", labels={"zone": "x"}).gang("g", 2, 2)
    decide(build.cluster.snapshot(), policy, NOW, cache)
    before = weakref.ref(build.cluster.snapshot().table)
    assert before() is not None
    build.node("b")
    decide(build.cluster.snapshot(), policy, NOW, cache)
    gc.collect()
    assert before() is None


def test_sums_are_worked_out_once_and_those_of_jobs_that_are_gone_are_forgotten(build):
    build.node("a")
    for number in range(SPARE + 1):
        build.gang(f"g{number}", 1, 1, f"{number + 1}m")
    snapshot, cache = build.cluster.snapshot(), SessionCache()
    vectors, (kept, *others) = RequestVectors(snapshot.axes), [job.task_counts for job in snapshot.jobs]
    sums = [cache.amounts(counts, vectors) for counts in (kept, *others)]
    cache.prune([kept], len(snapshot.jobs))
    assert [cache.amounts(counts, vectors) for counts in others][-1] is sums[-1]
    cache.prune([kept], 0)
    assert cache.amounts(kept, vectors) is sums[0]
    again = cache.amounts(others[-1], vectors)
    assert again == sums[-1]
    assert again is not sums[-1]


def test_a_job_whose_phase_changed_keeps_what_its_tasks_came_to(build):
    cluster = build.node("a").gang("g", 2, 2, "1").cluster
    (before,) = cluster.snapshot().jobs
    group = cluster.find_group(before.key)
    cluster.group(before.key.group, replace(group, status=replace(group.status, phase="Running")))
    (after,) = cluster.snapshot().jobs
    assert (before.phase, after.phase) == (Phase.INQUEUE, Phase.RUNNING)
    assert after.task_counts is before.task_counts
