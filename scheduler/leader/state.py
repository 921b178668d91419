"""The state of a leader, as a fold over events: the same events give the same snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from muster.model import kinds, versions
from muster.model.kinds import Kind
from muster.model.objects import PodGroup
from scheduler.leader.backoff import RequeueTimers
from scheduler.leader.events import (
    AutoscalerSeen,
    BindFailed,
    Event,
    EvictionRefused,
    EvictionRetryDue,
    LedgerChanged,
    LedgerRead,
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


class SchedulerState:
    """The cluster as watches show it, and what the leader itself has under way. Only `handle` changes it.

    Attributes:
        cluster: to be read.
    """

    def __init__(self, scheduler_names: Collection[str]) -> None:
        self.cluster = Cluster(scheduler_names)
        self._timers = RequeueTimers()
        self._reserved: ReservedNodes | None = None
        self._autoscaler = ""
        groups = (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)
        self._learn: Mapping[Kind[Any], Callable[..., None]] = {
            **handlers(self.cluster),
            kinds.QUEUES: self.cluster.queue,
            **{kind: partial(self.cluster.group, kind.group) for kind in groups},
        }

    def snapshot(self) -> Snapshot:
        """Return what the next cycle decides on."""
        return replace(self.cluster.snapshot(), requeues=self._timers.requeues, autoscaler=self._autoscaler)

    def handle(self, event: Event) -> bool:
        """Take an event in; tell whether a cycle is due because of it."""
        # What comes back as we wrote it, or a node's heartbeat, gives nobody a reason to decide again.
        before = self.cluster.changes
        match event:
            case ObjectChanged(kind, item, gone):
                self._learn[kind](item, gone=gone)
            case PlanDecided():
                return self._follow(event)
            case BindFailed(uid):
                self.cluster.forget(uid)
            case EvictionRefused(uid):
                self.cluster.spare(uid)
            case EvictionRetryDue(uid):
                self.cluster.unspare(uid)
            case StatusStored(key, group):
                self._store(key, group)
            case ReservationRefused() | ReservationRetryDue() | ReservationsRead() | LedgerRead():
                self._learn_reservations(event)
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
        apply_plan(self.cluster, plan, decided.assumed)
        before, self._reserved = self._reserved, plan.reserved_nodes
        return plan.unsettles(before)

    def _store(self, key: GroupKey, group: PodGroup) -> None:
        """Take over what the server stored, unless the watch has shown what came after it."""
        known = self.cluster.find_group(key)
        if known is None:
            return
        if not versions.at_least(known.metadata.resource_version, group.metadata.resource_version):
            self.cluster.group(key.group, group)
