"""Webhook replicas and leaders on a control plane, over a network that delays, loses replies and fails on request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from plane import PATIENCE, Plane

from certs.serving import LiveCertificate
from muster.kube import errors
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.transport import Request, Response, Transport
from muster.ledger.committer import Committer
from muster.ledger.controller import LedgerController
from muster.ledger.metrics import LedgerMetrics
from muster.ledger.observer import Observer, guaranteed_in
from muster.ledger.reservations import PODGROUP, Exceeded, Observed, ReservationRequest, Reserved, Unavailable
from muster.model import kinds, names
from muster.model.amounts import Resources
from muster.model.objects import PodGroup, QuotaLedger
from webhooks import review
from webhooks.admission import Admission, Answer
from webhooks.caches import CachedView
from webhooks.evaluation import HOOKS
from webhooks.metrics import WebhookMetrics
from webhooks.server import ListenOptions, WebhookServer
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Patched

LATENCY = 0.002
EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}'
ASKING = ("podgroupminresources.muster.sh", "pods.guarded.muster.sh", "resourcequotas.muster.sh")
SCHEDULER = "nobody"
"""The scheduler name of the pods of groups here; nothing schedules them."""
"""The webhooks that ask the ledger."""

Answers = dict[str, Reserved | Exceeded | Unavailable | Observed]


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
    latency: float = LATENCY  # seconds, each way
    expired_watches: int = 0  # how many watches are yet to be told that where they began is gone

    unreachable: bool = False
    open: set[asyncio.Timeout] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.slow_watch.set()

    def cut(self) -> None:
        """Nobody reaches the server from now on, and every watch ends."""
        self.unreachable = True
        for watch in self.open:
            watch.reschedule(asyncio.get_running_loop().time())

    def mend(self) -> None:
        """The server can be reached again."""
        self.unreachable = False

    def _reach(self) -> None:
        if self.unreachable:
            raise errors.UnreachableError("nobody listens", maybe_applied=False)

    async def request(self, request: Request, *, within: float) -> Response:
        self.sent.append(request)
        await asyncio.sleep(self.latency)
        self._reach()
        fault = next((each for each in self.faults if each.times and each.matches(request)), None)
        if fault is None:
            response = await self.inner.request(request, within=within)
            await asyncio.sleep(self.latency)
            return response
        fault.times -= 1
        if fault.applied:
            await self.inner.request(request, within=within)
        raise errors.UnreachableError("the reply was lost", maybe_applied=True)

    @asynccontextmanager
    async def watch(self, request: Request, *, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        self._reach()
        async with self.inner.watch(request, idle=idle) as lines, self._until_cut():
            yield self._paced(lines)

    @asynccontextmanager
    async def _until_cut(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(None) as limit:
                self.open.add(limit)
                yield
        except TimeoutError as error:
            if not self.unreachable:
                raise
            raise errors.UnreachableError("cut", maybe_applied=False) from error
        finally:
            self.open.discard(limit)

    async def _paced(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            await asyncio.sleep(self.latency)
            await self.slow_watch.wait()
            if self.expired_watches:
                self.expired_watches -= 1
                yield EXPIRED
                return
            yield line

    def count(self, method: str, plural: str) -> int:
        """How many requests of that method were for that resource."""
        return sum(request.method == method and f"/{plural}" in request.path for request in self.sent)


@dataclass
class Noted:
    """A replica's committer, as admission sees it; what it answered is noted by name."""

    committer: Committer
    answers: Answers

    async def reserve(
        self, request: ReservationRequest, *, deadline: float, dry_run: bool
    ) -> Reserved | Exceeded | Unavailable:
        answer = await self.committer.reserve(request, deadline=deadline, dry_run=dry_run)
        self.answers[request.name] = answer
        return answer

    async def observe_quota(self, namespace: str, name: str, *about: Any, **how: Any) -> Observed | Unavailable:
        answer = await self.committer.observe_quota(namespace, name, *about, **how)
        self.answers[name] = answer
        return answer


@dataclass
class Process:
    """A webhook replica or a leader: caches, kept by reflectors, and what uses them."""

    namespace: str
    network: Network
    client: Client
    view: CachedView
    committer: Committer
    controller: LedgerController
    admission: Admission
    metrics: WebhookMetrics

    async def sees(self, name: str) -> None:
        """Wait until its view shows a group."""
        groups: ObjectCache[PodGroup] = self.view.cache(kinds.PODGROUPS)
        await eventually(lambda: groups.get(name, self.namespace))

    async def forgets(self, name: str) -> None:
        """Wait until its view doesn't show a group any more."""
        groups: ObjectCache[PodGroup] = self.view.cache(kinds.PODGROUPS)
        await eventually(lambda: not groups.get(name, self.namespace))


SIBLING = "/mutate/sibling"


