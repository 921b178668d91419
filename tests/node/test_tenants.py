"""What a tenant asks the visibility API on real nodes, with the chart's defaults, through the API server's aggregation."""

from __future__ import annotations

import json
import time

import pytest
from nodes import SPACE, NodeError

pytestmark = pytest.mark.processes

ROOT = "/apis/visibility.muster.sh/v1alpha1"
_GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: train, namespace: tenants}
spec: {minMember: 1, minResources: {cpu: "1000"}}
"""


@pytest.fixture
def tenant(nodes) -> str:
    """The name of an account with the role edit in namespace tenants."""
    nodes.kubectl("create", "namespace", "tenants")
    nodes.kubectl("create", "serviceaccount", "alice", "--namespace=tenants")
    nodes.kubectl(
        "create", "rolebinding", "alice", "--clusterrole=edit", "--serviceaccount=tenants:alice", "--namespace=tenants"
    )
    nodes.kubectl("apply", "-f", "-", stdin=_GROUP)
    return "system:serviceaccount:tenants:alice"


def test_a_tenant_is_told_why_a_group_waits_while_the_leader_is_gone_and_the_namespace_is_deleted_at_once(
    nodes, tenant
):
    question = ("get", "--raw", f"{ROOT}/namespaces/tenants/podgroups/train/why", f"--as={tenant}")
    nodes.kubectl("wait", "apiservice/v1alpha1.visibility.muster.sh", "--for=condition=Available", "--timeout=120s")
    answered(nodes, *question)
    nodes.kubectl("scale", "deployment/muster-scheduler", "--replicas=0", "--namespace", SPACE)
    try:
        nodes.kubectl(
            *("wait", "pods", "--selector=app.kubernetes.io/component=scheduler", "--for=delete"),
            *("--namespace", SPACE, "--timeout=120s"),
        )
        told = answered(nodes, *question)["status"]
        assert (told["queue"], told["position"]) == ("default", 1)
        with pytest.raises(NodeError, match="cannot"):
            nodes.kubectl("get", "--raw", f"{ROOT}/namespaces/default/podgroups/train/why", f"--as={tenant}")
        nodes.kubectl("delete", "namespace", "tenants", "--timeout=10s")
    finally:
        nodes.kubectl("scale", "deployment/muster-scheduler", "--replicas=2", "--namespace", SPACE)
        nodes.kubectl("rollout", "status", "deployment/muster-scheduler", "--namespace", SPACE, "--timeout=300s")


def answered(nodes, *question: str) -> dict:
    """Return the answer once there is one: roles are collected by a controller, and caches fill."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return json.loads(nodes.kubectl(*question))
        except NodeError:
            assert time.monotonic() < deadline
            time.sleep(1)
