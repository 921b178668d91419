"""Pods that request an extended resource that a class of devices stands for: devices on some nodes, amounts of a device plugin on others."""

from __future__ import annotations

import pytest
from device_objects import (
    GPU,
    PREDICATES,
    allocated,
    binds,
    claim,
    decided,
    device_class,
    devices_of,
    group,
    message,
)
from device_objects import node as plain_node
from device_objects import offered as sliced
from device_objects import pod as plain_pod
from msgspec import convert

from muster.model.objects import PodSpec
from scheduler.model import extended_resources

RESOURCE = "example.com/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"


def stands_for(name="gpu", resource=RESOURCE, created=None, **more):
    class_ = device_class(name, **more)
    class_["spec"]["extendedResourceName"] = resource
    if created:
        class_["metadata"]["creationTimestamp"] = created
    return class_


def node(name, **amounts):
    made = plain_node(name)
    made["status"]["allocatable"] |= {RESOURCE: str(amounts["gpus"])} if amounts else {}
    return made


def pod(name, count=1, resource=RESOURCE, **more):
    made = plain_pod(name, **more)
    made["spec"]["containers"][0]["resources"]["requests"][resource] = str(count)
    return made


def running(made, on):
    made["spec"]["nodeName"], made["status"]["phase"] = on, "Running"
    return made


def made_for(pod_name, *devices, on="a"):
    """A claim that was made for the extended resources of a pod."""
    has = allocated(f"{pod_name}-extended-resources-x", devices[0], on=on)
    has["status"]["allocation"]["devices"]["results"] = [
        {"request": "container-0-request-1", "driver": GPU, "pool": on, "device": each} for each in devices
    ]
    has["spec"]["devices"]["requests"] = [
        {"name": "container-0-request-1", "exactly": {"deviceClassName": "gpu", "count": len(devices)}}
    ]
    has["metadata"]["annotations"] = {extended_resources.ANNOTATION: "true"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod_name, "controller": True}
    has["metadata"]["ownerReferences"] = [owner]
    return has


@pytest.mark.parametrize("resource", [RESOURCE, IMPLICIT])
@pytest.mark.parametrize("actions", ["allocate", "enqueue, allocate"])
def test_a_gang_gets_devices_of_the_class_that_stands_for_what_it_requests_or_nothing(actions, resource):
    policy = PREDICATES.replace("allocate", actions, 1) + "  - {name: overcommit}\n"
    two = [pod("p1", 2, resource), pod("p2", 2, resource)]
    waiting = group(2, minResources={resource: "4"}) | {
        "status": {"phase": "Pending" if "enqueue" in actions else "Inqueue"}
    }
    both = [node("a"), node("b"), stands_for(), waiting, *two]
    assert binds(*both, sliced("a", "d1", "d2", "d3"), policy=policy) == {}
    found = decided(*both, sliced("a", "d1", "d2", "d3"), sliced("b", "d4", "d5"), policy=policy)
    assert set(found.binds.values()) == {"a", "b"}
    chosen = {
        bind.node: [device.name for each in bind.devices for _, device, _ in each.devices] for bind in found.plan.binds
    }
    assert chosen == {"a": ["d1", "d2"], "b": ["d4", "d5"]}


def test_a_node_with_a_device_plugin_gives_amounts_and_no_devices():
    cluster = [node("a"), node("b", gpus=1), stands_for(), group(2), pod("p1"), pod("p2"), sliced("a", "d1")]
    assert set(binds(*cluster).values()) == {"a", "b"}
    assert sorted(devices_of(*cluster).values()) == [[], ["d1"]]
    # Of a class that stands for nothing, only the plugin's.
    assert binds(*cluster[:2], device_class(), *cluster[3:]) == {}
    # Two resources, of which each node has one from a plugin.
    mixed = pod("p")
    mixed["spec"]["containers"][0]["resources"]["requests"]["example.com/nic"] = "1"
    nic = stands_for("nic", "example.com/nic")
    alone = [node("a"), node("b", gpus=1), stands_for(), nic, group(), mixed]
    assert devices_of(*alone, sliced("b", "n1")) == {"p": ["n1"]}
    assert devices_of(*alone, sliced("a", "n1", "n2")) == {"p": ["n1", "n2"]}
    assert binds(*alone, sliced("a", "n1")) == {}


