"""The step that answers requests: from a table and a view to the new table and the answers. Pure.

Whoever keeps a ledger takes this step: the committer of a webhook server, and a simulation in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from muster.ledger.reservations import (
    Exceeded,
    Leaving,
    Observed,
    ReservationRequest,
    Reserved,
    Shortage,
    Unavailable,
    limited,
)
from muster.ledger.table import Table
from muster.ledger.view import LedgerView
from muster.model.amounts import Resources


class QuotaUpdate(Struct, frozen=True):
    """Limits that a quota may have from now on."""

    name: str
    uid: str
    hard: Resources


Request = ReservationRequest | QuotaUpdate
Answer = Reserved | Exceeded | Unavailable | Observed


class Decision(Struct, frozen=True):
    """A table to store and the answers that then hold, in the order of the requests; ``summary`` is the table's, where it was summed anyway."""

    table: Table
    answers: tuple[Answer, ...]
    summary: str = ""

    @property
    def needs_write(self) -> bool:
        """Whether an answer holds only once the table is stored."""
        return any(isinstance(answer, Observed) or answer == Reserved() for answer in self.answers)

    @property
    def certain(self) -> bool:
        """Whether the write itself proves every answer: a stale ledger can't be written, but it can refuse."""
        return all(answer == Reserved() for answer in self.answers)


def decide(
    table: Table, view: LedgerView, requests: Sequence[Request], now: datetime, *, waits: bool = False
) -> Decision:
    """Bring a table up to date with ``view`` and answer ``requests``; quotas first, reservations in their order.

    ``waits``: what a quota comes to limit is reserved only when nothing is under way that isn't known (`Table.fold`).
    """
    reservations = [each for each in requests if isinstance(each, ReservationRequest)]
    if not table.seeded_at:
        table = table.seed(view, now)
    coming = {each.account for each in reservations}
    table = _with_updates(table, view, requests).fold(view, coming=coming, waits=waits)
    over = table.overcommitted() if len(reservations) < len(requests) else ()
    table, given, summary = table.reserve_summed(reservations)
    rest = iter(given)
    answers: list[Answer] = [
        _with_holders(next(rest), table, view)
        if isinstance(each, ReservationRequest)
        else Observed(tuple(shortage for shortage in over if shortage.quota == each.name))
        for each in requests
    ]
    return Decision(table, tuple(answers), summary)


def defer(namespace: str, table: Table, view: LedgerView, requests: Sequence[Request]) -> Decision:
    """Record the quotas, and put the reservations off, until the leader has seeded the table."""
    wait = Unavailable(
        f"the quota of namespace {namespace} is guaranteed, so nothing is reserved until everything that was under way"
        " when it was made has arrived; that takes 45 seconds: try again"
    )
    answers = tuple(wait if isinstance(each, ReservationRequest) else Observed() for each in requests)
    return Decision(_with_updates(table, view, requests), answers)


def _with_updates(table: Table, view: LedgerView, requests: Iterable[Request]) -> Table:
    """Record the quotas among ``requests``."""
    for each in requests:
        if isinstance(each, QuotaUpdate):
            table = table.observe_quota(each.name, each.uid, each.hard, view.revision_of(each.uid))
    return table


def _with_holders(answer: Reserved | Exceeded | Unavailable, table: Table, view: LedgerView) -> Answer:
    if isinstance(answer, Exceeded) and answer.shortages:
        return replace(answer, holders=table.holders(view, answer.shortages), leaving=_leaving(answer.shortages, view))
    return answer


def _leaving(shortages: Iterable[Shortage], view: LedgerView) -> Leaving | None:
    """Return what pods that are being deleted take of what is short, beyond what their groups have reserved."""
    names = {limited(each.resource) for each in shortages if each.used}
    pods = [each for each in view.leaving() if any(map(view.beyond(each.group).__getitem__, names))]
    if not pods:
        return None
    return Leaving(Resources.total(each.amounts.only(names) for each in pods), max(each.gone_by for each in pods))
