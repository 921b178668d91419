"""Shortages of quotas for groups that have to hold more before they go on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from muster.ledger import wording
from muster.ledger.conversion import readable
from muster.ledger.headroom import Headroom
from muster.ledger.reservations import Shortage, held, reserves_late
from muster.ledger.rows import Key
from muster.ledger.table import Table
from muster.model import kinds
from muster.model.amounts import NOTHING
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects, ledger_view
from scheduler.model.snapshot import GroupKey, JobInfo


def unreserved(
    state: ClusterObjects, namespace: str, schedulers: Collection[str]
) -> tuple[Table | None, Mapping[Key, str]]:
    """Return the ledger of a namespace where groups hold nothing of it, or reserve late, and why those hold nothing, by (API group, name).

    Of those without a shortage nobody took note yet: they hold their minimum in a moment.
    """
    table = state.ledger(namespace)
    metas = [group.metadata for kind in PODGROUPS for group in state.of(kind, namespace)]
    if table is None or not (
        table.unreserved or any(reserves_late(each) or not each.resource_version for each in metas)
    ):
        return None, {}
    outside = table.outside(ledger_view(state, namespace, schedulers))
    return table, {(each.group, each.name): wording.unreserved(lacks) for each, lacks in outside.items() if lacks}


def found(
    state: ClusterObjects, jobs: Iterable[JobInfo], schedulers: Collection[str]
) -> Iterator[tuple[GroupKey, tuple[Shortage, ...]]]:
    """Return those groups for which the ledgers of a state have no room: started again, or with pods known only now."""
    for job in jobs:
        if job.next_holding is None or job.reserves_late:
            continue
        key, table = job.key, state.ledger(job.key.namespace)
        if table is None:
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
