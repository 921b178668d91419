"""The worker: scheduler and controllers of one process, from one leadership to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.fence import Fence, FencedTransport
from muster.model import names
from scheduler.engine.policy import Policy
from scheduler.leader.intervals import CYCLE_HANG_SECONDS
from scheduler.leader.leadership import Leadership
from scheduler.leader.metrics import SchedulerMetrics


class Worker:
    """Scheduler and controllers, for as long as this process leads.

    ``run`` is called with each new fence and starts from nothing: what a former leader left half done is found in the
    objects and finished. ``namespace`` is Muster's own, where its ConfigMaps are. ``quota_mode`` is what namespaces are
    labelled with whose groups reserve of a quota; empty for leaving that to their owners.

    Attributes:
        synced: set while the cluster is known.
        standing_by: whether another process leads, as far as this one has seen; from any thread.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        policy: Policy,
        scheduler_names: Sequence[str],
        *,
        legacy_apis: bool = False,
        namespace: str = names.SYSTEM_NAMESPACE,
        quota_mode: str = names.GUARDED,
    ) -> None:
        self._client = client
        self._clock = clock
        self._policy = policy
        self._names = tuple(scheduler_names)
        self._legacy = legacy_apis
        self._namespace = namespace
        self._quota_mode = quota_mode
        self.synced = asyncio.Event()
        self.standing_by: Callable[[], bool] = lambda: True
        self._ready = False
        self.metrics = SchedulerMetrics()
        self._term: Leadership | None = None

    def adopt(self, policy: Policy) -> None:
        """Follow another policy, from the next cycle on."""
        self._policy = policy
        if self._term is not None:
            self._term.adopt(policy)

    def not_ready(self) -> list[str]:
        """Say what a process that leads still waits for; one that stands by is ready to take over.

        A process that starts is ready when it leads and there is a default queue, or when another one leads: then whoever waits
        for all of them to be ready can use what they make.
        """
        if self._term is not None and not self.synced.is_set():
            return self._term.missing()
        if not self._ready and (self._term is None or not self._term.has_default_queue()):
            waits = "the queue default" if self._term is not None else "a leader"
            self._ready = self._term is None and self.standing_by()
            return [] if self._ready else [f"{waits} isn't there yet"]
        self._ready = True
        return []

    def not_alive(self) -> list[str]:
        """Say what only a restart can fix: a plugin that never returns, say; another process leads then."""
        if self._term is None or not self._term.hangs():
            return []
        return [f"a cycle is being decided for more than {CYCLE_HANG_SECONDS:.0f} seconds"]

    def state(self) -> dict[str, Any]:
        """Return what this process knows as JSON values, for a person who looks for a fault."""
        standing = {"program": "scheduler", "leading": self._term is not None, "notReady": self.not_ready()}
        return standing | (self._term.state() if self._term is not None else {})

    async def run(self, fence: Fence) -> None:
        """Work until cancelled.

        Raises:
            ExceptionGroup: a part of it failed in a way that nobody foresaw.
        """
        client = Client(FencedTransport(self._client.transport, fence))
        term = Leadership(
            client,
            self._clock,
            self._policy,
            self._names,
            self.metrics,
            legacy_apis=self._legacy,
            namespace=self._namespace,
            quota_mode=self._quota_mode,
        )
        self._term = term
        self.metrics.leading.set(1)
        try:
            await term.run(self.synced)
        finally:
            self._term = None
            self.metrics.leading.set(0)
            self.synced.clear()
            await term.close()
