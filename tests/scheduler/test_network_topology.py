"""Gangs in one domain of the network: of HyperNodes, and of node labels."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.model import names
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.simulator import state
from scheduler.topology import tiers
from tests.support.network import CLUSTERS, LEVELS, NOW, decided, gang, hard, hypernode, node, nodes_of, racks, why


def domains(found: dict[str, Any], name: str) -> set[str]:
    return {node.rpartition("-")[0] for pod, node in found["binds"].items() if pod.startswith(f"ns/{name}-")}


def test_a_required_gang_waits_whole_where_no_rack_holds_it_and_is_told_which_comes_nearest():
    found = decided(*racks(a1=[4, 4], a2=[8, 2]), *gang("train", 12, networkTopology=hard(1)))
    assert found["binds"] == {}
    assert (
        "no rack has 12 nvidia.com/gpu free for 12 pods: the best, a2, has 10 nvidia.com/gpu; 18 nvidia.com/gpu are free in the cluster"
        in why(found, "train")
    )


def test_a_required_gang_is_told_where_pieces_are_too_small():
    found = decided(*racks(a1=[3, 3], a2=[3]), *gang("train", 3, gpus=2, networkTopology=hard(1)))
    assert "no rack has room for 3 pods of 2 nvidia.com/gpu: the best, a1, has room for 2, the cluster for 3" in why(
        found, "train"
    )


def test_of_the_racks_that_hold_it_the_fullest_is_taken():
    found = decided(*racks(a1=[8, 8], a2=[4, 2], b1=[8]), *gang("train", 5, networkTopology=hard(1)))
    assert domains(found, "train") == {"a2"}


def test_a_gang_larger_than_a_rack_goes_to_one_zone_and_to_the_fewest_racks_of_it():
    nodes = racks(a1=[2], a2=[8], a3=[4], a4=[2], b1=[3], b2=[3], b3=[3])
    found = decided(*nodes, *gang("train", 12, networkTopology=hard(2)))
    assert domains(found, "train") == {"a2", "a3"}


def test_a_preferred_gang_takes_one_rack_if_it_can_and_the_fewest_if_it_cannot():
    nodes = racks(a1=[4], a2=[6], b1=[5])
    soft = {"mode": "soft"}
    assert domains(decided(*nodes, *gang("small", 5, networkTopology=soft)), "small") == {"b1"}
    assert domains(decided(*nodes, *gang("large", 10, networkTopology=soft)), "large") == {"a1", "a2"}
    assert domains(decided(*nodes, *gang("huge", 12, networkTopology=soft)), "huge") == {"a1", "a2", "b1"}


def test_a_pod_that_was_lost_comes_back_to_the_rack_of_its_gang():
    nodes = racks(a1=[8], a2=[4, 4], b1=[3])
    found = decided(*nodes, *gang("train", 4, on=["a2-0", "a2-0", "a2-1"], networkTopology=hard(1)))
    assert domains(found, "train") == {"a2"}
    full = [*gang("other", 5, on=["a2-0", "a2-0", "a2-1", "a2-1", "a2-1"])]
    found = decided(*nodes, *full, *gang("train", 4, on=["a2-0", "a2-0", "a2-1"], networkTopology=hard(1)))
    assert domains(found, "train") == set()


def test_pods_beyond_the_minimum_follow_their_gang():
    nodes = racks(a1=[4], a2=[6], b1=[9])
    found = decided(*nodes, *gang("train", 8, least=5, networkTopology=hard(1)))
    assert (domains(found, "train"), len(found["binds"])) == ({"b1"}, 8)
    found = decided(*nodes[:2], *gang("train", 8, least=5, networkTopology=hard(1)))
    assert (domains(found, "train"), len(found["binds"])) == ({"a2"}, 6)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (hard(1), "nothing describes the network; create HyperNodes, or list node labels as the argument levels"),
        (hard("rack"), "nothing describes the network"),
    ],
)
def test_where_nothing_describes_the_network_a_required_gang_waits_and_says_so(asked, words):
    found = decided(*racks(a1=[8]), *gang("train", 2, networkTopology=asked), policy=config.DEFAULT)
    assert found["binds"] == {}
    assert words in why(found, "train")


def test_a_tier_that_does_not_exist_is_named():
    found = decided(*racks(a1=[8]), *gang("train", 2, networkTopology=hard("row")))
    assert "no tier is named 'row'; there are 1 (rack), 2 (zone)" in why(found, "train")
    found = decided(*racks(a1=[8]), *gang("train", 2, networkTopology=hard(0)))
    assert "tier 0 is below the smallest domains; there are 1 (rack), 2 (zone)" in why(found, "train")


def test_a_tier_is_meant_by_the_whole_key_of_its_label_and_by_no_other_key_that_ends_alike():
    policy = LEVELS.replace("[zone, rack]", "[example.com/zone, example.com/rack]")
    nodes = [node(name, 4, **{"example.com/zone": "a", "example.com/rack": name}) for name in ("a1-0", "a2-0")]
    for tier in ("rack", "example.com/rack"):
        found = decided(*nodes, *gang("train", 4, networkTopology=hard(tier)), policy=policy)
        assert len(domains(found, "train")) == 1
    found = decided(*nodes, *gang("train", 4, networkTopology=hard("topology.kubernetes.io/rack")), policy=policy)
    assert "no tier is named 'topology.kubernetes.io/rack'; there are 1 (rack), 2 (zone)" in why(found, "train")


def test_of_hypernodes_the_tier_s_name_stands_for_every_key_that_ends_with_it():
    racked = [hypernode("r1", 1, "a1-0", "a1-1", tier_name="rack"), hypernode("r2", 1, "a2-0", tier_name="rack")]
    found = decided(
        *racks(a1=[4, 4], a2=[4]), *racked, *gang("train", 8, networkTopology=hard("topology.kubernetes.io/rack"))
    )
    assert domains(found, "train") == {"a1"}


def test_racks_of_two_zones_may_have_one_name():
    nodes = [node("n0", 2, zone="a", rack="r1"), node("n1", 2, zone="b", rack="r1")]
    found = decided(*nodes, *gang("train", 4, networkTopology=hard(1)))
    assert found["binds"] == {}


def test_hypernodes_select_by_name_pattern_and_label_and_say_more_than_labels():
    by_pattern = hypernode("s0", 1) | {
        "spec": {"tier": 1, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "^a[12]-"}}}]}
    }
    by_label = hypernode("s1", 1) | {
        "spec": {"tier": 1, "members": [{"type": "Node", "selector": {"labelMatch": {"matchLabels": {"zone": "b"}}}}]}
    }
    nodes = racks(a1=[4], a2=[4], b1=[3], b2=[3])
    found = decided(*nodes, by_pattern, by_label, *gang("train", 8, networkTopology=hard(1)))
    assert domains(found, "train") == {"a1", "a2"}
    found = decided(*nodes, by_pattern, by_label, *gang("train", 6, networkTopology=hard(1)))
    assert domains(found, "train") == {"b1", "b2"}


def by_pattern(name: str, pattern: str) -> dict[str, Any]:
    members = [{"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}]
    return hypernode(name, 1) | {"spec": {"tier": 1, "members": members}}


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("a1-(?!0)", "can't be read: error parsing regexp: invalid or unsupported Perl syntax: `(?!0`"),
        ("(", "can't be read: error parsing regexp: missing ), unterminated subpattern"),
        ("a" * 300, "isn't used: it is longer than 256 characters"),
        (r"\ba\b.*.*.*.*", "isn't used: trying it takes too long; write a simpler one, or labelMatch"),
    ],
)
def test_a_pattern_that_go_would_refuse_or_that_takes_too_long_is_named_and_stops_nobody_else(
    pattern, fault, monkeypatch
):
    monkeypatch.setattr(tiers, "_MOST_STEPS", 10)
    monkeypatch.setattr("muster.cel.linear.MOST_STEPS", 1000)
    objects = [*racks(a1=[4], a2=[4]), by_pattern("bad", pattern), by_pattern("good", r"^a2-\d\z")]
    snapshot = state.load(objects, [names.SCHEDULER_NAME]).snapshot()
    (told,) = tiers.read(snapshot.table, snapshot.hypernodes, ()).faults
    assert told.startswith("HyperNode bad: the pattern ")
    assert fault in told
    assert domains(decided(*objects, *gang("train", 4, networkTopology=hard(1))), "train") == {"a2"}


def test_a_circle_or_an_overlap_stops_nobody_else():
    nodes = racks(a1=[4], a2=[4], b1=[4])
    circle = [hypernode("x", 2, "y", kind="HyperNode"), hypernode("y", 3, "x", kind="HyperNode")]
    overlap = [hypernode("s0", 1, "a1-0", "a2-0"), hypernode("s1", 1, "a2-0", "b1-0")]
    found = decided(*nodes, *circle, *overlap, *gang("train", 8, networkTopology=hard(1)))
    assert domains(found, "train") == {"a1", "a2"}
    snapshot = state.load([*nodes, *circle, *overlap], [names.SCHEDULER_NAME]).snapshot()
    assert sorted(decide(snapshot, config.parse(LEVELS), NOW).network_faults) == [
        "HyperNodes are members of each other: x > y > x; one of them has to go",
        "HyperNodes s0 and s1 of tier 1 share node a2-0: it counts as of s0; a node belongs to one of each tier",
    ]
    taller = [hypernode("top", 2, "tower", kind="HyperNode"), hypernode("tower", 2, "a1-0")]
    snapshot = state.load([*nodes, *taller], [names.SCHEDULER_NAME]).snapshot()
    assert decide(snapshot, config.parse(LEVELS), NOW).network_faults == (
        "HyperNode tower is a member of top, tier 2 in one of tier 2: a member's tier is lower; it doesn't count",
    )


@pytest.mark.parametrize("action", ["preempt"])
def test_who_is_evicted_for_a_required_gang_clears_one_rack(action):
    policy = LEVELS.replace("reclaim", action)
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
    ]
    nodes = racks(a1=[4], a2=[4], b1=[4])
    low = [each for rack in ("a1", "a2", "b1") for each in gang(f"low-{rack}", 4, least=1, on=[f"{rack}-0"] * 3)]
    low = [each for each in low if each["kind"] == "PodGroup" or each["spec"].get("nodeName")]
    found = decided(
        *classes, *nodes, *low, *gang("urgent", 3, networkTopology=hard(1), priorityClassName="high"), policy=policy
    )
    victims = {pod.removeprefix("ns/low-")[:2] for pod in found["evicted"]}
    assert len(found["evicted"]) == 2
    assert len(victims) == 1
    assert {node.rpartition("-")[0] for node in found["pipelined"]["ns/urgent"].values()} == victims


HIGH = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}


def cleared(*objects: Any, asked: dict[str, Any], pods: int) -> set[str]:
    """Who leaves for a gang of high priority."""
    gang_ = gang("urgent", pods, networkTopology=asked, priorityClassName="high")
    found = decided(HIGH, *objects, *gang_, policy=LEVELS.replace("reclaim", "preempt"))
    where = {name.rpartition("-")[0] for name in found["pipelined"].get("ns/urgent", {}).values()}
    assert len(where) == bool(found["evicted"])
    return set(found["evicted"])


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=6), st.data())
def test_the_rack_is_cleared_where_the_fewest_have_to_leave(drawn, data):
    """Racks of one node with so many pods of so many GPUs each, and so many GPUs free."""
    nodes = [
        node(f"a{at}-0", size * count + free, zone="a", rack=f"a{at}") for at, (size, count, free) in enumerate(drawn)
    ]
    low = [
        gang(f"low{at}", count, least=0, gpus=size, on=[f"a{at}-0"] * count)
        for at, (size, count, _) in enumerate(drawn)
    ]
    pods = data.draw(st.integers(max(free for *_, free in drawn) + 1, 12))
    found = cleared(*nodes, *chain.from_iterable(low), asked=hard(1), pods=pods)
    needed = [-(-(pods - free) // size) for size, count, free in drawn if size * count + free >= pods]
    assert len(found) == min(needed, default=0)


def test_of_racks_where_as_many_leave_the_one_is_cleared_whose_pods_have_the_lower_priority():
    middle = HIGH | {"metadata": {"name": "middle"}, "value": 50}
    other = gang("other", 2, least=0, on=["a1-0"] * 2, priorityClassName="middle")
    low = gang("low", 2, least=0, on=["b1-0"] * 2)
    assert cleared(middle, *racks(a1=[2], b1=[2]), *other, *low, asked=hard(1), pods=2) == {"ns/low-0", "ns/low-1"}


# ── against a reference that tries all domains ───────────────────────────────────────────────────────────────────────


def tried(drawn: list[tuple[str, int, int]], pods: int, size: int, tier: int) -> tuple[int, int] | None:
    """Try all domains: the smallest tier of which one holds all pods, and the least room of those that do; None for none."""
    for number in range(1, tier + 1):
        room: dict[object, int] = {}
        for zone, rack, gpus in drawn:
            domain = (zone, rack) if number == 1 else zone
            room[domain] = room.get(domain, 0) + gpus // size
        if holding := [each for each in room.values() if each >= pods]:
            return number, min(holding)
    return None


@given(CLUSTERS, st.integers(1, 8), st.integers(1, 2), st.integers(1, 2))
def test_the_fast_path_finds_what_a_reference_finds_that_tries_all_domains(drawn, pods, size, tier):
    nodes, expected = nodes_of(drawn), tried(drawn, pods, size, tier)
    found = decided(*nodes, *gang("train", pods, gpus=size, networkTopology=hard(tier)))
    assert len(found["binds"]) == (pods if expected else 0)
    if expected is None:
        return
    names_of = [lambda name: name.rpartition("-")[0], lambda name: name[0]][expected[0] - 1]
    taken = {names_of(name) for name in found["binds"].values()}
    assert len(taken) == 1
    there = [(zone, rack, gpus) for zone, rack, gpus in drawn if {f"{zone}{rack}", zone} & taken]
    assert sum(gpus // size for _, _, gpus in there) == expected[1]


@given(CLUSTERS, st.integers(2, 6), st.integers(1, 2), st.data())
def test_a_gang_is_never_split_over_a_required_domain_whatever_fails_in_the_middle_of_binding(drawn, pods, tier, data):
    """Some bindings fail in each cycle, and some nodes go meanwhile; what was bound stays, or is lost with its node."""
    nodes, objects = nodes_of(drawn), list(gang("train", pods, networkTopology=hard(tier)))
    for _ in range(4):
        binds = decided(*nodes, *objects)["binds"]
        kept = data.draw(st.sets(st.sampled_from(sorted(binds)))) if binds else set()
        gone = data.draw(st.sets(st.sampled_from([each["metadata"]["name"] for each in nodes]), max_size=1))
        nodes = [each for each in nodes if each["metadata"]["name"] not in gone] or nodes
        there = {each["metadata"]["name"] for each in nodes}
        for pod in objects[1:]:
            if (name := f"ns/{pod['metadata']['name']}") in kept:
                pod["spec"]["nodeName"], pod["status"]["phase"] = binds[name], "Running"
            if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in there:
                del pod["spec"]["nodeName"]
                pod["status"]["phase"] = "Pending"
        where = {pod["spec"]["nodeName"] for pod in objects[1:] if "nodeName" in pod["spec"]}
        assert len({name.rpartition("-")[0] if tier == 1 else name[0] for name in where}) <= 1


# ── from Pending ─────────────────────────────────────────────────────────────────────────────────────────────────────


def pending(*objects: dict[str, Any]) -> list[dict[str, Any]]:
    return [each | {"status": {"phase": "Pending"}} if each["kind"] == "PodGroup" else each for each in objects]


def test_a_pending_gang_is_admitted_once_one_rack_has_what_it_needs_idle():
    asked = pending(*gang("train", 6, networkTopology=hard(1)))
    running = [*gang("other", 3, on=["a1-0"] * 3)]
    found = decided(*racks(a1=[8], a2=[4], b1=[5]), *running, *asked)
    assert found["podgroups"]["ns/train"]["phase"] == "Pending"
    words = "no rack has 6 nvidia.com/gpu free for 6 pods: the best, a1, has 5 nvidia.com/gpu; 14 nvidia.com/gpu are free in the cluster"
    assert words in why(found, "train")
    found = decided(*racks(a1=[8], a2=[4], b1=[5]), *asked)
    assert domains(found, "train") == {"a1"}


def test_the_shipped_configuration_says_from_pending_that_nothing_describes_the_network():
    found = decided(*racks(a1=[8]), *pending(*gang("train", 2, networkTopology=hard(1))), policy=config.DEFAULT)
    assert found["podgroups"]["ns/train"]["phase"] == "Pending"
    assert "its pods have to be close together: nothing describes the network; create HyperNodes" in why(found, "train")


# ── what admission is told ───────────────────────────────────────────────────────────────────────────────────────────


def told(*objects: Any, autoscaler: str = "") -> list[tuple[int, str, int, Any]]:
    cluster = state.load([*objects], [names.SCHEDULER_NAME])
    snapshot = replace(cluster.snapshot(), autoscaler=autoscaler)
    plan = decide(snapshot, config.parse(LEVELS), NOW)
    return [(each.tier, each.name, each.domains, each.largest) for each in plan.network_tiers]


def test_admission_is_told_which_tiers_there_are_and_the_most_that_one_domain_has_busy_or_not():
    nodes = [*racks(a1=[4, 4], a2=[6], b1=[3]), *gang("other", 3, on=["a1-0"] * 3)]
    rack = {"cpu": "128", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "220"}
    zone = {"cpu": "192", "memory": "768Gi", "nvidia.com/gpu": "14", "pods": "330"}
    assert told(*nodes) == [(1, "rack", 3, rack), (2, "zone", 2, zone)]
    # A resource that no domain of a tier has is listed with nothing: some node has it.
    other = hypernode("s0", 1, "a1-0"), node("c", 0) | {"status": {"allocatable": {"example.com/x": "1"}}}
    assert told(*nodes, *other) == [
        (1, "", 1, {"cpu": "64", "example.com/x": "0", "memory": "256Gi", "nvidia.com/gpu": "4", "pods": "110"})
    ]


def test_where_an_autoscaler_makes_nodes_nobody_knows_how_large_a_domain_may_get():
    assert told(*racks(a1=[4]), autoscaler="Karpenter") == [(1, "rack", 1, None), (2, "zone", 1, None)]
    assert told() == [(1, "rack", 0, {}), (2, "zone", 0, {})]
