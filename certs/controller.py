"""Takes steps until something holds: for the leader forever, for a command until it has what it was asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from certs import replicas, rotation
from certs.bundle import CertificateError
from certs.metrics import CertificateMetrics
from certs.observation import RefusedError
from certs.publish import RotationTarget, Rotator, StepResult
from certs.replicas import Prober
from certs.rotation import RotationAction, RotationCommand
from certs.state import PROVING
from certs.stored import StoredCAError
from muster.kube.backoff import Backoff
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.errors import ApiError, KubeError, ServerError, TooManyRequestsError, UnreachableError
from muster.kube.reflector import Reflector
from muster.model.kinds import Kind

log = logging.getLogger(__name__)

PROBE_INTERVAL: Final = 2.0
"""Seconds between two looks at replicas: what they serve, no event tells."""
_ATTEMPTS: Final = 6
_AT_MOST: Final = 3600.0
"""Seconds between two looks at everything, whatever happens: wall clocks are set, timers aren't."""


class ChangeWatcher:
    """Notices when somebody writes what a rotator reads; of each object the kind, the name and the namespace."""

    def __init__(self, client: Client, objects: Iterable[tuple[Kind[Any], str, str]]) -> None:
        self._changed = asyncio.Event()
        self._reflectors = [self._reflector(client, *each) for each in objects]

    def _reflector(self, client: Client, kind: Any, name: str, namespace: str) -> Reflector[Any]:
        cache: ObjectCache[Any] = ObjectCache()
        cache.subscribe(lambda _: self._changed.set())
        return Reflector(client, kind, cache, namespace=namespace, fields=f"metadata.name={name}")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Notice changes while the context is open."""
        tasks = [asyncio.create_task(each.run(), name="watch certificates") for each in self._reflectors]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def within(self, seconds: float) -> None:
        """Wait for a change, that long at most."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def forget(self) -> None:
        """Take what has changed so far as seen."""
        self._changed.clear()


class StepRunner:
    """Takes one step after the other, and waits in between for what the step waits for."""

    def __init__(self, rotator: Rotator, changes: ChangeWatcher, clock: Clock) -> None:
        self._rotator = rotator
        self._changes = changes
        self._clock = clock

    async def until(
        self,
        holds: Callable[[StepResult], bool],
        tell: Callable[[StepResult], None],
        requested: RotationCommand | None = None,
    ) -> StepResult:
        """Go on until ``holds`` is true of a step's result, and return that; ``tell`` is called with each.

        A command is carried out once.

        Raises:
            RefusedError, StateError, CertificateError, KubeError: as `Rotator.take_step`; what may pass by itself is tried
                again first.
        """
        first: StepResult | None = None
        crowded = Backoff(0.02, 2.0)
        while True:
            self._changes.forget()
            result = await self._with_retries(requested)
            first = first or result
            tell(result)
            if holds(result):
                return result
            granted = result.step.action in {RotationAction.ENTER, RotationAction.ISSUE} and not result.conflict
            requested = None if granted else rotation.pending(requested, first.state, result.state)
            if result.conflict:
                await asyncio.sleep(crowded.pause())
            elif result.step.action is RotationAction.WAIT:
                await self._changes.within(self._pause(result))

    async def _with_retries(self, requested: RotationCommand | None) -> StepResult:
        backoff = Backoff(0.5, 10.0)
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._rotator.take_step(requested)
            except (UnreachableError, ServerError, TooManyRequestsError) as error:
                log.info("trying again: %s", error)
                await asyncio.sleep(backoff.pause(error.retry_after if isinstance(error, ApiError) else None))
        return await self._rotator.take_step(requested)

    def _pause(self, result: StepResult) -> float:
        until = result.step.until
        left = (until - self._clock.now()).total_seconds() if until is not None else _AT_MOST
        most = PROBE_INTERVAL if result.state.phase in PROVING else _AT_MOST
        return min(max(left, 0.0), most)


class CertificateController:
    """Keeps the certificates of a cluster, for as long as this process leads. Does nothing before `muster certs init`.

    What goes wrong is logged, once for each thing that does, and tried again, ever less often.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        target: RotationTarget,
        metrics: CertificateMetrics,
        prober: Prober = replicas.probe,
    ) -> None:
        self._rotator = Rotator(client, clock, target, prober)
        self._changes = ChangeWatcher(client, target.watched)
        self._driver = StepRunner(self._rotator, self._changes, clock)
        self._metrics = metrics
        self._said = ""

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            await self._keep()
        finally:
            self._metrics.forget()

    async def _keep(self) -> None:
        backoff = Backoff(1.0, 60.0)
        async with self._changes.watched():
            while True:
                self._changes.forget()
                try:
                    await self._driver.until(lambda _: False, self._tell)
                except RefusedError as error:
                    self._say(logging.INFO, str(error))
                    await self._changes.within(_AT_MOST)
                except (StoredCAError, CertificateError, KubeError) as error:
                    self._say(logging.WARNING, f"certificates can't be kept: {error}")
                    self._metrics.failed()
                    await self._changes.within(backoff.pause())
                else:
                    backoff.reset()

    def _tell(self, result: StepResult) -> None:
        self._metrics.seen(result.state)
        if result.did:
            self._say(logging.INFO, result.did)
        elif result.step.until is None:
            self._say(logging.INFO, f"phase {result.step.phase.value}: waiting: {result.step.why}")

    def _say(self, level: int, text: str) -> None:
        if text != self._said:
            log.log(level, "%s", text)
        self._said = text
