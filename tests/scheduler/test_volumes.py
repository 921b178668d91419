"""Where a pod may go for its volumes' sake, and what is chosen for claims that wait for their first pod."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model import kinds
from scheduler.configuration import config
from scheduler.model.cache import Cache
from scheduler.simulator import state
from scheduler.topology.domains import TopologyCounts
from scheduler.topology.free_volumes import reached, reaches

ZONE = "topology.kubernetes.io/zone"


class Disks:
    """A cluster with storage."""

    def __init__(self, build):
        self.build = build
        self.shelf = build.cluster.storage

    def claim(self, name, *, size="1Gi", class_="late", volume="", phase="", annotations=None, uid="", **spec):
        meta = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "annotations": annotations or {}}
        meta |= {"ownerReferences": spec.pop("owners", [])}
        body = {"storageClassName": class_, "volumeName": volume, "resources": {"requests": {"storage": size}}, **spec}
        status = {"phase": phase or ("Bound" if volume else "Pending")}
        self.shelf.claim(_as(kinds.CLAIMS, {"metadata": meta, "spec": body, "status": status}))
        return self

    def volume(self, name, *, size="1Gi", class_="late", on=None, labels=None, phase="Available", driver="", **spec):
        """A volume; ``on``: the zone or node labels that reach it."""
        terms = (
            [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in on.items()]}]
            if on
            else []
        )
        affinity = {"required": {"nodeSelectorTerms": terms}} if on else None
        body = {"capacity": {"storage": size}, "storageClassName": class_, "nodeAffinity": affinity, **spec}
        if driver:
            body["csi"] = {"driver": driver, "volumeHandle": name}
        meta = {"name": name, "labels": labels or {}}
        self.shelf.volume(_as(kinds.VOLUMES, {"metadata": meta, "spec": body, "status": {"phase": phase}}))
        return self

    def class_(self, name="late", *, mode="WaitForFirstConsumer", provisioner="kubernetes.io/no-provisioner", **more):
        body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **more}
        self.shelf.storage_class(_as(kinds.STORAGECLASSES, body))
        return self

    def limit(self, node, driver, count=None, keys=()):
        allocatable = {"count": count} if count is not None else None
        driver = {"name": driver, "topologyKeys": list(keys), "allocatable": allocatable}
        self.shelf.csi_node(_as(kinds.CSINODES, {"metadata": {"name": node}, "spec": {"drivers": [driver]}}))
        return self

    def pod(self, name, *claims, group="g", **more):
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        self.build.pod(name, group, volumes=volumes, **more)
        return self

    def group(self, name="g", minimum=1, **spec):
        self.build.group(name, minimum, **spec)
        return self

    def decide(self, *policy):
        return self.build.decide(*policy)


def _as(kind, body):
    return msgspec.convert(body, kind.struct)


@pytest.fixture
def disks(build):
    for name in ("a1", "a2", "b1"):
        build.node(name, labels={ZONE: name[0], "kubernetes.io/hostname": name})
    return Disks(build).class_().group()


def chosen(plan):
    return {bind.task.name: {each.claim.name: each.volume for each in bind.volumes} for bind in plan.binds}


@pytest.mark.parametrize(
    "volume",
    [
        {"on": {ZONE: "b"}},
        {"on": {"kubernetes.io/hostname": "b1"}},
        {"labels": {ZONE: "b"}},
        {"labels": {"failure-domain.beta.kubernetes.io/zone": "x", ZONE: "b"}, "on": {ZONE: "nowhere"}},
    ],
    ids=["affinity", "node", "zone", "both"],
)
def test_a_bound_volume_holds_its_pod_to_where_it_is(disks, binds, message, volume):
    disks.volume("v", phase="Bound", **volume).claim("c", volume="v").pod("p", "c")
    reachable = volume.get("on") != {ZONE: "nowhere"}
    plan = disks.decide()
    assert binds(plan) == ({"p": "b1"} if reachable else {})
    assert reachable or "3 are out of reach of its volumes" in message(plan, "g")


def test_a_volume_of_several_zones_is_reached_from_each(disks, binds):
    disks.volume("v", phase="Bound", labels={ZONE: "x__b"}).claim("c", volume="v").pod("p", "c")
    assert binds(disks.decide()) == {"p": "b1"}


def test_nodes_without_any_zone_reach_volumes_of_any(build, binds):
    disks = Disks(build.node("plain")).class_().group()
    disks.volume("v", phase="Bound", labels={ZONE: "b"}).claim("c", volume="v").pod("p", "c")
    assert binds(disks.decide()) == {"p": "plain"}


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda disks: disks, "PersistentVolumeClaim ns/c doesn't exist; create it"),
        (
            lambda disks: disks.claim("c", class_="soon"),
            "PersistentVolumeClaim ns/c names StorageClass soon, which doesn't exist",
        ),
        (
            lambda disks: disks.class_("soon", mode="Immediate").claim("c", class_="soon"),
            "PersistentVolumeClaim ns/c has no volume yet; it is bound before its pods are placed",
        ),
        (
            lambda disks: disks.claim("c", class_=""),
            "PersistentVolumeClaim ns/c has no volume yet; it is bound before its pods are placed",
        ),
        (
            lambda disks: disks.claim("c", volume="v", phase="Lost"),
            "PersistentVolumeClaim ns/c has lost its volume v; create it anew",
        ),
        (
            lambda disks: disks.claim("c", volume="v"),
            "PersistentVolumeClaim ns/c is bound to PersistentVolume v, which doesn't exist",
        ),
        (
            lambda disks: disks.volume("v").claim("c", volume="v", phase="Pending"),
            "PersistentVolumeClaim ns/c is not bound to its volume v yet",
        ),
    ],
)
def test_a_pod_whose_claim_is_not_ready_waits_and_says_why(disks, binds, message, prepare, words):
    plan = prepare(disks).pod("p", "c").decide()
    assert binds(plan) == {}
    assert message(plan, "g") == words


def test_the_smallest_volume_that_fits_is_chosen(disks):
    disks.volume("big", size="9Gi").volume("fits", size="3Gi").volume("small", size="1Gi")
    assert chosen(disks.claim("c", size="2Gi").pod("p", "c").decide()) == {"p": {"c": "fits"}}


@pytest.mark.parametrize(
    "volume",
    [
        {"size": "1Gi"},
        {"class_": "other"},
        {"phase": "Bound"},
        {"volumeMode": "Block"},
        {"accessModes": ["ReadOnlyMany"]},
        {"claimRef": {"namespace": "ns", "name": "another"}},
        {"claimRef": {"namespace": "ns", "name": "c", "uid": "a former one"}},
        {"labels": {"speed": "slow"}},
        {"on": {ZONE: "nowhere"}},
    ],
    ids=lambda volume: next(iter(volume)),
)
def test_a_volume_that_does_not_suit_is_not_chosen(disks, binds, message, volume):
    spec = {"accessModes": ["ReadWriteOnce"]}
    disks.volume("v", **({"size": "2Gi"} | spec | volume))
    disks.claim("c", size="2Gi", selector={"matchLabels": {"speed": "fast"}} if "labels" in volume else None, **spec)
    plan = disks.pod("p", "c").decide()
    assert binds(plan) == {}
    assert "3 are where its claims would get no volume" in message(plan, "g")


def test_a_volume_kept_for_a_claim_is_chosen_for_it(disks):
    disks.volume("v", claimRef={"namespace": "ns", "name": "c"}).claim("c").pod("p", "c")
    assert chosen(disks.decide()) == {"p": {"c": "v"}}


def test_two_pods_do_not_get_the_same_volume(disks):
    disks.group("g", 2).volume("v").volume("w").claim("c").claim("d").pod("p", "c").pod("q", "d")
    plan = disks.decide()
    assert sorted(volume for each in chosen(plan).values() for volume in each.values()) == ["v", "w"]


def test_a_gang_with_too_few_volumes_is_not_begun(disks, binds):
    disks.group("g", 2).volume("v").claim("c").claim("d").pod("p", "c").pod("q", "d")
    assert binds(disks.decide()) == {}


def test_volumes_of_an_attempt_that_failed_are_free_again(disks):
    disks.group("g", 2).volume("v").claim("c").pod("p0", "c").pod("p1", nodeSelector={"no": "node"})
    disks.group("later").claim("d").pod("q", "d", group="later")
    assert chosen(disks.decide()) == {"q": {"d": "v"}}


def test_the_node_goes_by_where_the_volumes_are(disks, binds):
    disks.volume("v", on={"kubernetes.io/hostname": "b1"}).claim("c").pod("p", "c")
    assert binds(disks.decide()) == {"p": "b1"}


def test_one_is_made_where_none_exists(disks):
    disks.class_("made", provisioner="csi.example.com").claim("c", class_="made").pod("p", "c")
    assert chosen(disks.decide()) == {"p": {"c": ""}}


def test_one_is_made_only_where_the_class_allows_it(disks, binds):
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    disks.class_("made", provisioner="csi.example.com", allowedTopologies=topologies)
    assert binds(disks.claim("c", class_="made").pod("p", "c").decide()) == {"p": "b1"}


def test_a_claim_whose_node_is_selected_stays_with_it(disks, binds):
    disks.class_("made", provisioner="csi.example.com")
    disks.claim("c", class_="made", annotations={"volume.kubernetes.io/selected-node": "b1"}).pod("p", "c")
    assert binds(disks.decide()) == {"p": "b1"}


def test_pods_that_share_a_claim_to_be_made_go_where_it_will_be_reached(disks, binds):
    disks.class_("made", provisioner="csi.example.com").group("g", 2)
    for node in ("a1", "a2", "b1"):
        disks.limit(node, "csi.example.com", keys=[ZONE])
    disks.claim("c", class_="made").pod("p", "c", cpu="3").pod("q", "c", cpu="3")
    assert sorted(binds(disks.decide()).values()) == ["a1", "a2"]


def test_what_was_chosen_is_remembered_while_it_is_done(disks):
    disks.volume("v").claim("c").pod("p", "c")
    (bind,) = disks.decide().binds
    disks.build.cluster.assume(bind.task.uid, bind.node, bind.volumes)
    disks.group("later").claim("d").pod("q", "d", group="later")
    assert chosen(disks.decide()) == {}
    disks.build.cluster.forget(bind.task.uid)
    assert len(chosen(disks.decide())) == 1


def test_a_claim_for_one_pod_only_is_not_shared(disks, binds, message):
    disks.volume("v", phase="Bound").claim("c", volume="v", accessModes=["ReadWriteOncePod"])
    disks.pod("there", "c", group="", node="a1").pod("p", "c")
    plan = disks.decide()
    assert binds(plan) == {}
    assert "3 are not to share its volume with another pod" in message(plan, "g")


def test_a_node_attaches_no_more_volumes_than_it_can(disks, binds, message):
    driver = "csi.example.com"
    for number in range(4):
        disks.volume(f"v{number}", phase="Bound", driver=driver).claim(f"c{number}", volume=f"v{number}")
    for node in ("a1", "a2", "b1"):
        disks.limit(node, driver, 1)
    for number in range(4):
        disks.group(f"g{number}").pod(f"p{number}", f"c{number}", group=f"g{number}")
    plan = disks.decide()
    assert sorted(binds(plan).values()) == ["a1", "a2", "b1"]
    assert "3 are at their limit of attached volumes" in message(plan, "g3")


PREEMPTS = config.DEFAULT.replace("backfill", "preempt")


def attached(disks, names, limit):
    """A node with an evictable pod per claim, at its limit; gives it to another group's pod that waits."""
    driver = "csi.example.com"
    for node in ("a1", "a2", "b1"):
        disks.limit(node, driver, limit if node == "a1" else 0)
    disks.group("low", 0)
    for pod, claim in names.items():
        disks.volume(f"v-{claim}", phase="Bound", driver=driver).claim(claim, volume=f"v-{claim}")
        disks.pod(pod, claim, group="low", node="a1", cpu="500m")
    disks.pod("plain", group="low", node="a1", cpu="500m").build.priority("high", 10)
    disks.group("urgent", priorityClassName="high").volume("v", phase="Bound", driver=driver).claim("c", volume="v")


