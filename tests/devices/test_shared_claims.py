"""Claims that a PodGroup of Kubernetes' own shares among its pods: allocated once, reserved for the group, within its pods' reach."""

from __future__ import annotations

import json

import pytest
from device_objects import (
    allocated,
    binds,
    claim,
    decided,
    device_class,
    devices_of,
    group,
    message,
    node,
    offered,
    pod,
    standing,
    template,
)
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.configuration import config
from scheduler.engine import shared_devices
from scheduler.engine.picker import Picker
from scheduler.model.pod_claims import ClaimingGroup
from scheduler.topology.settled_claims import SettledClasses

OF_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "t"}
BY_NAME = {"name": "c", "resourceClaimName": "c"}
GROUP = ClaimingGroup("n", "uid-n")


def small(name, pods):
    made = node(name)
    return {**made, "status": {"allocatable": {"cpu": str(pods), "memory": "8Gi", "pods": "10"}}}


def reserved_for(*objects):
    return {each.claim.name: each.group for bind in decided(*objects).plan.binds for each in bind.devices}


def held(*objects):
    return [(each.claim.name, each.user) for each in decided(*objects).plan.held_claims]


def test_a_claim_of_the_group_is_allocated_once_and_reserved_for_it():
    cluster = [node("a"), device_class(), offered("a", "d1", "d2"), template(), claim("n-gpu", native="n")]
    gang = [standing(2, OF_TEMPLATE), pod("p1", own=True), pod("p2", own=True)]
    assert devices_of(*cluster, *gang) == {"p1": ["d1"], "p2": ["d1"]}
    assert reserved_for(*cluster, *gang) == {"n-gpu": GROUP}


def test_a_claim_that_the_group_names_is_reserved_for_it_and_another_for_the_pod():
    cluster = [node("a"), device_class(), offered("a", "d1", "d2"), claim("c"), claim("d")]
    gang = [standing(2, BY_NAME), pod("p1", "c", "d"), pod("p2", "c", "d")]
    assert reserved_for(*cluster, *gang) == {"c": GROUP, "d": None}


def test_a_pod_whose_claim_is_not_the_same_in_all_has_one_of_its_own():
    cluster = [node("a"), device_class(), offered("a", "d1", "d2"), template()]
    gang = [
        standing(2, {**OF_TEMPLATE, "resourceClaimTemplateName": "other"}),
        pod("p1", own=True),
        pod("p2", own=True),
    ]
    made = [claim("p1-gpu", pod="p1"), claim("p2-gpu", pod="p2")]
    assert devices_of(*cluster, *gang, *made) == {"p1": ["d1"], "p2": ["d2"]}
    assert set(reserved_for(*cluster, *gang, *made).values()) == {None}


def test_its_pods_are_on_nodes_that_reach_the_devices():
    several = [node("a"), node("b"), device_class(), template(), claim("n-gpu", native="n")]
    gang = [standing(3, OF_TEMPLATE), *[pod(f"p{number}", own=True) for number in range(3)]]
    assert set(binds(*several, *gang, offered("b", "d1")).values()) == {"b"}
    assert len(binds(*several, *gang, offered("", "d1"))) == 3
    assert binds(small("a", 2), small("b", 2), *several[2:], *gang, offered("b", "d1")) == {}
    anywhere = binds(small("a", 2), small("b", 2), *several[2:], *gang, offered("", "d1"))
    assert set(anywhere.values()) == {"a", "b"}


@pytest.mark.parametrize("large", ["a", "b", "c"])
def test_the_devices_are_those_of_a_node_that_has_room_for_all(large):
    nodes = [small(name, 3 if name == large else 2) for name in ("a", "b", "c")]
    offers = [offered(name, "d1") for name in ("a", "b", "c")]
    gang = [standing(3, OF_TEMPLATE), *[pod(f"p{number}", own=True) for number in range(3)]]
    assert set(binds(*nodes, *offers, device_class(), template(), claim("n-gpu", native="n"), *gang).values()) == {
        large
    }


