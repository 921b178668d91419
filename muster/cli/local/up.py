"""``muster up``: everything on this machine, or Muster beside an existing cluster."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from muster.cli.connect import runs
from muster.cli.options import config_option, examples, policy_of, schedulers_option

_NODE: Final = {"cpu": "4", "memory": "16Gi", "pods": 110}


def _amount(_context: click.Context, _option: click.Parameter, text: str) -> str:
    from muster.model.amounts import Quantity, QuantityError

    try:
        amount = Quantity.parse(text)
    except QuantityError as error:
        raise click.BadParameter(str(error)) from error
    if amount.nano <= 0:
        raise click.BadParameter(f"{text} is not more than zero")
    return text


@click.command(
    epilog=examples(
        "muster up --nodes 10 --node-cpu 32", "muster up --kubeconfig kind.kubeconfig --config scheduler.yaml"
    )
)
@click.option("--kubeconfig", metavar="FILE", help="Run beside this cluster instead of an embedded one.")
@click.option("--context", metavar="NAME", help="Context of that kubeconfig to use.")
@click.option(
    "--nodes", type=click.IntRange(0, 10_000), default=4, show_default=True, help="Number of simulated nodes."
)
@click.option(
    "--node-cpu", default=_NODE["cpu"], show_default=True, callback=_amount, metavar="AMOUNT", help="CPU of each node."
)
@click.option(
    "--node-memory",
    default=_NODE["memory"],
    show_default=True,
    callback=_amount,
    metavar="AMOUNT",
    help="Memory of each node.",
)
@click.option(
    "--node-pods", type=click.IntRange(1), default=_NODE["pods"], show_default=True, help="Pods of each node."
)
@config_option("The scheduler's actions and plugins, followed while running.")
@click.option(
    "--kubeconfig-out", type=click.Path(path_type=Path), metavar="FILE", help="File to write the kubeconfig to."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port of the embedded API server; 0: any free port."
)
@schedulers_option()
@click.option("--legacy-apis", is_flag=True, help="Serve the PodGroups and Queues of kube-batch's API groups too.")
@click.option("--adopt-crds", is_flag=True, help="Replace CRDs of the same API group that another product installed.")
@click.option(
    "--log-level", default="warning", show_default=True, type=click.Choice(["debug", "info", "warning", "error"])
)
@runs
async def up(**options: Any) -> None:
    """Run Muster on this machine until Ctrl-C: API server, simulated nodes, webhooks and scheduler.

    The command prints one line when everything is ready, and deletes the state when it ends. With --kubeconfig, webhooks
    and scheduler serve that cluster from outside, and the command removes their webhook configurations and policy at the end.
    """
    from muster.cli.local import programs
    from muster.telemetry import logs

    logs.configure(options["log_level"])
    config = options["configuration"]
    policy = policy_of(config)
    wishes = programs.LocalOptions(options["schedulers"], options["legacy_apis"], options["adopt_crds"], policy, config)
    if options["kubeconfig"]:
        file = Path(options["kubeconfig"])
        everything = programs.beside(file, options["context"], wishes)
    else:
        file = options["kubeconfig_out"] or programs.default_kubeconfig()
        nodes = programs.SimulatedNodes(
            options["nodes"], options["node_cpu"], options["node_memory"], options["node_pods"]
        )
        everything = programs.embedded(file, options["port"], nodes, wishes)
    with _until_told():
        async with everything as trouble:
            click.echo(f"ready: export KUBECONFIG={file}")
            await trouble


@contextlib.contextmanager
def _until_told() -> Iterator[None]:
    """Leave the block, quietly, at SIGINT or SIGTERM; what it entered is closed. A second signal ends the hard way."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    numbers = (signal.SIGINT, signal.SIGTERM)
    told = False

    def tell() -> None:
        nonlocal told
        told = True
        for number in numbers:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in numbers:
        loop.add_signal_handler(number, tell)
    try:
        yield
    except asyncio.CancelledError:
        if not told:
            raise
