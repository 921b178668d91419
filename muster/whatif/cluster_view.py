"""A cluster as Muster sees it at one moment, as a value: read from its API server, or from a file that `muster dump` wrote."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from muster.ledger.conversion import view_of_lists
from muster.ledger.rows import MalformedLedgerError
from muster.ledger.table import Table
from muster.ledger.view import LedgerView
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Object

T = TypeVar("T", bound=Object)

_TO_COME: Final = str(2**62)
"""The version of what doesn't exist yet."""

PODGROUPS: Final = (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)
NEEDED: Final = (kinds.NODES, kinds.PODS, kinds.PODGROUPS, kinds.QUEUES)
KINDS: Final[tuple[Kind[Any], ...]] = (
    *NEEDED,
    kinds.NAMESPACES,
    kinds.JOBS,
    kinds.DEPLOYMENTS,
    kinds.STATEFULSETS,
    kinds.RESOURCEQUOTAS,
    kinds.QUOTALEDGERS,
    kinds.PRIORITYCLASSES,
    kinds.DISRUPTIONBUDGETS,
    kinds.CLAIMS,
    kinds.VOLUMES,
    kinds.STORAGECLASSES,
    kinds.CSINODES,
    kinds.HYPERNODES,
    kinds.RESOURCECLAIMS,
    kinds.RESOURCECLAIMTEMPLATES,
    kinds.DEVICECLASSES,
    kinds.RESOURCESLICES,
    kinds.CONFIGMAPS,
    *kinds.LEGACY_PODGROUPS,
    *kinds.LEGACY_QUEUES,
)
"""What admission, scheduling and their explanations look at. Of ConfigMaps only those in Muster's own namespace."""

_LEGACY: Final[tuple[Kind[Any], ...]] = (*kinds.LEGACY_PODGROUPS, *kinds.LEGACY_QUEUES)
ObjectChanges: TypeAlias = Mapping[Kind[Any], list[tuple[Any, Any]]]
"""Objects of a state that another hasn't, by kind, each after the one of its name that was there before, or None."""
LEGACY_VERSIONS: Final = frozenset(kind.api_version for kind in _LEGACY)