def gone(plan):
    return sorted(each.task.name for each in plan.evictions)


def test_who_has_a_volume_where_no_more_can_be_attached_goes_and_nobody_else(disks):
    attached(disks, {"one": "one"}, 1)
    plan = disks.pod("p", "c", group="urgent", cpu="500m").decide(PREEMPTS)
    assert gone(plan) == ["one"]
    assert [bind.node for bind in plan.pipelined] == ["a1"]


def test_of_two_pods_that_share_a_volume_both_go_or_none_does(disks):
    attached(disks, {"one": "shared", "two": "shared"}, 1)
    disks.pod("p", "c", group="urgent", cpu="500m")
    assert gone(disks.decide(PREEMPTS)) == ["one", "two"]
    disks.pod("kept", "shared", group="low", node="a1", cpu="500m", labels={"volcano.sh/preemptable": "false"})
    plan = disks.decide(PREEMPTS)
    assert gone(plan) == []


def test_nobody_goes_where_a_volume_is_out_of_reach_or_nothing_can_ever_be_attached(disks, message):
    attached(disks, {"one": "one"}, 1)
    disks.volume("far", phase="Bound", labels={ZONE: "c"}).claim("far", volume="far")
    disks.pod("p", "far", group="urgent", cpu="500m")
    plan = disks.decide(PREEMPTS)
    assert gone(plan) == []
    assert "3 are out of reach of its volumes" in message(plan, "urgent")
    disks.limit("a1", "csi.example.com", 0)
    disks.group("other", priorityClassName="high").pod("q", "c", group="other", cpu="500m")
    plan = disks.decide(PREEMPTS)
    assert gone(plan) == []
    assert "3 are at their limit of attached volumes" in message(plan, "other")


