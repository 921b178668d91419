"""The lease is renewed on time whatever holds up the worker's loop, and not for a worker that hangs."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from muster.kube import threads
from muster.kube.clock import SystemClock
from muster.kube.errors import FenceLostError, WorkerStuckError
from muster.kube.lease import LeaderElector, LeaseTiming
from muster.kube.threads import Heartbeat, on_loop, run_in_thread

TIMING = LeaseTiming(lease=1.5, renew=1.0, retry=0.2)


@pytest.fixture
def heartbeat():
    return Heartbeat()


@pytest.fixture
async def elected(leases, server, heartbeat):
    """Runs an elector in a thread, for a worker on this loop."""
    tasks = []

    async def elect(lead):
        there = on_loop(asyncio.get_running_loop(), lead)

        async def stand():
            await LeaderElector(
                server.client, "muster", "worker", "a", SystemClock(), TIMING, alive=heartbeat.beats
            ).run(there)

        tasks.extend([asyncio.create_task(heartbeat.run()), asyncio.create_task(run_in_thread(stand, "election"))])
        return tasks[-1]

    yield elect
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


class Worker:
    """Notes its fences, and its end."""

    def __init__(self):
        self.fences = []
        self.began = asyncio.Event()
        self.over = asyncio.Event()

    async def lead(self, fence):
        self.fences.append(fence)
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)
            self.over.set()


def block(seconds):
    """Hold up the loop, as a regular expression on a tenant's text did."""
    time.sleep(seconds)


async def test_a_leader_whose_loop_is_held_up_for_longer_than_a_lease_leads_on(leases, elected):
    worker = Worker()
    await elected(worker.lead)
    await worker.began.wait()
    block(2 * TIMING.lease)
    assert worker.fences[0].live
    await asyncio.sleep(0.2)
    assert len(worker.fences) == 1
    assert leases.holder


async def test_a_leader_whose_loop_turns_no_more_does_not_keep_the_lease(leases, elected, monkeypatch):
    monkeypatch.setattr(threads, "HUNG_SECONDS", 0.5)
    worker = Worker()
    election = await elected(worker.lead)
    await worker.began.wait()
    await asyncio.sleep(0.1)
    block(2.5)
    assert not worker.fences[0].live
    with pytest.raises(FenceLostError):
        worker.fences[0].check()
    # It was told to end, and didn't in time.
    with pytest.raises(WorkerStuckError):
        await election


async def test_nor_does_one_that_says_itself_that_it_hangs(leases, elected, heartbeat, monkeypatch):
    monkeypatch.setattr(threads, "BEAT_SECONDS", 0.1)
    trouble = []
    monkeypatch.setattr(heartbeat, "_trouble", lambda: trouble)
    worker = Worker()
    await elected(worker.lead)
    await worker.began.wait()
    trouble.append("a cycle is being decided for more than 30 seconds")
    async with asyncio.timeout(5):
        await worker.over.wait()
    assert not worker.fences[0].live


async def test_a_leader_that_is_stopped_ends_its_work_first_and_then_gives_the_lease_back(leases, elected):
    worker = Worker()
    election = await elected(worker.lead)
    await worker.began.wait()
    election.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await election
    assert worker.over.is_set()
    assert not worker.fences[0].live
    assert leases.holder == ""


async def test_what_the_worker_raises_comes_out_and_the_lease_is_given_back(leases, elected):
    async def fail(fence):
        raise LookupError("unforeseen")

    with pytest.raises(LookupError, match="unforeseen"):
        await (await elected(fail))
    assert leases.holder == ""