class Front:
    """Where the API server calls: each object is for one replica to judge, or for none, which lets it pass."""

    def __init__(self) -> None:
        self.replica: Process | None = None
        self.replicas: dict[str, Process] = {}
        self.patches: dict[str, Patched] = {}  # by name, what somebody else's webhook changes

    async def handle(self, path: str, query: Mapping[str, str], body: bytes) -> Answer:
        request = json.loads(body)["request"]
        if path == SIBLING:
            patched = self.patches.get(request["object"]["metadata"]["name"], ALLOWED)
            return 200, {"Content-Type": "application/json"}, review.render(review.parse(body), patched)
        name = request.get("name") or request["object"]["metadata"]["name"]
        replica = self.replicas.pop(name, self.replica)
        if replica is None:
            headers = {"Content-Type": "application/json"}
            return 200, headers, review.render(review.parse(body), ALLOWED)
        return await replica.admission.handle(path, query, body)


def _manifest(name: str, cpu: str, scope_facts: str = "") -> dict[str, Any]:
    annotations = {names.POD_TRAITS: scope_facts} if scope_facts else {}
    metadata = {"name": name, "annotations": annotations}
    return {"metadata": metadata, "spec": {"minMember": 1, "minResources": {"cpu": cpu}}}


@dataclass
class Lab:
    """An API server that calls webhooks for one namespace, and the processes that serve it."""

    plane: Plane
    namespace: str
    front: Front
    server: WebhookServer
    certificate: LiveCertificate
    answers: Answers = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def client(self) -> Client:
        return self.plane.client

    @property
    def virtual(self) -> bool:
        """Whether time is virtual, so that how long something takes says something."""
        return self.plane.name == "sandbox"

    async def process(self) -> Process:
        network = Network((await self.plane.connect()).transport)
        client, view, metrics = Client(network), CachedView(), WebhookMetrics()
        self.run(view.run(client))
        await view.synced()
        network.sent.clear()
        observer = Observer(
            {kinds.PODGROUPS: view.cache(kinds.PODGROUPS)},
            view.cache(kinds.RESOURCEQUOTAS),
            view.cache(kinds.PODS),
            view.cache(kinds.RESOURCECLAIMS),
            view.watching.timeline,
            (SCHEDULER,),
        )
        waits = guaranteed_in(view.cache(kinds.NAMESPACES))
        shared = (view.cache(kinds.QUOTALEDGERS), observer, self.plane.clock, LedgerMetrics(metrics.registry), waits)
        committer, controller = Committer(client, *shared), LedgerController(client, *shared)
        settings = WebhookSettings(scheduler_names=(SCHEDULER,))
        admission = Admission(view, Noted(committer, self.answers), client, settings, metrics)
        process = Process(self.namespace, network, client, view, committer, controller, admission, metrics)
        self.processes.append(process)
        return process

    def run(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self.tasks.append(task)
        return task

    async def close(self) -> None:
        """End everything; what a part raised comes out here."""
        for process in self.processes:
            await process.committer.close()
        for task in self.tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def quota(
        self, process: Process | None, name: str = "quota", *, scopes: Sequence[str] = (), **hard: str
    ) -> None:
        """Create a ResourceQuota, seen by the webhook of that replica, or by none."""
        self.front.replica = process
        spec = {"hard": hard} | ({"scopes": scopes} if scopes else {})
        await self.client.create(kinds.RESOURCEQUOTAS, {"metadata": {"name": name}, "spec": spec}, self.namespace)
        # Until Kubernetes has counted itself, it refuses pods under the quota.
        await self.plane.until(kinds.RESOURCEQUOTAS, name, self.namespace, lambda quota: quota.status.hard)

    async def change_quota(self, process: Process, **hard: str) -> Observed | Unavailable:
        self.front.replica = process
        await self.client.patch(kinds.RESOURCEQUOTAS, "quota", {"spec": {"hard": hard}}, self.namespace)
        answer = self.answers["quota"]
        assert isinstance(answer, Observed | Unavailable)
        return answer

    async def store(self, name: str, cpu: str, kind: kinds.Kind[PodGroup] = kinds.PODGROUPS) -> PodGroup:
        """Create a PodGroup that no webhook sees."""
        self.front.replica = None
        return await self.client.create(kind, _manifest(name, cpu), self.namespace)

    async def create(
        self, process: Process, name: str, cpu: str, scope_facts: str = ""
    ) -> Reserved | Exceeded | Unavailable:
        """Create a PodGroup through a replica's webhook; gives what the ledger said."""
        answer = await self._asked(
            process, name, self.client.create(kinds.PODGROUPS, _manifest(name, cpu, scope_facts), self.namespace)
        )
        assert isinstance(answer, Reserved | Exceeded | Unavailable)
        return answer

    async def pod(
        self, process: Process | None, name: str, cpu: str, group: str = "", **more: Any
    ) -> Reserved | Exceeded | Unavailable | None:
        """Create a Pod, through a replica's webhook or past all; ``more`` goes into its spec."""
        self.front.replica = None
        meta = {"name": name, "annotations": {names.GROUP_NAME: group} if group else {}}
        main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
        spec = {"containers": [main], "schedulerName": SCHEDULER, **more}
        answer = await self._asked(
            process, name, self.client.create(kinds.PODS, {"metadata": meta, "spec": spec}, self.namespace)
        )
        assert not isinstance(answer, Observed)
        return answer

    async def resize(self, process: Process, name: str, cpu: str) -> Reserved | Exceeded | Unavailable | None:
        """Change what a PodGroup asks for, through a replica's webhook; None where the ledger wasn't asked."""
        change = {"spec": {"minResources": {"cpu": cpu}}}
        answer = await self._asked(process, name, self.client.patch(kinds.PODGROUPS, name, change, self.namespace))
        assert not isinstance(answer, Observed)
        return answer

    async def annotate(
        self, process: Process, name: str, traits: str, cpu: str = ""
    ) -> Reserved | Exceeded | Unavailable | None:
        """Change what a PodGroup says of its pods, and perhaps what it asks for; None where the ledger wasn't asked."""
        change = _manifest(name, cpu, traits) if cpu else {"metadata": {"annotations": {names.POD_TRAITS: traits}}}
        answer = await self._asked(process, name, self.client.patch(kinds.PODGROUPS, name, change, self.namespace))
        assert not isinstance(answer, Observed)
        return answer

    async def deadline(self, process: Process, name: str, seconds: int) -> Reserved | Exceeded | Unavailable | None:
        """Set a deadline on a Pod that exists."""
        change = {"spec": {"activeDeadlineSeconds": seconds}}
        answer = await self._asked(process, name, self.client.patch(kinds.PODS, name, change, self.namespace))
        assert not isinstance(answer, Observed)
        return answer

    async def decided(
        self, ask: Callable[[], Awaitable[Reserved | Exceeded | Unavailable | None]]
    ) -> Reserved | Exceeded | None:
        """Ask until the ledger decides: on a busy machine many at once may be too many for the time that a review has."""
        while True:
            try:
                answer = await ask()
            except errors.ServerError:
                if self.virtual:
                    raise
                continue
            if not isinstance(answer, Unavailable):
                return answer
            assert not self.virtual, answer

    async def _asked(
        self, process: Process | None, name: str, request: Coroutine[Any, Any, Any]
    ) -> Reserved | Exceeded | Unavailable | Observed | None:
        """Send a write for one replica to judge, and hold its outcome against what the ledger said."""
        self.answers.pop(name, None)
        if process is not None:
            self.front.replicas[name] = process
        refused = False
        try:
            await request
        except (errors.ForbiddenError, errors.TooManyRequestsError):
            refused = True
        answer = self.answers.get(name)
        assert refused == isinstance(answer, Exceeded | Unavailable)
        return answer

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait until something is so in this process."""
        await eventually(holds)

    async def ledger(self) -> QuotaLedger:
        return await self.client.get(kinds.QUOTALEDGERS, names.LEDGER_NAME, self.namespace)

    async def ledger_says(self, holds: Callable[[QuotaLedger], Any]) -> QuotaLedger:
        """Wait until something is so of the ledger."""
        found: QuotaLedger = await self.plane.until(
            kinds.QUOTALEDGERS, names.LEDGER_NAME, self.namespace, lambda ledger: ledger is not None and holds(ledger)
        )
        return found


async def eventually(holds: Callable[[], Any]) -> None:
    """Wait until something is so in this process."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def ask(
    process: Process, name: str, cpu: str, *, uid: str = "", dry_run: bool = False, within: float = 4.5, **more: Any
) -> Reserved | Exceeded | Unavailable:
    """Ask a replica's committer, past the API server: as if for a write that comes to nothing."""
    request = ReservationRequest(
        process.namespace, PODGROUP, names.VOLCANO_GROUP, name, uid or f"uid-{name}", Resources.parse({"cpu": cpu})
    )
    deadline = asyncio.get_running_loop().time() + within
    return await process.committer.reserve(msgspec.structs.replace(request, **more), dry_run=dry_run, deadline=deadline)


