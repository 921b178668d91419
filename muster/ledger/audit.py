"""The audit of a namespace: whether its objects fit its quotas, counted anew from lists. Pure; it knows nothing of totals or rows.

The ledger proves the sum by how it is written. The auditor doesn't believe the proof: it adds up what exists, by the
definition alone, and says of each excess which class it is in. All but one of the classes are allowed::

    sum over names of max(reserved by groups of that name, used by pods of that name) + used by pods of no group
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct, field

from muster.ledger.reservations import limited
from muster.ledger.view import ObservedGroup, ObservedPod, ObservedQuota
from muster.model import scopes
from muster.model.amounts import NOTHING, Resources, amount_text

NAMED: Final = 5
"""Objects that a finding names."""
_LONGEST: Final = 80  # characters of a name in a log line
SETTLES: Final = 90.0
"""Seconds after a quota was first seen in which the ledger is believed about what is older than the quota: two deadlines."""


class ExcessClass(Enum):
    """Why more exists than a quota allows. The values are those of a metric's label."""

    OVERCOMMITTED = "overcommitted"
    """The quota was lowered, or made over what existed, and nothing was added since."""
    UNRESERVED = "unreserved"
    """PodGroups that the ledger marks unreserved: they hold nothing, and their pods aren't scheduled."""
    GUARDED = "guarded"
    """Pods that no webhook judged, in a namespace that isn't guaranteed: they were created while none answered."""
    UNEXPLAINED = "unexplained"
    """None of these may be the reason."""


class AuditedNamespace(Struct, frozen=True):
    """What lists show of one namespace, and what decides about classes.

    Attributes:
        called: what people know groups and pods by, ``Job train`` or ``Pod train-0``, by uid.
        unreserved: uids of the groups for which the ledger holds nothing.
        counted: what the ledger counts, by name of quota and resource: whether it knows of an excess that is older than
            the first audit.
        guaranteed: whether pods can't be created while no webhook answers.
    """

    groups: tuple[ObservedGroup, ...]
    pods: tuple[ObservedPod, ...]
    quotas: tuple[ObservedQuota, ...]
    called: Mapping[str, str] = field(default_factory=dict)
    unreserved: frozenset[str] = frozenset()
    counted: Mapping[tuple[str, str], int] = field(default_factory=dict)
    guaranteed: bool = False


Limit = tuple[str, str]
"""The uid of a quota, and one of the resources that it limits."""


class AuditBound(Struct, frozen=True):
    """The most that may be taken of one resource of a quota, as of the last audit, and since when the quota is known."""

    most: int
    since: float


class Excess(Struct, frozen=True):
    """One resource of one quota of which more is taken than there is; amounts in nano-units.

    Attributes:
        objects: up to `NAMED` of those that make up the excess, the newest first, each "<kind> <name>".
        more: how many others there are.
    """

    kind: ExcessClass
    quota: str
    resource: str
    hard: int
    taken: int
    limit: Limit
    objects: tuple[str, ...] = ()
    more: int = 0


class NamespaceSums(Struct, frozen=True):
    """What groups reserve and pods use, by the name of the group; pods of no group under the empty name."""

    reserved: Mapping[str, Resources]
    used: Mapping[str, Resources]

    def taken(self, resource: str) -> int:
        """Return what is taken of a resource, in the names of `reservations.held`."""
        names = self.reserved.keys() | self.used.keys()
        return sum(
            max(self.reserved.get(name, NOTHING)[resource], self.used.get(name, NOTHING)[resource]) for name in names
        )

    def held(self, resource: str) -> int:
        """Return what groups reserve of a resource."""
        return sum(amounts[resource] for amounts in self.reserved.values())


def sums(namespace: AuditedNamespace, *, without: Collection[str] = ()) -> NamespaceSums:
    """Add up what is stored, but for the groups of these uids."""
    scope_sets = scopes.scope_sets(resource for quota in namespace.quotas for resource in quota.hard)
    reserved: dict[str, list[Resources]] = defaultdict(list)
    used: dict[str, list[Resources]] = defaultdict(list)
    for group in namespace.groups:
        if group.uid not in without:
            reserved[group.name].append(scopes.in_scopes(group.amounts, group.scope_facts, scope_sets))
    for pod in namespace.pods:
        used[pod.group].append(scopes.in_scopes(pod.amounts, pod.scope_facts, scope_sets))
    return NamespaceSums(*({name: Resources.total(each) for name, each in parts.items()} for parts in (reserved, used)))


