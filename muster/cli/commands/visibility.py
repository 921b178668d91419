"""``muster visibility``: serve the visibility API, as a program with an account of its own."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any, Final

import click

from muster.cli.options import cluster_options, examples
from muster.model import names
from muster.telemetry import logs
from muster.telemetry.options import drain_option, log_options, rules_option, scheduler_name_option, server_options
from muster.telemetry.stopping import until_stopped

_PORT: Final = 9444
_PROBES: Final = 8086


@click.command(epilog=examples("muster visibility --certificates /etc/muster/certificates --config scheduler.yaml"))
@cluster_options
@server_options(_PORT, "API", _PROBES)
@click.option(
    "--config",
    "configuration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The scheduler's configuration (YAML), followed while running. Default: the built-in one.",
)
@drain_option
@scheduler_name_option
@rules_option
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
        prepare()
        endpoint = await auth.load(options["kubeconfig"], options["context"])
        await CertificateFiles(options["certificates"]).arrived()
        async with HttpTransport(endpoint) as transport, serving(Client(transport), SystemClock(), made):
            gc.collect()
            gc.freeze()
            await asyncio.Event().wait()

    await until_stopped(serve())
