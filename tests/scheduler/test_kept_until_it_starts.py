"""A gang that nodes are kept for keeps its place until it starts: while its pods come, and while others' pods end there."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from workloads import held_job

from muster.model.amounts import Resources
from muster.whatif.simulated_admission import InMemoryAdmission
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.leader.backoff import RequeueTimers
from scheduler.model.snapshot import Phase
from scheduler.simulator import scenario
from scheduler.simulator.engine import Simulation
from scheduler.simulator.trace import TraceJob
from scheduler.state.apply import apply_plan
from webhooks.settings import WebhookSettings

START = datetime(2026, 1, 1, tzinfo=UTC)
HOST = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
SHIPPED = config.parse(config.DEFAULT)
WAITED = 600
"""Seconds after which the shipped configuration keeps nodes."""
STANDING = 60
"""Seconds that it gives a group that was admitted."""
HOURS = 3600.0


def node(name, cpu):
    allocatable = {"cpu": str(cpu), "memory": "64Gi", "pods": "20"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


def line(name, arrival, duration, pods, cpu):
    request = Resources.parse({"cpu": str(cpu)})
    return TraceJob(name, "default", "default", arrival, duration, pods, pods, request)


def simulation(nodes, trace, until):
    found = scenario.read([node(f"n{number}", 4) for number in range(nodes)], ("muster",), seed=0, until=until)
    trace = tuple(sorted(trace, key=lambda each: each.arrival))
    return Simulation(replace(found, trace=trace).setting(SHIPPED, InMemoryAdmission(WebhookSettings())))


def stream(durations, every, until):
    """Small jobs, one after the other, more than there is room for."""
    lasting = itertools.cycle(durations)
    return [line(f"s{number}", number * every, next(lasting), 1, 1) for number in range(int(until / every))]


class Watched:
    """The phases of a group and who has nodes kept, plan by plan."""

    def __init__(self, simulation, name):
        self.simulation, self.name = simulation, name
        self.seen = []
        self._perform, simulation._perform = simulation._perform, self.perform

    def perform(self, plan):
        phases = [status.phase for key, status in plan.groups.items() if key.name == self.name]
        if phases:
            kept = plan.reserved_nodes
            self.seen.append((self.simulation.lifecycle.now, phases[0], kept.key.name if kept is not None else ""))
        return self._perform(plan)

    def run(self):
        """Return the second at which it started; None if it never did."""
        self.simulation.run(lambda _: None, lambda: self.started is not None)
        return self.started

    @property
    def started(self):
        return next((gang.started for gang in self.simulation.lifecycle.history if gang.home[1] == self.name), None)

    def turns(self):
        """What changed, but for the moments."""
        return [each for each, _ in itertools.groupby(seen[1:] for seen in self.seen)]


LARGE = [(Phase.PENDING, ""), (Phase.PENDING, "large"), (Phase.INQUEUE, "large")]


def test_a_gang_is_not_taken_back_while_pods_of_others_are_yet_to_end_on_the_nodes_kept_for_it():
    """Of the pods on its nodes some run for far longer than it may be Inqueue in vain."""
    small = stream([100, 3000, 3000, 100, 100], 16.875, 3 * HOURS)
    watched = Watched(simulation(8, [*small, line("large", 606, 600, 8, 2)], 3 * HOURS), "large")
    started = watched.run()
    waits = [moment for moment, phase, _ in watched.seen if phase is Phase.INQUEUE and moment < started]
    assert max(waits) - min(waits) > STANDING, "nothing kept it waiting once it was admitted"
    assert watched.turns()[:3] == LARGE
    assert all(phase is Phase.INQUEUE for phase, _ in watched.turns()[3:])


def admitted_after_long(build):
    """A held Job for which nodes were kept for longer than `WAITED` until its queue had its share."""
    for name in "ab":
        build.node(name, "4").group(f"on-{name}", 1, phase="Running", age=5000)
        build.pod(f"there-{name}", f"on-{name}", "3", node=name)
    build.group("large", 4, phase="Pending", age=WAITED).cluster.batch_job(held_job("large", 4, "1"))
    assert build.cycle().reserved_nodes.key.name == "large"
    later = 2 * WAITED
    plan = build.gone("there-a").cycle(later=later)
    assert plan.reserved_nodes.key.name == "large"
    return later, plan


def test_nodes_stay_kept_while_the_pods_of_a_job_are_made_one_by_one(build, binds):
    later, plan = admitted_after_long(build)
    assert plan.released == {"job-large"}
    for number in range(3):
        build.pod(f"large-{number}", "large")
        build.gang(f"small-{number}", 1, 1, "3", phase="Pending", age=1)
        plan = build.cycle(later=later + 1 + number)
        assert plan.reserved_nodes.key.name == "large", number
        assert set(binds(plan).values()) <= {"b"}, "others take what is kept"
    assert sorted(binds(build.pod("large-3", "large").cycle(later=later + 5))) == [f"large-{each}" for each in range(4)]


class Cycles:
    """Cycles of a leader over a cluster of values, each carried out; what it knows of who went back is remembered."""

    def __init__(self, build):
        self.build, self.timers, self.cache = build, RequeueTimers(), DecisionCache()

    def at(self, seconds):
        """Decide; return the plan's kept nodes, by whose they are."""
        now = START + timedelta(seconds=seconds)
        snapshot = replace(self.build.cluster.snapshot(), requeues=self.timers.requeues)
        self.plan = decide(snapshot, SHIPPED, now, self.cache)
        self.timers.observe(self.plan, now.timestamp())
        apply_plan(self.build.cluster, self.plan)
        kept = self.plan.reserved_nodes
        return (kept.key.name, kept.nodes) if kept is not None else None

    def phase(self, name):
        return next(status.phase for key, status in self.plan.groups.items() if key.name == name)


