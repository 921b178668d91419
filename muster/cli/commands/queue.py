"""``muster queue``, and ``vcctl queue``: create, view, list, close, open, delete."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click

from muster.cli import completion, visible
from muster.cli.commands.quota import podgroups
from muster.cli.connect import connected, runs, served
from muster.cli.flags import ClusterGroup
from muster.cli.listing import Column, ObjectPrinter, Selection, listing_options, one_option, viewed
from muster.cli.options import cluster_options, done, dry_run_option, examples
from muster.cli.output import DOCUMENTS, age, document, table
from muster.kube import errors
from muster.kube.transport import Request
from muster.model import kinds, names
from muster.model.amounts import QuantityError, Resources
from muster.model.objects import PodGroup
from muster.visibility.paths import ROOT

_AMOUNTS = ("capability", "deserved", "guarantee")


@click.group(cls=ClusterGroup)
def queue() -> None:
    """Create, change, list, view, close, open and delete queues."""


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

    @functools.wraps(command)
    def named(*, argument_name: str | None, option_name: str | None, **options: Any) -> Any:
        return command(name=_name(argument_name, option_name), **options)

    return argument(option(named))


def _name(argument_name: str | None, option_name: str | None) -> str:
    if argument_name and option_name and argument_name != option_name:
        raise click.UsageError(f"two names given, {argument_name} and {option_name}; give one")
    name = argument_name or option_name
    if not name:
        raise click.UsageError("missing the name of the queue")
    return name


def _spec_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the fields of a queue's spec that are set from the command line."""
    amounts = "%s of a resource, e.g. cpu=64; repeatable."
    options = (
        click.option("--weight", "-w", type=click.IntRange(1, 65535), help="Share relative to other queues."),
        click.option("--capability", multiple=True, metavar="RESOURCE=AMOUNT", help=amounts % "Hard limit"),
        click.option("--deserved", multiple=True, metavar="RESOURCE=AMOUNT", help=amounts % "Deserved amount"),
        click.option("--guarantee", multiple=True, metavar="RESOURCE=AMOUNT", help=amounts % "Guaranteed amount"),
        click.option("--priority", type=int, help="Queues of higher priority come first."),
        click.option("--reclaimable/--no-reclaimable", default=None, help="Whether others may reclaim what it uses."),
        click.option("--parent", metavar="QUEUE", help="Parent queue.", shell_complete=completion.queues),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _spec(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the spec that were stated."""
    spec = {key: options[key] for key in ("weight", "priority", "reclaimable", "parent") if options[key] is not None}
    for key in ("capability", "deserved"):
        if options[key]:
            spec[key] = _amounts(key, options[key])
    if options["guarantee"]:
        spec["guarantee"] = {"resource": _amounts("guarantee", options["guarantee"])}
    return spec


@queue.command(
    epilog=examples(
        "muster queue create --name research --weight 10",
        "muster queue create night --capability cpu=64 --capability memory=256Gi --parent research",
    )
)
@_named
@_spec_options
@dry_run_option
@cluster_options
@runs
async def create(name: str, *, kubeconfig: str | None, context: str | None, dry_run: bool, **options: Any) -> None:
    """Create a queue. Its weight is 1 if nothing is said."""
    spec = {"weight": 1} | _spec(options)
    if empty := [f"{field} {pair}" for field in _AMOUNTS for pair in options[field] if pair.endswith("=")]:
        raise click.BadParameter(f"{', '.join(empty)} has no amount")
    manifest = {"metadata": {"name": name}, "spec": spec}
    async with connected(kubeconfig, context) as client:
        await client.create(kinds.QUEUES, manifest, dry_run=dry_run)
    done(f"queue {name} created", dry_run=dry_run)


@queue.command("set", epilog=examples("muster queue set research --weight 4 --capability cpu=64"))
@_named
@_spec_options
@dry_run_option
@cluster_options
@runs
async def set_(name: str, *, kubeconfig: str | None, context: str | None, dry_run: bool, **options: Any) -> None:
    """Change a queue's weight, amounts, priority or parent; what isn't named stays. An empty amount removes one: cpu=."""
    spec = _spec(options)
    if not spec:
        raise click.UsageError(
            "nothing to set: name at least one of --weight, --capability, --deserved, --guarantee, --priority, --reclaimable, --parent"
        )
    async with connected(kubeconfig, context) as client:
        await client.patch(kinds.QUEUES, name, {"spec": spec}, dry_run=dry_run)
    done(f"queue {name} changed", dry_run=dry_run)


@queue.command("list", epilog=examples("muster queue list", "muster queue list -l team=vision --sort-by .spec.weight"))
@listing_options
@cluster_options
@runs
async def list_(selection: Selection, kubeconfig: str | None, context: str | None) -> None:
    """List all queues with their PodGroups by phase."""
    try:
        async with connected(kubeconfig, context) as client:
            await ObjectPrinter(client, await served(client, (kinds.QUEUES,)), _COLUMNS, selection).show()
    except errors.ForbiddenError as denied:
        await _list_visible(selection, kubeconfig, context, denied)


async def _list_visible(
    selection: Selection, kubeconfig: str | None, context: str | None, denied: errors.ForbiddenError
) -> None:
    """Print what the visibility API tells of queues: to whoever may ask there, and may not read the objects."""
    found = await visible.answer(kubeconfig, context, Request("GET", f"{ROOT}/queues"), denied)
    if found is None:
        raise denied
    visible.tell_partial()
    told = [each["status"] for each in found["items"]]
    if selection.output in DOCUMENTS:
        document(told, selection.output)
        return
    rows = [
        (each["queue"], each["weight"], each["state"], each["waiting"], visible.amounts(each.get("allocated", {})))
        for each in told
    ]
    table(("name", "weight", "state", "waiting", "allocated"), rows)


@queue.command(epilog=examples("muster queue view research", "muster queue view research -o yaml"))
@_named
@one_option
@cluster_options
@runs
async def view(name: str, selection: Selection, kubeconfig: str | None, context: str | None) -> None:
    """Show one queue with its PodGroups by phase."""
    async with connected(kubeconfig, context) as client:
        await ObjectPrinter(client, await served(client, (kinds.QUEUES,)), viewed(_COLUMNS), selection).show_one(
            kinds.QUEUES, name
        )


@queue.command(epilog=examples("muster queue close research"))
@_named
@dry_run_option
@cluster_options
@runs
async def close(name: str, kubeconfig: str | None, context: str | None, *, dry_run: bool) -> None:
    """Close a queue: it admits no new workloads, those in it continue."""
    await _desire(name, "Closed", kubeconfig, context, dry_run=dry_run)
    done(f"queue {name} is closing: it admits no new workloads, those in it continue", dry_run=dry_run)


@queue.command("open", epilog=examples("muster queue open research"))
@_named
@dry_run_option
@cluster_options
@runs
async def open_(name: str, kubeconfig: str | None, context: str | None, *, dry_run: bool) -> None:
    """Open a queue: it admits workloads again."""
    await _desire(name, "Open", kubeconfig, context, dry_run=dry_run)
    done(f"queue {name} is open", dry_run=dry_run)


@queue.command(epilog=examples("muster queue delete research", "muster queue delete research --yes"))
@_named
@click.option("--yes", "-y", is_flag=True, help="Don't ask, though PodGroups and Jobs are deleted with the queue.")
@dry_run_option
@cluster_options
@runs
async def delete(name: str, kubeconfig: str | None, context: str | None, *, yes: bool, dry_run: bool) -> None:
    """Delete a queue and all PodGroups and Jobs in it; asks where there are some."""
    async with connected(kubeconfig, context) as client:
        await client.get(kinds.QUEUES, name)
        inside = _inside(await podgroups(client, ""), name)
        if inside and not (yes or dry_run):
            _ask(f"queue {name} has {inside}; these and their Jobs and pods are deleted with it")
        await client.delete(kinds.QUEUES, name, dry_run=dry_run)
    done(f"queue {name} is being deleted" + (f", with {inside} and their Jobs" if inside else ""), dry_run=dry_run)


def _inside(groups: Mapping[str, Iterable[PodGroup]], name: str) -> str:
    """Count a queue's PodGroups in words; empty where there are none."""
    found = [each for some in groups.values() for each in some if (each.spec.queue or names.DEFAULT_QUEUE) == name]
    running = sum(each.status.phase == "Running" for each in found)
    if not found:
        return ""
    return (
        f"{len(found)} PodGroup"
        + ("s" if len(found) != 1 else "")
        + (f", {running} of them running" if running else "")
    )


def _ask(text: str) -> None:
    """Have a person confirm.

    Raises:
        ClickException: nobody can be asked, or the answer is no.
    """
    if not sys.stdin.isatty():
        raise click.ClickException(f"{text}: nothing was deleted; to delete them, say --yes")
    if not click.confirm(f"{text}. Delete?", err=True):
        raise click.ClickException("nothing was deleted")


# ── as vcctl has them ────────────────────────────────────────────────────────────────────────────────────────────


_get = copy.copy(view)
_get.hidden, _get.epilog = True, examples("muster queue get --name research")
queue.add_command(_get, "get")


@queue.command(hidden=True, epilog=examples("muster queue operate --name research --action close"))
@_named
@click.option("--action", "-a", required=True, type=click.Choice(["open", "close", "update"]), help="What to do.")
@click.option("--weight", "-w", type=click.IntRange(1, 65535), help="With update: share relative to other queues.")
@cluster_options
@runs
async def operate(name: str, action: str, weight: int | None, kubeconfig: str | None, context: str | None) -> None:
    """Open, close or update a queue."""
    if (action == "update") is not (weight is not None):
        raise click.UsageError("--weight goes with --action update, and only with that")
    if weight is None:
        await _desire(name, "Open" if action == "open" else "Closed", kubeconfig, context, dry_run=False)
    else:
        async with connected(kubeconfig, context) as client:
            await client.patch(kinds.QUEUES, name, {"spec": {"weight": weight}})
    click.echo(f"queue {name}: {action} done")


async def _desire(name: str, state: str, kubeconfig: str | None, context: str | None, *, dry_run: bool) -> None:
    async with connected(kubeconfig, context) as client:
        await client.patch(kinds.QUEUES, name, {"spec": {"desiredState": state}}, dry_run=dry_run)


def _amounts(field: str, pairs: tuple[str, ...]) -> dict[str, str | None]:
    split = dict(pair.partition("=")[::2] for pair in pairs)
    try:
        amounts = Resources.parse({name: text for name, text in split.items() if text}).quantities()
    except QuantityError as error:
        raise click.BadParameter(str(error), param_hint=f"--{field}") from error
    # Nothing behind the sign takes an amount away.
    return amounts | {name: None for name, text in split.items() if not text}


def _count(phase: str, *, wide: bool = False) -> Column:
    return Column(phase, lambda each, _: getattr(each.status, phase), wide)


_COLUMNS: Final = (
    Column("name", lambda each, _: each.name),
    Column("weight", lambda each, _: each.spec.weight),
    Column("total", lambda each, _: each.status.total),
    *map(_count, ("pending", "running", "inqueue", "completed", "failed")),
    *(_count(phase, wide=True) for phase in ("aborted", "unknown")),
    Column("state", lambda each, _: each.status.state or "Open"),
    Column("parent", lambda each, _: each.spec.parent or names.ROOT_QUEUE, wide=True),
    Column("age", lambda each, now: age(each.metadata.creation_timestamp, now)),
)
