from __future__ import annotations

import asyncio
import contextlib
import re
from datetime import UTC, datetime

import msgspec
import pytest

from muster.kube import clock, errors
from muster.kube.fence import Fence, FencedTransport
from muster.kube.lease import LeaderElector, LeaseTiming
from muster.kube.transport import Request

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DOWN = errors.UnreachableError("down", maybe_applied=True)


class Reign:
    """A worker that notes when it led."""

    def __init__(self):
        self.fences = []
        self.spans = []

    async def lead(self, fence):
        loop = asyncio.get_running_loop()
        self.fences.append(fence)
        began = loop.time()
        try:
            await asyncio.Event().wait()
        finally:
            self.spans.append((began, loop.time()))

    @property
    def leads(self):
        return bool(self.fences) and self.fences[-1].live


@pytest.fixture
def elect(server):
    def make(identity="a", timing=None):
        return LeaderElector(server.client, "muster", "worker", identity, clock.LoopClock(START), timing)

    return make


@contextlib.asynccontextmanager
async def running(elector, reign):
    task = asyncio.create_task(elector.run(reign.lead))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_the_first_to_come_leads_and_writes_a_record_that_the_api_server_accepts(leases, elect):
    elector, reign = elect("pod-1"), Reign()
    async with running(elector, reign):
        await asyncio.sleep(60)
        assert reign.leads
        assert len(reign.fences) == 1
        assert elector.leader == elector.identity == leases.holder
        assert re.fullmatch(r"pod-1_[0-9a-f-]{36}", elector.identity)
        spec = leases.lease["spec"]
        assert spec["acquireTime"] == "2026-01-02T03:04:05.000000Z"
        assert re.fullmatch(r"2026-01-02T03:05:0\d\.\d{6}Z", spec["renewTime"])
        assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (15, 0)
        assert leases.lease["kind"] == "Lease"
        assert leases.lease["apiVersion"] == "coordination.k8s.io/v1"


async def test_a_stopped_leader_lets_the_next_one_in_at_once_and_the_change_is_counted(leases, elect):
    first, second = Reign(), Reign()
    async with running(elect("b"), second):
        await asyncio.sleep(0.1)
        async with running(elect("a"), first):
            await asyncio.sleep(30)
            assert second.leads
            assert not first.leads
    # Both have left.
    assert leases.holder == ""
    assert second.fences[0].live is False
    third = Reign()
    async with running(elect("c"), third):
        await asyncio.sleep(0.1)
        assert third.leads
        assert leases.lease["spec"]["leaseTransitions"] == 1


async def test_a_leader_that_vanished_is_waited_for_a_whole_lease_from_when_it_was_last_seen_to_change(
    leases, elect, server
):
    leases.handle(
        Request(
            "POST",
            "/",
            body=msgspec.json.encode(
                {
                    "metadata": {"name": "worker"},
                    "spec": {
                        "holderIdentity": "gone",
                        "leaseDurationSeconds": 15,
                        "renewTime": "1999-01-01T00:00:00.000000Z",
                    },
                }
            ),
        )
    )
    reign = Reign()
    async with running(elect(), reign):
        await asyncio.sleep(14.9)
        assert not reign.leads
        await asyncio.sleep(2.2)
        assert reign.leads
        assert leases.lease["spec"]["leaseTransitions"] == 1


