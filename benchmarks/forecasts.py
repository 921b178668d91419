"""How right forecasts of starts are, on generated weeks of a cluster: `muster.whatif.forecast` held against what then happened.

    python benchmarks/forecasts.py [--seeds 13 14 15] [--asked 40] [--days 14] [--known 3.5] [--questions abc]

Jobs are drawn as published models have them, fixed by the seed: sizes, run times and arrivals with their daily cycle as in Lublin and Feitelson,
"The workload on parallel supercomputers: modeling the characteristics of rigid jobs" (JPDC 63, 2003), their batch jobs; that programs are run again and again, with run times
about alike, as in Tsafrir, Etsion and Feitelson, "Backfilling using system-generated predictions rather than user runtime estimates" (TPDS 18,
2007): programs by Zipf's law, each with a size and a run time of its own, each run log-normal about it. 8 nodes of 8 GPUs, three queues of weights 1 to 3, nothing is evicted.

Three questions, each about groups that wait at random times:

(a) run times stated exactly, nothing arrives later: the difference to what happened.
(b) run times stated twice too long, nothing arrives later: how many started later than the latest time said.
(c) nothing stated, only the history of the days before, of run times and of arrivals, and others do arrive: the median error beside that of "the median
    wait of the queue", how often the interval of 80 % held to the minute, as it is told, and how wide it is. It is asked after --known days and until a day
    before the last of --days, so that others arrive afterwards. Forecasts are the visibility API's, played for as long as it does.

A seed takes minutes of processor time, two weeks more of them than one. What is told of weeks held out is of seeds that nobody looked at before.
"""

from __future__ import annotations

import argparse
import math
import resource
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import calibration
import msgspec
import numpy as np
from msgspec.structs import replace

from muster.model import kinds, names
from muster.model.amounts import Resources
from muster.model.objects import Pod, PodSpec
from muster.visibility import plays
from muster.whatif.arrivals import SeenArrival
from muster.whatif.cluster_view import ClusterObjects
from muster.whatif.forecast import Forecaster
from muster.whatif.policies import without_reservations
from muster.whatif.run_times import RunHistory, fingerprint
from muster.whatif.simulated_admission import InMemoryAdmission
from scheduler.configuration import config
from scheduler.engine.policy import Policy
from scheduler.simulator import scenario
from scheduler.simulator.engine import Simulation
from scheduler.simulator.gangs import SimulatedGang
from scheduler.simulator.trace import TraceJob
from webhooks.settings import WebhookSettings

NODES: Final = 8
GPUS: Final = 8
DAY: Final = 86400.0
WEEK: Final = 7 * DAY
START: Final = datetime(2026, 1, 5, tzinfo=UTC)
LOAD: Final = 0.7
PROGRAMS: Final = 40
SIGMA: Final = 0.35
"""Of the logarithm of a program's run times about its own."""
QUEUES: Final = {"bronze": 1, "silver": 2, "gold": 3}
POLICY: Final = config.parse(config.DEFAULT.replace(", preempt", "").replace(", reclaim", ""))
"""As it is shipped, without evictions: to try them takes most of the time, and a job that is evicted starts again."""
EXACT: Final = without_reservations(POLICY)
"""The same without nodes that are kept for large jobs: which these are is the leader's memory, and nobody else's."""
SCHEDULERS: Final = (names.SCHEDULER_NAME,)
_CYCLE: Final = (
    0.5,
    0.4,
    0.35,
    0.3,
    0.3,
    0.35,
    0.45,
    0.7,
    1.1,
    1.5,
    1.7,
    1.7,
    1.6,
    1.6,
    1.7,
    1.7,
    1.6,
    1.4,
    1.2,
    1.0,
    0.9,
    0.8,
    0.7,
    0.6,
)
"""Arrivals by hour of the day, of the mean: the shape of Lublin and Feitelson's figure 6."""


@dataclass(frozen=True)
class Program:
    """What is run again and again."""

    queue: str
    gpus: int
    seconds: float