def test_the_devices_are_those_that_enough_nodes_reach():
    def rack(name):
        term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": [name]}]}
        more = {"nodeName": "", "nodeSelector": {"nodeSelectorTerms": [term]}}
        part = offered(f"rack-{name}", "d1", **more)
        return {**part, "spec": {key: value for key, value in part["spec"].items() if value}}

    def within(name, of_rack):
        made = small(name, 1)
        return {**made, "metadata": {**made["metadata"], "labels": {"rack": of_rack}}}

    nodes = [within("a", "x"), within("b", "y"), within("c", "y"), within("d", "z")]
    gang = [standing(2, OF_TEMPLATE), pod("p1", own=True), pod("p2", own=True)]
    cluster = [*nodes, *map(rack, "xyz"), device_class(), template(), claim("n-gpu", native="n"), *gang]
    assert set(binds(*cluster).values()) == {"b", "c"}


def test_where_not_all_have_room_the_minimum_starts():
    nodes = [small("a", 1), small("b", 2)]
    gang = [standing(2, OF_TEMPLATE), *[pod(f"p{number}", own=True) for number in range(3)]]
    found = binds(
        *nodes, offered("a", "d1"), offered("b", "d1"), device_class(), template(), claim("n-gpu", native="n"), *gang
    )
    assert list(found.values()) == ["b", "b"]


def test_its_claim_is_awaited_where_somebody_makes_it():
    cluster = [node("a"), device_class(), offered("a", "d1"), standing(1, OF_TEMPLATE), pod("p", own=True)]
    assert message(*cluster) == "ResourceClaimTemplate ns/t doesn't exist; create it"
    assert binds(*cluster, template()) == {"p": "a"}


def test_a_claim_that_holds_a_group_of_which_no_pod_has_a_node_is_given_back():
    full = [small("a", 1), node("b"), device_class(), offered("a", "d1"), offered("b", "d1"), template()]
    gang = [standing(2, OF_TEMPLATE), pod("p1", own=True), pod("p2", own=True)]
    mine = claim("n-gpu", native="n", status={**allocated("", "d1", on="a")["status"], "reservedFor": [_user("uid-n")]})
    assert binds(*full, *gang, mine) == {}
    assert held(*full, *gang, mine) == [("n-gpu", "uid-n")]
    running = pod("p0", own=True)
    running |= {"spec": {**running["spec"], "nodeName": "a"}, "status": {"phase": "Running"}}
    assert held(*full, *gang, mine, running) == []
    others = {**mine, "status": {**mine["status"], "reservedFor": [_user("uid-n"), _user("p9")]}}
    assert held(*full, *gang, others) == []
    assert held(node("a"), *full[1:], *gang, mine) == []


def test_a_claim_that_holds_a_pod_to_a_full_node_is_given_back():
    full = [small("a", 1), node("b"), device_class(), offered("a", "d1"), offered("b", "d1"), group()]
    there = pod("there", group="late") | {"status": {"phase": "Running"}}
    there["spec"] = {**there["spec"], "nodeName": "a"}
    mine = claim("p-gpu", pod="p", status={**allocated("", "d1", on="a")["status"], "reservedFor": [_user("p")]})
    assert held(*full, mine, pod("p", own=True), there) == [("p-gpu", "p")]
    assert held(*full, mine, pod("p", own=True)) == []
    unused = {**mine, "status": {**mine["status"], "reservedFor": []}}
    assert held(*full, unused, pod("p", own=True), there) == []


def in_native(name, native="n", *claims):
    """A pod that names a PodGroup of Kubernetes' own."""
    made = pod(name, *claims, own=not claims)
    return {**made, "spec": {**made["spec"], "schedulingGroup": {"podGroupName": native}}}


def of_job(*shared, native="n"):
    """The group of a Job, noted on which are the claims of the native one that Kubernetes made for it."""
    made = group(2)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    noted = {"muster.sh/shared-claims": json.dumps(shared), "muster.sh/shared-claims-of": f"{native}/uid-{native}"}
    noted = noted if shared else {}
    return {**made, "metadata": {**made["metadata"], "annotations": noted, "ownerReferences": [owner]}}


