"""A sandbox with Muster's CRDs and a worker on it, in virtual time; builders of objects for tests on values."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.fence import Fence
from muster.model import kinds, names
from muster.model.objects import Job, PodGroup
from muster.sandbox.sandbox import Sandbox
from muster.sandbox.virtual_time import VirtualTimeLoop
from scheduler import config
from scheduler.worker import Worker

START = datetime(2026, 1, 1, tzinfo=UTC)
CRDS = Path(__file__).parents[2] / "deploy" / "crds"


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of this folder in virtual time."""
    return {"virtual": VirtualTimeLoop}


class World:
    """A sandbox, and what a test asks of it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.client = Client(sandbox.transport())
        self.worker: Worker | None = None
        self._working: asyncio.Task[None] | None = None

    async def work(self, policy: str = config.DEFAULT) -> None:
        """Start a worker with a fence that lasts."""
        clock = LoopClock(START)
        self.worker = Worker(Client(self.sandbox.transport()), clock, config.parse(policy), (names.SCHEDULER_NAME,))
        self._working = asyncio.create_task(self.worker.run(Fence("test", until=float("inf"))))
        await self.worker.synced.wait()

    async def stop(self) -> None:
        """Stop the worker; what it raised comes out here."""
        if self._working is None:
            return
        working, self._working = self._working, None
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working

    async def create(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            kind = next(kind for kind in _KINDS if kind.name == manifest["kind"])
            await self.client.create(kind, manifest, manifest["metadata"].get("namespace", "default"))

    async def until(self, holds: Callable[[], Any], within: float = 60) -> Any:
        """Wait until an awaited question has an answer that isn't false; give it."""
        async with asyncio.timeout(within):
            while not (answer := await holds()):
                await asyncio.sleep(0.1)
        return answer

    async def group(self, name: str, namespace: str = "default") -> PodGroup:
        return await self.client.get(kinds.PODGROUPS, name, namespace)

    async def job(self, name: str, namespace: str = "default") -> Job:
        return await self.client.get(kinds.JOBS, name, namespace)

    async def pods(self) -> list[Any]:
        return list((await self.client.list(kinds.PODS)).items)

    async def phase(self, name: str, phase: str, within: float = 60) -> PodGroup:
        """Wait until a group is in a phase."""

        async def there() -> PodGroup | None:
            found = await self.client.find(kinds.PODGROUPS, name, "default")
            return found if found is not None and found.status.phase == phase else None

        found: PodGroup = await self.until(there, within)
        return found


_KINDS = (kinds.PODS, kinds.JOBS, kinds.PODGROUPS, kinds.QUEUES, kinds.DEPLOYMENTS, kinds.NODES, kinds.NAMESPACES)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    sandbox = Sandbox(LoopClock(START))
    await sandbox.start()
    world = World(sandbox)
    for name in ("podgroups", "queues"):
        await world.client.create(kinds.CRDS, yaml.safe_load((CRDS / f"{name}.yaml").read_text()))
    try:
        yield world
    finally:
        await world.stop()
        await sandbox.stop()
