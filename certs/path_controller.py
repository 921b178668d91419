"""Takes the steps of the paths: for the leader forever, for a command until the segment is another.

Whoever overwrites a path in a webhook configuration is noticed by a watch, so that calls fail for a moment and not for a
look's interval.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from certs import path_publish, path_secret
from certs.controller import ChangeWatcher
from certs.metrics import PathMetrics
from certs.path_publish import PathRotator
from certs.path_secret import StoredPathError
from certs.paths import PathAction, PathPhase, PathStep
from certs.publish import RotationTarget
from muster.kube import errors
from muster.kube.backoff import Backoff
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.errors import KubeError

POLL: Final = 10.0
"""Seconds between two looks: what replicas take, and that a call failed, no event tells."""
_IMPATIENT: Final = 2.0

log = logging.getLogger(__name__)


class PathController:
    """Keeps the paths of a cluster, for as long as this process leads. What goes wrong is logged once, and tried again."""

    def __init__(self, rotator: PathRotator, changes: ChangeWatcher, metrics: PathMetrics) -> None:
        self._rotator = rotator
        self._changes = changes
        self._metrics = metrics
        self._said = ""

    @classmethod
    def of(cls, client: Client, clock: Clock, target: RotationTarget, metrics: PathMetrics) -> PathController:
        """Return one for the webhooks of an installation."""
        rotator = PathRotator(client, clock, target.namespace, target.configuration)
        return cls(
            rotator, ChangeWatcher(client, path_publish.watched(target.namespace, target.configuration)), metrics
        )

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with self._changes.watched():
                await self._keep()
        finally:
            self._metrics.forget()

    async def _keep(self) -> None:
        backoff = Backoff(1.0, 60.0)
        while True:
            self._changes.forget()
            try:
                step = await self._rotator.take_step()
            except errors.ConflictError:
                await asyncio.sleep(backoff.pause())
            except (StoredPathError, KubeError) as error:
                trouble = path_secret.redacted(str(error))
                self._say(logging.WARNING, f"the paths of the webhooks can't be kept: {trouble}")
                self._metrics.failed()
                await asyncio.sleep(backoff.pause())
            else:
                backoff.reset()
                self._metrics.seen(self._rotator.seen)
                self._say(logging.INFO, f"paths of the webhooks: {step.action.value}: {step.why}")
                if step.action is PathAction.WAIT:
                    await self._changes.within(POLL)

    def _say(self, level: int, text: str) -> None:
        if text != self._said:
            log.log(level, "%s", text)
        self._said = text


async def replace_now(rotator: PathRotator, tell: Callable[[PathStep], None]) -> None:
    """Replace the segment, or finish a replacement that is under way; ``tell`` is called with each step.

    Raises:
        StoredPathError: the Secret is missing or damaged.
        KubeError: the API server can't be read or doesn't allow it.
    """
    begun, crowded = False, Backoff(0.02, 2.0)
    while True:
        try:
            step = await rotator.take_step(requested=not begun)
        except errors.ConflictError:
            # The leader was quicker.
            await asyncio.sleep(crowded.pause())
            continue
        if step.action is PathAction.WAIT and (rotator.seen is None or rotator.seen.certified):
            raise StoredPathError(step.why)
        tell(step)
        ended = begun and step.phase is PathPhase.STEADY and step.action is PathAction.WAIT
        if ended or step.action is PathAction.RETIRE:
            return
        begun = begun or step.phase is not PathPhase.STEADY or step.action is PathAction.ANNOUNCE
        if step.action is PathAction.WAIT:
            await asyncio.sleep(_IMPATIENT)
