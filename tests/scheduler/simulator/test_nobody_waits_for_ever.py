"""Random clusters whose pods fail and are replaced: whoever is admitted starts or goes back with its reason, nobody waits for ever."""

from __future__ import annotations

import math

import pytest
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.model.amounts import Resources
from muster.whatif.simulated_admission import InMemoryAdmission
from scheduler.configuration import config
from scheduler.model.snapshot import Phase
from scheduler.simulator import scenario
from scheduler.simulator.engine import Simulation
from scheduler.simulator.trace import TraceJob
from webhooks.settings import WebhookSettings

STANDING = 60.0
"""The seconds that the shipped configuration gives a group that was admitted."""
SLACK = 2.0
POLICIES = {
    "shipped": config.DEFAULT,
    "capacity": config.DEFAULT.replace("name: proportion", "name: capacity"),
    "without enqueue": config.DEFAULT.replace("enqueue, ", ""),
}


def node(name, cpu):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "20"}},
    }


def queue(name, **spec):
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def quota(cpu):
    """A quota that refuses. Pods that nothing holds back, as those of a trace, take theirs before their groups queue."""
    meta = {"name": "quota", "namespace": "team"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"requests.cpu": str(cpu)}}}


@st.composite
def jobs(draw, number):
    pods = draw(st.integers(1, 6))
    # Often a whole gang fails, and not all of it is replaced: fewer pods than its minimum are there for ever.
    broken = draw(st.booleans())
    failures = pods if broken else draw(st.integers(0, pods))
    return TraceJob(
        name=f"job-{number}",
        namespace=draw(st.sampled_from(["default", "team"])),
        queue=draw(st.sampled_from(["a", "b"])),
        arrival=float(draw(st.sampled_from([0, 1, 30, 200]))),
        duration=float(draw(st.sampled_from([5, 50, 400]))),
        pods=pods,
        minimum=pods if broken else draw(st.integers(1, pods)),
        request=Resources.parse({"cpu": str(draw(st.integers(1, 4)))}),
        failures=failures,
        restarts=draw(st.integers(0, failures)),
        pause=float(draw(st.sampled_from([0, 10, 300]))),
    )


@st.composite
def clusters(draw):
    """Nodes, a quota, a queue with a capability, and a trace."""
    cpus = draw(st.lists(st.integers(2, 8), min_size=1, max_size=3))
    hard = draw(st.sampled_from([None, 3, 6, 12]))
    capability = draw(st.sampled_from([None, 4, 10]))
    objects = [node(f"n{number}", cpu) for number, cpu in enumerate(cpus)]
    objects += [queue("a", weight=1, **({"capability": {"cpu": str(capability)}} if capability else {}))]
    objects += [queue("b", weight=2), *([quota(hard)] if hard is not None else ())]
    trace = tuple(draw(jobs(number)) for number in range(draw(st.integers(1, 7))))
    return objects, cpus, hard, capability, tuple(sorted(trace, key=lambda job: job.arrival))


def broken_gang():
    """Return a gang that takes the whole cluster, fails, and of which one pod of two is replaced; and who needs a little of it."""
    said = {"namespace": "default", "queue": "a", "arrival": 0.0, "duration": 5.0, "pause": 0.0}
    small = TraceJob(
        name="job-0", pods=1, minimum=1, request=Resources.parse({"cpu": "1"}), failures=0, restarts=0, **said
    )
    gang = TraceJob(
        name="job-1", pods=2, minimum=2, request=Resources.parse({"cpu": "3"}), failures=2, restarts=1, **said
    )
    return [node("n0", 6), queue("a", weight=1), queue("b", weight=2)], [6], None, None, (small, gang)


def fits(job, cpus, hard, capability):
    """Whether the minimum of a job has a place where nobody else is."""
    each = job.request.units("cpu") // 1000
    limits = [hard] if hard is not None and job.namespace == "team" else []
    limits += [capability] if capability is not None and job.queue == "a" else []
    return sum(cpu // each for cpu in cpus) >= job.minimum and all(job.minimum * each <= most for most in limits)


class Watched:
    """A simulation, each plan of which is looked at."""

    def __init__(self, setting):
        self.simulation = Simulation(setting)
        self.since: dict[str, float] = {}
        self.faults: list[str] = []
        perform = self.simulation._perform

        def looked_at(plan):
            for key, status in plan.groups.items():
                self.look(key.name, status)
            return perform(plan)

        self.simulation._perform = looked_at

    def look(self, name, status):
        now = self.simulation.lifecycle.now
        wrong = [each for each in status.conditions if each.type == "Unschedulable" and each.status == "True"]
        back = status.before is Phase.INQUEUE and status.phase is Phase.PENDING
        if back and not any(each.reason and each.message for each in wrong):
            self.faults.append(f"{name} goes back at {now} and doesn't say why")
        if status.phase is not Phase.INQUEUE:
            self.since.pop(name, None)
        elif now - self.since.setdefault(name, now) > STANDING + SLACK and not self.progress(name):
            self.faults.append(f"{name} is Inqueue since {self.since[name]}, and it is {now}")

    def progress(self, name):
        """Whether its minimum had nodes: no cycle is run for one that only runs, and so its phase isn't followed."""
        gangs = (gang for home, gang in self.simulation.lifecycle.gangs.items() if home[1] == name)
        return any(gang.started is not None for gang in gangs)


@pytest.mark.parametrize("policy", POLICIES)
def test_whoever_is_admitted_starts_or_goes_back_and_nobody_waits_for_ever(policy):
    parsed = config.parse(POLICIES[policy])

    @settings(max_examples=examples(40), deadline=None)
    @given(clusters())
    @example(broken_gang())
    def check(cluster):
        objects, cpus, hard, capability, trace = cluster
        found = scenario.read(objects, ("muster",), seed=0, until=math.inf)
        setting = replace(found, trace=trace).setting(parsed, InMemoryAdmission(WebhookSettings()))
        watched = Watched(setting)
        simulation = watched.simulation
        simulation.run(lambda _: None)
        assert watched.faults == []
        refused = {each.subject.rpartition("/")[2] for each in simulation.measures.refusals}
        gangs = {gang.home[1]: gang for gang in simulation.lifecycle.history}
        for job in trace:
            gang = gangs.get(job.name)
            if gang is None:
                assert job.name in refused, f"{job} was neither admitted nor refused"
                continue
            if gang.over is not None:
                continue
            # Of one whose failed pods aren't replaced, too few may be left for its minimum.
            enough = gang.started is None or job.pods - job.failures + job.restarts >= job.minimum
            possible = enough and fits(job, cpus, hard, capability)
            assert not possible, f"{job} waits for ever, and there is a place for it"
            record = simulation.look().records[gang.key]
            assert record.reason is not None, job
            assert record.message, job

    check()
