"""The source of groups and pods in a simulation: objects of files and lines of traces, through admission, and Jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.model import grouping, kinds, names, native_groups
from muster.model.amounts import Resources
from muster.model.kinds import Kind
from muster.model.objects import (
    Condition,
    Container,
    Job,
    JobStatus,
    Meta,
    Object,
    OwnerReference,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodSpec,
    PodStatus,
    PriorityClass,
    ResourceRequirements,
)
from scheduler.controllers import manifests
from scheduler.simulator.admission import SimulatedAdmission
from scheduler.simulator.gangs import SimulatedGang, controlled_by
from scheduler.simulator.measures import Measures, Refusal
from scheduler.simulator.pods import PodLifecycle
from scheduler.simulator.trace import TraceJob
from scheduler.state import conversion
from scheduler.state.cluster import Cluster

_PENDING: Final = PodStatus(phase="Pending")
_COMPLETE: Final = Condition(type="Complete", status="True")
_Likeness = tuple[str, str, int, Resources, str]


class UidSource(Struct, frozen=True):
    """The uids of a simulation, drawn by its seed. ``schedulers`` are the scheduler names that are ours."""

    seed: int
    schedulers: tuple[str, ...]

    def __call__(self, subject: str) -> str:
        """Return the uid of something; the same for the same seed."""
        return blake2b(f"{self.seed} {subject}".encode(), digest_size=16).hexdigest()


class Workloads:
    """Creates objects, and does what the controllers of Jobs and of generated groups do."""

    def __init__(
        self,
        cluster: Cluster,
        admission: SimulatedAdmission,
        lifecycle: PodLifecycle,
        measures: Measures,
        start: datetime,
        uids: UidSource,
    ) -> None:
        self._cluster = cluster
        self._admission = admission
        self._lifecycle = lifecycle
        self._measures = measures
        self._start = start
        self._uids = uids
        self._specs: dict[tuple[Resources, str], PodSpec] = {}
        self._lines: dict[_Likeness, PodGroup] = {}
        self._priorities: dict[str, int] = {}
        self._usual = ""
        self._gang_of_job: dict[str, SimulatedGang] = {}
        self._lacking: dict[str, list[SimulatedGang]] = {}
        self._passed: dict[tuple[str, int], Pod] = {}
        lifecycle.controllers = self

    def show_priority(self, one: PriorityClass) -> None:
        """Learn of a PriorityClass."""
        self._priorities[one.name] = one.value
        if one.global_default:
            self._usual = one.name

    # ── creations ────────────────────────────────────────────────────────────────────────────────────────────────

    def exists(self, kind: Kind[Any], one: Any) -> None:
        """Take in a PodGroup, a Job or a Pod that was there before; how long it waited before is not counted."""
        gang: SimulatedGang | None
        if kind is kinds.JOBS:
            gang = self._lifecycle.gang((one.namespace, conversion.group_of_job(one)))
            self.show_job(one, gang)
        elif kind is kinds.PODS:
            gang = self._lifecycle.show_pod(one)
        else:
            gang = self._lifecycle.show_group(kind, one)
        self._admission.show(kind, one)
        if gang is not None:
            gang.counted = False

    def create(self, kind: Kind[Any], one: Any) -> None:
        """Create a PodGroup, a Job or a Pod of a file."""
        if kind is kinds.JOBS:
            self._create_job(one)
        elif kind is kinds.PODS:
            self._create_pod(one)
        else:
            self._create_group(kind, one)

    def arrive(self, job: TraceJob) -> None:
        """Create the group of a line of a trace, and its pods."""
        group = self._again(job) or self._create_line(job)
        if group is None:
            return
        gang = self._lifecycle.show_group(kinds.PODGROUPS, group)
        gang.replaced = True
        annotations = {names.GROUP_NAME: job.name, names.RUN_SECONDS: f"{job.duration:.3f}"}
        # Somebody makes another where one is evicted.
        maker = OwnerReference(
            api_version="muster.sh/v1alpha1", kind="TraceJob", name=job.name, uid=self._uids(job.name), controller=True
        )
        meta = Meta(name=job.name, namespace=job.namespace, annotations=annotations, owner_references=(maker,))
        gang.restarts, gang.pause = job.restarts, job.pause
        failing = replace(meta, annotations={**annotations, names.EXIT_CODE: "1"})
        self._make(gang, Pod(metadata=failing, spec=self._spec(job)), job.failures)
        self._make(gang, Pod(metadata=meta, spec=self._spec(job)), job.pods - job.failures)

    def _create_line(self, job: TraceJob) -> PodGroup | None:
        """Create the group of a line of a trace; None where it is refused."""
        spec = PodGroupSpec(
            min_member=job.minimum,
            queue=job.queue,
            priority_class_name=job.priority,
            min_resources=dict((job.request * job.minimum).quantities()),
        )
        meta = Meta(name=job.name, namespace=job.namespace)
        stored = self._created(kinds.PODGROUPS, PodGroup(metadata=meta, spec=spec))
        if stored is not None:
            self._lines[_likeness(job)] = stored
        return stored

    def _again(self, job: TraceJob) -> PodGroup | None:
        """Create a group like one that was admitted before, None where it may get another answer.

        Rules go by a group's spec, by queues, nodes and namespaces, which stay as they are, by the quota, and by who
        has the name already.
        """
        known = self._lines.get(_likeness(job))
        if (
            known is None
            or self._admission.limited(job.namespace)
            or (job.namespace, job.name) in self._lifecycle.gangs
        ):
            return None
        meta = self._stamped(kinds.PODGROUPS, replace(known.metadata, name=job.name))
        group = replace(known, metadata=meta)
        self._admission.show(kinds.PODGROUPS, group)
        return group

    def _spec(self, job: TraceJob) -> PodSpec:
        """Return the spec of a trace's pods; equal ones are one."""
        known = self._specs.get((job.request, job.priority))
        if known is None:
            requests = ResourceRequirements(requests=dict(job.request.quantities()))
            container = Container(name="main", resources=requests)
            spec = PodSpec(containers=(container,), priority_class_name=job.priority)
            known = self._specs[job.request, job.priority] = self._completed(spec)
        return known

    def _create_group(self, kind: Kind[PodGroup], group: PodGroup) -> SimulatedGang | None:
        stored = self._created(kind, group)
        return self._lifecycle.show_group(kind, stored) if stored is not None else None

    def _created(self, kind: Kind[PodGroup], group: PodGroup) -> PodGroup | None:
        queue = group.spec.queue or names.DEFAULT_QUEUE
        fresh = replace(group, metadata=self._stamped(kind, group.metadata), status=PodGroupStatus())
        stored: PodGroup | None = self._admitted(kind, fresh, queue)
        return stored

    def _create_pod(self, pod: Pod) -> None:
        """Create a pod that nobody controls; one of ours that names no group gets its own."""
        fresh = replace(pod, metadata=self._stamped(kinds.PODS, pod.metadata), spec=self._completed(pod.spec))
        stored = self._admit_pod(replace(fresh, status=_PENDING))
        if stored is None:
            return
        meta = stored.metadata
        if not grouping.group_of(meta) and self._ours(stored.spec):
            owner = OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid)
            if self._generate(owner, [meta], meta.namespace, stored.spec) is None:
                return
            named = {**(meta.annotations or {}), names.GROUP_NAME: grouping.generated_name(meta.uid)}
            stored = replace(stored, metadata=replace(meta, annotations=named))
        self._lifecycle.show_pod(stored)

    def _create_job(self, job: Job) -> None:
        """Create a Job, and its group where it names none; its pods come when they may."""
        spec = job.spec
        template = replace(spec.template, spec=self._completed(spec.template.spec))
        completions = 1 if spec.parallelism is None and spec.completions is None else spec.completions
        spec = replace(spec, template=template, completions=completions)
        fresh = replace(job, metadata=self._stamped(kinds.JOBS, job.metadata), spec=spec, status=JobStatus())
        queue = grouping.queue_name(template.metadata, job.metadata, self._admission.namespace(job.namespace))
        stored: Job | None = self._admitted(kinds.JOBS, fresh, queue)
        if stored is None:
            return
        name = grouping.group_of(template.metadata)
        if name:
            self.show_job(stored, self._lifecycle.gang((stored.namespace, name)))
            return
        owner, nearest = grouping.job_reference(stored.metadata), [template.metadata, stored.metadata]
        noted = native_groups.noted_of_job(stored)
        gang = self._generate(owner, nearest, stored.namespace, template.spec, **noted)
        if gang is not None:
            self.show_job(stored, gang)

    def show_job(self, job: Job, gang: SimulatedGang) -> None:
        """Take in a Job whose pods are in a group, and make its pods where it isn't suspended."""
        gang.jobs[job.metadata.uid] = job
        self._gang_of_job[job.metadata.uid] = gang
        self._show_job(gang, job)
        if not job.spec.suspend:
            self._spawn(gang, job)

    def _generate(
        self, owner: OwnerReference, nearest: list[Meta], place: str, template: PodSpec, **noted: str
    ) -> SimulatedGang | None:
        space = self._admission.namespace(place)
        metas = [*nearest, *([space] if space is not None else [])]
        group = msgspec.convert(manifests.podgroup(owner, metas, template, annotations=noted), PodGroup)
        return self._create_group(kinds.PODGROUPS, replace(group, metadata=replace(group.metadata, namespace=place)))

    # ── controllers ──────────────────────────────────────────────────────────────────────────────────────────────

    def release(self, jobs: Iterable[str]) -> bool:
        """Let Jobs make their pods whose group has its turn; tell whether there were any."""
        found = False
        for uid in sorted(jobs):
            gang = self._gang_of_job[uid]
            job = gang.jobs[uid]
            if job.spec.suspend:
                found = True
                self._show_job(gang, _suspended(job, suspend=False))
                self._spawn(gang, gang.jobs[uid])
        return found

    def take_back(self, gang: SimulatedGang) -> None:
        """Hold the Jobs of a group back again of which nothing has started: their pods go."""
        for uid, job in list(gang.jobs.items()):
            mine = [pod for pod in gang.pods.values() if controlled_by(pod, uid)]
            if job.spec.suspend or job.status.succeeded or any(pod.spec.node_name for pod in mine):
                continue
            self._show_job(gang, _suspended(job, suspend=True))
            for pod in mine:
                self._lifecycle.delete_pod(gang, pod)

    def succeeded(self, gang: SimulatedGang, pods: list[Pod]) -> None:
        """Count the pods of Jobs; a Job that has enough of them is complete, another makes more."""
        for uid, job in list(gang.jobs.items()):
            count = sum(controlled_by(pod, uid) for pod in pods)
            if not count:
                continue
            done = job.status.succeeded + count
            alive = any(controlled_by(pod, uid) for pod in gang.pods.values())
            enough = not alive if job.spec.completions is None else done >= job.spec.completions
            status = replace(job.status, succeeded=done, conditions=(_COMPLETE,) if enough else None)
            self._show_job(gang, replace(job, status=status))
            if job.spec.completions is not None:
                self._spawn(gang, gang.jobs[uid])

    def restarted(self, gang: SimulatedGang, pod: Pod) -> None:
        """Make another pod in the place of one that failed; that one succeeds."""
        kept = {key: value for key, value in (pod.metadata.annotations or {}).items() if key != names.EXIT_CODE}
        self._replace(gang, replace(pod, metadata=replace(pod.metadata, annotations=kept)))

    def _replace(self, gang: SimulatedGang, pod: Pod) -> None:
        again = replace(pod, spec=replace(pod.spec, node_name=""), metadata=replace(pod.metadata, name=gang.home[1]))
        self._make(gang, again, 1)

    def evicted(self, gang: SimulatedGang, pod: Pod) -> None:
        """Make another pod in the place of one that had to go."""
        controller = pod.metadata.controller()
        if gang.replaced:
            self._replace(gang, pod)
        elif controller is not None and controller.uid in gang.jobs:
            self._spawn(gang, gang.jobs[controller.uid])

    def over(self, gang: SimulatedGang) -> bool:
        """Whether all Jobs of a group have ended."""
        return all(conversion.job_finished(job) for job in gang.jobs.values())

    def room(self, namespace: str) -> None:
        """Try again to make what the quota of a namespace had no room for."""
        for gang in self._lacking.pop(namespace, ()):
            lacking, gang.lacking = gang.lacking, []
            for pod in lacking:
                self._make(gang, pod, 1)

    def _spawn(self, gang: SimulatedGang, job: Job) -> None:
        uid, meta, spec = job.metadata.uid, job.spec.template.metadata, job.spec.template.spec
        alive = sum(controlled_by(pod, uid) for pod in (*gang.pods.values(), *gang.lacking))
        owner = replace(grouping.job_reference(job.metadata), controller=True)
        template = replace(meta, name=job.name, namespace=job.namespace, owner_references=(owner,))
        self._make(gang, Pod(metadata=template, spec=spec), conversion.pods_wanted(job) - alive)

    def _make(self, gang: SimulatedGang, template: Pod, count: int) -> None:
        """Make pods alike. Where no quota counts them they all get the same answer, so one is asked about."""
        limited, drawn = self._admission.limited(gang.home[0]), self._uids(gang.name)
        created = self._moment.replace(microsecond=0)
        # Pods of a trace differ from line to line in nothing that admission looks at: theirs was asked about before.
        alike = self._passed.get((gang.home[0], id(template.spec))) if gang.replaced else None
        for _ in range(count):
            meta = template.metadata
            name = f"{meta.name}-{gang.made}"
            gang.made += 1
            meta = replace(meta, name=name, uid=f"{drawn}-{gang.made:06}", creation_timestamp=created)
            pod = Pod(metadata=meta, spec=template.spec, status=_PENDING)
            if alike is None or limited:
                alike = self._admit_pod(pod)
                if alike is None:
                    gang.lacking.append(template)
                    waiting = self._lacking.setdefault(gang.home[0], [])
                    if gang not in waiting:
                        waiting.append(gang)
                    continue
                pod = alike
                if gang.replaced:
                    self._passed[gang.home[0], id(template.spec)] = pod
            elif not gang.replaced and alike.metadata.annotations is not meta.annotations:
                pod = replace(pod, metadata=replace(meta, annotations=alike.metadata.annotations))
            self._lifecycle.show_pod(pod)

    def _show_job(self, gang: SimulatedGang, job: Job) -> None:
        gang.jobs[job.metadata.uid] = job
        self._cluster.batch_job(job)
        self._admission.show(kinds.JOBS, job)

    # ── admission ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _moment(self) -> datetime:
        return self._start + timedelta(seconds=self._lifecycle.now)

    def _stamped(self, kind: Kind[Any], meta: Meta) -> Meta:
        """Return metadata with what a creation adds. Uids, which decide ties, are drawn by the seed."""
        uid = self._uids(f"{kind} {meta.namespace}/{meta.name}")
        return replace(meta, uid=uid, creation_timestamp=self._moment.replace(microsecond=0))

    def _ours(self, spec: PodSpec) -> bool:
        return spec.scheduler_name in self._uids.schedulers

    def _completed(self, spec: PodSpec) -> PodSpec:
        """Fill in what an API server fills in: the priority; and what no API server has seen is Muster's to schedule."""
        name = spec.priority_class_name or self._usual
        return replace(
            spec,
            scheduler_name=spec.scheduler_name or self._uids.schedulers[0],
            priority_class_name=name,
            priority=spec.priority if spec.priority is not None else self._priorities.get(name, 0),
        )

    def _admit_pod(self, pod: Pod) -> Pod | None:
        name = pod.spec.priority_class_name
        queue = grouping.queue_name(pod.metadata, self._admission.namespace(pod.namespace))
        if name and name not in self._priorities:
            self._refuse(kinds.PODS, pod, queue, f"no PriorityClass with name {name} was found")
            return None
        admitted: Pod | None = self._admitted(kinds.PODS, pod, queue)
        return admitted

    def _admitted(self, kind: Kind[Any], one: Object, queue: str) -> Any:
        answer = self._admission.admit(kind, one, self._moment)
        if answer.stored is None:
            self._refuse(kind, one, queue, answer.refusal)
        return answer.stored

    def _refuse(self, kind: Kind[Any], one: Object, queue: str, text: str) -> None:
        subject = f"{kind.name} {one.namespace}/{one.name}"
        self._measures.refusals.append(Refusal(self._lifecycle.now, subject, queue, text))


def _likeness(job: TraceJob) -> _Likeness:
    return job.namespace, job.queue, job.minimum, job.request, job.priority


def _suspended(job: Job, *, suspend: bool) -> Job:
    """Suspend a Job in Muster's name, or let it go."""
    others = {key: value for key, value in (job.metadata.annotations or {}).items() if key != names.SUSPENDED}
    annotations = {**others, names.SUSPENDED: "true"} if suspend else others
    return replace(
        job, metadata=replace(job.metadata, annotations=annotations), spec=replace(job.spec, suspend=suspend)
    )
