"""``muster podgroup``: list, view, and why one waits."""

from __future__ import annotations

import asyncio
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from muster.cli import completion
from muster.cli.commands.quota import podgroups
from muster.cli.connect import connected, done, explaining, reading, runs, uncollected
from muster.cli.options import cluster_options, examples, namespace_option, prepared, question_options, state_of
from muster.cli.output import DOCUMENTS, UNBROKEN, WIDTH, age, document, output_option, table
from muster.kube.clock import SystemClock
from muster.kube.transport import Request
from muster.model import grouping, kinds, names
from muster.whatif.cluster_view import PODGROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muster.kube.client import Client
    from muster.model.kinds import Kind
    from muster.model.objects import PodGroup
    from muster.whatif.cluster_view import State
    from scheduler.engine.policy import Policy

_SHOWN: Final = 5  # names of groups when one isn't found


@click.group()
def podgroup() -> None:
    """List PodGroups, look at one, and ask why it waits."""


@podgroup.command(
    "list", epilog=examples("muster podgroup list --all-namespaces", "muster podgroup list -n team-a -o wide")
)
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
        found = await _groups(client, where)
        if output in DOCUMENTS:
            document(await _list(client, where, {kind for kind, _ in found}), output)
            return
    _show(sorted(found, key=lambda each: (each[1].namespace, each[1].name)), output, named=everywhere)


@podgroup.command(epilog=examples("muster podgroup view train -n team-a"))
@click.argument("name", shell_complete=completion.podgroups)
@namespace_option
@output_option
@cluster_options
@runs
async def view(name: str, namespace: str | None, output: str, kubeconfig: str | None, context: str | None) -> None:
    """Show one PodGroup."""
    async with connected(kubeconfig, context) as client:
        where = _namespace(namespace, kubeconfig, context)
        kind, group = await _group(client, name, where)
        if output in DOCUMENTS:
            answer = await client.send(Request("GET", kind.path(where, name)))
            document(msgspec.json.decode(answer.body), output)
            return
        _show([(kind, group)], output, named=False)


@podgroup.command(
    epilog=examples("muster podgroup why train -n team-a", "muster podgroup why train --state state.yaml")
)
@click.argument("name", shell_complete=completion.podgroups)
@question_options
@uncollected()
@explaining(1)
def why(
    name: str,
    namespace: str | None,
    state_file: str | None,
    configuration: Path | None,
    schedulers: tuple[str, ...],
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Say why a PodGroup waits, and what would let it start. NAME is the group's, or that of the workload it was made for.

    Where it stands, what limits it and by how much, who is ahead, what it needs, the nearest fit. What would change that
    is tried: each answer let the group start when the scheduler was asked about a cluster that has it.
    """
    where = namespace or ("default" if state_file else _namespace(None, kubeconfig, context))
    state, policy = reading(_read(state_file, configuration, kubeconfig, context))
    from muster.whatif import why as reasons
    from muster.whatif.cluster import WhatIfCluster

    key = reasons.find(state, where, name)
    if key is None:
        raise click.ClickException(_unknown(state, where, name))
    answer = reasons.ask(WhatIfCluster(state, policy, schedulers), key)
    if output in DOCUMENTS:
        document(answer.data(), output)
    else:
        for line in reasons.lines(answer, UNBROKEN if output == "wide" else WIDTH, state.taken):
            click.echo(line)
    done()


async def _read(
    state_file: str | None, configuration: Path | None, kubeconfig: str | None, context: str | None
) -> tuple[State, Policy]:
    # While the API server writes its answer there is time to import the scheduler.
    return await asyncio.gather(
        state_of(state_file, kubeconfig, context), asyncio.to_thread(prepared, configuration, "muster.whatif.why")
    )


def _unknown(state: State, namespace: str, name: str) -> str:
    naming = sum(grouping.group_of(each.metadata) == name for each in state.of(kinds.PODS, namespace))
    if naming:
        waits = "1 pod names it and waits" if naming == 1 else f"{naming} pods name it and wait"
        return f'no PodGroup "{name}" in namespace {namespace}; {waits}: create it'
    known = [each.name for kind in PODGROUPS for each in state.of(kind, namespace)]
    if not known:
        elsewhere = sorted({each.namespace for kind in PODGROUPS for each in state.of(kind) if each.name == name})
        there = f": there is one in {', '.join(elsewhere)}; name it with -n" if elsewhere else ""
        return f'no PodGroup "{name}" in namespace {namespace}, which has none{there}'
    near = difflib.get_close_matches(name, known, _SHOWN) or sorted(known)[:_SHOWN]
    return f'no PodGroup "{name}" in namespace {namespace}; there is {", ".join(near)}'


async def _groups(client: Client, namespace: str) -> list[tuple[Kind[PodGroup], PodGroup]]:
    found = await podgroups(client, namespace)
    return [(kind, group) for kind in PODGROUPS for group in found.get(kind.group, ())]


async def _list(client: Client, namespace: str, others: Iterable[Kind[PodGroup]]) -> dict[str, Any]:
    """Read the groups as JSON; those of kube-batch's kinds, where there are some, behind the others."""
    answer = await client.send(Request("GET", kinds.PODGROUPS.path(namespace)))
    whole: dict[str, Any] = msgspec.json.decode(answer.body)
    for kind in kinds.LEGACY_PODGROUPS:
        if kind in others:
            more = msgspec.json.decode((await client.send(Request("GET", kind.path(namespace)))).body)
            whole["items"] += more["items"]
    return whole


async def _group(client: Client, name: str, namespace: str) -> tuple[Kind[PodGroup], PodGroup]:
    for kind in PODGROUPS:
        found = await client.find(kind, name, namespace)
        if found is not None:
            return kind, found
    # Of none at all, the server's answer about the primary kind says so.
    return kinds.PODGROUPS, await client.get(kinds.PODGROUPS, name, namespace)


def _namespace(given: str | None, kubeconfig: str | None, context: str | None) -> str:
    from muster.kube import auth

    return given or auth.namespace(kubeconfig, context)


def _show(found: Iterable[tuple[Kind[PodGroup], PodGroup]], output: str, *, named: bool) -> None:
    now = SystemClock().now()
    if output == "name":
        for kind, group in found:
            click.echo(f"podgroup.{kind.group}/{group.name}")
        return
    groups = [group for _, group in found]
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
        columns += ["made for", "waits for"]
        for row, group in zip(rows, groups, strict=True):
            owner = next(iter(group.metadata.owner_references or ()), None)
            row.append(f"{owner.kind} {owner.name}" if owner is not None else "-")
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
