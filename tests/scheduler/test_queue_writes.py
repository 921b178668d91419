"""When the queue controller writes: soon, not too often, and once however late what it wrote is shown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.events import EventRecorder
from muster.kube.transport import Request, Response
from muster.model import kinds, names
from muster.model.amounts import Resources
from muster.model.objects import Meta, NetworkTier, PodGroup, PodGroupSpec, Queue, QueueStatus
from muster.sandbox import virtual_time
from scheduler.controllers import queues
from scheduler.model.plan import QueueShare
from scheduler.state.informers import Informers


class Storing:
    """A transport that stores queues, and shows each change in their view after ``late`` seconds."""

    def __init__(self, informers: Informers, late: float = 0) -> None:
        self._shown = informers.cache(kinds.QUEUES)
        self._late = late
        self._stored: dict[str, Queue] = {}
        self.writes: list[tuple[float, Any]] = []

    def add(self, name: str, status: QueueStatus) -> None:
        """Have a queue there and shown."""
        self._stored[name] = Queue(metadata=Meta(name=name, uid=name, resource_version="1"), status=status)
        self._shown.put(self._stored[name])

    async def request(self, request: Request, *, within: float) -> Response:
        del within
        name = request.path.partition("/queues/")[2].partition("/")[0]
        old, change = self._stored[name], msgspec.json.decode(request.body)
        self.writes.append((asyncio.get_running_loop().time(), change))
        if change["metadata"].get("resourceVersion", old.metadata.resource_version) != old.metadata.resource_version:
            return Response(409, msgspec.json.encode({"kind": "Status", "reason": "Conflict", "code": 409}))
        version = str(int(old.metadata.resource_version) + 1)
        finalizers = change["metadata"].get("finalizers", old.metadata.finalizers)
        new = replace(old, metadata=replace(old.metadata, resource_version=version, finalizers=finalizers))
        if "status" in change:
            told = {key: value for key, value in change["status"].items() if value is not None}
            new = replace(new, status=msgspec.convert(told, QueueStatus))
        self._stored[name] = new
        asyncio.get_running_loop().call_later(self._late, self._shown.put, new)
        await asyncio.sleep(0)
        return Response(200, msgspec.json.encode(new))


@contextlib.asynccontextmanager
async def controlled(late: float = 0) -> AsyncIterator[tuple[Informers, Storing, queues.QueueController]]:
    """Have a queue controller work on a store of queues."""
    informers = Informers(legacy_apis=False)
    store = Storing(informers, late)
    client = Client(store)
    recorder = EventRecorder(client, LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), "test")
    controller = queues.QueueController(client, informers, recorder, ["muster"])
    running = asyncio.create_task(controller.work.run())
    yield informers, store, controller
    assert not running.done()
    running.cancel()


def comes(informers: Informers, number: int, queue_name: str) -> None:
    """Show a new group."""
    about = Meta(name=f"g-{number}", namespace="ns", uid=f"{number}", resource_version=str(number + 1))
    informers.cache(kinds.PODGROUPS).put(PodGroup(metadata=about, spec=PodGroupSpec(min_member=1, queue=queue_name)))


def test_a_queue_in_which_groups_come_all_the_time_is_written_once_a_second_and_is_right_soon_after_the_last():
    async def main() -> list[tuple[float, Any]]:
        async with controlled() as (informers, store, _):
            store.add("default", QueueStatus(state="Open"))
            for number in range(500):
                comes(informers, number, "default")
                await asyncio.sleep(0.01)
            await asyncio.sleep(10)
            return store.writes

    writes = virtual_time.run(main())
    moments = [moment for moment, _ in writes]
    assert writes[-1][1]["status"]["pending"] == 500
    assert moments[-1] <= 5 + 1
    assert all(later - earlier > 0.99 for earlier, later in pairwise(moments))
    assert len(moments) >= 5


def test_a_queue_is_counted_when_that_may_be_written_and_not_at_each_change_of_a_share(monkeypatch):
    counted, status = [], queues.status

    def noted(queue: Queue, content: queues.QueueContent) -> QueueStatus:
        counted.append(asyncio.get_running_loop().time())
        return status(queue, content)

    monkeypatch.setattr(queues, "status", noted)

    async def main() -> list[tuple[float, Any]]:
        async with controlled() as (informers, store, controller):
            store.add("default", QueueStatus(state="Open"))
            comes(informers, 0, "default")
            for number in range(500):
                share = QueueShare(Resources.parse({"cpu": f"{number}m"}), None, None)
                controller.observe({"default": share}, ())
                await asyncio.sleep(0.01)
            await asyncio.sleep(10)
            return store.writes

    writes = virtual_time.run(main())
    assert writes[-1][1]["status"]["allocated"] == {"cpu": "499m"}
    # What is written is shown, and looked at for what somebody else may have made of it.
    assert len(counted) <= 2 * len(writes) + 2


def test_what_a_busy_api_server_shows_late_is_written_once():
    async def main() -> list[tuple[float, Any]]:
        async with controlled(late=30) as (informers, store, _):
            store.add("team", QueueStatus())
            for number in range(3):
                comes(informers, number, "team")
                await asyncio.sleep(2)
                # Whatever else there is to look at it for.
                comes(informers, 100 + number, "team")
                informers.cache(kinds.PODGROUPS).drop(informers.cache(kinds.PODGROUPS).get(f"g-{100 + number}", "ns"))
                await asyncio.sleep(2)
            await asyncio.sleep(100)
            return store.writes

    writes = [change for _, change in virtual_time.run(main())]
    assert writes[0]["metadata"]["finalizers"] == [names.QUEUE_FINALIZER]
    assert [change["status"]["pending"] for change in writes[1:]] == [1, 2, 3]


def test_what_the_network_is_is_written_on_queue_default_alone_and_stays_until_a_leader_has_looked():
    racks = (NetworkTier(tier=1, name="rack", domains=2, largest={"cpu": "64"}),)

    async def main() -> list[list[Any]]:
        async with controlled() as (informers, store, controller):
            store.add("default", QueueStatus(state="Open", network_tiers=racks))
            store.add("team", QueueStatus())
            comes(informers, 1, "default")
            comes(informers, 2, "team")
            await asyncio.sleep(10)
            before = len(store.writes)
            for network in (racks, (), ()):
                controller.observe({}, network)
                await asyncio.sleep(10)
            return [
                [change["status"].get("networkTiers") for _, change in some if "status" in change]
                for some in (store.writes[:before], store.writes[before:])
            ]

    before, after = virtual_time.run(main())
    told = [{"tier": 1, "name": "rack", "domains": 2, "largest": {"cpu": "64"}}]
    assert all(each in (None, told) for each in before)
    assert told in before
    assert after == [[]]