def programs(lots: np.random.Generator) -> list[Program]:
    """Draw programs: sizes two-stage uniform in their logarithm, run times hyper-gamma in theirs."""
    found = []
    for number in range(PROGRAMS):
        most = math.log2(NODES * GPUS)
        size = 1
        if lots.random() > 0.244:
            low, high = (0.8, most - 2.5) if lots.random() < 0.86 else (most - 2.5, most - 1)
            exponent = lots.uniform(low, high)
            size = round(2 ** (round(exponent) if lots.random() < 0.75 else exponent))
        short = lots.random() < max(-0.0054 * size + 0.78, 0.0)
        exponent = lots.gamma(4.2, 0.94) if short else lots.gamma(312, 0.03)
        found.append(
            Program(
                list(QUEUES)[number % 3], max(size, 1), float(min(max(math.exp(min(exponent, 11.0)), 60), 12 * 3600))
            )
        )
    return found


def weeks(seed: int, length: float) -> list[TraceJob]:
    """Draw what arrives in so many seconds."""
    lots = np.random.default_rng(seed)
    known = programs(lots)
    ranks = 1.0 / np.arange(1, PROGRAMS + 1)
    chances = lots.permutation(ranks / ranks.sum())
    work = float(sum(chance * each.gpus * each.seconds for chance, each in zip(chances, known, strict=True)))
    rate = LOAD * NODES * GPUS / work
    found: list[TraceJob] = []
    now = 0.0
    while True:
        now += float(lots.exponential(1 / (rate * _CYCLE[int(now / 3600) % 24])))
        if now >= length:
            return found
        which = int(lots.choice(PROGRAMS, p=chances))
        each = known[which]
        seconds = each.seconds * float(lots.lognormal(0.0, SIGMA))
        pods, per_pod = (1, each.gpus) if each.gpus <= GPUS else (math.ceil(each.gpus / GPUS), GPUS)
        request = Resources.parse({"nvidia.com/gpu": per_pod, "cpu": f"{1000 + which}m"})
        name = f"p{which:02}-{len(found):05}"
        found.append(TraceJob(name, "default", each.queue, now, seconds, pods, pods, request))


def cluster() -> dict[Any, tuple[Any, ...]]:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    stamp = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    nodes = [
        {"metadata": {"name": f"n{number:02}", **stamp}, "status": {"allocatable": amounts}} for number in range(NODES)
    ]
    queues = [{"metadata": {"name": name, **stamp}, "spec": {"weight": weight}} for name, weight in QUEUES.items()]
    return {
        kinds.NODES: tuple(msgspec.convert(each, kinds.NODES.struct) for each in nodes),
        kinds.QUEUES: tuple(msgspec.convert(each, kinds.QUEUES.struct) for each in queues),
    }


def simulation(trace: Sequence[TraceJob], policy: Policy) -> Simulation:
    found = replace(scenario.of_objects(cluster(), SCHEDULERS, 1, math.inf), trace=tuple(trace))
    setup = found.setting(policy, InMemoryAdmission(WebhookSettings(SCHEDULERS)))
    return Simulation(replace(setup, start=START))


def state_of(run: Simulation, now: float, stated: Callable[[float], float] | None) -> ClusterObjects:
    """Return the cluster as Muster would read it; ``stated`` says what users say of run times, None: nothing."""
    groups, pods = [], []
    for gang in run.lifecycle.gangs.values():
        group = run.group(gang)
        if group is not None:
            groups.append(group)
            pods += [_as_read(each, stated) for each in gang.pods.values()]
    objects = {**cluster(), kinds.PODGROUPS: tuple(groups), kinds.PODS: tuple(pods)}
    return ClusterObjects(START + timedelta(seconds=now), objects)


def _as_read(pod: Pod, stated: Callable[[float], float] | None) -> Pod:
    annotations = dict(pod.metadata.annotations or {})
    seconds = float(annotations.pop(names.RUN_SECONDS))
    if stated is not None:
        annotations[names.EXPECTED_DURATION] = f"{stated(seconds):.3f}s"
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def asked_at(
    trace: Sequence[TraceJob], times: Sequence[float], policy: Policy, stated: Callable[[float], float] | None
) -> Iterator[tuple[float, ClusterObjects]]:
    """Give the state of the cluster at some times, in order."""
    return iter(observed(trace, times, policy, stated, to_the_end=False)[0])


