"""What a simulation leaves out changes nothing: groups taken together, and moments that are jumped over."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace

from muster.model.amounts import Resources
from muster.whatif.simulated_admission import InMemoryAdmission
from scheduler.configuration import config
from scheduler.engine import satisfied
from scheduler.engine.cycle import decide
from scheduler.simulator import engine, report, scenario
from scheduler.simulator.engine import Simulation
from scheduler.simulator.workloads import TraceJob, Workloads
from webhooks.settings import Settings

EVICTING = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
POLICIES = {
    "default": config.DEFAULT,
    "capacity": config.DEFAULT.replace("name: proportion", "name: capacity"),
    "evicting": EVICTING,
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
    setting = replace(found, trace=tuple(trace)).setting(parsed, InMemoryAdmission(Settings()))
    return Simulation(setting)


@pytest.mark.parametrize(("policy", "seed"), [("default", 1), ("capacity", 2)])
def test_groups_that_only_run_may_stand_for_one_another(policy, seed, monkeypatch):
    def run():
        one = simulation(policy, seed, more=[STRANGE])
        end = one.run(lambda _: None)
        one._cluster.validate()
        return report.of(one, end)

    together = run()
    monkeypatch.setattr(satisfied, "may_aggregate", lambda _: False)
    apart = run()
    assert together.bars == apart.bars
    assert together.json()["report"] == apart.json()["report"]


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_decided_between_the_moments_that_are_looked_at(policy, monkeypatch):
    one = simulation(policy, seed=3, count=10)
    looked = []

    def decided(snapshot, policy, now, *, records):
        looked.append((snapshot, policy, now))
        return decide(snapshot, policy, now, records=records)

    monkeypatch.setattr(engine, "decide", decided)
    one.run(lambda _: None)
    jumps = 0
    for (before, rules, then), (_, _, now) in pairwise(looked):
        plan = decide(before, rules, then)
        if plan.binds or plan.evictions or (now - then).total_seconds() < 2:
            continue  # Something was to be done, and the next look came at once.
        for step in (0.5, 0.99):
            again = decide(before, rules, then + step * (now - then))
            assert (again.binds, again.evictions, again.released) == ((), (), frozenset())
            assert [each.phase for each in again.statuses if each.phase is not each.before] == [
                each.phase for each in plan.statuses if each.phase is not each.before
            ]
            assert (again.reserved and again.reserved.key) == (plan.reserved and plan.reserved.key)
        jumps += 1
    assert jumps


def test_a_pod_that_is_evicted_begins_anew():
    request = Resources.parse({"cpu": "8"})
    old = TraceJob("old", "default", "q0", 0.0, 600.0, 4, 1, request)
    new = TraceJob("new", "default", "q2", 60.0, 600.0, 2, 2, request)
    found = scenario.read(list(objects()), ("muster",), seed=0, until=float("inf"))
    setting = replace(found, trace=(old, new)).setting(config.parse(EVICTING), InMemoryAdmission(Settings()))
    one = Simulation(setting)
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
