"""Pods that slip into a namespace before the label for which API servers call the webhooks."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest

from muster.kube import errors
from muster.ledger import windows
from muster.model import kinds, names
from webhooks.caches import CachedView
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions

QUOTA = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "10"}}}
GROUP = {"metadata": {"name": "gang"}, "spec": {"minMember": 6, "queue": "default", "minResources": {"pods": "6"}}}
READY = {"metadata": {"name": "gang"}, "spec": {"minMember": 5, "queue": "default", "minResources": {"pods": "6"}}}
ROUNDS = 20


def pod(name, scheduler="default-scheduler", group=""):
    annotations = {names.GROUP_NAME: group} if group else {}
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "10m"}}}
    spec = {"schedulerName": scheduler, "containers": [main]}
    return {"metadata": {"name": name, "annotations": annotations | {names.RUN_SECONDS: "600"}}, "spec": spec}


PLAIN = [pod(f"plain-{number}") for number in range(5)]
MEMBERS = [pod(f"gang-{number}", names.SCHEDULER_NAME, "gang") for number in range(6)]


@pytest.fixture
async def served(world, plane, request):
    """The world, and as many namespaces beside it as a test has rounds, with webhooks in front and a worker."""
    async with contextlib.AsyncExitStack() as stack:
        await plane.client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}}, manager="test")
        options = WebhookOptions(plane.certificate, ListenOptions("127.0.0.1", 0, 0.0))
        server = await stack.enter_async_context(serving(await plane.connect(), plane.clock, options))
        beside = [await plane.namespace() for _ in range(getattr(request, "param", 1) - 1)]
        await plane.register(server, namespace=world.namespace, beside=beside)
        stack.push_async_callback(plane.unregister)
        stack.push_async_callback(world.stop)
        await world.node("64")
        for namespace in (world.namespace, *beside):
            await plane.create(kinds.RESOURCEQUOTAS, QUOTA, namespace)
            await plane.until(kinds.RESOURCEQUOTAS, "team", namespace, lambda quota: quota and quota.status.hard)
        yield world, (world.namespace, *beside)


class Running:
    """The most pods that any version of a watch shows at once: plain ones from their creation, a gang's from their node on."""

    def __init__(self, pods):
        self.now, self.most = {}, Counter()
        pods.subscribe(self.observe)

    def observe(self, change):
        here = change.new or change.old
        running = self.now.setdefault(here.namespace, set())
        taken = change.new is not None and (here.name.startswith("plain") or here.spec.node_name)
        (running.add if taken else running.discard)(here.name)
        self.most[here.namespace] = max(self.most[here.namespace], len(running))


async def applied(plane, namespace, *manifests):
    """Apply at once what is refused or not."""

    async def one(manifest):
        with contextlib.suppress(errors.ForbiddenError):
            await plane.client.create(kinds.PODGROUPS if manifest is GROUP else kinds.PODS, manifest, namespace)

    # The group is the first to be sent: one that comes after five pods is refused, as it should be.

    await asyncio.gather(*map(one, manifests))


async def closed(plane, namespace):
    """Wait until a namespace is labelled and its window closed, where its group was admitted; tell whether it was."""
    if not (await plane.client.list(kinds.PODGROUPS, namespace)).items:
        return False
    await plane.until(
        kinds.NAMESPACES,
        namespace,
        "",
        lambda found: found.metadata.label(names.QUOTA_MODE) and not found.metadata.label(names.QUOTA_WINDOW),
    )
    return True


@pytest.mark.parametrize("served", [ROUNDS], indirect=True)
async def test_plain_pods_and_a_gang_that_are_applied_together_never_run_beyond_the_quota(served, plane):
    world, namespaces = served
    view = CachedView()
    watching = asyncio.create_task(view.run(plane.client))
    await view.synced()
    running = Running(view.cache(kinds.PODS))
    try:
        await world.work()
        await asyncio.gather(*(applied(plane, each, GROUP, *PLAIN, *MEMBERS) for each in namespaces))
        assert any(await asyncio.gather(*(closed(plane, each) for each in namespaces)))
        await asyncio.sleep(3)
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    assert {each: running.most[each] for each in namespaces if running.most[each] > 10} == {}
    assert set(running.most) >= set(namespaces)


async def unreserved(plane, namespace):
    """Wait until the gang holds nothing, and says so."""
    return await plane.until(
        kinds.PODGROUPS,
        "gang",
        namespace,
        lambda found: any("minimum isn't reserved" in each.message for each in found.status.conditions or ()),
    )


async def slipped_in(world, plane, namespace):
    """A group that has reserved and could start, and five pods that nobody asked Muster about, before there is a label."""
    await plane.client.create(kinds.PODGROUPS, READY, namespace)
    await applied(plane, namespace, *PLAIN, *MEMBERS[:5])
    assert len((await plane.client.list(kinds.PODS, namespace)).items) == 10


async def started(plane, namespace):
    """The gang's pods that have nodes."""
    found = (await plane.client.list(kinds.PODS, namespace)).items
    return [each.name for each in found if each.name.startswith("gang") and each.spec.node_name]


async def test_the_group_starts_when_what_slipped_in_has_ended(served, plane):
    world, _ = served
    await slipped_in(world, plane, world.namespace)
    await world.work()
    found = await unreserved(plane, world.namespace)
    assert "10 pods hard" in str(found.status.conditions) or "short by 1 pods" in str(found.status.conditions)
    await closed(plane, world.namespace)
    assert found.status.phase in {"", "Pending"}
    assert await started(plane, world.namespace) == []
    await plane.client.delete(kinds.PODS, "plain-0", world.namespace)
    await world.phase("gang", "Running", within=120)


async def test_another_leader_goes_on_where_one_ended_between_the_label_and_the_read(served, plane, monkeypatch):
    world, _ = served
    await slipped_in(world, plane, world.namespace)
    monkeypatch.setattr(windows, "GRACE", 1e6)
    await world.work()
    await plane.until(
        kinds.NAMESPACES, world.namespace, "", lambda found: found.metadata.label(names.QUOTA_WINDOW) == "open"
    )
    await world.stop()
    monkeypatch.setattr(windows, "GRACE", 1.0)
    await world.work()
    await unreserved(plane, world.namespace)
    await closed(plane, world.namespace)
    assert await started(plane, world.namespace) == []


@pytest.mark.only("sandbox", reason="half a minute is waited for")
async def test_groups_of_a_namespace_that_cannot_be_labelled_start_after_half_a_minute(served, plane, caplog):
    world, _ = served
    world.line.refuse = lambda asked: (
        asked.method == "PATCH" and asked.path.count("/") == 4 and "/namespaces/" in asked.path
    )
    await plane.client.create(kinds.PODGROUPS, GROUP, world.namespace)
    await applied(plane, world.namespace, *MEMBERS)
    await world.work()
    with pytest.raises(TimeoutError):
        await world.phase("gang", "Running", within=windows.LABELLING - 5)
    await world.phase("gang", "Running", within=30)
    assert "can't be labelled" in caplog.text


async def test_a_namespace_that_is_labelled_already_has_no_window(served, plane):
    world, _ = served
    labelled = {"metadata": {"labels": {names.QUOTA_MODE: names.GUARDED}}}
    await plane.client.patch(kinds.NAMESPACES, world.namespace, labelled)
    await world.work()
    await plane.client.create(kinds.PODGROUPS, GROUP, world.namespace)
    await applied(plane, world.namespace, *MEMBERS)
    await world.phase("gang", "Running")
    assert not [each for each in world.line.written(world.namespace) if each.endswith(f"/namespaces/{world.namespace}")]
