"""The sentences of `muster podgroup why`, each from the smallest cluster that has it."""

from __future__ import annotations

from typing import Any

import pytest
from asked import DEDICATED, POLICY, TAKEN, Json, asked, gang, key, made, node, of_actions, pod, queue, state
from msgspec.structs import replace

from muster.cli.answers.why import lines, member, unasked
from muster.cli.output import UNBROKEN
from muster.model import kinds
from muster.whatif import dump, targets, why
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import ClusterObjects
from scheduler.engine.policy import Policy
from scheduler.model.snapshot import GroupKey


def told(name: str, *objects: Json) -> list[str]:
    return [change.text for change in why.ask(asked(objects), key(name)).changes]


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
    assert [
        (found := targets.find(objects, "team", name, ["muster"])) and found.key
        for name in ("train", "job/train", "Job/train", "pod/train", "other")
    ] == [
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


# ── pods, and workloads of any kind ──────────────────────────────────────────────────────────────────────────────


def workload(kind: str, name: str, replicas: int, scheduler: str = "muster", **spec: Any) -> Json:
    """Return a Deployment or a StatefulSet whose pods request 1 cpu."""
    template = {"spec": pod({"name": name}, 0, 1, "", {"schedulerName": scheduler})["spec"]}
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    return made("apps/v1", kind, meta, spec={"replicas": replicas, "template": template, **spec})


def generated(owner: Json, cpus: list[int], minimum: int, place: str = "", **more: Any) -> list[Json]:
    """Return the group that Muster makes for a workload, and its pods."""
    group, *pods = gang(f"podgroup-{owner['metadata']['uid']}", cpus, "default", place, minimum=minimum, **more)
    reference = {"apiVersion": "apps/v1", "kind": owner["kind"], "name": owner["metadata"]["name"], "controller": True}
    group["metadata"]["ownerReferences"] = [reference | {"uid": owner["metadata"]["uid"]}]
    return [group, *pods]


def answered(name: str, *objects: Json, policy: Policy = POLICY) -> list[str]:
    """Return the answer for what is called so, line by line, not broken."""
    target = targets.find(state(objects), "team", name, ["muster"])
    assert target is not None
    if target.key is None:
        return list(unasked(target, UNBROKEN))
    answer = why.ask(asked(objects, policy=policy), target.key)
    return [*member(target, answer, UNBROKEN), *lines(answer, UNBROKEN, TAKEN)]


WEB = workload("Deployment", "web", 5)


@pytest.mark.parametrize(
    ("name", "thing", "said"),
    [
        (
            "deployment/web",
            workload("Deployment", "web", 1, "other"),
            "Muster does not schedule it: spec.template.spec.schedulerName is other; to have Muster schedule it, set muster there",
        ),
        ("web", workload("Deployment", "web", 0), "it is scaled to 0, so it has no pods and no PodGroup"),
        (
            "sts/web",
            workload("StatefulSet", "web", 1),
            "it has no PodGroup yet: Muster creates it with its first pod at the latest",
        ),
        (
            "pod/train-0",
            pod({"name": "train", "namespace": "team", "uid": "train"}, 0, 1, "node-0", {}),
            "it is Running on node node-0",
        ),
        (
            "train-0",
            pod({"name": "train", "namespace": "team", "uid": "train"}, 0, 1, "", {"schedulerName": "other"}),
            "Muster does not schedule it: spec.schedulerName is other; to have Muster schedule it, set muster there",
        ),
        (
            "po/train-0",
            pod({"name": "train", "namespace": "team", "uid": "train"}, 0, 1, "", {}),
            "it names PodGroup train (annotation scheduling.k8s.io/group-name), which does not exist: create that, or remove the annotation",
        ),
    ],
)
def test_of_what_does_not_wait_for_muster_the_reason_is_told(name: str, thing: Json, said: str) -> None:
    (line,) = answered(name, node("node-0", {"cpu": "4"}), thing)
    assert line == f"{thing['kind']} team/{thing['metadata']['name']} does not wait for Muster: {said}"


def run_of(kind: str, name: str, *, ended: bool = False) -> Json:
    """Return a Job that something owns, as a CronJob makes one."""
    template = {"spec": pod({"name": name}, 0, 9, "", {})["spec"]}
    owner = {"apiVersion": "x/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    meta = {"name": f"{name}-1", "namespace": "team", "uid": f"run-{name}", "ownerReferences": [owner]}
    status = {"conditions": [{"type": "Complete", "status": "True"}]} if ended else {}
    return made("batch/v1", "Job", meta, spec={"parallelism": 1, "template": template}, status=status)


@pytest.mark.parametrize(
    ("kind", "written"),
    [("CronJob", "cj/nightly"), ("CronJob", "nightly"), ("JobSet", "jobsets.jobset.x-k8s.io/nightly")],
)
def test_a_cron_job_and_an_operators_object_are_explained_by_the_run_that_waits(kind: str, written: str) -> None:
    run = run_of(kind, "nightly")
    group, *pods = gang(f"podgroup-{run['metadata']['uid']}", [9], "default")
    group["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "nightly-1",
            "uid": run["metadata"]["uid"],
            "controller": True,
        }
    ]
    first, *_ = answered(written, node("node-0", {"cpu": "4"}), run, group, *pods)
    assert first == "Job team/nightly-1 is Pending: waiting for cluster capacity (stage enqueue)"
    (line,) = answered(written, node("node-0", {"cpu": "4"}), run_of(kind, "nightly", ended=True))
    assert line == (
        f"{kind} team/nightly does not wait for Muster: none of its Jobs is unfinished, so it has no run now"
    )


def test_an_operators_object_whose_pods_name_a_group_is_explained_by_a_pod_that_waits() -> None:
    group, *pods = gang("dist", [1, 9], "default", minimum=1)
    for each in pods:
        each["metadata"]["ownerReferences"] = [
            {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "bert", "controller": True}
        ]
    pods[0]["spec"]["nodeName"], pods[0]["status"]["phase"] = "node-0", "Running"
    group["status"] = {"phase": "Running", "running": 1}
    first, *_ = answered("pytorchjob/bert", node("node-0", {"cpu": "4"}), group, *pods)
    assert first == "PodGroup team/dist is Running: 1 pod runs, 1 more waits for nodes (stage nodes)"


def test_a_pod_is_explained_by_its_group() -> None:
    first, blank, second, *_ = answered("pod/train-1", node("node-0", {"cpu": "4"}), *gang("train", [3, 3], "default"))
    assert (first, blank) == ("Pod team/train-1 has no node. It is a member of PodGroup team/train:", "")
    assert second == "PodGroup team/train is Pending: waiting for cluster capacity (stage enqueue)"


def test_why_the_other_pods_of_a_group_that_runs_wait_and_what_would_help_one_of_them() -> None:
    there = generated(WEB, [1, 1], 2, "node-0")
    more = [pod(there[0]["metadata"], number, 2, "", {}) for number in (2, 3, 4)]
    found = answered("deploy/web", node("node-0", {"cpu": "3"}), WEB, *there, *more)
    assert found[0] == "Deployment team/web is Running: 2 pods run, 3 more wait for nodes (stage nodes)"
    assert "why    1 pod needs 2 cpu; 1 cpu is free in the cluster: short by 1 cpu" in found
    where = found.index("Each of these changes alone would let one more of its pods start:")
    assert found[where + 1] == "  - 1 more node with 2 cpu free for 1 pod"


# ── pods that nobody creates ─────────────────────────────────────────────────────────────────────────────────────

SLOW = workload("StatefulSet", "db", 3)


@pytest.mark.parametrize(
    ("owner", "said", "changes"),
    [
        (
            SLOW,
            (
                "StatefulSet db creates its pods one after the other (podManagementPolicy OrderedReady), each once the one before"
                " it runs, and none runs before 3 exist: create it anew with podManagementPolicy Parallel"
            ),
            [
                "a minMember of 1, instead of 3",
                "podManagementPolicy Parallel for StatefulSet db, created anew: then it creates 2 more pods at once",
            ],
        ),
        (
            workload("StatefulSet", "db", 2, podManagementPolicy="Parallel"),
            "StatefulSet db wants 2 pods, fewer than the minimum of 3",
            [
                "a minMember of 1, instead of 3",
                "3 replicas of StatefulSet db, instead of 2: `kubectl scale statefulset db --replicas=3`",
            ],
        ),
        (
            workload("Deployment", "db", 4),
            "Deployment db creates them, and 1 of 3 exists: its events say why",
            ["a minMember of 1, instead of 3", "2 more pods of Deployment db, which wants 4"],
        ),
    ],
)
def test_who_creates_the_pods_that_are_missing_and_what_to_change(owner: Json, said: str, changes: list[str]) -> None:
    objects = [node("node-0", {"cpu": "4"}), owner, *generated(owner, [1], 3, phase="Inqueue")]
    found = answered("db", *objects)
    assert f"pods   {said}" in found
    assert [line.removeprefix("  - ") for line in found if line.startswith("  - ")] == changes


def test_pods_that_no_workload_creates_have_to_be_created() -> None:
    found = answered("train", node("node-0", {"cpu": "4"}), *gang("train", [1], "default", minimum=3, phase="Inqueue"))
    assert (
        "pods   no Job, Deployment or StatefulSet creates them: create 2 more pods with the annotation"
        " scheduling.k8s.io/group-name: train, or lower minMember to 1"
    ) in found
    assert [line for line in found if line.startswith("  - ")] == [
        "  - a minMember of 1, instead of 3",
        "  - 2 more pods",
    ]


# ── the end of others, and what the configuration lacks ──────────────────────────────────────────────────────────


def test_one_group_whose_end_is_enough_is_named_though_it_is_not_the_oldest() -> None:
    # Once all that run have ended, a larger group goes first, and takes the node.
    here = {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}
    nodes = [node("node-0", {"cpu": "4"}), node("node-1", {"cpu": "1"}), node("node-2", {"cpu": "1"})]
    elsewhere = [*gang("a", [1], "default", "node-1"), *gang("b", [1], "default", "node-2")]
    in_the_way = [*gang("c", [2], "default", "node-0"), *gang("d", [2], "default", "node-0")]
    waiting = [*gang("large", [4], "default", **here), *gang("train", [2], "default", **here)]
    waiting[0]["metadata"]["creationTimestamp"] = "2026-01-01T10:00:00Z"
    found = told("train", *nodes, *elsewhere, *in_the_way, *waiting)
    assert [text for text in found if text.startswith("the end of")] == [
        "the end of PodGroup team/c, which holds 2 cpu"
    ]


def test_an_action_that_is_not_configured_is_named_where_it_would_help() -> None:
    lender = gang("lender", [1, 1, 1, 1], "a", "node-0", minimum=1)
    for each in lender[1:]:
        each["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
        ]
        each["status"]["startTime"] = "2026-01-01T11:00:00Z"
    objects = [node("node-0", {"cpu": "4"}), queue("a"), queue("b"), *lender, *gang("train", [1], "b")]
    found = answered("train", *objects, policy=of_actions("enqueue, allocate, backfill"))
    assert "share  queue b deserves 1 cpu and has 0; the action reclaim isn't configured" in found
    assert (
        "  - the action reclaim in the scheduler's configuration: it takes back what queue b deserves from queues that have more"
        in found
    )
    with_it = answered("train", *objects)
    assert not [line for line in with_it if "isn't configured" in line]


@pytest.mark.parametrize("written", [False, True], ids=["live", "dumped"])
def test_a_node_with_a_pod_that_can_not_be_read_takes_nothing_and_is_told(*, written: bool) -> None:
    there = state([queue("default"), node("node-0", {"cpu": "4"}), *gang("train", [2], "default")])
    seen = replace(there, closed_nodes=frozenset({"node-0"}))
    if written:
        seen = dump.parse("\n".join(dump.lines(seen)) + "\n", "cluster.yaml")
    assert "(1 node is closed, for a pod there can't be read)" in " ".join(of(seen))
    assert "can't be read" not in " ".join(of(there))


def of(seen: ClusterObjects) -> list[str]:
    answer = why.ask(WhatIfCluster(seen, POLICY, ["muster"]), key("train"))
    return list(lines(answer, UNBROKEN, TAKEN))


def test_a_minimum_that_can_not_be_read_is_told_and_the_group_of_a_workload_is_named() -> None:
    owner = workload("Deployment", "web", 2)
    owner["spec"]["template"]["metadata"] = {"annotations": {"scheduling.k8s.io/group-min-member": "two"}}
    found = answered("web", node("node-0", {"cpu": "4"}), owner, *generated(owner, [9], 1))
    said = "scheduling.k8s.io/group-min-member 'two' counts as 1: write a whole number from 0 to 2147483647"
    assert [line.split(maxsplit=1) for line in found if line.startswith("warning")] == [["warning", said]]
    assert ["podgroup", "podgroup-uid-web"] in [line.split() for line in found]