async def test_an_edited_label_does_not_keep_a_dead_leader_in_office(leases, elect):
    leases.handle(
        Request(
            "POST",
            "/",
            body=msgspec.json.encode(
                {"metadata": {"name": "worker"}, "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 15}}
            ),
        )
    )
    reign = Reign()
    async with running(elect(), reign):
        for _ in range(20):
            await asyncio.sleep(1)
            if leases.holder == "gone":
                leases.edit()
        assert reign.leads


async def test_a_lease_that_is_deleted_under_a_living_leader_is_not_taken_before_that_one_knows(leases, elect):
    first, second = Reign(), Reign()
    async with running(elect("a"), first):
        await asyncio.sleep(1)
        async with running(elect("b"), second):
            for _ in range(60):
                await asyncio.sleep(0.5)
                leases.lease = None if asyncio.get_running_loop().time() == 11 else leases.lease
                assert not (first.leads and second.leads)
            assert first.leads or second.leads


async def test_a_leader_that_cannot_renew_stops_before_its_lease_ends(leases, elect, server):
    reign = Reign()
    async with running(elect(), reign):
        await asyncio.sleep(20)
        last = max(at for at, request in server.asked if request.writes)
        server.answer = lambda _: DOWN
        await asyncio.sleep(40)
        ((_, ended),) = reign.spans
        assert last + 9.9 <= ended <= last + 10.1
        assert not reign.leads
        server.answer = leases.handle
        await asyncio.sleep(16)
        assert reign.leads
        assert len(reign.fences) == 2


@pytest.mark.parametrize("lasts", [6.1, 20])
async def test_an_answer_that_comes_late_earns_no_extra_time(leases, elect, server, lasts):
    async def late(request):
        answer = leases.handle(request)
        await asyncio.sleep(3)
        return answer

    reign = Reign()
    server.answer = late
    async with running(elect(), reign):
        await asyncio.sleep(lasts)
        assert reign.leads
        server.answer = lambda _: DOWN
        # The last may be answered after this; its time began when it was sent.
        sent = max(at for at, request in server.asked if request.writes)
        await asyncio.sleep(30)
        assert reign.spans[0][1] <= sent + 10.01


async def test_a_renewal_whose_answer_was_lost_is_found_again(leases, elect, server):
    reign = Reign()
    async with running(elect(), reign):
        await asyncio.sleep(5)

        def lost(request):
            leases.handle(request)
            return DOWN

        server.answer = lost
        await asyncio.sleep(4)
        server.answer = leases.handle
        await asyncio.sleep(30)
        assert reign.leads
        assert len(reign.fences) == 1


@pytest.mark.parametrize("takes", [3.5, 4.0, 4.9])
async def test_a_server_that_takes_less_than_half_the_deadline_keeps_its_leader(leases, elect, server, takes):
    """With each attempt given up after a third of the time, none was ever answered."""

    async def slow(request):
        await asyncio.sleep(takes / 2)
        answer = leases.handle(request)
        await asyncio.sleep(takes / 2)
        return answer

    reign = Reign()
    async with running(elect(), reign):
        await asyncio.sleep(5)
        server.answer = slow
        await asyncio.sleep(120)
        assert reign.leads
        assert len(reign.fences) == 1
        # Others are asked beside one that isn't answered, and not without end.
        writes = sum(request.writes for _, request in server.asked)
        assert writes <= 5 + 120 / LeaseTiming().patience * 2


async def test_a_dead_connection_does_not_use_up_the_time_for_renewals(leases, elect, server):
    reign, dead = Reign(), 0

    async def sometimes_dead(request):
        nonlocal dead
        if request.writes and dead:
            dead -= 1
            await asyncio.Event().wait()
        return leases.handle(request)

    async with running(elect(), reign):
        await asyncio.sleep(5)
        server.answer = sometimes_dead
        for _ in range(5):
            dead = 1
            await asyncio.sleep(20)
        assert reign.leads
        assert len(reign.fences) == 1


async def test_a_write_that_was_applied_counts_from_its_beginning_though_only_its_conflict_was_heard(
    leases, elect, server
):
    """Every answer to a write is lost; the record shows which was applied."""

    async def unheard(request):
        answer = leases.handle(request)
        if request.writes and answer.status == 200:
            await asyncio.Event().wait()
        return answer

    reign = Reign()
    async with running(elect(), reign):
        await asyncio.sleep(5)
        server.answer = unheard
        await asyncio.sleep(60)
        assert reign.leads
        assert len(reign.fences) == 1


async def test_a_leader_that_finds_another_in_its_place_stops_at_once(leases, elect):
    reign = Reign()
    async with running(elect(), reign):
        await asyncio.sleep(5)
        leases.edit(holderIdentity="usurper")
        await asyncio.sleep(2.1)
        assert not reign.leads
        assert len(reign.spans) == 1
        assert leases.holder == "usurper"


async def test_a_worker_that_fails_releases_the_lease_and_its_error_comes_out(leases, elect):
    async def lead(fence):
        await asyncio.sleep(3)
        raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        await elect().run(lead)
    assert leases.holder == ""


async def test_a_worker_that_returns_ends_the_candidacy(leases, elect):
    async def lead(fence):
        await asyncio.sleep(3)

    await elect().run(lead)
    assert leases.holder == ""


async def test_a_worker_that_runs_into_its_dead_fence_stands_again(leases, elect):
    fences = []

    async def lead(fence):
        fences.append(fence)
        if len(fences) < 3:
            fence.revoke()
            fence.check()

    await elect().run(lead)
    assert len(fences) == 3


async def checked(fence):
    fence.check()


async def test_a_part_of_a_worker_that_runs_into_its_dead_fence_makes_it_stand_again(leases, elect):
    fences = []

    async def lead(fence):
        fences.append(fence)
        if len(fences) < 3:
            fence.revoke()
            async with asyncio.TaskGroup() as parts, asyncio.TaskGroup() as inner:
                parts.create_task(asyncio.Event().wait())
                inner.create_task(checked(fence))

    await elect().run(lead)
    assert len(fences) == 3


async def test_what_fails_beside_a_dead_fence_is_not_lost(leases, elect):
    async def lead(fence):
        fence.revoke()
        async with asyncio.TaskGroup() as parts:
            parts.create_task(checked(fence))
            parts.create_task(broken())

    async def broken():
        raise LookupError("another")

    with pytest.raises(ExceptionGroup) as raised:
        await elect().run(lead)
    assert raised.group_contains(LookupError)


async def test_the_lease_is_released_only_after_the_worker_has_ended(leases, elect):
    held = []

    async def lead(fence):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(3)
            held.append((leases.holder, fence.live))

    elector = elect()
    task = asyncio.create_task(elector.run(lead))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert held == [(elector.identity, True)]
    assert leases.holder == ""


async def test_a_worker_that_will_not_end_is_reported_with_its_fence_dead_and_its_lease_kept(leases, elect):
    kept, release = [], asyncio.Event()

    async def lead(fence):
        kept.append(fence)
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    elector = elect()
    task = asyncio.create_task(elector.run(lead))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(errors.WorkerStuckError, match="has not stopped after 5 s"):
        await task
    assert not kept[0].live
    assert leases.holder == elector.identity
    release.set()


async def test_one_who_is_cancelled_twice_still_leaves_a_dead_fence_and_a_kept_lease(leases, elect):
    kept, release = [], asyncio.Event()

    async def lead(fence):
        kept.append(fence)
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    elector = elect()
    task = asyncio.create_task(elector.run(lead))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not kept[0].live
    assert leases.holder == elector.identity
    release.set()


async def test_one_who_leaves_while_the_claim_is_under_way_takes_it_back(leases, elect, server):
    async def slow(request):
        answer = leases.handle(request)
        if request.writes and leases.holder:
            await asyncio.sleep(2)
        return answer

    server.answer = slow
    task = asyncio.create_task(elect().run(Reign().lead))
    await asyncio.sleep(1)
    assert leases.holder
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert leases.holder == ""


@pytest.mark.parametrize("code", [401, 403, 409, 422, 429, 500, 503])
async def test_a_failing_server_is_not_hammered(server, elect, code):
    server.answer = lambda request: server.status(code if request.writes or code != 409 else 404, "x", "no")
    reign = Reign()
    async with running(elect(), reign):
        await asyncio.sleep(600)
        assert not reign.fences
    assert 20 <= len(server.asked) <= (900 if code == 409 else 90)


def test_timings_that_would_let_two_lead_are_refused():
    with pytest.raises(ValueError, match="must be able to renew twice"):
        LeaseTiming(lease=10, renew=10)
    with pytest.raises(ValueError, match="must be able to renew twice"):
        LeaseTiming(lease=15, renew=10, retry=5)


async def test_a_dead_fence_refuses_writes_and_lets_reads_pass(server):
    server.answer = lambda _: server.listing(1)
    server.watches = [[b"line"]]
    fence = Fence("me", clock.steady(asyncio.get_running_loop()) + 10)
    fenced = FencedTransport(server, fence)
    await fenced.request(Request("PUT", "/x"), within=1)
    await asyncio.sleep(10)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(errors.FenceLostError, match="me is not the leader any more"):
            await fenced.request(Request(method, "/x"), within=1)
    await fenced.request(Request("GET", "/x"), within=1)
    async with fenced.watch(Request("GET", "/x"), idle=1) as lines:
        assert [line async for line in lines] == [b"line"]
    assert [request.method for _, request in server.asked] == ["PUT", "GET", "GET"]


async def test_a_dead_fence_stays_dead():
    now = clock.steady(asyncio.get_running_loop())
    fence = Fence("me", now + 10)
    await asyncio.sleep(11)
    with pytest.raises(errors.FenceLostError):
        fence.extend(now + 100)
    assert (fence.live, fence.remaining) == (False, 0)


async def test_time_that_the_machine_slept_counts_against_a_fence(monkeypatch):
    fence = Fence("me", clock.steady(asyncio.get_running_loop()) + 10)
    real = clock.time.clock_gettime
    boot = clock.time.CLOCK_BOOTTIME
    monkeypatch.setattr(clock.time, "clock_gettime", lambda which: real(which) + (3600 if which == boot else 0))
    with pytest.raises(errors.FenceLostError):
        fence.check()


async def test_what_a_worker_raises_while_it_is_stopped_is_logged_and_the_stop_goes_on(leases, elect, caplog):
    async def lead(fence):
        try:
            await asyncio.Event().wait()
        finally:
            raise LookupError("broken on the way out")

    task = asyncio.create_task(elect().run(lead))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "broken on the way out" in caplog.text
    assert leases.holder == ""


async def test_a_worker_that_fails_before_its_first_step_releases_the_lease_too(leases, elect):
    def lead(fence):
        raise LookupError("no coroutine")

    with pytest.raises(LookupError):
        await elect().run(lead)
    assert leases.holder == ""
