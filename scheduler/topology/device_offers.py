"""Answers that follow from the slices and classes of devices alone, kept while these don't change."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from muster.model.objects import Node
from scheduler.model.cache import Cache
from scheduler.model.claims import OfferedDevices
from scheduler.model.devices import DeviceId, Placement
from scheduler.topology.device_counts import PlainDevices
from scheduler.topology.device_pools import Pool, ReachedDevices, pools, reached_from
from scheduler.topology.device_selectors import Selectors

SELECTORS: Final = "device selectors"
"""The question in a cache whose answer are `Selectors`."""


class DeviceOffers:
    """The pools that nodes reach, and the devices that suit requests."""

    def __init__(self, offers: OfferedDevices, selectors: Selectors) -> None:
        self.classes, self.selectors = offers.classes, selectors
        selectors.keep(device for part in offers.slices for device in part.devices)
        self.of_node: dict[str, list[Pool]] = {}
        self.shared: list[Pool] = []
        self.placements: dict[DeviceId, Placement] = {}
        self.plain = PlainDevices(self.near, dict(offers.classes), self.selectors)
        for pool in pools(offers.slices):
            names = {part.placement.name if part.placement is not None else "" for part in pool.slices}
            if len(names) == 1 and "" not in names:
                self.of_node.setdefault(names.pop(), []).append(pool)
            else:
                self.shared.append(pool)
            for part in pool.slices:
                for device in part.devices:
                    self.placements[device.id] = part.placement or device.placement or Placement()
        parts = [part for pool in self.shared for part in pool.slices]
        stated = [part.placement for part in parts] + [device.placement for part in parts for device in part.devices]
        self._reaching = tuple(dict.fromkeys(each for each in stated if each is not None))
        self._alike: dict[str, Hashable] = {}
        self._reached: dict[Hashable, ReachedDevices] = {}

    def alike(self, node: Node) -> Hashable:
        """Return what is equal for nodes that reach the same devices."""
        known = self._alike.get(node.name)
        if known is None:
            alone = node.name in self.of_node
            known = node.name if alone else tuple(each.reaches(node) for each in self._reaching)
            self._alike[node.name] = known
        return known

    def reached(self, node: Node) -> ReachedDevices:
        """Return what a node reaches."""
        alike = self.alike(node)
        known = self._reached.get(alike)
        if known is None:
            known = self._reached[alike] = reached_from(node, self.near(node.name))
        return known

    def near(self, node: str) -> tuple[Pool, ...]:
        """Return the pools that a node may reach something of, in the order of their names."""
        own = self.of_node.get(node, [])
        found = sorted([*own, *self.shared], key=lambda pool: (pool.driver, pool.name)) if self.shared else own
        return tuple(found)


def offers_of(stated: OfferedDevices, cache: Cache, known: DeviceOffers | None = None) -> DeviceOffers:
    """Return what follows, as a table of nodes remembers it; ``known``: what another table with the same nodes does."""
    selectors = cache.get(SELECTORS, Selectors)
    return cache.get_latest("devices", stated, lambda: known if known is not None else DeviceOffers(stated, selectors))
