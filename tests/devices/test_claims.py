"""Pods with resource claims in a cycle: decided with their gang, all or nothing, and told what is missing."""

from __future__ import annotations

import pytest
from device_objects import (
    GPU,
    NOW,
    PREDICATES,
    allocated,
    binds,
    claim,
    device_class,
    devices_of,
    group,
    message,
    node,
    offered,
    pod,
    template,
)

from muster.model import names
from scheduler.configuration import config
from scheduler.simulator import state
from scheduler.state.apply import apply_plan


def test_a_gang_gets_devices_with_its_nodes_or_nothing():
    both = [node("a"), node("b"), device_class(), group(2), claim("c1"), claim("c2"), pod("p1", "c1"), pod("p2", "c2")]
    assert binds(*both, offered("a", "d1")) == {}
    assert set(binds(*both, offered("a", "d1"), offered("b", "d2")).values()) == {"a", "b"}
    assert binds(*both, offered("b", "d1", "d2")) == {"p1": "b", "p2": "b"}
    assert sorted(devices_of(*both, offered("b", "d1", "d2")).values()) == [["d1"], ["d2"]]


def test_devices_that_claims_have_are_nobody_elses():
    cluster = [node("a"), device_class(), group(), offered("a", "d1"), claim("c"), pod("p", "c")]
    assert binds(*cluster) == {"p": "a"}
    assert binds(*cluster, allocated("other", "d1", on="a")) == {}


def test_a_claim_that_is_allocated_holds_its_pod_to_its_node():
    cluster = [node("a"), node("b"), device_class(), group(), offered("a", "d1"), offered("b", "d2"), pod("p", "c")]
    assert binds(*cluster, allocated("c", "d2", on="b")) == {"p": "b"}
    assert binds(*cluster, allocated("c", "d1", on="a")) == {"p": "a"}


def test_pods_that_share_a_claim_share_its_devices_and_its_node():
    cluster = [node("a"), node("b"), device_class(), group(2), offered("a", "d1"), offered("b", "d2")]
    shared = [*cluster, claim("c"), pod("p1", "c"), pod("p2", "c")]
    assert len(set(binds(*shared).values())) == 1
    assert len(binds(*shared)) == 2
    first, second = devices_of(*shared).values()
    assert first == second


def test_two_claims_of_one_pod_are_met_together_or_not():
    cluster = [node("a"), device_class(), group(), claim("c1"), claim("c2"), pod("p", "c1", "c2")]
    assert binds(*cluster, offered("a", "d1")) == {}
    assert binds(*cluster, offered("a", "d1", "d2")) == {"p": "a"}


def test_a_claim_from_a_template_is_awaited():
    cluster = [node("a"), device_class(), group(), offered("a", "d1"), pod("p", own=True)]
    assert binds(*cluster) == {}
    assert message(*cluster) == "ResourceClaimTemplate ns/t doesn't exist; create it"
    assert message(*cluster, template(), awaited={"p"}) == (
        "the ResourceClaim of template t for the pod isn't created yet; kube-controller-manager creates it"
    )
    assert binds(*cluster, template(), awaited={"p"}) == {}
    assert binds(*cluster, claim("p-gpu-x", pod="p")) == {"p": "a"}
    assert binds(*cluster, claim("p-gpu-x", pod="another")) == {}


def test_devices_that_no_node_has_to_itself_are_given_once():
    both = [node("a"), node("b"), device_class(), claim("c1"), claim("c2"), pod("p1", "c1"), pod("p2", "c2")]
    assert len(binds(*both, group(1), offered("", "d1"))) == 1
    assert binds(*both, group(2), offered("", "d1")) == {}
    assert len(binds(*both, group(2), offered("", "d1", "d2"))) == 2


def test_admin_access_takes_a_device_from_nobody():
    cluster = [node("a"), device_class(), group(), offered("a", "d1"), allocated("other", "d1", on="a"), pod("p", "c")]
    assert binds(*cluster, claim("c", adminAccess=True)) == {"p": "a"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "ResourceClaim ns/c doesn't exist; create it"),
        ((claim("c", device_class="none"),), "device class none doesn't exist; create it"),
        ((claim("c", capacity={"requests": {"memory": "1Gi"}}),), "which Muster doesn't evaluate"),
        ((claim("c", count=2),), "without the devices that its claims request"),
        (
            (claim("c", selectors=[{"cel": {"expression": "device.attributes['x'].y"}}]),),
            "ResourceClaim ns/c can't be allocated: the selector",
        ),
    ],
    ids=["no claim", "no class", "a field that isn't evaluated", "too few", "a selector without a value"],
)
def test_what_is_missing_is_said(given, words):
    cluster = [node("a"), device_class(), group(), offered("a", "d1"), pod("p", "c"), *given]
    assert binds(*cluster) == {}
    assert words in message(*cluster)


