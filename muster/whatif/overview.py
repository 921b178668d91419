"""The overview of a cluster: its queues and their shares, its groups and why they wait, its quotas, and who was evicted. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial, reduce
from operator import add
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct

from muster.ledger.report import report
from muster.model import grouping, kinds, names
from muster.model.amounts import NANO, NOTHING, QuantityError, Resources, amount_text
from muster.model.objects import Event, PodGroup, Queue, ResourceQuota
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects, ledger_view
from scheduler.model.obstacle import Stage
from scheduler.model.plan import Plan
from scheduler.model.records import Record
from scheduler.model.snapshot import GroupKey

T = TypeVar("T", Resources, int)

EVICTED: Final = ("Preempted", "Reclaimed")
"""The reasons of the events that tell a PodGroup of the eviction of its pods."""

_ENDED: Final = frozenset({"Completed", "Running", "Failed", "Aborted"})
_UNSCHEDULABLE: Final = "Unschedulable"


class Amount(NamedTuple):
    """An amount of a resource: as a number, to be drawn, and as people write it."""

    value: float
    text: str


Amounts = dict[str, Amount]


class QueueLine(Struct, frozen=True, rename="camel"):
    """A queue with those below it: ``used``, ``running`` and ``waiting`` count their groups too; ``borrowed`` is what is used beyond what is deserved."""

    name: str
    parent: str
    state: str
    weight: int
    used: Amounts
    deserved: Amounts
    guarantee: Amounts
    capability: Amounts
    borrowed: Amounts
    running: int
    waiting: int


class GroupLine(Struct, frozen=True, rename="camel"):
    """A PodGroup that isn't over. ``waits``: it has no places for its minimum; ``place`` is 0 where nobody knows it.

    ``since``: when it came to its phase, else when it was created. ``expected``: when it starts, in a few
    characters; empty where nobody asked.
    """

    namespace: str
    name: str
    title: str
    queue: str
    phase: str
    waits: bool
    created: datetime | None
    since: datetime | None
    pods: int
    running: int
    place: int = 0
    stage: str = ""
    reason: str = ""
    message: str = ""
    expected: str = ""


class QuotaLine(Struct, frozen=True, rename="camel"):
    """One resource of a ResourceQuota; ``reserved`` is empty where the namespace has no ledger."""

    namespace: str
    quota: str
    resource: str
    hard: Amount
    used: Amount
    reserved: str
    free: str


class EvictionLine(Struct, frozen=True, rename="camel"):
    """An event that told a group of the eviction of its pods."""

    when: datetime | None
    namespace: str
    name: str
    reason: str
    message: str


class Overview(Struct, frozen=True, rename="camel"):
    """What there is to see at one moment; ``missing``: what may not be read or is not known, a sentence each."""

    taken: datetime
    queues: tuple[QueueLine, ...]
    groups: tuple[GroupLine, ...]
    quotas: tuple[QuotaLine, ...]
    evictions: tuple[EvictionLine, ...]
    nodes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def waiting(self) -> list[GroupLine]:
        """Return who waits, those who have waited longest first."""
        found = [each for each in self.groups if each.waits]
        return sorted(found, key=lambda each: (each.created or self.taken, each.namespace, each.name))

    def resources(self) -> list[str]:
        """Return the resources that queues use or deserve, cpu and memory first."""
        found = {name for each in self.queues for amounts in (each.used, each.deserved) for name in amounts}
        first = [each for each in ("cpu", "memory") if each in found]
        return [*first, *sorted(found.difference(first, ("pods",)))]


def overview(state: ClusterObjects, events: Iterable[Event], plan: Plan, missing: Iterable[str] = ()) -> Overview:
    """Return what a state and the scheduler's next decision on it show."""
    groups = tuple(_groups(state, plan.records))
    return Overview(
        state.taken,
        tuple(_queues(state, plan, groups)),
        groups,
        tuple(_quotas(state)),
        _evictions(events),
        tuple(sorted(each.name for each in state.of(kinds.NODES))),
        (*missing, *state.unread),
    )


