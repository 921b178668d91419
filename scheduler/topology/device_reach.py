"""The nodes that reach devices, and those among them that reach the same ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property

import numpy as np

from muster.model.objects import NodeSelector, NodeSelectorTerm
from scheduler.model.devices import DeviceId, Placement
from scheduler.model.node_table import NodeTable
from scheduler.model.vectors import Mask, Rows
from scheduler.topology.device_offers import DeviceOffers


class DeviceReach:
    """The nodes of one session, as devices see them."""

    def __init__(self, table: NodeTable, offers: DeviceOffers) -> None:
        self._table, self._offers = table, offers
        self._reached: dict[Placement, Mask] = {}

    @property
    def local(self) -> bool:
        """Whether no device is reached by more than one node."""
        return not self._offers.shared

    def reached_by(self, reach: Placement) -> Mask:
        """Tell which nodes reach the devices of a claim, [nodes]."""
        known = self._reached.get(reach)
        if known is None:
            nodes, row = self._table.nodes, self._table.row.get(reach.name)
            known = np.zeros(len(nodes), dtype=np.bool_)
            if row is not None:
                known[row] = True
            elif not reach.name:
                known = np.fromiter(map(reach.reaches, nodes), np.bool_, len(nodes))
            self._reached[reach] = known
        return known

    def alike(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """Gather some nodes by what devices they reach: the first of each kind, and all of it."""
        if not self._offers.shared:
            yield from ((row, np.array([row], dtype=np.intp)) for row in set(rows.tolist()))
            return
        if self.all_alike:
            if len(rows):
                yield int(rows[0]), rows
            return
        codes = self._codes[rows]
        for code in np.unique(codes).tolist():
            same = rows[codes == code]
            yield int(same[0]), same

    @cached_property
    def _codes(self) -> Rows:
        numbers: dict[Hashable, int] = {}
        found = (numbers.setdefault(self._offers.alike(node), len(numbers)) for node in self._table.nodes)
        return np.fromiter(found, np.intp, len(self._table.nodes))

    @cached_property
    def all_alike(self) -> bool:
        """Whether all nodes reach the same devices."""
        return not self._codes.any()

    def of(self, devices: Sequence[DeviceId], row: int) -> Placement:
        """Return which nodes reach all devices of a claim."""
        node = self._table.nodes[row]
        placements = [self._offers.placements[each] for each in devices]
        if any(each.name for each in placements):
            return Placement(node.name)
        selectors = [each.selector for each in placements if each.selector is not None]
        if not selectors:
            return Placement(everywhere=True)
        terms = [term for each in selectors for term in each.node_selector_terms or ()]
        both = NodeSelectorTerm(
            match_expressions=tuple(dict.fromkeys(rule for term in terms for rule in term.match_expressions or ()))
            or None,
            match_fields=tuple(dict.fromkeys(rule for term in terms for rule in term.match_fields or ())) or None,
        )
        return Placement(selector=NodeSelector(node_selector_terms=(both,)))
