"""``muster quota view``: what a namespace's PodGroups have reserved of its ResourceQuotas, and what is left."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click
import msgspec

from muster.cli.connect import connected, namespace_of, runs, served
from muster.cli.flags import ClusterGroup
from muster.cli.options import SCHEDULERS, cluster_options, examples, namespace_option, schedulers_option
from muster.cli.output import WIDTH, age, document, hanging, table
from muster.kube import errors
from muster.kube.clock import SystemClock
from muster.ledger.report import LedgerReport, QuotaUsage, UnconfirmedReservation, report
from muster.model import grouping, kinds, names
from muster.model.amounts import NOTHING, QuantityError, Resources

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from muster.kube.client import Client
    from muster.ledger.table import Table
    from muster.ledger.view import LedgerView
    from muster.model.objects import PodGroup, ResourceClaim, ResourceQuota

_FORMATS: Final = ("table", "json", "yaml")
_MODES: Final = {
    "guaranteed": "quota is guaranteed (no pod is created while no webhook replica answers)",
    "guarded": "quota is guarded (pods are checked while a webhook replica answers)",
    "off": "pods are not checked against reservations",
}
_POLICIES: Final = {
    names.POLICY_REJECT: "a PodGroup reserves when it is created",
    names.POLICY_QUEUE: "a PodGroup reserves when it becomes Inqueue",
}


@click.group(cls=ClusterGroup)
def quota() -> None:
    """Show the reservations of a namespace's quotas."""


@quota.command(epilog=examples("muster quota view --namespace team-a", "muster quota view -o json"))
@namespace_option
@click.option("-o", "--output", type=click.Choice(_FORMATS), default="table", show_default=True, help="Output format.")
@schedulers_option()
@cluster_options
@runs
async def view(
    namespace: str | None, output: str, schedulers: tuple[str, ...], kubeconfig: str | None, context: str | None
) -> None:
    """Show each quota of a namespace: hard limit, reserved, used by other pods, free; and the PodGroups that hold it."""
    async with connected(kubeconfig, context) as client:
        found = await read(client, namespace_of(namespace, kubeconfig, context), schedulers)
    if output != "table":
        document(msgspec.to_builtins(found), output)
        return
    show(found, SystemClock().now())


async def read(client: Client, namespace: str, schedulers: Collection[str] = SCHEDULERS) -> LedgerReport:
    """Read a namespace's ledger and what it is about.

    Raises:
        NotFoundError: there is no such namespace.
        NotInstalledError: Muster isn't installed.
        KubeError: something couldn't be read.
    """
    found = await client.get(kinds.NAMESPACES, namespace)
    groups = await podgroups(client, namespace)
    quotas = (await client.list(kinds.RESOURCEQUOTAS, namespace)).items
    stored, shown = await _ledger(client, namespace, groups, quotas, schedulers)
    mode = found.metadata.label(names.QUOTA_MODE) or "off"
    policy = found.metadata.annotation(names.QUOTA_POLICY) or found.metadata.label(names.QUOTA_POLICY)
    owners = {each.name: grouping.owner_of(each.metadata) for some in groups.values() for each in some}
    counted = {each.name: _counted(each) for each in quotas}
    return report(namespace, mode, policy or names.POLICY_REJECT, stored, shown, owners, counted)


def _counted(quota: ResourceQuota) -> Resources:
    try:
        return Resources.parse(quota.status.used)
    except QuantityError:
        return NOTHING


async def _ledger(
    client: Client,
    namespace: str,
    groups: Mapping[str, Iterable[PodGroup]],
    quotas: Iterable[ResourceQuota],
    schedulers: Collection[str],
) -> tuple[Table, LedgerView]:
    """Read what a namespace has reserved, and what exists there; without a ledger the table is empty.

    Raises:
        NotFoundError: Muster isn't installed.
        KubeError: something couldn't be read.
    """
    from muster.ledger.conversion import view_of_lists
    from muster.ledger.table import Table

    ledger = await client.find(kinds.QUOTALEDGERS, names.LEDGER_NAME, namespace)
    pods = (await client.list(kinds.PODS, namespace)).items
    claims = await _claims(client, namespace)
    stored = Table.parse(ledger.data) if ledger is not None else Table()
    return stored, view_of_lists(groups, quotas, pods, schedulers, claims)


async def _claims(client: Client, namespace: str) -> Iterable[ResourceClaim]:
    """Read the claims of a namespace; before Kubernetes 1.34 there are none. Roles from before that allow no such thing."""
    try:
        return (await client.list(kinds.RESOURCECLAIMS, namespace)).items
    except errors.NotFoundError:
        return ()
    except errors.ForbiddenError:
        click.echo("note: resourceclaims may not be listed: what they use of quotas is left out", err=True)
        return ()


async def podgroups(client: Client, namespace: str) -> Mapping[str, Iterable[PodGroup]]:
    """Read the PodGroups of a namespace (of all, where it is empty), by API group.

    Raises:
        NotInstalledError: Muster isn't installed.
        KubeError: something couldn't be read.
    """
    kinds_ = await served(client, (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS))
    lists = await asyncio.gather(*(client.list(kind, namespace) for kind in kinds_))
    return {kind.group: each.items for kind, each in zip(kinds_, lists, strict=True)}


def show(found: LedgerReport, now: datetime) -> None:
    """Print a report for people."""
    if not found.quotas:
        click.echo(_nothing(found))
        return
    click.echo(f"namespace {found.namespace}: {_MODES.get(found.mode, found.mode)}")
    click.echo(f"policy {found.policy}: {_POLICIES.get(found.policy, _POLICIES[names.POLICY_REJECT])}")
    click.echo(_since(found, now))
    click.echo()
    table(
        ("quota", "resource", "hard", "reserved", "other", "free"),
        [(each.quota, _scoped(each), each.hard, each.reserved, each.other, _free(each)) for each in found.quotas],
    )
    if found.groups:
        click.echo()
        rows = [(each.owner or each.name, _amounts(each.reserved), _amounts(each.used)) for each in found.groups]
        table(("podgroup", "reserved", "used by its pods"), rows)
    if found.under_way:
        click.echo("\nReserved for objects that are being created (released after a minute without them):\n")
        table(("kind", "name", "requested"), [(each.kind, each.name, _requested(each)) for each in found.under_way])
    for waiting in found.unreserved:
        click.echo()
        for line in hanging(f"{grouping.called(waiting.name, waiting.owner)}: {waiting.reason}", WIDTH):
            click.echo(line)


def _nothing(found: LedgerReport) -> str:
    if found.seeded_at:
        return f"namespace {found.namespace} has no ResourceQuota"
    return f"namespace {found.namespace} has no quota ledger: nothing has requested quota yet"


def _since(found: LedgerReport, now: datetime) -> str:
    if not found.seeded_at:
        return "the ledger is being created; until then nothing is admitted"
    return f"ledger created {age(msgspec.convert(found.seeded_at, type=datetime), now)} ago"


def _scoped(standing: QuotaUsage) -> str:
    return f"{standing.resource} ({standing.scope})" if standing.scope else standing.resource


def _free(standing: QuotaUsage) -> str:
    return f"none, {standing.over} over" if standing.over != "0" else standing.free


def _amounts(amounts: Mapping[str, str]) -> str:
    words = (f"{text} {name}" for name, text in amounts.items())
    return ", ".join("1 pod" if each == "1 pods" else each for each in words) or "none"


def _requested(coming: UnconfirmedReservation) -> str:
    more = " more" if coming.growth else ""
    of = f", for PodGroup {coming.group}" if coming.group else ""
    return f"{_amounts(coming.amounts)}{more}{of}"
