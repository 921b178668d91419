"""``muster podgroup``: list, view, and why one waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from muster.cli import completion, starts, visible
from muster.cli.commands.job import resume_job, suspend_job
from muster.cli.commands.why import why
from muster.cli.connect import connected, namespace_of, runs, served
from muster.cli.flags import ClusterGroup
from muster.cli.listing import Column, ObjectPrinter, Selection, listing_options, one_option, viewed
from muster.cli.options import cluster_options, done, dry_run_option, examples, namespace_option
from muster.cli.output import age
from muster.kube import errors
from muster.model import grouping, kinds, names
from muster.whatif.cluster_view import PODGROUPS

if TYPE_CHECKING:
    from muster.kube.client import Client
    from muster.model.kinds import Kind
    from muster.model.objects import Job, PodGroup


@click.group(cls=ClusterGroup)
def podgroup() -> None:
    """List, view, suspend and move PodGroups, and explain why one waits."""


podgroup.add_command(why)


@podgroup.command(
    "list", epilog=examples("muster podgroup list --all-namespaces", "muster podgroup list -n team-a -o wide")
)
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="List the PodGroups of all namespaces.")
@starts.option
@listing_options
@cluster_options
@runs
async def list_(
    namespace: str | None,
    selection: Selection,
    kubeconfig: str | None,
    context: str | None,
    *,
    everywhere: bool,
    start: bool,
) -> None:
    """List PodGroups with their phases."""
    async with connected(kubeconfig, context) as client:
        where = "" if everywhere else namespace_of(namespace, kubeconfig, context)
        columns: tuple[Column, ...] = _COLUMNS
        if start:
            try:
                column = await _start_column(client)
            except errors.ForbiddenError as denied:
                if not where:
                    raise
                column = await _visible_column(kubeconfig, context, where, denied)
            columns = (*_COLUMNS[:-1], column, _COLUMNS[-1])
        await ObjectPrinter(client, await served(client, PODGROUPS), columns, selection, where).show()


async def _start_column(client: Client) -> Column:
    """Play the cluster's future, and return the column of when each PodGroup starts."""
    found, taken = await starts.of_cluster(client)
    times = {(key.namespace, key.name): each.brief(taken) for key, each in found.items()}
    return Column("start", lambda each, _: times.get((each.namespace, each.name), "-"))


async def _visible_column(
    kubeconfig: str | None, context: str | None, namespace: str, denied: errors.ForbiddenError
) -> Column:
    """Return the column as the visibility API tells it to a tenant."""
    found = await visible.starts(kubeconfig, context, namespace, denied)
    click.echo(f"note: expected starts are the visibility API's, as of {found.age} s ago", err=True)
    times = {name: one.brief(found.taken) for name in found.groups if (one := found.forecast(name)) is not None}
    return Column("start", lambda each, _: times.get(each.name, "-"))


@podgroup.command(epilog=examples("muster podgroup view train -n team-a"))
@click.argument("name", shell_complete=completion.podgroups)
@namespace_option
@one_option
@cluster_options
@runs
async def view(
    name: str, namespace: str | None, selection: Selection, kubeconfig: str | None, context: str | None
) -> None:
    """Show one PodGroup."""
    async with connected(kubeconfig, context) as client:
        where = namespace_of(namespace, kubeconfig, context)
        kind, group = await _group(client, name, where)
        await ObjectPrinter(client, (kind,), viewed(_COLUMNS), selection, where).show_one(kind, group.name)


@podgroup.command(epilog=examples("muster podgroup suspend train -n team-a"))
@click.argument("name", shell_complete=completion.podgroups)
@namespace_option
@dry_run_option
@cluster_options
@runs
async def suspend(
    name: str, namespace: str | None, kubeconfig: str | None, context: str | None, *, dry_run: bool
) -> None:
    """Suspend the Jobs of a PodGroup: their pods end, and the group gives its reservation back."""
    where = namespace_of(namespace, kubeconfig, context)
    async with connected(kubeconfig, context) as client:
        for each in await _jobs(client, name, where):
            await suspend_job(client, each, dry_run=dry_run)
            done(f"job {each.name} is suspended", dry_run=dry_run)


