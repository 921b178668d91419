"""Shortages of quotas for groups that have to hold more before they go on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from muster.ledger import wording
from muster.ledger.conversion import readable
from muster.ledger.headroom import Headroom
from muster.ledger.reservations import Shortage, held
from muster.ledger.rows import Key
from muster.ledger.table import Table
from muster.model import kinds
from muster.model.amounts import NOTHING
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects, ledger_view
from scheduler.model.snapshot import GroupKey, Snapshot


def reasons(state: ClusterObjects, namespace: str, table: Table, schedulers: Collection[str]) -> dict[Key, str]:
    """Return why groups of a namespace hold nothing, by (API group, name).

    Of those without a shortage nobody took note yet: they hold their minimum in a moment.
    """
    outside = table.outside(ledger_view(state, namespace, schedulers))
    return {(each.group, each.name): wording.unreserved(lacks) for each, lacks in outside.items() if lacks}


def found(
    state: ClusterObjects, snapshot: Snapshot, schedulers: Collection[str]
) -> Iterator[tuple[GroupKey, tuple[Shortage, ...]]]:
    """Return the groups for which the ledgers of a state have no room: started again, or with pods known only now."""
    for job in snapshot.jobs:
        key, table = job.key, state.ledger(job.key.namespace)
        if job.next_holding is None or job.reserves_late or table is None:
            continue
        kind = next((each for each in PODGROUPS if each.group == key.group), kinds.PODGROUPS)
        group = state.find(kind, key.name, key.namespace)
        view = ledger_view(state, key.namespace, schedulers)
        stated = group.spec.min_resources if group is not None else None
        minimum = job.next_holding.of(readable(stated) if stated is not None else None, job.min_member)
        has = next((each.amounts for each in view.called(key.name)), NOTHING).maximum(view.usage(key.name))
        more = (held(minimum) - has).positive()
        if lacks := Headroom(table).lacks(key.group, key.name, job.uid, more, job.scope_facts):
            yield key, lacks