@pytest.fixture
def asking() -> Callable[..., Coroutine[Any, Any, Reserved | Exceeded | Unavailable]]:
    return ask


@pytest.fixture
def fault() -> type[Fault]:
    return Fault


@pytest.fixture
async def lab(plane: Plane, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    """A namespace whose groups, pods and quotas the API server asks this test's replicas about."""
    namespace = await plane.namespace(**{names.QUOTA_MODE: "guarded"})
    await plane.client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}}, manager="test")
    # The server answers at the paths of webhooks only, and somebody else's webhook has another.
    monkeypatch.setitem(HOOKS, SIBLING, HOOKS["/mutate/podgroups"])
    front = Front()
    certificate = LiveCertificate(plane.certificate, plane.clock)
    server = WebhookServer(front, certificate, ListenOptions("127.0.0.1", 0, 0.0))
    lab = Lab(plane, namespace, front, server, certificate)
    front.replica = await lab.process()
    await server.start()
    try:
        await plane.register(server, namespace=namespace, chosen=lambda name: name in ASKING)
        front.replica = None
        yield lab
        front.replica = lab.processes[0]
        await plane.unregister()
        if request.path.stem != "test_restore":
            # Nothing that a test without a restore makes happen looks like one.
            assert [each.view.watching.timeline.restores for each in lab.processes] == [0] * len(lab.processes)
    finally:
        await server.stop()
        await lab.close()
