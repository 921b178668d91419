"""How much a cycle looks at for evictions, and that nobody waits for ever behind who finds nothing."""

from __future__ import annotations

import pytest

from scheduler.configuration import config
from scheduler.engine.eviction import EvictionRun

PREEMPTING = config.DEFAULT.replace("allocate, reclaim", "allocate, preempt, reclaim")


@pytest.fixture
def runs(monkeypatch):
    """The runs of eviction actions, as they are begun."""
    begun = []
    make = EvictionRun.__init__

    def noted(run, *arguments):
        begun.append(run)
        make(run, *arguments)

    monkeypatch.setattr(EvictionRun, "__init__", noted)
    return begun


def full(build, nodes, levels):
    """Nodes that gangs of as many priorities have filled, each with its minimum and no more; and one with a pod to spare."""
    for number in range(nodes):
        build.node(f"n{number}", "4")
    for level in range(levels):
        build.priority(f"low-{level}", level)
        places = range(level, nodes, levels)
        build.group(f"low-{level}", len(places), phase="Running", priorityClassName=f"low-{level}")
        for number in places:
            build.pod(f"low-{level}-{number}", f"low-{level}", "4", node=f"n{number}")
    build.node("spare", "2", labels={"kubernetes.io/hostname": "spare"})
    build.group("spared", 1, phase="Running", priorityClassName="low-0")
    for number in range(2):
        build.pod(f"spared-{number}", "spared", node="spare")
    return build.priority("highest", 1000).priority("high", 500)


def evicted(plan):
    return [each.task.name for each in plan.evictions]


def test_who_looks_at_more_than_a_thousand_nodes_in_vain_keeps_nobody_from_its_place(build):
    full(build, 1_050, 1).gang("wide", 1, 1, "4", priorityClassName="highest")
    build.group("narrow", 1, priorityClassName="high")
    build.pod("narrow-0", "narrow", nodeSelector={"kubernetes.io/hostname": "spare"})
    assert evicted(build.decide(PREEMPTING)) == ["spared-1"]


def test_a_node_counts_once_for_a_task_however_many_priorities_are_tried(build, runs):
    full(build, 30, 6).gang("wide", 1, 1, "4", priorityClassName="highest")
    assert evicted(build.decide(PREEMPTING)) == []
    assert [run.looked_at for run in runs] == [30]