def observed(
    trace: Sequence[TraceJob],
    times: Sequence[float],
    policy: Policy,
    stated: Callable[[float], float] | None,
    *,
    to_the_end: bool = True,
) -> tuple[list[tuple[float, ClusterObjects]], dict[str, SimulatedGang]]:
    """Return the state of the cluster at some times, in order, and what became of each job."""
    found: list[tuple[float, ClusterObjects]] = []
    run, left = simulation(trace, policy), list(times)

    def look() -> bool:
        while left and run.lifecycle.now >= left[0]:
            left.pop(0)
            found.append((run.lifecycle.now, state_of(run, run.lifecycle.now, stated)))
        return not left and not to_the_end

    run.run(lambda _: None, look)
    return found, {gang.home[1]: gang for gang in run.lifecycle.history}


def starts_of(trace: Sequence[TraceJob], policy: Policy) -> dict[str, SimulatedGang]:
    run = simulation(trace, policy)
    run.run(lambda _: None)
    return {gang.home[1]: gang for gang in run.lifecycle.history}


# ── the three questions ──────────────────────────────────────────────────────────────────────────────────────────


def stated(seeds: Sequence[int], asked: int, factor: float) -> list[tuple[float, float]]:
    """Return for each group that was asked about the latest time that was said and the time that it started, in seconds from the question."""
    found = []
    for seed in seeds:
        trace = weeks(seed, 2 * DAY)
        times = sorted(np.random.default_rng(seed).uniform(DAY / 2, 2 * DAY, max(asked // 10, 1)))
        for now, state in asked_at(trace, times, EXACT, lambda seconds: seconds * factor):
            forecaster = Forecaster(state, EXACT, SCHEDULERS, RunHistory())
            if not forecaster.waiting:
                continue
            play = forecaster.play(0)
            happened = starts_of([each for each in trace if each.arrival <= now], EXACT)
            for key, said in play.starts.items():
                started = happened[key.name].started
                assert started is not None
                found.append((said, started - now))
    return found


@dataclass
class Outcome:
    """One forecast and what became of it, in seconds from the question; ``after`` where no more than that is told."""

    early: float
    middle: float
    late: float
    after: float
    usual: float
    waited: float

    @property
    def passed(self) -> bool:
        """Whether it started later than the interval ends."""
        return self.waited > self.late + 60

    @property
    def held(self) -> bool:
        """Whether it started within the interval, to the minute."""
        return self.early - 60 <= self.waited and not self.passed


@dataclass
class Truth:
    """Days of a cluster: what came, its state at the times that are asked about, and what became of each job."""

    trace: list[TraceJob]
    states: list[tuple[float, ClusterObjects]]
    happened: dict[str, SimulatedGang]


def truth(seed: int, days: float, known: float, asked: int) -> Truth:
    trace = weeks(seed, days * DAY)
    times = sorted(np.random.default_rng(seed).uniform(known * DAY, (days - 1) * DAY, asked))
    return Truth(trace, *observed(trace, times, POLICY, None))


def from_history(happening: Truth, seconds: float) -> list[Outcome]:
    trace, states, happened = happening.trace, happening.states, happening.happened
    history, found = RunHistory(), list[Outcome]()
    ended = sorted((gang.over, name) for name, gang in happened.items() if gang.over is not None)
    specs = {each.name: each for each in trace}
    templates: dict[str, PodSpec] = {}
    for _, state in states:
        templates |= _templates(state)
    learnt = 0
    for now, state in states:
        while learnt < len(ended) and ended[learnt][0] <= now:
            name = ended[learnt][1]
            if name[:3] in templates:
                history.add("default", "", templates[name[:3]], specs[name].duration)
            learnt += 1
        history.arrivals.add(_arrived(trace, now, templates), _at(now), START)
        usual = _usual_waits(happened, specs, now)
        for one in plays.forecasts(state, POLICY, SCHEDULERS, history, seconds):
            began = happened[one.key.name].started
            if began is not None and (one.middle is not None or one.after is not None):
                job = specs[one.key.name]
                found.append(
                    Outcome(
                        early=_since(one.early, now),
                        middle=_since(one.middle, now),
                        late=_since(one.late, now),
                        after=_since(one.after, now),
                        usual=max(job.arrival + usual[job.queue] - now, 0.0),
                        waited=began - now,
                    )
                )
    return found


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def _since(at: datetime | None, now: float) -> float:
    return (at - _at(now)).total_seconds() if at is not None else math.inf


def _arrived(trace: Sequence[TraceJob], now: float, templates: dict[str, PodSpec]) -> dict[str, SeenArrival]:
    """Return what came until now, as a replica remembers it that was there."""
    return {
        each.name: SeenArrival(
            _at(each.arrival), "default", each.queue, "", each.pods, each.minimum, each.request, "",
            fingerprint(templates[each.name[:3]]),
        )
        for each in trace
        if each.arrival <= now and each.name[:3] in templates
    }  # fmt: skip


def _templates(state: ClusterObjects) -> dict[str, PodSpec]:
    return {pod.metadata.annotation(names.GROUP_NAME)[:3]: pod.spec for pod in state.of(kinds.PODS)}


def _usual_waits(happened: dict[str, SimulatedGang], specs: dict[str, TraceJob], now: float) -> dict[str, float]:
    """Return the median wait of each queue, of what started in the week before."""
    waits: defaultdict[str, list[float]] = defaultdict(lambda: [0.0])
    for name, gang in happened.items():
        if gang.started is not None and now - WEEK <= gang.started <= now:
            waits[specs[name].queue].append(gang.started - specs[name].arrival)
    return defaultdict(float, {queue: statistics.median(each) for queue, each in waits.items()})


def of_outcomes(outcomes: Sequence[Outcome]) -> str:
    """Sum up how right forecasts were."""
    found = [each for each in outcomes if math.isfinite(each.middle)]
    ended = [each for each in found if math.isfinite(each.late)]
    unplayed = [each for each in outcomes if math.isfinite(each.after)]
    said = f"{len(found)} told a time"
    if found:
        error = statistics.median(abs(each.middle - each.waited) for each in found)
        usual = statistics.median(abs(each.usual - each.waited) for each in found)
        held, past = (sum(each.held for each in found) / len(found), sum(each.passed for each in found) / len(found))
        said += (
            f": median error {error / 60:.0f} min, of the queue's median wait {usual / 60:.0f} min ({error / max(usual, 1) - 1:+.0%});"
            f" 80 % held in {held:.0%} ({past:.0%} started later, {1 - held - past:.0%} sooner)"
        )
    if ended:
        width = statistics.median(each.late - each.early for each in ended)
        said += f"; {len(ended)} with an end, held in {sum(each.held for each in ended) / len(ended):.0%}, median width {width / 60:.0f} min"
    right = sum(each.waited >= each.after - 60 for each in unplayed)
    return f"{said}; {len(unplayed)} told 'after', right in {right}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[13, 14, 15])
    parser.add_argument("--asked", type=int, default=40, help="times at which all that waits is asked about")
    parser.add_argument("--days", type=float, default=14.0, help="of each seed, in (c)")
    parser.add_argument("--known", type=float, default=3.5, help="days that are history at least, in (c)")
    parser.add_argument("--questions", default="abc", help="those that are asked")
    parser.add_argument(
        "--seconds", type=float, default=plays.SECONDS, help="of processor time for which each future is played"
    )
    options = parser.parse_args()
    calibration.tell()
    if "a" in options.questions:
        exact = [abs(said - waited) for said, waited in stated(options.seeds, options.asked, 1.0)]
        print(
            f"(a) {len(exact)} asked: median error {statistics.median(exact):.1f} s, largest {max(exact):.1f} s",
            flush=True,
        )
    if "b" in options.questions:
        double = stated(options.seeds, options.asked, 2.0)
        later = [waited - said for said, waited in double if waited > said + 2]
        print(
            f"(b) {len(double)} asked: {len(later)} started later than said{f', by {max(later):.0f} s at most' if later else ''}",
            flush=True,
        )
    pooled: list[Outcome] = []
    for seed in options.seeds if "c" in options.questions else ():
        outcomes = from_history(truth(seed, options.days, options.known, options.asked), options.seconds)
        pooled += outcomes
        print(f"(c) seed {seed}, {of_outcomes(outcomes)}", flush=True)
    if pooled:
        print(f"(c) all, {of_outcomes(pooled)}")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
