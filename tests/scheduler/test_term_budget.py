"""The terms of one namespace's pods cost the others no more than a bound, and a pod beyond it says why it waits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from muster.model import kinds, names
from muster.model.objects import LabelSelector, LabelSelectorRequirement
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.model.affinity import CountingRule, PodSelection, PodSet
from scheduler.state import term_budget
from scheduler.state.cluster import Cluster
from scheduler.state.peer_index import PeerIndex

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUNNING = 20


def made(kind: Any, body: dict[str, Any]) -> Any:
    return msgspec.convert(body, kind.struct)


def pod(name: str, *wanted: dict[str, Any], namespace: str = "ns", node: str = "") -> Any:
    meta = {"name": name, "namespace": namespace, "uid": name, "labels": {"app": name}}
    meta["annotations"] = {names.GROUP_NAME: name}
    terms = [{"topologyKey": "zone", "labelSelector": {"matchExpressions": [each]}} for each in wanted]
    spec = {
        "schedulerName": names.SCHEDULER_NAME,
        "nodeName": node,
        "containers": [{"resources": {"requests": {"cpu": "1m"}}}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}} if terms else {},
    }
    phase = {"phase": "Running" if node else "Pending"}
    return made(kinds.PODS, {"metadata": meta, "spec": spec, "status": phase})


def other_than(*values: str) -> dict[str, Any]:
    return {"key": "app", "operator": "NotIn", "values": list(values)}


def one_of(*values: str) -> dict[str, Any]:
    return {"key": "app", "operator": "In", "values": list(values)}


class World:
    """A cluster with pods that run, each with labels of its own; a term that excludes one is compared with all."""

    def __init__(self) -> None:
        self.cluster = Cluster({names.SCHEDULER_NAME})
        status = {"allocatable": {"cpu": "4", "pods": "99"}}
        node = {"metadata": {"name": "n", "labels": {"zone": "z"}}, "status": status}
        self.cluster.node(made(kinds.NODES, node))
        queue = {"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open"}}
        self.cluster.queue(made(kinds.QUEUES, queue))
        for number in range(RUNNING):
            self.cluster.pod(pod(f"running-{number}", namespace="theirs", node="n"))

    def submit(self, name: str, *wanted: dict[str, Any], namespace: str = "ns", node: str = "") -> None:
        meta = {"name": name, "namespace": namespace, "uid": f"group-{name}"}
        group = {"metadata": meta, "spec": {"minMember": 1}, "status": {"phase": "Inqueue"}}
        self.cluster.group(kinds.PODGROUPS.group, made(kinds.PODGROUPS, group))
        self.cluster.pod(pod(name, *wanted, namespace=namespace, node=node))

    def delete(self, name: str) -> None:
        self.cluster.pod(pod(name), gone=True)

    def decide(self) -> tuple[set[str], str]:
        """Return which pods are placed, and what groups are told."""
        plan = decide(self.cluster.snapshot(), config.parse(config.DEFAULT), NOW, DecisionCache())
        self.cluster.validate()
        told = " ".join(each.message for status in plan.statuses for each in status.struct().conditions or ())
        return {bind.task.name for bind in plan.binds}, told

    def evaluated(self) -> int:
        """Return how many anti-affinity terms count."""
        return sum(map(len, self.cluster.snapshot().peer_counts.inverse_terms.values()))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(term_budget, "MAX_COMPARISONS", 3 * RUNNING)
    return World()


def test_a_pod_beyond_the_budget_is_not_placed_and_says_why(world):
    world.submit("hostile", *[other_than(f"running-{number}") for number in range(3)])
    world.submit("honest")
    placed, told = world.decide()
    assert placed == {"honest"}
    assert "compared with other pods more than" in told
    assert "terms that name the value of a label" in told
    assert world.evaluated() == 0


def test_terms_within_it_are_evaluated(world):
    everybody = [f"running-{number}" for number in range(RUNNING)]
    world.submit("near-somebody", other_than(*everybody[1:], "near-somebody"))
    world.submit("near-nobody", other_than(*everybody, "near-somebody", "near-nobody"))
    assert world.decide()[0] == {"near-nobody"}
    assert world.evaluated() == 2


def test_a_term_that_names_a_value_costs_what_it_is_about(world):
    world.submit("careful", *[one_of(f"absent-{number}") for number in range(50)])
    assert world.decide()[0] == {"careful"}


def test_the_pods_of_a_namespace_share_it_and_get_it_back(world):
    for name in ("first", "second"):
        world.submit(name, other_than("running-1"), other_than(f"of-{name}"))
    assert world.evaluated() == 2
    world.delete("first")
    assert world.evaluated() == 2
    assert world.decide()[1].count("compared with other pods") == 0


def test_equal_terms_cost_once(world):
    for number in range(9):
        world.submit(f"member-{number}", other_than("running-1"), other_than("running-2"))
    assert world.evaluated() == 2
    assert "compared with other pods" not in world.decide()[1]


def test_another_namespace_has_a_budget_of_its_own(world):
    world.submit("hostile", *[other_than(f"of-{number}") for number in range(9)])
    world.submit("honest", *[other_than(f"running-{number}") for number in range(2)], namespace="another")
    assert world.evaluated() == 2


def test_what_runs_counts_for_a_leader_that_meets_it_in_another_order(world):
    world.submit("pending", other_than("running-1"), other_than("running-2"))
    world.submit("runs", other_than("running-3"), other_than("running-4"), node="n")
    world.submit("runs-too", other_than("running-5"), other_than("running-6"), node="n")
    assert world.evaluated() == 4
    assert "compared with other pods" in world.decide()[1]


def test_a_pod_that_is_refused_and_goes_leaves_nothing_behind(world):
    for number in range(20):
        world.submit(f"h{number}", *[other_than(f"{number}-{each}") for each in range(9)])
        world.cluster.snapshot()
        world.delete(f"h{number}")
    world.submit("honest", other_than("running-1"), other_than("running-2"))
    assert world.evaluated() == 2


def test_questions_that_nobody_asks_any_more_do_not_add_up():
    index = PeerIndex()
    index.join("uid", "ns", {"app": "x"})
    for number in range(1000):
        selector = LabelSelector(
            match_expressions=(LabelSelectorRequirement(key="app", operator="NotIn", values=(f"v{number}",)),)
        )
        peers = PodSet.of(CountingRule.AFFINITY, PodSelection(frozenset(["ns"]), selector))
        index.add_queries([peers])
        index.renew()
        index.remove_queries([peers])
    assert len(index.join("uid", "ns", {"app": "x"})) < 300
