"""The devices that claims get on a node: all that they request, or nothing.

Source: the package ``structured`` of k8s.io/dynamic-resource-allocation. As there, devices are tried in their order until all fit;
those who write claims choose how much there is to try, so the number of attempts is limited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from muster.model.objects import Node
from scheduler.model.devices import (
    MOST_RESULTS,
    ClaimedDevices,
    CounterName,
    Device,
    DeviceId,
    DeviceRequest,
    MatchAttribute,
)
from scheduler.topology.device_budget import BudgetError, DeviceAccount
from scheduler.topology.device_pools import Pool, PoolState, ReachedDevices, UsableDevice, reached_from
from scheduler.topology.device_selectors import SelectorError, Selectors

MOST_ATTEMPTS: Final = 10_000
"""Devices that are tried for the claims of one pod on one node: about 20 milliseconds."""


class AllocationError(ValueError):
    """Nobody can say whether the claims can be met, or no state of the devices could meet them; the text says why."""


class ChosenDevice(NamedTuple):
    """A device, and the request that gets it."""

    request: DeviceRequest
    device: Device


Chosen = tuple[tuple[ChosenDevice, ...], ...]
"""The devices of each claim."""


class DeviceState(Struct):
    """What there is and what is taken.

    Attributes:
        classes: of each class its expressions.
        taken: the devices that are allocated, but for those with admin access.
        account: who pays for what is tried.
        reached: what the node reaches of the pools, where that is known.
    """

    pools: tuple[Pool, ...]
    classes: Mapping[str, tuple[str, ...]]
    taken: Collection[DeviceId]
    selectors: Selectors
    account: DeviceAccount
    reached: ReachedDevices | None = None


def allocate(state: DeviceState, node: Node, claims: Sequence[ClaimedDevices]) -> Chosen | None:
    """Return the devices that claims get on a node; None where they can't all be met.

    Raises:
        AllocationError: it can't be decided, or is wrong on any node.
    """
    try:
        search = _Search(state, node, claims)
        return search.chosen() if search.claim(0) else None
    except SelectorError as error:
        raise AllocationError(f"the selector {error}") from error
    except BudgetError as error:
        raise AllocationError(str(error)) from error


class _Search:
    def __init__(self, state: DeviceState, node: Node, claims: Sequence[ClaimedDevices]) -> None:
        self._state, self._claims = state, claims
        reached = state.reached if state.reached is not None else reached_from(node, state.pools)
        self._near, self._devices = reached
        self._free_devices = [each for each in self._devices if each.device.id not in state.taken]
        self._everything: dict[DeviceRequest, list[UsableDevice]] = {}
        self._found: list[list[ChosenDevice]] = [[] for _ in claims]
        self._values: list[dict[MatchAttribute, list[Any]]] = [{} for _ in claims]
        self._users: dict[DeviceId, list[int]] = {}
        self._left: dict[tuple[str, str], dict[CounterName, int]] = {}
        self._attempts = MOST_ATTEMPTS
        state.account.spend(1 + len(self._devices))
        for claim in claims:
            for alternatives in claim.requests:
                for each in alternatives:
                    self._check(each, node)

    def chosen(self) -> Chosen:
        return tuple(map(tuple, self._found))

    def _check(self, request: DeviceRequest, node: Node) -> None:
        if request.device_class not in self._state.classes:
            raise AllocationError(f"device class {request.device_class} doesn't exist; create it")
        if request.count is None:
            for pool in self._near:
                state = pool.state_for(node)
                if state is not PoolState.WHOLE:
                    where = f"{pool.driver}/{pool.name}"
                    raise AllocationError(
                        f"request {request.name} is for all devices, and pool {where} is {state.value}"
                    )
            if not all(each.device.offered for each in self._devices):
                raise AllocationError(f"request {request.name} is for all devices, and not all can be evaluated")
            self._everything[request] = [each for each in self._devices if self._suits(request, each.device)]

    def _suits(self, request: DeviceRequest, device: Device) -> bool:
        expressions = (*self._state.classes[request.device_class], *request.selectors)
        return device.offered and self._state.selectors.choose(expressions, device, self._state.account)

    # ── one after the other ──────────────────────────────────────────────────────────────────────────────────────

    def claim(self, number: int) -> bool:
        return number == len(self._claims) or self._request(number, 0)

    def _request(self, claim: int, number: int) -> bool:
        requests = self._claims[claim].requests
        if number == len(requests):
            return self.claim(claim + 1)
        return any(self._alternative(claim, number, each) for each in requests[number])

    def _alternative(self, claim: int, number: int, request: DeviceRequest) -> bool:
        wanted = request.count if request.count is not None else len(self._everything[request])
        if not wanted or len(self._found[claim]) + wanted > MOST_RESULTS:
            return False
        return self._next(claim, number, request, 0, wanted)

    def _next(self, claim: int, number: int, request: DeviceRequest, first: int, wanted: int) -> bool:
        """Find the devices that a request lacks, from the candidate ``first`` on: their order doesn't matter."""
        if not wanted:
            return self._request(claim, number + 1)
        candidates = self._candidates(request)
        # Of all devices none may be left out, so there is one to try.
        last = len(candidates) if request.count is not None else first + 1
        for index in range(first, last):
            if self._take(claim, request, candidates[index]):
                if self._next(claim, number, request, index + 1, wanted - 1):
                    return True
                self._give_back(claim, request, candidates[index])
        return False

    def _candidates(self, request: DeviceRequest) -> Sequence[UsableDevice]:
        if request.count is None:
            return self._everything[request]
        return self._devices if request.admin else self._free_devices

    # ── one device ───────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, claim: int, request: DeviceRequest, usable: UsableDevice) -> bool:
        self._attempts -= 1
        self._state.account.spend(1)
        if self._attempts < 0:
            raise AllocationError("there are too many ways to choose devices; ask for fewer, or for fewer constraints")
        pool, device = usable
        # In this order, so that no expression is evaluated that nothing depends on: it may have no value.
        if not self._free(claim, request, device) or not self._suits(request, device):
            return False
        if not all(map(request.tolerates, device.taints)) or not self._count(pool, device):
            return False
        if not self._agrees(claim, request, device):
            self._uncount(pool, device)
            if request.count is None:
                raise AllocationError(
                    f"request {request.name} is for all devices, and a constraint of its claim excludes one"
                )
            return False
        for rule in self._rules(claim, request):
            self._values[claim].setdefault(rule, []).append(device.attribute(rule.attribute))
        self._users.setdefault(device.id, []).append(claim)
        self._found[claim].append(ChosenDevice(request, device))
        return True

    def _give_back(self, claim: int, request: DeviceRequest, usable: UsableDevice) -> None:
        pool, device = usable
        self._found[claim].pop()
        self._users[device.id].remove(claim)
        for rule in self._rules(claim, request):
            self._values[claim][rule].pop()
        self._uncount(pool, device)

    def _free(self, claim: int, request: DeviceRequest, device: Device) -> bool:
        users = self._users.get(device.id, ())
        # Who only looks after a device takes it from nobody; a claim has each device once.
        return claim not in users if request.admin else not users and device.id not in self._state.taken

    def _rules(self, claim: int, request: DeviceRequest) -> list[MatchAttribute]:
        return [each for each in self._claims[claim].constraints if each.concerns(request.name)]

    def _agrees(self, claim: int, request: DeviceRequest, device: Device) -> bool:
        for rule in self._rules(claim, request):
            value, others = device.attribute(rule.attribute), self._values[claim].get(rule)
            if value is None or (others and not _same(value, others[0])):
                return False
        return True

    def _count(self, pool: Pool, device: Device) -> bool:
        """Take what a device takes of its pool's counters, if there is as much."""
        counters = self._counters(pool) if device.consumes else {}
        for counter, amount in device.consumes:
            counters[counter] -= amount
        if all(amount >= 0 for amount in counters.values()):
            return True
        self._uncount(pool, device)
        return False

    def _uncount(self, pool: Pool, device: Device) -> None:
        for counter, amount in device.consumes:
            self._counters(pool)[counter] += amount

    def _counters(self, pool: Pool) -> dict[CounterName, int]:
        key = (pool.driver, pool.name)
        if key not in self._left:
            left = self._left[key] = dict(pool.counters)
            taken = (each for part in pool.slices for each in part.devices if each.id in self._state.taken)
            for counter, amount in (use for each in taken for use in each.consumes):
                left[counter] -= amount
        return self._left[key]


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    same: bool = one.precedence() == other.precedence() if hasattr(one, "precedence") else one == other
    return same