def test_the_pods_of_a_job_share_the_claims_of_the_native_group_that_is_made_for_it():
    cluster = [node("a"), device_class(), offered("a", "d1", "d2"), template()]
    gang = [in_native("p1"), in_native("p2")]
    shared = claim("n-gpu", native="n")
    assert set(reserved_for(*cluster, shared, *gang, of_job(OF_TEMPLATE)).values()) == {GROUP}
    assert devices_of(*cluster, shared, *gang, of_job(OF_TEMPLATE)) == {"p1": ["d1"], "p2": ["d1"]}
    named = [in_native("p1", "n", "c"), in_native("p2", "n", "c")]
    assert set(reserved_for(*cluster, claim("c"), *named, of_job(BY_NAME)).values()) == {GROUP}


def test_pods_wait_while_it_is_not_known_which_claims_their_native_group_shares():
    cluster = [node("a"), device_class(), offered("a", "d1", "d2"), template(), claim("c")]
    words = "it isn't known yet which claims PodGroup n of scheduling.k8s.io shares"
    gang = [in_native("p1", "n", "c"), in_native("p2", "n", "c")]
    assert binds(*cluster, *gang, of_job()) == {}
    assert words in message(*cluster, *gang, of_job())
    assert words in message(*cluster, *gang, of_job(BY_NAME, native="another"))
    made = [claim("p1-gpu", pod="p1"), claim("p2-gpu", pod="p2")]
    own = [in_native("p1"), in_native("p2")]
    assert words in message(*cluster, *made, *own, of_job())
    assert devices_of(*cluster, *made, *own, of_job(BY_NAME)) == {"p1": ["d1"], "p2": ["d2"]}


def _user(uid):
    return {"resource": "pods", "name": uid, "uid": uid}


def test_what_the_group_lacks_is_said():
    gang = [standing(2, OF_TEMPLATE), pod("p1", own=True), pod("p2", own=True)]
    cluster = [node("a"), device_class(), template(count=2), claim("n-gpu", native="n", count=2), *gang]
    share = "2 pods share a claim for 2 devices of class gpu"
    none = f"{share}, of which there are 1, 1 of them free, and no node that takes such pods reaches enough; wait"
    assert none in message(*cluster, offered("a", "d1"))
    assert f"{share}, and no node has one; look at the DeviceClass" in message(*cluster)
    nodes = small("a", 1), small("b", 8)
    assert (
        "1 cpu is free on the 1 node that takes them: short by 1 cpu (of 2 nodes 1 is without the devices that its claims request)"
    ) in message(*nodes, *cluster[1:], offered("a", "d1", "d2"))


@st.composite
def worlds(draw):
    """Nodes of several sizes, devices of one node or of all, and gangs whose pods share claims, some with devices already."""
    nodes = [f"node{number}" for number in range(draw(st.integers(1, 5)))]
    everything = [small(name, draw(st.integers(1, 6))) for name in nodes]
    everything += [device_class(), template()]
    for name in [*nodes, ""]:
        devices = [f"d{number}" for number in range(draw(st.integers(0, 3)))]
        everything += [offered(name, *devices)] if devices else []
    for number in range(draw(st.integers(1, 4))):
        made, size = group(draw(st.integers(1, 5))), draw(st.integers(1, 5))
        gang, shared = f"g{number}", f"c{number}"
        everything.append({**made, "metadata": {**made["metadata"], "name": gang}})
        has = draw(st.sampled_from([None, *nodes]))
        everything.append(claim(shared) if has is None else {**allocated(shared, "d9", on=has)})
        for place in range(size):
            own = draw(st.integers(0, 9)) == 0
            name = f"{gang}p{place}"
            everything.append(pod(name, shared, own=own, group=gang))
            everything += [claim(f"{name}-gpu", pod=name)] if own else []
    return everything


@pytest.mark.parametrize("policy", [None, config.DEFAULT], ids=["predicates alone", "as shipped"])
@settings(max_examples=examples(90))
@given(worlds())
def test_many_pods_that_share_a_claim_are_placed_as_one_by_one(policy, world):
    more = {"policy": policy} if policy else {}

    def placed():
        plan = decided(*world, **more).plan
        return [(bind.task.name, bind.node, [each.devices for each in bind.devices]) for bind in plan.binds]

    together = placed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Picker, "at_once", lambda *_: False)
        assert placed() == together
    with pytest.MonkeyPatch.context() as patch:
        # Each gang's pods judged by themselves, and all room added up.
        patch.setattr(SettledClasses, "number", lambda *_: None)
        patch.setattr(shared_devices, "_obviously_enough", lambda *_: False)
        assert placed() == together
