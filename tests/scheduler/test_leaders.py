"""Leaders that are lost in the middle of a gang, and what happens while a cycle is being decided."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from muster.kube import errors
from muster.kube.client import Client
from muster.kube.fence import Fence
from muster.model import kinds, names
from scheduler.__main__ import GarbageCollection
from scheduler.engine import partial_gangs
from scheduler.leader import leadership

SIX = 6


def gang(name, count, cpu="1"):
    meta = {"name": name}
    yield {
        "apiVersion": kinds.PODGROUPS.api_version,
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"minMember": count},
    }
    for number in range(count):
        yield pod(f"{name}-{number}", cpu, names.SCHEDULER_NAME, annotations={names.GROUP_NAME: name})


def pod(name, cpu, scheduler, *, node="", **meta):
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": scheduler, "nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}


@pytest.fixture
async def half_bound(world, monkeypatch):
    """A gang of six, of which three were bound when the leader was lost; gives the node."""
    node = await world.node("8")
    await world.create(*gang("g", SIX))
    fence, bind, sent, done = Fence("test", until=float("inf")), Client.bind, [], []
    half = asyncio.Event()

    async def until_lost(self, *asked):
        sent.append(asked)
        if len(sent) > SIX // 2:
            # What is under way when the leader is lost may be done or not.
            await half.wait()
            fence.revoke()
        await bind(self, *asked)
        done.append(asked)
        if len(done) == SIX // 2:
            half.set()

    monkeypatch.setattr(Client, "bind", until_lost)
    await world.work(fence=fence)
    await world.until(lambda: bound(world, SIX // 2))
    await world.stop()
    monkeypatch.setattr(Client, "bind", bind)
    return node


async def bound(world, count):
    return sum(bool(each.spec.node_name) for each in await world.pods() if each.name.startswith("g-")) == count


async def test_the_next_leader_finishes_a_gang(world, half_bound):
    await world.work()
    await world.phase("g", "Running")
    assert {each.spec.node_name for each in await world.pods()} == {half_bound}


async def test_or_undoes_it_where_the_rest_has_no_room_any_more(world, half_bound, monkeypatch):
    monkeypatch.setattr(partial_gangs, "GRACE", 2.0)
    await world.create(pod("stranger", "4", "another", node=half_bound))
    await world.work()
    await world.until(lambda: bound(world, 0), within=120)
    left = sorted(each.name for each in await world.pods())
    assert len(left) == 1 + SIX // 2


@pytest.mark.only("sandbox", reason="nothing happens for a while: in virtual time")
async def test_who_leads_no_more_writes_nothing_and_no_part_of_it_falls(world):
    await world.node("8")
    fence = Fence("test", until=float("inf"))
    await world.work(fence=fence)
    fence.revoke()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"cpu": "4"}}}
    await world.create(quota, *gang("g", 2))
    await asyncio.sleep(60)
    await world.stop()
    assert await bound(world, 0)
    assert await world.client.find(kinds.QUOTALEDGERS, names.LEDGER_NAME, world.namespace) is None
    assert not (await world.client.get(kinds.PODGROUPS, "g", world.namespace)).status.phase


@pytest.fixture
def meanwhile(monkeypatch):
    """What has something happen once, between a plan that binds and its being carried out; gives the bindings sent."""

    def arrange(happens):
        sent, bind, done = [], Client.bind, asyncio.Event()

        async def slowly(decide, *given):
            plan = decide(*given)
            if plan.binds and not done.is_set():
                done.set()
                await happens(plan)
                await asyncio.sleep(1)
            return plan

        async def counted(self, *asked):
            sent.append(asked)
            await bind(self, *asked)

        monkeypatch.setattr(leadership, "INLINE_PENDING_PODS", 0)
        monkeypatch.setattr(leadership.asyncio, "to_thread", slowly)
        monkeypatch.setattr(Client, "bind", counted)
        return sent

    return arrange


@pytest.mark.only("sandbox", reason="what happens while a thread decides is put in order by hand")
async def test_a_gang_that_loses_a_pod_while_it_is_placed_is_not_bound_in_part(world, meanwhile):
    await world.node("8")
    await world.create(*gang("g", 3), *gang("other", 2))
    sent = meanwhile(lambda _: world.client.delete(kinds.PODS, "g-1", world.namespace))
    await world.work()
    await world.phase("other", "Running")
    await asyncio.sleep(5)
    assert sorted(name for _, name, *_ in sent) == ["other-0", "other-1"]
    await world.create(pod("g-1", "1", names.SCHEDULER_NAME, annotations={names.GROUP_NAME: "g"}))
    await world.phase("g", "Running")
    assert len(sent) == 5


@pytest.mark.only("sandbox", reason="what happens while a thread decides is put in order by hand")
async def test_a_gang_whose_node_goes_while_it_is_placed_is_placed_elsewhere_and_no_part_of_it_there(world, meanwhile):
    await world.node("2")
    gone = []
    await world.create(*gang("g", 2))

    async def lose(plan):
        gone.append(plan.binds[0].node)
        await world.client.delete(kinds.NODES, gone[0])

    sent = meanwhile(lose)
    await world.work()
    await asyncio.sleep(10)
    assert (len(gone), sent) == (1, [])
    other = await world.node("2")
    await world.phase("g", "Running")
    assert [node for *_, node in sent] == [other, other]


REFUSALS = {
    "a webhook says no": errors.ForbiddenError(403, "Forbidden", "no"),
    "it seems not to be there": errors.NotFoundError(404, "NotFound", "no"),
    "somebody else changed it": errors.ConflictError(409, "Conflict", "no"),
    "the server is busy": errors.TooManyRequestsError(429, "TooManyRequests", "no", retry_after=7.0),
    "the server fails": errors.ServerError(500, "InternalError", "no"),
    "it was never sent": errors.UnreachableError("no", maybe_applied=False),
    "nobody knows whether it was done": errors.UnreachableError("no", maybe_applied=True),
}


@pytest.mark.only("sandbox", reason="the pauses after refusals are waited for in virtual time")
@pytest.mark.parametrize("name", REFUSALS)
async def test_whatever_is_answered_to_a_binding_no_room_is_lost(world, monkeypatch, name):
    await world.node("1")
    bind, tries = Client.bind, []

    async def refused(self, *asked):
        tries.append(asked[1])
        if len(tries) <= 3:
            raise REFUSALS[name]
        await bind(self, *asked)

    monkeypatch.setattr(Client, "bind", refused)
    await world.work()
    await world.create(*gang("g", 1))
    await world.phase("g", "Running")
    assert tries == ["g-0"] * 4
    # What was assumed of the tries in vain would keep the next one off.
    await world.create(*gang("h", 1))
    await world.client.delete(kinds.PODS, "g-0", world.namespace)
    await world.phase("h", "Running")


@pytest.mark.only("sandbox", reason="what happens while a thread decides is put in order by hand")
async def test_while_a_cycle_is_decided_the_loop_goes_on(world, monkeypatch):
    """A cycle that takes longer than the lease lasts holds up neither its renewal nor what comes in; garbage waits."""
    await world.node("8")
    seconds, collecting = [], []

    async def slowly(decide, *given):
        collecting.append(gc.isenabled())
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(20)
        seconds.append(asyncio.get_running_loop().time() - begun)
        return decide(*given)

    monkeypatch.setattr(leadership, "INLINE_PENDING_PODS", 0)
    monkeypatch.setattr(leadership.asyncio, "to_thread", slowly)
    await world.work()
    await world.create(*gang("g", 2))
    ticks = 0
    while not await bound(world, 2):
        await asyncio.sleep(1)
        ticks += 1
    assert ticks >= 20
    assert seconds
    assert not any(collecting)


class Known:
    """Something of a leadership that knows itself by a detour, as its parts do each other."""

    def __init__(self) -> None:
        self.itself: Any = self


async def test_what_an_earlier_leadership_knew_is_freed_when_the_next_one_begins():
    collector, synced = GarbageCollection(), asyncio.Event()
    synced.set()
    collector.begin()
    known = Known()
    earlier = weakref.ref(known)
    await collector.settle(synced)
    del known
    gc.collect()
    assert earlier() is not None, "it isn't passed over"
    collector.begin()
    assert earlier() is None
