"""Runs a cluster through its time, event by event: the worker's decisions, and what becomes of them.

The same `decide`, back-off, life cycle and admission as in a cluster, without an API server in between: what they write
is there at once. A cycle is run when something changed, at the worker's pace, and when time alone may change what is
decided (`Plan.next_deadline`); time in between is jumped over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from msgspec.structs import replace as changed

from muster.model.amounts import Resources
from muster.model.kinds import Kind
from muster.model.objects import PodGroup, PriorityClass
from scheduler.engine import requeue, satisfied
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.engine.policy import Policy
from scheduler.leader.backoff import RequeueTimers, ReservationRetries
from scheduler.leader.intervals import MIN_CYCLE_INTERVAL_SECONDS
from scheduler.model.plan import GroupStatus, Plan, Urgency
from scheduler.model.snapshot import GroupKey, JobInfo, Phase, RequeueState, ReservedNodes, Snapshot, TaskStatus
from scheduler.simulator.admission import SimulatedAdmission
from scheduler.simulator.event_queue import EventQueue
from scheduler.simulator.gangs import SimulatedGang
from scheduler.simulator.measures import Measures
from scheduler.simulator.pods import GROUP_KINDS, PodLifecycle
from scheduler.simulator.trace import TraceJob
from scheduler.simulator.workloads import UidSource, Workloads
from scheduler.state.apply import apply_plan
from scheduler.state.cluster import Cluster

_NEVER: Final = float("inf")
_MANY: Final = 1 << 30
HOPE: Final = 86400.0
"""Seconds for which groups that wait are given their chance, once nothing else is going to happen."""
_TELL: Final = 100
_FIRST_REST: Final = 10.0
_LONGEST_REST: Final = 600.0
"""Seconds from a cycle that came to nothing to the next one that only time calls for, where a simulation rests."""
_SETTLED: Final = frozenset({Phase.RUNNING, Phase.COMPLETED})
"""Phases that change nothing for others: what such a group uses was counted before."""


class SimulationSetup(Struct, frozen=True):
    """What a simulation starts from.

    Attributes:
        cluster: nodes, queues and what else is there from the beginning, but for groups, Jobs and pods.
        existing, created: groups, Jobs and pods that are there, and that are created at the beginning, with their kinds.
        trace: what arrives later, the earlier first.
        until: seconds after which to stop; infinity: when nothing can happen any more.
        rests: whether cycles that time alone calls for come ever more rarely where they come to nothing, for one that would rather have an
            answer soon than to the second.
        pace: seconds from one cycle to the next one that the end of something calls for, at least; where a simulation rests, an arrival, too.
        stretch: the same as a share of the seconds that have passed: what is far ahead may be less exact.
        resumes: whether it goes on from a cluster that a leader has decided about: nodes may be kept for a large job already.
    """

    cluster: Cluster
    policy: Policy
    admission: SimulatedAdmission
    start: datetime
    capacity: Resources
    queues: tuple[str, ...]
    uids: UidSource
    existing: tuple[tuple[Kind[Any], Any], ...] = ()
    created: tuple[tuple[Kind[Any], Any], ...] = ()
    priorities: tuple[PriorityClass, ...] = ()
    trace: Iterable[TraceJob] = ()
    until: float = _NEVER
    rests: bool = False
    pace: float = MIN_CYCLE_INTERVAL_SECONDS
    stretch: float = 0.0
    resumes: bool = False


class SimulationProgress(Struct):
    """How far it is: what is told to who watches. ``arrived`` of ``expected`` lines of the trace at ``now`` seconds."""

    now: float = 0.0
    arrived: int = 0
    expected: int = 0


class Simulation:
    """One run. ``run`` is called once; then ``lifecycle`` and ``measures`` tell what happened."""

    def __init__(self, setup: SimulationSetup) -> None:
        self._setup = setup
        self._cluster = setup.cluster
        self._timers = RequeueTimers()
        self._retries = ReservationRetries(jitter=False)
        self._cache = DecisionCache()
        self._events = EventQueue()
        self._due = 0.0
        self._last = -MIN_CYCLE_INTERVAL_SECONDS
        self._waiting = False
        self._rest = 0.0
        self._thins = satisfied.may_set_aside(setup.policy)
        self.measures = Measures(setup.capacity, setup.queues)
        self._last_event = 0.0
        self.lifecycle = PodLifecycle(
            setup.cluster,
            setup.admission,
            self.measures,
            self._events,
            self._came,
            self._freed,
            setup.start,
        )
        self._workloads = Workloads(
            setup.cluster, setup.admission, self.lifecycle, self.measures, setup.start, setup.uids
        )
        self._trace = iter(setup.trace)
        self.progress = SimulationProgress(expected=len(setup.trace) if isinstance(setup.trace, Sized) else 0)
        self.cycles = 0
        self._looked: Plan | None = None
        self._nominated: Mapping[str, str] = {}
        self._reserved: ReservedNodes | None = None
        self._partially_bound: Mapping[GroupKey, float] = {}

    def run(
        self,
        tell: Callable[[SimulationProgress], None],
        enough: Callable[[], bool] = lambda: False,
        *,
        hope: float = HOPE,
    ) -> float:
        """Let time pass to the end; return the seconds that the report is about.

        Args:
            tell: called now and then.
            enough: called after each cycle; once it holds, nothing more is simulated.
            hope: seconds for which groups that wait are given their chance, once nothing else is going to happen.
        """
        setup, events = self._setup, self._events
        self._begin()
        coming = next(self._trace, None)
        while True:
            arrival = coming.arrival if coming is not None else _NEVER
            event = min(events.next_at, arrival)
            at = min(event, self._due)
            if at == _NEVER or at > setup.until or (event == _NEVER and at > self._last_event + hope):
                break
            self.lifecycle.now = at
            if event <= at:
                self._last_event, self._rest = at, 0.0
            for callback in events.due(at):
                callback()
            while coming is not None and coming.arrival <= at:
                self._workloads.arrive(coming)
                self.progress.arrived += 1
                coming = next(self._trace, None)
            if self._due <= at:
                self._cycle()
                if self.cycles % _TELL == 0:
                    self.progress.now = at
                    tell(self.progress)
                if enough():
                    break
        end = self.lifecycle.now = setup.until if setup.until != _NEVER else self._last_event
        self.measures.finish(end)
        return end

    def _begin(self) -> None:
        """Take in what is there, and create what is created at the beginning."""
        for priority in self._setup.priorities:
            self._workloads.show_priority(priority)
        for kind, one in self._setup.existing:
            self._workloads.exists(kind, one)
        for kind, one in self._setup.created:
            self._workloads.create(kind, one)
        if self._setup.resumes:
            self._resume()

    def _resume(self) -> None:
        """Remember what the leader does, as far as the cluster shows it: who was taken back, and for whom which nodes are kept."""
        snapshot, now = self._decide(records=False)
        # Somebody keeps those that wait beside idle nodes from starting: what follows is chosen as if they weren't there.
        beside = {bind.group for bind in now.binds}
        jobs = tuple(job for job in snapshot.jobs if job.key not in beside)
        waits = self._postponed(jobs, now)
        # Taken back once more, they wait for other nodes than there are: a leader remembers that, the cluster doesn't.
        admitted = tuple(
            replace(job, phase=Phase.INQUEUE) if job.uid in waits and job.phase is Phase.PENDING else job
            for job in jobs
        )
        tried = {uid: replace(wait, since=0.0, pods=_MANY) for uid, wait in waits.items()}
        again = self._supposed(replace(snapshot, jobs=admitted, requeues=tried))
        back = {uid: each for uid, each in again.rolled_back.items() if uid in waits}
        self._timers.requeues = {
            uid: replace(each, until=waits[uid].until, tries=waits[uid].tries) for uid, each in back.items()
        }
        kept = self._supposed(replace(snapshot, jobs=jobs, requeues=self._timers.requeues)).reserved_nodes
        if kept is None and beside:
            # One that was taken back goes on having nodes that were kept for it before, but gets no others.
            kept = self._supposed(replace(snapshot, jobs=jobs, requeues={})).reserved_nodes
        if kept is not None:
            idle = [bind.node for plan in (now, again) for bind in plan.binds]
            kept = kept._replace(nodes=tuple(dict.fromkeys([*idle, *kept.nodes]))[: len(kept.nodes)])
        self._reserved = kept
        self._cluster.remember(kept, {})

    def _postponed(self, jobs: Iterable[JobInfo], now: Plan) -> dict[str, RequeueState]:
        """Return by uid the groups that may be admitted again once nodes change, as far as the cluster shows it: the others wait for room alone.

        Nodes have changed since a pod was placed, and since one was taken back that was admitted again. What would be admitted `now` all the same isn't,
        so that it waits for another change.
        """
        moment = self._moment.timestamp()
        recorded = {job.uid: wait for job in jobs if (wait := requeue.recorded(job.conditions))}
        again = [
            requeue.taken_back(recorded[job.uid])
            for job in jobs
            if job.phase is Phase.INQUEUE and job.uid in recorded and recorded[job.uid].idle
        ]
        begun = [
            pod.status.start_time.timestamp()
            for gang in self.lifecycle.gangs.values()
            for pod in gang.pods.values()
            if pod.spec.node_name and pod.status.start_time is not None
        ]
        changed_at = max([*again, *begun], default=0.0)
        admissible = {key for key, status in now.groups.items() if status.phase is not Phase.PENDING}
        return {
            job.uid: wait
            for job in jobs
            if (wait := recorded.get(job.uid)) is not None
            and wait.until <= moment
            and (job.key in admissible or not wait.idle or requeue.taken_back(wait) > changed_at)
        }

    def _supposed(self, snapshot: Snapshot) -> Plan:
        return decide(snapshot, self._setup.policy, self._moment, DecisionCache(), records=False)

    def look(self) -> Plan:
        """Return what would be decided now; nothing is done."""
        if self._looked is None:
            self._looked = self._decide(records=True)[1]
        return self._looked

    def group(self, gang: SimulatedGang) -> PodGroup | None:
        """Return a group as it stands."""
        if gang.key is None:
            return None
        return self.lifecycle.settled.find(gang.key) or self._cluster.find_group(gang.key)

    # ── deciding ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _moment(self) -> datetime:
        return self._setup.start + timedelta(seconds=self.lifecycle.now)

    def _arrived(self) -> None:
        """Have a cycle run, as soon as the pace allows."""
        self._due = min(self._due, max(self.lifecycle.now, self._last + MIN_CYCLE_INTERVAL_SECONDS))

    def _came(self) -> None:
        """Have one run for what came: as soon as the pace allows, which for one that rests is that of what became free."""
        pace = self._pace if self._setup.rests else MIN_CYCLE_INTERVAL_SECONDS
        self._due = min(self._due, max(self.lifecycle.now, self._last + pace))

    def _freed(self) -> None:
        """Have one run where somebody waits: to others, what became free is nothing to decide about."""
        if self._waiting:
            self._due = min(self._due, max(self.lifecycle.now, self._last + self._pace))

    @property
    def _pace(self) -> float:
        return max(self._setup.pace, self._setup.stretch * self.lifecycle.now)

    def _cycle(self) -> None:
        now = self._moment
        self._due, self._last = _NEVER, self.lifecycle.now
        tried = {uid for uid, wait in self._timers.requeues.items() if wait.tries}
        snapshot, plan = self._decide(records=False)
        self._timers.observe(plan, now.timestamp())
        self.cycles += 1
        acted = self._perform(plan)
        self._waiting = _waits(snapshot, plan)
        self.measures.decided(self.lifecycle.now, plan.queues, waiting=self._waiting)
        if not self._waiting:
            return
        if acted:
            # One that comes and goes for want of pods or nodes would keep the end from coming.
            if plan.binds or plan.evictions or any(each.moves and each.uid not in tried for each in plan.statuses):
                self._last_event = self.lifecycle.now
            self._arrived()
            return
        wakes = plan.wakes_at - self._setup.start.timestamp()
        if self._setup.rests:
            wakes = max(wakes, self.lifecycle.now + max(self._rest, self._setup.stretch * self.lifecycle.now))
            self._rest = min(2 * self._rest or _FIRST_REST, _LONGEST_REST)
        self._due = min(self._due, wakes)

    def _decide(self, *, records: bool) -> tuple[Snapshot, Plan]:
        for namespace, late in self._cluster.late():
            self._cluster.ledger(namespace, self._setup.admission.table(namespace, late))
        snapshot = self._cluster.snapshot()
        jobs, settled = snapshot.jobs, self.lifecycle.settled
        if self._thins and (gone := settled.take(snapshot)):
            jobs = tuple([job for job in jobs if job.key not in gone])
        snapshot = replace(snapshot, jobs=jobs, satisfied=settled.by_queue(), requeues=self._timers.requeues)
        return snapshot, decide(snapshot, self._setup.policy, self._moment, self._cache, records=records)

    def _perform(self, plan: Plan) -> bool:
        """Carry a plan out; tell whether the next cycle may build on it."""
        nominated = {bind.task.uid: bind.node for bind in plan.pipelined}
        news = (nominated, plan.reserved_nodes, dict(plan.partially_bound)) != (
            self._nominated,
            self._reserved,
            self._partially_bound,
        )
        self._nominated, self._reserved, self._partially_bound = (
            nominated,
            plan.reserved_nodes,
            dict(plan.partially_bound),
        )
        # Here a pod is bound at once, so that nothing has to be assumed of it.
        self.lifecycle.bind(plan.binds)
        for bind in plan.binds:
            if bind.devices:
                self._cluster.devices.choose(bind.task.uid, bind.devices)
        stored = [each for each in plan.statuses if each.urgency is not Urgency.LATER and self._store(each)]
        apply_plan(self._cluster, plan, stored)
        self.lifecycle.evict(plan.evictions)
        for status in stored:
            if status.phase is Phase.COMPLETED and status.before is not Phase.COMPLETED:
                self._workloads.room(status.key.namespace)  # What it held of the quota is free.
            if status.phase is Phase.PENDING and status.before is not Phase.PENDING:
                self._workloads.take_back(self.lifecycle.gangs[status.key.namespace, status.key.name])
        released = self._workloads.release(plan.released)
        moved = any(each.moves and each.phase not in _SETTLED for each in stored)
        return bool(news or plan.binds or plan.evictions or released or moved)

    def _store(self, status: GroupStatus) -> bool:
        """Have the ledger agree to a status, and count it; tell whether it may be stored."""
        cluster, key = self._cluster, status.key
        group = cluster.find_group(key)
        assert group is not None, "who is decided about is in the cluster"
        kind, after = GROUP_KINDS[key.group], changed(group, status=status.struct())
        if status.reserves:
            refusal = self._setup.admission.advance(kind, group, after, self._moment)
            if refusal:
                cluster.refused(key, refusal)
                self._events.schedule(self.lifecycle.now + self._retries.pause(key), partial(self._forgive, key))
                return False
            self._retries.forget(key)
        else:
            self._setup.admission.show(kind, after)
        return True

    def _forgive(self, key: GroupKey) -> None:
        self._cluster.refused(key, "")
        self._freed()


def _waits(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether some group waits for anything, once a plan is carried out."""
    for job in snapshot.jobs:
        counts, phase = plan.tasks[job.key], plan.groups[job.key].phase
        if phase is Phase.COMPLETED and not job.restarts:
            continue
        if (
            job.restarts
            or TaskStatus.PENDING in counts
            or TaskStatus.PIPELINED in counts
            or (not counts and phase is not Phase.RUNNING)
        ):
            return True
    return False
