"""What a simulation leaves out changes nothing: groups taken together, and moments that are jumped over."""

from __future__ import annotations

import math
import random
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.model.amounts import Resources
from muster.whatif.simulated_admission import InMemoryAdmission
from scheduler.configuration import config
from scheduler.engine import satisfied
from scheduler.engine.cycle import decide
from scheduler.simulator import engine, report, scenario
from scheduler.simulator.engine import Simulation
from scheduler.simulator.trace import TraceJob
from scheduler.simulator.workloads import Workloads
from webhooks.settings import WebhookSettings

EVICTING = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
# Every rule about time, and each soon: waiting times, time-outs with their back-off, and nodes kept for who waited long.
IMPATIENT = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: sla, arguments: {sla-waiting-time: 5m}}, {name: priority}, {name: gang}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
configurations:
- {name: enqueue, arguments: {inqueueTimeoutSeconds: 20}}
- {name: allocate, arguments: {reserveAfter: 40s}}
"""
POLICIES = {
    "default": config.DEFAULT,
    "capacity": config.DEFAULT.replace("name: proportion", "name: capacity"),
    "evicting": EVICTING,
    "impatient": IMPATIENT,
}


QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota", "namespace": "default"}}


def objects(nodes=4, queues=3):
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "20"}
    for number in range(nodes):
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number}"},
            "status": {"allocatable": allocatable},
        }
    for number in range(queues):
        yield {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": f"q{number}"},
            "spec": {"weight": number + 1},
        }


def jobs(seed, count):
    lot = random.Random(seed)
    at = 0.0
    for number in range(count):
        at += lot.choice([0, 1, 20, 90])
        pods = lot.randint(1, 6)
        yield TraceJob(
            name=f"job-{number}",
            namespace="default",
            queue=f"q{lot.randrange(3)}",
            arrival=at,
            duration=float(lot.choice([30, 200, 900])),
            pods=pods,
            minimum=lot.randint(1, pods),
            request=Resources.parse({"cpu": lot.choice(["1", "2", "3"]), "memory": "1Gi"}),
        )


# Nobody has heard of its resource before, and no node has it.
STRANGE = TraceJob("strange", "default", "q0", 300.0, 60.0, 1, 1, Resources.parse({"cpu": "1", "example.com/gpu": "1"}))


def simulation(policy, seed, count=25, quota=None, more=()):
    parsed = config.parse(POLICIES[policy])
    quotas = [{**QUOTA, "spec": {"hard": {"requests.cpu": quota}}}] if quota is not None else []
    found = scenario.read([*objects(), *quotas], ("muster",), seed=0, until=float("inf"))
    trace = sorted([*jobs(seed, count), *more], key=lambda job: job.arrival)
    setup = replace(found, trace=tuple(trace)).setting(parsed, InMemoryAdmission(WebhookSettings()))
    return Simulation(setup)


@pytest.mark.parametrize(("policy", "seed"), [("default", 1), ("capacity", 2)])
def test_groups_that_only_run_may_stand_for_one_another(policy, seed, monkeypatch):
    def run():
        one = simulation(policy, seed, more=[STRANGE])
        end = one.run(lambda _: None)
        one._cluster.validate()
        return report.of(one, end)

    together = run()
    monkeypatch.setattr(satisfied, "may_set_aside", lambda _: False)
    apart = run()
    assert together.bars == apart.bars
    assert together.json()["report"] == apart.json()["report"]


def moved(plan):
    """What a plan does, but for the moments that it names."""
    return (
        sorted((bind.task.uid, bind.node) for bind in plan.binds),
        sorted(each.task.uid for each in plan.evictions),
        sorted((bind.task.uid, bind.node) for bind in plan.pipelined),
        sorted(plan.released),
        sorted((each.key, each.phase.value) for each in plan.statuses if each.phase is not each.before),
        plan.reserved_nodes and (plan.reserved_nodes.key, plan.reserved_nodes.nodes),
        sorted(plan.partially_bound),
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_until_its_deadline_a_cycle_decides_the_same(policy, monkeypatch):
    one = simulation(policy, seed=3, count=10)
    looked = []

    def decided(snapshot, policy, now, cache, *, records):
        plan = decide(snapshot, policy, now, cache, records=records)
        looked.append((snapshot, policy, now, plan))
        return plan

    monkeypatch.setattr(engine, "decide", decided)
    one.run(lambda _: None)
    waits = 0
    for snapshot, rules, now, plan in looked:
        left = plan.next_deadline - now.timestamp()
        assert left > 0
        for step in (0.001, 0.5, 0.999):
            ahead = timedelta(seconds=min(left, 86400.0) * step)
            assert moved(decide(snapshot, rules, now + ahead)) == moved(plan)
        waits += math.isfinite(left)
    assert waits


def decisions(policy, seed, every=math.inf):
    """Run a simulation; give what was decided and in which second. ``every``: seconds after which it decides anyhow."""
    one = simulation(policy, seed, count=12)
    found = []

    def decided(snapshot, rules, now, cache, *, records):
        plan = decide(snapshot, rules, now, cache, records=records)
        if any((plan.binds, plan.evictions, plan.released)) or any(x.phase is not x.before for x in plan.statuses):
            found.append((math.floor(one.lifecycle.now), moved(plan)))
        step = math.floor(one.lifecycle.now) + every + one._setup.start.timestamp()
        return replace(plan, next_deadline=min(plan.next_deadline, step))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "decide", decided)
        one.run(lambda _: None, hope=4000.0)
    return found, one.cycles


@settings(max_examples=12, deadline=None)
@given(policy=st.sampled_from(sorted(POLICIES)), seed=st.integers(0, 10_000))
def test_deciding_each_second_comes_to_the_same_as_waiting_for_the_deadline(policy, seed):
    jumping, few = decisions(policy, seed)
    stepping, many = decisions(policy, seed, every=1.0)
    assert jumping == stepping
    assert jumping
    assert few <= many


def test_a_pod_that_is_evicted_begins_anew():
    request = Resources.parse({"cpu": "8"})
    old = TraceJob("old", "default", "q0", 0.0, 600.0, 4, 1, request)
    new = TraceJob("new", "default", "q2", 60.0, 600.0, 2, 2, request)
    found = scenario.read(list(objects()), ("muster",), seed=0, until=float("inf"))
    setup = replace(found, trace=(old, new)).setting(config.parse(EVICTING), InMemoryAdmission(WebhookSettings()))
    one = Simulation(setup)
    end = one.run(lambda _: None)
    said = report.of(one, end)
    assert said.queues["q0"].reclaimed == 2
    assert said.ended == 2
    # Two of its pods began anew when the others had run their ten minutes.
    assert 1200 <= end < 1300
    assert timedelta(seconds=said.waits.most) < timedelta(seconds=5)


@pytest.mark.parametrize("quota", [None, "12"])
def test_lines_alike_are_admitted_like_each_other(quota, monkeypatch):
    def run():
        one = simulation("default", seed=4, count=40, quota=quota)
        end = one.run(lambda _: None)
        return report.of(one, end)

    asked = []
    admit = InMemoryAdmission.admit
    monkeypatch.setattr(InMemoryAdmission, "admit", lambda *about: asked.append(about) or admit(*about))
    once, count = run(), len(asked)
    monkeypatch.setattr(Workloads, "_again", lambda *_: None)
    each = run()
    assert once.bars == each.bars
    assert once.json()["report"] == each.json()["report"]
    assert bool(once.refusals) == bool(quota)
    assert (count < len(asked) - count) == (quota is None)
