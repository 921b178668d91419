"""Jobs, Deployments, pods and nodes: what runs on the simulated nodes, as kubectl shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest

Kubectl = Any

RUN = "sandbox.muster.sh/run-seconds"


def template(node: str, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "x"}, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "busybox"}]},
    }


def deployment(node: str, replicas: int, image: str = "busybox") -> str:
    pods = template(node)
    pods["spec"]["containers"][0]["image"] = image
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "template": pods}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})


def job(node: str, seconds: int = 1, **spec: Any) -> str:
    pods = template(node, **{RUN: str(seconds)})
    pods["spec"]["restartPolicy"] = "Never"
    return json.dumps(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {**spec, "template": pods},
        }
    )


@pytest.fixture
def running(kubectl: Kubectl, node: str) -> str:
    """Name of a pod that runs."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": template(node)["spec"]}
    kubectl("create", "-f", "-", stdin=json.dumps(pod))
    kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=100s")
    return "p"


def test_a_pod_is_listed_and_described(kubectl: Kubectl, node: str, running: str) -> None:
    header, row = kubectl("get", "pods", "-o", "wide").words
    assert header[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["p", "1/1", "Running", "0"]
    assert node in row
    described = kubectl("describe", "pod", "p").out
    assert f"Node:             {node}" in described
    assert "Status:           Running" in described
    assert kubectl("get", "pods", "--field-selector", f"spec.nodeName={node},status.phase=Running", "-o", "name").lines


def test_a_pod_is_deleted_once_its_kubelet_lets_go(kubectl: Kubectl, running: str) -> None:
    kubectl("delete", "pod", running, "--grace-period=1", "--timeout=100s")
    assert "not found" in kubectl.fails("get", "pod", running)


def test_a_node_is_listed_described_and_cordoned(kubectl: Kubectl, node: str, running: str) -> None:
    assert kubectl("get", "node", node).words[1][1] == "Ready"
    described = kubectl("describe", "node", node).out
    assert kubectl.namespace in described
    assert kubectl("cordon", node).out == f"node/{node} cordoned\n"
    assert kubectl("get", "node", node).words[1][1] == "Ready,SchedulingDisabled"
    assert kubectl("uncordon", node).out == f"node/{node} uncordoned\n"


def test_a_job_runs_to_its_end(kubectl: Kubectl, node: str) -> None:
    kubectl("create", "-f", "-", stdin=job(node, completions=2, parallelism=2))
    kubectl("wait", "--for=condition=Complete", "job/j", "--timeout=100s")
    header, row = kubectl("get", "job", "j").words
    assert header == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert row[:3] == ["j", "Complete", "2/2"]
    assert {row[2] for row in kubectl("get", "pods", "--no-headers").words} == {"Completed"}
    described = kubectl("describe", "job", "j").out
    assert "2 Succeeded" in described
    assert "SuccessfulCreate" in described
    # What it is told of by events follows what its status says.
    kubectl("wait", "--for=create", "events", "--field-selector=reason=Completed", "--timeout=100s")
    assert "Completed" in kubectl("events", "--for", "job/j").out


def test_a_suspended_job_waits_until_it_is_resumed(kubectl: Kubectl, node: str) -> None:
    kubectl("create", "-f", "-", stdin=job(node, suspend=True))
    kubectl("wait", "--for=condition=Suspended", "job/j", "--timeout=100s")
    assert kubectl("get", "job", "j").words[1][:3] == ["j", "Suspended", "0/1"]
    kubectl("patch", "job", "j", "-p", '{"spec":{"suspend":false}}')
    kubectl("wait", "--for=condition=Complete", "job/j", "--timeout=100s")


def test_a_job_takes_its_pods_along(kubectl: Kubectl, node: str) -> None:
    kubectl("create", "-f", "-", stdin=job(node, seconds=3600))
    kubectl("wait", "--for=jsonpath={.status.active}=1", "job/j", "--timeout=100s")
    kubectl("delete", "job", "j", "--cascade=foreground", "--timeout=100s")
    assert kubectl.run("get", "pods").err.startswith("No resources found")


def test_a_deployment_rolls_out_scales_and_rolls_again(kubectl: Kubectl, node: str) -> None:
    kubectl("apply", "-f", "-", stdin=deployment(node, 2))
    done = kubectl("rollout", "status", "deployment/d", "--timeout=100s")
    assert done.lines[-1] == 'deployment "d" successfully rolled out'
    assert kubectl("get", "deployment", "d").words[1][:4] == ["d", "2/2", "2", "2"]
    assert kubectl("scale", "deployment/d", "--replicas=3").out == "deployment.apps/d scaled\n"
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=3", "deployment/d", "--timeout=100s")
    kubectl("apply", "-f", "-", stdin=deployment(node, 3, image="other"))
    kubectl("rollout", "status", "deployment/d", "--timeout=100s")
    images = kubectl("get", "pods", "--field-selector", "status.phase=Running", "-o", "jsonpath={..image}").out
    assert "other" in images
    assert kubectl("get", "replicasets", "--no-headers").words
    assert "NewReplicaSet:" in kubectl("describe", "deployment", "d").out
    kubectl("rollout", "restart", "deployment/d")
    kubectl("rollout", "status", "deployment/d", "--timeout=100s")


def test_a_quota_is_charged_and_kept(kubectl: Kubectl, running: str) -> None:
    kubectl("create", "quota", "q", "--hard=pods=1")
    kubectl("wait", "--for=jsonpath={.status.used.pods}=1", "quota/q", "--timeout=100s")
    header, *row = kubectl("get", "quota", "q").lines
    assert header.split() == ["NAME", "REQUEST", "LIMIT", "AGE"]
    assert "pods: 1/1" in row[0]
    said = kubectl.fails("run", "second", "--image=busybox")
    assert said == (
        'Error from server (Forbidden): pods "second" is forbidden: exceeded quota: q, requested: pods=1, '
        "used: pods=1, limited: pods=1"
    )


def test_an_unscheduled_pod_has_no_logs_yet(kubectl: Kubectl, node: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "w"},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "busybox"}]},
    }
    kubectl("create", "-f", "-", stdin=json.dumps(pod))
    assert kubectl("get", "pod", "w").words[1][:3] == ["w", "0/1", "Pending"]
    assert kubectl("logs", "w").out == ""
