"""Metrics over TLS, with the webhooks' certificate, for those whom the API server lets read them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from certs.listener import TlsListener
from certs.serving import CertificateFiles, LiveCertificate, ServingCertificateError
from muster.kube.client import Client
from muster.kube.token_review import TokenReviewer
from muster.telemetry.probes import Listen, Probes
from muster.telemetry.waiting_room import KnownCallers

log = logging.getLogger(__name__)


async def serve(probes: Probes, port: int, folder: Path, client: Client) -> None:
    """Serve a program's metrics at a port of their own, as soon as there is a certificate, until cancelled.

    Where that fails the log says why, and the program goes on without.
    """
    files = CertificateFiles(folder)
    try:
        await files.arrived()
        certificate = LiveCertificate(files)
        await probes.serve_metrics(port, listening(certificate), TokenReviewer(client).status)
    except (ServingCertificateError, OSError) as error:
        log.error("metrics aren't served: %s", error)  # noqa: TRY400 - the line says it all
        return
    await certificate.run()


def listening(certificate: LiveCertificate) -> Listen:
    """Return what listens with a certificate, to a bounded number of handshakes."""

    async def listen(make: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> TlsListener:
        # Nobody reads metrics so often that an address would need more room than others have.
        listener = TlsListener(make, certificate.listening, KnownCallers())
        await listener.start(host, port)
        return listener

    return listen
