"""PodGroups of Kubernetes' own, on a control plane of 1.37 with its feature gates: what they alone have, and an upgrade to there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import binaries
import pytest
from both_kinds import GATES, GROUP, NATIVE, OURS, PATIENCE, POD, Cluster, built, in_phase, native, up
from controlplane import ControlPlane

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("native groups")]
RACK = """
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: rack-1}
spec: {tier: 1, tierName: rack, members: [{type: Node, selector: {exactMatch: {name: native}}}]}
"""
QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: team}
spec: {hard: {requests.cpu: "4"}}
"""
OTHER = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: other}
spec: {minMember: 2, minResources: {cpu: 2}}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {scheduling.volcano.sh/queue-name: walked}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulerName: muster
      schedulingGroup: {podGroupName: workers}
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: busybox, resources: {requests: {cpu: 1}}}]
"""
QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: walked}
spec: {weight: 1}
"""
CLASS = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: polite}
value: 10
preemptionPolicy: Never
"""


@pytest.fixture(scope="module")
def serving() -> Iterator[Path]:
    """`muster up` on a control plane that serves native groups."""
    built(binaries.VERSION)
    with ControlPlane(gates=GATES) as plane, up(plane) as config:
        yield config


@pytest.fixture
def cluster(serving: Path) -> Iterator[Cluster]:
    """A namespace of the test's own."""
    cluster = Cluster(serving)
    yield cluster
    cluster.clear()


def told(cluster: Cluster, *words: str, stdin: str = "") -> str:
    """What a command of Muster prints, in one line."""
    return " ".join(cluster.muster(*words, stdin=stdin).split())


def test_the_group_follows_its_native_one_from_the_first_pod_to_the_last(cluster: Cluster) -> None:
    cluster.group("{gang: {minCount: 3}}", 3)
    found = cluster.condition("True")
    assert found["reason"] == "Scheduled"
    meta = cluster.get(NATIVE, "workers")["metadata"]
    assert found.get("observedGeneration") == meta.get("generation")
    (ours,) = cluster.get(OURS)["items"]
    assert (ours["spec"]["minMember"], ours["spec"]["minResources"]) == (3, {"cpu": "3"})
    assert [each["uid"] for each in ours["metadata"]["ownerReferences"]] == [meta["uid"]]
    cluster.run("delete", "pods", "--all", "--force", "--grace-period=0")
    cluster.run("delete", NATIVE, "workers")
    cluster.until(OURS, "", lambda found: not found["items"])


def test_the_reason_is_on_the_native_group_as_kubernetes_own_scheduler_writes_it(cluster: Cluster) -> None:
    cluster.group("{gang: {minCount: 5}}", 5)
    condition = cluster.condition("False")
    assert condition["reason"] == "Unschedulable"
    assert "cpu" in condition["message"]


def test_a_smaller_minimum_lets_it_start(cluster: Cluster) -> None:
    cluster.group("{gang: {minCount: 5}}", 5)
    cluster.condition("False")
    change = {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}
    cluster.run("patch", NATIVE, "workers", "--type=merge", "-p", json.dumps(change))
    cluster.condition("True")
    assert cluster.placed() == 4


def test_a_basic_group_is_no_gang(cluster: Cluster) -> None:
    cluster.group("{basic: {}}", 6)
    cluster.condition("True")
    cluster.until("pods", "", lambda found: sum("nodeName" in each["spec"] for each in found["items"]) == 4)


def test_the_queue_is_named_by_the_group(cluster: Cluster) -> None:
    cluster.group("{gang: {minCount: 1}}", 1, queue="no-such-queue")
    events = cluster.until("events", "", lambda found: any(each["reason"] == "NoPodGroup" for each in found["items"]))
    assert any("no-such-queue" in each["message"] for each in events["items"])
    assert cluster.condition("False", "no-such-queue")["reason"] == "Unschedulable"
    assert cluster.placed() == 0


