"""Gangs in one rack, as their users ask for it with kubectl, under the shipped configuration."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from running import Up, kubectl

PATIENCE = 90.0
RACKS = {"r1": 2, "r2": 3}
SLOTS = {"example.com/slots": "2"}


def hypernode(namespace: str, rack: str) -> dict[str, Any]:
    members = [{"type": "Node", "selector": {"regexMatch": {"pattern": f"^{namespace}-{rack}-"}}}]
    spec = {"tier": 1, "tierName": "rack", "members": members}
    metadata = {"name": f"{namespace}-{rack}"}
    return {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": metadata, "spec": spec}


def node(namespace: str, rack: str, number: int) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110", **SLOTS}
    metadata = {
        "name": f"{namespace}-{rack}-{number}",
        "labels": {"story": namespace},
        "annotations": {"kwok.x-k8s.io/node": "fake"},
    }
    status = {"capacity": amounts, "allocatable": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def template(namespace: str, name: str, pods: int) -> dict[str, Any]:
    requests = {"example.com/slots": "1"}
    return {
        "metadata": {
            "labels": {"app": name},
            "annotations": {
                "scheduling.k8s.io/group-min-member": str(pods),
                "sandbox.muster.sh/run-seconds": "3600",
                "volcano.sh/network-topology-mode": "hard",
                "volcano.sh/network-topology-highest-tier": "1",
            },
        },
        "spec": {
            "schedulerName": "muster",
            "nodeSelector": {"story": namespace},
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {"name": "main", "image": "busybox", "resources": {"requests": requests, "limits": requests}}
            ],
        },
    }


def job(namespace: str, name: str, pods: int) -> dict[str, Any]:
    made = template(namespace, name, pods)
    made["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": pods, "completions": pods, "template": made}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def deployment(namespace: str, name: str, pods: int) -> dict[str, Any]:
    spec = {"replicas": pods, "selector": {"matchLabels": {"app": name}}, "template": template(namespace, name, pods)}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@pytest.fixture
def apply(up: Up, namespace: str) -> Iterator[Callable[..., None]]:
    def applied(*objects: dict[str, Any]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        done = kubectl(up.kubeconfig, "apply", "-f", "-", stdin=json.dumps(listed))
        assert done.returncode == 0, done.stdout

    applied(*[hypernode(namespace, rack) for rack in RACKS])
    applied(*[node(namespace, rack, number) for rack, count in RACKS.items() for number in range(count)])
    seen(up, '"example.com/slots":"6"')
    yield applied
    kubectl(up.kubeconfig, "delete", "nodes", "-l", f"story={namespace}", "--wait=false")
    kubectl(up.kubeconfig, "delete", "hypernodes", *[f"{namespace}-{rack}" for rack in RACKS])


def seen(up: Up, words: str) -> None:
    """Wait until the scheduler has said so of the network: before, admission refuses what it doesn't know of."""
    end, found = time.monotonic() + PATIENCE, ""
    while words not in found and time.monotonic() < end:
        answer = kubectl(
            up.kubeconfig, "get", "queues.scheduling.volcano.sh", "default", "-o", "jsonpath={.status.networkTiers}"
        )
        found = answer.stdout
    assert words in found


def racks_of(up: Up, namespace: str, name: str, pods: int) -> set[str]:
    """Wait until so many pods have a node; return their racks."""
    end, found = time.monotonic() + PATIENCE, list[str]()
    while time.monotonic() < end:
        answer = kubectl(
            up.kubeconfig, "get", "pods", "-n", namespace, "-l", f"app={name}", "-o", "jsonpath={..spec.nodeName}"
        )
        found = answer.stdout.split()
        if len(found) == pods:
            break
        time.sleep(1)
    assert len(found) == pods, found
    return {each.removeprefix(f"{namespace}-").partition("-")[0] for each in found}


def test_gangs_of_a_deployment_and_of_jobs_start_in_one_rack_each_and_wait_where_none_has_room(
    up: Up, namespace: str, apply: Callable[..., None]
) -> None:
    def muster(*words: str) -> str:
        command = [sys.executable, "-m", "muster.cli", *words, "--kubeconfig", str(up.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert not done.returncode, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    apply(deployment(namespace, "web", 5))
    assert racks_of(up, namespace, "web", 5) == {"r2"}
    apply(job(namespace, "train", 3))
    assert racks_of(up, namespace, "train", 3) == {"r1"}
    assert f"{namespace}-r2 1 rack 3" in muster("topology", "view")

    apply(job(namespace, "late", 2))
    words = f"no rack has 2 example.com/slots free for 2 pods: the best, {namespace}-r1, has 1 example.com/slots"
    end, answer = time.monotonic() + PATIENCE, ""
    while words not in answer and time.monotonic() < end:
        answer = muster("why", "job/late", "-n", namespace)
    assert words in answer
    kubectl(up.kubeconfig, "delete", "deployment", "web", "-n", namespace)
    assert racks_of(up, namespace, "late", 2) == {"r2"}


def podgroup(namespace: str, name: str, pods: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": pods, "minResources": {"example.com/slots": str(pods)}, **spec},
    }


def test_what_no_rack_can_ever_hold_is_refused_whatever_it_is_written_as(
    up: Up, namespace: str, apply: Callable[..., None]
) -> None:
    large, near = "it needs 7 example.com/slots in one rack", {"mode": "hard", "highestTierAllowed": 1}
    apps = deployment(namespace, "web", 7)
    stateful = apps | {
        "kind": "StatefulSet",
        "spec": apps["spec"] | {"serviceName": "", "podManagementPolicy": "Parallel"},
    }
    elsewhere = job(namespace, "train", 2)
    elsewhere["spec"]["template"]["metadata"]["annotations"]["volcano.sh/network-topology-highest-tier"] = "row"
    stages = {"name": "stage", "subGroupSize": 500, "minSubGroups": 1, "networkTopology": near}
    for one, words in (
        (job(namespace, "train", 7), large),
        (apps, large),
        (stateful, large),
        (podgroup(namespace, "gang", 7, networkTopology=near), large),
        (
            podgroup(namespace, "gang", 1, subGroupPolicy=[stages]),
            'a subgroup "stage" never starts: it needs 500 pods in one rack',
        ),
        (
            elsewhere,
            'tier "row" (annotation volcano.sh/network-topology-highest-tier) does not exist: the network has 1 (rack)',
        ),
    ):
        done = kubectl(up.kubeconfig, "apply", "-f", "-", stdin=json.dumps(one))
        assert done.returncode, one["kind"]
        assert words in done.stdout, (one["kind"], done.stdout)
        command = [sys.executable, "-m", "muster.cli", "admit", "-f", "-", "--kubeconfig", str(up.kubeconfig)]
        asked = subprocess.run(command, input=json.dumps(one), capture_output=True, text=True, check=False, timeout=120)
        assert asked.returncode == 1, asked.stdout + asked.stderr
        assert words in " ".join(asked.stdout.split()), asked.stdout
    apply(podgroup(namespace, "gang", 6, networkTopology=near))
