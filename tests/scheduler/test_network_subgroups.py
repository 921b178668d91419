"""Subgroups that have to be together: against a reference that tries all domains, and by whom they evict."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model import names
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.simulator import state
from tests.support.network import CLUSTERS, LEVELS, NOW, decided, gang, hard, node, nodes_of, racks, why

STAGE = "example.com/stage"
Part = tuple[int, int, int]
"""A subgroup: its pods, the highest tier, and how many of its pods run already."""


def parts_of(*parts: tuple[int, int]) -> list[dict[str, Any]]:
    """A policy for each subgroup: so many pods, up to a tier."""
    return [
        {
            "name": f"s{number}",
            "labelSelector": {"matchLabels": {STAGE: str(number)}},
            "subGroupSize": size,
            "minSubGroups": 1,
            "networkTopology": hard(tier),
        }
        for number, (size, tier) in enumerate(parts)
    ]


def staged(name: str, sizes: list[int], *, free: int = 0, on: dict[int, list[str]] | None = None, **spec: Any) -> Any:
    """A gang whose pods are in subgroups of these sizes, and ``free`` in none; ``on``: nodes of the first pods of a subgroup."""
    group, *pods = gang(name, sum(sizes) + free, **spec)
    yield group
    stages = [number for number, size in enumerate(sizes) for _ in range(size)]
    places = {number: list(nodes) for number, nodes in (on or {}).items()}
    for pod, stage in zip(pods, [*stages, *[None] * free], strict=True):
        if stage is not None:
            pod["metadata"]["labels"] = {STAGE: str(stage)}
            if places.get(stage):
                pod["spec"]["nodeName"], pod["status"]["phase"] = places[stage].pop(0), "Running"
        yield pod


def rack_of(node_name: str) -> str:
    return node_name.rpartition("-")[0]


def by_stage(objects: list[Any], binds: dict[str, str]) -> dict[str, set[str]]:
    """The nodes of each subgroup's pods, of those that run and of those that were placed."""
    found: dict[str, set[str]] = defaultdict(set)
    for pod in objects:
        where = pod["spec"].get("nodeName") or binds.get(f"ns/{pod['metadata']['name']}")
        if pod["kind"] == "Pod" and where and (stage := (pod["metadata"].get("labels") or {}).get(STAGE)):
            found[stage].add(where)
    return found


def together(where: set[str], tier: int) -> bool:
    return len({rack_of(name) if tier == 1 else name[0] for name in where}) <= 1


# ── the reference ────────────────────────────────────────────────────────────────────────────────────────────────────


def feasible(room: Counter[str], whole: int | None, parts: list[Part], fixed: dict[int, str], free: int) -> bool:
    """Try all domains: racks are named by their zone and a number; ``fixed``: the rack in which some of a subgroup run."""
    zones = {rack[0] for rack in room}
    within = [set(room)] if whole is None else [{rack} for rack in room]
    within += [{rack for rack in room if rack[0] == zone} for zone in zones] if whole == 2 else []
    inside = [racks_ for racks_ in within if set(fixed.values()) <= racks_]
    return any(_feasible_in(room, racks_, parts, fixed, free) for racks_ in inside)


def _feasible_in(room: Counter[str], inside: set[str], parts: list[Part], fixed: dict[int, str], free: int) -> bool:
    choices = []
    for number, (_, tier, _) in enumerate(parts):
        rack = fixed.get(number)
        domains = (
            ({rack} if tier == 1 else {rack[0]}) if rack else (inside if tier == 1 else {each[0] for each in inside})
        )
        choices.append(sorted(domains))
    for chosen in product(*choices):
        left = Counter({rack: room[rack] for rack in inside})
        zones: Counter[str] = Counter()
        for (size, tier, runs), domain in zip(parts, chosen, strict=True):
            (left if tier == 1 else zones)[domain] += (runs - size) if tier == 1 else (size - runs)
        if min(left.values(), default=0) < 0:
            continue
        by_zone: Counter[str] = Counter()
        for rack, count in left.items():
            by_zone[rack[0]] += count
        if all(by_zone[zone] >= count for zone, count in zones.items()) and left.total() - zones.total() >= free:
            return True
    return False


PARTS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 2)), min_size=1, max_size=4)


