"""Leadership through a Lease: one worker at a time, ended before another may begin.

Why at most one fence lives: a fence's time is counted from *before* the write that earned it was sent, for
`LeaseTiming.renew` seconds. Others count `LeaseTiming.lease` seconds, which is more, from *after* they first saw that write's
result. Each counts by its own steady clock; nobody compares wall clocks, the times in the record are for people.

docs/decisions/0030-leases-and-fences.md has the alternatives.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from muster.kube.backoff import Backoff, jittered
from muster.kube.client import Client
from muster.kube.clock import Clock, steady
from muster.kube.errors import ApiError, ConflictError, FenceLostError, KubeError, NotFoundError, WorkerStuckError
from muster.kube.fence import Fence
from muster.model.kinds import LEASES
from muster.model.objects import Lease, LeaseSpec, Meta

log = logging.getLogger(__name__)

_TOO_LATE: Final = 0.1  # seconds; no renewal succeeds in less


class LeaseTiming(Struct, frozen=True):
    """How long leadership lasts, in seconds.

    Attributes:
        lease: how long the others wait after the last sign of life; client-go's LeaseDuration.
        renew: how long the leader goes on without a successful renewal; its RenewDeadline. The difference of the two covers
            clocks that run at different speeds, and is the time that a worker has for ending after it was told to.
        retry: between two attempts, to renew or to take over; its RetryPeriod.
    """

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < 2 * self.retry < self.renew < self.lease:
            raise ValueError(f"a leader must be able to renew twice in time, and stop before its lease ends: {self}")

    @property
    def grace(self) -> float:
        """Seconds a worker has to end."""
        return self.lease - self.renew

    @property
    def call(self) -> float:
        """Seconds for one request of who doesn't lead: a claim must have some of its time left when it is answered."""
        return self.renew / 2

    @property
    def patience(self) -> float:
        """Seconds after which a renewal that isn't answered has another sent beside it, in case its connection is dead."""
        return self.renew / 3


class _Seen(Struct, frozen=True):
    """A state of the Lease, and when it was first seen (steady clock)."""

    lease: Lease
    at: float


