"""PodGroups of Kubernetes' own, on a control plane of 1.37 with its feature gates: groups like any other."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import binaries
import pytest
from controlplane import ControlPlane
from running import kubectl, muster_up

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("native groups")]
GATES = (
    "GenericWorkload",
    "TopologyAwareWorkloadScheduling",
    "PodGroupPreemptionPolicy",
    "DRAWorkloadResourceClaims",
    "WorkloadWithJob",
)
PATIENCE = 60.0
PARTS = [each for each in binaries.BINARIES if each.name not in {"helm", "kubectl"}]
_NUMBERS = itertools.count(1)
NATIVE = "podgroups.v1beta1.scheduling.k8s.io"
OURS = "podgroups.scheduling.volcano.sh"
NODE = """
apiVersion: v1
kind: Node
metadata: {name: native, labels: {story: native}, annotations: {kwok.x-k8s.io/node: fake}}
status: {capacity: {cpu: "4", memory: 16Gi, pods: "110"}, allocatable: {cpu: "4", memory: 16Gi, pods: "110"}}
"""
GROUP = """
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: workers, annotations: {scheduling.volcano.sh/queue-name: QUEUE}}
spec: {schedulingPolicy: POLICYMORE}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  schedulerName: muster
  schedulingGroup: {podGroupName: workers}
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: busybox, resources: {requests: {cpu: CPU}}}]
"""
RACK = """
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: rack-1}
spec: {tier: 1, tierName: rack, members: [{type: Node, selector: {exactMatch: {name: native}}}]}
"""
CLASS = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: polite}
value: 10
preemptionPolicy: Never
"""
QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: team}
spec: {hard: {requests.cpu: "3"}}
"""


@contextmanager
def up(plane: ControlPlane) -> Iterator[Path]:
    """`muster up` on a control plane with a node; gives the kubeconfig."""
    config = plane.kubeconfig()
    with muster_up("--kubeconfig", str(config), kubeconfig=config):
        assert kubectl(config, "apply", "-f", "-", stdin=NODE).returncode == 0
        yield config


def built(*versions: str) -> None:
    """Skip a test whose control plane isn't there."""
    missing = [
        f"{each.name} {version}" for version in versions for each in PARTS if not binaries.find(each.name, version)
    ]
    if missing:
        pytest.skip(f"real control plane: not run, {', '.join(missing)} missing (make controlplane)")


@pytest.fixture(scope="module")
def native() -> Iterator[Path]:
    """`muster up` on a control plane that serves native groups."""
    built(binaries.VERSION)
    with ControlPlane(gates=GATES) as plane, up(plane) as config:
        yield config


@pytest.fixture
def cluster(native: Path) -> Iterator[Cluster]:
    """A namespace of the test's own."""
    cluster = Cluster(native, f"story-{next(_NUMBERS)}")
    yield cluster
    cluster.clear()


class Cluster:
    """What a test does in its namespace."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.kubeconfig, self.namespace = kubeconfig, namespace
        assert kubectl(kubeconfig, "create", "namespace", namespace).returncode == 0
        assert self.run("wait", "serviceaccount/default", "--for=create", "--timeout=60s").returncode == 0

    def clear(self) -> None:
        """Take away what others would wait for."""
        self.run("delete", "deployments,jobs", "--all", "--wait=false")
        self.run("delete", f"{NATIVE},{OURS}", "--all", "--wait=false")
        self.run("delete", "pods", "--all", "--force", "--grace-period=0")

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return kubectl(self.kubeconfig, "-n", self.namespace, *words, stdin=stdin)

    def apply(self, text: str) -> None:
        done = self.run("apply", "-f", "-", stdin=text)
        assert done.returncode == 0, done.stdout

    def group(self, policy: str, pods: int, cpu: str = "1", queue: str = "default", spec: str = "") -> None:
        """Make a native group and its pods."""
        group = GROUP.replace("POLICY", policy).replace("MORE", spec).replace("QUEUE", queue)
        self.apply(group + "".join(POD.replace("NAME", f"w-{each}").replace("CPU", cpu) for each in range(pods)))

    def ours(self, minimum: int, pods: int) -> None:
        """Make a group of Muster's and its pods."""
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "workers"}}
        pod = POD.replace("CPU", "1").replace("  schedulingGroup: {podGroupName: workers}\n", "")
        pod = pod.replace("NAME}", "NAME, annotations: {scheduling.k8s.io/group-name: workers}}")
        text = "# YAML\n" + json.dumps(group | {"spec": {"minMember": minimum}}) + "\n"
        self.apply(text + "".join(pod.replace("NAME", f"w-{each}") for each in range(pods)))

    def get(self, kind: str, name: str = "") -> Any:
        done = self.run("get", kind, *([name] if name else []), "-o", "json")
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def until(self, kind: str, name: str, holds: Callable[[Any], Any]) -> Any:
        """Wait until something is so of an object or a list, and return it."""
        end = time.monotonic() + PATIENCE
        while True:
            found = self.get(kind, name)
            if found and holds(found):
                return found
            assert time.monotonic() < end, found
            time.sleep(0.2)

    def condition(self, status: str, words: str = "") -> dict[str, Any]:
        def told(found: Any) -> Any:
            return next(
                (
                    each
                    for each in found.get("status", {}).get("conditions", [])
                    if each["type"] == "PodGroupInitiallyScheduled"
                    and each["status"] == status
                    and words in each["message"]
                ),
                None,
            )

        condition: dict[str, Any] = told(self.until(NATIVE, "workers", told))
        return condition

    def placed(self) -> int:
        return sum("nodeName" in each["spec"] for each in self.get("pods")["items"])

    def muster(self, *words: str, stdin: str = "") -> str:
        command = [
            sys.executable,
            "-m",
            "muster.cli",
            *words,
            "--kubeconfig",
            str(self.kubeconfig),
            "-n",
            self.namespace,
        ]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr


