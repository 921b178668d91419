"""One leadership: what is made at its beginning, and the loop that decides. Rebuilt from the API server each time.

Watches and effects tell what happened as events, to one `Leadership.handle`; a plan goes out to the effects from one place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from muster.kube.cache import ObjectChange
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.events import EventRecorder
from muster.kube.garbage import uncollected
from muster.kube.subscription import DerivedState
from muster.ledger.auditor import Auditor
from muster.ledger.controller import LedgerController
from muster.ledger.observer import Observer, guaranteed_in
from muster.ledger.windows import QuotaWindows
from muster.model import grouping, kinds, names
from muster.model.objects import Object, Pod, PodGroup, QuotaLedger
from muster.model.text import counted
from scheduler.controllers.autoscaler import AutoscalerObserver
from scheduler.controllers.namespace_labels import NamespaceLabelController
from scheduler.controllers.ownerrules import OwnerRulesController
from scheduler.controllers.podgroups import PodGroupController
from scheduler.controllers.queues import QueueController
from scheduler.controllers.refused_minimums import RefusedMinimums
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.engine.policy import Policy
from scheduler.leader.backoff import EvictionTally, ReservationRetries
from scheduler.leader.binder import Binder
from scheduler.leader.culprits import find_culprit
from scheduler.leader.cycle_report import CycleReport
from scheduler.leader.device_binder import DeviceBinder
from scheduler.leader.events import (
    AutoscalerSeen,
    BindFailed,
    Event,
    LedgerChanged,
    LedgerRead,
    NodesClosed,
    ObjectChanged,
    PlanDecided,
    PodEvicted,
    ReservationRefused,
    ReservationRetryDue,
    ReservationsRead,
    StatusStored,
)
from scheduler.leader.evictor import Evictor
from scheduler.leader.group_events import GroupEvents
from scheduler.leader.intervals import (
    CYCLE_HANG_SECONDS,
    FIND_CULPRIT_SECONDS,
    INLINE_CYCLE_SECONDS,
    INLINE_PENDING_PODS,
    MIN_CYCLE_INTERVAL_SECONDS,
    REST_PER_CYCLE,
    RESYNC_INTERVAL_SECONDS,
    USER_PLUGIN_INTERVAL_SECONDS,
)
from scheduler.leader.metrics import SchedulerMetrics
from scheduler.leader.pod_conditions import UnplacedPods
from scheduler.leader.pod_events import PodEvents
from scheduler.leader.quarantine import QuarantineReporter
from scheduler.leader.recovery import Recovery
from scheduler.leader.state import SchedulerState
from scheduler.leader.status_writer import StatusWriter
from scheduler.leader.volume_binder import VolumeBinder
from scheduler.model.plan import Plan
from scheduler.model.snapshot import GroupKey, Snapshot
from scheduler.state.blame import BlamedError, Culprit
from scheduler.state.informers import Informers

log = logging.getLogger(__name__)


class Leadership:
    """The worker's state during one leadership, and what it does."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        policy: Policy,
        scheduler_names: Sequence[str],
        metrics: SchedulerMetrics,
        *,
        legacy_apis: bool,
        namespace: str,
        quota_mode: str,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._clock = clock
        self._policy = policy
        self._cache = DecisionCache()
        self._changed = asyncio.Event()
        self._took = 0.0
        self._deciding: float | None = None
        self._state = SchedulerState(scheduler_names)
        self._report = CycleReport(metrics)
        self._retries = ReservationRetries()
        self._tally = EvictionTally()
        self._recorder = recorder = EventRecorder(client, clock, scheduler_names[0])

        # What comes in.
        self._informers = informers = Informers(legacy_apis=legacy_apis)
        metrics.watches_failing.set_function(informers.watching.failing)
        metrics.unreadable.count = informers.watching.unknown
        self._derived = DerivedState(self._changed.set)
        informers.feed(self._on_object, self._derived)
        informers.subscribe_doubtful(self._on_doubt)
        informers.pods.subscribe(self._drop_pod)
        for kind, cache in informers.groups.items():
            cache.subscribe(partial(self._drop_group, kind))
        self._quarantine = QuarantineReporter(informers, recorder)
        self._recovery = Recovery()
        ledgers = informers.cache(kinds.QUOTALEDGERS)

        # What goes out.
        claims, volumes = informers.cache(kinds.CLAIMS), informers.cache(kinds.VOLUMES)
        devices = DeviceBinder(client, informers.cache(kinds.RESOURCECLAIMS), informers.cache(kinds.DEVICECLASSES))
        prepared = VolumeBinder(client, claims, volumes, informers.cache(kinds.NODES))
        self._binder = Binder(client, prepared, devices, self.handle)
        self._queues = QueueController(client, informers, recorder, scheduler_names)
        group_kinds = {kind.group: kind for kind in informers.groups}
        group_events = GroupEvents(recorder, group_kinds, informers.group)
        self._evictor = Evictor(client, recorder, self.handle, group_events.record_on)
        self._statuses = StatusWriter(client, group_events, group_kinds, self.handle, self._queues.work)
        self._unplaced = UnplacedPods(client, clock, informers.pods, scheduler_names)

        # Controllers that need nothing of a cycle, or little.
        self._namespaces = NamespaceLabelController(client, informers, quota_mode)
        self._rules = OwnerRulesController(client, recorder, namespace)
        self._autoscaler = AutoscalerObserver(client, lambda name: self.handle(AutoscalerSeen(name)))
        self._podgroups = PodGroupController(
            client, informers, recorder, scheduler_names, clock=clock, delays=policy.enqueues, rules=self._rules
        )
        find, native = informers.find_group, self._podgroups.native.obstacle
        self._pod_events = PodEvents(recorder, informers.pods, scheduler_names, self._binder.busy, find, native)
        self._minimums = RefusedMinimums(client, informers)
        quotas, namespaces = informers.cache(kinds.RESOURCEQUOTAS), informers.cache(kinds.NAMESPACES)
        served, claimed = tuple(scheduler_names), informers.cache(kinds.RESOURCECLAIMS)
        observer = Observer(informers.groups, quotas, informers.pods, claimed, informers.watching.timeline, served)
        waits = guaranteed_in(namespaces)
        windows = QuotaWindows(client, namespaces, informers.pods, informers.groups, quota_mode, served)
        self._ledgers = LedgerController(client, ledgers, observer, clock, metrics.ledger, waits, windows)
        windows.subscribe(lambda name: self.handle(LedgerChanged(name)))
        self._auditor = Auditor(client, ledgers, quotas, informers.groups, observer, metrics.audit, waits)
        ledgers.subscribe(
            lambda change: self.handle(LedgerChanged((change.new or change.old or QuotaLedger()).namespace))
        )

    async def run(self, synced: asyncio.Event) -> None:
        """Work until cancelled; ``synced`` is set when the cluster is known."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informers.run(self._client, synced), name="informers")
            group.create_task(self._recorder.run(), name="events")
            group.create_task(self._quarantine.run(), name="quarantine")
            group.create_task(self._rules.run(), name="owner rules")
            group.create_task(self._autoscaler.run(), name="autoscaler")
            await self._rules.synced()
            await synced.wait()
            group.create_task(self._statuses.run(), name="statuses")
            group.create_task(self._unplaced.run(), name="conditions of pods")
            group.create_task(self._pod_events.run(), name="events of pods")
            group.create_task(self._queues.run(), name="queues")
            group.create_task(self._podgroups.run(), name="podgroups")
            group.create_task(self._minimums.run(), name="refused minimums")
            group.create_task(self._namespaces.run(), name="labels of namespaces")
            group.create_task(self._ledgers.run(), name="ledgers")
            group.create_task(self._auditor.run(), name="audit")
            group.create_task(self._schedule(), name="cycles")

    def adopt(self, policy: Policy) -> None:
        """Follow another policy, from the next cycle on."""
        self._policy = policy
        self._podgroups.delay(policy.enqueues)
        self._changed.set()

    async def close(self) -> None:
        """End what is under way."""
        await self._binder.close()
        await self._evictor.close()
        self._report.close()
        self._metrics.watches_failing.set_function(int)
        self._metrics.unreadable.count = dict

    def missing(self) -> list[str]:
        """Say what isn't known yet of the cluster."""
        return self._informers.watching.missing()

    def has_default_queue(self) -> bool:
        """Whether there is the queue of groups that name none; what a fresh installation makes last, through its webhooks."""
        return self._informers.queue(names.DEFAULT_QUEUE) is not None

    def hangs(self) -> bool:
        """Whether a cycle is being decided for so long that it won't end."""
        return self._deciding is not None and asyncio.get_running_loop().time() - self._deciding > CYCLE_HANG_SECONDS

    def state(self) -> dict[str, Any]:
        """Return what it knows, for a person who looks for a fault; bounded, and without secrets."""
        return {
            "actions": [action.name for action in self._policy.actions],
            "plugins": [[each.plugin.name for each in tier] for tier in self._policy.tiers],
            "lastCycleSeconds": round(self._took, 4),
            "caches": self._informers.watching.state(),
            **self._report.state(),
        }

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: Event) -> None:
        """Take an event in: what is known of the cluster, then what follows for requests under way."""
        try:
            changed = self._state.handle(event)
        except Exception:
            if isinstance(event, ObjectChanged | PlanDecided):
                raise  # Its object is quarantined, its cycle tried again.
            log.exception("%s wasn't followed: an error in Muster", type(event).__name__)
            self._derived.spoil()
        else:
            if changed:
                self._changed.set()
        match event:
            case PodEvicted(_, beneficiary):
                self._tally.evicted(beneficiary)
            case BindFailed():
                self._metrics.unbound.inc()
            case ReservationRefused(key, reason):
                if (group := self._state.cluster.find_group(key)) is not None:
                    owner = grouping.owner_of(group.metadata)
                    title = grouping.title(key.namespace, key.name, owner)
                    self._report.refused(key, group.metadata.uid, title, reason)
                loop = asyncio.get_running_loop()
                loop.call_later(self._retries.pause(key), self.handle, ReservationRetryDue(key))
            case StatusStored(key, _):
                self._retries.forget(key)

    def _on_object(self, kind: kinds.Kind[Any], item: Object, gone: bool) -> None:  # noqa: FBT001 - as watches tell it
        self.handle(ObjectChanged(kind, item, gone))

    def _on_doubt(self) -> None:
        self.handle(NodesClosed(frozenset(self._informers.closed_nodes())))

    def _drop_pod(self, change: ObjectChange[Pod]) -> None:
        """Keep nothing for another try for what is gone."""
        if change.new is None and change.old is not None:
            self._binder.forget(change.old.metadata.uid)
            self._evictor.forget(change.old.metadata.uid)

    def _drop_group(self, kind: kinds.Kind[PodGroup], change: ObjectChange[PodGroup]) -> None:
        if change.new is None and change.old is not None:
            key = GroupKey(kind.group, change.old.namespace, change.old.name)
            self._statuses.forget(key)
            self._retries.forget(key)

    # ── cycles ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _schedule(self) -> None:
        """Run a cycle when something changed, and when time alone may change what is decided."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                until = await self._cycle()
            except BlamedError as error:
                self._deciding = None
                await self._quarantine_culprit(error)
            except Exception as error:  # noqa: BLE001 - nobody foresaw it, so the state may be wrong
                self._deciding = None
                await self._recovery.pause(error)
            else:
                self._recovery.reset()
                # As long as it took, at least: the other half of the time is for those who carry it out.
                await asyncio.sleep(max(MIN_CYCLE_INTERVAL_SECONDS, loop.time() - began))
                await self._change_before(until)
                continue
            self._cache = DecisionCache()
            self._derived.spoil()

    async def _cycle(self) -> float:
        """Decide once and begin to carry that out; return the loop's time at which to decide again in any case."""
        self._changed.clear()
        if self._derived.stale:
            self._state.rebuild(self._informers.tell_all)
            self._derived.stale = False
        self._read_ledgers()
        self._changed.clear()
        with self._metrics.cycle_seconds.time(), uncollected():
            now, snapshot = self._clock.now(), self._state.snapshot()
            plan = await self._decide(snapshot, now)
        statuses_due = self._perform(plan, now)
        # The first binds leave before others are told.
        await asyncio.sleep(0)
        self._report.report(plan, now.timestamp(), self._took)
        self._pod_events.observe(plan, snapshot)
        return min(statuses_due, self._next_cycle(plan))

    async def _quarantine_culprit(self, error: BlamedError) -> None:
        """Leave an object out that a cycle fails with, so that the next one does without it."""
        cause = error.__cause__
        if not isinstance(cause, Exception) or not self._informers.quarantine(error.culprit, cause):
            await self._recovery.pause(error)
            return
        await asyncio.sleep(MIN_CYCLE_INTERVAL_SECONDS)

    def _read_ledgers(self) -> None:
        for namespace, unreserved in self._ledgers.unreserved_groups.news():
            self.handle(ReservationsRead(namespace, unreserved))
            self._minimums.observe(namespace, unreserved)
        for namespace, late in self._state.cluster.late():
            self.handle(LedgerRead(namespace, self._ledgers.table(namespace, late)))

    async def _decide(self, snapshot: Snapshot, now: datetime) -> Plan:
        """Decide; where that may take long, in a thread, so that the lease is renewed and events come in meanwhile."""
        loop = asyncio.get_running_loop()
        began = self._deciding = loop.time()
        pending = sum(len(job.pending) for job in snapshot.jobs)
        # Tenants write the expressions that choose devices, so these are evaluated beside the loop.
        quick = not snapshot.devices.asked(snapshot.axes.names) and pending < INLINE_PENDING_PODS
        inline = quick and self._took < INLINE_CYCLE_SECONDS
        try:
            if inline:
                plan = decide(snapshot, self._policy, now, self._cache)
            else:
                plan = self._up_to_date(await asyncio.to_thread(decide, snapshot, self._policy, now, self._cache))
        except Exception as error:
            search = partial(self._find_culprit, snapshot, now, began + FIND_CULPRIT_SECONDS, loop)
            culprit = search() if inline else await asyncio.to_thread(search)
            if culprit is None:
                raise
            raise BlamedError(culprit) from error
        self._deciding, self._took = None, loop.time() - began
        return plan

    def _find_culprit(
        self, snapshot: Snapshot, now: datetime, end: float, loop: asyncio.AbstractEventLoop
    ) -> Culprit | None:
        """Return the group that deciding fails with, where it is one, and it is found by the loop's time ``end``."""

        def attempt(some: Snapshot) -> None:
            decide(some, self._policy, now, DecisionCache())

        return find_culprit(snapshot, attempt, lambda: loop.time() > end)

    def _up_to_date(self, plan: Plan) -> Plan:
        """Leave out the groups of which a pod or a node has gone since the snapshot: a gang is bound whole."""
        gone = {bind.group for bind in plan.binds if not self._state.cluster.takes(bind)}
        for key in gone:
            log.info("%s changed while it was placed, and is placed again", plan.groups[key].title)
        return replace(plan, binds=tuple(bind for bind in plan.binds if bind.group not in gone))

    def _perform(self, plan: Plan, now: datetime) -> float:
        """Begin to carry out a plan; return the loop's time at which a status that is put off may be written."""
        taken, statuses_due = self._statuses.offer(plan.statuses)
        # What the ledger has yet to agree to, nothing is built on.
        self.handle(PlanDecided(plan, now.timestamp(), tuple(each for each in taken if not each.reserves)))
        for key, count in self._tally.in_vain(plan).items():
            status = plan.groups.get(key)
            whom = status.title if status is not None else f"PodGroup {key}, which is gone,"
            log.warning("%s for %s came to nothing", counted(count, "eviction"), whom)
            self._metrics.in_vain.inc(count)
        self._binder.start(plan.binds)
        self._binder.give_back(plan.held_claims)
        self._evictor.start(plan.evictions)
        self._unplaced.observe(plan)
        self._queues.observe(plan.queues, plan.network_tiers)
        self._podgroups.release(plan.released)
        return statuses_due

    def _next_cycle(self, plan: Plan) -> float:
        """Return the loop's time at which to decide again though nothing changes."""
        loop = asyncio.get_running_loop()
        if not plan.waiting:
            return float("inf")
        isolated = any(enabled.isolated for tier in self._policy.tiers for enabled in tier)
        most = USER_PLUGIN_INTERVAL_SECONDS if isolated else RESYNC_INTERVAL_SECONDS
        pause = min(most, plan.wakes_at - self._clock.now().timestamp())
        # A long cycle that decides the same again and again would keep others from their turn.
        return loop.time() + max(pause, REST_PER_CYCLE * self._took)

    async def _change_before(self, moment: float) -> None:
        """Wait for a change, or until the loop's time comes to that moment."""
        try:
            async with asyncio.timeout_at(moment if moment != float("inf") else None):
                await self._changed.wait()
        except TimeoutError:
            return