class ClusterObjects(Struct, frozen=True, dict=True):
    """All objects that matter, by kind.

    Attributes:
        taken: when it was read: what a decision on it takes for now.
        unread: what could not be read and is taken not to be there, a sentence each.
        closed_nodes: those with pods that can't be read: nobody knows what is free there.
        home: the namespace that Muster is installed in, whose ConfigMaps these are.
        serves_legacy: whether kube-batch's API groups are served; None where nobody said so, as in a dump.
        autoscaler: the name of the program that makes nodes for pods; empty where none was seen.
    """

    taken: datetime
    objects: Mapping[Kind[Any], tuple[Any, ...]]
    unread: tuple[str, ...] = ()
    serves_legacy: bool | None = None
    autoscaler: str = ""
    closed_nodes: frozenset[str] = frozenset()
    home: str = names.SYSTEM_NAMESPACE

    # A short one: asyncio.run writes one of what its coroutine gave, whether somebody reads it or not.
    def __repr__(self) -> str:
        return f"State(taken={self.taken})"

    def of(self, kind: Kind[T], namespace: str = "") -> tuple[T, ...]:
        """Return the objects of a kind, of one namespace or of all."""
        found: tuple[T, ...] = self.objects.get(kind, ())
        return self.by_namespace(kind).get(namespace, ()) if namespace else found

    def find(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """Return an object, or None."""
        return next((each for each in self.by_namespace(kind).get(namespace, ()) if each.name == name), None)

    def by_namespace(self, kind: Kind[T]) -> Mapping[str, tuple[T, ...]]:
        """Return the objects of a kind by namespace; once, for who asks about one pod of ten thousand asks about several."""
        known = self.indexed
        if kind not in known:
            found: defaultdict[str, list[T]] = defaultdict(list)
            for each in self.objects.get(kind, ()):
                found[each.metadata.namespace].append(each)
            known[kind] = {namespace: tuple(items) for namespace, items in found.items()}
        return known[kind]

    @cached_property
    def indexed(self) -> dict[Kind[Any], Mapping[str, tuple[Any, ...]]]:
        """The objects of some kinds by namespace: of those that somebody has asked about."""
        return {}

    def with_kind(self, kind: Kind[Any], added: Iterable[Any], gone: Iterable[Any] = ()) -> ClusterObjects:
        """Return a state without objects of a kind that are ``gone``, and with others ``added``; either by their names.

        It costs what the namespaces have that are touched: an answer adds a few objects to ten thousand, several times.
        """
        new = tuple(added)
        new_of: defaultdict[str, list[Any]] = defaultdict(list)
        for each in new:
            new_of[each.namespace].append(each)
        left_out = {(each.namespace, each.name) for each in (*new, *gone)}
        index = dict(self.by_namespace(kind))
        replaced: set[int] = set()
        for namespace in {namespace for namespace, _ in left_out}:
            before = index.get(namespace, ())
            rest = [each for each in before if (namespace, each.name) not in left_out]
            if len(rest) < len(before):
                replaced |= {id(each) for each in before if (namespace, each.name) in left_out}
            index[namespace] = (*rest, *new_of[namespace])
        items = self.objects.get(kind, ())
        kept = [each for each in items if id(each) not in replaced] if replaced else items
        after = replace(self, objects={**self.objects, kind: (*kept, *new)})
        after.indexed.update({**self.indexed, kind: index})
        return after

    def changes_from(self, before: ClusterObjects) -> ObjectChanges | None:
        """Return what is new here against a state that this one was made of by `with_objects`; None where more differs.

        It costs what the namespaces have that differ.
        """
        if replace(before, objects=self.objects) != self:
            return None
        found: dict[Kind[Any], list[tuple[Any, Any]]] = {}
        for kind in self.objects:
            if self.objects[kind] is before.objects.get(kind):
                continue
            old_ones, pairs = before.by_namespace(kind), list[tuple[Any, Any]]()
            for namespace, items in self.by_namespace(kind).items():
                if items is old_ones.get(namespace):
                    continue
                old = {each.name: each for each in old_ones.get(namespace, ())}
                pairs += [
                    (was, each) for each in items if (was := old.pop(each.name, None)) is not each and was != each
                ]
                if old:
                    return None
            if not self.by_namespace(kind).keys() >= old_ones.keys():
                return None
            if pairs:
                found[kind] = pairs
        return found

    def ledger(self, namespace: str) -> Table | None:
        """Return what a namespace has reserved; None where there is no ledger, or one that can't be read."""
        ledger = self.find(kinds.QUOTALEDGERS, names.LEDGER_NAME, namespace)
        try:
            return Table.parse(ledger.data) if ledger is not None else None
        except MalformedLedgerError:
            return None  # `malformed` tells of it

    def malformed(self) -> Iterator[str]:
        """Tell which ledgers can't be read."""
        for ledger in self.of(kinds.QUOTALEDGERS):
            try:
                Table.parse(ledger.data)
            except MalformedLedgerError as error:
                yield f"QuotaLedger {ledger.namespace}/{ledger.name}: {error}; delete it, and it is made again"

    def legacy(self, wanted: Iterable[str]) -> bool:
        """Whether kube-batch's API groups count: they are served, or, as far as one knows, in use, be it by what is ``wanted`` (apiVersions)."""
        if self.serves_legacy is not None:
            return self.serves_legacy
        return any(map(self.objects.get, _LEGACY)) or not LEGACY_VERSIONS.isdisjoint(wanted)


def with_objects(
    state: ClusterObjects,
    added: Mapping[Kind[Any], Iterable[Any]],
    gone: Mapping[Kind[Any], Iterable[Any]] | None = None,
) -> ClusterObjects:
    """Return a state with objects ``added``, or put in the place of those of the same names, and others ``gone``."""
    for kind, items in added.items():
        state = state.with_kind(kind, items)
    for kind, items in (gone or {}).items():
        state = state.with_kind(kind, (), items)
    return state


def ledger_view(state: ClusterObjects, namespace: str, schedulers: Collection[str]) -> LedgerView:
    """Return what exists in a namespace, as the ledger counts it; what has no version that counts is newer than all else.

    ``schedulers``: the names of those whose pods are members of the groups that they name.
    """
    groups = {kind.group: map(_versioned, state.of(kind, namespace)) for kind in PODGROUPS}
    quotas, pods = state.of(kinds.RESOURCEQUOTAS, namespace), state.of(kinds.PODS, namespace)
    claims = map(_versioned, state.of(kinds.RESOURCECLAIMS, namespace))
    return view_of_lists(groups, map(_versioned, quotas), map(_versioned, pods), schedulers, claims)


def _versioned(item: T) -> T:
    if item.metadata.resource_version.isdecimal():
        return item
    return replace(item, metadata=replace(item.metadata, resource_version=_TO_COME))
