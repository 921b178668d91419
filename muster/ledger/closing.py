"""Decisions when the window of a namespace closes: which groups no longer fit beside what slipped in. Pure."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from muster.ledger.reservations import GROUPS, PODGROUP
from muster.ledger.rows import Row, RowState
from muster.ledger.table import Table
from muster.ledger.view import LedgerView, ObservedGroup, covers


def hold_back(table: Table, view: LedgerView, started: Collection[str]) -> Table | None:
    """Return a seeded table in which groups that haven't started hold something only where everything fits.

    The oldest come first. ``view`` is a quorum read, ``started`` are names of groups with pods on nodes: these hold what they
    hold. None: a newer view is needed.
    """
    if not covers(view, table.observed):
        return None
    folded = table.fold(view)
    if not folded.overcommitted():
        return folded
    waiting = [each for each in view.groups() if each.name not in started and folded.limits(each.amounts)]
    return _marked(folded, waiting).fold(view)


def settled(table: Table) -> bool:
    """Whether nothing that was admitted before could start beside more than the quota has.

    A group that has yet to appear can't be marked: where too much is taken, it is waited for.
    """
    return not table.overcommitted() or not any(row.pending and row.kind in GROUPS for row in table.rows)


def _marked(table: Table, groups: Collection[ObservedGroup]) -> Table:
    """Return it with these groups as ones that hold nothing; a fold takes in again what fits."""
    uids = {each.uid for each in groups}
    kept = tuple(row for row in table.rows if row.state is not RowState.SEEN or row.uid not in uids)
    marks = (
        Row(PODGROUP, each.group, each.name, each.uid, each.amounts, RowState.UNRESERVED, each.revision)
        for each in groups
    )
    known = table.unreserved
    return replace(table, rows=(*kept, *(row for row in marks if row.uid not in known)))
