"""Performs the binds of a plan. Nothing but a live fence lets one out: the client's transport demands it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from muster.kube import errors
from muster.kube.backoff import Backoff
from muster.kube.client import Client
from muster.model import kinds
from scheduler.plan import Bind
from scheduler.volumebinder import VolumeBinder

log = logging.getLogger(__name__)

IN_FLIGHT: Final = 64
_FIRST: Final = 0.5
_MOST: Final = 30.0


class Binder:
    """Binds pods, 64 at a time.

    A bind that the server refuses for a while (busy, a webhook) keeps its place until it is due again and then gives it
    up, so that the next cycle decides anew. One whose outcome is unknown is read back, never repeated blind.
    """

    def __init__(self, client: Client, volumes: VolumeBinder, give_up: Callable[[str], None]) -> None:
        self._client = client
        self._volumes = volumes
        self._give_up = give_up
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._flying: set[asyncio.Task[None]] = set()
        self._failing: dict[str, Backoff] = {}

    def start(self, binds: Iterable[Bind]) -> None:
        """Begin to bind; returns at once. The caller counts the pods as placed until ``give_up`` is told their uid."""
        for bind in binds:
            task = asyncio.create_task(self._bind(bind), name=f"bind {bind.task}")
            self._flying.add(task)
            task.add_done_callback(self._flying.discard)

    async def close(self) -> None:
        """End what is under way, and wait for its end."""
        for task in tuple(self._flying):
            task.cancel()
        await asyncio.gather(*self._flying, return_exceptions=True)

    async def _bind(self, bind: Bind) -> None:
        uid = bind.task.uid
        try:
            # Volumes may take minutes to be made, so a pod that waits for them takes no slot.
            bound = not bind.volumes or await self._volumes.prepare(bind)
            if bound:
                async with self._slots:
                    bound = await self._try(bind)
        except errors.FenceLostError:
            log.info("pod %s is left to the next leader", bind.task)
            return
        except errors.KubeError as error:
            await self._pause(bind, error)
            bound = False
        if bound:
            self._failing.pop(uid, None)
        else:
            self._give_up(uid)

    async def _try(self, bind: Bind) -> bool:
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

    async def _pause(self, bind: Bind, error: errors.KubeError) -> None:
        backoff = self._failing.setdefault(bind.task.uid, Backoff(_FIRST, _MOST))
        pause = backoff.pause(error.retry_after if isinstance(error, errors.ApiError) else None)
        log.warning("pod %s could not be bound to %s, again in %.1f s: %s", bind.task, bind.node, pause, error)
        await asyncio.sleep(pause)
