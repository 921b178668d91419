"""The starts of groups that wait: the cluster's own future, played several times with run times that may be. Pure.

One play draws a run time for each workload, of those that it may take (`muster.whatif.run_times`), and what arrives later, of what arrived lately
(`muster.whatif.arrivals`), lets the simulator go on from the cluster as it is, and notes when groups have nodes for their minimum. Many plays give the
time by which half of them had started, and the times between which eight of ten had.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace
from numpy.random import Generator, default_rng

from muster.ledger.reservations import COMPLETED
from muster.model import grouping, kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Job, Meta, Pod, PodGroup
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects
from muster.whatif.policies import without_evictions
from muster.whatif.run_times import RunHistory, RunTime, of_workload
from muster.whatif.simulated_admission import InMemoryAdmission
from muster.whatif.start_forecast import LASTING, NAMED, SUSPENDED, StartForecast
from scheduler.engine.policy import Policy
from scheduler.engine.requeue import recorded
from scheduler.model.obstacle import Reason, Stage
from scheduler.model.records import Record
from scheduler.model.snapshot import GroupKey
from scheduler.simulator import scenario
from scheduler.simulator.engine import Simulation
from scheduler.simulator.trace import TraceJob
from scheduler.state import conversion
from scheduler.state.aggregated_pods import GroupName
from webhooks.settings import WebhookSettings

HORIZON: Final = 14 * 86400.0
"""Seconds: what starts later starts at no time that anybody can tell."""
_HOPE: Final = 60.0
"""Seconds for which what waits is given its chance once nothing ends any more: with thousands of groups a day of that takes hours."""
_AGAIN: Final = 400.0
"""The same where it is asked whether something starts at all: one that was taken back is admitted again within five minutes."""
_FOREVER: Final = "inf"
_LARGE: Final = 2000
"""Groups beyond which nothing is evicted in a play: to try that takes most of the time of a decision there."""
_PACES: Final = ((_LARGE, 60.0, 0.1), (500, 15.0, 0.05))
"""Groups beyond which a play is less exact, for each decision takes long: seconds until it looks at what ended, and the share of the time that has
passed."""
_BUSY: Final = (15.0, 0.01)
"""The same where others arrive, so there is no end of what there is to decide."""
_UNPLAYED: Final = 0.1
"""A play isn't the cluster: it doesn't know which nodes the leader keeps, nor who comes in a way of its own. So what eight of ten plays say is made wider, at both
ends by so much of the time until then. Measured (benchmarks/results.md): without it, it held in 75 % of the cases, with it in 80 %."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_LOW, _MIDDLE, _HIGH = 0.1, 0.5, 0.9


class Play(Struct, frozen=True):
    """The future once: seconds until each waiting group starts; infinity where it doesn't, or not before the play was cut off after ``until`` seconds.

    ``never``: those that don't start even where nothing arrives.
    """

    starts: Mapping[GroupKey, float]
    until: float = math.inf
    never: frozenset[GroupKey] = frozenset()


class _PlayedGroup(Struct):
    """A group with what makes its pods."""

    key: GroupKey
    group: PodGroup
    jobs: list[Job] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    time: RunTime | None = None
    began: datetime | None = None

    @property
    def waits(self) -> bool:
        placed = sum(bool(pod.spec.node_name) for pod in self.pods)
        return self.group.status.phase != COMPLETED and placed < max(self.group.spec.min_member, 1)

    def pause(self, now: datetime) -> float:
        """Return the seconds until it may be admitted again, where it waits and was taken back."""
        wait = recorded(self.group.status.conditions or ()) if self.waits else None
        return max(wait.until - now.timestamp(), 0.0) if wait is not None else 0.0


