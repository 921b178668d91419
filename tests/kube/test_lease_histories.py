"""Several electors, each a process with a loop and a clock of its own, on a network that delays and loses.

The processes don't share a loop: one that is stopped (SIGSTOP) must not run while its clock goes on, and clocks must
run at different speeds. The world steps them in turn, in its own time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import selectors
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from muster.kube import errors
from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.lease import LeaderElector

START = datetime(2026, 1, 1, tzinfo=UTC)
HEALS_WITHIN = 75.0  # seconds: a lease, the longest pause between attempts, the slowest calls of a claim, with margin


class NeverWaits(selectors.DefaultSelector):
    def select(self, timeout=None):  # noqa: ARG002 - a selector's
        return super().select(0)


class World:
    """True time, the API server, and what is on its way."""

    def __init__(self, store):
        self.now = 0.0
        self.store = store
        self.random = random.Random(1)
        self.coming = []
        self.order = itertools.count()
        self.processes = []

    def at(self, delay, action):
        heapq.heappush(self.coming, (self.now + delay, next(self.order), action))

    def advance(self, seconds):
        end = self.now + seconds
        while True:
            self.settle()
            times = [self.coming[0][0]] if self.coming else []
            times += [process.next() for process in self.processes if not process.stopped]
            soon = min(times, default=end)
            if soon >= end:
                self.now = end
                self.settle()
                return
            self.now = max(soon, self.now + 1e-6)

    def settle(self):
        while self.coming and self.coming[0][0] <= self.now:
            heapq.heappop(self.coming)[2]()
        for process in self.processes:
            if not process.stopped:
                process.spin()
        self.check()

    def check(self):
        live = [process.name for process in self.processes if process.leads]
        assert len(live) <= 1, f"two leaders at {self.now}: {live}"
        # One that was stopped while it led ends late; its fence is dead, and that is all that can be had.
        working = [process.name for process in self.processes if process.working and not process.surprised]
        assert len(working) <= 1, f"two workers at {self.now}: {working}"


class Process:
    """One elector in its own loop; also the transport to the world's API server."""

    def __init__(self, world, name, rate):
        self.world, self.name, self.rate = world, name, rate
        self.origin = world.now
        self.stopped = False
        self.surprised = False
        self.cut = False
        self.slow = 0.0
        self.loses = 0.0
        self.fence = None
        self.working = 0
        self.loop = asyncio.SelectorEventLoop(NeverWaits())
        self.loop.time = lambda: 1000 + (world.now - self.origin) * rate
        elector = LeaderElector(Client(self), "ns", "lease", name, LoopClock(START))
        self.task = self.loop.create_task(elector.run(self.lead))

    @property
    def leads(self):
        return self.fence is not None and self.fence.live

    async def lead(self, fence):
        self.fence = fence
        self.surprised = False
        self.working += 1
        try:
            await asyncio.Event().wait()
        finally:
            # Some take their time to end, within what they are granted.
            await asyncio.sleep(2)
            self.working -= 1

    async def request(self, request, *, within):
        answer = self.loop.create_future()
        there, back = (self.world.random.uniform(0.001, 0.01 + self.slow) for _ in range(2))
        if not self.cut and self.world.random.random() >= self.loses:
            self.world.at(there, lambda: self.arrive(request, answer, back))
        try:
            async with asyncio.timeout(within):
                return await answer
        except TimeoutError as error:
            raise errors.UnreachableError("lost", maybe_applied=True) from error

    def arrive(self, request, answer, back):
        # Also when the sender has given up: the server doesn't know.
        response = self.world.store.handle(request)
        if not self.cut and self.world.random.random() >= self.loses:
            self.world.at(back, lambda: answer.done() or self.loop.is_closed() or answer.set_result(response))

    def stop(self):
        self.stopped = self.surprised = True

    def spin(self):
        while True:
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
            due = self.loop._scheduled and self.loop._scheduled[0]._when <= self.loop.time()
            if not self.loop._ready and not due:
                return

    def next(self):
        if not self.loop._scheduled:
            return float("inf")
        return self.origin + (self.loop._scheduled[0]._when - 1000) / self.rate + 1e-6

    def kill(self):
        self.cut = True
        self.stopped = False
        while tasks := asyncio.all_tasks(self.loop):
            for task in tasks:
                task.cancel()
            self.spin()
        assert self.task.cancelled()
        self.loop.close()
        self.fence = None


class Electors(RuleBasedStateMachine):
    @initialize(rates=st.lists(st.floats(0.95, 1.05), min_size=2, max_size=4), seed=st.integers(0, 2**16))
    def begin(self, rates, seed):
        self.world = World(self.make_store())
        self.world.random = random.Random(seed)
        self.names = itertools.count()
        for rate in rates:
            self.start(rate)

    def start(self, rate):
        self.world.processes.append(Process(self.world, f"p{next(self.names)}", rate))

    def pick(self, which):
        return self.world.processes[which % len(self.world.processes)]

    @rule(seconds=st.floats(0.1, 30))
    def time_passes(self, seconds):
        self.world.advance(seconds)

    @rule(which=st.integers(0, 3))
    def sigstop(self, which):
        self.pick(which).stop()

    @rule(which=st.integers(0, 3))
    def sigcont(self, which):
        self.pick(which).stopped = False

    @rule(which=st.integers(0, 3), cut=st.booleans())
    def partition(self, which, cut):
        self.pick(which).cut = cut

    @rule(which=st.integers(0, 3), slow=st.floats(0, 12))
    def delay(self, which, slow):
        self.pick(which).slow = slow

    @rule(which=st.integers(0, 3), loses=st.floats(0, 0.9))
    def lose(self, which, loses):
        self.pick(which).loses = loses

    @rule()
    def cut_off_the_leader(self):
        for process in self.world.processes:
            process.cut = process.cut or process.leads

    @rule()
    def stop_the_leader(self):
        for process in self.world.processes:
            if process.leads:
                process.stop()

    @rule(which=st.integers(0, 3), rate=st.floats(0.95, 1.05))
    def restart(self, which, rate):
        killed = self.pick(which)
        killed.kill()
        self.world.processes.remove(killed)
        self.start(rate)

    @invariant()
    def at_most_one_leads(self):
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self):
        if not hasattr(self, "world"):
            return
        try:
            for process in self.world.processes:
                process.cut, process.stopped, process.slow, process.loses = False, False, 0.0, 0.0
            self.world.advance(HEALS_WITHIN)
            assert any(process.leads for process in self.world.processes), "nobody leads although nothing is wrong"
        finally:
            for process in self.world.processes:
                process.kill()


@pytest.mark.parametrize("examples", [40])
def test_there_are_never_two_leaders_and_soon_one_when_nothing_is_wrong(leases, examples):
    machine = type("Machine", (Electors,), {"make_store": lambda _: type(leases)()})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
        ),
    )
