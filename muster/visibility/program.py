"""Puts the visibility API together over an API server: the watched cluster, who may ask, listeners."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from prometheus_client import CollectorRegistry

from certs import guarded_metrics
from certs.serving import CertificateFiles, LiveCertificate
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.reflector import Reflector
from muster.model import kinds, names
from muster.telemetry.probes import Probes
from muster.visibility import requestheader
from muster.visibility.access import Access
from muster.visibility.api import VisibilityApi
from muster.visibility.cluster import WatchedCluster
from muster.visibility.forecasts import StartForecasts
from muster.visibility.paths import GROUP, VERSION
from muster.visibility.questions import Questions
from muster.visibility.requestheader import CONFIGMAP, HeaderRules
from muster.visibility.server import VisibilityServer
from scheduler.configuration.reload import LivePolicy
from scheduler.engine.policy import Policy

_SETTLES: Final = 0.5
"""Seconds between two looks whether the caches are full."""

log = logging.getLogger(__name__)


class VisibilityOptions(Struct, frozen=True):
    """What an operator says of one replica.

    ``certificates`` is the folder of the certificate; ``configuration`` the scheduler's file, which is followed; ``definitions`` the
    CRDs that objects are checked by. ``probes`` and the metrics' options are as those of other programs.
    """

    certificates: Path
    policy: Policy
    schedulers: tuple[str, ...]
    definitions: Sequence[Mapping[str, Any]]
    configuration: Path | None = None
    namespace: str = names.SYSTEM_NAMESPACE
    legacy_apis: bool = False
    host: str = ""
    port: int = 9444
    drain: float = 5.0
    probes: int | None = None
    metrics_port: int | None = None
    metrics_tls: Path | None = None


class _Trust:
    """The request-header CA as the API server publishes it, and as a file that TLS contexts read."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rules = HeaderRules()
        self.changed = asyncio.Event()
        self.trouble = f"ConfigMap {'/'.join(CONFIGMAP)} names no request-header CA yet"

    def take(self, found: Any) -> None:
        """Follow what is published now; what can't be read leaves all as it was."""
        try:
            rules = requestheader.read(found)
        except ValueError as error:
            self.trouble = str(error)
            log.warning("%s", error)
            return
        self.trouble = "" if rules.authority else f"ConfigMap {'/'.join(CONFIGMAP)} names no request-header CA"
        if rules != self.rules:
            self.rules = rules
            self.file.write_text(rules.authority)
            self.changed.set()


@contextlib.asynccontextmanager
async def answering(client: Client, clock: Clock, options: VisibilityOptions) -> AsyncIterator[VisibilityApi]:
    """Answer in this process, without a listener; the cluster is watched while the context is open."""
    cluster = WatchedCluster(client, clock, options.namespace, legacy_apis=options.legacy_apis)
    questions = Questions(cluster.state, options.policy, options.schedulers, cluster.missing)
    starts = StartForecasts(cluster.state, clock.now, options.policy, options.schedulers)
    async with _kept(cluster, questions, starts, options):
        yield VisibilityApi(questions, starts, Access(client, GROUP, VERSION), options.definitions)


@contextlib.asynccontextmanager
async def _kept(
    cluster: WatchedCluster, questions: Questions, starts: StartForecasts, options: VisibilityOptions
) -> AsyncIterator[list[asyncio.Task[None]]]:
    running = [
        asyncio.create_task(cluster.run(), name="cluster"),
        asyncio.create_task(questions.run(), name="states"),
        asyncio.create_task(starts.run(), name="expected starts"),
    ]

    def adopt(policy: Policy) -> None:
        questions.adopt(policy)
        starts.adopt(policy)

    if options.configuration is not None:
        live = LivePolicy(options.configuration, CollectorRegistry())
        running.append(asyncio.create_task(live.run(adopt), name="configuration"))
    try:
        yield running
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        questions.close()


@contextlib.asynccontextmanager
async def serving(client: Client, clock: Clock, options: VisibilityOptions) -> AsyncIterator[VisibilityServer]:
    """Serve while the context is open; it is entered when the port listens, whatever is known of the cluster by then.

    Raises:
        ServingCertificateError: there is no certificate to serve with.
        OSError: a port is taken.
    """
    cluster = WatchedCluster(client, clock, options.namespace, legacy_apis=options.legacy_apis)
    questions = Questions(cluster.state, options.policy, options.schedulers, cluster.missing)
    starts = StartForecasts(cluster.state, clock.now, options.policy, options.schedulers)
    api = VisibilityApi(questions, starts, Access(client, GROUP, VERSION), options.definitions)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-visibility-")))
        trust = _Trust(folder / "request-header-ca.crt")
        server: list[VisibilityServer] = []
        running = await stack.enter_async_context(_kept(cluster, questions, starts, options))

        def not_ready() -> list[str]:
            return [*([trust.trouble] if trust.trouble else []), *(server[0].not_ready() if server else ["starting"])]

        def not_alive() -> list[str]:
            return [*questions.not_alive(), *(["the cluster isn't watched any more"] if running[0].done() else [])]

        if options.probes is not None:
            await _probed(stack, Probes(
                not_ready,
                api.metrics.registry,
                alive=not_alive,
                port=options.probes,
                metrics_port=None if options.metrics_tls else options.metrics_port,
            ), client, options)  # fmt: skip
        stack.push_async_callback(_cancelled, asyncio.create_task(_settle(cluster), name="settling"))
        following = asyncio.create_task(_follow(client, trust), name="request-header CA")
        stack.push_async_callback(_cancelled, following)
        while not trust.rules.authority:
            trust.changed.clear()
            await trust.changed.wait()
        certificate = LiveCertificate(CertificateFiles(options.certificates, trust.file), clock)
        made = VisibilityServer(
            api, certificate, lambda: trust.rules, host=options.host, port=options.port, drain=options.drain
        )
        distrusting = asyncio.create_task(_distrust(made, trust), name="changed CA")
        stack.push_async_callback(_cancelled, distrusting)
        stack.push_async_callback(made.stop)
        await made.start()
        server.append(made)
        yield made


async def _settle(cluster: WatchedCluster) -> None:
    """Have the garbage collector pass over what was listed, once it is there."""
    while cluster.missing():  # noqa: ASYNC110 - several caches, which tell nobody that the last of them is full
        await asyncio.sleep(_SETTLES)
    gc.collect()
    gc.freeze()


async def _probed(stack: contextlib.AsyncExitStack, probes: Probes, client: Client, options: VisibilityOptions) -> None:
    await probes.start()
    stack.push_async_callback(probes.stop)
    if options.metrics_port and options.metrics_tls:
        guarded = guarded_metrics.serve(probes, options.metrics_port, options.metrics_tls, client)
        stack.push_async_callback(_cancelled, asyncio.create_task(guarded, name="metrics"))


async def _follow(client: Client, trust: _Trust) -> None:
    namespace, name = CONFIGMAP
    cache: ObjectCache[Any] = ObjectCache()
    cache.subscribe(lambda change: trust.take(change.new))
    await Reflector(client, kinds.CONFIGMAPS, cache, namespace=namespace, fields=f"metadata.name={name}").run()


async def _distrust(server: VisibilityServer, trust: _Trust) -> None:
    """Have the server take up each CA that comes after the first."""
    trust.changed.clear()
    while True:
        await trust.changed.wait()
        trust.changed.clear()
        server.distrust()


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
