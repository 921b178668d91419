"""Remedies of a group for which a quota has no room: a larger quota, or the end of who holds it. Each is tried. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from muster.ledger.reservations import Shortage
from muster.model import grouping, kinds, scopes
from muster.model.amounts import NOTHING, QuantityError, Resources, amount_text
from muster.model.kinds import Kind
from muster.model.objects import Pod, ResourceQuota
from muster.model.text import listed
from muster.whatif import trials
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects, ledger_view, with_objects
from muster.whatif.trials import Remedy
from scheduler.model.records import Record
from scheduler.model.snapshot import GroupKey
from scheduler.state import conversion

_MOST_HOLDERS: Final = 32
"""Groups whose end is supposed one by one; those that hold most of what is short first."""


class QuotaShortage(Struct, frozen=True):
    """What quotas lack for a group that holds nothing, and who holds most of that: (name, amounts), largest first."""

    short: tuple[Shortage, ...] = ()
    holders: tuple[tuple[str, Resources], ...] = ()


def remedies(cluster: WhatIfCluster, record: Record, shortage: QuotaShortage) -> Iterator[Remedy]:
    """Return what would give a group its reservation, each by itself, and what it waits for then."""
    if not shortage.short:
        return
    with cluster.assuming():
        # As all else comes to rest: before that, others may only not have had their turn.
        cluster.run_until_idle([record.key])
        rest = cluster.state_now()
    larger = _larger(rest, record.key.namespace, shortage.short)
    then = _outcome(cluster, rest, record, larger, {}) if larger is not None else None
    if then is not None:
        yield Remedy(f"{_more(shortage.short)}{then}", _data(shortage.short) | {"enough": not then})
    for name in _holders(cluster, record.key, shortage):
        then = _outcome(cluster, rest, record, {}, _objects_of(rest, record.key.namespace, name, cluster.schedulers))
        if then is not None:
            holds = trials.shown(dict(shortage.holders).get(name, NOTHING))
            key = next((key for key in _keys(record.key.namespace, name) if cluster.group(key) is not None), record.key)
            text = f"the end of {cluster.title(key)}" + (f", which holds {holds} of the quota" if holds else "")
            yield Remedy(f"{text}{then}", {"kind": "end", "podGroups": [str(key)], "all": True, "enough": not then})
            return


def _holders(cluster: WhatIfCluster, key: GroupKey, shortage: QuotaShortage) -> list[str]:
    """Return the groups of a namespace that may hold something, those that hold most of what is short first."""
    first = [name for name, _ in shortage.holders]
    others = [each.name for kind in PODGROUPS for each in cluster.state.of(kind, key.namespace)]
    return [name for name in dict.fromkeys([*first, *sorted(others)]) if name != key.name][:_MOST_HOLDERS]


def _keys(namespace: str, name: str) -> list[GroupKey]:
    return [GroupKey(kind.group, namespace, name) for kind in PODGROUPS]


def _objects_of(
    state: ClusterObjects, namespace: str, name: str, schedulers: Collection[str]
) -> Mapping[Kind[Any], Sequence[Any]]:
    """Return a group, its Jobs and its pods."""
    groups = {kind: [each] for kind in PODGROUPS if (each := state.find(kind, name, namespace)) is not None}
    jobs = [each for each in state.of(kinds.JOBS, namespace) if conversion.group_of_job(each) == name]
    pods = [each for each in state.of(kinds.PODS, namespace) if _is_member(each, name, schedulers)]
    return {**groups, kinds.JOBS: jobs, kinds.PODS: pods}


def _is_member(pod: Pod, group: str, schedulers: Collection[str]) -> bool:
    return grouping.member_of(pod.metadata, pod.spec.scheduler_name, schedulers) == group


def _outcome(
    cluster: WhatIfCluster,
    rest: ClusterObjects,
    record: Record,
    added: Mapping[Kind[Any], Iterable[Any]],
    gone: Mapping[Kind[Any], Iterable[Any]],
) -> str | None:
    """Return what comes of it, as `trials.outcome`: in a cluster made anew, whose ledger has seen it."""
    state = with_objects(rest, added, gone)
    namespace = record.key.namespace
    table, ledger = state.ledger(namespace), next(iter(state.of(kinds.QUOTALEDGERS, namespace)), None)
    if table is None or ledger is None:
        return None
    # As the ledger is once it has seen these objects; lists say nothing of how new they are.
    seen = replace(table.seed(ledger_view(state, namespace, cluster.schedulers), state.taken), observed=table.observed)
    state = with_objects(state, {kinds.QUOTALEDGERS: [replace(ledger, data=seen.render())]})
    return trials.outcome(cluster.made_of(state), record, lambda: None)


def _larger(
    state: ClusterObjects, namespace: str, short: Sequence[Shortage]
) -> Mapping[Kind[Any], Sequence[ResourceQuota]] | None:
    """Return the quotas that are short with that much more; None where one isn't there, or can't be read."""
    found: dict[str, ResourceQuota] = {}
    for each in short:
        quota = found.get(each.quota) or state.find(kinds.RESOURCEQUOTAS, each.quota, namespace)
        if quota is None:
            return None
        resource = scopes.split_name(each.resource)[0]
        try:
            written = Resources({resource: each.hard + each.short}).quantities()
        except QuantityError:
            return None
        hard = {**(quota.spec.hard or {}), **written}
        shown = {**(quota.status.hard or {}), **written}
        found[each.quota] = replace(
            quota, spec=replace(quota.spec, hard=hard), status=replace(quota.status, hard=shown)
        )
    return {kinds.RESOURCEQUOTAS: list(found.values())}


def _more(short: Sequence[Shortage]) -> str:
    quotas: dict[str, list[Shortage]] = {}
    for each in short:
        quotas.setdefault(each.quota, []).append(each)
    return " and ".join(f"{_amounts(each)} in ResourceQuota {name}" for name, each in quotas.items())


def _amounts(short: Sequence[Shortage]) -> str:
    texts = []
    for each in short:
        resource = scopes.split_name(each.resource)[0]
        more, most = (amount_text(resource, nano) for nano in (each.short, each.hard + each.short))
        texts.append(f"{more} {resource} more ({most} in all)")
    return listed(texts)


def _data(short: Sequence[Shortage]) -> dict[str, Any]:
    return {
        "kind": "quota",
        "quotas": [
            {
                "name": each.quota,
                "resource": scopes.split_name(each.resource)[0],
                "more": amount_text(each.resource, each.short),
                "hard": amount_text(each.resource, each.hard + each.short),
            }
            for each in short
        ],
    }
