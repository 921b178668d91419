"""What users notice while Muster's own pods go and come: nothing, with clients that ask all the time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator

import pytest
import yaml
from installation import Load
from nodes import SPACE, NodeError
from platforms import asking, pods, settled
from test_gangs import apply, job

pytestmark = pytest.mark.processes


@pytest.fixture
async def load(nodes):
    """Clients that have a PodGroup reviewed, one after the other; those that are refused are in `failures`."""
    async with asking(nodes) as clients:
        yield clients


@contextlib.asynccontextmanager
async def measured(nodes, load: Load, what: str) -> AsyncIterator[None]:
    """Note how long this took, and how many requests were refused of those made meanwhile."""
    begun, made, refused = time.monotonic(), load.made, len(load.failures)
    yield
    nodes.figures[f"{what}, s"] = time.monotonic() - begun
    refused = len(load.failures) - refused
    nodes.figures[f"{what}, refused"] = refused
    nodes.figures[f"{what}, asked"] = load.made - made + refused


async def until(condition, *, seconds: float = 300) -> None:
    """Wait until this is so; it is asked again and again, since nothing tells."""
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, condition
        await asyncio.sleep(0.5)


def leader(nodes) -> str:
    """Return the node of the scheduler that leads; nothing while none does."""
    lease = json.loads(nodes.kubectl("get", "lease", "muster-scheduler", "-n", SPACE, "--output=json"))
    holder = (lease["spec"].get("holderIdentity") or "").partition("_")[0]
    places = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in pods(nodes, "scheduler")}
    return places.get(holder, "")


async def lead_from(nodes, node: str) -> None:
    """Have a scheduler on this node lead, and another wait elsewhere: where one node was late, both may have come to the other."""
    for _ in range(3):
        await until(lambda: leader(nodes))
        places = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in pods(nodes, "scheduler")}
        elsewhere = [name for name, place in places.items() if place != node]
        if leader(nodes) == node and elsewhere:
            return
        moved = elsewhere or sorted(places)[:1]
        await asyncio.to_thread(nodes.kubectl, "delete", "pods", *moved, "-n", SPACE)
        await asyncio.to_thread(settled, nodes)
    raise AssertionError("no scheduler of that node leads beside one elsewhere")


async def applied(nodes, load: Load, manifest: str) -> None:
    """Apply a manifest, again where that is refused, which counts as any refusal.

    The API server keeps idle connections for 90 seconds: the first use of one to a pod that is cut off times out.
    """

    def accepted() -> bool:
        try:
            apply(nodes, manifest)
        except NodeError as error:
            load.failures.append(str(error))
            load.seconds.add(int(time.monotonic()))
            return False
        return True

    await until(accepted)


async def test_a_cut_off_node_with_the_leader_on_it_refuses_for_a_while_and_not_for_good(nodes, load):
    kept, cut = nodes.names
    await lead_from(nodes, cut)
    assert cut in {each["spec"]["nodeName"] for each in pods(nodes, "webhook")}
    link = ("ip", "link", "set", "veth2")
    before = load.made
    try:
        async with measured(nodes, load, "cut link until the node is seen as lost"):
            begun = time.monotonic()
            nodes.inside(*link, "down")
            await until(lambda: leader(nodes) == kept)
            nodes.figures["cut link until another scheduler leads, s"] = time.monotonic() - begun
            await asyncio.to_thread(
                nodes.kubectl, "wait", f"node/{cut}", "--for=condition=Ready=Unknown", "--timeout=300s"
            )
            await load.another(100)
        await applied(nodes, load, job("beside", ["true"]))
        await asyncio.to_thread(nodes.kubectl, "wait", "job/beside", "--for=condition=Complete", "--timeout=300s")
    finally:
        nodes.inside(*link, "up")
    nodes.figures["cut link, seconds with a refusal"] = len(load.seconds)
    # How many seconds is a figure; that most were answered meanwhile, from the replica beside it, is the promise.
    assert len(load.failures) <= (load.made - before) // 10, load.failures
    await asyncio.to_thread(nodes.kubectl, "wait", f"node/{cut}", "--for=condition=Ready", "--timeout=300s")
    await asyncio.to_thread(settled, nodes)
    load.failures.clear()
    await load.another(100)
    assert load.failures == []
    nodes.kubectl("delete", "job", "beside", "--wait")


async def test_nobody_is_refused_while_all_pods_are_replaced(nodes, load):
    before = {each["metadata"]["uid"]: each["metadata"]["name"] for each in pods(nodes, "webhook")}
    async with measured(nodes, load, "rolling upgrade"):
        await asyncio.to_thread(nodes.kubectl, "rollout", "restart", "deployment", "--namespace", SPACE)
        await asyncio.to_thread(settled, nodes)
        gone = [f"pod/{name}" for name in before.values()]
        await asyncio.to_thread(nodes.kubectl, "wait", *gone, "--namespace", SPACE, "--for=delete", "--timeout=300s")
        await load.another(100)
    assert not before.keys() & {each["metadata"]["uid"] for each in pods(nodes, "webhook")}
    assert load.failures == []


async def test_nobody_is_refused_while_a_node_is_drained(nodes, load):
    name = nodes.names[-1]
    drain = ("drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s")
    try:
        async with measured(nodes, load, "drain"):
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
    async with measured(nodes, load, "kill -9 of a webhook"):
        await asyncio.to_thread(nodes.inside, *kill)
        restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
        await asyncio.to_thread(nodes.kubectl, "wait", f"pod/{name}", "--namespace", SPACE, restarted, "--timeout=300s")
        await asyncio.to_thread(settled, nodes)
        await load.another(100)
    # What was in flight with the killed process, and what came before the kubelet saw that it was gone.
    assert len(load.failures) <= (load.made - before) // 10
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
    async with measured(nodes, load, "rotation of the CA with waits of 5 s"):
        await asyncio.to_thread(nodes.kubectl, *words)
        await load.another(100)
    after = set(authorities(nodes).split())
    assert len(before) == len(after) == 1
    assert before != after
    assert load.failures == []


def followed(nodes) -> dict[str, list[str]]:
    """Return the actions that each scheduler follows, oldest first, by its pod."""
    found = {}
    for each in pods(nodes, "scheduler"):
        name = each["metadata"]["name"]
        lines = nodes.kubectl("logs", name, "--namespace", SPACE).splitlines()
        said = [json.loads(line)["message"] for line in lines if line.startswith("{")]
        found[name] = [each.rpartition(": ")[2] for each in said if each.startswith("following ")]
    return found


async def test_a_changed_configuration_is_followed_through_real_volumes_and_nobody_is_refused(nodes, load):
    shown = nodes.kubectl("get", "configmap", "muster-scheduler", "-n", SPACE, "--output=json")
    before = json.loads(shown)["data"]["scheduler.yaml"]
    settings = yaml.safe_load(before)
    actions = [each.strip() for each in settings["actions"].split(",")]
    fewer = ", ".join(each for each in actions if each != "reclaim")
    changed = {"data": {"scheduler.yaml": yaml.safe_dump(settings | {"actions": fewer})}}
    patch = ("patch", "configmap", "muster-scheduler", "-n", SPACE, "--type=merge", "--patch")
    try:
        async with measured(nodes, load, "change of the scheduler's configuration"):
            await asyncio.to_thread(nodes.kubectl, *patch, json.dumps(changed))
            await until(lambda: {each[-1] for each in followed(nodes).values()} == {fewer})
            await load.another(100)
    finally:
        nodes.kubectl(*patch, json.dumps({"data": {"scheduler.yaml": before}}))
    assert {each["status"]["containerStatuses"][0]["restartCount"] for each in pods(nodes, "scheduler")} == {0}
    assert load.failures == []