@given(CLUSTERS, PARTS, st.sampled_from([None, 1, 2]), st.integers(0, 2), st.data())
def test_subgroups_start_exactly_where_a_reference_finds_domains_for_them_that_tries_all(
    drawn, parts, whole, free, data
):
    nodes = nodes_of(drawn)
    room: Counter[str] = Counter()
    for zone, rack, gpus in drawn:
        room[f"{zone}{rack}"] += gpus
    # One pod of some subgroups runs already, on a node that has room for it.
    left = {each["metadata"]["name"]: int(each["status"]["allocatable"]["nvidia.com/gpu"]) for each in nodes}
    on: dict[int, list[str]] = {}
    for number in data.draw(st.sets(st.integers(0, len(parts) - 1), max_size=2)):
        if there := sorted(name for name, count in left.items() if count):
            name = data.draw(st.sampled_from(there))
            on[number] = [name]
            left[name] -= 1
            room[rack_of(name)] -= 1
    fixed = {number: rack_of(names[0]) for number, names in on.items()}
    if whole is not None and len({rack if whole == 1 else rack[0] for rack in fixed.values()}) > 1:
        return  # no scheduler of ours put them there
    spec = {"networkTopology": hard(whole)} if whole is not None else {}
    sizes = [size for size, _ in parts]
    objects = list(staged("train", sizes, free=free, on=on, subGroupPolicy=parts_of(*parts), **spec))
    binds = decided(*nodes, *objects)["binds"]
    counted = [(size, tier, int(number in on)) for number, (size, tier) in enumerate(parts)]
    waiting = sum(sizes) + free - len(on)
    assert len(binds) == (waiting if feasible(room, whole, counted, fixed, free) else 0)
    for stage, where in by_stage(objects, binds).items():
        assert together(where, parts[int(stage)][1])
    everywhere = {*binds.values(), *(name for names in on.values() for name in names)}
    assert whole is None or together(everywhere, whole)


