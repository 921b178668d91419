"""``muster queue``, and ``vcctl queue``: create, view, list, close, open, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from muster.cli import completion
from muster.cli.connect import connected, runs
from muster.cli.flags import ClusterGroup
from muster.cli.options import cluster_options, examples
from muster.cli.output import DOCUMENTS, age, document, moment, output_option, table
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.transport import Request
from muster.model import kinds, names
from muster.model.amounts import QuantityError, Resources
from muster.model.objects import Queue

_COUNTS = ("pending", "running", "inqueue", "completed", "failed")
_MORE_COUNTS = ("aborted", "unknown")


@click.group(cls=ClusterGroup)
def queue() -> None:
    """Create, list, view, close, open and delete queues."""


def _named(command: Callable[..., Any]) -> Callable[..., Any]:
    """Take the queue's name as an argument or, as vcctl does, as ``--name``."""
    option = click.option(
        "--name",
        "-n",
        "option_name",
        metavar="NAME",
        help="Name of the queue; the same as the argument.",
        shell_complete=completion.queues,
    )
    argument = click.argument("argument_name", metavar="NAME", required=False, shell_complete=completion.queues)
    return argument(option(command))


def _name(argument_name: str | None, option_name: str | None) -> str:
    if argument_name and option_name and argument_name != option_name:
        raise click.UsageError(f"two names given, {argument_name} and {option_name}; give one")
    name = argument_name or option_name
    if not name:
        raise click.UsageError("missing the name of the queue")
    return name


@queue.command(
    epilog=examples(
        "muster queue create --name research --weight 10",
        "muster queue create night --capability cpu=64 --capability memory=256Gi --parent research",
    )
)
@_named
@click.option(
    "--weight",
    "-w",
    type=click.IntRange(1, 65535),
    default=1,
    show_default=True,
    help="Share relative to other queues.",
)
@click.option(
    "--capability", multiple=True, metavar="RESOURCE=AMOUNT", help="Hard limit of a resource, e.g. cpu=64; repeatable."
)
@click.option(
    "--parent", metavar="QUEUE", help="Parent queue, whose share it divides.", shell_complete=completion.queues
)
@cluster_options
@runs
async def create(
    argument_name: str | None,
    option_name: str | None,
    weight: int,
    capability: tuple[str, ...],
    parent: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Create a queue."""
    name = _name(argument_name, option_name)
    spec: dict[str, Any] = {"weight": weight}
    if capability:
        spec["capability"] = _amounts(capability)
    if parent:
        spec["parent"] = parent
    async with connected(kubeconfig, context) as client:
        await client.create(kinds.QUEUES, {"metadata": {"name": name}, "spec": spec})
    click.echo(f"queue {name} created")


@queue.command("list", epilog=examples("muster queue list", "muster queue list -o wide"))
@output_option
@cluster_options
@runs
async def list_(output: str, kubeconfig: str | None, context: str | None) -> None:
    """List all queues with their PodGroups by phase."""
    async with connected(kubeconfig, context) as client:
        if output in DOCUMENTS:
            document(await _raw(client, ""), output)
            return
        found = (await client.list(kinds.QUEUES)).items
    _show(sorted(found, key=lambda each: each.name), output)


@queue.command(epilog=examples("muster queue view research", "muster queue view research -o yaml"))
@_named
@output_option
@cluster_options
@runs
async def view(
    argument_name: str | None, option_name: str | None, output: str, kubeconfig: str | None, context: str | None
) -> None:
    """Show one queue with its PodGroups by phase."""
    name = _name(argument_name, option_name)
    async with connected(kubeconfig, context) as client:
        if output in DOCUMENTS:
            document(await _raw(client, name), output)
            return
        found = await client.get(kinds.QUEUES, name)
    _show([found], output, created=True)


@queue.command(epilog=examples("muster queue close research"))
@_named
@cluster_options
@runs
async def close(
    argument_name: str | None, option_name: str | None, kubeconfig: str | None, context: str | None
) -> None:
    """Close a queue: it admits no new workloads, those in it continue."""
    name = _name(argument_name, option_name)
    await _desire(name, "Closed", kubeconfig, context)
    click.echo(f"queue {name} is closing: it admits no new workloads, those in it continue")


@queue.command("open", epilog=examples("muster queue open research"))
@_named
@cluster_options
@runs
async def open_(
    argument_name: str | None, option_name: str | None, kubeconfig: str | None, context: str | None
) -> None:
    """Open a queue: it admits workloads again."""
    name = _name(argument_name, option_name)
    await _desire(name, "Open", kubeconfig, context)
    click.echo(f"queue {name} is open")


@queue.command(epilog=examples("muster queue delete research"))
@_named
@cluster_options
@runs
async def delete(
    argument_name: str | None, option_name: str | None, kubeconfig: str | None, context: str | None
) -> None:
    """Delete a queue and all PodGroups and Jobs in it."""
    name = _name(argument_name, option_name)
    async with connected(kubeconfig, context) as client:
        await client.delete(kinds.QUEUES, name)
    click.echo(f"queue {name} is being deleted, with its PodGroups and Jobs")


async def _desire(name: str, state: str, kubeconfig: str | None, context: str | None) -> None:
    async with connected(kubeconfig, context) as client:
        await client.patch(kinds.QUEUES, name, {"spec": {"desiredState": state}})


def _amounts(pairs: tuple[str, ...]) -> dict[str, str]:
    split = dict(pair.partition("=")[::2] for pair in pairs)
    try:
        return Resources.parse(split).quantities()
    except QuantityError as error:
        raise click.BadParameter(str(error), param_hint="--capability") from error


async def _raw(client: Client, name: str) -> Any:
    """Read a queue, or the list of all, as the server has it: our structs hold only the fields that we use."""
    return msgspec.json.decode((await client.send(Request("GET", kinds.QUEUES.path(name=name)))).body)


def _show(queues: list[Queue], output: str, *, created: bool = False) -> None:
    if output == "name":
        for each in queues:
            click.echo(f"queue.{names.VOLCANO_GROUP}/{each.name}")
    else:
        _print_table(queues, wide=output == "wide", created=created)


def _print_table(queues: list[Queue], *, wide: bool, created: bool) -> None:
    now = SystemClock().now()
    shown = (*_COUNTS, *_MORE_COUNTS) if wide else _COUNTS
    columns = ["Name", "Weight", "Total", *(count.capitalize() for count in shown), "State"]
    rows: list[list[object]] = []
    for each in queues:
        counts = [getattr(each.status, count) for count in shown]
        state = each.status.state or "Open"
        row: list[object] = [each.name, each.spec.weight, each.status.total, *counts, state]
        if created:
            row.append(moment(each.metadata.creation_timestamp))
        if wide:
            row += [each.spec.parent or names.ROOT_QUEUE, age(each.metadata.creation_timestamp, now)]
        rows.append(row)
    columns += [*(["Created"] if created else []), *(["Parent", "Age"] if wide else [])]
    table(columns, rows)
