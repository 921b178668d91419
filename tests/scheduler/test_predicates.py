"""Resources, ports and readiness: which node a pod fits on, as kube-scheduler counts."""

from __future__ import annotations

import pytest

GPU = "nvidia.com/gpu"


def asks(cpu, **more):
    return {"resources": {"requests": {"cpu": cpu, **more}}}


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        ({"containers": [asks("1"), asks("2")]}, 3),
        ({"containers": [asks("1")], "initContainers": [asks("3"), asks("2")]}, 3),
        ({"containers": [asks("2")], "initContainers": [asks("1") | {"restartPolicy": "Always"}]}, 3),
        ({"containers": [asks("1")], "initContainers": [asks("1") | {"restartPolicy": "Always"}, asks("3")]}, 4),
        ({"containers": [asks("1")], "overhead": {"cpu": "2"}}, 3),
        ({"containers": [asks("1"), asks("1")], "resources": {"requests": {"cpu": "4"}}}, 4),
        ({"containers": [{"resources": {"limits": {"cpu": "3"}}}]}, 3),
    ],
    ids=["containers", "init", "sidecar", "sidecar and init", "overhead", "pod level", "limits only"],
)
def test_a_pod_fits_where_all_that_it_needs_at_a_time_is_idle(build, binds, spec, needs):
    build.node("small", str(needs - 1)).group("g").pod("p", "g", **spec)
    assert binds(build.decide()) == {}
    assert binds(build.node("fits", str(needs)).decide()) == {"p": "fits"}


@pytest.mark.parametrize("name", [GPU, "hugepages-2Mi", "ephemeral-storage", "memory"])
def test_each_resource_counts(build, binds, name):
    build.node("none").node("some", **({"memory": "20Gi"} if name == "memory" else {name: "20Gi"}))
    build.pod("there", node="some", requests={name: "2Gi"}).group("g", 0)
    for number in range(2):
        build.pod(f"p{number}", "g", requests={name: "17Gi"})
    assert list(binds(build.decide()).values()) == ["some"]


def test_a_resource_that_nobody_has_is_told(build, binds, message):
    plan = build.node("a").group("g").pod("p", "g", requests={GPU: "1"}).decide()
    assert binds(plan) == {}
    assert GPU in message(plan, "g")


def ports(*given):
    return {
        "ports": [{"containerPort": 80, "hostPort": port, "protocol": kind, "hostIP": ip} for port, kind, ip in given]
    }


@pytest.mark.parametrize(
    ("there", "wanted", "free"),
    [
        ((80, "TCP", ""), (80, "TCP", ""), False),
        ((80, "TCP", ""), (81, "TCP", ""), True),
        ((80, "TCP", ""), (80, "UDP", ""), True),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "10.0.0.2"), True),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "0.0.0.0"), False),
        ((80, "TCP", "0.0.0.0"), (80, "TCP", "10.0.0.1"), False),
    ],
)
def test_a_host_port_is_given_once(build, binds, there, wanted, free):
    build.node("a").pod("old", node="a", **ports(there)).group("g").pod("p", "g", **ports(wanted))
    assert bool(binds(build.decide())) == free


def test_the_port_of_a_sidecar_counts_and_that_of_an_init_container_does_not(build, binds):
    port = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    build.node("a").pod("old", node="a", initContainers=[port | {"restartPolicy": "Always"}])
    build.group("g", 0).pod("init", "g", initContainers=[port]).pod("p", "g", **port)
    assert binds(build.decide()) == {"init": "a"}


@pytest.mark.parametrize(("status", "bound"), [("True", 1), ("False", 0), ("Unknown", 0)])
def test_a_node_takes_pods_while_it_is_ready(build, binds, message, status, bound):
    plan = build.node("a", ready=status).group("g").pod("p", "g").decide()
    assert len(binds(plan)) == bound
    assert bound or "1 is not ready" in message(plan, "g")


def test_a_node_whose_amounts_cannot_be_read_takes_none(build, binds):
    build.node("odd", "much").node("a").group("g", 0).pod("p", "g").pod("q", "g")
    assert set(binds(build.decide()).values()) == {"a"}


@pytest.mark.parametrize(
    ("images", "node"),
    [
        ({"b": ["busybox:latest"]}, "b"),
        ({"b": ["docker.io/library/busybox:latest", "busybox:latest"]}, "b"),
        ({"b": ["busybox:1.0"]}, "a"),
        ({}, "a"),
    ],
)
def test_images_at_hand_attract(build, binds, images, node):
    for name in ("a", "b"):
        build.node(name, images=[{"names": images.get(name, []), "sizeBytes": 900 * 2**20}])
    plan = build.group("g").pod("p", "g", image="busybox").decide()
    assert binds(plan) == {"p": node}


def test_images_are_followed(build, binds):
    build.node("a").node("b").group("g").pod("p", "g", image="busybox")
    assert binds(build.decide()) == {"p": "a"}
    build.node("b", images=[{"names": ["busybox:latest"], "sizeBytes": 900 * 2**20}])
    assert binds(build.decide()) == {"p": "b"}
    build.node("b")
    assert binds(build.decide()) == {"p": "a"}


def test_a_pod_that_names_its_node_is_there_and_counts(build, binds):
    build.node("a", "1").node("b", "1").group("g", 2).pod("fixed", "g", node="a", phase="Pending").pod("p", "g")
    assert binds(build.decide()) == {"p": "b"}


def test_affinity_to_the_name_of_a_node_holds(build, binds):
    fields = [{"key": "metadata.name", "operator": "In", "values": ["b"]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    build.node("a").node("b").group("g").pod("p", "g", affinity=affinity)
    assert binds(build.decide()) == {"p": "b"}
