"""Topology spread constraints, as kube-scheduler means them."""

from __future__ import annotations

from collections import Counter

import pytest

ZONE, HOST = "zone", "kubernetes.io/hostname"
APP = {"app": "x"}


def spread(key=ZONE, skew=1, when="DoNotSchedule", **more):
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when}
    return {"topologySpreadConstraints": [constraint | {"labelSelector": {"matchLabels": APP}} | more]}


@pytest.fixture
def zones(build):
    for name in ("a1", "a2", "b1", "b2", "c1"):
        build.node(name, "16", labels={ZONE: name[0], HOST: name})
    return build


def test_a_gang_is_spread_over_zones(zones, binds):
    zones.group("g", 7)
    for number in range(7):
        zones.pod(f"p{number}", "g", labels=APP, **spread())
    counts = Counter(node[0] for node in binds(zones.decide()).values())
    assert sorted(counts.values()) == [2, 2, 3]


def test_pods_that_run_count_and_those_that_leave_do_not(zones, binds):
    zones.pod("a", node="a1", labels=APP).pod("b", node="b1", labels=APP).pod("c", node="c1", labels=APP, leaving=True)
    plan = zones.group("g").pod("p", "g", labels=APP, **spread()).decide()
    assert binds(plan) == {"p": "c1"}


def test_pods_of_other_namespaces_and_other_labels_do_not_count(zones, binds):
    for number in range(3):
        zones.pod(f"else{number}", node="a1", labels=APP, namespace="other").pod(f"y{number}", node="b1")
    zones.pod("c", node="c1", labels=APP).pod("b", node="b1", labels=APP)
    plan = zones.group("g").pod("p", "g", labels=APP, **spread()).decide()
    assert binds(plan)["p"] in {"a1", "a2"}


def test_a_gang_that_cannot_be_spread_waits_and_says_why(zones, binds, message):
    zones.group("g", 3)
    for number in range(3):
        zones.pod(f"p{number}", "g", labels=APP, nodeSelector={ZONE: "a"}, **spread(nodeAffinityPolicy="Ignore"))
    plan = zones.decide()
    assert binds(plan) == {}
    assert "3 are not matched by the node selector or affinity" in message(plan, "g")


def test_only_nodes_that_the_affinity_accepts_count_unless_told_otherwise(zones, binds):
    zones.group("g", 3)
    for number in range(3):
        zones.pod(f"p{number}", "g", labels=APP, nodeSelector={ZONE: "a"}, **spread())
    assert len(binds(zones.decide())) == 3


@pytest.mark.parametrize(("policy", "bound"), [("Ignore", 1), ("Honor", 2)])
def test_tainted_nodes_count_as_the_constraint_says(build, binds, policy, bound):
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    build.node("a", labels={ZONE: "a"}).node("b", labels={ZONE: "b"}, taints=taints).group("g", 0)
    for number in range(2):
        build.pod(f"p{number}", "g", labels=APP, **spread(nodeTaintsPolicy=policy))
    assert len(binds(build.decide())) == bound


@pytest.mark.parametrize(("least", "bound"), [(None, 4), (2, 4), (3, 2)])
def test_too_few_domains_count_as_empty_ones(build, binds, least, bound):
    build.node("a", labels={ZONE: "a"}).node("b", labels={ZONE: "b"}).group("g", 0)
    for number in range(4):
        build.pod(f"p{number}", "g", labels=APP, **spread(minDomains=least))
    assert len(binds(build.decide())) == bound


def test_a_node_without_the_label_is_out_of_the_question(build, binds, message):
    plan = build.node("a").group("g").pod("p", "g", labels=APP, **spread()).decide()
    assert binds(plan) == {}
    assert "1 is without a label that its topology spread goes by" in message(plan, "g")


def test_a_pod_that_is_not_one_of_those_spread_adds_nothing_to_them(zones, binds):
    zones.group("g", 0)
    for number in range(4):
        zones.pod(f"p{number}", "g", nodeSelector={ZONE: "a"}, **spread(nodeAffinityPolicy="Ignore"))
    assert len(binds(zones.decide())) == 4


def test_match_label_keys_count_pods_of_the_same_version_only(zones, binds):
    for number in range(3):
        zones.pod(f"old{number}", node="a1", labels=APP | {"version": "1"})
    zones.pod("b", node="b1", labels=APP | {"version": "2"}).pod("c", node="c1", labels=APP | {"version": "2"})
    wanted = spread(matchLabelKeys=["version"])
    plan = zones.group("g").pod("p", "g", labels=APP | {"version": "2"}, **wanted).decide()
    assert binds(plan)["p"] in {"a1", "a2"}


def test_preferences_choose_the_emptiest_zone(zones, binds):
    for number, node in enumerate(("a1", "a2", "b1")):
        zones.pod(f"there{number}", node=node, labels=APP, cpu="100m")
    plan = zones.group("g").pod("p", "g", labels=APP, **spread(when="ScheduleAnyway")).decide(SPREAD)
    assert binds(plan) == {"p": "c1"}


def test_preferences_by_hostname_count_each_node(zones, binds):
    for number, node in enumerate(("a1", "b1", "b2", "c1")):
        zones.pod(f"there{number}", node=node, labels=APP, cpu="100m")
    plan = zones.group("g").pod("p", "g", labels=APP, **spread(HOST, when="ScheduleAnyway")).decide(SPREAD)
    assert binds(plan) == {"p": "a2"}


def test_the_rule_can_be_turned_off(build, binds):
    policy = "actions: allocate\ntiers: [{plugins: [{name: predicates, arguments: {predicate.PodTopologySpreadEnable: false}}]}]"
    plan = build.node("a").group("g").pod("p", "g", labels=APP, **spread()).decide(policy)
    assert len(binds(plan)) == 1


SPREAD = """
actions: allocate
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: nodeorder
    arguments: {leastrequested.weight: 0, balancedresource.weight: 0, podaffinity.weight: 0}
"""
