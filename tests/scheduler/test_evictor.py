"""Evicting, and what happens when the server says something else than yes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from muster.kube import errors
from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.events import EventRecorder
from muster.kube.transport import Request, Response
from muster.model.amounts import NOTHING
from scheduler.leader.events import EvictionRefused, EvictionRetryDue
from scheduler.leader.evictor import Evictor
from scheduler.model.constraints import Constraints
from scheduler.model.plan import Eviction
from scheduler.model.snapshot import GroupKey, Status, Task, TaskClass

GROUP = GroupKey("scheduling.volcano.sh", "ns", "g")
EVICTION = Eviction(
    Task("uid-p", "ns", "p", TaskClass(NOTHING, Constraints()), Status.RUNNING, "node-0"),
    GROUP,
    GROUP._replace(name="urgent"),
)


def status(code: int, **more: Any) -> Response:
    return Response(code, msgspec.json.encode({"kind": "Status", "code": code, **more}))


def shown(uid: str = "uid-p", **more: Any) -> Response:
    return Response(200, msgspec.json.encode({"metadata": {"name": "p", "namespace": "ns", "uid": uid, **more}}))


class Server:
    """Answers evictions and reads as told; keeps what it was asked."""

    def __init__(self, evicting: Response | Exception, reading: Response | None = None) -> None:
        self.evicting, self.reading = evicting, reading or status(404)
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[Any] = []

    async def request(self, request: Request, *, within: float) -> Response:  # noqa: ARG002 - a Transport
        self.asked.append((request.method, request.path))
        if request.body:
            self.bodies.append(msgspec.json.decode(request.body))
        answer = self.evicting if request.method == "POST" else self.reading
        if isinstance(answer, Exception):
            raise answer
        return answer

    def watch(self, request: Request, *, idle: float) -> Any:  # noqa: ARG002 - a Transport
        raise AssertionError("an evictor watches nothing")


class Told:
    """Keeps of whom it was told that they can't be evicted, and since when they may be tried again."""

    def __init__(self) -> None:
        self.spared: list[str] = []
        self.again: list[str] = []

    def __call__(self, event: EvictionRefused | EvictionRetryDue) -> None:
        (self.spared if isinstance(event, EvictionRefused) else self.again).append(event.uid)


async def evicted(server: Server, seconds: float = 60) -> Told:
    told, client = Told(), Client(server)
    evictor = Evictor(client, EventRecorder(client, LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), "muster"), told)
    evictor.start([EVICTION])
    await asyncio.sleep(seconds)
    await evictor.close()
    return told


class Recorder:
    """Keeps the texts of events."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def record(self, *about: Any) -> None:
        self.texts.append(about[-1])


@pytest.mark.parametrize(
    ("namespace", "text"),
    [
        ("ns", "Preempted by PodGroup ns/urgent (priority 0)"),
        ("other", "Preempted by a PodGroup of another namespace (priority 0)"),
    ],
)
async def test_an_event_names_who_gets_the_place_within_a_namespace_only(namespace: str, text: str):
    recorder: Any = Recorder()
    evictor = Evictor(Client(Server(status(201))), recorder, Told())
    evictor.start([replace(EVICTION, beneficiary=GROUP._replace(namespace=namespace, name="urgent"))])
    await asyncio.sleep(1)
    await evictor.close()
    assert recorder.texts == [text]


async def test_only_the_very_pod_that_was_chosen_is_evicted():
    server = Server(status(201))
    assert (await evicted(server)).spared == []
    assert server.asked == [("POST", "/api/v1/namespaces/ns/pods/p/eviction")]
    assert server.bodies[0]["deleteOptions"]["preconditions"] == {"uid": "uid-p"}


@pytest.mark.parametrize("code", [404, 409])
async def test_a_pod_that_is_gone_leaves_its_place_in_any_case(code):
    server = Server(status(code))
    assert (await evicted(server)).spared == []
    assert len(server.asked) == 1


async def test_a_pod_that_a_budget_protects_is_spared_for_as_long_as_the_server_says():
    server = Server(status(429, details={"retryAfterSeconds": 30}))
    assert (await evicted(server, 29)).again == []
    told = await evicted(server, 31)
    assert (told.spared, told.again) == (["uid-p"], ["uid-p"])


@pytest.mark.parametrize(
    "outcome", [errors.UnreachableError("lost", maybe_applied=True), status(504)], ids=["no answer", "gateway"]
)
@pytest.mark.parametrize(
    ("reading", "spared"),
    [
        (shown(deletionTimestamp="2026-01-01T00:00:00Z"), []),
        (shown(), ["uid-p"]),
        (shown("another"), []),
        (status(404), []),
    ],
    ids=["applied", "not applied", "another pod", "gone"],
)
async def test_an_unknown_outcome_is_read_back_and_never_repeated_blind(outcome, reading, spared):
    server = Server(outcome, reading)
    assert (await evicted(server)).spared == spared
    assert [method for method, _ in server.asked] == ["POST", "GET"]


async def test_an_eviction_that_was_never_sent_is_not_read_back():
    server = Server(errors.UnreachableError("refused", maybe_applied=False))
    assert (await evicted(server)).spared == ["uid-p"]
    assert len(server.asked) == 1
