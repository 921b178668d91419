"""Notes on new limits: what quotas have come to limit, and the rows that are about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.ledger.reservations import all_limited, limited
from muster.ledger.rows import RESOURCEQUOTA, UNSEEDED, UNSETTLED, Row
from muster.ledger.tally import Totals
from muster.ledger.view import ObservedQuota
from muster.model.amounts import Resources


def hard_names(quotas: Mapping[str, ObservedQuota | Totals], rows: Iterable[Row]) -> frozenset[str]:
    """Return the resources that quotas limit or may come to, as they write them."""
    hard = [each.hard for each in quotas.values()] + [row.amounts for row in rows if row.kind == RESOURCEQUOTA]
    return frozenset(name for each in hard for name in each)


def limited_names(quotas: Mapping[str, ObservedQuota | Totals], rows: Iterable[Row]) -> frozenset[str]:
    """Return what rows are about: what quotas limit or may come to, and the same without scopes, which facts add.

    Whatever else is asked for holds nothing, and would fill the ledger.
    """
    return all_limited(hard_names(quotas, rows))


def unsettled(rows: Iterable[Row]) -> frozenset[str]:
    """Return the names of which nothing may be reserved yet, as `reservations.limited` writes them."""
    return frozenset(limited(name) for row in rows if row.is_mark for name in row.amounts)


def marked(
    before: Mapping[str, Totals], after: Mapping[str, Totals], rows: Iterable[Row], *, waits: bool
) -> tuple[Row, ...]:
    """Return the rows with the marks that hold from now on, where ``after`` is what the quotas have come to limit.

    A row tells only of what was limited when it was written. So what is new is marked: with ``waits`` until the deadline
    of all that is under way, else where rows wait for their objects and until none does. A mark that stays is the same
    row, by which the leader counts its time.
    """
    rest = tuple(row for row in rows if not row.is_mark)
    waiting = any(row.counts and row.pending for row in rest)
    marks = {(row.name, row.uid): row.amounts.nano for row in rows if row.is_mark}
    known = {limited(name) for totals in before.values() for name in totals.hard}
    for quota, totals in after.items():
        new = {name: most for name, most in totals.hard.nano.items() if limited(name) not in known}
        if new and (waits or waiting):
            place = quota, UNSEEDED if waits else UNSETTLED
            marks[place] = {**new, **marks.get(place, {})}
    return rest + tuple(
        Row(RESOURCEQUOTA, "", quota, uid, amounts)
        for (quota, uid), nano in marks.items()
        if quota in after and (waiting or uid == UNSEEDED) and (amounts := Resources(nano).only(after[quota].hard)).nano
    )
