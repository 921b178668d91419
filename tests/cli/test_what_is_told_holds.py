"""What `why` and `admit` suggest is done to a cluster made anew: there, the group must start."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.cli.answers.why import lines
from muster.model import kinds, names
from muster.whatif import why
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import KINDS, ClusterObjects
from scheduler.configuration import config
from scheduler.model.snapshot import GroupKey

TAKEN = datetime(2026, 1, 1, 12, tzinfo=UTC)
A_DAY = timedelta(days=1)
POLICY = config.read(None)
GROUP = kinds.PODGROUPS.api_version
DEDICATED = {"key": "dedicated", "value": "web", "effect": "NoSchedule"}

Json = dict[str, Any]


def made(api_version: str, kind: str, meta: Json, **fields: Any) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}


def node(name: str, free: Json, labels: Json | None = None, **spec: Any) -> Json:
    allocatable = {"memory": "16Gi", "pods": "20", **free}
    meta = {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    return made("v1", "Node", meta, spec=spec, status=status)


def queue(name: str, state: str = "Open", **spec: Any) -> Json:
    return made(GROUP, "Queue", {"name": name}, spec={"weight": 1, **spec}, status={"state": state})


def gang(name: str, cpus: Sequence[int], queue: str, place: str = "", **spec: Any) -> list[Json]:
    """Return a group and its pods, all of the minimum; on a node, or waiting."""
    phase = "Running" if place else "Pending"
    meta = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": "2026-01-01T11:00:00Z"}
    status = {"phase": phase, "running": len(cpus) if place else 0}
    group = made(GROUP, "PodGroup", meta, spec={"minMember": len(cpus), "queue": queue}, status=status)
    return [group, *(pod(meta, number, cpu, place, spec) for number, cpu in enumerate(cpus))]


def pod(group: Json, number: int, cpu: int, place: str, spec: Json) -> Json:
    name = f"{group['name']}-{number}"
    meta = group | {"name": name, "uid": f"team/{name}", "annotations": {names.GROUP_NAME: group["name"]}}
    container = {"name": "main", "resources": {"requests": {"cpu": str(cpu)}}}
    whole = {"schedulerName": "muster", "containers": [container], **spec, **({"nodeName": place} if place else {})}
    return made("v1", "Pod", meta, spec=whole, status={"phase": "Running" if place else "Pending"})


def state(objects: Iterable[Json], taken: datetime = TAKEN) -> ClusterObjects:
    """Return a cluster as `muster dump` would."""
    found = defaultdict(list)
    for each in objects:
        kind = next(one for one in KINDS if (one.api_version, one.name) == (each["apiVersion"], each["kind"]))
        found[kind].append(msgspec.convert(each, kind.struct))
    return ClusterObjects(taken, {kind: tuple(found[kind]) for kind in KINDS})


def asked(objects: Iterable[Json], taken: datetime = TAKEN) -> WhatIfCluster:
    return WhatIfCluster(state(objects, taken), POLICY, ["muster"])


def at_rest(objects: Sequence[Json], key: GroupKey) -> tuple[list[Json], datetime]:
    """Return the cluster as it is once the scheduler has done for a group what it can: a change comes after that."""
    cluster, after = asked(objects), copy.deepcopy(list(objects))
    cluster.run_until_idle([key])
    places = {str(task): task.node for job in cluster.snapshot().jobs for task in job.tasks if task.node}
    for each in after:
        name = f"team/{each['metadata']['name']}"
        if each["kind"] == "Pod" and name in places:
            each["spec"]["nodeName"] = places[name]
            each["status"]["phase"] = "Running"
        if each["kind"] == "PodGroup":
            found = cluster.cluster.find_group(GroupKey(kinds.PODGROUPS.group, "team", each["metadata"]["name"]))
            assert found is not None
            each["status"] = msgspec.to_builtins(found.status)
    return after, cluster.now


# ── doing what is suggested ──────────────────────────────────────────────────────────────────────────────────────


def done(objects: Sequence[Json], change: Json) -> list[Json]:
    """Do what a suggestion says."""
    after = copy.deepcopy(list(objects))
    gone = [name.partition("/")[2] for name in change["podGroups"]] if change["kind"] == "end" else []
    after = [each for each in after if not any(belongs(each, name) for name in gone)]
    named = {each["metadata"]["name"]: each for each in after if each["kind"] in {"Node", "Queue"}}
    match change["kind"]:
        case "time" | "end":
            pass
        case "capability" | "weight" | "maxPodGroups":
            named[change["queue"]]["spec"] |= {change["kind"]: change[change["kind"]]}
        case "open":
            named[change["queue"]]["status"] = {"state": "Open"}
        case "queue":
            after.append(queue(change["queue"]))
        case "uncordon":
            for each in change["nodes"]:
                del named[each]["spec"]["unschedulable"]
        case "nodes":
            after += [another(named[change["like"]], number) for number in range(change["count"])]
        case "node":
            new = another(named[change["like"]], 0)
            new["metadata"]["labels"] |= change.get("labels", {})
            if "withoutTaints" in change:
                new["spec"].pop("taints", None)
            if "free" in change:
                new["status"]["allocatable"] = change["free"]
            after.append(new)
        case kind:
            raise AssertionError(f"nobody knows how to do {kind}")
    return after


def belongs(each: Json, group: str) -> bool:
    meta = each["metadata"]
    return (
        each["kind"] in {"PodGroup", "Pod"}
        and (meta.get("annotations") or {}).get(names.GROUP_NAME, meta["name"]) == group
    )


def another(like: Json, number: int) -> Json:
    new = copy.deepcopy(like)
    new["spec"].pop("unschedulable", None)
    name = f"new-{number}"
    new["metadata"] |= {
        "name": name,
        "uid": name,
        "labels": like["metadata"]["labels"] | {"kubernetes.io/hostname": name},
    }
    return new


# ── any cluster ──────────────────────────────────────────────────────────────────────────────────────────────────

LABELS = st.sampled_from([{}, {}, {"gpu": "yes"}])
NODE_SPECS = st.sampled_from([{}, {}, {}, {"unschedulable": True}, {"taints": [DEDICATED]}])
NODES = st.lists(st.tuples(st.integers(1, 6), LABELS, NODE_SPECS), min_size=1, max_size=3)
QUEUE = st.builds(
    queue,
    st.just("lab"),
    st.sampled_from(["Open", "Open", "Open", "Closed"]),
    weight=st.integers(1, 3),
    capability=st.sampled_from([{}, {}, {"cpu": "1"}, {"cpu": "4"}]),
    maxPodGroups=st.sampled_from([0, 0, 1, 2]),
)
QUEUES = st.sampled_from(["default", "lab", "lab", "nowhere"])
GANGS = st.lists(
    st.tuples(
        st.lists(st.integers(1, 4), min_size=1, max_size=3),
        QUEUES,
        st.sampled_from([{}, {}, {"nodeSelector": {"gpu": "yes"}}]),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def clusters(draw: st.DrawFn) -> list[Json]:
    """Draw nodes with a gang on each that has room for one, queues, and gangs that wait."""
    sizes = draw(NODES)
    objects = [node(f"node-{n}", {"cpu": str(cpu)}, labels, **spec) for n, (cpu, labels, spec) in enumerate(sizes)]
    objects += [queue("default"), draw(QUEUE)]
    for number, (cpu, _, _) in enumerate(sizes):
        taken = draw(st.integers(0, cpu))
        if taken:
            objects += gang(f"running{number}", [taken], draw(st.sampled_from(["default", "lab"])), f"node-{number}")
    for number, (cpus, where, spec) in enumerate(draw(GANGS)):
        objects += gang(f"waiting{number}", cpus, where, **spec)
    return objects


def waiting(objects: Iterable[Json]) -> list[str]:
    found = (each for each in objects if each["kind"] == "PodGroup" and each["status"]["phase"] == "Pending")
    return [each["metadata"]["name"] for each in found]


@settings(max_examples=20)
@given(clusters())
def test_each_change_that_is_told_lets_the_group_start_once_it_is_done(objects: list[Json]) -> None:
    for name in waiting(objects):
        key = GroupKey(kinds.PODGROUPS.group, "team", name)
        told = why.ask(asked(objects), key).data().get("changes", ())
        rest, now = at_rest(objects, key)
        for change in told:
            if change.get("enough", True):
                assert key in asked(done(rest, change), now + A_DAY).run_until_idle([key]).started, change["text"]


# ── what is told ─────────────────────────────────────────────────────────────────────────────────────────────────


def told(name: str, *objects: Json) -> list[str]:
    answer = why.ask(asked(objects), GroupKey(kinds.PODGROUPS.group, "team", name))
    return [change.text for change in answer.changes]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (queue("default"), "a queue lab: create it with `muster queue create --name lab`"),
        (queue("lab", "Closed"), "queue lab opened again: `muster queue open lab`"),
        (queue("lab", maxPodGroups=1), "a maxPodGroups of 2 for queue lab, instead of 1"),
    ],
)
def test_what_its_queue_lacks_is_told(where: Json, text: str) -> None:
    first = gang("first", [1], "lab", "node-0")
    assert text in told("train", where, node("node-0", {"cpu": "4"}), *first, *gang("train", [1], "lab"))


def test_what_comes_after_a_larger_capability_is_told_too() -> None:
    small = queue("lab", capability={"cpu": "1"})
    (text,) = told(
        "train", small, node("node-0", {"cpu": "4"}), *gang("train", [2], "lab", nodeSelector={"gpu": "yes"})
    )
    assert text == (
        "a capability of 2 cpu for queue lab, instead of 1 cpu; then it waits for: 1 pod of 2 cpu"
        " needs a node; the nodes have room for none (of 1 node 1 is not matched by the node selector or affinity)"
    )


def test_what_comes_after_its_queue_is_told_too() -> None:
    (text,) = told("train", node("node-0", {"cpu": "4"}), *gang("train", [6], "lab"))
    assert text == (
        "a queue lab: create it with `muster queue create --name lab`; then it waits for:"
        " 1 pod needs 6 cpu; 4 cpu are free in the cluster: short by 2 cpu"
    )


@pytest.mark.parametrize(
    ("there", "text"),
    [
        (node("node-0", {"cpu": "4"}, unschedulable=True), "node node-0 uncordoned: `kubectl uncordon node-0`"),
        (node("node-0", {"cpu": "4"}), "1 more node like node-0, with label gpu=yes"),
        (
            node("node-0", {"cpu": "4"}, {"gpu": "yes"}, taints=[DEDICATED]),
            "1 more node like node-0, without taint dedicated=web:NoSchedule",
        ),
        (
            node("node-0", {"cpu": "1"}, taints=[DEDICATED]),
            "1 more node with 2 cpu free for 1 pod, with label gpu=yes and without taint dedicated=web:NoSchedule",
        ),
    ],
)
def test_what_nodes_lack_beside_room_is_told(there: Json, text: str) -> None:
    if there["spec"].get("unschedulable"):
        there["metadata"]["labels"]["gpu"] = "yes"
    assert text in told("train", there, *gang("train", [2], "default", nodeSelector={"gpu": "yes"}))


def test_what_lets_a_group_in_is_told_before_it_has_pods() -> None:
    (group,) = gang("train", [], "default")
    group["spec"] |= {"minMember": 1, "minResources": {"example.com/fpga": "3"}}
    assert told("train", node("node-0", {"cpu": "4"}), group) == ["1 more node with 3 example.com/fpga free for 1 pod"]


def test_a_group_that_muster_made_is_called_by_whom_it_is_made_for_and_found_by_that() -> None:
    owned, *pods = gang("podgroup-6a0ab211", [9], "default")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "6a0ab211", "controller": True}
    ]
    owned["metadata"]["resourceVersion"] = "7"
    objects = state([node("node-0", {"cpu": "4"}), owned, *pods])
    key = GroupKey(kinds.PODGROUPS.group, "team", "podgroup-6a0ab211")
    assert [why.find(objects, "team", name) for name in ("train", "job/train", "Job/train", "pod/train", "other")] == [
        key,
        key,
        key,
        None,
        None,
    ]
    answer = why.ask(WhatIfCluster(objects, POLICY, ["muster"]), key)
    first, *rest = lines(answer, 80, TAKEN)
    assert first == "Job team/train is Pending: waiting for cluster capacity (stage enqueue)"
    assert max(map(len, rest)) <= 80


def test_a_group_whose_job_its_user_suspended_goes_on_when_that_is_resumed() -> None:
    template = {"spec": pod({"name": "train"}, 0, 1, "", {})["spec"]}
    meta = {"name": "train", "namespace": "team", "uid": "6a0ab211"}
    job = made("batch/v1", "Job", meta, spec={"suspend": True, "template": template}, status={})
    owned = gang("podgroup-6a0ab211", [], "default")[0]
    answer = why.ask(
        asked([node("node-0", {"cpu": "4"}), job, owned]),
        GroupKey(kinds.PODGROUPS.group, "team", owned["metadata"]["name"]),
    )
    assert "It continues when its Job is resumed." in lines(answer, 80, TAKEN)