def full(build, nodes, cpu="4"):
    """Nodes each of which a group of one pod fills."""
    for name in nodes:
        build.node(name, cpu, labels={HOST["topologyKey"]: name}).group(f"on-{name}", 1, phase="Running", age=5000)
        build.pod(f"there-{name}", f"on-{name}", cpu, node=name)
    return Cycles(build)


def test_a_gang_whose_pods_never_come_gives_its_nodes_to_the_next_and_is_given_none_before_its_next_attempt(build):
    cycles = full(build, "ab")
    build.group("empty", 4, phase="Pending", age=5000).cluster.batch_job(held_job("empty", 4))
    build.gang("next", 4, 4, phase="Pending", age=WAITED)
    assert cycles.at(0) == ("empty", ("a",))
    build.gone("there-a")
    assert [cycles.at(second)[0] for second in range(1, STANDING + 1)] == ["empty"] * STANDING
    assert cycles.phase("empty") is Phase.INQUEUE
    kept = cycles.at(STANDING + 1)
    assert (kept, cycles.phase("empty")) == (("next", ("a",)), Phase.PENDING)


def test_while_nobody_else_waits_nodes_are_not_kept_for_one_that_was_taken_back(build, binds):
    cycles = full(build, "ab")
    build.group("empty", 4, phase="Pending", age=5000).cluster.batch_job(held_job("empty", 4))
    cycles.at(0)
    build.gone("there-a")
    for second in range(1, STANDING + 2):
        cycles.at(second)
    build.gang("small", 1, 1, phase="Pending", age=1)
    assert cycles.at(STANDING + 2) is None
    assert binds(cycles.plan) == {"small-0": "a"}


def test_a_gang_that_finds_no_place_on_the_nodes_kept_for_it_once_they_are_free_gives_them_to_the_next(build, binds):
    """Its pods keep each other away; of the two nodes that it needs, one is kept for both as far as amounts go."""
    cycles = full(build, "a", "8")
    build.group("apart", 2, phase="Pending", age=5000)
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [HOST]}}
    for number in range(2):
        build.pod(f"apart-{number}", "apart", "4", labels={"app": "apart"}, affinity=away)
    build.gang("next", 2, 2, "4", phase="Pending", age=WAITED)
    assert cycles.at(0) == ("apart", ("a",))
    assert cycles.at(1) == cycles.at(2 * STANDING) == ("apart", ("a",))
    assert cycles.phase("apart") is Phase.INQUEUE
    build.gone("there-a")
    assert cycles.at(2 * STANDING + 1) == ("next", ("a",))
    cycles.at(2 * STANDING + 2)
    assert binds(cycles.plan) == {"next-0": "a", "next-1": "a"}
    assert cycles.phase("apart") is Phase.PENDING


def test_where_pods_of_others_do_not_end_in_time_nodes_are_chosen_anew_and_what_is_free_stays(build, binds):
    """Ten minutes, then twenty: a service runs on the node that was chosen first, and on the one that was chosen next."""
    cycles = full(build, "abcd")
    build.gang("large", 2, 2, "4", phase="Pending", age=WAITED)
    assert cycles.at(0) == ("large", ("a", "b"))
    build.gone("there-b")
    assert cycles.at(WAITED - 1) == ("large", ("a", "b"))
    assert cycles.at(WAITED) == ("large", ("b", "c"))
    assert cycles.at(3 * WAITED - 1) == ("large", ("b", "c"))
    assert cycles.at(3 * WAITED) == ("large", ("b", "d"))
    build.gone("there-d")
    cycles.at(3 * WAITED + 1)
    assert binds(cycles.plan) == {"large-0": "b", "large-1": "d"}


def test_once_all_nodes_had_their_time_the_first_are_chosen_again(build):
    cycles = full(build, "ab")
    build.gang("large", 1, 1, "4", phase="Pending", age=WAITED)
    moments = [WAITED * (2**choices - 1) for choices in range(5)]
    assert [cycles.at(moment)[1] for moment in moments] == [("a",), ("b",), ("a",), ("b",), ("a",)]
    assert cycles.phase("large") is Phase.INQUEUE


@st.composite
def busy_clusters(draw):
    """Small jobs that are more than there is room for, some nodes with services that never end, and a gang that fits beside these."""
    nodes, services = draw(st.integers(2, 5)), draw(st.integers(0, 2))
    pods = draw(st.integers(1, 2 * (nodes - min(services, nodes - 1))))
    durations = draw(st.lists(st.sampled_from([100.0, 400.0, 2000.0]), min_size=1, max_size=5))
    load = draw(st.floats(1.0, 1.3))
    every = max(sum(durations) / len(durations) / (4 * nodes) / load, 20.0)
    return nodes, min(services, nodes - 1), pods, durations, every


@settings(max_examples=examples(10), deadline=None)
@given(busy_clusters())
def test_a_gang_that_fits_beside_what_never_ends_starts_in_the_end_however_many_small_ones_come(cluster):
    nodes, services, pods, durations, every = cluster
    until = 8 * HOURS
    endless = [line(f"service-{number}", 0.0, 10 * until, 1, 3) for number in range(services)]
    small = stream(durations, every, until)
    arrives = 2 * max(durations)
    watched = Watched(simulation(nodes, [*endless, *small, line("large", arrives, 600, pods, 2)], until), "large")
    started = watched.run()
    assert started is not None
    admitted = [phase for _, phase, _ in watched.seen]
    assert Phase.PENDING not in admitted[admitted.index(Phase.INQUEUE) :], "it was taken back"
