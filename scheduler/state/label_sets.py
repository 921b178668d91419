"""Sets of labels, and those of them that a term chooses: found for all of them at once.

A selector is evaluated by unions and differences of sets, key by key: a term that excludes one value of a label chooses thousands of
label sets, and one by one each costs as much as all of them do here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from muster.model.labels import matches
from muster.model.objects import LabelSelectorRequirement
from scheduler.model.affinity import Labels, PodSelection, PodSet


class Labelled(Protocol):
    """What has labels in a namespace."""

    @property
    def namespace(self) -> str:
        """Where it is."""

    @property
    def labels(self) -> Labels:
        """What it has."""


T = TypeVar("T", bound=Labelled)


class LabelSets(Generic[T]):
    """Sets of labels, by each key that is asked for; good for as long as they are the same."""

    def __init__(self, members: Collection[T], namespace_labels: Callable[[str], Labels]) -> None:
        self._all = dict.fromkeys(members).keys()
        self._namespace_labels = namespace_labels
        self._by_key: dict[str, dict[str, set[T]]] = {}
        self._by_namespace: dict[str, set[T]] | None = None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._all)

    def chosen(self, peers: PodSet) -> Collection[T]:
        """Return those that are in the set."""
        first, *others = peers.selections
        found = self._chosen(first)
        for each in others:
            if not found:
                break
            found = found & self._chosen(each)
        return found

    def comparisons(self, peers: PodSet, others: int = 0) -> int:
        """Return how many of them may be in the set: those with a label that it names, or all and ``others``."""
        return min(
            (sum(len(found) for found in each) for one in peers.selections for each in self._required(one)),
            default=len(self._all) + others,
        )

    def _chosen(self, selection: PodSelection) -> set[T]:
        selector = selection.selector
        if selector is None:
            return set()
        found: set[T] | None = None
        for required in self._required(selection):
            union = set[T]().union(*required)
            found = union if found is None else found & union
        found = set(self._all) if found is None else found
        for each in selector.match_expressions or ():
            found = self._without(found, each)
        return self._in_namespaces(found, selection) if found else found

    def _required(self, selection: PodSelection) -> Iterator[list[set[T]]]:
        """Return, for each label that members must have, those with each of its values."""
        selector = selection.selector
        if selector is None:
            yield []
            return
        for key, value in (selector.match_labels or {}).items():
            yield [self._values(key).get(value, set())]
        for each in selector.match_expressions or ():
            if each.operator == "In":
                yield [self._values(each.key).get(value, set()) for value in set(each.values or ())]
            elif each.operator == "Exists":
                yield list(self._values(each.key).values())

    def _without(self, found: set[T], requirement: LabelSelectorRequirement) -> set[T]:
        by_value = self._values(requirement.key)
        match requirement.operator:
            case "In" | "Exists":
                return found
            case "NotIn":
                return found.difference(*[by_value.get(value, ()) for value in requirement.values or ()])
            case "DoesNotExist":
                return found.difference(*by_value.values())
            case _:
                return set()

    def _in_namespaces(self, found: set[T], selection: PodSelection) -> set[T]:
        if self._by_namespace is None:
            self._by_namespace = _grouped((each.namespace, each) for each in self._all)
        wanted = selection.namespace_selector
        open_ = [
            members
            for name, members in self._by_namespace.items()
            if name in selection.namespaces or (wanted is not None and matches(wanted, self._namespace_labels(name)))
        ]
        return found if len(open_) == len(self._by_namespace) else found & set[T]().union(*open_)

    def _values(self, key: str) -> dict[str, set[T]]:
        by_value = self._by_key.get(key)
        if by_value is None:
            by_value = self._by_key[key] = _grouped(
                (each.labels[key], each) for each in self._all if key in each.labels
            )
        return by_value


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, set[T]]:
    found: dict[str, set[T]] = {}
    for value, each in pairs:
        found.setdefault(value, set()).add(each)
    return found