def of_tenant(
    state: ClusterObjects, events: Iterable[Event], told: Sequence[Mapping[str, Any]], missing: Iterable[str]
) -> Overview:
    """Return what a state of one namespace shows; ``told`` is the visibility API's answer about queues."""
    queues = tuple(_told(each) for each in told)
    return Overview(
        state.taken, queues, tuple(_groups(state, None)), tuple(_quotas(state)), _evictions(events), (), tuple(missing)
    )


# ── queues ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _queues(state: ClusterObjects, plan: Plan, groups: Sequence[GroupLine]) -> Iterator[QueueLine]:
    queues = sorted(state.of(kinds.QUEUES), key=lambda queue: queue.name)
    used = _with_children(queues, partial(_used, plan), _larger, NOTHING)
    deserved = _with_children(queues, partial(_deserved, plan), _larger, NOTHING)
    counts = Counter((group.queue, group.waits) for group in groups)
    running = _with_children(queues, lambda queue: counts[queue.name, False], add, 0)
    waiting = _with_children(queues, lambda queue: counts[queue.name, True], add, 0)
    for each in queues:
        yield _queue(each, used[each.name], deserved[each.name], running[each.name], waiting[each.name])


def _used(plan: Plan, queue: Queue) -> Resources:
    share = plan.queues.get(queue.name)
    return share.allocated if share is not None else _parsed(queue.status.allocated)


def _deserved(plan: Plan, queue: Queue) -> Resources:
    share = plan.queues.get(queue.name)
    return share.deserved if share is not None and share.deserved is not None else _parsed(queue.spec.deserved)


def _parent(queue: Queue) -> str:
    return queue.spec.parent or (names.ROOT_QUEUE if queue.name != names.ROOT_QUEUE else "")


def _larger(own: Resources, below: Resources) -> Resources:
    """Return what a queue has together with those below it: of plugins that divide by a tree it is what it has already."""
    return own.maximum(below)


def _with_children(
    queues: Sequence[Queue], own: Callable[[Queue], T], together: Callable[[T, T], T], nothing: T
) -> dict[str, T]:
    """Return something of queues ``together`` with the sum of it of those below them."""
    found = {each.name: own(each) for each in queues}
    below: defaultdict[str, list[str]] = defaultdict(list)
    for each in queues:
        below[_parent(each)].append(each.name)
    done: set[str] = set()

    def add_up(name: str) -> T:
        if name not in done:
            done.add(name)  # a circle of parents, which admission refuses, ends where it began
            found[name] = together(found[name], reduce(add, map(add_up, below[name]), nothing))
        return found[name]

    for each in queues:
        add_up(each.name)
    return found


def _queue(queue: Queue, used: Resources, deserved: Resources, running: int, waiting: int) -> QueueLine:
    spec = queue.spec
    return QueueLine(
        queue.name,
        _parent(queue),
        queue.status.state or "Open",
        spec.weight,
        amounts_of(used),
        amounts_of(deserved),
        amounts_of(_parsed(spec.guarantee.resource if spec.guarantee is not None else None)),
        amounts_of(_parsed(spec.capability)),
        amounts_of(used.above(deserved).only(list(deserved))),
        running,
        waiting,
    )


def _told(told: Mapping[str, Any]) -> QueueLine:
    """Return a queue as the visibility API tells of it: without its parent, guarantee and capability."""
    used, deserved = _parsed(told.get("allocated")), _parsed(told.get("deserved"))
    borrowed = amounts_of(used.above(deserved).only(list(deserved)))
    return QueueLine(
        told["queue"], "", told["state"], told["weight"], amounts_of(used), amounts_of(deserved), {}, {}, borrowed, 0,
        told["waiting"],
    )  # fmt: skip


