"""The worker: brings changes in, decides, takes plans out. What it knows is rebuilt from the API server at each start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from muster.kube.cache import ObjectChange
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.events import EventRecorder
from muster.kube.fence import Fence, FencedTransport
from muster.ledger.controller import LedgerController
from muster.ledger.observer import Observer, guaranteed_in
from muster.model import kinds, names, versions
from muster.model.objects import Pod, PodGroup
from scheduler.controllers.namespace_labels import FenceController
from scheduler.controllers.ownerrules import OwnerRulesController
from scheduler.controllers.podgroups import PodGroupController
from scheduler.controllers.queues import QueueController
from scheduler.engine.cycle import decide
from scheduler.engine.policy import Policy
from scheduler.leader.backoff import RequeueTimers
from scheduler.leader.binder import Binder
from scheduler.leader.cycle_report import CycleReport
from scheduler.leader.evictor import Evictor
from scheduler.leader.metrics import SchedulerMetrics
from scheduler.leader.pod_conditions import UnplacedPods
from scheduler.leader.status_writer import StatusWriter
from scheduler.leader.volume_binder import VolumeBinder
from scheduler.model.plan import GroupStatus, Plan
from scheduler.model.snapshot import GroupKey, Snapshot
from scheduler.state.cluster import Cluster
from scheduler.state.informers import Informers

log = logging.getLogger(__name__)

PACE: Final = 0.05
"""Seconds between the beginnings of two cycles, at least."""
AGAIN: Final = 5.0
"""Seconds after which a group that the ledger refused its minimum may ask again."""
FLOOR: Final = 1.0
"""Seconds between two cycles, at most, while something waits."""
REST: Final = 9.0
"""How many times as long as deciding takes it rests after it, where nothing changes."""
LONG: Final = 0.05
"""Seconds that the loop may be held up; a cycle that takes longer makes the next one run in a thread."""
HANG: Final = 300.0
"""Seconds after which a cycle that is still being decided won't end: hundreds of times as long as the largest takes."""
MANY: Final = 1000
"""So do so many pods that wait."""


