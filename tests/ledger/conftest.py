"""A sandbox API server in virtual time, with a transport that delays, loses replies and fails on request."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry

from muster.kube import errors
from muster.kube.cache import Cache
from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.reflector import Reflector
from muster.kube.transport import Request, Response, Transport
from muster.ledger.committer import Committer
from muster.ledger.keeper import Keeper
from muster.ledger.metrics import Metrics
from muster.ledger.observer import Observer
from muster.ledger.promises import POD, PODGROUP, Busy, Granted, Learned, Promise, Refused, taken_by
from muster.model import grouping, kinds, names
from muster.model.amounts import Resources
from muster.model.objects import Pod, PodGroup, QuotaLedger, ResourceQuota
from muster.sandbox import virtual_time
from muster.sandbox.admission import Attributes
from muster.sandbox.inprocess import InProcessTransport
from muster.sandbox.requests import ApiServer, NoWebhooks
from muster.sandbox.status import forbidden

NAMESPACE = "team"
LATENCY = 0.002


@dataclass
class Fault:
    """What happens to the requests it matches, while `times` lasts."""

    matches: Callable[[Request], bool]
    times: int = 1
    applied: bool = True  # whether the server sees the request whose answer is lost


@dataclass
class Network:
    """A transport that takes its time, counts, and fails as told."""

    inner: Transport
    faults: list[Fault] = field(default_factory=list)
    sent: list[Request] = field(default_factory=list)
    slow_watch: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.slow_watch.set()

    async def request(self, request: Request, *, within: float) -> Response:
        self.sent.append(request)
        await asyncio.sleep(LATENCY)
        fault = next((each for each in self.faults if each.times and each.matches(request)), None)
        if fault is None:
            response = await self.inner.request(request, within=within)
            await asyncio.sleep(LATENCY)
            return response
        fault.times -= 1
        if fault.applied:
            await self.inner.request(request, within=within)
        raise errors.UnreachableError("the reply was lost", maybe_applied=True)

    @asynccontextmanager
    async def watch(self, request: Request, *, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self.inner.watch(request, idle=idle) as lines:
            yield self._paced(lines)

    async def _paced(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            await asyncio.sleep(LATENCY)
            await self.slow_watch.wait()
            yield line

    def count(self, method: str, plural: str) -> int:
        """How many requests of that method were for that resource."""
        return sum(request.method == method and f"/{plural}" in request.path for request in self.sent)


@dataclass
class Process:
    """A webhook replica or a leader: caches, kept by reflectors, and what uses them."""

    network: Network
    client: Client
    committer: Committer
    keeper: Keeper
    groups: Cache[PodGroup]
    ledgers: Cache[QuotaLedger]
    registry: CollectorRegistry


class Webhooks(NoWebhooks):
    """The part of admission that asks the ledger: for each object, the replica that is to answer."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.replica: Process | None = None
        self.replicas: dict[str, Process] = {}
        self.answers: dict[str, Granted | Refused | Busy | Learned] = {}

    async def admit(self, attributes: Attributes, warnings: list[str]) -> dict[str, Any] | None:
        final = await super().admit(attributes, warnings)
        plural, name = (
            attributes.resource.plural,
            attributes.name or ((final or {}).get("metadata") or {}).get("name", ""),
        )
        replica = self.replicas.pop(name, self.replica)
        if final is None or replica is None or attributes.subresource:
            return final
        deadline = asyncio.get_running_loop().time() + 4.5
        if plural == "podgroups":
            promise = _promise(attributes, final)
            answer = await replica.committer.reserve(promise, dry_run=attributes.dry_run, deadline=deadline)
            self.answers[name] = answer
            if not isinstance(answer, Granted):
                raise forbidden(attributes.resource, name, "the ledger said no")
        elif plural == "pods" and attributes.operation == "CREATE":
            pod = msgspec.convert(final, Pod)
            meta = pod.metadata
            promise = Promise(NAMESPACE, POD, grouping.group_of(meta), name, meta.uid, taken_by(pod))
            answer = await replica.committer.reserve(promise, dry_run=attributes.dry_run, deadline=deadline)
            self.answers[name] = answer
            if not isinstance(answer, Granted):
                raise forbidden(attributes.resource, name, "the ledger said no")
        elif plural == "resourcequotas":
            hard = Resources.parse(final["spec"]["hard"])
            self.answers[name] = await replica.committer.learn_quota(
                NAMESPACE, name, final["metadata"]["uid"], hard, dry_run=attributes.dry_run, deadline=deadline
            )
        return final


def _promise(attributes: Attributes, final: dict[str, Any]) -> Promise:
    before = attributes.old_object
    return Promise(
        NAMESPACE,
        PODGROUP,
        attributes.resource.group,
        final["metadata"]["name"],
        final["metadata"]["uid"],
        Resources.parse(final["spec"].get("minResources")),
        before["metadata"]["resourceVersion"] if before else "",
        Resources.parse(before["spec"].get("minResources")) if before else None,
    )


def _manifest(name: str, cpu: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"minMember": 1, "minResources": {"cpu": cpu}}}


