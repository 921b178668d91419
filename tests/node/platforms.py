"""Muster as a platform installs it: values of the chart, and questions to the cluster that tests in `full` share."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from installation import Load
from nodes import SPACE, Nodes

from muster.kube import auth
from muster.kube.client import Client
from muster.kube.http import HttpTransport

MONITORING = "monitoring"
_API_SERVERS = ("10.77.0.1/32", "fd77::1/128")
VALUES: dict[str, Any] = {
    # API servers listen on the first node.
    "networkPolicy": {"from": [{"ipBlock": {"cidr": each}} for each in _API_SERVERS]},
    "monitoring": {"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": MONITORING}}}]},
    "webhook": {"replicas": 2, "preStopSeconds": 5, "drainSeconds": 2},
}
PROGRAMS = ("webhook", "scheduler", "certs", "visibility")
_REFUSED = """
apiVersion: batch/v1
kind: Job
metadata: {name: refused, namespace: default, annotations: {scheduling.volcano.sh/queue-name: nowhere}}
spec:
  template:
    spec: {schedulerName: muster, restartPolicy: Never, containers: [{name: main, image: "busybox:1.37"}]}
"""


def items(nodes: Nodes, *words: str) -> list[dict[str, Any]]:
    """Return the objects that `kubectl get` finds."""
    found: list[dict[str, Any]] = json.loads(nodes.kubectl("get", *words, "--output=json"))["items"]
    return found


def pods(nodes: Nodes, component: str = "") -> list[dict[str, Any]]:
    """Return Muster's pods, or those of one program."""
    selected = f"app.kubernetes.io/component={component}" if component else "app.kubernetes.io/name=muster"
    return items(nodes, "pods", "--namespace", SPACE, f"--selector={selected}")


def hosts(pod: dict[str, Any]) -> list[str]:
    """Return a pod's addresses."""
    return [each["ip"] for each in pod["status"]["podIPs"]]


def until(asked: Callable[[], Any], *, seconds: float = 300) -> Any:
    """Return the answer once it is true of anything; asked again and again, since nothing tells."""
    deadline = time.monotonic() + seconds
    while not (found := asked()):
        assert time.monotonic() < deadline, asked
        time.sleep(0.5)
    return found


def settled(nodes: Nodes) -> None:
    """Wait until all that the chart wants runs, and nothing else does."""
    for program in PROGRAMS:
        if nodes.kubectl("get", "deployment", f"muster-{program}", "--namespace", SPACE, "--ignore-not-found"):
            words = ("rollout", "status", f"deployment/muster-{program}", "--namespace", SPACE, "--timeout=300s")
            nodes.kubectl(*words)
    # A rollout is done while those that it replaced still end, and are listed.
    until(lambda: not any("deletionTimestamp" in each["metadata"] for each in pods(nodes)))


def refuses(nodes: Nodes) -> bool:
    """Return whether a Job of a queue that isn't there is refused by Muster."""
    said = nodes.run("kubectl", "create", "--dry-run=server", "-f", "-", stdin=_REFUSED)
    return said.returncode != 0 and 'queue "nowhere"' in said.stderr


def decides(nodes: Nodes, manifest: str, name: str) -> None:
    """Have Muster refuse what it has to, and start a gang whose containers end."""
    until(lambda: refuses(nodes))
    until(lambda: nodes.run("kubectl", "apply", "-f", "-", stdin=manifest).returncode == 0)
    nodes.kubectl("wait", f"job/{name}", "--for=condition=Complete", "--timeout=300s")
    nodes.kubectl("delete", "job", name, "--wait")


def helm(nodes: Nodes, *words: str) -> None:
    """Run helm on Muster's release, and wait until all that it wants runs."""
    done = nodes.run("helm", *words, "--namespace", SPACE, "--wait", "--timeout", "5m")
    assert done.returncode == 0, done.stdout + done.stderr
    settled(nodes)


@contextlib.asynccontextmanager
async def asking(nodes: Nodes) -> AsyncIterator[Load]:
    """Have clients that ask for a review, one after the other; those that are refused are in `failures`."""
    async with HttpTransport(await auth.load(str(nodes.kubeconfig))) as transport:
        clients = Load(Client(transport), "default")
        async with clients.running():
            await clients.another(20)
            yield clients
            await clients.another(20)
