"""Workloads with all webhooks in front: reserved when they are applied, and by their group from then on."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
from plane import Plane
from workloads import deployment, group

from muster.kube import errors
from muster.model import kinds, names
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions


@pytest.fixture
async def guarded(world, plane: Plane):
    """The world with all webhooks in front, in a guarded namespace under a quota of 10 cpu."""
    async with AsyncExitStack() as stack:
        await plane.client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}}, manager="test")
        labels = {"metadata": {"labels": {names.QUOTA_MODE: names.GUARDED}}}
        await plane.client.patch(kinds.NAMESPACES, world.namespace, labels)
        options = WebhookOptions(plane.certificate, ListenOptions("127.0.0.1", 0, 0.0))
        server = await stack.enter_async_context(serving(await plane.connect(), plane.clock, options))
        await plane.register(server, namespace=world.namespace)
        stack.push_async_callback(plane.unregister)
        stack.push_async_callback(world.stop)
        spec = {"hard": {"requests.cpu": "10"}}
        await world.create({"kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": spec})
        await world.becomes(kinds.RESOURCEQUOTAS, "team", lambda found: found.status.hard)
        yield world


async def refused(world: Any, kind: Any, manifest: dict[str, Any]) -> str:
    with pytest.raises(errors.ForbiddenError) as error:
        await world.client.create(kind, manifest, world.namespace)
    return error.value.message


async def test_a_deployment_reserves_when_it_is_applied_and_its_group_takes_that_over(guarded):
    await guarded.node("16")
    assert "short by 2 requests.cpu" in await refused(guarded, kinds.DEPLOYMENTS, deployment("large", 12))
    # No worker yet: what is reserved is the Deployment's own.
    made = await guarded.client.create(kinds.DEPLOYMENTS, deployment("web", 6), guarded.namespace)
    text = await refused(guarded, kinds.PODGROUPS, group("other", minMember=1, minResources={"cpu": "5"}))
    assert "6 reserved" in text
    await guarded.work()
    running = await guarded.phase(f"podgroup-{made.metadata.uid}", "Running")
    assert running.spec.min_resources == {"cpu": "6"}
    assert len(await guarded.pods()) == 6

    async def taken_over():
        ledger = await guarded.client.get(kinds.QUOTALEDGERS, names.LEDGER_NAME, guarded.namespace)
        return ledger.data.summary == "team requests.cpu 6/10" and not ledger.data.rows

    await guarded.until(taken_over)
    text = await refused(guarded, kinds.PODGROUPS, group("other", minMember=1, minResources={"cpu": "5"}))
    assert "6 reserved" in text
    await guarded.client.create(
        kinds.PODGROUPS, group("other", minMember=1, minResources={"cpu": "4"}), guarded.namespace
    )
    # What grows is judged at once, and the group grows with it.
    grows = {"spec": {"template": {"metadata": {"annotations": {names.GROUP_MIN_MEMBER: "7"}}}}}
    with pytest.raises(errors.ForbiddenError, match=r"short by 1 requests\.cpu"):
        await guarded.patch(kinds.DEPLOYMENTS, "web", grows)
    await guarded.client.delete(kinds.PODGROUPS, "other", guarded.namespace)
    await guarded.client.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 7}}, guarded.namespace)

    async def grown():
        try:
            return await guarded.patch(kinds.DEPLOYMENTS, "web", grows)
        except errors.ForbiddenError:
            return None  # the replica has yet to see that the other group is gone

    await guarded.until(grown)
    await guarded.becomes(kinds.PODGROUPS, running.name, lambda found: found.spec.min_member == 7)
