"""The PodGroup controller: makes the groups of workloads that name none, and holds Jobs until their group's turn.

All of it follows from what the caches show, so that it is done again after a crash, and doing it twice does it once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from muster.kube import errors
from muster.kube.cache import ObjectChange
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.events import EventRecorder
from muster.kube.workqueue import WorkQueue
from muster.model import grouping, kinds, names
from muster.model.gangs import gang_of_job
from muster.model.kinds import ObjectKey
from muster.model.objects import Job, OwnerReference, Pod, PodGroup
from scheduler.controllers import manifests
from scheduler.controllers.expected_pods import ControllerPods
from scheduler.controllers.generated_groups import GeneratedGroups, GroupSource
from scheduler.controllers.native_groups import NativeGroups
from scheduler.controllers.workload import ABSENT_SECONDS, HELD, absent_text, held_text
from scheduler.controllers.workload_groups import WorkloadController
from scheduler.engine import lifecycle
from scheduler.model.snapshot import Phase
from scheduler.state import conversion
from scheduler.state.informers import BY_CONTROLLER, Informers, queue_of

log = logging.getLogger(__name__)

_OFF: Final = "off"


class PodGroupController:
    """Generates PodGroups and suspends or resumes Jobs.

    Attributes:
        native: what becomes of PodGroups of Kubernetes' own.

    ``delays``: whether groups wait in Pending at all (the enqueue action is configured); ``rules``: gives the owner rules
    that are in force.
    """

    def __init__(
        self,
        client: Client,
        informers: Informers,
        recorder: EventRecorder,
        scheduler_names: Sequence[str],
        *,
        clock: Clock,
        delays: bool,
        rules: Callable[[], Sequence[grouping.OwnerRule]],
    ) -> None:
        self._client = client
        self._informers = informers
        self._recorder = recorder
        self._names = frozenset(scheduler_names)
        self._delays = delays
        self._generated = GeneratedGroups(client, informers, recorder, rules)
        self._workloads = WorkloadController(client, informers, self._generated, scheduler_names)
        self._controller_pods = ControllerPods(informers)
        self.native = NativeGroups(client, informers, self._generated, self._controller_pods, scheduler_names, clock)
        self._released: frozenset[str] = frozenset()
        self._without_group: set[str] = set()
        self._work: WorkQueue[ObjectKey] = WorkQueue("workload", self._reconcile)
        informers.jobs.subscribe(self._on_job)
        informers.pods.subscribe(self._on_pod)
        for cache in informers.groups.values():
            cache.subscribe(self._on_group)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work.run(), name="pods and Jobs")
            group.create_task(self._workloads.run(), name="workloads")
            group.create_task(self.native.run(), name="native groups")

    def release(self, jobs: frozenset[str]) -> None:
        """Take over which Jobs may start, by uid: the last cycle knew them, and gave their group its turn."""
        more, self._released = jobs - self._released, jobs
        if more:
            for job in self._informers.jobs.items():
                if job.metadata.uid in more:
                    self._on_job(ObjectChange("MODIFIED", job, job))

    # ── what to look at ──────────────────────────────────────────────────────────────────────────────────────────

    def delay(self, delays: bool) -> None:  # noqa: FBT001 - what is set has no other name
        """Have groups wait in Pending, or no longer; those that wait now are looked at again."""
        if delays != self._delays:
            self._delays = delays
            for job in self._informers.jobs.items():
                self._on_job(ObjectChange("MODIFIED", job, job))

    def _on_job(self, change: ObjectChange[Job]) -> None:
        if change.new is not None and _ours(change.new, self._names):
            self._work.add(ObjectKey(kinds.JOBS, change.new.namespace, change.new.name))

    def _on_pod(self, change: ObjectChange[Pod]) -> None:
        if change.new is not None and self._homeless(change.new):
            self._work.add(ObjectKey(kinds.PODS, change.new.namespace, change.new.name))

    def _on_group(self, change: ObjectChange[PodGroup]) -> None:
        one = change.new or change.old
        if one is None or (change.old and change.new and change.old.status.phase == change.new.status.phase):
            return
        for job in self._informers.jobs_of(one):
            self._on_job(ObjectChange("MODIFIED", job, job))

    def _homeless(self, pod: Pod) -> bool:
        """Whether a pod waits for a group to be made: it names none, or admission named one that nobody made yet."""
        if pod.spec.node_name or pod.spec.scheduler_name not in self._names:
            return False
        if grouping.native_group(pod.spec.scheduling_group) or pod.metadata.deletion_timestamp is not None:
            return False
        group = grouping.group_of(pod.metadata)
        return not group or (grouping.is_generated(group) and self._informers.find_group(pod.namespace, group) is None)

    async def _reconcile(self, key: ObjectKey) -> None:
        if key.kind is kinds.JOBS:
            job = self._informers.jobs.get(key.name, key.namespace)
            if job is not None and job.metadata.deletion_timestamp is None and not conversion.job_finished(job):
                await self._job(job)
            return
        pod = self._informers.pods.get(key.name, key.namespace)
        if pod is not None and self._homeless(pod):
            await self._pod(pod)

    # ── Jobs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _job(self, job: Job) -> None:
        found = self._informers.find_group(job.namespace, conversion.group_of_job(job))
        group = found[1] if found is not None else None
        if group is None and not grouping.group_of(job.spec.template.metadata):
            await self._house(job)
        elif self._may_start(job, group):
            await self._resume(job, group)
        elif group is not None and self._delayed(job, group):
            await self._suspend(job, group)
        elif group is not None:
            await self._note_group(job, group)
        elif job.metadata.uid not in self._without_group:
            self._without_group.add(job.metadata.uid)
            asyncio.get_running_loop().call_later(ABSENT_SECONDS, self._say_absent, job)

    def _say_absent(self, job: Job) -> None:
        """Say of a Job that the group that it names isn't there, if that is still so."""
        self._without_group.discard(job.metadata.uid)
        now = self._informers.jobs.get(job.name, job.namespace)
        if now is None or now.metadata.uid != job.metadata.uid:
            return
        name = grouping.group_of(now.spec.template.metadata)
        if name and self._informers.find_group(now.namespace, name) is None:
            self._recorder.record(kinds.JOBS, now, HELD, absent_text(name), type_="Warning")

    async def _house(self, job: Job) -> None:
        """Make the group of a Job that names none, after noting on the Job which one it is where it isn't its own."""
        own = grouping.job_reference(job.metadata)
        noted = grouping.noted_group(job.metadata)
        chosen, trouble = await self._generated.chosen(job.metadata, job.namespace, [own], noted)
        if chosen is None:
            if not noted:
                await self._resume(job, None)  # Each of its pods has a group of its own.
            return
        if chosen.uid != own.uid:
            if trouble:
                self._generated.tell(
                    kinds.JOBS, job, "OwnerUnreadable", f"{trouble}; the group stands for {_shown(chosen)}"
                )
            await self._note(job, grouping.generated_name(chosen.uid))
        if self._informers.find_group(job.namespace, grouping.generated_name(chosen.uid)) is None:
            nearest = [job.spec.template.metadata, job.metadata]
            again = partial(self._work.add, ObjectKey(kinds.JOBS, job.namespace, job.name))
            need = partial(gang_of_job(job).need, devices=self._generated.devices(job.namespace))
            await self._generated.make(
                GroupSource(kinds.JOBS, job, chosen, nearest, job.spec.template.spec, need), again
            )

    async def _note_group(self, job: Job, group: PodGroup) -> None:
        # By its first status a group often lets its Job start: that write notes it as well.
        if group.status.phase:
            await self._note(job, group.name)

    async def _note(self, job: Job, group: str) -> None:
        """Note on a Job which group was made for its pods, unless it says so."""
        if not (noted := _notes(job, group)):
            return
        meta = {"uid": job.metadata.uid, "annotations": noted}
        try:
            await self._client.patch(kinds.JOBS, job.name, {"metadata": meta}, job.namespace)
        except (errors.NotFoundError, errors.ConflictError):
            return  # Gone, or another of its name.

    def _may_start(self, job: Job, group: PodGroup | None) -> bool:
        """Whether it is a Job's turn: its group's phase alone doesn't tell, it may be from before the Job was known."""
        if not self._delays:
            return True
        has_turn = group is not None and conversion.phase_of(group) in {Phase.INQUEUE, Phase.RUNNING, Phase.UNKNOWN}
        return has_turn and job.metadata.uid in self._released

    async def _resume(self, job: Job, group: PodGroup | None) -> None:
        if conversion.suspended_by_us(job):
            await self._patch_job(job, group, suspend=False)
        elif group is not None:
            await self._note_group(job, group)

    def _delayed(self, job: Job, group: PodGroup) -> bool:
        """Whether a Job that isn't suspended ought to be: its group waits, nobody said off, and nothing of it started."""
        if job.spec.suspend or conversion.phase_of(group) is not Phase.PENDING:
            return False
        queue = self._informers.queue(queue_of(group))
        metas = [
            job.metadata,
            *([queue.metadata] if queue is not None else []),
            *self._generated.namespace(job.namespace),
        ]
        said = next(filter(None, (meta.annotation(names.DELAY) for meta in metas)), "")
        return said != _OFF and not self._started(job)

    def _started(self, job: Job) -> bool:
        pods = self._informers.pods.indexed(BY_CONTROLLER, job.metadata.uid)
        return bool(job.status.succeeded or job.status.failed) or any(pod.spec.node_name for pod in pods)

    async def _suspend(self, job: Job, group: PodGroup) -> None:
        await self._patch_job(job, group, suspend=True)
        wrong = lifecycle.lasting_obstacle(group.status.conditions)
        self._recorder.record(kinds.JOBS, job, HELD, held_text(queue_of(group), wrong))

    async def _patch_job(self, job: Job, group: PodGroup | None, *, suspend: bool) -> None:
        noted = {names.SUSPENDED: "true" if suspend else None, **(_notes(job, group.name) if group is not None else {})}
        # With the version: what was decided is about the Job as it was.
        meta = {"resourceVersion": job.metadata.resource_version, "annotations": noted}
        change = {"metadata": meta, "spec": {"suspend": suspend}}
        try:
            await self._client.patch(kinds.JOBS, job.name, change, job.namespace)
        except (errors.NotFoundError, errors.ConflictError):
            return  # Gone or changed: the watch will show it, and it is looked at again.

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _pod(self, pod: Pod) -> None:
        """Find the owner that the pod's group stands for, make the group, and write its name on the pod."""
        job, named = self._job_of(pod), grouping.group_of(pod.metadata)
        told = named or (grouping.noted_group(job.metadata) if job is not None else "")
        chosen, trouble = await self._generated.chosen(pod.metadata, pod.namespace, [], told)
        if chosen is None:
            if told not in {"", grouping.generated_name(pod.metadata.uid)}:
                # Named by hand, after nobody above: whoever did makes that group. Or after one that can't be seen.
                if trouble:
                    self._generated.tell(kinds.PODS, pod, "OwnerUnreadable", trouble)
                return
            chosen, job = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid), None
        if trouble:
            self._generated.tell(
                kinds.PODS, pod, "OwnerUnreadable", f"{trouble}; the group stands for {_shown(chosen)}"
            )
        group = grouping.generated_name(chosen.uid)
        if job is not None:
            # Its group is made from the Job, whose template is what was reserved for.
            self._work.add(ObjectKey(kinds.JOBS, pod.namespace, job.name))
        elif self._informers.find_group(pod.namespace, group) is None and not self._workloads.takes_over(
            chosen, pod.namespace
        ):
            metas = await self._generated.metas(pod, [pod.metadata])
            again = partial(self._work.add, ObjectKey(kinds.PODS, pod.namespace, pod.name))
            if wait := self._controller_pods.missing(pod, grouping.min_member(*metas)[0]):
                asyncio.get_running_loop().call_later(wait, again)
                return
            need = partial(
                manifests.estimate,
                self._controller_pods.known(pod),
                devices=self._generated.devices(pod.namespace),
            )
            await self._generated.make(GroupSource(kinds.PODS, pod, chosen, [pod.metadata], pod.spec, need), again)
            self._controller_pods.made(pod)
        if not named:
            await self._generated.join(pod, group)

    def _job_of(self, pod: Pod) -> Job | None:
        nearest = pod.metadata.controller()
        if nearest is None or not grouping.JOB.matches(nearest):
            return None
        job = self._informers.jobs.get(nearest.name, pod.namespace)
        return job if job is not None and job.metadata.uid == nearest.uid else None


def _notes(job: Job, group: str) -> dict[str, str]:
    """Return the annotation that names the group made for a Job's pods; nothing where that is there, or no such group."""
    if not grouping.is_generated(group) or grouping.group_of(job.spec.template.metadata):
        return {}
    return {names.JOB_GROUP: group} if job.metadata.annotation(names.JOB_GROUP) != group else {}


def _ours(job: Job, schedulers: Collection[str]) -> bool:
    """Whether a Job's pods are ours, and in no native group that people wrote into its template."""
    template = job.spec.template.spec
    return template.scheduler_name in schedulers and not grouping.native_group(template.scheduling_group)


def _shown(owner: OwnerReference) -> str:
    return f"{owner.kind} {owner.name}"
