"""An API server, webhook replicas and a leader as a model: what is really stored, and who knows what.

`World` knows the truth: what etcd holds, which requests the API server may still store, what each process has seen.
Everything that decides is the product's. After every step the truth must be covered by the ledger and within the limit.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import ModuleType

import pytest
from msgspec.structs import replace

from muster.ledger import controller
from muster.ledger.decision import Decision, QuotaUpdate, decide
from muster.ledger.namespace_view import CacheMemory, NamespaceView, Tombstones
from muster.ledger.reservations import POD, PODGROUP, Exceeded, ReservationRequest, Reserved, Unavailable
from muster.ledger.rows import POD_SUMS, Row, RowState
from muster.ledger.table import Table
from muster.ledger.tally import Tally
from muster.ledger.view import POD_SOURCE, QUOTA_SOURCE, ObservedGroup, ObservedPod, ObservedQuota, source
from muster.model import scopes
from muster.model.amounts import NANO, NOTHING, Resources
from muster.model.names import VOLCANO_GROUP as GROUP
from muster.model.objects import LedgerData

GROUPS = source(GROUP)
START = datetime(2026, 1, 1, tzinfo=UTC)
API_SERVER_GIVES = 34.0
SCOPE_SETS = ("", "Terminating", "PriorityClass:In:high")
"""The quota limits cpu, and cpu in two scopes."""
FACTS = ("plain", "terminating", "class=high", "class=high,terminating")


def cpu(units: int) -> Resources:
    return Resources({"cpu": units * NANO})


def limits(units: int, scoped: int, *, of_cpu: bool = True) -> Resources:
    """What a quota limits: cpu, and of it what counts in each scope; or nothing that anybody here asks for."""
    if not of_cpu:
        return Resources({"memory": units * NANO})
    return Resources({resource(each): (scoped if each else units) * NANO for each in SCOPE_SETS})


def resource(scope_set: str) -> str:
    return f"cpu@{scope_set}" if scope_set else "cpu"


def counted(units: int, facts: str, scope_set: str) -> int:
    """What so many cpus of something with these facts are in a scope."""
    return units if not scope_set or scopes.matches(scope_set, facts) else 0


@dataclass
class Request:
    """A write that the API server has under way. `old` is the resourceVersion that an update changes."""

    name: str
    uid: str
    units: int
    started: float
    old: int = 0
    had: int = 0
    quota: bool = False
    scoped: int = 0  # of a quota: its limits in scopes
    of_cpu: bool = True  # of a quota: whether it limits what others ask for
    facts: str = "plain"
    had_facts: str = ""
    pod_of: str | None = None  # of a pod: the group that it says it is in, empty for none
    state: str = "asking"  # -> granted -> stored, or dead
    blind: bool = False  # granted because no ledger was needed

    @property
    def ask(self) -> ReservationRequest | QuotaUpdate:
        if self.quota:
            return QuotaUpdate(self.name, self.uid, limits(self.units, self.scoped, of_cpu=self.of_cpu))
        before = (str(self.old), cpu(self.had)) if self.old else ("", None)
        kind, group = (PODGROUP, GROUP) if self.pod_of is None else (POD, self.pod_of)
        facts = (self.facts, self.had_facts)
        return ReservationRequest("ns", kind, group, self.name, self.uid, cpu(self.units), *before, *facts)


@dataclass
class Replica:
    """A process: its caches, which lag, and the write it has prepared."""

    revisions: dict[str, int] = field(default_factory=dict)
    tombstones: Tombstones = field(default_factory=Tombstones)
    entry: tuple[int, LedgerData] | None = None
    fresh: NamespaceView | None = None
    prepared: tuple[int, Decision, list[Request]] | None = None
    first_seen: dict[Row, float] = field(default_factory=dict)
    expired: frozenset[Row] = frozenset()

    def __post_init__(self) -> None:
        self.view = NamespaceView(self.revisions, self.tombstones)


class World:
    """Ground truth, and every step that may happen. The last replica is the leader.

    Attributes:
        waits: whether the namespace's quota is guaranteed: what a quota comes to limit waits for all that is under way.
    """

    deadline = controller.DEADLINE
    waits = False

    def __init__(self) -> None:
        self.now = 0.0
        self.revision = 100
        self.objects: dict[str, ObservedGroup] = {}
        self.pods: dict[str, ObservedPod] = {}
        self.quota: ObservedQuota | None = None
        self.log: list[tuple[str, int, ObservedGroup | ObservedPod | ObservedQuota | str]] = []
        self.ledger: tuple[int, LedgerData] | None = None
        self.requests: list[Request] = []
        self.replicas = [Replica() for _ in range(3)]
        self.unreserved: set[str] = set()
        self.unasked: set[str] = set()  # pods that no ledger knew of when they were admitted
        self.completed: set[str] = set()  # uids of groups that were over
        self.bound: dict[str, int] = {}
        self.serial = 0

    # ── clients ──────────────────────────────────────────────────────────────────────────────────────────────────

    def create(self, name: str, units: int, facts: str = "plain") -> None:
        self.serial += 1
        self.requests.append(Request(name, f"u{self.serial}", units, self.now, facts=facts))

    def update(self, name: str, units: int, facts: str = "") -> None:
        """Change a group's minimum, its pods' traits, or both."""
        at = self.objects.get(name)
        if at is not None:
            had, old = at.amounts["cpu"] // NANO, at.scope_facts
            self.requests.append(
                Request(name, at.uid, units, self.now, at.revision, had, facts=facts or old, had_facts=old)
            )

    def change_traits(self, name: str, facts: str) -> None:
        """Only what its pods are: the deadline, the priority class."""
        at = self.objects.get(name)
        if at is not None:
            self.update(name, at.amounts["cpu"] // NANO, facts)

    def create_late(self, name: str) -> None:
        """A group that reserves when it becomes Inqueue: its creation asks nobody."""
        self.serial += 1
        self.requests.append(Request(name, f"u{self.serial}", 0, self.now, state="granted"))

    def let_in(self, name: str, units: int) -> None:
        """The phase of such a group goes past Pending: by an update of its status, which asks like any growth."""
        at = self.objects.get(name)
        if at is not None and not at.amounts:
            self.update(name, units)

    def create_pod(self, name: str, units: int, facts: str = "plain") -> None:
        """A pod in a group of that name, be there one or not; of no name, outside every group."""
        self.serial += 1
        uid = f"p{self.serial}"
        self.requests.append(Request(uid, uid, units, self.now, facts=facts, pod_of=name))

    def resize_pod(self, which: int, units: int, facts: str = "") -> None:
        if self.pods:
            name, at = sorted(self.pods.items())[which % len(self.pods)]
            had, old = at.amounts["cpu"] // NANO, at.scope_facts
            self.requests.append(
                Request(
                    name,
                    at.uid,
                    units,
                    self.now,
                    at.revision,
                    had,
                    facts=facts or old,
                    had_facts=old,
                    pod_of=at.group,
                )
            )

    def change_deadline(self, which: int, facts: str) -> None:
        """A pod gets a deadline, or another class: it takes what it took."""
        if self.pods:
            _, at = sorted(self.pods.items())[which % len(self.pods)]
            self.resize_pod(which, at.amounts["cpu"] // NANO, facts)

    def end_pod(self, which: int, *, gone: bool) -> None:
        """A pod is deleted, or has run its course."""
        if not self.pods:
            return
        name, at = sorted(self.pods.items())[which % len(self.pods)]
        if gone:
            del self.pods[name]
            self._log(POD_SOURCE, at.uid)
        else:
            self._store_pod(name, ObservedPod(at.uid, at.group, 0, NOTHING, at.scope_facts))

    def join_pod(self, which: int, name: str) -> None:
        """Muster writes a group on a pod that has none."""
        loose = sorted(pod for pod, at in self.pods.items() if not at.group)
        if loose:
            pod = loose[which % len(loose)]
            at = self.pods[pod]
            self._store_pod(pod, ObservedPod(at.uid, name, 0, at.amounts, at.scope_facts))

    def change_quota(self, units: int, scoped: int | None = None, *, of_cpu: bool = True) -> None:
        self.serial += 1
        uid, old = (self.quota.uid, self.quota.revision) if self.quota else (f"q{self.serial}", 0)
        scoped = units if scoped is None else scoped
        self.requests.append(Request("team", uid, units, self.now, old, quota=True, scoped=scoped, of_cpu=of_cpu))

    def delete(self, name: str) -> None:
        if name in self.objects:
            gone = self.objects.pop(name)
            self._log(GROUPS, gone.uid)

    def complete(self, name: str) -> None:
        """It holds nothing any more: it is over, or is back in Pending and reserves late."""
        if name in self.objects:
            self.completed.add(self.objects[name].uid)
            self._store(name, self.objects[name].uid, 0, self.objects[name].scope_facts)

    def start_again(self, name: str, units: int) -> None:
        """One that was over is started again: by an update of its status, for what is missing of its minimum."""
        at = self.objects.get(name)
        if at is not None and at.uid in self.completed and not at.amounts:
            self.update(name, units)

    def delete_quota(self) -> None:
        if self.quota is not None:
            self._log(QUOTA_SOURCE, self.quota.name)
            self.quota = None
            self._rebound()

    # ── the API server ───────────────────────────────────────────────────────────────────────────────────────────

    def store(self, request: Request) -> None:
        """Store what was admitted, where etcd still can."""
        possible, request.state = self._possible(request), "dead"
        if not possible:
            return
        if request.quota:
            self.revision += 1
            hard = limits(request.units, request.scoped, of_cpu=request.of_cpu)
            self.quota = ObservedQuota("team", request.uid, self.revision, hard)
            self.log.append((QUOTA_SOURCE, self.revision, self.quota))
            self._rebound()
        elif request.pod_of is not None:
            at = self.pods.get(request.name)
            group = at.group if at else request.pod_of
            self._store_pod(request.name, ObservedPod(request.uid, group, 0, cpu(request.units), request.facts))
            if request.blind:
                self.unasked.add(request.name)
                self._rebound()
        else:
            if request.blind:
                self.unreserved.add(request.uid)
            self._store(request.name, request.uid, request.units, request.facts)

    def _possible(self, request: Request) -> bool:
        if request.state != "granted" or self.now > request.started + API_SERVER_GIVES:
            return False
        if request.quota:
            return (self.quota.revision if self.quota else 0) == request.old
        if request.blind and request.old and self._limited():
            return (
                False  # growth under way when a quota comes is the one thing that the ledger can't tell: decision 0040
            )
        at = (self.objects if request.pod_of is None else self.pods).get(request.name)
        return (at.revision if at and at.uid == request.uid else 0) == request.old and (at is None or request.old > 0)

    def _limited(self) -> bool:
        coming = any(request.quota and request.state in {"asking", "granted"} for request in self.requests)
        return coming or (self.ledger is not None and bool(self.ledger[1].quotas))

    def _store(self, name: str, uid: str, units: int, facts: str) -> None:
        self.revision += 1
        amounts = cpu(units) if units else NOTHING
        self.objects[name] = ObservedGroup(GROUP, name, uid, self.revision, amounts, scope_facts=facts)
        self.log.append((GROUPS, self.revision, self.objects[name]))

    def _store_pod(self, name: str, pod: ObservedPod) -> None:
        self.revision += 1
        self.pods[name] = ObservedPod(pod.uid, pod.group, self.revision, pod.amounts, pod.scope_facts)
        self.log.append((POD_SOURCE, self.revision, self.pods[name]))

    def _log(self, place: str, gone: str) -> None:
        self.revision += 1
        self.log.append((place, self.revision, gone))

    # ── processes ────────────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, replica: Replica, place: str, upto: int) -> None:
        """Bring one of the replica's caches up to a revision, event by event."""
        at = replica.revisions.get(place, 0)
        for where, revision, what in self.log:
            if where == place and at < revision <= upto:
                self._show(replica, revision, what)
        replica.revisions[place] = max(at, upto)

    def _show(self, replica: Replica, revision: int, what: ObservedGroup | ObservedPod | ObservedQuota | str) -> None:
        view = replica.view
        if isinstance(what, ObservedPod):
            view.put_pod(what)
            return
        if isinstance(what, str) and (pod := view.pod(what)):
            view.drop_pod(what)
            replica.tombstones.add(what, POD_SOURCE, pod.revision)
            return
        if isinstance(what, ObservedQuota):
            view.put_quota(what)
        elif isinstance(what, ObservedGroup):
            known = view.group(what.uid)
            view.put(_born(what, known.absent_at if known else revision - 1))
        elif known := view.group(what):
            view.drop(what)
            replica.tombstones.add(what, GROUPS, known.revision)
        elif quota := view.quotas.get(what):
            view.drop_quota(what)
            replica.tombstones.add(quota.uid, QUOTA_SOURCE, quota.revision)

    def restart(self, replica: Replica) -> None:
        """A new process in its place, whose caches were just listed.

        It can't tell when what it lists came to be, so that a late arrival is counted like any other group.
        """
        if self.ledger and self._outside(Table.parse(self.ledger[1])):
            return
        fresh = Replica()
        fresh.revisions |= {GROUPS: self.revision, QUOTA_SOURCE: self.revision, POD_SOURCE: self.revision}
        for pod in self.pods.values():
            fresh.view.put_pod(pod)
        for shown in self.objects.values():
            fresh.view.put(shown)
        if self.quota:
            fresh.view.put_quota(self.quota)
        self.replicas[self.replicas.index(replica)] = fresh

    def read(self, replica: Replica) -> None:
        """Read the ledger, from which a later decision starts."""
        replica.entry, replica.fresh, replica.expired = self.ledger, None, frozenset()
        if replica is self.replicas[-1] and self.ledger is not None:
            rows = [row for row in Table.parse(self.ledger[1]).rows if row.pending]
            replica.first_seen = {row: replica.first_seen.get(row, self.now) for row in rows}
            due = (row for row, since in replica.first_seen.items() if self.now - since >= self.deadline)
            replica.expired = frozenset(due)

    def list_all(self, replica: Replica) -> None:
        """Read what exists, after the ledger, and let the watch catch up with it."""
        self.watch(replica, GROUPS, self.revision)
        revisions = {GROUPS: self.revision, QUOTA_SOURCE: self.revision, POD_SOURCE: self.revision}
        memory = CacheMemory(replica.view, replica.tombstones)
        view = NamespaceView(revisions, memory)
        for shown in sorted(replica.view.groups(), key=lambda each: each.absent_at):
            view.put(shown)
        if self.quota is not None:
            view.put_quota(self.quota)
        for pod in self.pods.values():
            view.put_pod(pod)
        replica.fresh = view

    def decide(self, replica: Replica, batch: list[Request]) -> None:
        """Prepare a write: with fresh reads whatever is asked, without them only what is all yes."""
        if replica.entry is None:
            self._without_ledger(batch)
            return
        revision, data = replica.entry
        before = Table.parse(data)
        asks = [request.ask for request in batch]
        certain = replica.fresh is not None
        if not certain and not (before.seeded_at and all(_simple(before, ask) for ask in asks)):
            return
        decision = decide(before, replica.fresh or replica.view, asks, START, waits=self.waits)
        if certain or decision.certain:
            replica.prepared = (revision, decision, batch)

    def _without_ledger(self, batch: list[Request]) -> None:
        if self.ledger is not None or any(request.quota for request in batch) or self.quota is not None:
            if self.ledger is None:
                self.revision += 1
                self.ledger = (self.revision, LedgerData())
            return
        for request in batch:
            request.state, request.blind = "granted", True

    def fold(self, replica: Replica) -> None:
        """The leader's write: whatever its view shows, and what expired where it has read afresh."""
        if replica.entry is None:
            return
        revision, data = replica.entry
        before = Table.parse(data)
        expired = replica.expired if replica.fresh is not None else frozenset()
        if before.seeded_at:
            folded = before.fold(replica.fresh or replica.view, expired=expired, waits=self.waits)
            replica.prepared = (revision, Decision(folded, ()), [])

    def put(self, replica: Replica, *, heard: bool) -> None:
        """Compare and swap; where the answer isn't heard, nobody is told, and nobody knows."""
        if replica.prepared is None:
            return
        (revision, decision, batch), replica.prepared = replica.prepared, None
        if not self.at(revision):
            return
        self.revision += 1
        decision.table.validate()
        self.ledger = (self.revision, decision.table.render())
        if heard:
            for request, answer in zip(batch, decision.answers, strict=True):
                self.tell(request, answer)

    def at(self, revision: int) -> bool:
        return self.ledger is not None and self.ledger[0] == revision

    def tell(self, request: Request, answer: object) -> None:
        if request.state == "asking":
            # Whom the ledger has no answer for now is told that it is busy: the API server stores nothing.
            request.state = "dead" if isinstance(answer, Exceeded | Unavailable) else "granted"
            # Where there is a quota, what isn't written down is what doesn't grow.
            request.blind = answer == Reserved(recorded=False) and not (self.ledger and self.ledger[1].quotas)

    # ── the truth ────────────────────────────────────────────────────────────────────────────────────────────────

    def potential(self, current: Table, scope_set: str) -> int:
        """What reserved groups and pods hold or may come to hold, in nano-units: for each name the most it can be."""
        most, used = self._reserved(current, scope_set), self._used(current, scope_set)
        return used.pop("", 0) + sum(max(most.get(name, 0), used.get(name, 0)) for name in {*most, *used})

    def _late(self, current: Table) -> set[str]:
        """The pods that came unasked and that no fold has counted. No reservation covers that they run."""
        seen = current.observed.get(POD_SOURCE, 0)
        return {name for name in self.unasked & self.pods.keys() if self._created(self.pods[name].uid) > seen}

    def _used(self, current: Table, scope_set: str) -> dict[str, int]:
        """What pods take or may come to take, by the name of their group."""
        late = self._late(current)
        pods = {name: (at.group, _counts(at, scope_set)) for name, at in self.pods.items() if name not in late}
        for request in self.requests:
            if request.pod_of is not None and not request.blind and self._pending(request):
                group, units = pods.get(request.name, (request.pod_of, 0))
                pods[request.name] = group, max(units, counted(request.units, request.facts, scope_set) * NANO)
        used: dict[str, int] = {}
        for group, units in pods.values():
            used[group] = used.get(group, 0) + units
        return used

    def _reserved(self, current: Table, scope_set: str) -> dict[str, int]:
        most: dict[str, int] = {}
        outside = self._outside(current)
        for shown in self.objects.values():
            if shown.uid not in outside:
                most[shown.name] = _counts(shown, scope_set)
        for request in self.requests:
            plain = not request.quota and request.pod_of is None
            if plain and not request.blind and self._pending(request):
                units = counted(request.units, request.facts, scope_set)
                units -= counted(request.had, request.had_facts, scope_set) if request.uid in outside else 0
                most[request.name] = max(most.get(request.name, 0), units * NANO)
        return most

    def _pending(self, request: Request) -> bool:
        """Whether it may still be stored. A create may wait for its name to become free."""
        alive = request.state == "granted" and self.now <= request.started + API_SERVER_GIVES
        return alive and (self._possible(request) or not request.old)

    def _outside(self, current: Table) -> set[str]:
        """The groups that came without a reservation and that no fold has taken in."""
        seen = current.observed.get(GROUPS, 0)
        late = {each for each in self.unreserved if self._created(each) > seen}
        return late | current.unreserved

    def _created(self, uid: str) -> int:
        return next(
            rev for _, rev, what in self.log if isinstance(what, ObservedGroup | ObservedPod) and what.uid == uid
        )

    def _rebound(self) -> None:
        self.bound = {}

    def check(self) -> None:
        """The invariant: the ledger covers the truth, and the truth is within the limit."""
        if self.ledger is None:
            return
        current = Table.parse(self.ledger[1])
        if not current.seeded_at:
            return
        for scope_set in SCOPE_SETS:
            self._check(current, scope_set)

    def _check(self, current: Table, scope_set: str) -> None:
        name, truth = resource(scope_set), self.potential(current, scope_set)
        if self.quota is not None and not any(name in totals.hard for totals in current.quotas.values()):
            self.bound.pop(scope_set, None)
            return  # nobody limits it, or nobody was told yet
        if self.quota is not None and any(row.is_mark and name in row.amounts for row in current.rows):
            # The ledger says that it doesn't know all of it yet. Then nothing may be added.
            most = max(self.quota.hard[name], min(self.bound.get(scope_set, truth), truth))
            assert truth <= most, f"{truth} {name} is reserved of {most}, though it is marked"
            self.bound[scope_set] = most
            return
        taken = max((Tally(current.quotas, current.rows).taken(each, name) for each in current.quotas), default=None)
        assert taken is None or truth <= taken, f"the ledger counts {taken} {name}, the truth is {truth}"
        if self.quota is None or taken is None:
            self._rebound()
            return
        taken += self._unasked_amount(current, scope_set)
        hard = self.quota.hard[name]
        self.bound[scope_set] = max(hard, min(self.bound.get(scope_set, taken), taken))
        assert truth <= self.bound[scope_set], f"{truth} {name} is reserved of {hard}"
        assert taken <= self.bound[scope_set] + self._apart(scope_set), f"{taken} {name} is taken of {hard}"

    def _unasked_amount(self, current: Table, scope_set: str) -> int:
        """What those take that came unasked and that no fold has counted."""
        return sum(_counts(self.pods[each], scope_set) for each in self._late(current))

    def _apart(self, scope_set: str) -> int:  # noqa: ARG002 - of pods there is nothing
        """What may count twice for a while, since one watch shows it and another whose it is."""
        return 0

    def settle(self) -> None:
        """Let all requests end and the leader see everything: then the ledger must be exact."""
        self.now += 2 * self.deadline
        for request in self.requests:
            request.state = "dead"
        leader = self.replicas[-1]
        # What it was about to write comes first: a row of it isn't older than that.
        self.put(leader, heard=True)
        for pause in (0.0, 2 * self.deadline):
            self.now += pause
            self.read(leader)
            self.list_all(leader)
            self.fold(leader)
            self.put(leader, heard=True)
            self.check()
        if self.ledger is None or not Table.parse(self.ledger[1]).seeded_at:
            return
        current = Table.parse(self.ledger[1])
        assert all(row.state is RowState.UNRESERVED or row.kind == POD_SUMS for row in current.rows), current.rows
        for name in current.quotas:
            for each in SCOPE_SETS:
                taken = Tally(current.quotas, current.rows).taken(name, resource(each))
                assert taken == self.potential(current, each)