def test_a_gang_that_gives_its_nodes_back_frees_no_device_that_a_claim_has():
    cluster = [node("a"), device_class(), offered("a", "d1"), allocated("c1", "d1", on="a"), claim("c2"), claim("c3")]
    gang = [group(2), pod("p1", "c1"), pod("p2", "c2")]
    late = {**group(1), "metadata": {"name": "late", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    assert binds(*cluster, *gang, late, pod("p3", "c3", group="late")) == {}


def test_a_gang_that_gives_its_nodes_back_frees_what_was_chosen_for_it():
    cluster = [node("a"), device_class(), offered("a", "d1"), claim("c1"), claim("c2"), claim("c3")]
    gang = [group(2), pod("p1", "c1"), pod("p2", "c2")]
    late = {**group(1), "metadata": {"name": "late", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    assert binds(*cluster, *gang, late, pod("p3", "c3", group="late")) == {"p3": "a"}


def test_an_error_where_nobody_judges_nodes_ends_no_cycle():
    unjudged = PREDICATES.replace("  - {name: predicates}\n", "")
    cluster = [node("a"), device_class(), group(2), offered("a", "d1"), claim("c", device_class="none")]
    assert binds(*cluster, pod("p1", "c"), policy=unjudged) == {}


def test_a_configuration_may_turn_it_off():
    off = PREDICATES.replace(
        "{name: predicates}", "{name: predicates, arguments: {predicate.DynamicResourceAllocationEnable: false}}"
    )
    cluster = [node("a"), device_class(), group(), offered("a", "d1"), claim("c"), pod("p", "c")]
    assert binds(*cluster, policy=off) == {}
    assert "predicate.DynamicResourceAllocationEnable is false" in message(*cluster, policy=off)


def test_what_is_chosen_counts_until_it_is_seen():
    cluster = state.load(
        [node("a"), device_class(), group(), offered("a", "d1"), claim("c1"), claim("c2"), pod("p1", "c1")],
        [names.SCHEDULER_NAME],
    )
    policy = config.parse(PREDICATES, "a test's")
    plan = state.decide_once(cluster, policy, NOW)
    assert [bind.task.name for bind in plan.binds] == ["p1"]
    apply_plan(cluster, plan)
    cluster.pod(state.decoded(state.kinds.PODS, pod("p2", "c2")))
    assert state.decide_once(cluster, policy, NOW).binds == ()
    cluster.forget("p1")
    assert [bind.task.name for bind in state.decide_once(cluster, policy, NOW).binds] == ["p1"]


CAPACITY = PREDICATES + "  - {name: capacity, arguments: {capacity.DynamicResourceAllocationEnable: true}}\n"


def queue(limit):
    spec = {"weight": 1, "capability": {"deviceclass/gpu": str(limit)}}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}, "spec": spec}


def test_a_queue_s_devices_are_counted_by_class():
    cluster = [node("a"), device_class(), offered("a", "d1", "d2"), claim("c1"), claim("c2"), pod("p1", "c1")]
    both = [*cluster, pod("p2", "c2")]
    assert len(binds(*both, group(1, queue="q"), queue(1), policy=CAPACITY)) == 1
    assert len(binds(*both, group(1, queue="q"), queue(2), policy=CAPACITY)) == 2
    assert binds(*both, group(2, queue="q"), queue(1), policy=CAPACITY) == {}
    shared = [*cluster, pod("p2", "c1")]
    assert len(binds(*shared, group(2, queue="q"), queue(1), policy=CAPACITY)) == 2


def test_the_order_of_objects_decides_nothing():
    both = [node("a"), node("b"), device_class(), group(2), claim("c1"), claim("c2"), pod("p1", "c1"), pod("p2", "c2")]
    objects = [*both, offered("a", "d1"), offered("b", "d2")]
    assert devices_of(*objects) == devices_of(*reversed(objects))


def _with_memory(at_least):
    return [{"cel": {"expression": f"device.capacity['{GPU}'].memory.compareTo(quantity('{at_least}')) >= 0"}}]


def test_the_devices_that_a_gang_lacks_are_named():
    memory = {"capacity": {"memory": {"value": "40Gi"}}}
    gang = [pod(f"p{number}", own=True) for number in range(4)]
    large = [claim(f"p{number}-gpu", pod=f"p{number}", selectors=_with_memory("40Gi")) for number in range(4)]
    cluster = [node("a"), node("b"), device_class(), group(4), *gang]
    some = [offered("a", {"name": "d1", **memory}, {"name": "d2", **memory}), offered("b", {"name": "d3", **memory})]
    words = message(*cluster, *large, *some, allocated("other", "d3", on="b"))
    assert (
        "2 of 4 pods lack devices: each claims 1 device of class gpu where "
        "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0, of which there are 3, 2 of them free"
    ) in words
    assert "(of 2 nodes 1 is without the devices that its claims request)" in words
    small = [claim(f"p{number}-gpu", pod=f"p{number}", selectors=_with_memory("80Gi")) for number in range(4)]
    assert "4 of 4 pods lack devices: each claims 1 device of class gpu where" in message(*cluster, *small, *some)
    assert "and no node has one; look at the DeviceClass" in message(*cluster, *small, *some)


def test_the_claims_of_pods_that_wait_for_other_things_are_named_too():
    gang = [pod(f"p{number}", own=True) for number in range(2)]
    claims = [claim(f"p{number}-gpu", pod=f"p{number}", count=2) for number in range(2)]
    cluster = [node("a"), device_class(), group(2), *gang, *claims, offered("a", "d1", "d2", "d3", "d4")]
    large = cluster[0] | {"status": {"allocatable": {"cpu": "1", "memory": "8Gi", "pods": "10"}}}
    assert "cpu" in message(large, *cluster[1:])
    assert "lack devices" not in message(large, *cluster[1:])
    pair = {"devices": {"requests": [
        {"name": "a", "exactly": {"deviceClassName": "gpu"}},
        {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "gpu", "count": 4}, {"name": "y", "deviceClassName": "gpu"}]},
    ], "constraints": [{"matchAttribute": "gpu.example.com/model"}]}}  # fmt: skip
    searched = [node("a"), device_class(), group(), pod("p", "c"), claim("c") | {"spec": pair}, offered("a", "d1")]
    assert (
        "claim for 1 device of class gpu and 4 devices of class gpu or 1 device of class gpu with the same gpu.example.com/model"
        in message(*searched)
    )
