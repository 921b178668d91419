"""``muster podgroup``: list, view, and why one waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from muster.cli.connect import cluster_options, connected, namespace_option, runs
from muster.cli.output import DOCUMENTS, age, document, output_option, table
from muster.cli.quota import ledger_of, podgroups
from muster.kube import errors
from muster.kube.clock import SystemClock
from muster.kube.transport import Request
from muster.model import kinds, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from muster.kube.client import Client
    from muster.model.objects import PodGroup

_KINDS: Final = (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)
_FORMATS: Final = ("text", "json", "yaml")


@click.group()
def podgroup() -> None:
    """List PodGroups, look at one, and ask why it waits."""


@podgroup.command("list", epilog="Example: muster podgroup list --all-namespaces")
@namespace_option
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of every namespace.")
@output_option
@cluster_options
@runs
async def list_(
    namespace: str | None, output: str, kubeconfig: str | None, context: str | None, *, everywhere: bool
) -> None:
    """List PodGroups with their phases."""
    async with connected(kubeconfig, context) as client:
        where = "" if everywhere else _namespace(namespace, kubeconfig, context)
        if output in DOCUMENTS:
            answer = await client.send(Request("GET", kinds.PODGROUPS.path(where)))
            document(msgspec.json.decode(answer.body), output)
            return
        found = await _groups(client, where)
    _show(sorted(found, key=lambda each: (each.namespace, each.name)), output, named=everywhere)


@podgroup.command(epilog="Example: muster podgroup view train -n team-a")
@click.argument("name")
@namespace_option
@output_option
@cluster_options
@runs
async def view(name: str, namespace: str | None, output: str, kubeconfig: str | None, context: str | None) -> None:
    """Show one PodGroup."""
    async with connected(kubeconfig, context) as client:
        where = _namespace(namespace, kubeconfig, context)
        if output in DOCUMENTS:
            answer = await client.send(Request("GET", kinds.PODGROUPS.path(where, name)))
            document(msgspec.json.decode(answer.body), output)
            return
        _show([await _group(client, name, where)], output, named=False)


@podgroup.command(epilog="Example: muster podgroup why train -n team-a")
@click.argument("name")
@namespace_option
@click.option(
    "--config",
    "configuration",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The scheduler's actions and plugins, where it has others than the default.",
)
@click.option("--scheduler-name", "schedulers", multiple=True, metavar="NAME", help="Whose pods are ours; repeatable.")
@click.option("-o", "--output", type=click.Choice(_FORMATS), default="text", show_default=True, help="How to print it.")
@cluster_options
@runs
async def why(
    name: str,
    namespace: str | None,
    configuration: Path | None,
    schedulers: tuple[str, ...],
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Say why a PodGroup doesn't run: the stage, what limits it, who is ahead, the nearest fit."""
    from muster.cli.simulate import policy_of
    from muster.ledger import outsiders
    from scheduler.simulator import state

    policy = policy_of(configuration)
    async with connected(kubeconfig, context) as client:
        where = _namespace(namespace, kubeconfig, context)
        group = await _group(client, name, where)
        objects = await _cluster(client)
        promised, shown = await ledger_of(client, where)
    cluster = state.load(objects, schedulers or (names.SCHEDULER_NAME, *names.DROP_IN_SCHEDULER_NAMES))
    cluster.unreserved(where, outsiders.reasons(promised, shown))
    cluster.ledger(where, promised)
    record = state.why(cluster, policy, SystemClock().now(), where, name)
    if output != "text":
        document(
            record.data() if record is not None else {"podGroup": f"{where}/{name}", "phase": group.status.phase},
            output,
        )
        return
    for line in record.lines() if record is not None else _fine(group):
        click.echo(line)
    for line in _told(group) if record is not None else ():
        click.echo(line)


def _fine(group: PodGroup) -> Iterable[str]:
    phase = group.status.phase or "Pending"
    running, total = group.status.running, group.spec.min_member
    yield f"PodGroup {group.namespace}/{group.name} doesn't wait: it is {phase}, with {running} running of a minimum of {total}"


def _told(group: PodGroup) -> Iterable[str]:
    """Give what the worker wrote, where it says something."""
    for condition in group.status.conditions or ():
        if condition.status == "True" and condition.type == "Unschedulable":
            since = age(condition.last_transition_time, SystemClock().now())
            yield f"the scheduler wrote {since} ago: {condition.reason}: {condition.message}"


async def _cluster(client: Client) -> list[Mapping[str, Any]]:
    """Read what scheduling looks at; kinds that this cluster doesn't have are left out."""
    from scheduler.simulator import state

    found = await asyncio.gather(*(_raw(client, kind) for kind in state.READ))
    return [each for items in found for each in items]


async def _raw(client: Client, kind: kinds.Kind[Any]) -> list[Mapping[str, Any]]:
    try:
        answer = await client.send(Request("GET", kind.path(), {"resourceVersion": "0"}))
    except errors.NotFoundError:
        return []
    listed = msgspec.json.decode(answer.body)
    about = {"apiVersion": kind.api_version, "kind": kind.name}
    return [about | item for item in listed["items"]]


async def _groups(client: Client, namespace: str) -> list[PodGroup]:
    return [group for each in (await podgroups(client, namespace)).values() for group in each]


async def _group(client: Client, name: str, namespace: str) -> PodGroup:
    for kind in kinds.LEGACY_PODGROUPS:
        found = await client.find(kind, name, namespace)
        if found is not None:
            return found
    return await client.get(kinds.PODGROUPS, name, namespace)


def _namespace(given: str | None, kubeconfig: str | None, context: str | None) -> str:
    from muster.kube import auth

    return given or auth.namespace(kubeconfig, context)


def _show(groups: Iterable[PodGroup], output: str, *, named: bool) -> None:
    now = SystemClock().now()
    if output == "name":
        for group in groups:
            click.echo(f"podgroup.{kinds.PODGROUPS.group}/{group.name}")
        return
    columns = [*(["namespace"] if named else []), "name", "status", "minmember", "running", "queue", "age"]
    rows = [
        [
            *([group.namespace] if named else []),
            group.name,
            group.status.phase or "Pending",
            group.spec.min_member,
            group.status.running,
            group.spec.queue or names.DEFAULT_QUEUE,
            age(group.metadata.creation_timestamp, now),
        ]
        for group in groups
    ]
    if output == "wide":
        columns.append("waits for")
        for row, group in zip(rows, groups, strict=True):
            row.append(
                next(
                    (
                        each.message
                        for each in group.status.conditions or ()
                        if each.status == "True" and each.type == "Unschedulable"
                    ),
                    "-",
                )
            )
    if rows:
        table(columns, rows)
    else:
        click.echo("no PodGroups found")
