"""Claims for some devices of one kind, which need no search: where a node's devices that suit are free, any of them will do.

`PlainDevices` has what follows from slices and classes alone; `DeviceCounts` has how many such claims each node can still meet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

import numpy as np

from muster.model.objects import Node
from scheduler.model.devices import MOST_RESULTS, ClaimedDevices, DeviceId, DeviceRequest
from scheduler.model.vectors import Mask, Rows
from scheduler.topology.device_budget import DeviceAccount
from scheduler.topology.device_pools import Pool, PoolState
from scheduler.topology.device_selectors import SelectorError, Selectors

UNKNOWN: Final = -1
_MOST_KINDS: Final = 64
"""Kinds of requests that are remembered."""

_Kind = tuple[str, tuple[str, ...], tuple[tuple[str, str, str, str], ...]]
Suitable = Sequence[tuple[DeviceId, ...]]
"""By row, the devices that suit a request, in the order in which they are tried."""


def only_request(shape: Sequence[ClaimedDevices]) -> DeviceRequest | None:
    """Return what a pod's claims request, where that is a number of devices that don't depend on each other."""
    if len(shape) != 1 or shape[0].constraints or len(shape[0].requests) != 1 or len(shape[0].requests[0]) != 1:
        return None
    request = shape[0].requests[0][0]
    return request if not request.admin and request.count is not None and request.count <= MOST_RESULTS else None


class PlainDevices:
    """The devices of each node that suit a request, kept while slices, classes and nodes don't change."""

    def __init__(
        self, near: Callable[[str], Sequence[Pool]], classes: dict[str, tuple[str, ...]], selectors: Selectors
    ) -> None:
        self._near, self._classes, self._selectors = near, classes, selectors
        self._known: dict[_Kind, Suitable | None] = {}

    def suitable(self, request: DeviceRequest, nodes: Sequence[Node], account: DeviceAccount) -> Suitable | None:
        """Return the devices that suit a request; None where that depends on more than the device.

        Raises:
            BudgetError: the account that pays has nothing left.
        """
        kind = (request.device_class, request.selectors, request.tolerations)
        if kind not in self._known:
            if len(self._known) == _MOST_KINDS:
                self._known.clear()
            self._known[kind] = self._find(request, nodes, account)
        return self._known[kind]

    def _find(self, request: DeviceRequest, nodes: Sequence[Node], account: DeviceAccount) -> Suitable | None:
        expressions = self._classes.get(request.device_class)
        if expressions is None:
            return None
        found = []
        for node in nodes:
            there = self._of_node(request, (*expressions, *request.selectors), node, account)
            if there is None:
                return None
            found.append(there)
        return found

    def _of_node(
        self, request: DeviceRequest, expressions: tuple[str, ...], node: Node, account: DeviceAccount
    ) -> tuple[DeviceId, ...] | None:
        pools = [pool for pool in self._near(node.name) if pool.state_for(node) is PoolState.WHOLE]
        devices = [device for pool in pools for device in pool.of_node(node) if device.offered]
        if any(pool.counters for pool in pools) or any(device.consumes for device in devices):
            return None
        try:
            # An expression that has no value for a device matters only where that is tried: the search knows.
            return tuple(
                device.id
                for device in devices
                if self._selectors.choose(expressions, device, account) and all(map(request.tolerates, device.taints))
            )
        except SelectorError:
            return None


class DeviceSupply(NamedTuple):
    """How many devices suit a request, how many of them are free on each node, and for how many pods, [nodes]."""

    suitable: int
    free: Rows
    pods: Rows


class DeviceCounts:
    """How many claims that make one request each node can meet, and with which devices.

    ``taken`` changes under way: `touched` tells where.
    """

    def __init__(self, request: DeviceRequest, suitable: Suitable, taken: Collection[DeviceId]) -> None:
        self.request, self._suitable, self._taken = request, suitable, taken
        self._each = request.count or 1
        self._counts = np.full(len(suitable), UNKNOWN, dtype=np.intp)
        if not taken:
            self._counts[:] = np.fromiter(map(len, suitable), dtype=np.intp, count=len(suitable)) // self._each

    def unmet(self, rows: Rows, ahead: Rows | None) -> Mask:
        """Tell which of some nodes can't meet one more, [rows]; ``ahead``: how many more it is to meet before."""
        counts = self._counts[rows]
        if (counts == UNKNOWN).any():
            for row in set(rows[counts == UNKNOWN].tolist()):
                self._counts[row] = len(self._free(row)) // self._each
            counts = self._counts[rows]
        unmet: Mask = counts <= (0 if ahead is None else ahead)
        return unmet

    def choose(self, row: int) -> list[DeviceId] | None:
        """Return the devices that the next claim gets on a node; None where there aren't as many."""
        found = []
        for each in self._suitable[row]:
            if each not in self._taken:
                found.append(each)
                if len(found) == self._each:
                    return found
        return None

    def supply(self) -> DeviceSupply:
        """Return what there is now."""
        free = np.fromiter((len(self._free(row)) for row in range(len(self._suitable))), dtype=np.intp)
        return DeviceSupply(sum(map(len, self._suitable)), free, free // self._each)

    def touched(self, rows: slice) -> None:
        """Note that other devices of nodes are free than were."""
        self._counts[rows] = UNKNOWN

    def _free(self, row: int) -> list[DeviceId]:
        return [each for each in self._suitable[row] if each not in self._taken]