def _counts(shown: ObservedGroup | ObservedPod, scope_set: str) -> int:
    return counted(shown.amounts["cpu"], shown.scope_facts, scope_set)


def _born(shown: ObservedGroup, absent_at: int) -> ObservedGroup:
    return replace(shown, absent_at=absent_at)


def _simple(before: Table, ask: ReservationRequest | QuotaUpdate) -> bool:
    return isinstance(ask, ReservationRequest) and before.limits(ask.asked, ask.scope_facts)


NAMES = ("a", "b", "c", "d")
Choose = Callable[[int], int]


def act(world: World, choose: Choose) -> None:
    """Take one step; ``choose(n)`` gives a number below n."""
    replica = world.replicas[choose(3)]
    name, units = NAMES[choose(4)], 1 + choose(7)
    pod, which, facts = ("", *NAMES)[choose(5)], choose(8), FACTS[choose(4)]
    asking = [request for request in world.requests if request.state == "asking"]
    waiting = asking[: 1 + choose(3)]
    steps: tuple[Callable[[], None], ...] = (
        lambda: world.create(name, units),
        lambda: world.create(name, units, facts),
        lambda: world.update(name, units),
        lambda: world.update(name, units, facts),
        lambda: world.change_traits(name, facts),
        lambda: world.create_late(name),
        lambda: world.let_in(name, units),
        lambda: world.create_pod(pod, 1 + units // 3),
        lambda: world.create_pod(pod, 1 + units // 3, facts),
        lambda: world.resize_pod(which, units),
        lambda: world.change_deadline(which, facts),
        lambda: world.end_pod(which, gone=choose(2) == 0),
        lambda: world.join_pod(which, name),
        lambda: world.delete(name),
        lambda: world.complete(name) if choose(2) == 0 else None,
        lambda: world.start_again(name, units),
        lambda: world.change_quota(4 + choose(8), 3 + choose(8)),
        lambda: world.delete_quota() if choose(20) == 0 else None,
        lambda: world.restart(replica) if choose(4) == 0 else None,
        lambda: world.read(replica),
        lambda: world.list_all(replica),
        lambda: world.decide(replica, waiting) if waiting else None,
        lambda: world.put(replica, heard=choose(4) > 0),
        lambda: commit(world, replica, waiting, choose),
        lambda: commit(world, replica, waiting, choose),
        lambda: commit(world, replica, waiting, choose),
        lambda: commit(world, replica, waiting, choose),
        lambda: commit(world, replica, waiting, choose),
        lambda: sweep(world, choose),
        lambda: meanwhile(world, choose),
        lambda: meanwhile(world, choose),
        lambda: meanwhile(world, choose),
        lambda: meanwhile(world, choose),
        lambda: advance(world, 1 + choose(20)),
    )
    steps[choose(len(steps))]()
    world.check()


def commit(world: World, replica: Replica, waiting: list[Request], choose: Choose) -> None:
    """A commit from start to end, with things happening in between."""
    world.read(replica)
    if choose(2):
        meanwhile(world, choose)
    if choose(2):
        world.list_all(replica)
    meanwhile(world, choose)
    world.decide(replica, waiting)
    meanwhile(world, choose)
    world.put(replica, heard=choose(4) > 0)


def sweep(world: World, choose: Choose) -> None:
    """The leader's work from start to end, with things happening in between."""
    leader = world.replicas[-1]
    world.read(leader)
    meanwhile(world, choose)
    if choose(2):
        world.list_all(leader)
    meanwhile(world, choose)
    world.fold(leader)
    world.put(leader, heard=True)


def meanwhile(world: World, choose: Choose) -> None:
    """What the API server and the watches do on their own."""
    for _ in range(choose(3)):
        granted = [request for request in world.requests if request.state == "granted"]
        replica = world.replicas[choose(3)]
        match choose(4):
            case 0 | 1 if granted:
                world.store(granted[choose(len(granted))])
            case 2:
                world.watch(replica, (GROUPS, QUOTA_SOURCE, POD_SOURCE)[choose(3)], world.revision)
            case 3:
                world.watch(replica, (GROUPS, POD_SOURCE)[choose(2)], world.revision - choose(3))
        world.check()


def advance(world: World, seconds: int) -> None:
    world.now += seconds


def play(world: World, seed: int, steps: int) -> None:
    chance = random.Random(seed)
    world.change_quota(10)
    for _ in range(steps):
        act(world, chance.randrange)
    world.settle()


@pytest.fixture
def model() -> ModuleType:
    """This module: the tests of its folder take away from it what they want to see missed."""
    return sys.modules[__name__]