@podgroup.command(epilog=examples("muster podgroup resume train -n team-a"))
@click.argument("name", shell_complete=completion.podgroups)
@namespace_option
@dry_run_option
@cluster_options
@runs
async def resume(
    name: str, namespace: str | None, kubeconfig: str | None, context: str | None, *, dry_run: bool
) -> None:
    """Resume the Jobs of a PodGroup that their user suspended; they start when the group is admitted."""
    where = namespace_of(namespace, kubeconfig, context)
    async with connected(kubeconfig, context) as client:
        for each in await _jobs(client, name, where):
            done(await resume_job(client, each, dry_run=dry_run), dry_run=dry_run)


@podgroup.command(epilog=examples("muster podgroup move train --to research -n team-a"))
@click.argument("name", shell_complete=completion.podgroups)
@click.option(
    "--to",
    "--queue",
    "queue",
    required=True,
    metavar="QUEUE",
    help="Queue to move to.",
    shell_complete=completion.queues,
)
@namespace_option
@dry_run_option
@cluster_options
@runs
async def move(
    name: str, queue: str, namespace: str | None, kubeconfig: str | None, context: str | None, *, dry_run: bool
) -> None:
    """Move a PodGroup to another queue, and the Jobs that it was made for. What runs goes on."""
    where = namespace_of(namespace, kubeconfig, context)
    async with connected(kubeconfig, context) as client:
        kind, group = await _group(client, name, where)
        owners = {each.uid for each in group.metadata.owner_references or ()}
        # The queue is judged with the group first: a Job of another queue than its group's would be a lie.
        await client.patch(kind, group.name, {"spec": {"queue": queue}}, where, dry_run=dry_run)
        for each in await _jobs(client, name, where, needed=False):
            if each.metadata.uid in owners:
                noted = {"metadata": {"annotations": {names.QUEUE_NAME_KEYS[0]: queue}}}
                await client.patch(kinds.JOBS, each.name, noted, where, dry_run=dry_run)
    done(f"podgroup {name} is in queue {queue}", dry_run=dry_run)


async def _jobs(client: Client, name: str, namespace: str, *, needed: bool = True) -> list[Job]:
    """Read the Jobs of a group.

    Raises:
        ClickException: there is none, and it is ``needed``.
    """
    _, group = await _group(client, name, namespace)
    found = [
        each
        for each in (await client.list(kinds.JOBS, namespace)).items
        if grouping.group_of_job(each.metadata, each.spec.template.metadata) == group.name
    ]
    if needed and not found:
        text = f"podgroup {name} has no Job: only Jobs can be suspended; scale other workloads to 0 instead"
        raise click.ClickException(text)
    return found


async def _group(client: Client, name: str, namespace: str) -> tuple[Kind[PodGroup], PodGroup]:
    """Find a group by its name, or as every message calls a generated one: by its workload, ``job/train``."""
    for kind in await served(client, PODGROUPS):
        if "/" in name:
            groups = (await client.list(kind, namespace)).items
            found = next((each for each in groups if _owner(each) == name.lower()), None)
        else:
            found = await client.find(kind, name, namespace)
        if found is not None:
            return kind, found
    if "/" in name:
        raise click.ClickException(f"{name} has no PodGroup in namespace {namespace}")
    # Of none at all, the server's answer about the primary kind says so.
    return kinds.PODGROUPS, await client.get(kinds.PODGROUPS, name, namespace)


def _owner(group: PodGroup) -> str:
    return grouping.owner_of(group.metadata).replace(" ", "/", 1).lower()


def _waits_for(group: PodGroup) -> str:
    shown = (each for each in group.status.conditions or () if each.status == "True" and each.type == "Unschedulable")
    return next((each.message for each in shown), "-")


_COLUMNS: Final = (
    Column("name", lambda each, _: each.name),
    Column("status", lambda each, _: each.status.phase or "Pending"),
    Column("minmember", lambda each, _: each.spec.min_member),
    Column("running", lambda each, _: each.status.running),
    Column("queue", lambda each, _: each.spec.queue or names.DEFAULT_QUEUE),
    Column("owner", lambda each, _: grouping.owner_of(each.metadata) or "-"),
    Column("waits for", lambda each, _: _waits_for(each), wide=True),
    Column("age", lambda each, now: age(each.metadata.creation_timestamp, now)),
)
