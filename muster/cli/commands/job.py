"""``muster job``, and ``vcctl job``: Jobs of Kubernetes that Muster starts: list, view, suspend, resume."""

from __future__ import annotations

from typing import Any, Final

import click

from muster.cli.connect import connected, namespace_of, runs
from muster.cli.flags import ClusterGroup
from muster.cli.listing import Column, ObjectPrinter, Selection, listing_options, one_option, viewed
from muster.cli.options import cluster_options, done, dry_run_option, examples, namespace_option
from muster.cli.output import age
from muster.kube.client import Client
from muster.model import grouping, kinds, names
from muster.model.objects import Job

_ENDS: Final = frozenset({"Complete", "Failed"})


@click.group(cls=ClusterGroup)
def job() -> None:
    """List, view, suspend and resume Jobs."""


def _named(command: Any) -> Any:
    """Take the Job's name as an argument or, as vcctl does, as ``--name``."""
    argument = click.argument("argument_name", metavar="NAME", required=False)
    option = click.option(
        "--name", "-N", "option_name", metavar="NAME", help="Name of the Job; the same as the argument."
    )
    return argument(option(command))


def _name(argument_name: str | None, option_name: str | None) -> str:
    if not (name := argument_name or option_name) or (argument_name and option_name and argument_name != option_name):
        raise click.UsageError("name one Job, as an argument or with --name")
    return name


@job.command("list", epilog=examples("muster job list -n team-a", "muster job list --all-namespaces"))
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="List the Jobs of all namespaces.")
@listing_options
@cluster_options
@runs
async def list_(
    namespace: str | None, selection: Selection, kubeconfig: str | None, context: str | None, *, everywhere: bool
) -> None:
    """List Jobs with what they wait for: held by Muster, suspended by their user, or running."""
    where = "" if everywhere else namespace_of(namespace, kubeconfig, context)
    async with connected(kubeconfig, context) as client:
        await ObjectPrinter(client, (kinds.JOBS,), _COLUMNS, selection, where).show()


@job.command(epilog=examples("muster job view train -n team-a"))
@_named
@namespace_option
@one_option
@cluster_options
@runs
async def view(
    argument_name: str | None,
    option_name: str | None,
    namespace: str | None,
    selection: Selection,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Show one Job."""
    name, where = _name(argument_name, option_name), namespace_of(namespace, kubeconfig, context)
    async with connected(kubeconfig, context) as client:
        await ObjectPrinter(client, (kinds.JOBS,), viewed(_COLUMNS), selection, where).show_one(kinds.JOBS, name)


@job.command(epilog=examples("muster job suspend train -n team-a"))
@_named
@namespace_option
@dry_run_option
@cluster_options
@runs
async def suspend(
    argument_name: str | None,
    option_name: str | None,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    *,
    dry_run: bool,
) -> None:
    """Suspend a Job: its pods end, and it gives its reservation back until it is resumed."""
    name, where = _name(argument_name, option_name), namespace_of(namespace, kubeconfig, context)
    async with connected(kubeconfig, context) as client:
        await suspend_job(client, await client.get(kinds.JOBS, name, where), dry_run=dry_run)
    done(f"job {name} is suspended: its pods end, and it waits until `muster job resume {name}`", dry_run=dry_run)


@job.command(epilog=examples("muster job resume train -n team-a"))
@_named
@namespace_option
@dry_run_option
@cluster_options
@runs
async def resume(
    argument_name: str | None,
    option_name: str | None,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    *,
    dry_run: bool,
) -> None:
    """Resume a Job that its user suspended. Muster holds it until its PodGroup is admitted."""
    name, where = _name(argument_name, option_name), namespace_of(namespace, kubeconfig, context)
    async with connected(kubeconfig, context) as client:
        text = await resume_job(client, await client.get(kinds.JOBS, name, where), dry_run=dry_run)
    done(text, dry_run=dry_run)


def status(job: Job) -> str:
    """Say in a word how a Job stands: Complete, Failed, Held (by Muster), Suspended (by its user), Running or Pending."""
    ended = next(
        (each.type for each in job.status.conditions or () if each.type in _ENDS and each.status == "True"), ""
    )
    if ended:
        return ended
    if job.spec.suspend:
        return "Held" if job.metadata.annotation(names.SUSPENDED) else "Suspended"
    return "Running" if job.status.active else "Pending"


async def suspend_job(client: Client, job: Job, *, dry_run: bool) -> None:
    """Suspend a Job as its user; one that Muster holds is the user's then.

    Raises:
        ConflictError: it was changed meanwhile.
    """
    meta = {"resourceVersion": job.metadata.resource_version, "annotations": {names.SUSPENDED: None}}
    change = {"metadata": meta, "spec": {"suspend": True}}
    await client.patch(kinds.JOBS, job.name, change, job.namespace, dry_run=dry_run)


async def resume_job(client: Client, job: Job, *, dry_run: bool) -> str:
    """Resume a Job that its user suspended; return what there is to say.

    Raises:
        ConflictError: it was changed meanwhile.
    """
    if job.spec.suspend and job.metadata.annotation(names.SUSPENDED):
        return f"job {job.name} isn't suspended by its user: Muster holds it until it is admitted; `muster why job/{job.name}` says why"
    meta = {"resourceVersion": job.metadata.resource_version}
    await client.patch(
        kinds.JOBS, job.name, {"metadata": meta, "spec": {"suspend": False}}, job.namespace, dry_run=dry_run
    )
    return f"job {job.name} is resumed: it starts when it is admitted"


_COLUMNS: Final = (
    Column("name", lambda each, _: each.name),
    Column("status", lambda each, _: status(each)),
    Column(
        "completions",
        lambda each, _: (
            f"{each.status.succeeded}/{each.spec.completions if each.spec.completions is not None else '?'}"
        ),
    ),
    Column("queue", lambda each, _: grouping.queue_name(each.metadata, each.spec.template.metadata)),
    Column("podgroup", lambda each, _: grouping.group_of_job(each.metadata, each.spec.template.metadata) or "-"),
    Column("age", lambda each, now: age(each.metadata.creation_timestamp, now)),
)
