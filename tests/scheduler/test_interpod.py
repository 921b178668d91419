"""Inter-pod affinity and anti-affinity, as kube-scheduler means them."""

from __future__ import annotations

import pytest

from muster.model import names

ZONE, HOST = "zone", "kubernetes.io/hostname"


def term(app, key=ZONE, **more):
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def near(*terms):
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def apart(*terms):
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def wish(kind, term, weight=100):
    return {
        "affinity": {
            kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term}]}
        }
    }


@pytest.fixture
def zones(build):
    """Four nodes in two zones, and one in none."""
    for name, zone in {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}.items():
        build.node(name, labels={ZONE: zone, HOST: name})
    return build.node("nowhere", "64", labels={HOST: "nowhere"})


def test_a_pod_goes_where_those_are_that_it_wants_near(zones, binds):
    zones.pod("db", node="b1", labels={"app": "db"})
    plan = zones.group("g").pod("p", "g", cpu="4", **near(term("db"))).decide()
    assert binds(plan) == {"p": "b2"}


def test_a_pod_that_wants_somebody_who_is_nowhere_waits_and_says_so(zones, binds, message):
    plan = zones.group("g").pod("p", "g", **near(term("db"))).decide()
    assert binds(plan) == {}
    assert message(plan, "g") == (
        "1 pod of 1 cpu needs a node; the nodes have room for none "
        "(of 5 nodes 5 are far from the pods that its affinity requires)"
    )


def test_all_terms_have_to_be_met_by_the_same_pods(zones, binds):
    zones.pod("db", node="a1", labels={"app": "db", "tier": "1"}).pod("db2", node="b1", labels={"app": "db"})
    both = near(term("db"), {"labelSelector": {"matchLabels": {"tier": "1"}}, "topologyKey": ZONE})
    plan = zones.group("g").pod("p", "g", **both).decide()
    assert set(binds(plan).values()) <= {"a1", "a2"}
    assert binds(plan)


def test_a_gang_that_wants_to_be_together_starts_in_one_zone(zones, binds):
    zones.group("g", 6)
    for number in range(6):
        zones.pod(f"p{number}", "g", labels={"app": "ring"}, **near(term("ring")))
    places = binds(zones.decide())
    assert len(places) == 6
    assert {name[0] for name in places.values()} in ({"a"}, {"b"})


def test_a_gang_that_wants_to_be_together_is_not_begun_where_it_does_not_fit(build, binds):
    # By their scores, the first pod alone would go to the zone that is too small.
    build.node("a1", "2", labels={ZONE: "a"}).node("b1", "4", labels={ZONE: "b"})
    build.pod("there", node="b1", cpu="1").group("g", 3)
    for number in range(3):
        build.pod(f"p{number}", "g", labels={"app": "ring"}, **near(term("ring")))
    assert set(binds(build.decide()).values()) == {"b1"}


def test_the_first_leaves_room_for_those_of_other_shapes(build, binds):
    build.node("a1", "2", labels={ZONE: "a"}).node("b1", "5", labels={ZONE: "b"})
    build.group("g", 5).pod("launcher", "g", "100m", labels={"app": "ring"}, **near(term("ring")))
    for number in range(4):
        build.pod(f"worker{number}", "g", labels={"app": "ring"}, **near(term("ring")))
    assert set(binds(build.decide()).values()) == {"b1"}


def test_where_not_all_have_room_the_minimum_will_do(build, binds):
    build.node("a1", "2", labels={ZONE: "a"}).node("b1", "4", labels={ZONE: "b"})
    build.pod("there", node="b1", cpu="1").group("g", 3)
    for number in range(6):
        build.pod(f"p{number}", "g", labels={"app": "ring"}, **near(term("ring")))
    assert list(binds(build.decide()).values()) == ["b1"] * 3


def test_the_first_of_its_kind_still_needs_a_node_with_the_label(build, binds):
    plan = build.node("nowhere").group("g").pod("p", "g", labels={"app": "x"}, **near(term("x"))).decide()
    assert binds(plan) == {}


def test_pods_that_want_to_be_apart_get_a_node_each(zones, binds):
    zones.group("g", 4)
    for number in range(4):
        zones.pod(f"p{number}", "g", labels={"app": "x"}, **apart(term("x", HOST)))
    assert len(set(binds(zones.decide()).values())) == 4


