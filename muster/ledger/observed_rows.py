"""Rows for what a view shows: groups, what their pods take, and groups that wait for their minimum. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import Final

from msgspec.structs import replace

from muster.ledger.reservations import CLAIM, POD, PODGROUP
from muster.ledger.rows import POD_SUMS, RESOURCEQUOTA, Row, RowState
from muster.ledger.tally import Totals
from muster.ledger.view import CLAIM_SOURCE, POD_SOURCE, QUOTA_SOURCE, LedgerView, ObservedGroup, source
from muster.model.amounts import NOTHING, Resources

_PLACES: Final = {RESOURCEQUOTA: QUOTA_SOURCE, POD: POD_SOURCE, CLAIM: CLAIM_SOURCE}


def place(row: Row) -> str:
    """Return the source that shows the object of a row."""
    return _PLACES.get(row.kind) or source(row.group)


def seen(shown: ObservedGroup, limits: frozenset[str]) -> Row:
    """Return the row of what a group holds, or waits for, as far as it is limited."""
    amounts = shown.minimum.only(limits)
    return Row(PODGROUP, shown.group, shown.name, shown.uid, amounts, RowState.SEEN, shown.revision)


def used(name: str, amounts: Resources) -> Row:
    """Return the row of what the pods of a group take."""
    return Row(POD_SUMS, "", name, "-", amounts, RowState.SEEN, 0)


def granted(rows: Iterable[Row]) -> frozenset[str]:
    """Return the uids of what may come to hold more than is seen of it."""
    return frozenset(row.uid for row in rows if row.state is RowState.FROM)


def waiting(view: LedgerView, limits: frozenset[str]) -> list[Row]:
    """Mark the groups that wait for their minimum, those too that were granted it just now: their write may still fail."""
    rows = (seen(each, limits) for each in view.waiting())
    return [replace(row, state=RowState.UNRESERVED) for row in rows if row.amounts]


def without(
    names: Collection[str], quotas: Mapping[str, Totals], rows: Iterable[Row], view: LedgerView
) -> Mapping[str, Totals]:
    """Return totals without what the pods of some groups take beyond what these hold; where it has a row of its own, they are without."""
    apart = {row.name for row in rows if row.kind == POD_SUMS}
    beyond = reduce(Resources.__add__, map(view.beyond, sorted(set(names) - apart)), NOTHING)
    return {name: each.without(beyond) for name, each in quotas.items()} if beyond else quotas
