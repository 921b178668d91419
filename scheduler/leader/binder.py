"""Performs the binds of a plan. Nothing but a live fence lets one out: the client's transport demands it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

from muster.kube import errors
from muster.kube.backoff import Backoff
from muster.kube.client import Client
from muster.model import kinds
from muster.telemetry.repeated import RepeatedWarnings
from scheduler.leader.device_binder import DeviceBinder
from scheduler.leader.events import BindFailed
from scheduler.leader.volume_binder import VolumeBinder
from scheduler.model.claims import HeldClaim
from scheduler.model.plan import Bind

log = logging.getLogger(__name__)

BINDS_IN_FLIGHT: Final = 64
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 30.0


class Binder:
    """Binds pods, 64 at a time.

    A bind that the server refuses for a while (busy, a webhook) keeps its place until it is due again and then gives it
    up, so that the next cycle decides anew. One whose outcome is unknown is read back, never repeated blind.
    """

    def __init__(
        self, client: Client, volumes: VolumeBinder, devices: DeviceBinder, emit: Callable[[BindFailed], None]
    ) -> None:
        self._client = client
        self._volumes = volumes
        self._devices = devices
        self._emit = emit
        self._queue: deque[Bind] = deque()
        self._workers = 0
        self._running: set[asyncio.Task[None]] = set()
        self._pausing: dict[str, asyncio.TimerHandle] = {}
        self._failing: dict[str, Backoff] = {}
        self._warnings = RepeatedWarnings(log, lambda: asyncio.get_running_loop().time())

    def start(self, binds: Iterable[Bind]) -> None:
        """Begin to bind; returns at once. The caller counts the pods as placed until a `BindFailed` is emitted."""
        for bind in binds:
            if bind.volumes or bind.devices:
                # Volumes may take minutes to be made, so a pod that waits for them holds up nobody.
                self._spawn(self._after_claims(bind), f"claims of {bind.task}")
            else:
                self._queue.append(bind)
        self._start_workers()

    def give_back(self, held: Iterable[HeldClaim]) -> None:
        """Begin to take back the devices of claims that are held in vain; returns at once."""
        for each in held:
            self._spawn(self._devices.give_back(each), f"devices of {each.claim}")

    def busy(self) -> bool:
        """Whether pods wait to be bound, or are being bound."""
        return bool(self._workers)

    def forget(self, uid: str) -> None:
        """Keep nothing for another try: the pod is gone."""
        self._failing.pop(uid, None)
        handle = self._pausing.pop(uid, None)
        if handle is not None:
            handle.cancel()

    async def close(self) -> None:
        """End what is under way, and wait for its end."""
        self._queue.clear()
        for handle in self._pausing.values():
            handle.cancel()
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _start_workers(self) -> None:
        """Have as many serve the line as may; a task per bind would cost more than the binds."""
        for _ in range(min(BINDS_IN_FLIGHT - self._workers, len(self._queue))):
            self._workers += 1
            self._spawn(self._work(), "binder")

    async def _work(self) -> None:
        try:
            while self._queue:
                bind = self._queue.popleft()
                await self._attempt(bind, self._bind(bind))
        finally:
            self._workers -= 1

    async def _after_claims(self, bind: Bind) -> None:
        if await self._attempt(bind, self._volumes.prepare(bind)) and await self._attempt(
            bind, self._devices.prepare(bind)
        ):
            self._queue.append(bind)
            self._start_workers()

    async def _attempt(self, bind: Bind, step: Awaitable[bool]) -> bool:
        """Take a step; where it fails, give the pod's place up, at once or when it may be tried again."""
        uid = bind.task.uid
        try:
            done = await step
            if not done and bind.devices:
                await self._devices.undo(bind)
        except errors.FenceLostError:
            log.info("pod %s is left to the next leader", bind.task)
            return False
        except Exception as error:  # noqa: BLE001 - a bug must not take the other binds with it
            self._pause(bind, error)
            return False
        self._failing.pop(uid, None)
        if not done:
            self._emit(BindFailed(uid))
        return done

    async def _bind(self, bind: Bind) -> bool:
        """Bind; tell whether the pod is bound to that node now."""
        task = bind.task
        try:
            await self._client.bind(task.namespace, task.name, task.uid, bind.node)
        except (errors.NotFoundError, errors.ConflictError) as error:
            # Gone, another pod by now, being deleted, or bound already: the watch tells which.
            log.info("pod %s isn't bound to %s: %s", task, bind.node, error)
            return False
        except (errors.UnreachableError, errors.ServerError) as error:
            if isinstance(error, errors.UnreachableError) and not error.maybe_applied:
                raise
            if not await self._read_back(bind):
                raise
        return True

    async def _read_back(self, bind: Bind) -> bool:
        pod = await self._client.find(kinds.PODS, bind.task.name, bind.task.namespace)
        return pod is not None and pod.metadata.uid == bind.task.uid and pod.spec.node_name == bind.node

    def _pause(self, bind: Bind, error: Exception) -> None:
        uid = bind.task.uid
        if not isinstance(error, errors.KubeError) and uid not in self._failing:
            log.error("the bind of pod %s failed: an error in Muster", bind.task, exc_info=error)
        backoff = self._failing.setdefault(uid, Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))
        pause = backoff.pause(error.retry_after if isinstance(error, errors.ApiError) else None)
        text = "pod %s could not be bound to %s, again in %.1f s: %s"
        # A gang's pods are refused for one reason, at each try.
        cause = bind.group, str(error).replace(bind.task.name, "")
        self._warnings.warn(cause, text, bind.task, bind.node, pause, error)
        self._pausing[uid] = asyncio.get_running_loop().call_later(pause, self._resume, uid)

    def _resume(self, uid: str) -> None:
        self._pausing.pop(uid, None)
        self._emit(BindFailed(uid))