@dataclass
class Lab:
    """An API server and its processes."""

    server: ApiServer
    webhooks: Webhooks
    client: Client
    tasks: asyncio.TaskGroup
    running: list[asyncio.Task[None]] = field(default_factory=list)

    async def process(self, *, kinds_of_groups: tuple[kinds.Kind[PodGroup], ...] = (kinds.PODGROUPS,)) -> Process:
        network = Network(InProcessTransport(self.server))
        client = Client(network)
        groups = {kind: Cache[PodGroup]() for kind in kinds_of_groups}
        quotas, ledgers = Cache[ResourceQuota](), Cache[QuotaLedger]()
        registry = CollectorRegistry()
        pods = Cache[Pod]()
        observer, metrics, clock = Observer(groups, quotas, pods), Metrics(registry), self.server.clock
        for kind, cache in (
            *groups.items(),
            (kinds.RESOURCEQUOTAS, quotas),
            (kinds.PODS, pods),
            (kinds.QUOTALEDGERS, ledgers),
        ):
            reflector: Reflector[Any] = Reflector(client, kind, cache)
            self.run(reflector.run())
            await reflector.wait_synced()
        network.sent.clear()
        committer = Committer(client, ledgers, observer, clock, metrics)
        keeper = Keeper(client, ledgers, observer, clock, metrics)
        return Process(network, client, committer, keeper, groups[kinds.PODGROUPS], ledgers, registry)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.tasks.create_task(coroutine)
        self.running.append(task)
        return task

    async def quota(self, process: Process | None, name: str = "quota", **hard: str) -> None:
        """Create a ResourceQuota, seen by the webhook of that replica, or by none."""
        self.webhooks.replica = process
        body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"hard": hard}}
        await self.client.create(kinds.RESOURCEQUOTAS, body, NAMESPACE)

    async def change_quota(self, process: Process, **hard: str) -> Learned | Busy:
        self.webhooks.replica = process
        await self.client.patch(kinds.RESOURCEQUOTAS, "quota", {"spec": {"hard": hard}}, NAMESPACE)
        answer = self.webhooks.answers["quota"]
        assert isinstance(answer, Learned | Busy)
        return answer

    async def store(self, name: str, cpu: str, kind: kinds.Kind[PodGroup] = kinds.PODGROUPS) -> PodGroup:
        """Create a PodGroup that no webhook sees."""
        self.webhooks.replica = None
        return await self.client.create(kind, _manifest(name, cpu), NAMESPACE)

    async def create(self, process: Process, name: str, cpu: str) -> Granted | Refused | Busy:
        """Create a PodGroup through a replica's webhook; gives what the ledger said."""
        self.webhooks.replicas[name] = process
        with contextlib.suppress(errors.ForbiddenError):
            await self.client.create(kinds.PODGROUPS, _manifest(name, cpu), NAMESPACE)
        answer = self.webhooks.answers[name]
        assert isinstance(answer, Granted | Refused | Busy)
        return answer

    async def pod(
        self, process: Process | None, name: str, cpu: str, group: str = ""
    ) -> Granted | Refused | Busy | None:
        """Create a Pod, through a replica's webhook or past all."""
        self.webhooks.replica = None
        if process is not None:
            self.webhooks.replicas[name] = process
        meta = {"name": name, "annotations": {names.GROUP_NAME: group} if group else {}}
        main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
        with contextlib.suppress(errors.ForbiddenError):
            await self.client.create(kinds.PODS, {"metadata": meta, "spec": {"containers": [main]}}, NAMESPACE)
        answer = self.webhooks.answers.get(name)
        assert not isinstance(answer, Learned)
        return answer

    async def resize(self, process: Process, name: str, cpu: str) -> Granted | Refused | Busy:
        self.webhooks.replicas[name] = process
        with contextlib.suppress(errors.ForbiddenError):
            change = {"spec": {"minResources": {"cpu": cpu}}}
            await self.client.patch(kinds.PODGROUPS, name, change, NAMESPACE)
        answer = self.webhooks.answers[name]
        assert isinstance(answer, Granted | Refused | Busy)
        return answer

    async def ledger(self) -> QuotaLedger:
        return await self.client.get(kinds.QUOTALEDGERS, names.LEDGER_NAME, NAMESPACE)


async def ask(
    process: Process, name: str, cpu: str, *, uid: str = "", dry_run: bool = False, within: float = 4.5, **more: Any
) -> Granted | Refused | Busy:
    promise = Promise(
        NAMESPACE, PODGROUP, names.VOLCANO_GROUP, name, uid or f"uid-{name}", Resources.parse({"cpu": cpu})
    )
    deadline = asyncio.get_running_loop().time() + within
    return await process.committer.reserve(dataclasses.replace(promise, **more), dry_run=dry_run, deadline=deadline)


Story = Callable[[Lab], Coroutine[Any, Any, None]]


@pytest.fixture
def asking() -> Callable[..., Coroutine[Any, Any, Granted | Refused | Busy]]:
    return ask


@pytest.fixture
def fault() -> type[Fault]:
    return Fault


@pytest.fixture
def play() -> Callable[[Story], None]:
    """Run a story in virtual time, in a namespace of a fresh server that has Muster's kinds."""

    async def main(story: Story) -> None:
        server = ApiServer(LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), seed=1)
        server.admission = webhooks = Webhooks(server)
        client = Client(InProcessTransport(server))
        for entry in sorted((resources.files("deploy") / "crds").iterdir(), key=lambda each: each.name):
            if entry.name.endswith(".yaml"):
                await client.create(kinds.CRDS, yaml.safe_load(entry.read_text()))
        await client.create(kinds.NAMESPACES, {"metadata": {"name": NAMESPACE}})
        async with asyncio.TaskGroup() as tasks:
            lab = Lab(server, webhooks, client, tasks)
            await story(lab)
            for task in lab.running:
                task.cancel()

    return lambda story: virtual_time.run(main(story))