def test_a_gang_that_cannot_be_apart_is_not_placed_at_all_and_told_how_far_it_would_get(zones, binds, message):
    zones.group("g", 3)
    for number in range(3):
        zones.pod(f"p{number}", "g", labels={"app": "x"}, nodeSelector={ZONE: "a"}, **apart(term("x", HOST)))
    plan = zones.decide()
    assert binds(plan) == {}
    assert message(plan, "g") == (
        "3 pods of 1 cpu need a node; placed one by one, 2 of 3 find one (of 5 nodes "
        "3 are not matched by the node selector or affinity, 2 are near pods that its own anti-affinity excludes)"
    )


def test_pods_placed_in_this_cycle_keep_others_away(zones, binds):
    zones.group("first").pod("shy", "first", **apart(term("loud")))
    zones.group("second").pod("loud", "second", labels={"app": "loud"})
    places = binds(zones.decide())
    zone = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
    assert zone.get(places["shy"], "none") != zone.get(places["loud"], "other")


def test_a_running_pod_keeps_away_whom_it_does_not_want(zones, binds, message):
    for node in ("a1", "b1"):
        zones.pod(f"shy-{node}", node=node, **apart(term("loud")))
    zones.pod("big", node="nowhere", cpu="64")
    plan = zones.group("g").pod("p", "g", labels={"app": "loud"}).decide()
    assert binds(plan) == {}
    assert "4 are kept free by the anti-affinity of other pods" in message(plan, "g")


def test_a_pod_that_is_deleted_keeps_nobody_away_any_more(zones, binds):
    for node in ("a1", "b1"):
        zones.pod(f"shy-{node}", node=node, **apart(term("loud")))
    zones.pod("big", node="nowhere", cpu="64").group("g").pod("p", "g", labels={"app": "loud"})
    assert binds(zones.decide()) == {}
    assert binds(zones.gone("shy-b1").decide())["p"] in {"b1", "b2"}


def test_a_place_is_promised_where_those_in_the_way_are_leaving(build, binds):
    build.node("a1", labels={ZONE: "a"})
    build.pod("old", node="a1", labels={"app": "x"}, leaving=True)
    plan = build.group("g").pod("p", "g", labels={"app": "x"}, **apart(term("x"))).decide()
    assert binds(plan) == {}
    assert [(bind.task.name, bind.node) for bind in plan.pipelined] == [("p", "a1")]


@pytest.mark.parametrize(
    ("more", "nodes"),
    [
        ({}, {"a1", "a2", "b1", "b2", "nowhere"}),
        ({"namespaces": ["other"]}, {"b1", "b2"}),
        ({"namespaceSelector": {"matchLabels": {"team": "blue"}}}, {"b1", "b2"}),
        ({"namespaceSelector": {}}, {"b1", "b2"}),
        ({"namespaceSelector": {"matchLabels": {"team": "red"}}}, {"a1", "a2", "b1", "b2", "nowhere"}),
        ({"namespaces": ["elsewhere"]}, {"a1", "a2", "b1", "b2", "nowhere"}),
    ],
)
def test_terms_are_about_the_namespaces_that_they_choose(zones, binds, more, nodes):
    zones.namespace("other", team="blue")
    zones.pod("db", node="b1", labels={"app": "db"}, namespace="other")
    wanted = near(term("db", **more))
    plan = zones.group("g").pod("p", "g", **wanted).decide()
    assert set(binds(plan).values()) == (set() if "nowhere" in nodes else {min(nodes)}) or binds(plan)["p"] in nodes
    if "nowhere" in nodes:
        assert binds(plan) == {}


def test_a_namespace_that_changes_its_labels_is_another(zones, binds):
    zones.pod("db", node="b1", labels={"app": "db"}, namespace="other")
    zones.group("g").pod("p", "g", **near(term("db", namespaceSelector={"matchLabels": {"team": "blue"}})))
    assert binds(zones.decide()) == {}
    zones.namespace("other", team="blue")
    assert binds(zones.decide())["p"] in {"b1", "b2"}


def test_match_label_keys_narrow_a_term_to_pods_of_the_same_kind(zones, binds):
    zones.pod("old", node="a1", labels={"app": "x", "version": "1"})
    zones.pod("new", node="b1", labels={"app": "x", "version": "2"})
    wanted = near(term("x", matchLabelKeys=["version"]))
    plan = zones.group("g").pod("p", "g", labels={"app": "x", "version": "2"}, **wanted).decide()
    assert binds(plan)["p"] in {"b1", "b2"}


