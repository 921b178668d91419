"""The plugin pdb: disruption budgets are part of the choice, not only of the API server's answer."""

from __future__ import annotations

import msgspec
import pytest

from muster.model import kinds

POLICY = """\
actions: "allocate, preempt, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: pdb}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}]
"""
APP = {"app": "web"}


def budget(build, allowed, name="web", *, gone=False, **selector):
    body = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"selector": selector or {"matchLabels": APP}},
        "status": {"disruptionsAllowed": allowed},
    }
    build.cluster.budget(msgspec.convert(body, kinds.DISRUPTIONBUDGETS.struct), gone=gone)


@pytest.fixture
def crowd(build):
    """Four pods of 1 cpu that may all go, and a gang of two that needs the place of two."""
    build.priority("high", 1000).node("n", "4").group("low", 0, phase="Running")
    for number in range(4):
        build.pod(f"low-{number}", "low", node="n", labels=APP if number < 3 else {})
    return build.gang("urgent", 2, 2, priorityClassName="high")


def evicted(build, policy=POLICY):
    return sorted(each.task.name for each in build.decide(policy).evictions)


@pytest.mark.parametrize(("allowed", "count"), [(0, 0), (1, 2), (2, 2)])
def test_no_more_go_than_their_budget_allows(crowd, allowed, count):
    budget(crowd, allowed)
    gone = evicted(crowd)
    assert len(gone) == count
    assert len([name for name in gone if name != "low-3"]) <= allowed


def test_without_the_plugin_budgets_are_left_to_the_api_server(crowd):
    budget(crowd, 0)
    assert len(evicted(crowd, POLICY.replace(", {name: pdb}", ""))) == 2


def test_a_pod_of_two_budgets_needs_the_leave_of_both(crowd):
    budget(crowd, 5)
    budget(crowd, 0, "strict", matchLabels=APP)
    assert evicted(crowd) == []
    budget(crowd, 0, "strict", gone=True, matchLabels=APP)
    assert len(evicted(crowd)) == 2


def test_a_budget_of_another_namespace_protects_nobody_here(crowd):
    body = {"metadata": {"name": "web", "namespace": "other"}, "spec": {"selector": {}}}
    crowd.cluster.budget(msgspec.convert(body, kinds.DISRUPTIONBUDGETS.struct))
    assert len(evicted(crowd)) == 2


def test_what_went_for_one_job_counts_for_the_next(build):
    build.priority("high", 1000)
    for node in ("n", "m"):
        build.node(node, "1").group(f"low-{node}", 0, phase="Running")
        build.pod(f"low-{node}", f"low-{node}", node=node, labels=APP)
        build.gang(f"urgent-{node}", 1, 1, priorityClassName="high")
    budget(build, 1)
    assert len(evicted(build)) == 1


def test_reclaim_respects_budgets_too(build):
    build.queue("mine", weight=1).node("n", "4").group("low", 0, phase="Running")
    for number in range(4):
        build.pod(f"low-{number}", "low", node="n", labels=APP)
    build.gang("due", 1, 1, queue="mine")
    assert len(evicted(build)) == 1
    budget(build, 0)
    assert evicted(build) == []


def test_whom_a_budget_keeps_takes_nobody_s_turn(build):
    """The queue may lose two pods. The budget's two are the younger ones, so they are asked first."""
    build.queue("mine", weight=1).node("n", "4")
    for name, labels in (("other", {}), ("web", APP)):
        build.group(name, 1, phase="Running")
        for number in range(2):
            build.pod(f"{name}-{number}", name, node="n", labels=labels)
    budget(build, 0)
    build.gang("due", 2, 2, queue="mine")
    assert evicted(build) == ["other-0", "other-1"]