class LeaderElector:
    """Stands for election until it leads, leads until it loses, and stands again.

    Source: ``LeaderElector`` of ``k8s.io/client-go/tools/leaderelection``, with the same record and the same durations. It
    also waits for the worker's end before another may lead, and grants a `Fence` that each write needs.

    Attributes:
        identity: what the record calls this process: the given name and a fresh UUID, so that a restarted process is
            never taken for the one before.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        timing: LeaseTiming | None = None,
        *,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """Prepare; `run` begins.

        Args:
            client: reads and writes the Lease.
            namespace: of the Lease.
            name: of the Lease.
            identity: the first part of the identity; empty for a UUID alone.
            clock: for the times in the record, which are for people.
            timing: the durations.
            alive: whether the worker does its work. While it is false, the Lease isn't renewed.

        Raises:
            ValueError: the durations don't fit each other.
        """
        self.identity = f"{identity}_{uuid.uuid4()}" if identity else str(uuid.uuid4())
        self._timing = timing or LeaseTiming()
        self._client = client.limited(self._timing.call)
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._alive = alive
        self._seen: _Seen | None = None
        # Set before the first write that could make us the holder; tells whether there may be something to release.
        self._may_lead = False

    @property
    def leader(self) -> str:
        """The holder's identity as last seen; empty when nobody held the Lease then, or none was seen yet."""
        return (self._seen.lease.spec.holder_identity or "") if self._seen else ""

    async def run(self, lead: Callable[[Fence], Awaitable[None]]) -> None:
        """Run ``lead`` whenever this process is the leader, until it returns or raises.

        ``lead`` is cancelled when leadership is lost, and then called again with a new fence after the next election.
        What it raises comes out of here after the lease was released.

        Raises:
            WorkerStuckError: ``lead`` was cancelled and didn't end. Its fence is dead; the process should end too.
        """
        finished = False
        while not finished:
            try:
                fence = await self._stand()
                finished = await self._reign(fence, lead)
            finally:
                await self._release()

    # ── standing ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _stand(self) -> Fence:
        backoff = Backoff(self._timing.retry, self._timing.lease)
        while True:
            try:
                fence = await self._take()
            except KubeError as error:
                pause = backoff.pause(_asked(error))
                log.warning("can't read or write the lease %s, trying again in %.0f s: %s", self._lease, pause, error)
            else:
                if fence is not None:
                    log.info("%s leads (lease %s)", self.identity, self._lease)
                    return fence
                backoff.reset()
                pause = jittered(self._timing.retry)
            await asyncio.sleep(pause)

    async def _take(self) -> Fence | None:
        """Take the lease where it is free; None where it isn't, or where another was quicker."""
        found = await self._client.find(LEASES, self._name, self._namespace)
        now = self._note(found)
        if self.leader not in {"", self.identity} and not self._expired(now):
            # Also when it was deleted under a holder that was seen to be alive: that one doesn't know yet. In our own
            # name it stands when we lost the answer that made us the holder; there is no fence then.
            return None
        try:
            await self._write(found, self._new_record(found))
        except ConflictError:
            return None
        return Fence(self.identity, now + self._timing.renew)

    def _expired(self, now: float) -> bool:
        assert self._seen is not None
        return now >= self._seen.at + (self._seen.lease.spec.lease_duration_seconds or self._timing.lease)

    def _note(self, lease: Lease | None) -> float:
        now = self._now()
        # The spec, not the resourceVersion: who edits a label every second must not keep a dead leader in office.
        if lease is not None and (self._seen is None or self._seen.lease.spec != lease.spec):
            self._seen = _Seen(lease, now)
        return now

    def _new_record(self, found: Lease | None) -> LeaseSpec:
        now = _micro_time(self._clock.now())
        transitions = 0 if found is None else (found.spec.lease_transitions or 0) + 1
        return LeaseSpec(
            holder_identity=self.identity,
            # The record counts whole seconds; rounding up keeps the others waiting long enough.
            lease_duration_seconds=math.ceil(self._timing.lease),
            acquire_time=now,
            renew_time=now,
            lease_transitions=transitions,
        )

    async def _write(self, found: Lease | None, spec: LeaseSpec) -> None:
        self._may_lead = True
        if found is None:
            meta = Meta(name=self._name, namespace=self._namespace)
            written = await self._client.create(LEASES, Lease(metadata=meta, spec=spec), self._namespace)
        else:
            written = await self._client.replace(LEASES, msgspec.structs.replace(found, spec=spec), self._namespace)
        self._seen = _Seen(written, self._now())

    # ── leading ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _reign(self, fence: Fence, lead: Callable[[Fence], Awaitable[None]]) -> bool:
        """Lead until the worker ends (True) or leadership does (False)."""
        worker = asyncio.create_task(_work(lead, fence))
        renewal = asyncio.create_task(self._keep(fence))
        try:
            await asyncio.wait({worker, renewal}, return_when=asyncio.FIRST_COMPLETED)
            finished = worker.done()
        except asyncio.CancelledError:
            worker.add_done_callback(_log_failure)
            raise
        finally:
            try:
                await self._end(renewal, self._timing.grace)
                await self._end(worker, self._timing.grace)
            finally:
                fence.revoke()
                # Under a worker that goes on, the lease may only run out.
                self._may_lead = worker.done()
        if not renewal.cancelled():
            renewal.result()
        return _result(worker) and finished

    async def _end(self, task: asyncio.Task[None], grace: float) -> None:
        task.cancel()
        await asyncio.wait({task}, timeout=grace)
        if not task.done():
            raise WorkerStuckError(
                f"{self.identity} was told to stop leading and has not stopped after {grace:g} s; it can't write any "
                "more, and this process must end"
            )

    async def _keep(self, fence: Fence) -> None:
        """Renew until the fence is dead, or the worker is."""
        began = self._now()
        while True:
            # From one beginning to the next: a server that takes longer than that is asked again as soon as it answers.
            pause = max(0.0, began + jittered(self._timing.retry) - self._now())
            await asyncio.sleep(min(pause, fence.remaining))
            began = self._now()
            if not self._alive():
                log.error("the worker hangs; the lease %s isn't renewed for it", self._lease)
                break
            try:
                if fence.remaining < _TOO_LATE or not await self._renew(fence):
                    break
            except FenceLostError:
                break
            except KubeError as error:
                log.warning("can't renew the lease %s, %.1f s are left: %s", self._lease, fence.remaining, error)
        fence.revoke()
        log.warning("%s leads no more (lease %s)", self.identity, self._lease)

    async def _renew(self, fence: Fence) -> bool:
        """Renew once; False when the lease is another's.

        An attempt may take as long as the fence lives, and the next ones go beside it: an API server that is slow answers in
        time, where none would if each were given up for the next. Whichever is answered first counts.
        """
        sent: dict[str, float] = {}
        attempts: set[asyncio.Task[bool]] = set()
        trouble: KubeError | None = None
        try:
            while fence.remaining >= _TOO_LATE:
                attempts.add(asyncio.create_task(self._attempt(fence, sent)))
                patience = min(self._timing.patience, fence.remaining)
                done, attempts = await asyncio.wait(attempts, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    try:
                        return each.result()
                    except KubeError as error:
                        trouble = error
                if not attempts and trouble is not None:
                    raise trouble
        finally:
            for each in attempts:
                each.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)
        return False

    async def _attempt(self, fence: Fence, sent: dict[str, float]) -> bool:
        """Write the record once; ``sent``: when each was begun, by its time."""
        assert self._seen is not None
        began, lease = self._now(), self._seen.lease
        client = self._client.limited(fence.remaining)
        spec = msgspec.structs.replace(lease.spec, renew_time=_micro_time(self._clock.now()))
        sent.setdefault(spec.renew_time or "", began)
        try:
            written = await client.replace(LEASES, msgspec.structs.replace(lease, spec=spec), self._namespace)
        except (ConflictError, NotFoundError):
            return await self._still_ours(fence, sent)
        self._seen = _Seen(written, self._now())
        fence.extend(began + self._timing.renew)
        return True

    async def _still_ours(self, fence: Fence, sent: Mapping[str, float]) -> bool:
        """After a conflict: see whether it was a write of our own, whose answer was lost or is late, or an edit of a label."""
        found = await self._client.find(LEASES, self._name, self._namespace)
        if found is None or found.spec.holder_identity != self.identity:
            self._note(found)
            return False
        self._seen = _Seen(found, self._now())
        began = sent.get(found.spec.renew_time or "")
        if began is not None:
            fence.extend(began + self._timing.renew)
        return True

    # ── leaving ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _release(self) -> None:
        """Release the Lease, so that another can lead at once; where that fails, it has to wait for the Lease to expire."""
        if not self._may_lead:
            return
        self._may_lead = False
        try:
            async with asyncio.timeout(self._timing.call):
                found = await self._client.find(LEASES, self._name, self._namespace)
                if found is None or found.spec.holder_identity != self.identity:
                    return
                spec = msgspec.structs.replace(found.spec, holder_identity="", lease_duration_seconds=1)
                await self._client.replace(LEASES, msgspec.structs.replace(found, spec=spec), self._namespace)
        except (KubeError, TimeoutError) as error:
            log.warning("the lease %s could not be released, it runs out by itself: %s", self._lease, error)

    @property
    def _lease(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _now(self) -> float:
        return steady(asyncio.get_running_loop())


async def _work(lead: Callable[[Fence], Awaitable[None]], fence: Fence) -> None:
    await lead(fence)


def _result(worker: asyncio.Task[None]) -> bool:
    """Raise what the worker raised; True when it returned. That it ran into the dead fence is no failure."""
    if worker.cancelled() or _fenced(worker.exception()):
        return False
    worker.result()
    return True


def _log_failure(worker: asyncio.Task[None]) -> None:
    """Log what a worker raises while it is being shut down: the shutdown itself is what comes out of `LeaderElector.run`."""
    if not worker.cancelled() and (error := worker.exception()) and not _fenced(error):
        log.error("the worker failed while it was being stopped", exc_info=error)


def _fenced(error: BaseException | None) -> bool:
    """Whether an error is the dead fence's and nothing else; what works in parts raises it in a group."""
    if isinstance(error, BaseExceptionGroup):
        return all(_fenced(each) for each in error.exceptions)
    return isinstance(error, FenceLostError)


def _asked(error: KubeError) -> float | None:
    return error.retry_after if isinstance(error, ApiError) else None


def _micro_time(moment: datetime) -> str:
    """Write a MicroTime: the API server insists on exactly six decimals."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