@pytest.fixture(params=["native", "muster"])
def gang(cluster: Cluster, request: pytest.FixtureRequest) -> Callable[[int, int], None]:
    """Makes a gang, of a minimum and so many pods, of each of the two kinds of PodGroups."""
    native: bool = request.param == "native"
    return lambda minimum, pods: (
        cluster.group(f"{{gang: {{minCount: {minimum}}}}}", pods) if native else cluster.ours(minimum, pods)
    )


def in_phase(cluster: Cluster, phase: str, words: str = "") -> Any:
    """Wait until Muster's group is in a phase, and says so much in a condition; return it."""

    def holds(found: Any) -> bool:
        status = [each.get("status", {}) for each in found["items"]]
        said = [each.get("message", "") for one in status for each in one.get("conditions", [])]
        return [each.get("phase") for each in status] == [phase] and (not words or any(words in each for each in said))

    (group,) = cluster.until(OURS, "", holds)["items"]
    return group


def test_a_gang_of_either_kind_starts_together(cluster: Cluster, gang: Callable[[int, int], None]) -> None:
    gang(3, 3)
    group = in_phase(cluster, "Running")
    assert cluster.placed() == 3
    assert group["status"]["running"] == 3


def test_a_gang_of_either_kind_without_room_waits_whole_and_says_why(
    cluster: Cluster, gang: Callable[[int, int], None]
) -> None:
    gang(5, 5)
    in_phase(cluster, "Pending", "cpu")
    assert cluster.placed() == 0
    why = " ".join(cluster.muster("podgroup", "why", "workers").split())
    assert "PodGroup" in why
    assert "5 pods" in why
    assert "Pending" in cluster.muster("podgroup", "list")


def test_a_gang_of_either_kind_fits_into_the_quota_that_its_pods_fill(
    cluster: Cluster, gang: Callable[[int, int], None]
) -> None:
    cluster.apply(QUOTA)
    gang(3, 3)
    in_phase(cluster, "Running")
    assert cluster.placed() == 3


def test_the_group_follows_its_native_one_from_the_first_pod_to_the_last(cluster: Cluster) -> None:
    cluster.group("{gang: {minCount: 3}}", 3)
    found = cluster.condition("True")
    assert found["reason"] == "Scheduled"
    native = cluster.get(NATIVE, "workers")["metadata"]
    assert found.get("observedGeneration") == native.get("generation")
    (ours,) = cluster.get(OURS)["items"]
    assert (ours["spec"]["minMember"], ours["spec"]["minResources"]) == (3, {"cpu": "3"})
    assert [each["uid"] for each in ours["metadata"]["ownerReferences"]] == [native["uid"]]
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


def test_what_is_not_evaluated_waits_and_says_so(cluster: Cluster) -> None:
    cluster.group("{gang: {minCount: 1}}", 1, spec=", resourceClaims: [{name: gpus, resourceClaimName: shared}]")
    condition = cluster.condition("False", "resourceClaims is not evaluated")
    assert condition["reason"] == "Unschedulable"
    cluster.until(
        "events",
        "",
        lambda found: any(
            each["reason"] == "FailedScheduling" and "resourceClaims is not evaluated" in each["message"]
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
    with ControlPlane(version=older) as plane, up(plane) as config:
        running, waiting = Cluster(config, "running"), Cluster(config, "waiting")
        running.ours(3, 3)
        before = in_phase(running, "Running")
        waiting.ours(3, 3)
        in_phase(waiting, "Pending", "cpu")
        requests = plane.audit_log.read_text()
        assert '"/apis/scheduling.k8s.io/v1beta1' not in requests
        plane.upgrade(binaries.VERSION, GATES[:1])
        assert in_phase(running, "Running")["metadata"]["uid"] == before["metadata"]["uid"]
        assert (running.placed(), waiting.placed()) == (3, 0)
        running.clear()
        in_phase(waiting, "Running")
        waiting.clear()
        # With GenericWorkload alone.
        native = Cluster(config, "native")
        native.group("{gang: {minCount: 3}}", 3)
        native.condition("True")
        assert native.placed() == 3
