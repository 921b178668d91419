"""A sandbox with Muster's CRDs and a worker on it, in virtual time; builders of objects for tests on values."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
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
from scheduler.cluster import Cluster
from scheduler.cycle import decide
from scheduler.plan import Plan
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

    async def work(self, policy: str = config.DEFAULT, fence: Fence | None = None) -> None:
        """Start a worker, with a fence that lasts unless told otherwise."""
        clock = LoopClock(START)
        self.worker = Worker(Client(self.sandbox.transport()), clock, config.parse(policy), (names.SCHEDULER_NAME,))
        self._working = asyncio.create_task(self.worker.run(fence or Fence("test", until=float("inf"))))
        async with asyncio.timeout(60):
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
            while not (answer := await holds()):  # noqa: ASYNC110 - virtual time; the question goes to the server
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
    for name in ("podgroups", "queues", "quotaledgers"):
        await world.client.create(kinds.CRDS, yaml.safe_load((CRDS / f"{name}.yaml").read_text()))
    try:
        yield world
    finally:
        await world.stop()
        await sandbox.stop()


class Build:
    """A cluster of values, for tests of decisions."""

    def __init__(self) -> None:
        self.cluster = Cluster({names.SCHEDULER_NAME})
        self._uid = 0

    def queue(self, name: str, **spec: Any) -> Build:
        state = spec.pop("state", "Open")
        self.cluster.queue(_as(kinds.QUEUES, {"metadata": {"name": name}, "spec": spec, "status": {"state": state}}))
        return self

    def node(self, name: str, cpu: str = "4", *, memory: str = "16Gi", pods: str = "110", **more: Any) -> Build:
        """A node; ``labels``, ``taints``, ``unschedulable``, and other resources by name."""
        labels, taints = more.pop("labels", {}), more.pop("taints", None)
        spec = {"taints": taints, "unschedulable": more.pop("unschedulable", False)}
        amounts = {"cpu": cpu, "memory": memory, "pods": pods, **more}
        self.cluster.node(
            _as(
                kinds.NODES,
                {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": amounts}},
            )
        )
        return self

    def group(self, name: str, minimum: int = 1, *, phase: str = "Inqueue", **spec: Any) -> Build:
        self._uid += 1
        meta = {"name": name, "namespace": "ns", "uid": f"group-{self._uid:06}"}
        body = {"metadata": meta, "spec": {"minMember": minimum, **spec}, "status": {"phase": phase}}
        self.cluster.group(kinds.PODGROUPS.group, _as(kinds.PODGROUPS, body))
        return self

    def pod(self, name: str, group: str = "", cpu: str = "1", **more: Any) -> Build:
        """A pod; ``node`` and ``phase`` for one that is placed, ``requests`` and any other field of its spec."""
        phase = more.pop("phase", "Running" if "node" in more else "Pending")
        requests = {"cpu": cpu, **more.pop("requests", {})}
        annotations = {names.GROUP_NAME: group} if group else {}
        meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": annotations}
        meta |= {"labels": more.pop("labels", {})}
        if more.pop("leaving", False):
            meta["deletionTimestamp"] = START.isoformat()
        spec = {
            "schedulerName": names.SCHEDULER_NAME,
            "nodeName": more.pop("node", ""),
            "containers": [{"resources": {"requests": requests}, "ports": more.pop("ports", None)}],
            **more,
        }
        self.cluster.pod(_as(kinds.PODS, {"metadata": meta, "spec": spec, "status": {"phase": phase}}))
        return self

    def gang(self, name: str, minimum: int, count: int, cpu: str = "1", **spec: Any) -> Build:
        """A group and its pending pods."""
        self.group(name, minimum, **spec)
        for number in range(count):
            self.pod(f"{name}-{number}", name, cpu)
        return self

    def priority(self, name: str, value: int) -> Build:
        self.cluster.priority_class(_as(kinds.PRIORITYCLASSES, {"metadata": {"name": name}, "value": value}))
        return self

    def gone(self, name: str) -> Build:
        """A pod is deleted."""
        meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
        self.cluster.pod(_as(kinds.PODS, {"metadata": meta}), gone=True)
        return self

    now = START

    def decide(self, policy: str = config.DEFAULT) -> Plan:
        return decide(self.cluster.snapshot(), config.parse(policy), START)


def _as(kind: Any, body: dict[str, Any]) -> Any:
    return msgspec.convert(body, kind.struct)


@pytest.fixture(scope="session")
def make_build() -> type[Build]:
    """A maker of clusters, for tests that need many."""
    return Build


@pytest.fixture
def build() -> Iterator[Build]:
    """A cluster with the queue ``default``; recounted at the end."""
    build = Build().queue("default")
    yield build
    build.cluster.validate()


@pytest.fixture
def binds() -> Callable[[Plan], dict[str, str]]:
    """What a plan binds, by pod name."""
    return lambda plan: {bind.task.name: bind.node for bind in plan.binds}


@pytest.fixture
def message() -> Callable[[Plan, str], str]:
    """What a plan tells a waiting group."""

    def of(plan: Plan, name: str) -> str:
        group = next(status for key, status in plan.groups.items() if key.name == name)
        return next((each.message for each in group.conditions if each.status == "True"), "")

    return of
