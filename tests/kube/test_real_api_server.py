"""What a scripted server can't vouch for, on the real one: that it accepts and means what we believe."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from muster.kube import auth
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.events import Recorder
from muster.kube.http import HttpTransport
from muster.kube.lease import Elector
from muster.kube.reflector import Cache, Reflector
from muster.model.kinds import CONFIGMAPS, EVENTS, LEASES, NAMESPACES


@pytest.fixture
async def client(real_control_plane):
    async with HttpTransport(await auth.load(str(real_control_plane.kubeconfig()))) as transport:
        yield Client(transport)


@pytest.fixture
async def namespace(client):
    made = await client.create(NAMESPACES, {"metadata": {"generateName": "kube-client-"}})
    yield made.name
    await client.delete(NAMESPACES, made.name)


async def test_a_view_follows_a_namespace_through_more_than_one_page(client, namespace, monkeypatch):
    monkeypatch.setattr("muster.kube.client.PAGE", 3)
    for number in range(8):
        await client.create(CONFIGMAPS, {"metadata": {"name": f"c{number}"}}, namespace)
    cache, told = Cache(), []
    cache.subscribe(lambda change: told.append((change.type, (change.new or change.old).name)))
    reflector = Reflector(client, CONFIGMAPS, cache, namespace=namespace)
    task = asyncio.create_task(reflector.run())
    async with asyncio.timeout(30):
        await reflector.wait_synced()
        told.clear()
        await client.patch(CONFIGMAPS, "c1", {"data": {"a": "b"}}, namespace)
        await client.delete(CONFIGMAPS, "c2", namespace)
        last = await client.create(CONFIGMAPS, {"metadata": {"name": "last"}}, namespace)
        await cache.reached(last.metadata.resource_version)
    task.cancel()
    await asyncio.wait({task})
    assert told == [("MODIFIED", "c1"), ("DELETED", "c2"), ("ADDED", "last")]
    assert cache.get("c1", namespace).data == {"a": "b"}
    assert {each.name for each in cache.items()} >= {"c0", "c7", "last"}


async def test_a_lease_is_taken_renewed_and_released(client, namespace):
    held = asyncio.Event()

    async def lead(fence):
        held.set()
        await asyncio.Event().wait()

    elector = Elector(client, namespace, "worker", "test", SystemClock())
    task = asyncio.create_task(elector.run(lead))
    async with asyncio.timeout(30):
        await held.wait()
        taken = await client.get(LEASES, "worker", namespace)
        renewed = taken
        while renewed.spec.renew_time == taken.spec.renew_time:
            renewed = await client.get(LEASES, "worker", namespace)
            await asyncio.sleep(0)
    assert (renewed.spec.holder_identity, renewed.spec.lease_transitions) == (elector.identity, 0)
    task.cancel()
    await asyncio.wait({task})
    assert not (await client.get(LEASES, "worker", namespace)).spec.holder_identity


async def test_events_are_accepted_and_counted(client, namespace):
    about = await client.create(CONFIGMAPS, {"metadata": {"name": "about"}}, namespace)
    recorder = Recorder(client, SystemClock(), "muster-test")
    recorder.record(CONFIGMAPS, about, "Tested", "a message", type_="Warning")
    recorder.record(NAMESPACES, await client.get(NAMESPACES, namespace), "Tested", "cluster-scoped")
    (series, other) = recorder._series.values()
    await recorder._send(series)
    series.count, series.last = 5, datetime(2030, 1, 1, tzinfo=UTC)
    await recorder._send(series)
    await recorder._send(other)
    (event,) = (await client.list(EVENTS, namespace, fields="involvedObject.name=about")).items
    assert (event.type, event.reason, event.message, event.count) == ("Warning", "Tested", "a message", 5)
    assert other.written
