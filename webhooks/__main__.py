"""``muster webhook``, and ``python -m webhooks``: the admission server as a process of its own."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any, Final

import click

from muster.model import names
from muster.telemetry import logs
from muster.telemetry.options import drain_option, log_options, rules_option, scheduler_name_option, server_options
from muster.telemetry.stopping import until_stopped

_PORT: Final = 9443
_PROBES: Final = 8080


@click.command(epilog="\b\nExamples:\n  muster webhook --certificates /etc/muster/certificates --port 9443")
@click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, then ~/.kube/config, then the pod's account.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
@server_options(_PORT, "webhooks", _PROBES)
@click.option(
    "--client-ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Accept only clients with a certificate of this CA.",
)
@click.option(
    "--paths",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with the secret segments of the webhooks' paths; changes apply while running.",
)
@drain_option
@scheduler_name_option
@click.option(
    "--account",
    "accounts",
    multiple=True,
    metavar="USER",
    help="User name that Muster's programs write as; repeatable.",
)
@click.option(
    "--delay/--no-delay", default=True, show_default=True, help="Suspend Jobs until their PodGroup is Inqueue."
)
@rules_option
@click.option("--debug-state", is_flag=True, help="Serve the process's state at /debug/state, next to /metrics.")
@click.option("--legacy-apis", is_flag=True, help="Serve the PodGroups and Queues of kube-batch's API groups too.")
@log_options
def webhook(**options: Any) -> None:
    """Run the admission server."""
    logs.configure(options["log_level"], options["log_format"])
    # They take a second to import, which --help doesn't spend.
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
    from muster.kube import auth
    from muster.kube.client import Client
    from muster.kube.clock import SystemClock
    from muster.kube.http import HttpTransport
    from webhooks.compose import serving

    made = _options(options)

    async def serve() -> None:
        endpoint = await auth.load(options["kubeconfig"], options["context"])
        await made.certificate.arrived()
        async with HttpTransport(endpoint) as transport, serving(Client(transport), SystemClock(), made):
            # The caches stay: no collection walks through them again.
            gc.collect()
            gc.freeze()
            await asyncio.Event().wait()

    await until_stopped(serve())


def _options(options: dict[str, Any]) -> Any:
    from certs.serving import CertificateFiles
    from webhooks.compose import WebhookOptions
    from webhooks.server import ListenOptions
    from webhooks.settings import WebhookSettings

    settings = WebhookSettings(
        scheduler_names=options["schedulers"] or (names.SCHEDULER_NAME,),
        accounts=frozenset(options["accounts"]),
        delay=options["delay"],
        exempt=frozenset({*names.EXEMPT_NAMESPACES, options["namespace"]}),
    )
    return WebhookOptions(
        certificate=CertificateFiles(options["certificates"], options["client_ca"]),
        paths=options["paths"],
        listen=ListenOptions(options["host"], options["port"], options["drain"]),
        probes=options["probe_port"],
        metrics_port=options["metrics_port"],
        metrics_tls=options["metrics_tls"],
        debug=options["debug_state"],
        settings=settings,
        legacy_apis=options["legacy_apis"],
        namespace=options["namespace"],
    )


if __name__ == "__main__":
    webhook()
