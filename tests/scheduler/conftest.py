"""A control plane with Muster's kinds and a worker on it; builders of objects for tests on values."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import invariants
import msgspec
import pytest
from plane import PATIENCE, Plane

from muster.kube.client import Client
from muster.kube.fence import Fence
from muster.kube.transport import Request, Response, Transport
from muster.model import kinds, names, objects
from muster.model.kinds import Kind
from muster.model.objects import Job, PodGroup
from muster.sandbox.virtual_time import VirtualTimeLoop
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.engine.session import Session
from scheduler.leader.worker import Worker
from scheduler.model.plan import Plan
from scheduler.state.apply import apply_plan
from scheduler.state.cluster import Cluster
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions

START = datetime(2026, 1, 1, tzinfo=UTC)
CYCLES = "muster_scheduler_cycle_seconds_count"
T = TypeVar("T", bound=objects.Object)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of this folder in virtual time."""
    return {"virtual": VirtualTimeLoop}


@pytest.fixture(autouse=True)
def recounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cycle that a test decides, whoever asks for it, ends with a recount of its amounts."""

    close = Session.close

    def close_recounted(session: Session) -> None:
        session.allocations.validate()
        close(session)

    monkeypatch.setattr(Session, "close", close_recounted)


class Line:
    """A transport that keeps what went through it, and refuses what a test says.

    Attributes:
        sent: the requests, in order.
        refuse: a request of which it is true is answered as forbidden.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.sent: list[Request] = []
        self.refuse: Callable[[Request], bool] = lambda _: False

    async def request(self, request: Request, *, within: float) -> Response:
        self.sent.append(request)
        if self.refuse(request):
            status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no right"}
            return Response(403, msgspec.json.encode(status))
        return await self.transport.request(request, within=within)

    def watch(self, request: Request, *, idle: float) -> Any:
        return self.transport.watch(request, idle=idle)

    def asked(self, path: str) -> list[Request]:
        """Return the reads of one object."""
        return [each for each in self.sent if each.method == "GET" and each.path == path]

    def written(self, *about: str) -> list[str]:
        """Return the writes; ``about``: only those to objects of these names, or in these namespaces.

        A real API server may still be ending what other tests left.
        """
        wanted = frozenset(about)
        return [
            f"{each.method} {each.path}"
            for each in self.sent
            if each.writes and (not wanted or wanted & set(each.path.split("/")))
        ]


@pytest.fixture
def lag() -> Callable[..., None]:
    """What has writes of one path, or the answers to them, arrive some seconds late."""

    def late(line: Line, monkeypatch: pytest.MonkeyPatch, end: str, *, there: float = 0, back: float = 0) -> None:
        request = line.request

        async def slowly(asked: Request, *, within: float) -> Response:
            slow = asked.writes and asked.path.endswith(end)
            await asyncio.sleep(there if slow else 0)
            answer = await request(asked, within=within)
            await asyncio.sleep(back if slow else 0)
            return answer

        monkeypatch.setattr(line, "request", slowly)

    return late