class Forecaster:
    """A cluster of which futures are played. Each play takes about as long as to decide about everything once for each group that ends."""

    def __init__(self, state: ClusterObjects, policy: Policy, schedulers: Sequence[str], history: RunHistory) -> None:
        self._state = state
        self._schedulers = tuple(schedulers)
        self._workloads = _workloads(state)
        count = len(self._workloads)
        self._policy = without_evictions(policy) if count > _LARGE else policy
        self._pace = next(((pace, stretch) for most, pace, stretch in _PACES if count > most), None)
        for each in self._workloads.values():
            each.time = of_workload(each.jobs, each.pods, each.group.metadata, history)
        self.waiting = tuple(each.key for each in self._workloads.values() if each.waits)
        self._endless = _endless(self._workloads.values())
        self._hope = _HOPE + max((each.pause(state.taken) for each in self._workloads.values()), default=0.0)
        self._history = history
        self.arriving = history.arrivals.days(state.taken) > 0
        """Whether what arrives later can be played: at least a day of arrivals is known."""

    @property
    def exact(self) -> bool:
        """Whether all plays are the same: nothing is known of arrivals, of each workload one run time is, and none runs longer already."""
        return not self.arriving and all(
            each.time is None or (len(each.time.seconds) == 1 and self._ran(each) < each.time.seconds[0])
            for each in self._workloads.values()
        )

    def play(self, seed: int, cut: Callable[[float], bool] = lambda _: False, alone: Play | None = None) -> Play:
        """Play one future; the same for the same seed.

        Args:
            seed: decides about what is left to chance.
            cut: asked after each decision, with the seconds that have been played, whether to end here.
            alone: a play in which nothing arrived. Where it is given, others do arrive, if so much is known of them, and what didn't start even then isn't
                waited for.

        Raises:
            UnreadableObjectError: the cluster can't be simulated.
        """
        lots = default_rng(seed)
        drawn = {name: self._drawn(each, lots) for name, each in self._workloads.items()}
        arrivals: Iterable[TraceJob] = ()
        if alone is not None:
            arrivals = self._history.arrivals.coming(self._state.taken, HORIZON, lots, self._history.of_arrival)
        pace = self._pace or (_BUSY if alone is not None else None)
        simulation = self._simulation(seed, drawn, pace, arrivals)
        gangs = simulation.lifecycle.gangs
        never: frozenset[GroupKey] = alone.never if alone is not None else frozenset()
        left = {(key.namespace, key.name): key for key in self.waiting if key not in never}
        starts: dict[GroupKey, float] = {}
        until = math.inf

        def enough() -> bool:
            nonlocal until
            for home in list(left):
                gang = gangs.get(home)
                if gang is not None and gang.started is not None:
                    starts[left.pop(home)] = gang.started
            if left and cut(simulation.lifecycle.now):
                until = simulation.lifecycle.now
            return not left or until < math.inf

        simulation.run(lambda _: None, enough, hope=self._hope)
        # Those that ended between two looks are no longer among the groups.
        for gang in simulation.lifecycle.history:
            if gang.home in left and gang.started is not None:
                starts[left.pop(gang.home)] = gang.started
        if alone is None and until == math.inf:
            never = frozenset(left.values())
        return Play({key: starts.get(key, math.inf) for key in self.waiting}, until, never)

    def reasons(self, never: Iterable[GroupKey], cut: Callable[[float], bool] = lambda _: False) -> dict[GroupKey, str]:
        """Return which groups that never start in a play don't either once all has ended of which nobody says how long it runs; with the reason, as `StartForecast` has it.

        Args:
            never: of these groups.
            cut: as of `play`; then it is known only of those whose reason no play changes.

        Raises:
            UnreadableObjectError: the cluster can't be simulated.
        """
        left = {(key.namespace, key.name): key for key in never}
        if not left:
            return {}
        lots = default_rng(0)
        drawn = {name: self._drawn(each, lots) for name, each in self._workloads.items()}
        # When something ends doesn't matter here, only whether it does: all at once takes the fewest decisions.
        ends = {name: (_sooner(whole), _sooner(rest)) for name, (whole, rest) in drawn.items()}
        simulation = self._simulation(0, ends, self._pace or _BUSY)
        was_cut = False

        def enough() -> bool:
            nonlocal was_cut
            was_cut = cut(simulation.lifecycle.now)
            return was_cut

        simulation.run(lambda _: None, enough, hope=self._hope + _AGAIN)
        for gang in simulation.lifecycle.history:
            if gang.started is not None:
                left.pop(gang.home, None)
        records = simulation.look().records if left else {}
        found = {key: self._reason(key, records.get(key)) for key in left.values()}
        return {key: reason for key, reason in found.items() if not was_cut or reason in LASTING}

    def _reason(self, key: GroupKey, record: Record | None) -> str:
        if any(map(conversion.suspended_by_user, self._workloads[key.namespace, key.name].jobs)):
            return SUSPENDED
        if record is None:
            return ""
        if record.reason is None:
            return Reason.NOT_ENOUGH_TASKS.value if record.stage is Stage.GANG else ""
        return record.reason.value

    def _simulation(
        self,
        seed: int,
        seconds: Mapping[GroupName, tuple[float, float]],
        pace: tuple[float, float] | None,
        arrivals: Iterable[TraceJob] = (),
    ) -> Simulation:
        """Prepare a play in which workloads run for so many seconds, and for so many more where they run."""
        objects = dict(self._state.objects) | self._with_run_times(seconds)
        found = scenario.of_objects(objects, self._schedulers, seed, HORIZON)
        admission = InMemoryAdmission(WebhookSettings(found.schedulers, delay=self._policy.enqueues))
        # Nobody asks for shares over time; of a thousand queues they take a third of a play.
        setup = replace(found.setting(self._policy, admission), start=self._state.taken, resumes=True, queues=())
        if pace is not None:
            setup = replace(setup, rests=True, pace=pace[0], stretch=pace[1])
        return Simulation(replace(setup, trace=arrivals))

    def summary(self, plays: Sequence[Play], reasons: Mapping[GroupKey, str]) -> dict[GroupKey, StartForecast]:
        """Sum plays up, at least one; ``reasons``: as `reasons` returns them."""
        return {key: self._summed(key, plays, reasons) for key in self.waiting}

    def _summed(self, key: GroupKey, plays: Sequence[Play], reasons: Mapping[GroupKey, str]) -> StartForecast:
        early, middle, late = quantiles([each.starts[key] for each in plays])
        if all(key in each.never for each in plays):
            if key in reasons:
                return StartForecast(key, reason=reasons[key])
            return StartForecast(key, unknown=self._unknown(key.namespace))
        wider = _UNPLAYED if self.arriving else 0.0
        if math.isinf(middle):
            # Until then it hadn't started in nine of ten plays.
            passed = _quantile(sorted(min(each.starts[key], each.until) for each in plays), _LOW)
            return StartForecast(key, after=self._at(passed * (1 - wider)), unknown=self._unknown(key.namespace))
        early, late = early * (1 - wider), late * (1 + wider)
        return StartForecast(key, self._at(early), self._at(middle), self._at(late), arrivals=self.arriving)

    def _at(self, seconds: float) -> datetime | None:
        return self._state.taken + timedelta(seconds=seconds) if math.isfinite(seconds) else None

    def _unknown(self, namespace: str) -> tuple[str, ...]:
        """Return some groups that run and of which nobody says for how long, by name, those of a namespace first."""
        return tuple(dict.fromkeys([*self._endless[namespace], *self._endless[""]]))[: NAMED + 1]

    # ── run times ────────────────────────────────────────────────────────────────────────────────────────────────

    def _with_run_times(self, drawn: Mapping[GroupName, tuple[float, float]]) -> dict[Kind[Any], tuple[Any, ...]]:
        """Return the Jobs and the pods that haven't ended, with the time that each runs from now on."""
        pods, jobs = [], []
        for pod in self._state.of(kinds.PODS):
            if pod.status.phase not in _ENDED:
                seconds = drawn.get((pod.namespace, grouping.group_of(pod.metadata)), (math.inf, math.inf))
                pods.append(_running_for(pod, seconds[bool(pod.spec.node_name)]))
        for job in self._state.of(kinds.JOBS):
            if not conversion.job_finished(job):
                whole, _ = drawn.get((job.namespace, conversion.group_of_job(job)), (math.inf, math.inf))
                template = replace(job.spec.template, metadata=_told(job.spec.template.metadata, whole / _rounds(job)))
                jobs.append(replace(job, spec=replace(job.spec, template=template)))
        return {kinds.PODS: tuple(pods), kinds.JOBS: tuple(jobs)}

    def _drawn(self, each: _PlayedGroup, lots: Generator) -> tuple[float, float]:
        """Draw the seconds that a workload runs, and those that are left of it where it runs."""
        if each.time is None:
            return math.inf, math.inf
        whole = each.time.drawn(lots)
        if each.began is None:
            return whole, whole
        if (rounds := max(map(_rounds, each.jobs), default=1)) > 1:
            # Its pods come and go all the time: those that run are in the middle of theirs.
            return whole, whole / rounds / 2
        ran = self._ran(each)
        return whole, each.time.drawn(lots, ran) - ran

    def _ran(self, each: _PlayedGroup) -> float:
        """Return for how many seconds a workload has had pods on nodes."""
        return max((self._state.taken - each.began).total_seconds(), 0.0) if each.began is not None else 0.0


