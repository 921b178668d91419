"""The time that workloads run: as their users say it, or as workloads like them ran before; and which came lately. Pure.

What ran before is remembered by template and owner, a few times each: the cluster itself forgets it with the Jobs that ended.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct
from numpy.random import Generator
from numpy.typing import NDArray

from muster.model import grouping, kinds, names
from muster.model.amounts import NOTHING, QuantityError
from muster.model.durations import duration
from muster.model.objects import Container, Job, Meta, Pod, PodGroup, PodSpec
from muster.model.requests import pod_request
from muster.whatif.arrivals import ArrivalHistory, SeenArrival
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects
from scheduler.state import conversion

ANNOTATION: Final = "annotation"
DEADLINE: Final = "deadline"
HISTORY: Final = "history"
NAMESPACE: Final = "namespace"

REMEMBERED: Final = 20
"""Run times that are kept of one template, and of one owner."""
_TEMPLATES: Final = 2000
"""Templates, owners and namespaces of which some are kept; of more, those go that ended nothing for the longest."""
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_KNOWN_ENDS: Final = 20_000
_FEWEST: Final = 3
"""Run times below which they don't show how much they differ: then each is taken to be between half and twice as long."""
_SPREAD: Final = (0.5, 1.0, 2.0)
_OVERDUE: Final = 0.5
"""What runs longer than all that is known of its like is taken to go on for up to twice as long as it has done so, and so much of the time that it has run
at most."""
_STARTS: Final = 2.0
"""Seconds from a pod's start to that of what it runs, and to the next whole one: that is no delay."""
_TRIES: Final = 64
"""Draws of which one has to be longer than what has passed."""
_QUARTILES: Final = 1.34
"""The distance of a normal law's quartiles, in its standard deviations."""

_Key = tuple[str, str, str]
"""Namespace, owner and template; the last two may be empty: then it is all of the namespace."""


class RunTime(Struct, frozen=True):
    """The time that a workload runs.

    Attributes:
        seconds: from its start to its end, each as likely; at least one.
        basis: what says so: `ANNOTATION`, `DEADLINE`, `HISTORY`, or `NAMESPACE`: that of others.
        most: its deadline.
    """

    seconds: tuple[float, ...]
    basis: str
    most: float = math.inf

    def drawn(self, lots: Generator, ran: float = 0.0) -> float:
        """Draw how long it runs, which is longer than it ``ran`` already.

        Of those that ended few ran as long as one that has run for long: one alone would say for how long to the second. So what is drawn is near to one of
        them, as near as they are to each other (a kernel estimate of the logarithms).
        """
        if len(self.seconds) == 1:
            whole = self.seconds[0]
        else:
            logarithms, bandwidth = _kernel(self.seconds)
            count = _TRIES if ran else 1
            chosen = logarithms[lots.integers(len(logarithms), size=count)]
            found = np.minimum(np.exp(chosen + bandwidth * lots.standard_normal(count)), self.most)
            # Where none is longer, all that is known has been passed.
            whole = float(found[int((found > ran).argmax())])
        if whole > ran:
            return whole
        passed = max(ran - max(self.seconds), 0.0)
        return ran + float(lots.uniform(0.0, min(_OVERDUE * ran, 2 * passed + _STARTS)))


@lru_cache(4096)
def _kernel(seconds: tuple[float, ...]) -> tuple[NDArray[np.float64], float]:
    """Return logarithms of run times, and how far from one of them others may be: as far as Silverman's rule says."""
    logarithms = np.log(np.maximum(seconds, 1.0))
    low, high = np.quantile(logarithms, (0.25, 0.75))
    spread = min(float(np.std(logarithms)), float(high - low) / _QUARTILES)
    return logarithms, 0.9 * spread * len(seconds) ** -0.2