class World:
    """A control plane with nothing of Muster's but this worker, and what a test asks of it.

    What is namespaced is in ``namespace``, whatever a manifest says.
    """

    def __init__(self, plane: Plane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.client = plane.client
        self.worker: Worker | None = None
        self.policy = config.parse(config.DEFAULT)
        self.line = Line(plane.transport)
        self._working: asyncio.Task[None] | None = None

    async def node(self, cpu: str, memory: str = "16Gi") -> str:
        """Add a node; give its name."""
        return await self.plane.node(cpu, memory)

    async def work(
        self,
        policy: str = config.DEFAULT,
        fence: Fence | None = None,
        *,
        schedulers: tuple[str, ...] = (names.SCHEDULER_NAME,),
        legacy_apis: bool = False,
        quota_mode: str = names.GUARDED,
    ) -> None:
        """Start a worker, with a fence that lasts unless told otherwise; its ConfigMaps are in the test's namespace."""
        self.line.transport = (await self.plane.connect()).transport
        client = Client(self.line)
        self.policy = config.parse(policy)
        self.worker = Worker(
            client,
            self.plane.clock,
            self.policy,
            schedulers,
            legacy_apis=legacy_apis,
            namespace=self.namespace,
            quota_mode=quota_mode,
        )
        self._working = asyncio.create_task(self.worker.run(fence or Fence("test", until=float("inf"))))
        async with asyncio.timeout(PATIENCE):
            await self.worker.synced.wait()

    async def stop(self) -> None:
        """Stop the worker; what it raised comes out here."""
        if self._working is None:
            return
        working, self._working = self._working, None
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working

    async def rest(self, cycles: int) -> None:
        """Wait until so many cycles in a row have written nothing; each is begun as soon as it may be."""
        assert self.worker is not None
        metrics, quiet, written = self.worker.metrics.registry, 0, -1
        # Longer than texts of conditions may be put off.
        async with asyncio.timeout(90):
            while quiet < cycles:
                before = len(self.line.written(self.namespace))
                quiet, written = (quiet if written == before else 0), before
                cycle = metrics.get_sample_value(CYCLES)
                # As one does that has another policy to follow: there is a reason to decide again.
                self.worker.adopt(self.policy)
                while metrics.get_sample_value(CYCLES) == cycle:  # noqa: ASYNC110 - metrics tell nobody
                    await asyncio.sleep(0.005)
                quiet += 1

    async def create(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            kind = next(kind for kind in _KINDS if kind.name == manifest["kind"])
            metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
            await self.plane.create(kind, manifest | {"metadata": metadata}, self.namespace if kind.namespaced else "")

    async def patch(self, kind: Kind[Any], name: str, change: Any, **options: Any) -> Any:
        return await self.client.patch(kind, name, change, self.namespace if kind.namespaced else "", **options)

    async def until(self, holds: Callable[[], Any], within: float = PATIENCE) -> Any:
        """Wait until an awaited question has an answer that isn't false; give it."""
        async with asyncio.timeout(within):
            while not (answer := await holds()):  # noqa: ASYNC110 - the question goes to the server
                await asyncio.sleep(0.1)
        return answer

    async def becomes(self, kind: Kind[T], name: str, holds: Callable[[T], Any], within: float = PATIENCE) -> T:
        """Wait, by watching, until something is so of an object; give it."""
        found: T = await self.plane.until(
            kind,
            name,
            self.namespace if kind.namespaced else "",
            lambda found: found is not None and holds(found),
            within,
        )
        return found

    async def group(self, name: str) -> PodGroup:
        return await self.client.get(kinds.PODGROUPS, name, self.namespace)

    async def job(self, name: str) -> Job:
        return await self.client.get(kinds.JOBS, name, self.namespace)

    async def pods(self) -> list[Any]:
        return list((await self.client.list(kinds.PODS, self.namespace)).items)

    async def phase(self, name: str, phase: str, within: float = PATIENCE) -> PodGroup:
        """Wait until a group is in a phase."""
        return await self.becomes(kinds.PODGROUPS, name, lambda found: found.status.phase == phase, within)


_KINDS = (
    kinds.PODS,
    kinds.JOBS,
    kinds.PODGROUPS,
    kinds.QUEUES,
    kinds.DEPLOYMENTS,
    kinds.STATEFULSETS,
    kinds.PRIORITYCLASSES,
    kinds.RESOURCEQUOTAS,
)


@pytest.fixture
async def world(plane: Plane) -> AsyncIterator[World]:
    """A world of the test's own; on the real control plane, what others left in it goes first."""
    await plane.alone()
    world = World(plane, await plane.namespace())
    try:
        yield world
    finally:
        await world.stop()


@pytest.fixture
async def under_quota(world: World, plane: Plane) -> AsyncIterator[World]:
    """The world with webhooks in front and a worker, under a quota of 4 cpu."""
    async with contextlib.AsyncExitStack() as stack:
        await plane.client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}}, manager="test")
        options = WebhookOptions(plane.certificate, ListenOptions("127.0.0.1", 0, 0.0))
        server = await stack.enter_async_context(serving(await plane.connect(), plane.clock, options))
        await plane.register(server, namespace=world.namespace)
        stack.push_async_callback(plane.unregister)
        stack.push_async_callback(world.stop)
        await world.create(
            {"kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "4"}}}
        )
        await world.becomes(kinds.RESOURCEQUOTAS, "team", lambda quota: quota.status.hard)
        await world.node("16")
        await world.work()
        yield world


class Build:
    """A cluster of values, for tests of decisions."""

    def __init__(self) -> None:
        self.cluster = Cluster({names.SCHEDULER_NAME})
        self.cache = DecisionCache()
        self._uid = 0

    def queue(self, name: str, **spec: Any) -> Build:
        state = spec.pop("state", "Open")
        self.cluster.queue(_as(kinds.QUEUES, {"metadata": {"name": name}, "spec": spec, "status": {"state": state}}))
        return self

    def node(self, name: str, cpu: str = "4", *, memory: str = "16Gi", pods: str = "110", **more: Any) -> Build:
        """A node; ``labels``, ``taints``, ``unschedulable``, ``ready``, ``images``, and other resources by name."""
        labels, taints = more.pop("labels", {}), more.pop("taints", None)
        spec = {"taints": taints, "unschedulable": more.pop("unschedulable", False)}
        conditions = [{"type": "Ready", "status": more.pop("ready", "True")}]
        images = more.pop("images", [])
        amounts = {"cpu": cpu, "memory": memory, "pods": pods, **more}
        status = {"allocatable": amounts, "conditions": conditions, "images": images}
        self.cluster.node(
            _as(
                kinds.NODES,
                {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status},
            )
        )
        return self

    def group(self, name: str, minimum: int = 1, *, phase: str = "Inqueue", **spec: Any) -> Build:
        """A group; ``age`` in seconds, none for one that doesn't say when it was made; ``owner``: the Job it was generated for."""
        self._uid += 1
        meta: dict[str, Any] = {"name": name, "namespace": "ns", "uid": f"group-{self._uid:06}"}
        if owner := spec.pop("owner", ""):
            uid = name.removeprefix("podgroup-")
            meta["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": uid}]
        if (age := spec.pop("age", None)) is not None:
            meta["creationTimestamp"] = (START - timedelta(seconds=age)).isoformat()
        meta["annotations"] = spec.pop("annotations", {})
        body = {"metadata": meta, "spec": {"minMember": minimum, **spec}, "status": {"phase": phase}}
        self.cluster.group(kinds.PODGROUPS.group, _as(kinds.PODGROUPS, body))
        return self

    def pod(self, name: str, group: str = "", cpu: str = "1", **more: Any) -> Build:
        """A pod; ``node`` and ``phase`` for one that is placed, ``requests`` and any other field of its spec."""
        self.cluster.pod(self.a_pod(name, group, cpu, **more))
        return self

    def a_pod(self, name: str, group: str = "", cpu: str = "1", **more: Any) -> Any:
        """The same, not told of to the cluster."""
        phase = more.pop("phase", "Running" if "node" in more else "Pending")
        requests = {"cpu": cpu, **more.pop("requests", {})}
        annotations = {names.GROUP_NAME: group} if group else {}
        namespace = more.pop("namespace", "ns")
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": annotations}
        meta |= {"labels": more.pop("labels", {})}
        if more.pop("leaving", False):
            meta["deletionTimestamp"] = START.isoformat()
        spec = {
            "schedulerName": names.SCHEDULER_NAME,
            "nodeName": more.pop("node", ""),
            "containers": [
                {"image": more.pop("image", ""), "resources": {"requests": requests}, "ports": more.pop("ports", None)}
            ],
            **more,
        }
        return _as(kinds.PODS, {"metadata": meta, "spec": spec, "status": {"phase": phase}})

    def namespace(self, name: str, **labels: str) -> Build:
        self.cluster.namespace(_as(kinds.NAMESPACES, {"metadata": {"name": name, "labels": labels}}))
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

    def without(self, name: str) -> Build:
        """A group is deleted."""
        meta = {"name": name, "namespace": "ns"}
        self.cluster.group(kinds.PODGROUPS.group, _as(kinds.PODGROUPS, {"metadata": meta}), gone=True)
        return self

    now = START

    def decide(self, policy: str = config.DEFAULT, *, later: float = 0) -> Plan:
        """Decide, so many seconds later than what happened before."""
        snapshot, followed = self.cluster.snapshot(), config.parse(policy)
        plan = decide(snapshot, followed, START + timedelta(seconds=later), self.cache)
        invariants.hold(snapshot, followed, plan)
        return plan

    def cycle(self, policy: str = config.DEFAULT, *, later: float = 0) -> Plan:
        """Decide, and take the plan as carried out."""
        plan = self.decide(policy, later=later)
        apply_plan(self.cluster, plan)
        return plan


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
