"""``muster certs run``: keep the webhooks' certificates and paths, as a program with an account of its own."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any, Final

import click

from muster.cli.installation import webhook_configurations
from muster.cli.options import cluster_options, examples
from muster.model import names
from muster.telemetry import logs
from muster.telemetry.options import log_options, probe_options

_PROBES: Final = 8084


@click.command(epilog=examples("muster certs run --namespace muster-system"))
@cluster_options
@click.option(
    "-n",
    "--namespace",
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    help="Namespace of the Secrets and of the Lease.",
)
@click.option(
    "--configuration",
    default=webhook_configurations.NAME,
    show_default=True,
    help="Name of the webhook configurations.",
)
@click.option(
    "--certificates/--no-certificates",
    default=True,
    show_default=True,
    help="Maintain the certificates, too; --no-certificates where another program issues them.",
)
@click.option(
    "--visibility", is_flag=True, help="Register visibility.muster.sh for as long as `muster visibility` serves it."
)
@click.option("--lease-name", default="muster-certs", show_default=True, help="Name of the leader's Lease.")
@probe_options(_PROBES)
@click.option("--debug-state", is_flag=True, help="Serve the process's state at /debug/state, next to /metrics.")
@log_options
def run(**options: Any) -> None:
    """Maintain the webhooks' certificates, CA bundle and paths, until stopped. Of several processes, one leads.

    Nothing is done before `muster certs init`, or the chart, has made the Secrets.
    """
    from muster.kube.errors import KubeError

    logs.configure(options["log_level"], options["log_format"])
    try:
        asyncio.run(_run(options))
    except (KubeError, OSError) as error:
        raise click.ClickException(" ".join(str(error).split())) from error


async def _run(options: dict[str, Any]) -> None:
    """Stand for election and keep certificates and paths, until SIGINT or SIGTERM."""
    from certs import guarded_metrics
    from certs.apiservice import ApiServiceKeeper, Registration
    from certs.controller import CertificateController
    from certs.metrics import CertificateMetrics, PathMetrics
    from certs.path_controller import PathController
    from certs.publish import RotationTarget
    from muster.kube import auth
    from muster.kube.client import Client
    from muster.kube.clock import SystemClock
    from muster.kube.fence import Fence, FencedTransport
    from muster.kube.http import HttpTransport
    from muster.kube.lease import LeaderElector
    from muster.telemetry.probes import Probes
    from muster.telemetry.registry import registry

    me = asyncio.current_task()
    assert me is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, me.cancel)
    shown, clock, space = registry("certs"), SystemClock(), options["namespace"]
    metrics, path_metrics = CertificateMetrics(shown), PathMetrics(shown)
    target = RotationTarget(space, options["configuration"])
    async with HttpTransport(await auth.load(options["kubeconfig"], options["context"])) as transport:
        standing = {"program": "certs", "leading": False}

        async def lead(fence: Fence) -> None:
            standing["leading"] = True
            fenced = Client(FencedTransport(transport, fence))
            try:
                async with asyncio.TaskGroup() as parts:
                    if options["certificates"]:
                        parts.create_task(CertificateController(fenced, clock, target, metrics).run())
                    parts.create_task(PathController.of(fenced, clock, target, path_metrics).run())
                    if options["visibility"]:
                        registration = Registration(space, options["configuration"])
                        parts.create_task(ApiServiceKeeper(fenced, registration).run())
            finally:
                standing["leading"] = False

        probes = Probes(
            list,
            shown,
            state=(lambda: standing) if options["debug_state"] else None,
            port=options["probe_port"],
            metrics_port=None if options["metrics_tls"] else options["metrics_port"],
        )
        await probes.start()
        client = Client(transport)
        try:
            async with asyncio.TaskGroup() as parts:
                parts.create_task(
                    LeaderElector(client, space, options["lease_name"], socket.gethostname(), clock).run(lead)
                )
                if (port := options["metrics_port"]) and (folder := options["metrics_tls"]):
                    parts.create_task(guarded_metrics.serve(probes, port, folder, client))
        except asyncio.CancelledError:
            # The signal; the lease has been given back.
            return
        finally:
            await probes.stop()
