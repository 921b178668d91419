"""The plugin resource-strategy-fit: a strategy for each resource, and nodes kept for who asks for what they have."""

from __future__ import annotations

import pytest

from scheduler.configuration import config
from scheduler.configuration.config import ConfigurationError

GPU = "nvidia.com/gpu"


def policy(arguments):
    return (
        "actions: allocate\ntiers:\n- plugins:\n  - {name: gang}\n  - {name: predicates}\n"
        f"  - {{name: resource-strategy-fit, arguments: {{{arguments}}}}}"
    )


BY_RESOURCE = policy(
    "resourceStrategyFitWeight: 10, resources: {cpu: {type: LeastAllocated, weight: 1},"
    " nvidia.com/gpu: {type: MostAllocated, weight: 2}}"
)


@pytest.fixture
def halves(build):
    """Two nodes with cpu and GPUs; of the second, half is used."""
    for name in ("a-empty", "b-half"):
        build.node(name, "8", **{GPU: "8"})
    build.group("runs", 1, phase="Running").pod("runs-0", "runs", "4", node="b-half", requests={GPU: "4"})
    return build


def test_pods_that_ask_for_what_is_packed_go_where_most_of_it_is_used(halves, binds):
    halves.group("g", 1).pod("g-0", "g", "1", requests={GPU: "1"})
    assert binds(halves.decide(BY_RESOURCE)) == {"g-0": "b-half"}


def test_pods_that_ask_for_what_is_spread_only_go_where_least_of_it_is_used(halves, binds):
    halves.group("g", 1).pod("g-0", "g", "1")
    assert binds(halves.decide(BY_RESOURCE)) == {"g-0": "a-empty"}


def test_cpu_and_memory_are_spread_unless_told(halves, binds):
    halves.group("g", 1).pod("g-0", "g", "1")
    assert binds(halves.decide(policy(""))) == {"g-0": "a-empty"}


def test_weights_decide_between_strategies(halves, binds):
    halves.group("g", 1).pod("g-0", "g", "1", requests={GPU: "1"})
    heavier = BY_RESOURCE.replace("LeastAllocated, weight: 1", "LeastAllocated, weight: 3")
    assert binds(halves.decide(heavier)) == {"g-0": "a-empty"}


@pytest.mark.parametrize(
    ("resources", "node"),
    [
        ("nvidia.com/*: {type: MostAllocated}", "b-half"),
        ("nvidia.com/*: {type: MostAllocated}, nvidia.com/gpu: {type: LeastAllocated}", "a-empty"),
        ("nvidia.com/*: {type: LeastAllocated}, nvidia.com/g*: {type: MostAllocated}", "b-half"),
        ("amd.com/*: {type: MostAllocated}", "a-empty"),
    ],
    ids=["a pattern", "a name before a pattern", "the longest pattern", "no strategy: the first by name"],
)
def test_a_pattern_stands_for_several_resources(halves, binds, resources, node):
    halves.group("g", 1).pod("g-0", "g", "0", requests={GPU: "1"})
    assert binds(halves.decide(policy(f"resources: {{{resources}}}"))) == {"g-0": node}


RETENTION = (
    "resources: {}, sra.policy: retention, sra.retention.weight: 2,"
    ' sra.resources: "nvidia.com/t4, nvidia.com/a10", sra.retention.nvidia.com/t4: 1, sra.retention.nvidia.com/a10: 1'
)


@pytest.fixture
def kinds_of_nodes(build):
    """A node without scarce resources, one with one of them, one with both; first by name is who has most."""
    build.node("a-both", "16", **{"nvidia.com/t4": "5", "nvidia.com/a10": "10"})
    return build.node("b-one", "16", **{"nvidia.com/t4": "10"}).node("c-none", "32")


@pytest.mark.parametrize(
    ("requests", "node"),
    [({}, "c-none"), ({"nvidia.com/t4": "2"}, "b-one"), ({"nvidia.com/t4": "1", "nvidia.com/a10": "2"}, "a-both")],
    ids=["no scarce resource", "one", "both"],
)
def test_pods_keep_off_nodes_with_scarce_resources_that_they_do_not_ask_for(kinds_of_nodes, binds, requests, node):
    kinds_of_nodes.group("g", 1).pod("g-0", "g", "2", requests=requests)
    assert binds(kinds_of_nodes.decide(policy(RETENTION))) == {"g-0": node}


def test_without_the_policy_scarce_resources_change_nothing(kinds_of_nodes, binds):
    kinds_of_nodes.group("g", 1).pod("g-0", "g", "2")
    without = policy(RETENTION.replace("sra.policy: retention, ", ""))
    assert binds(kinds_of_nodes.decide(without)) == {"g-0": "a-both"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("resources: [cpu]", "resources is ['cpu']: write a mapping of resources, such as"),
        ("resources: {cpu: {type: Most}}", "write cpu: {type: MostAllocated, weight: 1}, or LeastAllocated"),
        (
            "resources: {cpu: {type: MostAllocated, weight: -1}}",
            "the weight of cpu is -1: write a number of at least 0",
        ),
        ("resourceStrategyFitWeight: heavy", "resourceStrategyFitWeight is 'heavy': write a number"),
        ("sra.policy: proportional", "sra.policy is 'proportional': Muster has the policy retention only"),
        (
            "resourceStrategyFitWeigth: 1",
            "unknown argument 'resourceStrategyFitWeigth'; did you mean resourceStrategyFit",
        ),
    ],
)
def test_mistakes_are_told_with_their_line(arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        config.parse(policy(arguments), "file")
    assert str(raised.value).startswith("file, line 6: ")
    assert message in str(raised.value)
