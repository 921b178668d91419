"""What users notice while Muster's own pods go and come: nothing, with clients that ask all the time."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from installation import Load

from muster.kube import auth
from muster.kube.client import Client
from muster.kube.http import HttpTransport

pytestmark = pytest.mark.processes

SPACE = "muster-system"


@pytest.fixture
async def load(nodes):
    """Clients that have a PodGroup reviewed, one after the other; those that are refused are in `failures`."""
    async with HttpTransport(await auth.load(str(nodes.kubeconfig))) as transport:
        clients = Load(Client(transport), "default")
        async with clients.running():
            await clients.another(20)
            yield clients
            await clients.another(20)


def pods(nodes, component: str) -> list[dict]:
    words = ("get", "pods", "--namespace", SPACE, f"--selector=app.kubernetes.io/component={component}")
    return json.loads(nodes.kubectl(*words, "--output=json"))["items"]


def settled(nodes) -> None:
    """Wait until all that the chart wants runs, and nothing else does."""
    for program in ("webhook", "scheduler", "certs"):
        nodes.kubectl("rollout", "status", f"deployment/muster-{program}", "--namespace", SPACE, "--timeout=180s")


async def test_nobody_is_refused_while_all_pods_are_replaced(nodes, load):
    before = {each["metadata"]["uid"] for each in pods(nodes, "webhook")}
    words = ("rollout", "restart", "deployment", "--namespace", SPACE)
    await asyncio.to_thread(nodes.kubectl, *words)
    await asyncio.to_thread(settled, nodes)
    gone = ("wait", "pods", "--namespace", SPACE, "--for=delete", "--timeout=120s")
    names = [f"pod/{each['metadata']['name']}" for each in pods(nodes, "webhook") if each["metadata"]["uid"] in before]
    if names:
        await asyncio.to_thread(nodes.kubectl, gone[0], *names, *gone[2:])
    await load.another(100)
    assert not before & {each["metadata"]["uid"] for each in pods(nodes, "webhook")}
    assert load.failures == []


async def test_nobody_is_refused_while_a_node_is_drained(nodes, load):
    name = nodes.names[-1]
    drain = ("drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
    try:
        await asyncio.to_thread(nodes.kubectl, *drain)
        await asyncio.to_thread(settled, nodes)
        await load.another(100)
        assert {each["spec"]["nodeName"] for each in pods(nodes, "webhook")} == {nodes.names[0]}
    finally:
        nodes.kubectl("uncordon", name)
    assert load.failures == []


async def test_nobody_is_refused_for_good_when_a_webhook_is_killed(nodes, load):
    (victim, *_) = pods(nodes, "webhook")
    name = victim["metadata"]["name"]
    container = victim["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    node = victim["spec"]["nodeName"]
    socket = str(nodes.folder / node / "containerd.sock")
    kill = ("ctr", "--address", socket, "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", container)
    before = load.made
    await asyncio.to_thread(nodes.inside, *kill)
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    await asyncio.to_thread(nodes.kubectl, "wait", f"pod/{name}", "--namespace", SPACE, restarted, "--timeout=120s")
    await asyncio.to_thread(settled, nodes)
    await load.another(100)
    refused = len(load.failures)
    nodes.figures["refused after kill -9 of a webhook"] = refused
    # What was in flight with the killed process, and what came before the kubelet saw that it was gone.
    assert refused <= (load.made - before) // 10
    load.failures.clear()
    await load.another(100)
    assert load.failures == []


def authorities(nodes) -> str:
    """Return what the webhooks' callers trust."""
    return nodes.kubectl("get", "validatingwebhookconfiguration", "muster", "--output=jsonpath={..caBundle}")


async def test_nobody_is_refused_while_the_ca_is_replaced_through_real_volumes(nodes, load):
    before = set(authorities(nodes).split())
    command = ("muster", "certs", "rotate-ca", "--publish-wait", "5s", "--soak", "5s")
    words = ("exec", "--namespace", SPACE, "deployment/muster-certs", "--", *command)
    begun = time.monotonic()
    await asyncio.to_thread(nodes.kubectl, *words)
    nodes.figures["rotation of the CA with waits of 5 s, s"] = time.monotonic() - begun
    await load.another(100)
    after = set(authorities(nodes).split())
    assert len(before) == len(after) == 1
    assert before != after
    assert load.failures == []
