"""Binding, and what happens when the server says something else than yes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from muster.kube import errors
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.fence import Fence, FencedTransport
from muster.kube.transport import Request, Response
from muster.model.amounts import NOTHING
from scheduler.leader.binder import BINDS_IN_FLIGHT, Binder
from scheduler.leader.device_binder import DeviceBinder
from scheduler.leader.volume_binder import VolumeBinder
from scheduler.model.constraints import Constraints
from scheduler.model.plan import Bind
from scheduler.model.snapshot import GroupKey, Task, TaskClass, TaskStatus

CLASS = TaskClass(NOTHING, Constraints())


def bind(name: str = "p") -> Bind:
    task = Task(f"uid-{name}", "ns", name, CLASS, TaskStatus.PENDING)
    return Bind(task, "node-0", GroupKey("scheduling.volcano.sh", "ns", "g"))


def status(code: int, **more: Any) -> Response:
    return Response(code, msgspec.json.encode({"kind": "Status", "code": code, **more}))


def shown(node: str, uid: str = "uid-p") -> Response:
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": uid}, "spec": {"nodeName": node}}
    return Response(200, msgspec.json.encode(pod))


class Server:
    """Answers binds and reads as told; keeps what it was asked, and how many requests were open at most."""

    def __init__(self) -> None:
        self.binding: Response | Exception = status(201)
        self.reading: Response = status(404)
        self.asked: list[str] = []
        self.open = self.most = 0

    async def request(self, request: Request, *, within: float) -> Response:  # noqa: ARG002 - a Transport
        self.asked.append(request.method)
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0.01)
        self.open -= 1
        answer = self.binding if request.method == "POST" else self.reading
        if isinstance(answer, Exception):
            raise answer
        return answer

    def watch(self, request: Request, *, idle: float) -> Any:  # noqa: ARG002 - a Transport
        raise AssertionError("a binder watches nothing")


def _volumes(transport: Any) -> VolumeBinder:
    return VolumeBinder(Client(transport), ObjectCache(), ObjectCache(), ObjectCache())


def _devices(transport: Any) -> DeviceBinder:
    return DeviceBinder(Client(transport), ObjectCache(), ObjectCache())


async def gave_up(server: Server, *binds: Bind, fence: Fence | None = None) -> list[str]:
    """Bind, and give the uids whose place was given up."""
    released: list[str] = []
    transport = FencedTransport(server, fence or Fence("test", until=float("inf")))
    binder = Binder(
        Client(transport), _volumes(transport), _devices(transport), lambda event: released.append(event.uid)
    )
    binder.start(binds)
    await asyncio.sleep(60)
    await binder.close()
    return released


async def test_a_bound_pod_keeps_its_place():
    server = Server()
    assert await gave_up(server, bind()) == []
    assert server.asked == ["POST"]


@pytest.mark.parametrize("code", [404, 409])
async def test_a_pod_that_is_gone_or_bound_gives_its_place_up_at_once(code):
    server = Server()
    server.binding = status(code)
    assert await gave_up(server, bind()) == ["uid-p"]
    assert server.asked == ["POST"]


async def test_a_busy_server_is_not_asked_again_before_its_time():
    server = Server()
    server.binding = status(429, details={"retryAfterSeconds": 30})
    released: list[str] = []
    binder = Binder(Client(server), _volumes(server), _devices(server), lambda event: released.append(event.uid))
    binder.start([bind()])
    await asyncio.sleep(29)
    assert released == []
    await asyncio.sleep(2)
    assert released == ["uid-p"]
    assert server.asked == ["POST"]


@pytest.mark.parametrize(
    "outcome", [errors.UnreachableError("lost", maybe_applied=True), status(504)], ids=["no answer", "gateway"]
)
@pytest.mark.parametrize(
    ("reading", "released"),
    [(shown("node-0"), []), (shown(""), ["uid-p"]), (shown("node-0", "another"), ["uid-p"]), (status(404), ["uid-p"])],
    ids=["applied", "not applied", "another pod", "gone"],
)
async def test_an_unknown_outcome_is_read_back_and_never_repeated_blind(outcome, reading, released):
    server = Server()
    server.binding, server.reading = outcome, reading
    assert await gave_up(server, bind()) == released
    assert server.asked == ["POST", "GET"]


async def test_a_bind_that_was_never_sent_is_not_read_back():
    server = Server()
    server.binding = errors.UnreachableError("refused", maybe_applied=False)
    assert await gave_up(server, bind()) == ["uid-p"]
    assert server.asked == ["POST"]


async def test_without_a_live_fence_nothing_is_sent():
    server = Server()
    fence = Fence("test", until=float("inf"))
    fence.revoke()
    await gave_up(server, bind(), fence=fence)
    assert server.asked == []


async def test_so_many_are_in_flight_and_no_more():
    server = Server()
    assert await gave_up(server, *(bind(f"p{number}") for number in range(3 * BINDS_IN_FLIGHT))) == []
    assert server.most == BINDS_IN_FLIGHT
    assert len(server.asked) == 3 * BINDS_IN_FLIGHT


async def test_closing_ends_what_is_under_way():
    server = Server()
    binder = Binder(Client(server), _volumes(server), _devices(server), [].append)
    binder.start([bind()])
    await asyncio.sleep(0)
    with contextlib.suppress(asyncio.CancelledError):
        await binder.close()
    assert server.open <= 1
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.only("sandbox", reason="that nothing happens is shown by waiting, which only virtual time gives")
async def test_a_worker_whose_fence_is_lost_writes_nothing(world):
    await world.node("4")
    fence = Fence("test", until=float("inf"))
    fence.revoke()
    await world.work(fence=fence)
    before = world.plane.sandbox.server.store.revision
    await asyncio.sleep(1)
    assert world.plane.sandbox.server.store.revision == before


async def test_a_refusal_of_a_whole_gang_is_one_warning(caplog):
    names_of_pods = [f"worker-{number}" for number in range(20)]

    class Refusing(Server):
        async def request(self, request: Request, *, within: float) -> Response:  # noqa: ARG002 - a Transport
            name = request.path.split("/")[-2]
            return status(403, reason="Forbidden", message=f'pods "{name}" is forbidden: a policy')

    server = Refusing()
    assert len(await gave_up(server, *map(bind, names_of_pods))) == 20
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == 1
    assert "is forbidden: a policy" in warned[0]
