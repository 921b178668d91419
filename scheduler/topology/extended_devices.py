"""Extended resources that classes of devices stand for: amounts of nodes as others are, and a claim of each pod that requests some.

A node that has such a resource from a device plugin keeps it. To any other a session gives as much of it as there are devices that suit the
class, so that queues, shares and sentences count it; which devices are free, the claims decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.model.amounts import Resources
from muster.model.objects import Node
from scheduler.model.cache import Cache
from scheduler.model.claims import ClaimState, Devices, OfferedDevices
from scheduler.model.constraints import Constraints
from scheduler.model.devices import ClaimedDevices, DeviceId, DeviceRequest
from scheduler.model.extended_resources import OWN, key_of, to_be_made
from scheduler.model.node_table import NodeTable
from scheduler.model.pod_claims import PodClaim
from scheduler.model.snapshot import Snapshot, Task, TaskClass
from scheduler.model.vectors import Mask, read_only
from scheduler.topology.device_budget import ALL, BudgetError, DeviceAccount
from scheduler.topology.device_counts import Suitable
from scheduler.topology.device_offers import DeviceOffers, offers_of
from scheduler.topology.device_pools import PoolState

_Requests = tuple[tuple[DeviceRequest, ...], ...]


class ExtendedClaims:
    """The claims that pods are to have for their extended resources, in one session."""

    def __init__(self, offers: OfferedDevices, nodes: Sequence[Node]) -> None:
        self._classes, self._nodes = offers.extended, nodes
        self._plugged: dict[str, Mask] = {}
        self._claims: dict[str, ClaimState] = {}
        self._needing: dict[TaskClass, bool] = {}

    @property
    def namespaces(self) -> set[str]:
        """The namespaces that have such claims."""
        return {each.key.namespace for each in self._claims.values()}

    def requests(self, request: Resources) -> _Requests:
        """Return what the claim of a pod requests; nothing where it needs none."""
        if not self._classes:
            return ()
        wanted = sorted(name for name, amount in request.nano.items() if amount > 0 and name in self._classes)
        return tuple((DeviceRequest(name, self._classes[name], request.units(name)),) for name in wanted)

    def needed(self, kind: TaskClass) -> bool:
        """Whether pods of a class need such a claim, wherever they go."""
        known = self._needing.get(kind)
        if known is None:
            known = self._needing[kind] = bool(self.requests(kind.request))
        return known

    def claiming(self, task: Task) -> TaskClass:
        """Return the class of a task with the claim that it is to have among its demands; its own where it needs none."""
        kind = task.task_class
        if not self.needed(kind):
            return kind
        wanted = ClaimedDevices(self.requests(kind.request), (), task.namespace, extended=True)
        self._claims[task.uid] = ClaimState(key_of(task.namespace, task.uid), "", wanted)
        demands = kind.constraints
        return replace(kind, constraints=_with_claim(demands, PodClaim(task.uid, OWN, None)))

    def claim(self, mentioned: PodClaim) -> ClaimState | None:
        """Return the claim that a pod is to have, where that is the one mentioned."""
        return self._claims.get(mentioned.maker) if mentioned.name == OWN else None

    # ── nodes that have the resource from a device plugin ────────────────────────────────────────────────────────

    def plugged(self, resource: str) -> Mask:
        """Tell which nodes have a resource from a device plugin, [nodes]."""
        if resource not in self._plugged:
            found = np.fromiter((_has(node, resource) for node in self._nodes), np.bool_, len(self._nodes))
            self._plugged[resource] = found
        return self._plugged[resource]

    def varies(self, shape: Sequence[ClaimedDevices]) -> bool:
        """Whether some nodes have of themselves what claims would request elsewhere."""
        return any(self.plugged(each).any() for each in _resources(shape))

    def variants(self, shape: tuple[ClaimedDevices, ...]) -> Iterator[tuple[tuple[ClaimedDevices, ...], Mask]]:
        """Iterate over what claims request, and the nodes where they request that, [nodes]."""
        resources = list(_resources(shape))
        have = np.stack([self.plugged(each) for each in resources])
        kinds, of_nodes = np.unique(have, axis=1, return_inverse=True)
        for number, kind in enumerate(kinds.T.tolist()):
            there = {name for name, has in zip(resources, kind, strict=True) if has}
            left = tuple(claim for each in shape if (claim := _without(each, there)) is not None)
            yield left, of_nodes.reshape(-1) == number

    def at(self, claims: Sequence[ClaimState], row: int) -> list[ClaimState]:
        """Return claims as they are on one node: without what that has from a device plugin."""
        found = []
        for each in claims:
            if each.wanted is None or not each.wanted.extended:
                found.append(each)
                continue
            there = {name for name in _resources([each.wanted]) if self.plugged(name)[row]}
            wanted = _without(each.wanted, there)
            if wanted is not None:
                found.append(replace(each, wanted=wanted) if there else each)
        return found


def _with_claim(demands: Constraints, claim: PodClaim) -> Constraints:
    signature = b"".join([demands.signature, OWN.encode(), claim.maker.encode()])
    return replace(demands, devices=(*demands.devices, claim), signature=signature)


def _resources(shape: Sequence[ClaimedDevices]) -> Iterator[str]:
    return (request.name for each in shape if each.extended for (request,) in each.requests)


def _without(claim: ClaimedDevices, there: set[str]) -> ClaimedDevices | None:
    if not claim.extended or not there:
        return claim
    left = tuple(line for line in claim.requests if line[0].name not in there)
    return replace(claim, requests=left) if left else None


def _has(node: Node, resource: str) -> bool:
    return str((node.status.allocatable or {}).get(resource, "0")) != "0"


# ── amounts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Supply(Struct, frozen=True, eq=False):
    """A node table with devices as amounts, and of each such column its place, the nodes that it is about, and their devices."""

    table: NodeTable
    columns: tuple[tuple[int, Mask, Suitable], ...]


def with_devices(snapshot: Snapshot, of_nodes: Callable[[NodeTable], Cache]) -> Snapshot:
    """Return a snapshot whose nodes have as amounts what classes of devices stand for; itself where no pod requests such."""
    view = snapshot.devices
    if view.offers.extended.keys().isdisjoint(snapshot.axes.names):
        return snapshot
    cache = of_nodes(snapshot.table)
    offers = offers_of(view.offers, cache)
    supply = cache.get_latest("extended devices", view.offers, lambda: _supply(snapshot.table, view.offers, offers))
    others = view.taken - _taken_for_pods(view)
    idle = snapshot.idle.copy()
    for place, rows, devices in supply.columns:
        # The pods there take of it as of other amounts, so only what other claims have is left out.
        free = [
            sum(one not in others for one in devices[row]) if others else len(devices[row])
            for row in np.flatnonzero(rows).tolist()
        ]
        idle[rows, place] += np.array(free, dtype=np.int64)
    offers_of(view.offers, of_nodes(supply.table), offers)
    return replace(snapshot, table=supply.table, idle=read_only(idle))


def _supply(table: NodeTable, stated: OfferedDevices, offers: DeviceOffers) -> _Supply:
    allocatable, columns = table.allocatable.copy(), []
    account = DeviceAccount("", ALL)
    for place, name in enumerate(table.axes.names):
        if name not in stated.extended:
            continue
        rows = allocatable[:, place] == 0
        devices = _suitable(DeviceRequest(name, stated.extended[name]), table.nodes, offers, account)
        counts = np.fromiter(map(len, devices), np.int64, len(devices))
        allocatable[rows, place] = counts[rows]
        columns.append((place, rows, devices))
    return _Supply(replace(table, allocatable=read_only(allocatable)), tuple(columns))


def _suitable(request: DeviceRequest, nodes: Sequence[Node], offers: DeviceOffers, account: DeviceAccount) -> Suitable:
    """Return the devices that suit; where that depends on more than the device, all that a node reaches."""
    try:
        found = offers.plain.suitable(request, nodes, account) if not offers.shared else None
    except BudgetError:
        found = None
    return found if found is not None else [tuple(_reached(node, offers)) for node in nodes]


def _reached(node: Node, offers: DeviceOffers) -> Iterator[DeviceId]:
    for pool in offers.near(node.name):
        if pool.state_for(node) is PoolState.WHOLE:
            yield from (device.id for device in pool.of_node(node) if device.offered)


def _taken_for_pods(view: Devices) -> set[DeviceId]:
    claims = view.claims
    theirs = [each.has for each in claims.values() if each.extended and each.has is not None]
    theirs += [each for key, each in view.chosen.items() if to_be_made(key) or (key in claims and claims[key].extended)]
    return {device for each in theirs for device in each.taken}