class RunHistory:
    """Run times of workloads that ended, the latest of each template and of each owner, and what came lately. It forgets, so its size is bounded."""

    def __init__(self) -> None:
        self.arrivals = ArrivalHistory()
        self._times: OrderedDict[_Key, deque[float]] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        """How many templates, owners and namespaces it knows some of."""
        return len(self._times)

    def learn(self, state: ClusterObjects) -> None:
        """Take in what has come and what has ended in a state, each workload once."""
        since = self.arrivals.since or _complete_since(state)
        self.arrivals.add(_came(state, self.arrivals, since), state.taken, since)
        for job in state.of(kinds.JOBS):
            if (ended := _ended_job(job)) is not None and self._is_new(job.metadata.uid):
                self.add(job.namespace, _owner(job.metadata), job.spec.template.spec, ended)
        for pod in state.of(kinds.PODS):
            if pod.status.phase == "Succeeded" and pod.metadata.controller() is None:
                ended = _ended_pod(pod)
                if ended is not None and self._is_new(pod.metadata.uid):
                    self.add(pod.namespace, "", pod.spec, ended)

    def add(self, namespace: str, owner: str, template: PodSpec, seconds: float) -> None:
        """Remember that a workload ran so long."""
        for key in (*_keys(namespace, owner, fingerprint(template)), (namespace, "", "")):
            self._times.setdefault(key, deque(maxlen=REMEMBERED)).append(seconds)
            self._times.move_to_end(key)
        while len(self._times) > _TEMPLATES:
            self._times.popitem(last=False)

    def find(self, namespace: str, owner: str, template: PodSpec) -> tuple[float, ...]:
        """Return how long workloads like one ran: of the same owner and template, else of the template, else of the owner."""
        return self._of(_keys(namespace, owner, fingerprint(template)))

    def of_namespace(self, namespace: str) -> tuple[float, ...]:
        """Return how long the last workloads of a namespace ran that ended, whatever they were; nothing where there are too few."""
        found = self._times.get((namespace, "", ""), ())
        return tuple(sorted(found)) if len(found) >= _FEWEST else ()

    def of_arrival(self, one: SeenArrival) -> tuple[float, ...]:
        """Return how long a workload that came may run; nothing where it isn't known."""
        if one.stated is not None and one.exact:
            return (one.stated,)
        found = self._of(_keys(one.namespace, one.owner, one.template))
        if one.stated is None:
            return found
        return tuple(min(each, one.stated) for each in found) or (one.stated,)

    def _of(self, keys: Iterable[_Key]) -> tuple[float, ...]:
        few: Iterable[float] = ()
        for key in keys:
            found = self._times.get(key, ())
            if len(found) >= _FEWEST:
                return tuple(sorted(found))
            few = few or found
        return tuple(sorted(each * factor for each in few for factor in _SPREAD))

    def _is_new(self, uid: str) -> bool:
        if uid in self._known:
            return False
        self._known[uid] = None
        if len(self._known) > _KNOWN_ENDS:
            self._known.popitem(last=False)
        return True


def of_workload(jobs: Sequence[Job], pods: Sequence[Pod], group: Meta | None, history: RunHistory) -> RunTime | None:
    """Return how long a group of these Jobs and pods runs once it started; None where nothing says so.

    What its users state goes first; what is remembered is cut at the deadline. Where nothing of its like has ended, it is the deadline, else the run times
    of its namespace, if it is something that ends. Pods that are replaced when they end, such as those of a Deployment, go on: Jobs of the same template
    say nothing of them.
    """
    templates = [job.spec.template for job in jobs]
    metas = [
        *(each.metadata for each in templates),
        *(each.metadata for each in jobs),
        *(each.metadata for each in pods[:1]),
    ]
    for meta in (*metas, *([group] if group is not None else [])):
        if (stated := _stated(meta)) is not None:
            return RunTime((stated,), ANNOTATION)
    spec = templates[0].spec if templates else pods[0].spec if pods else None
    if spec is None or (not jobs and conversion.replaced(pods[0])):
        return None
    deadlines = [each.spec.active_deadline_seconds for each in jobs] + [spec.active_deadline_seconds]
    deadline = min((float(each) for each in deadlines if each), default=None)
    meta = jobs[0].metadata if jobs else pods[0].metadata
    found = history.find(meta.namespace, _owner(meta) if jobs else _controller(meta), spec)
    if found:
        most = deadline if deadline is not None else math.inf
        return RunTime(tuple(min(each, most) for each in found), HISTORY, most)
    if deadline is not None:
        return RunTime((deadline,), DEADLINE)
    others = history.of_namespace(meta.namespace) if jobs or _of_a_job(meta) else ()
    return RunTime(others, NAMESPACE) if others else None


def _of_a_job(pod: Meta) -> bool:
    """Whether a pod is of something that ends: a Job, or what operators call one, such as a PyTorchJob."""
    owner = pod.controller()
    return owner is not None and owner.kind.endswith("Job")


def _stated(meta: Meta) -> float | None:
    try:
        return duration(text) if (text := meta.annotation(names.EXPECTED_DURATION)) else None
    except ValueError:
        return None  # Admission has warned of it.


