"""Metrics over TLS, with the webhooks' certificate, for those whom the API server lets read them."""

from __future__ import annotations

import logging
from pathlib import Path

from certs.serving import CertificateFiles, LiveCertificate, ServingCertificateError
from muster.kube.client import Client
from muster.kube.token_review import TokenReviewer
from muster.telemetry.probes import Probes

log = logging.getLogger(__name__)


async def serve(probes: Probes, port: int, folder: Path, client: Client) -> None:
    """Serve a program's metrics at a port of their own, as soon as there is a certificate, until cancelled.

    Where that fails the log says why, and the program goes on without.
    """
    files = CertificateFiles(folder)
    try:
        await files.arrived()
        certificate = LiveCertificate(files)
        await probes.serve_metrics(port, certificate.listening, TokenReviewer(client).status)
    except (ServingCertificateError, OSError) as error:
        log.error("metrics aren't served: %s", error)  # noqa: TRY400 - the line says it all
        return
    await certificate.run()
