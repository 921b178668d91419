from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime

import msgspec
import pytest

from muster.kube import errors
from muster.kube.clock import LoopClock
from muster.kube.events import MESSAGE_LIMIT, EventRecorder
from muster.kube.transport import Response
from muster.model import tenant_texts
from muster.model.kinds import PODGROUPS, QUEUES
from muster.model.objects import Meta, PodGroup, Queue

GROUP = PodGroup(metadata=Meta(name="g", namespace="ns", uid="u1", resource_version="5"))


@pytest.fixture
async def recorder(server):
    server.answer = lambda request: Response(200, request.body)
    made = EventRecorder(server.client, LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), "muster-scheduler", "pod-1")
    task = asyncio.create_task(made.run())
    yield made
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def bodies(server):
    return [msgspec.json.decode(request.body) for _, request in server.asked]


async def test_an_event_is_written_as_kubectl_expects_it(server, recorder):
    recorder.record(PODGROUPS, GROUP, "NotEnoughQuota", "quota q lacks 2 cpu", type_="Warning")
    await asyncio.sleep(1)
    (request,), (body,) = server.requests(), bodies(server)
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/ns/events")
    assert body["metadata"]["name"].startswith("g.")
    assert body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": body["metadata"]["name"], "namespace": "ns"},
        "involvedObject": {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "namespace": "ns",
            "name": "g",
            "uid": "u1",
            "resourceVersion": "5",
        },
        "type": "Warning",
        "reason": "NotEnoughQuota",
        "message": "quota q lacks 2 cpu",
        "source": {"component": "muster-scheduler"},
        "reportingComponent": "muster-scheduler",
        "reportingInstance": "pod-1",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }


@pytest.mark.parametrize("name", ["../../../healthz", "a b", "Ä", "-", "x" * 300, ""])
async def test_an_event_about_what_nothing_can_be_called_has_a_name_that_can_be_stored(server, recorder, name):
    recorder.record(PODGROUPS, PodGroup(metadata=Meta(name=name, namespace="ns", uid="u1")), "Reason", "message")
    await asyncio.sleep(1)
    (body,) = bodies(server)
    assert tenant_texts.is_subdomain(body["metadata"]["name"])
    assert body["involvedObject"]["name"] == name


async def test_what_repeats_each_second_is_counted_and_written_once_a_minute(server, recorder):
    for _ in range(300):
        recorder.record(PODGROUPS, GROUP, "NotEnoughResources", "0 of 4 nodes fit")
        await asyncio.sleep(1)
    methods = [request.method for request in server.requests()]
    assert methods == ["POST", "PATCH", "PATCH", "PATCH", "PATCH"]
    assert bodies(server)[-1] == {"count": 241, "lastTimestamp": "2026-01-01T00:04:00Z"}
    assert len({request.path.rsplit("/", 1)[-1] for request in server.requests()[1:]}) == 1


async def test_a_message_that_differs_each_second_does_not_flood(server, recorder):
    for second in range(600):
        recorder.record(PODGROUPS, GROUP, "NotEnoughResources", f"{second} of 4000 nodes fit")
        await asyncio.sleep(1)
    assert 8 <= len(server.requests()) <= 8 + 10
    assert recorder.dropped == 600 - len(server.requests())


async def test_an_event_about_a_cluster_scoped_object_is_in_the_default_namespace(server, recorder):
    recorder.record(QUEUES, Queue(metadata=Meta(name="q" * 253)), "Closed", "x" * 5000)
    await asyncio.sleep(1)
    (body,) = bodies(server)
    assert body["metadata"]["namespace"] == "default"
    assert len(body["metadata"]["name"]) == 253
    assert len(body["message"]) == MESSAGE_LIMIT


async def test_an_event_that_expired_is_written_anew(server, recorder):
    recorder.record(PODGROUPS, GROUP, "R", "m")
    await asyncio.sleep(61)
    server.answer = lambda request: (
        server.status(404, "NotFound", "gone") if request.method == "PATCH" else Response(201, request.body)
    )
    recorder.record(PODGROUPS, GROUP, "R", "m")
    await asyncio.sleep(1)
    assert [request.method for request in server.requests()] == ["POST", "PATCH", "POST"]
    assert bodies(server)[-1]["count"] == 2


async def test_an_event_whose_answer_was_lost_is_not_written_twice(server, recorder):
    names = set()

    def answer(request):
        name = msgspec.json.decode(request.body)["metadata"]["name"]
        if name in names:
            return server.status(409, "AlreadyExists", "exists")
        names.add(name)
        return errors.UnreachableError("lost", maybe_applied=True)

    server.answer = answer
    recorder.record(PODGROUPS, GROUP, "R", "m")
    await asyncio.sleep(60)
    assert len(names) == 1
    assert len(server.requests()) == 2
    assert recorder.dropped == 0


async def test_what_cannot_be_written_is_dropped_and_said_once(server, recorder, caplog):
    server.answer = lambda _: server.status(403, "Forbidden", "namespace is being terminated")
    recorder.record(PODGROUPS, GROUP, "R", "m")
    await asyncio.sleep(60)
    assert (len(server.requests()), recorder.dropped) == (1, 1)
    assert caplog.text.count("namespace is being terminated") == 1


async def test_an_outage_of_ten_minutes_holds_a_bounded_number_and_hammers_nobody(server, recorder):
    server.answer = lambda _: errors.UnreachableError("down", maybe_applied=False)
    for number in range(5000):
        recorder.record(PODGROUPS, PodGroup(metadata=Meta(name=f"g{number}", namespace="ns")), "R", "m")
    await asyncio.sleep(600)
    assert recorder.dropped >= 5000 - 1024
    assert len(server.requests()) <= 1000
    assert len(recorder._series) <= 4096