class Worker:
    """Scheduler and controllers, for as long as this process leads.

    ``run`` is called with each new fence and starts from nothing: what a former leader left half done is found in the
    objects and finished. ``namespace`` is Muster's own, where its ConfigMaps are. ``quota_mode`` is what namespaces are
    labelled with whose groups reserve of a quota; empty for leaving that to their owners.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        policy: Policy,
        scheduler_names: Sequence[str],
        *,
        legacy_apis: bool = False,
        namespace: str = names.SYSTEM_NAMESPACE,
        quota_mode: str = names.GUARDED,
    ) -> None:
        self._client = client
        self._clock = clock
        self._policy = policy
        self._names = tuple(scheduler_names)
        self._legacy = legacy_apis
        self._namespace = namespace
        self._quota_mode = quota_mode
        self.synced = asyncio.Event()
        self.metrics = SchedulerMetrics()
        self._term: Term | None = None

    def adopt(self, policy: Policy) -> None:
        """Follow another policy, from the next cycle on."""
        self._policy = policy
        if self._term is not None:
            self._term.adopt(policy)

    def not_ready(self) -> list[str]:
        """Say what a process that leads still waits for; one that stands by is ready to take over."""
        return self._term.missing() if self._term is not None and not self.synced.is_set() else []

    def not_alive(self) -> list[str]:
        """Say what only a restart can fix: a plugin that never returns, say; another process leads then."""
        if self._term is None or not self._term.hangs():
            return []
        return [f"a cycle is being decided for more than {HANG:.0f} seconds"]

    def state(self) -> dict[str, Any]:
        """Return what this process knows as JSON values, for a person who looks for a fault."""
        standing = {"program": "scheduler", "leading": self._term is not None, "notReady": self.not_ready()}
        return standing | (self._term.state() if self._term is not None else {})

    async def run(self, fence: Fence) -> None:
        """Work until cancelled.

        Raises:
            ExceptionGroup: a part of it failed in a way that nobody foresaw.
        """
        client = Client(FencedTransport(self._client.transport, fence))
        term = Term(
            client,
            self._clock,
            self._policy,
            self._names,
            self.metrics,
            legacy_apis=self._legacy,
            namespace=self._namespace,
            quota_mode=self._quota_mode,
        )
        self._term = term
        self.metrics.leading.set(1)
        try:
            await term.run(self.synced)
        finally:
            self._term = None
            self.metrics.leading.set(0)
            self.synced.clear()
            await term.close()


class Term:
    """The worker's state during one leadership."""

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
        self._changed = asyncio.Event()
        self._took = 0.0
        self._views = Informers(legacy_apis=legacy_apis)
        self._cluster = Cluster(scheduler_names)
        self._teller = CycleReport(metrics)
        metrics.watches_failing.set_function(self._views.watching.failing)
        self._deciding: float | None = None
        self._views.feed(self._cluster, self._changed.set)
        self._recorder = EventRecorder(client, clock, scheduler_names[0])
        views = self._views
        volumes = VolumeBinder(client, views.cache(kinds.CLAIMS), views.cache(kinds.VOLUMES), views.cache(kinds.NODES))
        self._binder = Binder(client, volumes, self._give_up)
        self._patience = RequeueTimers()
        self._evictor = Evictor(client, self._recorder, self)
        self._views.pods.subscribe(self._forget_pod)
        self._queues = QueueController(client, self._views, self._recorder, scheduler_names)
        kinds_by_group = {kind.group: kind for kind in self._views.groups}
        self._statuses = StatusWriter(
            client, self._recorder, kinds_by_group, self._seen, self._refuse, self._queues.work
        )
        for kind, cache in self._views.groups.items():
            cache.subscribe(self._forgetting(kind.group))
        self._unplaced = UnplacedPods(client, self._views.pods, scheduler_names)
        self._fences = FenceController(client, self._views, quota_mode)
        self._rules = OwnerRulesController(client, self._recorder, namespace)
        self._podgroups = PodGroupController(
            client, self._views, self._recorder, scheduler_names, delays=policy.enqueues, rules=self._rules
        )
        observer = Observer(self._views.groups, self._views.cache(kinds.RESOURCEQUOTAS), self._views.pods)
        ledgers = self._views.cache(kinds.QUOTALEDGERS)
        waits = guaranteed_in(self._views.cache(kinds.NAMESPACES))
        self._keeper = LedgerController(client, ledgers, observer, clock, metrics.ledger, waits)
        ledgers.subscribe(lambda _: self._changed.set())

    async def run(self, synced: asyncio.Event) -> None:
        """Work until cancelled; ``synced`` is set when the cluster is known."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._views.run(self._client, synced), name="views")
            group.create_task(self._recorder.run(), name="events")
            group.create_task(self._rules.run(), name="owner rules")
            await self._rules.synced()
            await synced.wait()
            group.create_task(self._statuses.run(), name="statuses")
            group.create_task(self._unplaced.run(), name="conditions of pods")
            group.create_task(self._queues.run(), name="queues")
            group.create_task(self._podgroups.run(), name="podgroups")
            group.create_task(self._fences.run(), name="fences")
            group.create_task(self._keeper.run(), name="ledgers")
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
        self._teller.close()
        self._metrics.watches_failing.set_function(int)

    def missing(self) -> list[str]:
        """Say what isn't known yet of the cluster."""
        return self._views.watching.missing()

    def hangs(self) -> bool:
        """Whether a cycle is being decided for so long that it won't end."""
        return self._deciding is not None and asyncio.get_running_loop().time() - self._deciding > HANG

    def state(self) -> dict[str, Any]:
        """Return what it knows, for a person who looks for a fault; bounded, and without secrets."""
        return {
            "actions": [action.name for action in self._policy.actions],
            "plugins": [[each.plugin.name for each in tier] for tier in self._policy.tiers],
            "lastCycleSeconds": round(self._took, 4),
            "caches": self._views.watching.state(),
            **self._teller.state(),
        }

    async def _schedule(self) -> None:
        """Run a cycle when something changed, and each second while something waits."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            began = loop.time()
            for namespace, reasons in self._keeper.unreserved_groups.news():
                self._cluster.unreserved(namespace, reasons)
            for namespace, late in self._cluster.late():
                self._cluster.ledger(namespace, self._keeper.table(namespace, late))
            with self._metrics.cycle_seconds.time():
                now = self._clock.now()
                snapshot = replace(self._cluster.snapshot(), waits=self._patience.waits)
                plan = await self._decide(snapshot, now)
                self._patience.learn(plan, now.timestamp())
            self._teller.tell(plan, now.timestamp(), self._took)
            patience = self._perform(plan)
            if plan.unsettles(snapshot.reserved):
                self._changed.set()
            # As long as it took, at least: the other half of the time is for those who carry it out.
            await asyncio.sleep(max(PACE, loop.time() - began))
            await self._change_within(patience)

    async def _decide(self, snapshot: Snapshot, now: datetime) -> Plan:
        """Decide; where that may take long, in a thread, so that the lease is renewed and events come in meanwhile."""
        loop = asyncio.get_running_loop()
        began = self._deciding = loop.time()
        if self._took < LONG and sum(len(job.pending) for job in snapshot.jobs) < MANY:
            plan = decide(snapshot, self._policy, now)
        else:
            plan = self._up_to_date(await asyncio.to_thread(decide, snapshot, self._policy, now))
        self._deciding, self._took = None, loop.time() - began
        return plan

    def _up_to_date(self, plan: Plan) -> Plan:
        """Leave out the groups of which a pod or a node has gone since the snapshot: a gang is bound whole."""
        gone = {bind.group for bind in plan.binds if not self._cluster.takes(bind)}
        for key in gone:
            log.info("PodGroup %s changed while it was placed, and is placed again", key)
        return replace(plan, binds=tuple(bind for bind in plan.binds if bind.group not in gone))

    async def _change_within(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _perform(self, plan: Plan) -> float | None:
        """Begin to carry out a plan; give the seconds after which another cycle is due, whatever happens."""
        for bind in plan.binds:
            self._cluster.assume(bind.task.uid, bind.node, bind.volumes)
        for eviction in plan.evictions:
            self._cluster.evicting(eviction.task.uid)
        self._cluster.promise({bind.task.uid: bind.node for bind in plan.pipelined})
        self._cluster.remember(plan.reserved, plan.torn, left_out=plan.left_out)
        self._binder.start(plan.binds)
        self._evictor.start(plan.evictions)
        taken, postponed = self._statuses.offer(plan.statuses)
        for status in taken:
            # What the ledger has yet to agree to, nothing is built on.
            if not status.reserves:
                self._assume(status)
        self._unplaced.learn(plan)
        self._queues.shares(plan.queues)
        self._podgroups.release(plan.released)
        # Where nothing changes, a long cycle would decide the same again and again, and keep others from their turn.
        due = [max(FLOOR, REST * self._took)] if plan.waiting else []
        return min([*due, *([postponed] if postponed is not None else [])], default=None)

    def _assume(self, status: GroupStatus) -> None:
        """Let the next cycle build on a status that is being written."""
        group = self._cluster.find_group(status.key)
        if group is not None:
            self._cluster.group(status.key.group, replace(group, status=status.struct()))

    def _seen(self, key: GroupKey, group: PodGroup) -> None:
        """Take over what the server stored, unless the watch has shown what came after it."""
        shown = self._views.group(key)
        if shown is not None and not versions.at_least(
            shown.metadata.resource_version, group.metadata.resource_version
        ):
            before = self._cluster.changes
            self._cluster.group(key.group, group)
            if self._cluster.changes != before:
                # It is news where nothing was built on it before: the watch tells what is known by then.
                self._changed.set()

    def _refuse(self, key: GroupKey, reason: str) -> None:
        """Keep a group Pending that the ledger refused, and let it ask again after a while."""
        if (group := self._cluster.find_group(key)) is not None:
            self._teller.refused(key, group.metadata.uid, reason)
        self._cluster.refused(key, reason)
        self._changed.set()
        asyncio.get_running_loop().call_later(AGAIN, self._forgive, key)

    def _forgive(self, key: GroupKey) -> None:
        self._cluster.refused(key, "")
        self._changed.set()

    def _give_up(self, uid: str) -> None:
        self._metrics.unbound.inc()
        self._cluster.forget(uid)
        self._changed.set()

    def _forget_pod(self, change: ObjectChange[Pod]) -> None:
        if change.new is None and change.old is not None:
            self._binder.forget(change.old.metadata.uid)
            self._evictor.forget(change.old.metadata.uid)

    def spare(self, uid: str) -> None:
        """Learn that a pod stays: its eviction is refused for a while."""
        self._cluster.spare(uid)
        self._changed.set()

    def unspare(self, uid: str) -> None:
        """Learn that its eviction may be tried again."""
        self._cluster.unspare(uid)
        self._changed.set()

    def _forgetting(self, api_group: str) -> Callable[[ObjectChange[PodGroup]], None]:
        def on_change(change: ObjectChange[PodGroup]) -> None:
            if change.old is not None and change.new is None:
                self._statuses.forget(GroupKey(api_group, change.old.namespace, change.old.name))

        return on_change
