"""The state of a leader, as a fold over events: the same events give the same snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from muster.model import kinds, versions
from muster.model.kinds import Kind
from muster.model.objects import PodGroup
from scheduler.leader.backoff import EvictionPauses, RequeueTimers
from scheduler.leader.events import (
    AutoscalerSeen,
    BindFailed,
    Event,
    EvictionRefused,
    EvictionRetryDue,
    LedgerChanged,
    LedgerRead,
    NodesClosed,
    ObjectChanged,
    PlanDecided,
    ReservationRefused,
    ReservationRetryDue,
    ReservationsRead,
    StatusStored,
)
from scheduler.model.snapshot import GroupKey, ReservedNodes, Snapshot
from scheduler.state.apply import apply_plan
from scheduler.state.cluster import Cluster
from scheduler.state.handlers import handlers

_POD_STEPS: Final[Mapping[type[Event], Callable[[Cluster, str], None]]] = {
    BindFailed: Cluster.forget,
    EvictionRetryDue: Cluster.unspare,
}


class SchedulerState:
    """The cluster as watches show it, and what the leader itself has under way. Only `handle` changes it.

    Attributes:
        cluster: to be read.
    """

    def __init__(self, scheduler_names: Collection[str]) -> None:
        self._names = tuple(scheduler_names)
        self.cluster = Cluster(self._names)
        self._timers = RequeueTimers()
        self._pauses = EvictionPauses()
        self._reserved: ReservedNodes | None = None
        self._autoscaler = ""
        self._learn = _handlers(self.cluster)

    def rebuild(self, tell_all: Callable[[Callable[[Kind[Any], Any], None]], bool]) -> None:
        """Make the cluster anew: an error that nobody foresaw may have left it half-updated.

        Args:
            tell_all: calls what it is given with each object, and returns whether that failed on none; on a further
                call it leaves out those that it failed on.

        Raises:
            BlamedError: what is under way for a pod can't be taken over.
        """
        while True:
            cluster = Cluster(self._names)
            learn = _handlers(cluster)
            if tell_all(lambda kind, item: learn[kind](item, gone=False)):  # noqa: B023 - called in this round alone
                break
        cluster.take_over(self.cluster)
        self.cluster, self._learn = cluster, learn

    def snapshot(self) -> Snapshot:
        """Return what the next cycle decides on."""
        return replace(
            self.cluster.snapshot(),
            requeues=self._timers.requeues,
            eviction_pauses=self._pauses.by_uid,
            autoscaler=self._autoscaler,
        )

    def handle(self, event: Event) -> bool:
        """Take an event in; tell whether a cycle is due because of it."""
        # What comes back as we wrote it, or a node's heartbeat, gives nobody a reason to decide again.
        before = self.cluster.changes
        match event:
            case ObjectChanged(kind, item, gone):
                self._learn[kind](item, gone=gone)
            case PlanDecided():
                return self._follow(event)
            case BindFailed(uid) | EvictionRetryDue(uid):
                _POD_STEPS[type(event)](self.cluster, uid)
            case EvictionRefused():
                self._refuse(event)
            case StatusStored(key, group):
                self._store(key, group)
            case ReservationRefused() | ReservationRetryDue() | ReservationsRead() | LedgerRead():
                self._learn_reservations(event)
            case NodesClosed(names):
                self.cluster.close_nodes(names)
            case AutoscalerSeen(name):
                changed, self._autoscaler = name != self._autoscaler, name
                return changed
            case LedgerChanged():
                return True
        return self.cluster.changes != before

    def _learn_reservations(
        self, event: ReservationRefused | ReservationRetryDue | ReservationsRead | LedgerRead
    ) -> None:
        match event:
            case ReservationRefused(key, reason):
                self.cluster.refused(key, reason)
            case ReservationRetryDue(key):
                self.cluster.refused(key, "")
            case ReservationsRead(namespace, unreserved):
                self.cluster.unreserved(namespace, unreserved)
            case LedgerRead(namespace, table):
                self.cluster.ledger(namespace, table)

    def _follow(self, decided: PlanDecided) -> bool:
        """Count a plan as carried out; tell whether it changes what those that it left out wait for."""
        plan = decided.plan
        self._timers.observe(plan, decided.at)
        self._pauses.observe(plan, decided.at)
        apply_plan(self.cluster, plan, decided.assumed)
        before, self._reserved = self._reserved, plan.reserved_nodes
        return plan.unsettles(before)

    def _refuse(self, refused: EvictionRefused) -> None:
        """Have a pod stay, and those that were to leave together with it."""
        self.cluster.spare(refused.uid)
        for uid in refused.others:
            self.cluster.spare(uid)
            self.cluster.unspare(uid)
        group = self.cluster.find_group(refused.beneficiary) if refused.beneficiary is not None else None
        if group is not None:
            self._pauses.refused(group.metadata.uid, refused.reason)

    def _store(self, key: GroupKey, group: PodGroup) -> None:
        """Take over what the server stored, unless the watch has shown what came after it."""
        known = self.cluster.find_group(key)
        if known is None:
            return
        if not versions.at_least(known.metadata.resource_version, group.metadata.resource_version):
            self.cluster.group(key.group, group)


def _handlers(cluster: Cluster) -> Mapping[Kind[Any], Callable[..., None]]:
    groups = (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)
    return {
        **handlers(cluster),
        kinds.QUEUES: cluster.queue,
        **{kind: partial(cluster.group, kind.group) for kind in groups},
    }
