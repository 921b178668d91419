"""Evictions in simulations, from Pending on a full cluster: for whom others go, that group starts."""

from __future__ import annotations

from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.model import kinds
from muster.model.amounts import Resources
from muster.whatif.simulated_admission import InMemoryAdmission
from scheduler.configuration import config
from scheduler.simulator import scenario
from scheduler.simulator.engine import Simulation
from scheduler.simulator.trace import TraceJob
from webhooks.settings import WebhookSettings

PREEMPTING = config.DEFAULT.replace("allocate, reclaim", "allocate, preempt, reclaim")


def objects(nodes, cpu, queues):
    for number in range(nodes):
        allocatable = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
        metadata = {"name": f"n{number}"}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}}
    for number in range(queues):
        metadata, spec = {"name": f"q{number}"}, {"weight": number + 1}
        yield {"apiVersion": kinds.QUEUES.api_version, "kind": "Queue", "metadata": metadata, "spec": spec}
    metadata = {"name": "high"}
    yield {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 1000}


def played(policy, jobs, *, nodes=1, cpu=4, queues=2):
    """A simulation at its end, and the groups for which others were evicted."""
    found = scenario.read(list(objects(nodes, cpu, queues)), ("muster",), seed=0, until=4 * 3600.0)
    trace = tuple(sorted(jobs, key=lambda job: job.arrival))
    setup = replace(found, trace=trace).setting(config.parse(policy), InMemoryAdmission(WebhookSettings()))
    one, helped = Simulation(setup), {}
    evicted = one.measures.evicted

    def note(gang, beneficiary):
        helped[beneficiary.name] = beneficiary
        evicted(gang, beneficiary)

    one.measures.evicted = note
    one.run(lambda _: None)
    return one, helped


def line(name, queue, arrival, pods, minimum, cpu="1", seconds=3600.0, priority=""):
    request = Resources.parse({"cpu": cpu})
    return TraceJob(name, "default", queue, arrival, seconds, pods, minimum, request, priority)


def started(one, name):
    return next(gang.started for gang in one.lifecycle.history if gang.name == f"default/{name}")


def test_a_gang_of_high_priority_starts_on_a_full_cluster_with_what_ships_and_preempt():
    jobs = [line("low", "q0", 0.0, 4, 1), line("urgent", "q0", 120.0, 2, 2, priority="high")]
    one, helped = played(PREEMPTING, jobs)
    assert started(one, "urgent") - 120 < 5
    assert set(helped) == {"default/urgent"}


def test_a_queue_gets_its_share_back_with_what_ships():
    jobs = [line("greedy", "q0", 0.0, 4, 1), line("due", "q1", 120.0, 2, 2)]
    one, helped = played(config.DEFAULT, jobs)
    assert started(one, "due") - 120 < 5
    assert set(helped) == {"default/due"}


def test_who_has_just_begun_is_left_alone_for_a_minute():
    jobs = [line("greedy", "q0", 0.0, 4, 1), line("due", "q1", 10.0, 2, 2)]
    one, _ = played(config.DEFAULT, jobs)
    assert 59 <= started(one, "due") <= 65


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_without_faults_nobody_is_evicted_for_a_group_that_does_not_start(data):
    count = data.draw(st.integers(2, 8))
    jobs = []
    for number in range(count):
        pods = data.draw(st.integers(1, 6))
        minimum = data.draw(st.integers(1, pods))
        queue, arrival = f"q{data.draw(st.integers(0, 2))}", float(data.draw(st.integers(0, 600)))
        seconds, priority = float(data.draw(st.integers(60, 1800))), data.draw(st.sampled_from(["", "", "high"]))
        cpu = data.draw(st.sampled_from(["1", "2"]))
        jobs.append(line(f"j{number}", queue, arrival, pods, minimum, cpu, seconds, priority))
    policy = data.draw(st.sampled_from([config.DEFAULT, PREEMPTING]))
    _, helped = played(policy, jobs, nodes=data.draw(st.integers(1, 3)), cpu=data.draw(st.integers(2, 6)), queues=3)
    event(f"others left for {min(len(helped), 3)}")
    assert [name for name, gang in helped.items() if gang.started is None] == []
