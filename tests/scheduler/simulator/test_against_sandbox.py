"""A simulation decides as the worker does on an API server with webhooks and nodes, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from playing import START, Life, play

from muster.model.amounts import Resources
from muster.whatif.simulated_admission import InMemoryAdmission
from scheduler.configuration import config
from scheduler.simulator import scenario
from scheduler.simulator.engine import Simulation
from scheduler.simulator.trace import TraceJob
from webhooks.settings import WebhookSettings

STEP = 40
UNTIL = 900.0
# What takes minutes in production, within the minutes of a test.
HASTY = config.DEFAULT.replace(
    'actions: "enqueue, allocate, reclaim, backfill"\n',
    'actions: "enqueue, allocate, reclaim, backfill"\n'
    "configurations:\n"
    "- {name: enqueue, arguments: {inqueueTimeoutSeconds: 30}}\n"
    "- {name: allocate, arguments: {reserveAfter: 60s}}\n",
)
CAPACITY = HASTY.replace("name: proportion", "name: capacity")


def node(name, cpu):
    allocatable = {"cpu": str(cpu), "memory": "16Gi", "pods": "20"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


def queue(name, **spec):
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "team", "namespace": "default"},
    "spec": {"hard": {"requests.cpu": "14"}},
}


def simulated(trace, objects, policy):
    """What a simulation says became of each line."""
    parsed = config.parse(policy)
    setup = scenario.read(objects, ("muster",), seed=0, until=UNTIL).setting(
        parsed, InMemoryAdmission(WebhookSettings())
    )
    simulation = Simulation(replace(setup, trace=tuple(trace)))
    nodes = {}
    bind = simulation.lifecycle.bind

    def noted(binds):
        binds = tuple(binds)
        for each in binds:
            nodes.setdefault(each.group.name, {})[each.task.name] = each.node
        bind(binds)

    simulation.lifecycle.bind = noted
    simulation.run(lambda _: None)
    setup.cluster.validate()
    refusals = {each.subject.partition("/")[2]: each.text for each in simulation.measures.refusals}
    starts = {gang.home[1]: gang.started for gang in simulation.lifecycle.history}
    return {job.name: Life(starts.get(job.name), nodes.get(job.name, {}), refusals.get(job.name, "")) for job in trace}


@st.composite
def traces(draw):
    """Jobs that come every 40 s and end at moments of their own, so that it is clear what comes before what."""
    count = draw(st.integers(3, 7))
    return tuple(
        TraceJob(
            name=f"job-{number}",
            namespace="default",
            queue=draw(st.sampled_from(["a", "b"])),
            arrival=float(number * STEP),
            duration=float(draw(st.integers(0, 3)) * STEP + 2),
            pods=(pods := draw(st.integers(1, 5))),
            minimum=pods,
            request=Resources.parse({"cpu": draw(st.sampled_from(["1", "2", "3"])), "memory": "1Gi"}),
        )
        for number in range(count)
    )


def agree(trace, objects, policy):
    """Both must say the same of each line: where and when it started, to within what a second is cut into, or why not."""
    real, mine = play(trace, objects, policy, UNTIL), simulated(trace, objects, policy)
    for job in trace:
        there, here = real[job.name], mine[job.name]
        # Which of its equal pods goes where is a matter of their uids.
        assert sorted(here.nodes.values()) == sorted(there.nodes.values()), job
        assert here.refusal == there.refusal, job
        assert (here.started is None) is (there.started is None), job
        if here.started is not None:
            assert abs(here.started - there.started) <= 3, job


@pytest.mark.parametrize("policy", [HASTY, CAPACITY], ids=["proportion", "capacity"])
def test_who_starts_when_and_where_is_what_the_worker_decides_on_the_sandbox(policy):
    @settings(max_examples=3, deadline=None)
    @given(traces(), st.lists(st.integers(3, 8), min_size=1, max_size=3))
    def check(trace, cpus):
        objects = [node(f"n{number}", cpu) for number, cpu in enumerate(cpus)]
        agree(trace, [*objects, queue("a", weight=1), queue("b", weight=2)], policy)

    check()


def test_what_a_quota_refuses_is_what_the_webhooks_refuse_on_the_sandbox():
    trace = [
        TraceJob(f"job-{number}", "default", "a", number * STEP, 3 * STEP + 2.0, 3, 3, Resources.parse({"cpu": "2"}))
        for number in range(5)
    ]
    agree(trace, [node("n0", 20), queue("a"), QUOTA], HASTY)
    assert any(life.refusal for life in simulated(trace, [node("n0", 20), queue("a"), QUOTA], HASTY).values())


assert START == scenario.DAWN