@given(CLUSTERS, st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_as_many_subgroups_alike_as_the_minimum_needs_start_where_a_reference_counts_places(drawn, size, count, least):
    room: Counter[str] = Counter()
    for zone, rack, gpus in drawn:
        room[f"{zone}{rack}"] += gpus
    policy = {"matchLabelKeys": [STAGE], "subGroupSize": size, "minSubGroups": least, "networkTopology": hard(1)}
    objects = list(staged("train", [size] * count, least=size * least, subGroupPolicy=[{"name": "stage", **policy}]))
    binds = decided(*nodes_of(drawn), *objects)["binds"]
    places = sum(each // size for each in room.values())
    assert len(binds) == (size * min(places, count) if min(places, count) >= least else 0)
    assert all(together(where, 1) for where in by_stage(objects, binds).values())


# ── going back ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_subgroup_gives_its_domain_to_another_that_has_no_other():
    # The fullest rack that holds 4 has 5; then 3 and 3 take the one with 7, and nothing is left for 2.
    objects = list(staged("train", [4, 3, 3, 2], subGroupPolicy=parts_of((4, 1), (3, 1), (3, 1), (2, 1))))
    found = decided(*racks(a1=[5], a2=[7]), *objects)
    where = {stage: {rack_of(name) for name in names} for stage, names in by_stage(objects, found["binds"]).items()}
    assert where["0"] == {"a2"}
    assert len(found["binds"]) == 12
    assert all(len(each) == 1 for each in where.values())


def test_what_needs_a_rack_goes_before_what_needs_a_zone():
    objects = list(staged("train", [6, 4], subGroupPolicy=parts_of((6, 2), (4, 1))))
    found = decided(*racks(a1=[4], a2=[3], a3=[3]), *objects)
    assert len(found["binds"]) == 10
    assert {rack_of(name) for name in by_stage(objects, found["binds"])["1"]} == {"a1"}


def test_many_subgroups_that_fit_nowhere_together_are_given_up_after_so_many_tries():
    sizes = [4 + number % 2 for number in range(20)]
    policies = parts_of(*((size, 1) for size in sizes))
    cluster = racks(**{f"a{number}": [7] for number in range(14)})
    found = decided(*cluster, *staged("train", sizes, subGroupPolicy=policies))
    assert found["binds"] == {}
    assert (
        "the pods of each subgroup 's0' have room in rack a0, but no choice of domains was found that has room for all subgroups of the "
        "minimum at once" in why(found, "train")
    )


# ── in the middle of binding ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("whole", [None, 1, 2])
def test_whichever_binding_fails_the_pod_comes_back_to_the_domain_of_its_subgroup(whole):
    spec = {"networkTopology": hard(whole)} if whole else {}
    sizes = [3, 2] if whole == 1 else [4, 3]
    nodes = racks(a1=[2, 3], a2=[4], b1=[4, 4], b2=[5])
    policies = parts_of(*((size, 1) for size in sizes))
    first = decided(*nodes, *staged("train", sizes, subGroupPolicy=policies, **spec))["binds"]
    assert len(first) == sum(sizes)
    # Others come meanwhile, and would take what is left anywhere.
    other = list(gang("other", 3, least=1))
    for bound in range(1, 2 ** len(first) - 1):
        kept = {name for place, name in enumerate(sorted(first)) if bound >> place & 1}
        objects = list(staged("train", sizes, subGroupPolicy=policies, **spec))
        for pod in objects[1:]:
            if (name := f"ns/{pod['metadata']['name']}") in kept:
                pod["spec"]["nodeName"], pod["status"]["phase"] = first[name], "Running"
        assert kept | set(decided(*nodes, *objects)["binds"]) == set(first)
        again = decided(*nodes, *objects, *other)["binds"]
        for where in by_stage(objects, again).values():
            assert together(where, 1)
        everywhere = {first[name] for name in kept} | {node for name, node in again.items() if "/train-" in name}
        assert whole is None or together(everywhere, whole)


# ── evictions ────────────────────────────────────────────────────────────────────────────────────────────────────────

HIGH = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
QUEUES = [
    {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}}
    for name in ("mine", "theirs")
]


def low(rack: str, pods: int, **spec: Any) -> list[dict[str, Any]]:
    return list(gang(f"low-{rack}", pods, least=0, on=[f"{rack}-0"] * pods, **spec))


@pytest.mark.parametrize(("action", "busy", "leave"), [("preempt", 3, 2), ("reclaim", 4, 3)])
def test_evictions_for_subgroups_clear_a_domain_for_each(action, busy, leave):
    own, others = ({"queue": "mine"}, {"queue": "theirs"}) if action == "reclaim" else ({}, {})
    nodes = racks(a1=[4], a2=[4], a3=[4], b1=[4])
    running = [each for rack in ("a1", "a2", "a3", "b1") for each in low(rack, busy, **others)]
    wanted = staged(
        "urgent",
        [3, 3],
        subGroupPolicy=parts_of((3, 1), (3, 1)),
        networkTopology=hard(2),
        priorityClassName="high",
        **own,
    )
    objects = list(wanted)
    found = decided(HIGH, *QUEUES, *nodes, *running, *objects, policy=LEVELS.replace("reclaim", action))
    places = found["pipelined"]["ns/urgent"]
    assert len(places) == 6
    where = by_stage(objects, {f"ns/{name.rpartition('/')[2]}": node for name, node in places.items()})
    assert all(together(names, 1) for names in where.values())
    assert together(set(places.values()), 2)
    # No more leave each of two racks than their free places don't suffice for.
    racks_cleared = Counter(name.removeprefix("ns/low-")[:2] for name in found["evicted"])
    assert racks_cleared == dict.fromkeys({rack_of(name) for name in places.values()}, leave)


def test_for_a_subgroup_the_rack_is_cleared_where_the_fewest_have_to_leave():
    small = [*gang("small", 2, least=0, on=["a1-0"] * 2), *gang("large", 1, least=0, gpus=3, on=["a2-0"])]
    objects = staged("urgent", [4], subGroupPolicy=parts_of((4, 1)), priorityClassName="high")
    policy = LEVELS.replace("reclaim", "preempt")
    found = decided(HIGH, *racks(a1=[4], a2=[4]), *small, *objects, policy=policy)
    assert found["evicted"] == ["ns/large-0"]
    assert set(found["pipelined"]["ns/urgent"].values()) == {"a2-0"}


def test_nobody_leaves_where_not_all_subgroups_can_have_a_domain():
    nodes = racks(a1=[4], a2=[2])
    objects = staged("urgent", [4, 3], subGroupPolicy=parts_of((4, 1), (3, 1)), priorityClassName="high")
    found = decided(HIGH, *nodes, *low("a1", 4), *objects, policy=LEVELS.replace("reclaim", "preempt"))
    assert (found["evicted"], found["pipelined"]) == ([], {})


def test_one_more_pod_of_a_subgroup_has_others_leave_its_own_rack_only():
    nodes = racks(a1=[3], a2=[3])
    running = [*low("a1", 1, queue="theirs"), *low("a2", 3, queue="theirs")]
    objects = list(
        staged("mine", [3], least=2, on={0: ["a1-0", "a1-0"]}, subGroupPolicy=parts_of((2, 1)), queue="mine")
    )
    found = decided(*QUEUES, *nodes, *running, *objects)
    assert found["evicted"] == ["ns/low-a1-0"]
    assert list(found["pipelined"]["ns/mine"].values()) == ["a1-0"]


def test_a_node_without_any_domain_takes_no_subgroup():
    for phase in ("Inqueue", "Pending"):
        for spec in ({"subGroupPolicy": parts_of((2, 1))}, {"networkTopology": hard(1)}):
            objects = [
                each | {"status": {"phase": phase}} if each["kind"] == "PodGroup" else each
                for each in staged("train", [2], **spec)
            ]
            found = decided(node("n", 8), *objects)
            assert found["binds"] == {}
            message = why(found, "train")
            if phase == "Inqueue" or "networkTopology" in spec:
                assert "no node is in a rack; label the nodes, or list them in HyperNodes" in message


# ── nodes that are kept for one job ──────────────────────────────────────────────────────────────────────────────────

ALLOCATING = LEVELS.replace(", reclaim", "")
KEEPING = LEVELS + "configurations: [{name: allocate, arguments: {reserveAfter: 5m}}]\n"


def waited(objects: Any, phase: str) -> list[Any]:
    """A gang that waits for longer than nodes aren't kept for it."""
    group, *pods = objects
    metadata = group["metadata"] | {"creationTimestamp": "2025-12-31T23:00:00Z"}
    return [group | {"metadata": metadata, "status": {"phase": phase}}, *pods]


def kept(*objects: Any) -> set[str]:
    plan = decide(state.load([*objects], [names.SCHEDULER_NAME]).snapshot(), config.parse(KEEPING), NOW)
    assert not plan.binds
    return set(plan.reserved_nodes.nodes) if plan.reserved_nodes is not None else set()


@pytest.mark.parametrize("phase", ["Inqueue", "Pending"])
def test_nodes_kept_for_a_gang_that_has_to_be_together_are_in_one_domain(phase):
    nodes = racks(a1=[4, 4], a2=[4, 4], b1=[4, 4, 4])
    busy = [each for each in nodes if each["metadata"]["name"].endswith("-0")]
    running = [pod for each in busy for pod in gang(each["metadata"]["name"], 3, on=[each["metadata"]["name"]] * 3)]
    full = gang("more", 5, on=["b1-1", "b1-1", "b1-2", "b1-2", "b1-2"])
    wanted = waited(gang("train", 8, networkTopology=hard(1)), phase)
    found = kept(*nodes, *running, *full, *wanted)
    assert {rack_of(name) for name in found} in ({"a1"}, {"a2"})
    assert len(found) == 2
    # Where the network could never hold it, nothing is kept from others.
    assert kept(*nodes, *running, *full, *waited(gang("train", 13, networkTopology=hard(1)), phase)) == set()


def test_nodes_kept_for_subgroups_are_in_one_domain_for_each():
    nodes = racks(a1=[2, 2], a2=[2, 2], a3=[1, 1, 1, 1], b1=[3, 3])
    running = [pod for each in nodes if (name := each["metadata"]["name"]) for pod in gang(f"on-{name}", 1, on=[name])]
    wanted = staged("train", [4, 4], subGroupPolicy=parts_of((4, 1), (4, 1)), networkTopology=hard(2))
    found = kept(*nodes, *running, *waited(wanted, "Inqueue"))
    by_rack = Counter(map(rack_of, found))
    assert len(by_rack) == 2
    assert all(sum(2 if rack != "a3" else 1 for _ in range(count)) == 4 for rack, count in by_rack.items())


@pytest.mark.parametrize(("pods", "grows"), [(4, False), (5, True)])
def test_only_a_gang_that_some_domain_could_hold_keeps_others_from_growing_beyond_their_share(pods, grows):
    nodes = racks(a1=[4], a2=[4])
    busy = [*gang("growing", 8, least=1, on=["a1-0", "a1-0", "a1-0", "a2-0", "a2-0"], queue="theirs")]
    queues = [each | {"spec": {"weight": 9 if each["metadata"]["name"] == "mine" else 1}} for each in QUEUES]
    found = decided(
        *queues, *nodes, *busy, *gang("train", pods, queue="mine", networkTopology=hard(1)), policy=ALLOCATING
    )
    assert any("/growing-" in name for name in found["binds"]) is grows
