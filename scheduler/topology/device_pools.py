"""Pools of devices: which slices of a pool are current, whether they are whole, and what a node may have of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from muster.model.objects import Node
from scheduler.model.devices import CounterName, Device, Slice


class PoolState(Enum):
    """Whether devices of a pool may be allocated."""

    WHOLE = "whole"
    INCOMPLETE = "being updated"
    INVALID = "invalid"


class Pool(Struct, frozen=True):
    """The current generation of a pool."""

    driver: str
    name: str
    state: PoolState
    slices: tuple[Slice, ...] = ()
    counters: Mapping[CounterName, int] = {}

    def state_for(self, node: Node) -> PoolState:
        """Return whether its devices may be allocated on a node: there, a name may be that of one device only."""
        names = [device.id.name for each in self._near(node) for device in each.devices]
        return PoolState.INVALID if self.state is PoolState.WHOLE and len(set(names)) < len(names) else self.state

    def of_node(self, node: Node) -> tuple[Device, ...]:
        """List the devices that a node reaches."""
        return tuple(
            device
            for each in self._near(node)
            for device in each.devices
            if each.placement is not None or _own(device, node)
        )

    def concerns(self, node: Node) -> bool:
        """Whether a node reaches something of it, as far as is known."""
        return bool(self.counters) or bool(self._near(node))

    def _near(self, node: Node) -> list[Slice]:
        return [
            each
            for each in self.slices
            if (
                each.placement.reaches(node)
                if each.placement is not None
                else any(_own(one, node) for one in each.devices)
            )
        ]


class UsableDevice(NamedTuple):
    """A device that a node reaches, of a pool that is whole."""

    pool: Pool
    device: Device


class ReachedDevices(NamedTuple):
    """What a node reaches: the pools, and the devices of those that are whole."""

    pools: tuple[Pool, ...]
    devices: tuple[UsableDevice, ...]


def reached_from(node: Node, among: Iterable[Pool]) -> ReachedDevices:
    """Return what a node reaches of some pools."""
    near = tuple(each for each in among if each.concerns(node))
    whole = (each for each in near if each.state_for(node) is PoolState.WHOLE)
    return ReachedDevices(near, tuple(UsableDevice(pool, device) for pool in whole for device in pool.of_node(node)))


def _own(device: Device, node: Node) -> bool:
    return device.placement is not None and device.placement.reaches(node)


def pools(slices: Iterable[Slice]) -> tuple[Pool, ...]:
    """Return the pools, each of its newest generation only, in the order of their names."""
    newest: dict[tuple[str, str], list[Slice]] = {}
    for each in sorted(slices, key=lambda one: one.name):
        there = newest.setdefault((each.driver, each.pool), [])
        if there and there[0].generation < each.generation:
            there.clear()
        if not there or there[0].generation == each.generation:
            there.append(each)
    return tuple(_pool(driver, name, tuple(newest[driver, name])) for driver, name in sorted(newest))


def _pool(driver: str, name: str, slices: tuple[Slice, ...]) -> Pool:
    if any(each.of != len(slices) for each in slices):
        return Pool(driver, name, PoolState.INCOMPLETE, slices)
    counters = {counter: amount for each in slices for counter, amount in each.counters.items()}
    groups = [group for each in slices for group in {counter.of for counter in each.counters}]
    known = all(counter in counters for each in slices for device in each.devices for counter, _ in device.consumes)
    repeats = len(set(groups)) < len(groups) or any(each.repeats for each in slices)
    valid = known and not repeats
    return Pool(driver, name, PoolState.WHOLE if valid else PoolState.INVALID, slices, counters)
