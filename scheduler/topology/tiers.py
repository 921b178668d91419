"""The network between nodes as a tree: tiers of domains, of which the closest is tier 1.

It comes from HyperNodes where there are any, else from the node labels that the configuration lists. What is wrong with
one HyperNode (a circle, two that share a node in one tier, a pattern that can't be read) is told, and stops no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from muster.cel.regular import PatternError, compile_pattern
from muster.cel.values import CelError
from muster.model import labels
from muster.model.objects import HyperNode, HyperNodeMember
from scheduler.model.network_topology import HyperNodes, TopologyConstraint
from scheduler.model.node_table import NodeTable
from scheduler.model.vectors import Mask, Rows, read_only

NOWHERE: Final = -1
"""The domain of a node that is in none of a tier."""
_LONGEST: Final = 256
"""Characters of a pattern; a longer one isn't tried."""
_MOST_STEPS: Final = 5_000_000
"""How many steps all patterns together may take that can't be matched at once: a few seconds."""
_LONGEST_WAY: Final = 200
"""HyperNodes that are looked at for a circle."""
_MOST_FAULTS: Final = 20


class Tier(Struct, frozen=True, eq=False, dict=True):
    """The domains of one size, none of which share a node.

    Attributes:
        number: the smaller, the closer.
        label: what people call it: the tier's name, or the last part of the label's key; empty where nobody said.
        names: the domains' names.
        codes: the domain of each node as a place in ``names``, `NOWHERE` of those that are in none, [nodes].
        key: the node label's whole key; empty where HyperNodes say it.
    """

    number: int
    label: str
    names: tuple[str, ...]
    codes: Rows
    key: str = ""

    @property
    def word(self) -> str:
        """What to call a domain of it in a sentence."""
        return self.label or f"domain of tier {self.number}"

    @cached_property
    def places(self) -> Rows:
        """``codes`` with one more place for `NOWHERE`, to count by."""
        return read_only(np.where(self.codes >= 0, self.codes, len(self.names)))

    def mask(self, domain: int) -> Mask:
        """Tell which nodes are in a domain."""
        chosen: Mask = self.codes == domain
        return chosen


class TopologyTree(Struct, frozen=True, eq=False):
    """The tiers, the closest first, and what is wrong with what they were read from, a sentence each."""

    tiers: tuple[Tier, ...] = ()
    faults: tuple[str, ...] = ()

    def allowed(self, constraint: TopologyConstraint) -> tuple[Tier, ...]:
        """Return the tiers whose domains will do, the closest first; none where the one that is named doesn't exist."""
        highest = constraint.highest_tier
        if constraint.tier_name:
            named = [
                tier.number for tier in self.tiers if labels.means_tier(constraint.tier_name, tier.label, tier.key)
            ]
            if not named:
                return ()
            highest = max(named) if highest is None else min(highest, max(named))
        return tuple(tier for tier in self.tiers if highest is None or tier.number <= highest)


def read(table: NodeTable, hypernodes: HyperNodes, keys: Sequence[str]) -> TopologyTree:
    """Read the tiers from HyperNodes where there are any, else from node labels."""
    return of_hypernodes(table, hypernodes) if hypernodes.items else of_labels(table, keys)


def of_labels(table: NodeTable, keys: Sequence[str]) -> TopologyTree:
    """Read the tiers from node labels, the widest first.

    A domain is told apart by the values of all wider labels, too: racks of two zones may have one name. A node that lacks a
    label is in no domain of it.
    """
    tiers: list[Tier] = []
    for depth in range(len(keys)):
        numbers: dict[tuple[str, ...], int] = {}
        codes = []
        for node in table.nodes:
            has = node.metadata.labels or {}
            values = tuple(has.get(key, "") for key in keys[: depth + 1])
            codes.append(numbers.setdefault(values, len(numbers)) if values[-1] else NOWHERE)
        shown = _short_names(list(numbers))
        label = keys[depth].rpartition("/")[2]
        tiers.append(Tier(len(keys) - depth, label, shown, read_only(np.array(codes, dtype=np.intp)), keys[depth]))
    return TopologyTree(tuple(reversed(tiers)))