def test_a_claim_that_only_one_pod_may_use_is_taken_from_a_less_important_one(disks):
    disks.volume("v", phase="Bound").claim("c", volume="v", accessModes=["ReadWriteOncePod"]).group("low", 0)
    disks.pod("there", "c", group="low", node="a1").build.priority("high", 10)
    disks.group("urgent", priorityClassName="high").pod("p", "c", group="urgent")
    plan = disks.decide(PREEMPTS)
    assert gone(plan) == ["there"]
    assert [bind.node for bind in plan.pipelined] == ["a1"]


def test_a_volume_that_is_attached_already_takes_no_place(disks, binds):
    driver = "csi.example.com"
    disks.volume("v", phase="Bound", driver=driver).claim("c", volume="v").pod("there", "c", group="", node="b1")
    for node in ("a1", "a2", "b1"):
        disks.limit(node, driver, 1 if node == "b1" else 0)
    assert binds(disks.pod("p", "c").decide()) == {"p": "b1"}


def test_a_volume_made_for_a_pod_is_named_after_it(disks, binds, message):
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
    disks.build.pod("p", "g", volumes=volumes)
    assert message(disks.decide(), "g") == "PersistentVolumeClaim ns/p-scratch doesn't exist"
    disks.volume("v", phase="Bound").claim("p-scratch", volume="v")
    assert "isn't the pod's own" in message(disks.decide(), "g")
    disks.claim("p-scratch", volume="v", owners=[{"uid": "uid-p", "controller": True}])
    assert len(binds(disks.decide())) == 1


