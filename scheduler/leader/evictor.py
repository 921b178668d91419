"""Performs the evictions of a plan, through the API that respects disruption budgets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final

from muster.kube import errors
from muster.kube.backoff import Backoff
from muster.kube.client import Client
from muster.kube.events import EventRecorder
from muster.model import kinds
from muster.model.objects import Meta, Object
from muster.telemetry.repeated import RepeatedWarnings
from scheduler.leader.events import EvictionEvent, EvictionRefused, EvictionRetryDue, PodEvicted
from scheduler.model.affinity import CountingRule
from scheduler.model.plan import Eviction
from scheduler.model.snapshot import GroupKey

log = logging.getLogger(__name__)

EVICTIONS_IN_FLIGHT: Final = 32
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0


_Refusal = tuple[Eviction, Exception]


class Evictor:
    """Evicts pods for groups, all that a group needs or as few as can be, 32 at a time.

    All victims of a group are tried as dry runs first; the first that is refused spares the others. Pods with a budget
    are evicted one after the other, since a dry run doesn't spend the budget. Whose eviction is refused is spared until
    it is time to try again: the next cycle looks for others. An eviction whose outcome is unknown is read back, never
    repeated blind.

    ``record_on_group`` records an event on a PodGroup: its key, a reason and a sentence.
    """

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        emit: Callable[[EvictionEvent], None],
        record_on_group: Callable[[GroupKey, str, str], None],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._emit = emit
        self._record_on_group = record_on_group
        self._slots = asyncio.Semaphore(EVICTIONS_IN_FLIGHT)
        self._running: set[asyncio.Task[None]] = set()
        self._failing: dict[str, Backoff] = {}
        self._warnings = RepeatedWarnings(log, lambda: asyncio.get_running_loop().time())

    def start(self, evictions: Iterable[Eviction]) -> None:
        """Begin to evict; returns at once. The caller counts the pods as leaving until it is told that one stays."""
        batches: dict[object, list[Eviction]] = {}
        for each in evictions:
            # Of a gang that is undone each pod goes for its own sake.
            undone = each.beneficiary == each.group
            batches.setdefault(each.task.uid if undone else each.beneficiary, []).append(each)
        for batch in batches.values():
            task = asyncio.create_task(self._evict_all(batch), name=f"evict for {batch[0].beneficiary}")
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

    async def _evict_all(self, batch: Sequence[Eviction]) -> None:
        evicted: set[str] = set()
        try:
            # Of one alone the eviction itself tells.
            refusal = await self._rehearse(batch) if len(batch) > 1 else None
            if refusal is None:
                refusal = await self._carry_out(batch, evicted)
        except errors.FenceLostError:
            log.info("the eviction of %d pods is left to the next leader", len(batch) - len(evicted))
            return
        finally:
            self._record_losses([each for each in batch if each.task.uid in evicted])
        if refusal is not None:
            await self._refused(*refusal, batch, evicted)

    async def _rehearse(self, batch: Sequence[Eviction]) -> _Refusal | None:
        """Try all as dry runs; return the first that is refused."""

        async def rehearse(each: Eviction) -> _Refusal | None:
            async with self._slots:
                return await _attempt(each, self._dry_run)

        outcomes = await asyncio.gather(*[rehearse(each) for each in batch])
        return next((each for each in outcomes if each is not None), None)

    async def _carry_out(self, batch: Sequence[Eviction], evicted: set[str]) -> _Refusal | None:
        """Evict until one is refused; return that."""
        found: list[_Refusal] = []

        async def evict(each: Eviction) -> None:
            async with self._slots:
                if found:
                    return
                refusal = await _attempt(each, self._evict_once)
            if refusal is not None:
                found.append(refusal)
                return
            evicted.add(each.task.uid)
            self._failing.pop(each.task.uid, None)
            self._record(each)
            self._emit(PodEvicted(each.task.uid, each.beneficiary))

        for each in batch:
            if _has_budget(each):
                await evict(each)
        await asyncio.gather(*[evict(each) for each in batch if not _has_budget(each)])
        return found[0] if found else None

    async def _refused(
        self, eviction: Eviction, error: Exception, batch: Sequence[Eviction], evicted: Collection[str]
    ) -> None:
        """Spare the pod for a while, and the others for this time."""
        task = eviction.task
        others = tuple([each.task.uid for each in batch if each.task.uid not in {task.uid, *evicted}])
        beneficiary = eviction.beneficiary if eviction.beneficiary != eviction.group else None
        self._emit(EvictionRefused(task.uid, others, beneficiary, _reason(eviction, error)))
        await self._pause(eviction, error)
        self._emit(EvictionRetryDue(task.uid))

    async def _dry_run(self, eviction: Eviction) -> None:
        task = eviction.task
        try:
            await self._client.evict(task.namespace, task.name, task.uid, dry_run=True)
        except (errors.NotFoundError, errors.ConflictError):
            return  # Gone, or another pod by now.

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
        text = "pod %s is not evicted, and spared for %.1f s: %s"
        cause = eviction.beneficiary, str(error).replace(eviction.task.name, "")
        self._warnings.warn(cause, text, eviction.task, pause, error)
        await asyncio.sleep(pause)

    def _record(self, eviction: Eviction) -> None:
        task = eviction.task
        about = Object(metadata=Meta(name=task.name, namespace=task.namespace, uid=task.uid))
        self._recorder.record(kinds.PODS, about, *_reason_and_words(eviction))

    def _record_losses(self, evicted: Iterable[Eviction]) -> None:
        """Record on each PodGroup how many of its pods were evicted for another one."""
        losses: dict[GroupKey, list[Eviction]] = {}
        for each in evicted:
            if each.beneficiary != each.group:
                losses.setdefault(each.group, []).append(each)
        for key, lost in losses.items():
            reason, words = _reason_and_words(lost[0])
            pods = f"pod {lost[0].task.name} is" if len(lost) == 1 else f"{len(lost)} pods are"
            self._record_on_group(key, reason, f"{words}: {pods} evicted")


def _reason_and_words(eviction: Eviction) -> tuple[str, str]:
    """Return the reason of the event of an eviction, and its sentence."""
    # The event is for those who see this namespace, who may not see another.
    same = eviction.beneficiary.namespace == eviction.task.namespace
    winner = eviction.title if same else "a PodGroup of another namespace"
    if eviction.reclaimed_by:
        return "Reclaimed", f"Reclaimed by queue {eviction.reclaimed_by} for {winner}"
    if eviction.beneficiary == eviction.group:
        return "Preempted", f"Evicted: the other pods of {eviction.title}, which must start together, found no nodes"
    return "Preempted", f"Preempted by {winner} (priority {eviction.priority})"


async def _attempt(eviction: Eviction, step: Callable[[Eviction], Awaitable[None]]) -> _Refusal | None:
    try:
        await step(eviction)
    except errors.FenceLostError:
        raise
    except Exception as error:  # noqa: BLE001 - a bug must not leave the pod counted as leaving
        return eviction, error
    return None


def _has_budget(eviction: Eviction) -> bool:
    return any(peers.purpose is CountingRule.BUDGET for peers in eviction.task.task_class.constraints.peers)


def _reason(eviction: Eviction, error: Exception) -> str:
    """Say what was refused, for those who see the beneficiary, who may not see the namespace of the pod."""
    if eviction.task.namespace != eviction.beneficiary.namespace:
        return "a pod of another namespace may not be evicted now"
    text = error.message if isinstance(error, errors.ApiError) else str(error)
    return f"pod {eviction.task.name} may not be evicted now: {text}"