def _short_names(values: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Name domains by their own value, and by the wider ones where that is ambiguous."""
    often = Counter(each[-1] for each in values)
    return tuple(each[-1] if often[each[-1]] == 1 else "/".join(each) for each in values)


def of_hypernodes(table: NodeTable, hypernodes: HyperNodes) -> TopologyTree:
    """Read the tiers from HyperNodes."""
    return _HyperNodeReader(table, hypernodes.items).tree()


class _HyperNodeReader:
    def __init__(self, table: NodeTable, items: Iterable[HyperNode]) -> None:
        self._table = table
        self._items: Mapping[str, HyperNode] = {each.name: each for each in items}
        self._faults: list[str] = []
        self._rows: dict[str, frozenset[int]] = {}
        self._steps = _MOST_STEPS

    def tree(self) -> TopologyTree:
        for name in self._items:
            self._find(name, ())
        numbers = sorted({each.spec.tier for each in self._items.values() if each.spec.tier > 0})
        tiers = tuple(self._tier(number) for number in numbers)
        return TopologyTree(tiers, self._told())

    def _told(self) -> tuple[str, ...]:
        unique = list(dict.fromkeys(self._faults))
        more = len(unique) - _MOST_FAULTS
        return (*unique[:_MOST_FAULTS], *([f"{more} more HyperNodes can't be used as they are"] if more > 0 else ()))

    def _tier(self, number: int) -> Tier:
        members = [each for each in self._items.values() if each.spec.tier == number]
        codes = np.full(len(self._table.nodes), NOWHERE, dtype=np.intp)
        names: list[str] = []
        for each in members:
            rows = sorted(self._rows[each.name])
            taken = [row for row in rows if codes[row] != NOWHERE]
            if taken:
                other, node = names[codes[taken[0]]], self._table.names[taken[0]]
                self._faults.append(
                    f"HyperNodes {other} and {each.name} of tier {number} share node {node}: it counts as of {other}; "
                    "a node belongs to one of each tier"
                )
            names.append(each.name)
            codes[[row for row in rows if codes[row] == NOWHERE]] = len(names) - 1
        label = min((each.spec.tier_name for each in members if each.spec.tier_name), default="")
        return Tier(number, label, tuple(names), read_only(codes))

    def _find(self, name: str, above: tuple[str, ...]) -> frozenset[int]:
        """Return the rows of a HyperNode's nodes, of those of its members, too."""
        known = self._rows.get(name)
        if known is not None:
            return known
        item = self._items[name]
        rows: set[int] = set()
        for member in item.spec.members or ():
            rows |= self._members(item, member, (*above, name))
        self._rows[name] = frozenset(rows)
        return self._rows[name]

    def _members(self, item: HyperNode, member: HyperNodeMember, above: tuple[str, ...]) -> set[int]:
        if member.type != "HyperNode":
            return {self._table.row[name] for name in self._chosen(item, member, self._table.names)}
        rows: set[int] = set()
        for child in self._chosen(item, member, self._items):
            if child in above:
                circle = " > ".join((*above[above.index(child) :], child))
                self._faults.append(f"HyperNodes are members of each other: {circle}; one of them has to go")
            elif self._items[child].spec.tier >= item.spec.tier and (way := self._way(child, item.name, set())):
                circle = " > ".join((item.name, *way))
                self._faults.append(f"HyperNodes are members of each other: {circle}; one of them has to go")
            elif self._items[child].spec.tier >= item.spec.tier:
                tiers = f"tier {self._items[child].spec.tier} in one of tier {item.spec.tier}"
                self._faults.append(
                    f"HyperNode {child} is a member of {item.name}, {tiers}: a member's tier is lower; it doesn't count"
                )
            else:
                rows |= self._find(child, above)
        return rows

    def _way(self, name: str, to: str, seen: set[str]) -> tuple[str, ...]:
        """Return the HyperNodes by which one contains another, both among them; none where it doesn't. Those listed by name count."""
        seen.add(name)
        for member in self._items[name].spec.members or ():
            exact = member.selector.exact_match
            child = exact.name if exact is not None and member.type == "HyperNode" else ""
            if child == to:
                return name, child
            if (
                child in self._items
                and child not in seen
                and len(seen) < _LONGEST_WAY
                and (way := self._way(child, to, seen))
            ):
                return (name, *way)
        return ()

    def _chosen(self, item: HyperNode, member: HyperNodeMember, among: Iterable[str]) -> list[str]:
        selector, there = member.selector, among
        if selector.exact_match is not None:
            return [selector.exact_match.name] if selector.exact_match.name in set(there) else []
        if selector.regex_match is not None:
            return self._matching(item, selector.regex_match.pattern, there)
        if selector.label_match is not None and member.type != "HyperNode":
            nodes = self._table.nodes
            return [node.name for node in nodes if labels.matches(selector.label_match, node.metadata.labels)]
        return []

    def _matching(self, item: HyperNode, pattern: str, among: Iterable[str]) -> list[str]:
        shown, listed = f"HyperNode {item.name}: the pattern {pattern[:60]!r}", tuple(among)
        if len(pattern) > _LONGEST:
            self._faults.append(f"{shown} isn't used: it is longer than {_LONGEST} characters")
            return []
        try:
            found, steps = compile_pattern(pattern).matches(listed, self._steps)
        except PatternError as error:
            self._faults.append(f"{shown} can't be read: {error}")
        except CelError:
            self._faults.append(f"{shown} isn't used: trying it takes too long; write a simpler one, or labelMatch")
        else:
            self._steps -= steps
            return [name for name, matches in zip(listed, found, strict=True) if matches]
        return []
