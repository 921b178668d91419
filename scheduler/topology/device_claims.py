"""The resource claims of pods in one session: the nodes that could meet them, and what is decided about them.

A claim that is allocated holds its pods to the nodes that reach its devices. One that waits gets devices on the node of its first
pod, all that it requests or none. Devices of pods that are evicted are not free before these are gone, so nobody is evicted for devices.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from muster.model.objects import Node
from scheduler.model.claims import ChosenDevices, ClaimState, Devices, HeldClaim
from scheduler.model.constraints import Constraints
from scheduler.model.devices import ClaimedDevices, Placement, quota_of
from scheduler.model.extended_resources import key_of
from scheduler.model.pod_claims import ClaimingGroup, ResourceClaimKey, SharedClaims
from scheduler.model.snapshot import GroupKey, JobInfo, Task, TaskClass, TaskStatus
from scheduler.model.vectors import Mask, Rows
from scheduler.topology.claim_lookup import ClaimLookup, title
from scheduler.topology.device_allocation import AllocationError, Chosen, ChosenDevice, DeviceState, allocate
from scheduler.topology.device_budget import BudgetError, DeviceBudget
from scheduler.topology.device_counts import UNKNOWN, DeviceCounts, DeviceSupply, only_request
from scheduler.topology.device_offers import offers_of
from scheduler.topology.device_reach import DeviceReach
from scheduler.topology.domains import TopologyCounts
from scheduler.topology.extended_devices import ExtendedClaims
from scheduler.topology.settled_claims import SettledClasses, beside_claims

_Shape = tuple[ClaimedDevices, ...]
"""What the claims of a pod request that have no devices yet."""


class DeviceClaims:
    """The claims of one session."""

    def __init__(self, view: Devices, topology: TopologyCounts) -> None:
        self._view, self._table = view, topology.table
        self._offers = offers_of(view.offers, topology.cache)
        self.reach = DeviceReach(topology.table, self._offers)
        self._extended = ExtendedClaims(view.offers, topology.table.nodes)
        self._taken = set(view.taken)
        self._chosen: dict[ResourceClaimKey, tuple[ChosenDevices, int]] = {
            key: (each, 0) for key, each in view.chosen.items()
        }
        self._of: dict[tuple[str, int], tuple[ChosenDevices, ...]] = {}
        self.placed: set[str] = set()
        """Uids of the pods with claims that got a node in this session."""
        self._answers: dict[_Shape, np.ndarray] = {}
        self._errors: dict[_Shape, dict[int, str]] = {}
        self._counts: dict[_Shape, DeviceCounts | None] = {}
        self._alike: dict[Hashable, TaskClass] = {}
        self._shapes: dict[bytes, _Shape] = {}
        self._own: dict[str, tuple[list[ClaimState], _Shape]] = {}
        self._reaches: dict[tuple[bytes, Hashable], tuple[Placement, ...]] = {}
        self._found: dict[tuple[_Shape, Hashable], tuple[Chosen | None, str]] = {}
        self._sharers: dict[tuple[TaskClass, GroupKey], tuple[TaskClass, list[list[TaskClass]]]] = {}
        self._settled: dict[bytes, tuple[ChosenDevices, ...]] = {}
        self.settled = SettledClasses(self._waits, self._held)
        self._sharing: dict[ResourceClaimKey, dict[GroupKey, tuple[int, list[TaskClass]]]] = {}
        self._lookup = lookup = ClaimLookup(view, self._extended)
        self._budget = DeviceBudget(lambda: lookup.namespaces)

    # ── pods that differ in nothing but the names of their claims ────────────────────────────────────────────────

    def merged(self, task: Task, job: JobInfo) -> Task:
        """Return a task of a job, in one class with all that share its claims, or whose own claims request the same and wait."""
        kind = self._extended.claiming(task)
        if (kind, job.key) not in self._sharers:
            demands = _with_shared(kind.constraints, job.shared_claims)
            waiting = self._all_waiting(demands)
            if waiting is not None:
                return replace(task, task_class=self._like(task, kind, demands, waiting))
            self._sharers[kind, job.key] = self._sharer(kind, demands, job)
        kind, lines = self._sharers[kind, job.key]
        for line in lines:
            line.append(kind)
        return replace(task, task_class=kind)

    def _sharer(self, kind: TaskClass, demands: Constraints, job: JobInfo) -> tuple[TaskClass, list[list[TaskClass]]]:
        """Return the class of a job's tasks with these demands, and the lines of those who share each of its claims."""
        made = kind if demands is kind.constraints else replace(kind, constraints=demands)
        kind = self._alike.setdefault((kind.request, demands.signature), made)
        sharing = [self._sharing.setdefault(claim.key, {}) for claim in self._shared(demands)]
        return kind, [each.setdefault(job.key, (job.min_member, []))[1] for each in sharing]

    def _like(self, task: Task, kind: TaskClass, demands: Constraints, waiting: list[ClaimState]) -> TaskClass:
        """Return the class of all tasks whose own claims request the same as these, and wait."""
        shape = _shape_of(waiting)
        alike = kind.request, shape, beside_claims(demands)
        first = self._alike.get(alike)
        if first is None:
            first = kind if demands is kind.constraints else replace(kind, constraints=demands)
            self._alike[alike] = first
        self._own[task.uid] = (waiting, shape)
        self._shapes[first.constraints.signature] = shape
        return first

    def asked(self, kind: TaskClass) -> bool:
        """Whether pods of a class claim devices, or request a resource that a class of devices stands for."""
        return bool(kind.constraints.devices) or self._extended.needed(kind)

    def _all_waiting(self, demands: Constraints) -> list[ClaimState] | None:
        """Return a pod's claims where all are its own, and wait; else None."""
        found = []
        for each in demands.devices:
            claim = self._lookup.claim(each) if each.own else None
            if claim is None or claim.has is not None or claim.key in self._chosen or self._lookup.fault(each, claim):
                return None
            found.append(claim)
        return found

    def shape(self, demands: Constraints) -> _Shape:
        """Return what a pod's claims request that have no devices yet."""
        shape = self._shapes.get(demands.signature)
        return shape if shape is not None else _shape_of(self._waiting(demands))

    def _counted(self, shape: _Shape) -> DeviceCounts | None:
        """Return how often nodes can meet what claims request, where no search is needed for that."""
        if shape not in self._counts:
            self._counts[shape] = self._count_nodes(shape)
        return self._counts[shape]

    def _count_nodes(self, shape: _Shape) -> DeviceCounts | None:
        request = only_request(shape) if not self._offers.shared else None
        if request is None:
            return None
        try:
            suitable = self._offers.plain.suitable(request, self._table.nodes, self._budget.of(shape[0].namespace))
        except BudgetError:
            return None  # The search has nothing left either, and says so.
        return DeviceCounts(request, suitable, self._taken) if suitable is not None else None

    # ── what keeps a pod waiting wherever it would go ────────────────────────────────────────────────────────────

    def trouble(self, demands: Constraints) -> str:
        """Say why no node can have the pod, as far as its resource claims go; empty when one might."""
        if not self._view.known:
            return "its pods use resource claims, and there is no ResourceClaim, DeviceClass or ResourceSlice; create the claims"
        found = next(filter(None, map(self._lookup.wrong, demands.devices)), "")
        return found or self._wrong_everywhere(demands)

    def _wrong_everywhere(self, demands: Constraints) -> str:
        """Return what can't be decided of the pod's claims, where no node can meet them and that is a reason."""
        shape = self.shape(demands)
        errors = self._errors.get(shape, {})
        answers = self._answers.get(shape)
        if not errors or answers is None or (answers == 1).any() or self._extended.varies(shape):
            return ""
        which = title(self._lookup.claims(demands)[0].key)
        return f"{which} can't be allocated: {next(iter(errors.values()))}"

    def stood_for(self, short: Iterable[str]) -> str:
        """Say which resources that no node has a class of devices stands for; empty where none does."""
        extended = self._view.offers.extended
        places = self._table.axes.place
        found = [name for name in short if name in extended and not self._table.allocatable[:, places[name]].any()]
        if not found:
            return ""
        stand = ", ".join(f"DeviceClass {extended[name]} stands for {name}" for name in found)
        return f" ({stand}, and no node has a device of it; look at the DeviceClass and the ResourceSlices)"

    def requested(self, task: Task, shared: SharedClaims | None = None) -> Mapping[ResourceClaimKey, Mapping[str, int]]:
        """Return how many devices of each class a pod's claims request, as quotas count them; ``shared``: those of its group."""
        own = self._own.get(task.uid)
        kind = task.task_class
        claims = own[0] if own is not None else self._lookup.claims(_with_shared(kind.constraints, shared))
        found = {claim.key: quota_of(claim.wanted) for claim in claims if claim.wanted is not None}
        if own is None and task.node and (requests := self._extended.requests(kind.request)):
            claim = ClaimState(key_of(task.namespace, task.uid), "", ClaimedDevices(requests, extended=True))
            row = self._table.row.get(task.node)
            there = self._extended.at([claim], row) if row is not None else ()
            found |= {each.key: quota_of(each.wanted) for each in there if each.wanted is not None}
        return found

    def shared(self, demands: Constraints) -> bool:
        """Whether what one pod gets is gone for others elsewhere, or decides where they go; not once all claims have devices."""
        if demands.signature not in self._shapes and not self._waiting(demands):
            return False
        return bool(self._offers.shared) or bool(self._shared(demands))

    def counted(self, demands: Constraints) -> bool:
        """Whether nodes can meet the claims of so many pods of its class: a number, as of amounts, or any where all have devices."""
        shape = self._shapes.get(demands.signature)
        return self._counted(shape) is not None if shape is not None else not self._waiting(demands)

    def _waits(self, kind: TaskClass) -> bool:
        demands = kind.constraints
        own = demands.signature in self._shapes or self._extended.needed(kind)
        return own or bool(self._waiting(demands)) or any(map(self._lookup.wrong, demands.devices))

    def supply(self, demands: Constraints) -> DeviceSupply | None:
        """Return what nodes have for a pod's claims, where these are for a number of like devices; None for others."""
        shape = self.shape(demands)
        counts = self._counted(shape) if shape and not self._extended.varies(shape) else None
        return counts.supply() if counts is not None else None

    # ── which nodes ──────────────────────────────────────────────────────────────────────────────────────────────

    def lacking(self, demands: Constraints, rows: Rows, ahead: Rows | None = None) -> Mask:
        """Tell which of some nodes can't meet the pod's claims, [rows]; ``ahead``: how many like it there are to be before."""
        mask: Mask = self._unmet(self.shape(demands), rows, ahead)
        for each in self._held(demands) if demands.signature not in self._shapes else ():
            mask |= ~self.reach.reached_by(each.reach)[rows]
        return mask

    def _unmet(self, shape: _Shape, rows: Rows, ahead: Rows | None) -> Mask:
        if not shape:
            return np.zeros(len(rows), dtype=np.bool_)
        if self._extended.varies(shape):
            mask: Mask = np.zeros(len(rows), dtype=np.bool_)
            for variant, nodes in self._extended.variants(shape):
                there = nodes[rows]
                mask[there] = self._unmet_by(variant, rows[there], ahead[there] if ahead is not None else None)
            return mask
        return self._unmet_by(shape, rows, ahead)

    def _unmet_by(self, shape: _Shape, rows: Rows, ahead: Rows | None) -> Mask:
        if not shape or not len(rows):
            return np.zeros(len(rows), dtype=np.bool_)
        counts = self._counted(shape)
        if counts is not None:
            return counts.unmet(rows, ahead)
        answers = self._answers.get(shape)
        if answers is None:
            answers = self._answers[shape] = np.full(len(self._table.nodes), UNKNOWN, dtype=np.int8)
        unknown = rows[answers[rows] == UNKNOWN]
        for first, others in self.reach.alike(unknown):
            answers[others] = self._find(shape, first) is not None
        unmet: Mask = answers[rows] != 1
        return unmet

    def _find(self, shape: _Shape, row: int) -> Chosen | None:
        node = self._table.nodes[row]
        alike = shape, self._offers.alike(node)
        if alike not in self._found:
            try:
                self._found[alike] = allocate(self._state(node, shape), node, shape), ""
            except AllocationError as error:
                self._found[alike] = None, str(error)
        found, wrong = self._found[alike]
        if wrong:
            self._errors.setdefault(shape, {})[row] = wrong
        return found

    def _state(self, node: Node, shape: _Shape) -> DeviceState:
        reached, account = self._offers.reached(node), self._budget.of(shape[0].namespace)
        return DeviceState(reached.pools, self._offers.classes, self._taken, self._offers.selectors, account, reached)

    def _waiting(self, demands: Constraints) -> list[ClaimState]:
        return [each for each in self._lookup.claims(demands) if each.has is None and each.key not in self._chosen]

    def _held(self, demands: Constraints) -> list[ChosenDevices]:
        known = ((each, self._chosen.get(each.key)) for each in self._lookup.claims(demands))
        held = (claim.has if claim.has is not None else chosen and chosen[0] for claim, chosen in known)
        return [each for each in held if each is not None]

    # ── what is decided ──────────────────────────────────────────────────────────────────────────────────────────

    def count(self, uid: str, demands: Constraints, row: int, status: TaskStatus, sign: int) -> None:
        """Choose devices for a pod that is given a node (1), or give them back (-1)."""
        if status is TaskStatus.RELEASING:
            return
        (self.placed.add if sign > 0 else self.placed.discard)(uid)
        if sign > 0:
            self._of[uid, row] = self._choose(uid, demands, row)
        for choice in self._of[uid, row]:
            known = self._view.claims.get(choice.claim)
            if (known is not None and known.has is not None) or choice.claim in self._view.chosen:
                continue  # Its devices are taken already, whatever becomes of this pod.
            first, users = self._chosen.get(choice.claim, (choice, 0))
            self._chosen[choice.claim] = (first, users + sign)
            if users + sign == (sign > 0):
                self._take(first, row, sign)
                self.settled.chosen()
            if users + sign == 0:
                del self._chosen[choice.claim]
                self._settled.clear()
                self.settled.undone()
        if sign < 0:
            del self._of[uid, row]

    def _choose(self, uid: str, demands: Constraints, row: int) -> tuple[ChosenDevices, ...]:
        own = self._own.get(uid)
        if own is not None:
            return self._chosen_for(*own, row) or ()
        settled = self._settled.get(demands.signature)
        if settled is not None:
            return settled
        # Where nobody judged (the predicates are off), there may be nothing that could be done.
        if not self._view.known or any(map(self._lookup.wrong, demands.devices)):
            return ()
        waiting = self._waiting(demands)
        chosen = self._chosen_for(waiting, _shape_of(waiting), row)
        groups = self._groups(demands)
        found = (*self._held(demands), *chosen) if chosen is not None else ()
        if groups:
            found = tuple(replace(each, group=groups.get(each.claim)) for each in found)
        if not waiting:
            self._settled[demands.signature] = found
        return found

    # ── pods that share a claim ──────────────────────────────────────────────────────────────────────────────────

    def _shared(self, demands: Constraints) -> list[ClaimState]:
        """Return a pod's claims that others may share, and that have no devices yet."""
        found = (self._lookup.claim(each) for each in demands.devices if not each.own)
        return [each for each in found if each is not None and each.has is None and each.key not in self._chosen]

    def sharing(self, kind: TaskClass) -> Iterator[Sequence[TaskClass]]:
        """Iterate over those who would share what a pod of a class gets, by class: all of the largest job, then its minimum."""
        for claim in self._shared(kind.constraints):
            jobs = [(least, kinds) for least, kinds in self._sharing.get(claim.key, {}).values() if kind in kinds]
            if jobs:
                least, kinds = max(jobs, key=lambda each: len(each[1]))
                yield kinds
                yield kinds[: max(least, 1)]
                return

    def reaches(self, demands: Constraints, row: int) -> tuple[Placement, ...]:
        """Return which nodes would reach the devices that shared claims of a pod get on a node; nothing where they get none."""
        key = demands.signature, self._offers.alike(self._table.nodes[row])
        if key not in self._reaches:
            waiting = self._waiting(demands)
            chosen = self._chosen_for(waiting, _shape_of(waiting), row) or ()
            shared = {claim.key for claim in self._shared(demands)}
            self._reaches[key] = tuple(each.reach for each in chosen if each.claim in shared)
        return self._reaches[key]

    def _groups(self, demands: Constraints) -> Mapping[ResourceClaimKey, ClaimingGroup]:
        """Return for which groups claims of a pod are reserved."""
        known = ((each.group, self._lookup.claim(each)) for each in demands.devices if each.group is not None)
        return {claim.key: group for group, claim in known if claim is not None and group is not None}

    def _chosen_for(self, waiting: Sequence[ClaimState], shape: _Shape, row: int) -> tuple[ChosenDevices, ...] | None:
        if self._extended.varies(shape):
            waiting = self._extended.at(waiting, row)
            shape = _shape_of(waiting)
        counts = self._counted(shape) if shape else None
        if counts is None:
            chosen = self._find(shape, row) if shape else ()
            return (
                tuple(self._for_claim(claim, devices, row) for claim, devices in zip(waiting, chosen, strict=True))
                if chosen is not None
                else None
            )
        found, (claim,) = counts.choose(row), waiting
        if found is None:
            return None
        devices = tuple((counts.request.name, each, False) for each in found)
        return (ChosenDevices(claim.key, claim.uid, Placement(self._table.names[row]), devices),)

    def _for_claim(self, claim: ClaimState, chosen: Sequence[ChosenDevice], row: int) -> ChosenDevices:
        devices = tuple((each.request.name, each.device.id, each.request.admin) for each in chosen)
        return ChosenDevices(claim.key, claim.uid, self.reach.of([device for _, device, _ in devices], row), devices)

    def _take(self, choice: ChosenDevices, row: int, sign: int) -> None:
        (self._taken.update if sign > 0 else self._taken.difference_update)(choice.taken)
        rows = slice(None) if self._offers.shared else slice(row, row + 1)
        self._found.clear()
        self._reaches.clear()
        for counts in filter(None, self._counts.values()):
            counts.touched(rows)
        for shape, answers in self._answers.items():
            answers[rows] = UNKNOWN
            if self._offers.shared:
                self._errors.pop(shape, None)
            else:
                self._errors.get(shape, {}).pop(row, None)

    def held_by(self, task: Task, *, group_placed: bool) -> Iterator[HeldClaim]:
        """Iterate over the claims that have devices for a task without a place alone, or for its group and no pod of that has one."""
        for each in task.task_class.constraints.devices:
            claim = self._lookup.claim(each)
            user = each.group.uid if each.group is not None else task.uid
            in_vain = each.group is None or not group_placed
            if in_vain and claim is not None and claim.has is not None and claim.users == {user}:
                yield HeldClaim(claim.key, claim.uid, user)

    def choices(self, uid: str, row: int) -> tuple[ChosenDevices, ...]:
        """Return what a pod's claims have or get on the node that it got."""
        return self._of.get((uid, row), ())


def _with_shared(demands: Constraints, shared: SharedClaims | None) -> Constraints:
    if shared is None:
        return demands
    return demands.with_devices(tuple(map(shared.resolve, demands.devices)))


def _shape_of(waiting: Sequence[ClaimState]) -> _Shape:
    return tuple(each.wanted for each in waiting if each.wanted is not None)
