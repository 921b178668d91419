"""The rest of a namespace's quotas while a scheduler admits groups that reserve late, one by one. Pure."""

from __future__ import annotations

from muster.ledger.reservations import PODGROUP, Shortage, held
from muster.ledger.rows import Row, RowState
from muster.ledger.table import Table
from muster.ledger.tally import Tally
from muster.model.amounts import Resources

_SOME_REVISION = 1


class Headroom:
    """One namespace during one cycle: an estimate, since the ledger has the last word when the status is written.

    Args:
        table: as of now, with the groups in question folded apart (`Table.fold`'s ``coming``), so that what their pods
            take already isn't asked for twice.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._tally = Tally(table.quotas, table.rows)
        # Who was granted its minimum already, by a write that came to nothing, asks for the same once more.
        self._asked = {row.uid: row.revision for row in table.rows if row.state is RowState.FROM}

    def lacks(self, group: str, name: str, uid: str, minimum: Resources, scope_facts: str = "") -> tuple[Shortage, ...]:
        """Say what is short for a PodGroup's minResources; nothing where they fit, or where no quota limits them.

        ``scope_facts``: what decides in which scopes of quotas it counts (`muster.model.scopes`).
        """
        row = self._row(group, name, uid, minimum, scope_facts)
        return self._tally.shortages(row) if self._table.limits(row.amounts, row.scope_facts) else ()

    def take(self, group: str, name: str, uid: str, minimum: Resources, scope_facts: str = "") -> None:
        """Count a group that is admitted."""
        self._tally.add(self._row(group, name, uid, minimum, scope_facts))

    def _row(self, group: str, name: str, uid: str, minimum: Resources, scope_facts: str) -> Row:
        revision = self._asked.get(uid, _SOME_REVISION)
        return Row(PODGROUP, group, name, uid, held(minimum), RowState.FROM, revision, scope_facts)
