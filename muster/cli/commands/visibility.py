"""``muster visibility``: serve the visibility API, as a program with an account of its own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from pathlib import Path
from typing import Any, Final

import click

from muster.cli.options import cluster_options, examples
from muster.model import names
from muster.telemetry import logs
from muster.telemetry.options import log_options, probe_options

_PORT: Final = 9444
_PROBES: Final = 8086


@click.command(epilog=examples("muster visibility --certificates /etc/muster/certificates --config scheduler.yaml"))
@cluster_options
@click.option("--host", default="", help="Address to listen on. Default: all, of IPv6 and of IPv4.")
@click.option("--port", default=_PORT, show_default=True, help="Port of the API (TLS).")
@probe_options(_PROBES)
@click.option(
    "--certificates",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder with tls.crt and tls.key; changes apply while running.",
)
@click.option(
    "--config",
    "configuration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The scheduler's configuration (YAML), followed while running. Default: the built-in one.",
)
@click.option(
    "--drain", default=5.0, show_default=True, metavar="SECONDS", help="Time to continue serving after SIGTERM."
)
@click.option(
    "--scheduler-name",
    "schedulers",
    multiple=True,
    metavar="NAME",
    help="Scheduler name of the pods that Muster schedules; repeatable.",
)
@click.option(
    "--namespace",
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    help="Namespace of the ConfigMap with owner rules.",
)
@click.option("--legacy-apis", is_flag=True, help="Serve the PodGroups and Queues of kube-batch's API groups too.")
@log_options
def visibility(**options: Any) -> None:
    """Serve visibility.muster.sh: why a tenant's workloads wait, where they stand, what would be admitted.

    API servers call it for tenants, who see what is theirs, and of others amounts and positions.
    """
    logs.configure(options["log_level"], options["log_format"])
    import uvloop

    from certs.serving import ServingCertificateError
    from muster.kube.errors import KubeError

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(options))
    except (ServingCertificateError, KubeError, OSError) as error:
        raise click.ClickException(" ".join(str(error).split())) from error


async def _run(options: dict[str, Any]) -> None:
    """Serve until SIGINT or SIGTERM, then drain."""
    from certs.serving import CertificateFiles
    from muster.cli.installation import crds
    from muster.cli.options import policy_of
    from muster.kube import auth
    from muster.kube.client import Client
    from muster.kube.clock import SystemClock
    from muster.kube.http import HttpTransport
    from muster.model.objects import prepare
    from muster.visibility.program import VisibilityOptions, serving

    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    prepare()
    made = VisibilityOptions(
        options["certificates"],
        policy_of(options["configuration"]),
        options["schedulers"] or (names.SCHEDULER_NAME,),
        crds.manifests(legacy_apis=options["legacy_apis"]),
        options["configuration"],
        options["namespace"],
        options["legacy_apis"],
        options["host"],
        options["port"],
        options["drain"],
        options["probe_port"],
        options["metrics_port"],
        options["metrics_tls"],
    )

    async def serve() -> None:
        endpoint = await auth.load(options["kubeconfig"], options["context"])
        await CertificateFiles(options["certificates"]).arrived()
        async with HttpTransport(endpoint) as transport, serving(Client(transport), SystemClock(), made):
            gc.collect()
            gc.freeze()
            await asyncio.Event().wait()

    serving_task, stop = asyncio.create_task(serve()), asyncio.create_task(stopped.wait())
    await asyncio.wait({serving_task, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    serving_task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving_task
