"""Events of a leader: what its watches show, what becomes of its own requests, and what it decides.

Values only. `scheduler.leader.state` folds them into what the leader knows, so that a list of them tells all of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.ledger.rows import Key
from muster.ledger.table import Table
from muster.model.kinds import Kind
from muster.model.objects import Object, PodGroup
from scheduler.model.plan import GroupStatus, Plan
from scheduler.model.snapshot import GroupKey


class ObjectChanged(Struct, frozen=True, gc=False):
    """A watch showed the new version of an object, or the last one of an object that is ``gone``."""

    kind: Kind[Object]
    item: Object
    gone: bool = False


class LedgerChanged(Struct, frozen=True):
    """A watch showed another ledger of a namespace. What it says is read when the next cycle begins."""

    namespace: str


class NodesClosed(Struct, frozen=True):
    """These nodes, and no others, have pods that can't be read."""

    names: frozenset[str]


class ReservationsRead(Struct, frozen=True):
    """The groups of a namespace that hold nothing of its quota, by (API group, name), each with the reason."""

    namespace: str
    unreserved: Mapping[Key, str]


class LedgerRead(Struct, frozen=True):
    """What is reserved in a namespace; None where it has no ledger."""

    namespace: str
    table: Table | None


class PlanDecided(Struct, frozen=True):
    """A cycle decided, at so many seconds of the epoch.

    Attributes:
        plan: what is being carried out from now on.
        assumed: the statuses of it that count as stored while they are being written.
    """

    plan: Plan
    at: float
    assumed: tuple[GroupStatus, ...] = ()


class BindFailed(Struct, frozen=True):
    """A pod wasn't bound, or may be tried again only now: it waits for a node."""

    uid: str


class EvictionRefused(Struct, frozen=True):
    """A pod can't be evicted for a while: it stays, and others are to be looked for.

    Attributes:
        others: uids of those that were to leave for the same group, and stay for now.
        beneficiary: that group, for which nobody is evicted for a while; None where a gang is undone.
        reason: what its users may know of it.
    """

    uid: str
    others: tuple[str, ...] = ()
    beneficiary: GroupKey | None = None
    reason: str = ""


class PodEvicted(Struct, frozen=True):
    """A pod is leaving, or gone, for a group."""

    uid: str
    beneficiary: GroupKey


class EvictionRetryDue(Struct, frozen=True):
    """The while is over: a pod may be evicted."""

    uid: str


class StatusStored(Struct, frozen=True):
    """The API server stored the status of a group; ``group`` is its answer."""

    key: GroupKey
    group: PodGroup


class ReservationRefused(Struct, frozen=True):
    """The ledger refused a group its minimum, with this reason: the group stays Pending for a while."""

    key: GroupKey
    reason: str


class ReservationRetryDue(Struct, frozen=True):
    """The while is over: a group may request its minimum again."""

    key: GroupKey


class AutoscalerSeen(Struct, frozen=True):
    """The cluster has, or no longer has, a program that makes nodes: its name, or none."""

    name: str


EvictionEvent = EvictionRefused | EvictionRetryDue | PodEvicted
"""What becomes of evictions."""

Event = (
    ObjectChanged
    | AutoscalerSeen
    | LedgerChanged
    | NodesClosed
    | ReservationsRead
    | LedgerRead
    | PlanDecided
    | BindFailed
    | EvictionRefused
    | EvictionRetryDue
    | PodEvicted
    | StatusStored
    | ReservationRefused
    | ReservationRetryDue
)