def audit(
    namespace: AuditedNamespace, bounds: Mapping[Limit, AuditBound], highest: Mapping[Limit, int], now: float
) -> tuple[tuple[Excess, ...], dict[Limit, AuditBound]]:
    """Return what exceeds the quotas of a namespace, and the bounds for the next audit.

    A sum may exceed a limit that was lowered, and then must not grow. ``bounds`` are those of the last audit,
    ``highest`` the highest limits since then as far as they are known; ``now`` is in seconds of any clock.
    """
    stored = sums(namespace, without=namespace.unreserved)
    everything = sums(namespace) if namespace.unreserved else stored
    found: list[Excess] = []
    following: dict[Limit, AuditBound] = {}
    for quota in namespace.quotas:
        for resource, hard in quota.hard.nano.items():
            limit, name = (quota.uid, resource), limited(resource)
            taken, bound = stored.taken(name), bounds.get((quota.uid, resource))
            known = min(taken, namespace.counted.get((quota.name, resource), taken))
            allowed, since = _allowed(bound, max(hard, highest.get(limit, hard)), known, now)
            following[limit] = AuditBound(max(hard, min(taken, allowed)), since)
            if (most := everything.taken(name)) <= hard:
                continue
            kind = _class(stored, name, hard, allowed, guaranteed=namespace.guaranteed)
            shown = most if kind is ExcessClass.UNRESERVED else taken
            names = _names(namespace, kind, name, shown - hard)
            found.append(
                Excess(kind, quota.name, resource, hard, shown, limit, tuple(names[:NAMED]), max(0, len(names) - NAMED))
            )
    return tuple(found), following


def describe(namespace: str, excess: Excess) -> str:
    """Say it in one line for a log; names are cut."""
    resource, scope = scopes.split_name(excess.resource)
    hard, taken = (amount_text(resource, nano) for nano in (excess.hard, excess.taken))
    where = f" in scope {scope[:_LONGEST]}" if scope else ""
    objects = ", ".join(name[:_LONGEST] for name in excess.objects)
    more = f" and {excess.more} more" if excess.more else ""
    return (
        f"namespace {namespace}: quota {excess.quota[:_LONGEST]} allows {hard} {resource[:_LONGEST]}{where}, and what exists"
        f" takes {taken} ({excess.kind.value}): {objects}{more}"
    )


def _allowed(bound: AuditBound | None, highest: int, known: int, now: float) -> tuple[int, float]:
    """Return the most that may be taken by now, and since when the quota is known; ``known`` is what the ledger counts."""
    if bound is None:
        return max(highest, known), now
    settling = now - bound.since < SETTLES
    return max(bound.most, highest, known if settling else 0), bound.since


def _class(stored: NamespaceSums, resource: str, hard: int, allowed: int, *, guaranteed: bool) -> ExcessClass:
    taken = stored.taken(resource)
    if taken <= hard:
        return ExcessClass.UNRESERVED
    if taken <= allowed:
        return ExcessClass.OVERCOMMITTED
    if not guaranteed and stored.held(resource) <= allowed:
        return ExcessClass.GUARDED
    return ExcessClass.UNEXPLAINED


def _names(namespace: AuditedNamespace, kind: ExcessClass, resource: str, excess: int) -> list[str]:
    """Return the newest objects that together make up the excess."""
    scope_sets = scopes.scope_sets(name for quota in namespace.quotas for name in quota.hard)
    groups: Iterable[tuple[int, str, int]] = (
        (each.revision, namespace.called.get(each.uid, f"PodGroup {each.name}"), _amount(each, resource, scope_sets))
        for each in namespace.groups
        if kind is not ExcessClass.GUARDED and (each.uid in namespace.unreserved) is (kind is ExcessClass.UNRESERVED)
    )
    pods: Iterable[tuple[int, str, int]] = (
        (each.revision, namespace.called.get(each.uid, f"Pod {each.uid}"), _amount(each, resource, scope_sets))
        for each in namespace.pods
        if kind is not ExcessClass.UNRESERVED
    )
    names: list[str] = []
    for _, name, amount in sorted((*groups, *pods), reverse=True):
        if amount and excess > 0:
            names.append(name)
            excess -= amount
    return names


def _amount(each: ObservedGroup | ObservedPod, resource: str, scope_sets: Collection[str]) -> int:
    return scopes.in_scopes(each.amounts, each.scope_facts, scope_sets)[resource]