def test_the_pods_of_a_deployment_join_it_and_its_owner_names_the_queue(cluster: Cluster) -> None:
    cluster.apply(f"{QUEUE}---{DEPLOYMENT}")
    cluster.until("pods", "", lambda found: len(found["items"]) == 3)
    assert "PodGroup workers of scheduling.k8s.io" in told(cluster, "why", "deployment/web")
    owner = cluster.get("deployment", "web")["metadata"]["uid"]
    owners = f"ownerReferences: [{{apiVersion: apps/v1, kind: Deployment, name: web, uid: {owner}, controller: true}}]"
    group = GROUP.replace("POLICY", "{gang: {minCount: 5}}").replace("MORE", "")
    cluster.apply(group.replace("annotations: {scheduling.volcano.sh/queue-name: QUEUE}", owners))
    waits = in_phase(cluster, "Pending")
    assert (waits["spec"]["queue"], waits["spec"]["minMember"]) == ("walked", 5)
    assert f"PodGroup {cluster.namespace}/workers is Pending" in told(cluster, "why", "deployment/web")
    change = {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    cluster.run("patch", NATIVE, "workers", "--type=merge", "-p", json.dumps(change))
    cluster.condition("True")
    assert cluster.placed() == 3
    cluster.clear()
    cluster.run("delete", "queue", "walked", "--wait=false")


def test_what_its_pods_take_of_the_quota_counts_once(cluster: Cluster) -> None:
    cluster.apply(QUOTA.replace('"4"', '"3"'))
    made = cluster.run("apply", "-f", "-", stdin=native("{gang: {minCount: 4}}", range(4)))
    assert 'pods "w-3" is forbidden: exceeded quota' in made.stdout
    cluster.condition("False", "short by 1 requests.cpu")
    # Its pods join it once it is there, with what they take.
    words, why, end = "1 requests.cpu more (4 in all) in ResourceQuota team", "", time.monotonic() + PATIENCE
    while words not in why and time.monotonic() < end:
        why = told(cluster, "podgroup", "why", "workers")
    assert words in why
    assert "short by 1 requests.cpu" in why


def test_admit_says_that_its_queue_does_not_exist(cluster: Cluster) -> None:
    text = native("{gang: {minCount: 1}}", range(1), queue="no-such-queue")
    said = told(cluster, "admit", "-f", "-", stdin=text)
    assert "no-such-queue" in said
    assert "would start now" not in said


def test_what_is_not_evaluated_waits_and_says_so(cluster: Cluster) -> None:
    spec = ", parentCompositePodGroupName: above, workloadRef: {workloadName: many, templateName: workers}"
    cluster.group("{gang: {minCount: 1}}", 1, spec=spec)
    condition = cluster.condition("False", "parentCompositePodGroupName is not evaluated")
    assert condition["reason"] == "Unschedulable"
    cluster.until(
        "events",
        "",
        lambda found: any(
            each["reason"] == "FailedScheduling" and "parentCompositePodGroupName is not evaluated" in each["message"]
            for each in found["items"]
        ),
    )
    assert cluster.placed() == 0
    assert cluster.get(OURS)["items"] == []


def test_its_pods_are_in_one_domain_of_the_level_that_it_names(cluster: Cluster) -> None:
    cluster.group("{gang: {minCount: 2}}", 2, spec=", schedulingConstraints: {topology: [{key: example.com/rack}]}")
    cluster.condition("False", "nothing describes the network")
    assert cluster.placed() == 0
    cluster.apply(RACK)
    try:
        cluster.condition("True")
        (ours,) = cluster.get(OURS)["items"]
        assert ours["spec"]["networkTopology"] == {"mode": "hard", "highestTierName": "example.com/rack"}
        assert cluster.placed() == 2
    finally:
        cluster.run("delete", "hypernode", "rack-1")


def test_priority_and_evictions_are_those_that_it_names(cluster: Cluster) -> None:
    said = ", disruptionMode: {all: {}}, priorityClassName: polite, preemptionPolicy: Never"
    cluster.apply(CLASS)
    cluster.group("{gang: {minCount: 1}}", 1, spec=said)
    cluster.condition("True")
    (ours,) = cluster.get(OURS)["items"]
    assert ours["spec"]["priorityClassName"] == "polite"
    assert ours["metadata"]["annotations"]["muster.sh/disruption-mode"] == "All"
    assert ours["metadata"]["annotations"]["muster.sh/preemption-policy"] == "Never"


def test_admit_judges_a_file_of_a_group_and_its_pods(cluster: Cluster) -> None:
    def said(pods: int) -> str:
        group = (
            GROUP.replace("POLICY", f"{{gang: {{minCount: {pods}}}}}").replace("QUEUE", "default").replace("MORE", "")
        )
        text = group + "".join(POD.replace("NAME", f"w-{each}").replace("CPU", "1") for each in range(pods))
        return cluster.muster("admit", "-f", "-", stdin=text)

    assert f"PodGroup {cluster.namespace}/workers would start now, 3 pods" in " ".join(said(3).split())
    assert "5 pods" in said(5)
    assert "would start now" not in " ".join(said(5).split())


def test_a_job_for_which_kubernetes_makes_a_group_has_one_group(cluster: Cluster) -> None:
    cluster.apply("""
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completionMode: Indexed
  parallelism: 3
  completions: 3
  template:
    metadata: {annotations: {sandbox.muster.sh/run-seconds: "1"}}
    spec:
      schedulerName: muster
      restartPolicy: Never
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: busybox, resources: {requests: {cpu: 1}}}]
""")
    natives = cluster.until(NATIVE, "", lambda found: found["items"])
    name = natives["items"][0]["metadata"]["name"]
    cluster.until(
        NATIVE,
        name,
        lambda found: any(each["status"] == "True" for each in found.get("status", {}).get("conditions", [])),
    )
    (ours,) = cluster.get(OURS)["items"]
    assert [each["kind"] for each in ours["metadata"]["ownerReferences"]] == ["Job"]
    cluster.until("jobs", "train", lambda found: found.get("status", {}).get("succeeded") == 3)


def test_kubectl_means_the_native_kind_by_the_plain_name_and_muster_by_the_short_one(cluster: Cluster) -> None:
    cluster.group("{gang: {minCount: 1}}", 1)
    cluster.condition("True")
    assert "scheduling.k8s.io" in cluster.run("get", "podgroups", "-o", "yaml").stdout
    assert "scheduling.volcano.sh" in cluster.run("get", "pg", "-o", "yaml").stdout


def test_a_cluster_is_upgraded_and_loses_nothing() -> None:
    older = "v1.36.3"
    built(older, binaries.VERSION)
    with ControlPlane(version=older, audited=True) as plane, up(plane) as config:
        running, waiting = Cluster(config, "running"), Cluster(config, "waiting")
        running.apply(QUOTA)
        running.ours(3, 3)
        before = in_phase(running, "Running")
        held = ["team", "requests.cpu", "4", "3"]
        assert held in [line.split()[:4] for line in running.muster("quota", "view").splitlines()]
        waiting.ours(3, 3)
        in_phase(waiting, "Pending", "cpu")
        requests = plane.audit_log.read_text()
        assert '"/apis/scheduling.k8s.io/v1beta1' not in requests
        plane.upgrade(binaries.VERSION, GATES[:1])
        assert in_phase(running, "Running")["metadata"]["uid"] == before["metadata"]["uid"]
        assert (running.placed(), waiting.placed()) == (3, 0)
        in_phase(waiting, "Pending", "cpu")
        assert held in [line.split()[:4] for line in running.muster("quota", "view").splitlines()]
        beyond = running.run("apply", "-f", "-", stdin=OTHER)
        assert "short by 1 requests.cpu" in beyond.stdout
        running.clear()
        in_phase(waiting, "Running")
        waiting.clear()
        # With GenericWorkload alone.
        alone = Cluster(config, "native")
        alone.group("{gang: {minCount: 3}}", 3)
        alone.condition("True")
        assert alone.placed() == 3