@pytest.mark.parametrize(
    ("rule", "prepare"),
    [
        (
            "predicate.NodeVolumeLimitsEnable",
            lambda disks: disks.volume("v", phase="Bound", driver="x").claim("c", volume="v").limit("a1", "x", 0),
        ),
        (
            "predicate.VolumeZoneEnable, predicate.VolumeBindingEnable",
            lambda disks: disks.volume("v", phase="Bound", labels={ZONE: "b"}).claim("c", volume="v"),
        ),
    ],
)
def test_the_rules_can_be_turned_off(disks, binds, rule, prepare):
    off = ", ".join(f"{name}: false" for name in rule.split(", "))
    policy = f"actions: allocate\ntiers: [{{plugins: [{{name: predicates, arguments: {{{off}}}}}]}}]"
    assert binds(prepare(disks).pod("p", "c", nodeSelector={ZONE: "a"}).decide(policy)) == {"p": "a1"}


REQUIREMENTS = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    st.sampled_from([ZONE, "disk"]),
    st.sampled_from(["In", "In", "NotIn", "Exists"]),
    st.lists(st.sampled_from("abx"), max_size=2),
)


@settings(max_examples=100, deadline=None)
@given(
    nodes=st.lists(st.dictionaries(st.sampled_from([ZONE, "disk"]), st.sampled_from("ab")), min_size=1, max_size=4),
    terms=st.none()
    | st.lists(st.fixed_dictionaries({"matchExpressions": st.lists(REQUIREMENTS, max_size=2)}), max_size=2),
    zone=st.sampled_from(["", "a", "a__b"]),
)
def test_where_a_volume_is_reached_is_the_same_for_one_node_and_for_all(make_build, nodes, terms, zone):
    build = make_build()
    for number, labels in enumerate(nodes):
        build.node(f"n{number}", labels=labels)
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms is not None else {}
    volume = _as(kinds.VOLUMES, {"metadata": {"name": "v", "labels": {ZONE: zone} if zone else {}}, "spec": spec})
    snapshot = build.cluster.snapshot()
    topology = TopologyCounts(snapshot.table, snapshot.peer_counts, Cache())
    assert reached(topology, volume).tolist() == [reaches(node, volume) for node in snapshot.table.nodes]