def _parsed(quantities: Mapping[str, object] | None) -> Resources:
    """Read amounts; what is no amount, which admission refuses, counts as nothing."""
    try:
        return Resources.parse(quantities)
    except QuantityError:
        return NOTHING


def amounts_of(found: Resources | None) -> Amounts:
    """Return amounts by resource, those that aren't nothing."""
    if found is None:
        return {}
    return {name: Amount(nano / NANO, amount_text(name, nano)) for name, nano in found.nano.items() if nano}


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _groups(state: ClusterObjects, records: Mapping[GroupKey, Record] | None) -> Iterator[GroupLine]:
    """Return the groups that aren't over; without ``records`` with what their conditions say."""
    for kind in PODGROUPS:
        for group in state.of(kind):
            if group.status.phase != "Completed":
                record = (records or {}).get(GroupKey(kind.group, group.namespace, group.name))
                yield _group(group, record, known=records is not None)


def _group(group: PodGroup, record: Record | None, *, known: bool) -> GroupLine:
    """Return a group with the scheduler's record of it; where records aren't ``known``, with what its condition says."""
    meta, status = group.metadata, group.status
    told = next((each for each in status.conditions or () if each.type == _UNSCHEDULABLE and each.status == "True"), None)  # fmt: skip
    waits = status.phase not in _ENDED and (not known or (record is not None and record.stage is not Stage.BIND))
    reason = (record.reason.value if record.reason is not None else "") if record is not None else ""
    message = record.message if record is not None else ""
    if record is None and waits and told is not None:
        reason, message = told.reason, told.message
    return GroupLine(
        group.namespace,
        group.name,
        grouping.called(group.name, grouping.owner_of(meta)),
        group.spec.queue or names.DEFAULT_QUEUE,
        status.phase or "Pending",
        waits,
        meta.creation_timestamp,
        status.last_phase_transition_time or meta.creation_timestamp,
        group.spec.min_member,
        status.running,
        record.ahead + 1 if record is not None and waits else 0,
        record.stage.value if record is not None and waits else "",
        reason if waits else "",
        message if waits else "",
    )


# ── quotas and evictions ─────────────────────────────────────────────────────────────────────────────────────────


def _quotas(state: ClusterObjects) -> Iterator[QuotaLine]:
    for namespace in sorted({each.namespace for each in state.of(kinds.RESOURCEQUOTAS)}):
        table = state.ledger(namespace)
        if table is None:
            for quota in state.of(kinds.RESOURCEQUOTAS, namespace):
                yield from _counted(quota)
            continue
        for each in report(namespace, "", "", table, ledger_view(state, namespace, ())).quotas:
            hard, reserved, other = (_amount(each.resource, text) for text in (each.hard, each.reserved, each.other))
            used = Amount(reserved.value + other.value, "")
            yield QuotaLine(namespace, each.quota, each.resource, hard, used, each.reserved, each.free)


def _counted(quota: ResourceQuota) -> Iterator[QuotaLine]:
    """Return a quota as Kubernetes counts it, for a namespace without a ledger."""
    hard, used = _parsed(quota.spec.hard), _parsed(quota.status.used)
    for name in sorted(hard):
        most, taken = (Amount(each[name] / NANO, amount_text(name, each[name])) for each in (hard, used))
        free = amount_text(name, max(hard[name] - used[name], 0))
        yield QuotaLine(quota.namespace, quota.name, name, most, taken, "", free)


def _amount(resource: str, text: str) -> Amount:
    return Amount(_parsed({resource: text})[resource] / NANO, text)


def _evictions(events: Iterable[Event]) -> tuple[EvictionLine, ...]:
    found = [
        EvictionLine(
            each.last_timestamp or each.metadata.creation_timestamp,
            each.namespace,
            str((each.involved_object or {}).get("name", "")),
            each.reason,
            each.message,
        )
        for each in events
        if each.reason in EVICTED and (each.involved_object or {}).get("kind") == kinds.PODGROUPS.name
    ]
    return tuple(sorted(found, key=lambda each: str(each.when), reverse=True))
