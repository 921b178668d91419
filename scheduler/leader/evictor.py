"""Performs the evictions of a plan, through the API that respects disruption budgets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from muster.kube import errors
from muster.kube.backoff import Backoff
from muster.kube.client import Client
from muster.kube.events import EventRecorder
from muster.model import kinds
from muster.model.objects import Meta, Object
from scheduler.leader.events import EvictionRefused, EvictionRetryDue
from scheduler.model.plan import Eviction

log = logging.getLogger(__name__)

EVICTIONS_IN_FLIGHT: Final = 32
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0


class Evictor:
    """Evicts pods, 32 at a time.

    A pod that can't be evicted now, for a budget's sake or because the server is busy, is spared until it is time to
    try again: the next cycle looks for others. An eviction whose outcome is unknown is read back, never repeated blind.
    """

    def __init__(
        self, client: Client, recorder: EventRecorder, emit: Callable[[EvictionRefused | EvictionRetryDue], None]
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._emit = emit
        self._slots = asyncio.Semaphore(EVICTIONS_IN_FLIGHT)
        self._running: set[asyncio.Task[None]] = set()
        self._failing: dict[str, Backoff] = {}

    def start(self, evictions: Iterable[Eviction]) -> None:
        """Begin to evict; returns at once. The caller counts the pods as leaving until an `EvictionRefused` is emitted."""
        for eviction in evictions:
            task = asyncio.create_task(self._evict(eviction), name=f"evict {eviction.task}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def forget(self, uid: str) -> None:
        """Keep nothing for another try: the pod is gone."""
        self._failing.pop(uid, None)

    async def close(self) -> None:
        """End what is under way, and wait for its end."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _evict(self, eviction: Eviction) -> None:
        task = eviction.task
        try:
            async with self._slots:
                await self._evict_once(eviction)
        except errors.FenceLostError:
            log.info("pod %s is left to the next leader", task)
        except Exception as error:  # noqa: BLE001 - a bug must not leave the pod counted as leaving
            self._emit(EvictionRefused(task.uid))
            await self._pause(eviction, error)
            self._emit(EvictionRetryDue(task.uid))
        else:
            self._failing.pop(task.uid, None)
            self._record(eviction)

    async def _evict_once(self, eviction: Eviction) -> None:
        task = eviction.task
        try:
            await self._client.evict(task.namespace, task.name, task.uid)
        except (errors.NotFoundError, errors.ConflictError) as error:
            # Gone, or another pod by now: the watch tells which. It leaves its place in either case.
            log.info("pod %s needs no eviction: %s", task, error)
        except (errors.UnreachableError, errors.ServerError) as error:
            if isinstance(error, errors.UnreachableError) and not error.maybe_applied:
                raise
            if not await self._is_leaving(eviction):
                raise

    async def _is_leaving(self, eviction: Eviction) -> bool:
        """Read back whether a pod is gone or going."""
        pod = await self._client.find(kinds.PODS, eviction.task.name, eviction.task.namespace)
        if pod is None or pod.metadata.uid != eviction.task.uid:
            return True
        return pod.metadata.deletion_timestamp is not None

    async def _pause(self, eviction: Eviction, error: Exception) -> None:
        if not isinstance(error, errors.KubeError) and eviction.task.uid not in self._failing:
            log.error("the eviction of pod %s failed: an error in Muster", eviction.task, exc_info=error)
        backoff = self._failing.setdefault(eviction.task.uid, Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))
        pause = backoff.pause(error.retry_after if isinstance(error, errors.ApiError) else None)
        log.warning("pod %s is not evicted, and spared for %.1f s: %s", eviction.task, pause, error)
        await asyncio.sleep(pause)

    def _record(self, eviction: Eviction) -> None:
        task = eviction.task
        about = Object(metadata=Meta(name=task.name, namespace=task.namespace, uid=task.uid))
        # The event is for those who see this namespace, who may not see another.
        same = eviction.beneficiary.namespace == task.namespace
        winner = f"PodGroup {eviction.beneficiary}" if same else "a PodGroup of another namespace"
        words = f"Preempted by {winner} (priority {eviction.priority})"
        if eviction.beneficiary == eviction.group:
            words = f"Evicted: the other pods of PodGroup {eviction.group}, which must start together, found no nodes"
        self._recorder.record(kinds.PODS, about, "Preempted", words)