def test_a_pod_with_volumes_is_placed_by_a_policy_that_judges_no_volumes(disks, binds):
    disks.pod("p", "missing").claim("c", class_="unknown").pod("q", "c")
    assert len(binds(disks.decide("actions: allocate\ntiers: [{plugins: [{name: gang}]}]"))) == 2


@pytest.mark.parametrize(("limit", "bound"), [(None, 12), (1, 12), (0, 0)])
def test_pods_that_share_a_volume_attach_it_once_per_node(disks, binds, limit, bound):
    driver = "csi.example.com"
    disks.volume("v", phase="Bound", driver=driver).claim("c", volume="v", accessModes=["ReadWriteMany"])
    for node in ("a1", "a2", "b1"):
        disks.limit(node, driver, limit)
    disks.group("g", 0)
    for number in range(12):
        disks.pod(f"p{number}", "c")
    assert len(binds(disks.decide())) == bound


def test_a_simulation_lists_what_is_to_be_done_for_claims_before_their_pods_are_bound():
    late = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    ask = {"storageClassName": "late", "resources": {"requests": {"storage": "1Gi"}}}
    offer = {"storageClassName": "late", "capacity": {"storage": "1Gi"}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
    group = {"minMember": 1, "queue": "default"}
    annotations = {"scheduling.k8s.io/group-name": "g"}
    objects = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": {"pods": "9"}}},
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"}, **late},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": offer},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "ns"},
            "spec": ask,
        },
        {
            "apiVersion": kinds.PODGROUPS.api_version,
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "ns"},
            "spec": group,
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "annotations": annotations},
            "spec": {"containers": [{}], "volumes": volumes},
        },
    ]
    cluster = state.load(objects, ["muster"])
    report = state.run(cluster, config.parse(config.DEFAULT), datetime(2026, 1, 1, tzinfo=UTC), 1).json()
    assert report["binds"] == {}
    assert report["volumes"] == {"ns/p": {"ns/c": "v"}}
    assert report["tasks"]["ns/g"] == {"Binding": 1}
