"""The report of a ledger for people: the quotas, their holders, and the requests under way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from muster.ledger.marks import hard_names
from muster.ledger.reservations import JOB, MEMBERS, Shortage, limited, taken_by_pods
from muster.ledger.rows import Row, RowState
from muster.ledger.table import Table
from muster.ledger.tally import Tally
from muster.ledger.view import LedgerView, ObservedGroup
from muster.ledger.wording import unreserved
from muster.model import scopes
from muster.model.amounts import NOTHING, Resources, exact_text

_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})
_NOTHING_COUNTED: Final[Mapping[str, Resources]] = MappingProxyType({})


class QuotaUsage(msgspec.Struct, frozen=True, rename="camel"):
    """One resource of one quota; amounts are quantities.

    ``other``: what pods take beyond what their groups reserved; of what isn't for pods, what Kubernetes counts beyond it.
    """

    quota: str
    resource: str
    scope: str
    hard: str
    reserved: str
    other: str
    free: str
    over: str


class QuotaHolder(msgspec.Struct, frozen=True, rename="camel"):
    """A group and what it holds of what is limited; ``used`` is what its pods take of it.

    ``owner``: what it was generated for, ``Job train``; empty for a group that people named.
    """

    name: str
    reserved: dict[str, str]
    used: dict[str, str]
    owner: str = ""


class UnconfirmedReservation(msgspec.Struct, frozen=True, rename="camel"):
    """A reservation for something that may come to exist, grow, or never be stored; then it ends within a minute."""

    kind: str
    name: str
    group: str
    amounts: dict[str, str]
    growth: bool


class UnreservedGroup(msgspec.Struct, frozen=True, rename="camel"):
    """A group that exists and holds nothing, and why; its owner as in `QuotaHolder`."""

    name: str
    reason: str
    owner: str = ""


class LedgerReport(msgspec.Struct, frozen=True, rename="camel"):
    """A namespace's ledger. ``seeded_at`` is empty while it admits nothing."""

    namespace: str
    mode: str
    policy: str
    seeded_at: str
    quotas: tuple[QuotaUsage, ...] = ()
    groups: tuple[QuotaHolder, ...] = ()
    under_way: tuple[UnconfirmedReservation, ...] = ()
    unreserved: tuple[UnreservedGroup, ...] = ()


def report(
    namespace: str,
    mode: str,
    policy: str,
    table: Table,
    view: LedgerView,
    owners: Mapping[str, str] = _NOBODY,
    counted: Mapping[str, Resources] = _NOTHING_COUNTED,
) -> LedgerReport:
    """Write a ledger for people.

    Args:
        namespace: where it is.
        mode: of its label, which says when pods are checked.
        policy: when a group reserves.
        table: the ledger's.
        view: what exists in the namespace now.
        owners: by the name of a group, what it was generated for.
        counted: by the name of a quota, what Kubernetes has counted.
    """
    view.follow(hard_names(table.quotas, table.rows))
    names = sorted({limited(resource) for totals in table.quotas.values() for resource in totals.hard})
    return LedgerReport(
        namespace,
        mode,
        policy,
        table.seeded_at,
        tuple(_standings(table, counted)),
        tuple(replace(each, owner=owners.get(each.name, "")) for each in _holders(table, view, names)),
        tuple(_coming(row, names) for row in table.rows if row.counts and _comes(row, view)),
        tuple(
            UnreservedGroup(each.name, unreserved(lacks), owners.get(each.name, ""))
            for each, lacks in _outside(table, view)
        ),
    )


def _standings(table: Table, counted: Mapping[str, Resources]) -> Iterable[QuotaUsage]:
    per_resource = Tally(table.quotas, table.rows).per_resource()
    for found in sorted(per_resource, key=lambda each: (each.quota, each.resource)):
        each = found if taken_by_pods(found.resource) else _as_counted(found, counted.get(found.quota, NOTHING))
        resource, scope = scopes.split_name(each.resource)
        amounts = (each.hard, each.reserved, each.used, max(0, -each.short), max(0, each.short))
        yield QuotaUsage(each.quota, resource, scope, *(exact_text(resource, nano) for nano in amounts))


def _as_counted(found: Shortage, counted: Resources) -> Shortage:
    """Return how a resource stands that pods don't take: nothing but the quota itself tells what there is of it."""
    used = max(0, counted[scopes.split_name(found.resource)[0]] - found.reserved)
    return replace(found, used=used, short=found.reserved + used - found.hard)


def _holders(table: Table, view: LedgerView, names: list[str]) -> Iterable[QuotaHolder]:
    for shown in sorted(view.groups(), key=lambda each: each.name):
        reserved, used = shown.amounts.only(names), view.usage(shown.name).only(names)
        if shown.uid not in table.unreserved and (reserved or used):
            yield QuotaHolder(shown.name, _written(reserved), _written(used))


def _comes(row: Row, view: LedgerView) -> bool:
    """Whether a row's object may yet come: one that has come is written down with the next change of the ledger."""
    came = row.state is RowState.NEW and (view.delivered(row.uid) or (row.kind == JOB and any(view.called(row.name))))
    return row.pending and not came


def _coming(row: Row, names: list[str]) -> UnconfirmedReservation:
    group = row.account if row.kind in {*MEMBERS, JOB} else ""
    return UnconfirmedReservation(row.kind, row.name, group, _written(row.amounts.only(names)), bool(row.revision))


def _outside(table: Table, view: LedgerView) -> Iterable[tuple[ObservedGroup, tuple[Shortage, ...]]]:
    marked = [shown for uid in table.unreserved if (shown := view.group(uid)) is not None]
    outside = table.outside(view)
    return [(shown, outside.get(shown, ())) for shown in sorted(marked, key=lambda each: each.name)]


def _written(amounts: Resources) -> dict[str, str]:
    """Write amounts by plain names; those of a scope repeat them, or are what an update counts for in that scope alone."""
    most: dict[str, int] = {}
    for name, nano in amounts.nano.items():
        plain, _ = scopes.split_name(name)
        most[plain] = max(nano, most.get(plain, 0))
    return {name: exact_text(name, nano) for name, nano in sorted(most.items()) if nano}
