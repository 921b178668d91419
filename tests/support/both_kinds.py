"""Groups of both kinds on a control plane of Kubernetes 1.37: PodGroups of Kubernetes' own, and Muster's."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import binaries
import pytest
from controlplane import ControlPlane
from running import kubectl, muster_up

GATES = (
    "GenericWorkload",
    "TopologyAwareWorkloadScheduling",
    "PodGroupPreemptionPolicy",
    "DRAWorkloadResourceClaims",
    "WorkloadWithJob",
    "CompositePodGroup",
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


def native(policy: str, pods: Sequence[int], cpu: str = "1", queue: str = "default", spec: str = "") -> str:
    """Write a native group and its pods."""
    group = GROUP.replace("POLICY", policy).replace("MORE", spec).replace("QUEUE", queue)
    return group + "".join(POD.replace("NAME", f"w-{each}").replace("CPU", cpu) for each in pods)


def ours(minimum: int, pods: int, queue: str = "default") -> str:
    """Write a group of Muster's and its pods."""
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "workers"}}
    spec = {"minMember": minimum, "queue": queue, "minResources": {"cpu": str(minimum)}}
    pod = POD.replace("CPU", "1").replace("  schedulingGroup: {podGroupName: workers}\n", "")
    pod = pod.replace("NAME}", "NAME, annotations: {scheduling.k8s.io/group-name: workers}}")
    text = "# YAML\n" + json.dumps(group | {"spec": spec}) + "\n"
    return text + "".join(pod.replace("NAME", f"w-{each}") for each in range(pods))


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


class Cluster:
    """What a test does in its namespace."""

    def __init__(self, kubeconfig: Path, namespace: str = "") -> None:
        self.kubeconfig, self.namespace = kubeconfig, namespace or f"story-{next(_NUMBERS)}"
        assert kubectl(kubeconfig, "create", "namespace", self.namespace).returncode == 0
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
        self.apply(native(policy, range(pods), cpu, queue, spec))

    def ours(self, minimum: int, pods: int) -> None:
        """Make a group of Muster's and its pods."""
        self.apply(ours(minimum, pods))

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


def in_phase(cluster: Cluster, phase: str, words: str = "") -> Any:
    """Wait until Muster's group is in a phase, and says so much in a condition; return it."""

    def holds(found: Any) -> bool:
        status = [each.get("status", {}) for each in found["items"]]
        said = [each.get("message", "") for one in status for each in one.get("conditions", [])]
        return [each.get("phase") for each in status] == [phase] and (not words or any(words in each for each in said))

    (group,) = cluster.until(OURS, "", holds)["items"]
    return group