def _sooner(seconds: float) -> float:
    """Return a second for what ends, or may end as far as is known; what ends too late to count goes on."""
    return math.inf if HORIZON < seconds < math.inf else 1.0


def quantiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return when one of ten had started, half had, and nine of ten had."""
    ordered = sorted(seconds)
    early, middle, late = (_quantile(ordered, share) for share in (_LOW, _MIDDLE, _HIGH))
    return early, middle, late


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return what comes before what happens with such a chance: it is one more of them, as likely between any two as between two others."""
    return ordered[min(max(round(share * (len(ordered) + 1)) - 1, 0), len(ordered) - 1)]


def _workloads(state: ClusterObjects) -> dict[GroupName, _PlayedGroup]:
    found = {
        (group.namespace, group.name): _PlayedGroup(GroupKey(kind.group, group.namespace, group.name), group)
        for kind in PODGROUPS
        for group in state.of(kind)
    }
    for job in state.of(kinds.JOBS):
        home = found.get((job.namespace, conversion.group_of_job(job)))
        if home is not None and not conversion.job_finished(job):
            home.jobs.append(job)
    began: defaultdict[GroupName, list[datetime]] = defaultdict(list)
    for pod in state.of(kinds.PODS):
        name = (pod.namespace, grouping.group_of(pod.metadata))
        if name in found and pod.status.phase not in _ENDED:
            found[name].pods.append(pod)
            if pod.spec.node_name:
                began[name].append(pod.status.start_time or pod.metadata.creation_timestamp or state.taken)
    for name, times in began.items():
        found[name].began = min(times)
    return found


def _endless(workloads: Iterable[_PlayedGroup]) -> Mapping[str, list[str]]:
    """Return the titles of some groups that run and of which nobody says for how long, by namespace, and some of all."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for each in workloads:
        if each.time is None and any(pod.spec.node_name for pod in each.pods):
            for some in (found[each.key.namespace], found[""]):
                if len(some) <= NAMED:
                    some.append(
                        grouping.title(each.key.namespace, each.key.name, grouping.owner_of(each.group.metadata))
                    )
    return found


def _rounds(job: Job) -> int:
    """Return how often a Job's pods are made, one after the other."""
    at_once = max(job.spec.parallelism or 1, 1)
    return max(math.ceil((job.spec.completions or at_once) / at_once), 1)


def _running_for(pod: Pod, seconds: float) -> Pod:
    return replace(pod, metadata=_told(pod.metadata, seconds))


def _told(meta: Meta, seconds: float) -> Meta:
    text = _FOREVER if math.isinf(seconds) else f"{max(seconds, 1.0):.3f}"
    return replace(meta, annotations={**(meta.annotations or {}), names.RUN_SECONDS: text})