def _ended_job(job: Job) -> float | None:
    """Return for how long a Job ran that completed; None for others: of one that failed nothing is concluded."""
    begun, ended = job.status.start_time, job.status.completion_time
    if begun is None or ended is None or not conversion.job_finished(job):
        return None
    return _positive(begun, ended)


def _ended_pod(pod: Pod) -> float | None:
    times = [each.last_transition_time for each in pod.status.conditions or () if each.type == "Ready"]
    begun, ended = pod.status.start_time, next(iter(times), None)
    return _positive(begun, ended) if begun is not None and ended is not None else None


def _positive(begun: datetime, ended: datetime) -> float | None:
    seconds = (ended - begun).total_seconds()
    return seconds if seconds > 0 else None


def _owner(meta: Meta) -> str:
    """Name what made a Job again and again, such as its CronJob; empty for one that people made."""
    return _controller(meta)


def _controller(meta: Meta) -> str:
    owner = meta.controller()
    return f"{owner.kind}/{owner.name}" if owner is not None else ""


def _keys(namespace: str, owner: str, template: str) -> Iterator[_Key]:
    if owner:
        yield namespace, owner, template
    yield namespace, "", template
    if owner:
        yield namespace, owner, ""


def fingerprint(template: PodSpec) -> str:
    """Return what tells one template from another: its containers' images and requests, and its deadline."""
    parts = [(each.image, each.resources) for each in _containers(template)]
    said = msgspec.json.encode((parts, template.active_deadline_seconds), order="deterministic")
    return blake2b(said, digest_size=12).hexdigest()


def _containers(template: PodSpec) -> Iterable[Container]:
    return (*(template.init_containers or ()), *(template.containers or ()))


# ── what came ────────────────────────────────────────────────────────────────────────────────────────────────────


def _complete_since(state: ClusterObjects) -> datetime:
    """Return since when all that came is there to see: what ended then still is, unless somebody has Jobs deleted sooner."""
    jobs = state.of(kinds.JOBS)
    ends = [job.status.completion_time for job in jobs if job.status.completion_time is not None]
    kept = [each for job in jobs if (each := job.spec.ttl_seconds_after_finished) is not None]
    since = min(ends, default=state.taken)
    return max(since, state.taken - timedelta(seconds=min(kept))) if kept else since


def _came(state: ClusterObjects, known: ArrivalHistory, since: datetime) -> dict[str, SeenArrival]:
    """Return groups that came since some moment and aren't known yet, by uid. Those of which neither a Job nor a pod is there will be found another time."""
    fresh = {
        (group.namespace, group.name): group
        for kind in PODGROUPS
        for group in state.of(kind)
        if group.metadata.uid not in known and (group.metadata.creation_timestamp or _LONG_AGO) >= since
    }
    if not fresh:
        return {}
    jobs: defaultdict[tuple[str, str], list[Job]] = defaultdict(list)
    pods: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
    for job in state.of(kinds.JOBS):
        if (home := (job.namespace, conversion.group_of_job(job))) in fresh:
            jobs[home].append(job)
    for pod in state.of(kinds.PODS):
        if (home := (pod.namespace, grouping.group_of(pod.metadata))) in fresh:
            pods[home].append(pod)
    found = {group.metadata.uid: _arrival(group, jobs[home], pods[home]) for home, group in fresh.items()}
    return {uid: each for uid, each in found.items() if each is not None}


def _arrival(group: PodGroup, jobs: Sequence[Job], pods: Sequence[Pod]) -> SeenArrival | None:
    created = group.metadata.creation_timestamp
    if created is None or not (jobs or pods):
        return None
    spec = jobs[0].spec.template.spec if jobs else pods[0].spec
    meta = jobs[0].metadata if jobs else pods[0].metadata
    try:
        request = pod_request(spec)
    except QuantityError:
        request = NOTHING
    count = sum(max(job.spec.parallelism or 1, 1) for job in jobs) or len(pods)
    minimum = max(group.spec.min_member, 1)
    said = of_workload(jobs, pods, group.metadata, _NO_HISTORY)
    return SeenArrival(
        created, group.namespace, group.spec.queue or names.DEFAULT_QUEUE,
        group.spec.priority_class_name or spec.priority_class_name, max(count, minimum), minimum, request, _owner(meta),
        fingerprint(spec), said.seconds[0] if said is not None else None, said is not None and said.basis == ANNOTATION,
    )  # fmt: skip


_NO_HISTORY: Final = RunHistory()
