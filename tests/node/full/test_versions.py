"""The version before this one beside this one: upgrade, both at once, downgrade, with clients that ask all the time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import images
import pytest
from installation import Load
from nodes import SPACE
from platforms import asking, decides, helm, items, pods, until
from test_gangs import job

pytestmark = pytest.mark.processes

_BESIDE = ("webhook", "scheduler")
_CONFIGURATIONS = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
_QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: compute, namespace: skewed}
spec: {hard: {cpu: "5"}}
"""


@pytest.fixture(scope="module")
def skewed(dual, former):
    """The cluster with the version before this one; at the end nothing of the test's own is left."""
    helm(dual, "uninstall", "muster")
    # What this version keeps for an installation that comes back, a cluster of the former one doesn't have.
    kept = ("muster-webhook-path", "muster-webhook-ca", "muster-webhook-tls")
    dual.kubectl("delete", "secret", *kept, "--namespace", SPACE, "--ignore-not-found")
    image, _, tag = images.FORMER.partition(":")
    chart = str(former.sources / "deploy" / "helm" / "muster")
    quicker = "webhook.replicas=2,webhook.preStopSeconds=5,webhook.drainSeconds=2"
    helm(dual, "install", "muster", chart, "--set", f"image.repository={image},image.tag={tag},{quicker}")
    dual.kubectl("create", "namespace", "skewed")
    dual.kubectl("apply", "-f", "-", stdin=_QUOTA)
    yield dual
    dual.kubectl("delete", "namespace", "skewed")


@pytest.fixture
async def load(skewed) -> AsyncIterator[Load]:
    async with asking(skewed) as clients:
        yield clients


def versions(nodes, component: str) -> set[str]:
    return {each["spec"]["containers"][0]["image"] for each in pods(nodes, component)}


def former_beside(nodes) -> list[str]:
    """Return Deployments of the version before, as they are, by other names: they stay whatever Helm does with its own."""
    found = []
    for component in _BESIDE:
        words = ("get", "deployment", f"muster-{component}", "--namespace", SPACE, "--output=json")
        deployment = json.loads(nodes.kubectl(*words))
        labels = deployment["spec"]["template"]["metadata"]["labels"] | {"beside": "former"}
        deployment["spec"]["template"]["metadata"]["labels"] = deployment["spec"]["selector"]["matchLabels"] = labels
        deployment["spec"]["replicas"] = 1
        deployment["metadata"] = {"name": f"former-{component}", "namespace": SPACE}
        del deployment["status"]
        found.append(json.dumps(deployment))
    return found


def small(name: str) -> dict[str, Any]:
    """Return a gang of two that takes 2 of the quota's 5 cpu."""
    manifest = job(name, ["sleep", "3600"], resources={"requests": {"cpu": "1"}})
    return manifest.replace("namespace: default", "namespace: skewed")


def asked(nodes, count: int, prefix: str) -> list[str]:
    """Return what the API server says to so many Jobs that are applied at once; nothing of those that it takes."""
    said = []
    for number in range(count):
        done = nodes.run("kubectl", "apply", "-f", "-", stdin=small(f"{prefix}-{number}"))
        said.append(done.stderr if done.returncode else "")
    return said


def runs(nodes, name: str) -> None:
    words = ("wait", f"job/{name}", "--for=jsonpath={.status.ready}=2", "--namespace=skewed", "--timeout=300s")
    nodes.kubectl(*words)


def full(said: list[str]) -> bool:
    """Return whether every one of these was refused for the quota, by what is reserved of it."""
    return all('quota "compute" has 5 cpu hard, 4 reserved' in each for each in said)


def jobs(nodes) -> list[str]:
    return sorted(each["metadata"]["name"] for each in items(nodes, "jobs", "--namespace=skewed"))


def leads(nodes, label: str) -> None:
    """Have a scheduler with this image lead, by ending others that do."""

    def led() -> bool:
        lease = json.loads(nodes.kubectl("get", "lease", "muster-scheduler", "-n", SPACE, "--output=json"))
        holder = (lease["spec"].get("holderIdentity") or "").partition("_")[0]
        found = {each["metadata"]["name"]: each["spec"]["containers"][0]["image"] for each in pods(nodes, "scheduler")}
        if holder in found and found[holder] != label:
            nodes.kubectl("delete", "pod", holder, "--namespace", SPACE, "--wait=false")
        return found.get(holder) == label

    until(led)


async def quiet(load: Load, *, seconds: float = 300) -> None:
    """Wait until nobody is refused any more."""
    deadline = time.monotonic() + seconds
    while True:
        load.failures.clear()
        await load.another(50)
        if not load.failures:
            return
        assert time.monotonic() < deadline, load.failures[-1]


async def test_both_versions_share_ledgers_labels_and_leases_and_an_upgrade_refuses_nobody(skewed, load, figures):
    """One story, since each step begins with what the last one left."""
    aside = asyncio.to_thread
    beside = await aside(former_beside, skewed)
    assert await aside(asked, skewed, 1, "former") == [""]
    await aside(runs, skewed, "former-0")

    # The new version beside the former: Helm replaces its own Deployments, and one former replica of each program stays.
    for each in beside:
        await aside(skewed.kubectl, "apply", "-f", "-", stdin=each)
    for each in _BESIDE:
        await aside(skewed.kubectl, "rollout", "status", f"deployment/former-{each}", "-n", SPACE, "--timeout=300s")
    upgrade = (
        "upgrade",
        "muster",
        "deploy/helm/muster",
        "--reset-then-reuse-values",
        "--set",
        f"image.tag={images.MUSTER.partition(':')[2]}",
    )
    await aside(helm, skewed, *upgrade)
    for each in _BESIDE:
        assert await aside(versions, skewed, each) == {images.FORMER, images.MUSTER}
    # One more fits, whoever is asked; all others are refused by what both versions have reserved.
    said = await aside(asked, skewed, 8, "both")
    assert said.count("") == 1, said
    assert full([each for each in said if each]), said
    for image in (images.FORMER, images.MUSTER, images.FORMER):
        await aside(leads, skewed, image)
        await aside(decides, skewed, job("led", ["true"]), "led")
    assert load.failures == []
    both = await aside(jobs, skewed)
    for each in both:
        await aside(runs, skewed, each)

    # The new version alone, then the former one again, then the new one.
    await aside(skewed.kubectl, "delete", "deployment", *(f"former-{each}" for each in _BESIDE), "-n", SPACE)
    # Until the leader has corrected a path that Helm put back, reviews fail for some seconds, as docs/install.md says.
    for what, step, image in (
        ("downgrade", ("rollback", "muster", "1"), images.FORMER),
        ("upgrade", upgrade, images.MUSTER),
    ):
        load.seconds.clear()
        if what == "downgrade":
            # As docs/install.md says: what the former version hasn't of webhooks, Helm can't take out.
            await aside(skewed.kubectl, "delete", _CONFIGURATIONS, "muster")
        await aside(helm, skewed, *step)
        # Those that go serve on for a while.
        await aside(until, lambda only=image: versions(skewed, "webhook") == {only})
        await quiet(load)
        figures[f"{what} after both versions, seconds with a refusal"] = len(load.seconds)
        said = await aside(asked, skewed, 2, "after")
        assert full(said), said
        await aside(decides, skewed, job("led", ["true"]), "led")
        assert load.failures == []
    assert await aside(jobs, skewed) == both
    for each in both:
        await aside(runs, skewed, each)
    figures["upgrade, both at once, downgrade and upgrade: reviews"] = load.made