def test_devices_that_others_have_are_not_free_however_they_asked():
    base = [node("a"), stands_for(), group()]
    cluster = [*base, sliced("a", "d1", "d2"), pod("p", 2)]
    assert binds(*cluster) == {"p": "a"}
    assert binds(*cluster, allocated("other", "d1", on="a")) == {}
    before = [running(pod("r", group="other"), "a"), made_for("r", "d2")]
    assert binds(*cluster, *before) == {}
    assert devices_of(*base, sliced("a", "d1", "d2", "d3"), pod("p", 2), *before) == {"p": ["d1", "d3"]}
    # A claim of a device, and a pod that requests one.
    beside = [node("a"), stands_for(), group(2), claim("c"), plain_pod("p1", "c"), pod("p2")]
    assert binds(*beside, sliced("a", "d1")) == {}
    assert sorted(devices_of(*beside, sliced("a", "d1", "d2")).values()) == [["d1"], ["d2"]]


def test_a_claim_that_an_earlier_try_left_holds_its_pod_to_its_node():
    cluster = [node("a"), node("b"), stands_for(), group(), sliced("a", "d1"), sliced("b", "d2"), pod("p")]
    assert binds(*cluster, made_for("p", "d2", on="b")) == {"p": "b"}
    assert devices_of(*cluster, made_for("p", "d1")) == {"p": ["d1"]}


def test_of_several_classes_the_newest_stands_for_a_resource():
    cluster = [node("a"), group(), sliced("a", "d1"), pod("p")]
    none = {"expression": "device.driver == 'none'"}
    old = stands_for("z", created="2025-01-01T00:00:00Z")
    assert binds(*cluster, old, stands_for("b", created="2025-01-02T00:00:00Z", **none)) == {}
    assert binds(*cluster, old, stands_for("b", created="2024-01-02T00:00:00Z", **none)) == {"p": "a"}
    assert binds(*cluster, stands_for("a"), stands_for("b", **none)) == {"p": "a"}


def test_who_waits_is_told_which_devices_are_short():
    cluster = [node("a"), stands_for(), group(2), pod("p1"), pod("p2"), sliced("a", "d1")]
    words = "1 of 2 pods lacks devices: each claims 1 device of class gpu, of which there are 1, 1 of them free"
    assert words.replace("lacks", "lack") in message(*cluster)
    nothing = message(*cluster[:-1])
    assert "each claims 1 device of class gpu, and no node has one" in nothing
    policy = PREDICATES.replace("allocate", "enqueue, allocate", 1) + "  - {name: overcommit}\n"
    pending = group(2, minResources={RESOURCE: "2"}) | {"status": {"phase": "Pending"}}
    told = message(*cluster[:2], pending, *cluster[3:5], policy=policy)
    assert "DeviceClass gpu stands for example.com/gpu, and no node has a device of it" in told


def test_devices_that_several_nodes_reach_are_given_once():
    cluster = [node("a"), node("b"), stands_for(), group(2), pod("p1"), pod("p2")]
    assert binds(*cluster, sliced("", "d1")) == {}
    assert sorted(devices_of(*cluster, sliced("", "d1", "d2")).values()) == [["d1"], ["d2"]]


def container(name, count=None, **more):
    requests = {"cpu": "1", RESOURCE: str(count)} if count else {"cpu": "1"}
    return {"name": name, "resources": {"requests": requests}, **more}


def test_the_claim_requests_what_containers_do_and_those_that_initialise_share():
    spec = {
        "initContainers": [
            container("small", 1),
            container("large", 5),
            container("side", 1, restartPolicy="Always"),
            container("late", 4),
        ],
        "containers": [container("none"), container("main", 2)],
    }
    found = extended_resources.of_pod(convert(spec, PodSpec), [RESOURCE])
    assert [(each.name, each.count) for each in found.requests] == [
        ("container-1-request-1", 2),
        ("container-2-request-1", 1),
        ("container-5-request-1", 2),
    ]
    assert [(each.container, each.request[10]) for each in found.mappings] == [
        ("side", "2"),
        ("main", "5"),
        ("small", "2"),
        ("large", "2"),
        ("large", "5"),
        ("large", "1"),
        ("late", "5"),
        ("late", "1"),
    ]


def test_amounts_are_the_same_whichever_way_they_are_had():
    """Queues count devices that pods have for a resource as that resource."""
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "default"},
        "spec": {"capability": {RESOURCE: "2"}},
    }
    policy = PREDICATES + "  - {name: capacity}\n"
    cluster = [queue, node("a"), stands_for(), group(), sliced("a", "d1", "d2", "d3", "d4")]
    assert binds(*cluster, pod("p", 2), policy=policy) == {"p": "a"}
    assert binds(*cluster, pod("p", 3), policy=policy) == {}
