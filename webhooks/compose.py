"""Puts a webhook server together over an API server: caches, ledger, admission, listeners."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from certs import guarded_metrics
from certs.serving import CertificateFiles, LiveCertificate
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.model import names
from muster.model.grouping import OwnerRule
from muster.telemetry.bounded import first
from muster.telemetry.probes import Probes
from webhooks import caches
from webhooks.admission import Admission
from webhooks.caches import CachedView
from webhooks.metrics import WebhookMetrics
from webhooks.ownerrules import OwnerRulesWatcher
from webhooks.paths import LivePaths
from webhooks.server import ListenOptions, WebhookServer
from webhooks.settings import WebhookSettings

_RULES: Final = 100
"""Owner rules that the state shows."""


class WebhookOptions(Struct, frozen=True):
    """What an operator says of one webhook server.

    ``probes`` is the port of /healthz, /readyz and, for this machine, /metrics; None is no such listener. ``metrics_port`` is
    the one at which other machines get metrics, None for none; over TLS with the certificate in ``metrics_tls``. ``debug``: /debug/state is
    shown, too. ``paths`` is the folder with the segments that the paths of webhooks end in. ``namespace`` is Muster's own, where the
    ConfigMap with the owner rules is.
    """

    certificate: CertificateFiles
    listen: ListenOptions = field(default_factory=ListenOptions)
    probes: int | None = None
    metrics_port: int | None = None
    metrics_tls: Path | None = None
    debug: bool = False
    settings: WebhookSettings = field(default_factory=WebhookSettings)
    legacy_apis: bool = False
    namespace: str = names.SYSTEM_NAMESPACE
    paths: Path | None = None


@contextlib.asynccontextmanager
async def serving(client: Client, clock: Clock, options: WebhookOptions) -> AsyncIterator[WebhookServer]:
    """Serve webhooks while the context is open; it is entered when all caches are synced and the port listens.

    Raises:
        CertificateError: there is no certificate to serve with.
        OSError: a port is taken.
    """
    metrics, view = WebhookMetrics(), CachedView(legacy_apis=options.legacy_apis)
    certificate = LiveCertificate(
        options.certificate, clock, changed=metrics.certificate_ends, stale=metrics.certificate_stale
    )
    committer = caches.committer(client, clock, view, metrics.registry, options.settings.scheduler_names)
    admission = Admission(view, committer, client, options.settings, metrics)
    paths = LivePaths(options.paths, clock, certified=options.certificate.clients is not None)
    server = WebhookServer(admission, certificate, options.listen, waiting=view.watching.missing, paths=paths)
    metrics.watches(view.watching.failing, view.watching.unknown)
    rules = OwnerRulesWatcher(client, options.namespace, _adopting(admission))
    watching = asyncio.gather(view.run(client), rules.run())

    def not_alive() -> list[str]:
        return ["the cluster isn't watched any more"] if watching.done() else []

    def state() -> dict[str, Any]:
        return _state(admission, server, certificate, view)

    probes: Probes | None = None
    guarded: asyncio.Task[None] | None = None
    if options.probes is not None:
        shown = state if options.debug else None
        probes = Probes(
            server.not_ready,
            metrics.registry,
            alive=not_alive,
            state=shown,
            port=options.probes,
            metrics_port=None if options.metrics_tls else options.metrics_port,
        )
    try:
        if probes is not None:
            await probes.start()
        if probes is not None and options.metrics_port and options.metrics_tls:
            guarded = asyncio.create_task(
                guarded_metrics.serve(probes, options.metrics_port, options.metrics_tls, client), name="metrics"
            )
        await view.synced()
        await rules.synced()
        await server.start()
        yield server
    finally:
        await server.stop()
        await committer.close()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        if guarded is not None:
            guarded.cancel()
            await asyncio.wait([guarded])
        if probes is not None:
            await probes.stop()


def _state(
    admission: Admission, server: WebhookServer, certificate: LiveCertificate, view: CachedView
) -> dict[str, Any]:
    settings = admission.settings
    return {
        "program": "webhook",
        "notReady": server.not_ready(),
        "inFlight": admission.metrics.in_flight,
        "certificate": certificate.state(),
        "settings": {
            "schedulerNames": settings.scheduler_names,
            "delay": settings.delay,
            "ownerRules": first((f"{rule.api_version} {rule.kind} {rule.level:+d}" for rule in settings.rules), _RULES),
        },
        "caches": view.watching.state(),
    }


def _adopting(admission: Admission) -> Callable[[tuple[OwnerRule, ...]], None]:
    def adopt(rules: tuple[OwnerRule, ...]) -> None:
        admission.settings = replace(admission.settings, rules=rules)

    return adopt
