"""The rules for seeding a ledger again: when its totals are void although they were seeded, and what is kept of it. Pure."""

from __future__ import annotations

from muster.ledger.table import Table
from muster.ledger.view import LedgerView, covers


def is_foreign(table: Table, view: LedgerView) -> bool:
    """Whether the totals are of a state that the API server never had; ``view`` is a quorum read begun after the table was read.

    Such a view is at least as new as what any process saw before, unless the ledger was folded by one that still
    showed what etcd had before it was restored.
    """
    return bool(table.seeded_at) and not covers(view, table.observed)


def unseeded(table: Table) -> Table:
    """Return it without totals, to be seeded again; what was granted and may yet be stored stays."""
    return Table(rows=tuple(row for row in table.rows if row.pending))