def test_mismatch_label_keys_leave_pods_of_the_same_kind_out(zones, binds):
    zones.pod("mine", node="a1", labels={"app": "x", "tenant": "1"})
    zones.pod("theirs", node="b1", labels={"app": "x", "tenant": "2"})
    wanted = apart(term("x", mismatchLabelKeys=["tenant"]))
    zones.pod("big", node="nowhere", cpu="64")
    plan = zones.group("g").pod("p", "g", labels={"app": "x", "tenant": "1"}, **wanted).decide()
    assert binds(plan)["p"] in {"a1", "a2"}


def test_preferences_choose_among_nodes(zones, binds):
    zones.pod("db", node="b1", labels={"app": "db"}, cpu="100m")
    plan = zones.group("g").pod("p", "g", **wish("podAffinity", term("db"))).decide(PODS)
    assert binds(plan)["p"] in {"b1", "b2"}


def test_preferences_to_be_apart_choose_among_nodes(zones, binds):
    for node in ("a1", "b1", "nowhere"):
        zones.pod(f"db-{node}", node=node, labels={"app": "db"}, cpu="100m")
    plan = zones.group("g").pod("p", "g", **wish("podAntiAffinity", term("db", HOST))).decide(PODS)
    assert binds(plan)["p"] in {"a2", "b2"}


def test_preferences_of_running_pods_count_too(zones, binds):
    zones.pod("fan", node="b1", **wish("podAffinity", term("star")), cpu="100m")
    plan = zones.group("g").pod("p", "g", labels={"app": "star"}).decide(PODS)
    assert binds(plan)["p"] in {"b1", "b2"}


def test_those_who_need_a_pod_near_attract_it(zones, binds):
    zones.pod("fan", node="b1", **near(term("star")), cpu="100m")
    plan = zones.group("g").pod("p", "g", labels={"app": "star"}).decide(PODS)
    assert binds(plan)["p"] in {"b1", "b2"}


def test_nothing_is_remembered_of_pods_that_are_gone(build):
    build.node("a1", labels={ZONE: "a", HOST: "a1"})
    empty = sizes(build.cluster._peers)
    for round_ in range(3):
        for number in range(5):
            name = f"p{round_}-{number}"
            build.pod(name, node="a1", labels={"app": name}, **(apart if number % 2 else near)(term(name, HOST)))
        build.pod("waits", labels={"app": "w"}, **near(term("w", matchLabelKeys=["app"])))
        build.cluster.snapshot()
        for number in range(5):
            build.gone(f"p{round_}-{number}")
        build.gone("waits")
        build.cluster.snapshot()
        assert sizes(build.cluster._peers) == empty


def sizes(register):
    kept = {name: value for name, value in vars(register).items() if hasattr(value, "__len__")}
    index = {name: len(value) for name, value in vars(register._index).items()}
    shown = [
        len(each) for each in (register.counts().present, register.counts().leaving, register.counts().inverse_terms)
    ]
    return {name: len(value) for name, value in kept.items()}, index, shown


def test_the_rule_can_be_turned_off(zones, binds):
    policy = "actions: allocate\ntiers: [{plugins: [{name: gang}, {name: predicates, arguments: {predicate.PodAffinityEnable: false}}]}]"
    plan = zones.group("g").pod("p", "g", **near(term("nobody"))).decide(policy)
    assert len(binds(plan)) == 1


PODS = """
actions: allocate
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: nodeorder
    arguments: {leastrequested.weight: 0, balancedresource.weight: 0, podtopologyspread.weight: 0}
"""


async def test_pods_of_a_control_plane_are_kept_apart_and_spread(world):
    nodes = {}
    for number, zone in enumerate("aabbb"):
        nodes[await world.plane.node("8", labels={ZONE: zone, HOST: f"h{number}"})] = zone
    await world.work()
    group = {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 4, "queue": "default"}}
    even = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "matchLabelKeys": ["version"],
    }
    alone = term("x", HOST, namespaceSelector={}, matchLabelKeys=["version"])
    for number in range(4):
        labels = {"app": "x", "version": "1"}
        meta = {"name": f"p{number}", "labels": labels, "annotations": {names.GROUP_NAME: "g"}}
        spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main", "image": "busybox"}]}
        spec |= apart(alone) | {"topologySpreadConstraints": [even]}
        await world.create({"kind": "Pod", "metadata": meta, "spec": spec})
    await world.create(group)
    await world.phase("g", "Running")
    places = {pod.spec.node_name for pod in await world.pods()}
    assert len(places) == 4
    assert sorted(nodes[name] for name in places) == ["a", "a", "b", "b"]
