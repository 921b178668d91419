"""A trace played on the sandbox: API server, webhooks, worker and simulated nodes, in virtual time.

What `muster simulate` must agree with, at a hundredth of its speed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from certs import authority
from muster.cli.installation import crds, webhook_configurations
from muster.kube import errors
from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.fence import Fence
from muster.kube.transport import Request
from muster.ledger.committer import Committer
from muster.ledger.metrics import LedgerMetrics
from muster.ledger.observer import Observer, guaranteed_in
from muster.model import kinds, names
from muster.sandbox import virtual_time
from muster.sandbox.compose import Sandbox
from muster.sandbox.inprocess import InProcessTransport
from scheduler.configuration import config
from scheduler.leader.worker import Worker
from scheduler.simulator.trace import TraceJob
from webhooks.admission import Admission
from webhooks.caches import CachedView
from webhooks.metrics import WebhookMetrics
from webhooks.registration import UrlBase, configurations
from webhooks.settings import WebhookSettings

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Life:
    """What became of a line of a trace: when its first pods started, in seconds, and where each pod ran."""

    started: float | None
    nodes: Mapping[str, str]
    refusal: str = ""


class _Hooks:
    def __init__(self) -> None:
        self.admission: Admission | None = None

    async def call(
        self, url: str, ca_bundle: bytes, body: bytes, *, within: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        assert self.admission is not None
        assert ca_bundle
        target = urlsplit(url)
        async with asyncio.timeout(within):
            status, headers, answer = await self.admission.handle(target.path, dict(parse_qsl(target.query)), body)
        return status, {name.lower(): value for name, value in headers.items()}, answer


class _Together(InProcessTransport):
    """Watches in which what happens at one moment is seen at one moment.

    Pods of a gang end together here, but each in a write of its own; a worker that decides in between has seen some.
    """

    @contextlib.asynccontextmanager
    async def watch(self, request: Request, *, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        async with super().watch(request, idle=idle) as lines:
            queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
            pump = asyncio.create_task(_pump(lines, queue))
            try:
                yield _bursts(queue)
            finally:
                pump.cancel()
                await asyncio.wait([pump])


async def _pump(lines: AsyncIterator[bytes], queue: asyncio.Queue[bytes | Exception | None]) -> None:
    try:
        async for line in lines:
            queue.put_nowait(line)
        queue.put_nowait(None)
    except errors.KubeError as error:
        queue.put_nowait(error)


async def _bursts(queue: asyncio.Queue[bytes | Exception | None]) -> AsyncIterator[bytes]:
    while True:
        burst = [await queue.get()]
        await asyncio.sleep(0.01)
        while not queue.empty():
            burst.append(queue.get_nowait())
        for line in burst:
            if line is None:
                return
            if isinstance(line, Exception):
                raise line
            yield line


def play(trace: Sequence[TraceJob], objects: Sequence[dict[str, Any]], policy: str, until: float) -> Mapping[str, Life]:
    """Play a trace on nodes and queues, and give what became of each of its lines."""
    return virtual_time.run(_play(trace, objects, policy, until))


async def _play(
    trace: Sequence[TraceJob], objects: Sequence[dict[str, Any]], policy: str, until: float
) -> Mapping[str, Life]:
    clock, hooks = LoopClock(START), _Hooks()
    sandbox = Sandbox(clock, caller=hooks)
    await sandbox.start()
    client = Client(sandbox.transport())
    await crds.apply(client, legacy_apis=False, adopt=True)
    for each in objects:
        if each["kind"] == "Node":
            amounts = each["status"]["allocatable"]
            await sandbox.add_node(each["metadata"]["name"], amounts["cpu"], amounts["memory"], int(amounts["pods"]))
    async with contextlib.AsyncExitStack() as stack:
        await _serve(Client(sandbox.transport()), clock, hooks, stack)
        await webhook_configurations.apply(
            client,
            *configurations(
                UrlBase("https://hooks"),
                authority.new_ca(clock.now()).certificate,
                scheduler_names=("muster",),
                legacy_apis=False,
                own_namespace=names.SYSTEM_NAMESPACE,
            ),
        )
        worker = Worker(Client(_Together(sandbox.server)), clock, config.parse(policy), ("muster",))
        working = asyncio.create_task(worker.run(Fence("test", until=float("inf"))))
        stack.push_async_callback(_end, working)
        await worker.synced.wait()
        for each in objects:
            await _create(client, each)
        # The clock of the trace begins on a whole second of the cluster's, as that of a simulation does.
        await asyncio.sleep(30 - asyncio.get_running_loop().time() % 10)
        lives = await _arrivals(client, trace, until)
    await sandbox.stop()
    return lives


async def _serve(client: Client, clock: LoopClock, hooks: _Hooks, stack: contextlib.AsyncExitStack) -> None:
    view, metrics = CachedView(), WebhookMetrics()
    watching = asyncio.create_task(view.run(client))
    stack.push_async_callback(_end, watching)
    await view.synced()
    groups = {kinds.PODGROUPS: view.cache(kinds.PODGROUPS)}
    observer = Observer(
        groups, view.cache(kinds.RESOURCEQUOTAS), view.cache(kinds.PODS), view.cache(kinds.RESOURCECLAIMS)
    )
    committer = Committer(
        client,
        view.cache(kinds.QUOTALEDGERS),
        observer,
        clock,
        LedgerMetrics(metrics.registry),
        guaranteed_in(view.cache(kinds.NAMESPACES)),
    )
    stack.push_async_callback(committer.close)
    hooks.admission = Admission(view, committer, client, WebhookSettings(), metrics)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _create(client: Client, each: dict[str, Any]) -> None:
    kind = {"Queue": kinds.QUEUES, "ResourceQuota": kinds.RESOURCEQUOTAS}.get(each["kind"])
    if kind is not None:
        await client.create(kind, each, "default" if kind.namespaced else "")


async def _arrivals(client: Client, trace: Sequence[TraceJob], until: float) -> Mapping[str, Life]:
    loop = asyncio.get_running_loop()
    began, refusals = loop.time(), {}
    for job in trace:
        await asyncio.sleep(max(began + job.arrival - loop.time(), 0))
        try:
            await _arrive(client, job)
        except errors.ApiError as error:
            refusals[job.name] = error.message.partition("denied the request: ")[2]
    await asyncio.sleep(began + until - loop.time())
    pods = (await client.list(kinds.PODS, "default")).items
    zero = START.timestamp() + began
    return {job.name: _life(job, pods, zero, refusals.get(job.name, "")) for job in trace}


async def _arrive(client: Client, job: TraceJob) -> None:
    amounts = dict((job.request * job.minimum).quantities())
    spec = {"minMember": job.minimum, "queue": job.queue, "minResources": amounts}
    await client.create(kinds.PODGROUPS, {"metadata": {"name": job.name}, "spec": spec}, "default")
    main = {"name": "main", "image": "busybox", "resources": {"requests": dict(job.request.quantities())}}
    notes = {names.GROUP_NAME: job.name, names.RUN_SECONDS: f"{job.duration:g}"}
    for number in range(job.pods):
        pod = {"schedulerName": "muster", "restartPolicy": "Never", "containers": [main]}
        meta = {"name": f"{job.name}-{number}", "annotations": notes}
        await client.create(kinds.PODS, {"metadata": meta, "spec": pod}, "default")


def _life(job: TraceJob, pods: Sequence[Any], zero: float, refusal: str) -> Life:
    mine = [pod for pod in pods if pod.metadata.annotation(names.GROUP_NAME) == job.name and pod.spec.node_name]
    starts = sorted(pod.status.start_time.timestamp() - zero for pod in mine)
    started = starts[job.minimum - 1] if len(starts) >= job.minimum else None
    return Life(started, {pod.name: pod.spec.node_name for pod in mine}, refusal)
