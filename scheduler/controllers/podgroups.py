"""The PodGroup controller: makes the groups of workloads that name none, and holds Jobs until their group's turn.

All of it follows from what the caches show, so that it is done again after a crash, and doing it twice does it once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from muster.kube import errors
from muster.kube.cache import ObjectChange
from muster.kube.client import Client
from muster.kube.events import EventRecorder
from muster.kube.workqueue import WorkQueue
from muster.model import grouping, kinds, names
from muster.model.amounts import QuantityError
from muster.model.kinds import Kind
from muster.model.objects import Job, Meta, Object, OwnerReference, Pod, PodGroup, PodSpec
from scheduler.controllers import manifests
from scheduler.controllers.expected_pods import ControllerPods
from scheduler.controllers.owners import Owners
from scheduler.model.snapshot import Phase
from scheduler.state import conversion
from scheduler.state.informers import BY_CONTROLLER, Informers, queue_of

log = logging.getLogger(__name__)

_OFF: Final = "off"
_SHOWN: Final = 30.0
"""Seconds after which a group that was made, and that no watch has shown, is made again."""


class RetryLater(errors.KubeError):
    """What is to be done has to wait for something else to end."""


class _GroupRef(NamedTuple):
    kind: Kind[Any]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class PodGroupController:
    """Generates PodGroups and suspends or resumes Jobs.

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
        delays: bool,
        rules: Callable[[], Sequence[grouping.Rule]],
    ) -> None:
        self._client = client
        self._informers = informers
        self._recorder = recorder
        self._names = frozenset(scheduler_names)
        self._delays = delays
        self._rules = rules
        self._owners = Owners(client, informers)
        self._controller_pods = ControllerPods(informers)
        self._released: frozenset[str] = frozenset()
        self._made: dict[tuple[str, str], float] = {}
        self._work: WorkQueue[_GroupRef] = WorkQueue("workload", self._reconcile)
        informers.jobs.subscribe(self._on_job)
        informers.pods.subscribe(self._on_pod)
        for cache in informers.groups.values():
            cache.subscribe(self._on_group)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run()

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
        if change.new is not None and change.new.spec.template.spec.scheduler_name in self._names:
            self._work.add(_GroupRef(kinds.JOBS, change.new.namespace, change.new.name))

    def _on_pod(self, change: ObjectChange[Pod]) -> None:
        if change.new is not None and self._homeless(change.new):
            self._work.add(_GroupRef(kinds.PODS, change.new.namespace, change.new.name))

    def _on_group(self, change: ObjectChange[PodGroup]) -> None:
        one = change.new or change.old
        if one is not None:
            self._made.pop((one.namespace, one.name), None)
        if one is None or (
            change.old and change.new and conversion.phase_of(change.old) is conversion.phase_of(change.new)
        ):
            return
        for job in self._informers.jobs_of(one):
            self._on_job(ObjectChange("MODIFIED", job, job))

    def _homeless(self, pod: Pod) -> bool:
        """Whether a pod waits for a group to be made: it names none, or admission named one that nobody made yet."""
        if pod.spec.node_name or pod.spec.scheduler_name not in self._names:
            return False
        if pod.spec.scheduling_group or pod.metadata.deletion_timestamp is not None:
            return False
        group = grouping.group_of(pod.metadata)
        return not group or (grouping.is_generated(group) and self._informers.find_group(pod.namespace, group) is None)

    async def _reconcile(self, key: _GroupRef) -> None:
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
            await self._resume(job)
        elif self._delayed(job, group):
            await self._suspend(job)

    async def _house(self, job: Job) -> None:
        """Make the group of a Job that names none, after noting on the Job which one it is where it isn't its own."""
        own = grouping.job_reference(job.metadata)
        noted = job.metadata.annotation(names.JOB_GROUP)
        chosen, trouble = await self._chosen(job.metadata, job.namespace, own, noted)
        if chosen is None:
            if not noted:
                await self._resume(job)  # Each of its pods has a group of its own.
            return
        if chosen.uid != own.uid:
            if trouble:
                self._tell(kinds.JOBS, job, "OwnerUnreadable", f"{trouble}; the group stands for {_shown(chosen)}")
            if not noted:
                await self._note(job, grouping.generated_name(chosen.uid))
        if self._informers.find_group(job.namespace, grouping.generated_name(chosen.uid)) is None:
            nearest = [job.spec.template.metadata, job.metadata]
            await self._generate(kinds.JOBS, job, chosen, nearest, job.spec.template.spec)

    async def _chosen(
        self, meta: Meta, namespace: str, own: OwnerReference | None, named: str
    ) -> tuple[OwnerReference | None, str]:
        """Return who a group stands for, and what couldn't be read on the way; None is each pod for itself.

        ``own`` is the object itself where it may be chosen by a rule. A name that is there already decides: it was made
        by rules, maybe by older ones.
        """
        below, rules = [own] if own is not None else [], self._rules()
        if named:
            lineage = await self._owners.above(meta, namespace, lambda owners: _named(owners[-1:], named) is not None)
            return _named([*below, *lineage.owners], named), lineage.trouble
        if grouping.decided(below, rules):
            return grouping.chosen_owner(below, rules), ""
        lineage = await self._owners.above(meta, namespace, lambda owners: grouping.decided([*below, *owners], rules))
        return grouping.chosen_owner([*below, *lineage.owners], rules), lineage.trouble

    async def _note(self, job: Job, group: str) -> None:
        meta = {"uid": job.metadata.uid, "annotations": {names.JOB_GROUP: group}}
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

    async def _resume(self, job: Job) -> None:
        if job.spec.suspend and job.metadata.annotation(names.SUSPENDED):
            await self._patch_job(job, suspend=False, note=None)

    def _delayed(self, job: Job, group: PodGroup | None) -> bool:
        """Whether a Job that isn't suspended ought to be: its group waits, nobody said off, and nothing of it started."""
        if job.spec.suspend or group is None or conversion.phase_of(group) is not Phase.PENDING:
            return False
        queue = self._informers.queue(queue_of(group))
        metas = [job.metadata, *([queue.metadata] if queue is not None else []), *self._namespace(job.namespace)]
        said = next(filter(None, (meta.annotation(names.DELAY) for meta in metas)), "")
        return said != _OFF and not self._started(job)

    def _started(self, job: Job) -> bool:
        pods = self._informers.pods.indexed(BY_CONTROLLER, job.metadata.uid)
        return bool(job.status.succeeded or job.status.failed) or any(pod.spec.node_name for pod in pods)

    async def _suspend(self, job: Job) -> None:
        await self._patch_job(job, suspend=True, note="true")
        name = conversion.group_of_job(job)
        self._recorder.record(kinds.JOBS, job, "Suspended", f"PodGroup {name} is Pending: the Job waits for its turn")

    async def _patch_job(self, job: Job, *, suspend: bool, note: str | None) -> None:
        # With the version: what was decided is about the Job as it was.
        meta = {"resourceVersion": job.metadata.resource_version, "annotations": {names.SUSPENDED: note}}
        change = {"metadata": meta, "spec": {"suspend": suspend}}
        try:
            await self._client.patch(kinds.JOBS, job.name, change, job.namespace)
        except (errors.NotFoundError, errors.ConflictError):
            return  # Gone or changed: the watch will show it, and it is looked at again.

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _pod(self, pod: Pod) -> None:
        """Find the owner that the pod's group stands for, make the group, and write its name on the pod."""
        job, named = self._job_of(pod), grouping.group_of(pod.metadata)
        told = named or (job.metadata.annotation(names.JOB_GROUP) if job is not None else "")
        chosen, trouble = await self._chosen(pod.metadata, pod.namespace, None, told)
        if chosen is None:
            if told not in {"", grouping.generated_name(pod.metadata.uid)}:
                # Named by hand, after nobody above: whoever did makes that group. Or after one that can't be seen.
                if trouble:
                    self._tell(kinds.PODS, pod, "OwnerUnreadable", trouble)
                return
            chosen, job = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid), None
        if trouble:
            self._tell(kinds.PODS, pod, "OwnerUnreadable", f"{trouble}; the group stands for {_shown(chosen)}")
        group = grouping.generated_name(chosen.uid)
        if job is not None:
            # Its group is made from the Job, whose template is what was reserved for.
            self._work.add(_GroupRef(kinds.JOBS, pod.namespace, job.name))
        elif self._informers.find_group(pod.namespace, group) is None:
            metas = await self._metas(pod, [pod.metadata])
            if wait := self._controller_pods.missing(pod, grouping.min_member(*metas)[0]):
                asyncio.get_running_loop().call_later(
                    wait, self._work.add, _GroupRef(kinds.PODS, pod.namespace, pod.name)
                )
                return
            await self._generate(kinds.PODS, pod, chosen, [pod.metadata], pod.spec, self._controller_pods.known(pod))
            self._controller_pods.made(pod)
        if not named:
            await self._join(pod, group)

    def _job_of(self, pod: Pod) -> Job | None:
        nearest = pod.metadata.controller()
        if nearest is None or not grouping.JOB.matches(nearest):
            return None
        job = self._informers.jobs.get(nearest.name, pod.namespace)
        return job if job is not None and job.metadata.uid == nearest.uid else None

    async def _join(self, pod: Pod, group: str) -> None:
        meta = {"uid": pod.metadata.uid, "annotations": {names.GROUP_NAME: group}}
        try:
            await self._client.patch(kinds.PODS, pod.name, {"metadata": meta}, pod.namespace)
        except (errors.NotFoundError, errors.ConflictError):
            return  # Gone, or another of its name.

    # ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _namespace(self, name: str) -> Iterable[Meta]:
        found = self._informers.cache(kinds.NAMESPACES).get(name)
        return (found.metadata,) if found is not None else ()

    async def _metas(self, about: Object, nearest: Sequence[Meta]) -> list[Meta]:
        """Return whose annotations count: the nearest, all above, the namespace."""
        above = await self._owners.above(about.metadata, about.namespace, lambda _: False)
        return [*nearest, *above.metas, *self._namespace(about.namespace)]

    async def _generate(
        self,
        kind: Kind[Any],
        about: Object,
        owner: OwnerReference,
        nearest: Sequence[Meta],
        template: PodSpec,
        known: Sequence[PodSpec] = (),
    ) -> None:
        """Make the group that stands for ``owner``, unless that was done just now for another pod or Job of it."""
        group, now = (about.namespace, grouping.generated_name(owner.uid)), asyncio.get_running_loop().time()
        left = self._made.get(group, now) - now
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._work.add, _GroupRef(kind, about.namespace, about.name))
            return
        self._made[group] = now + _SHOWN
        made = False
        try:
            made = await self._make(kind, about, owner, nearest, template, known)
        finally:
            if not made:
                self._made.pop(group, None)

    async def _make(
        self,
        kind: Kind[Any],
        about: Object,
        owner: OwnerReference,
        nearest: Sequence[Meta],
        template: PodSpec,
        known: Sequence[PodSpec],
    ) -> bool:
        """Make a group by what ``about``, all above it and the namespace say; tell whether there is one now."""
        metas = await self._metas(about, nearest)
        queue = self._informers.queue(grouping.queue_name(*metas))
        if queue is not None and queue.metadata.deletion_timestamp is not None:
            # It would be deleted at once, and made again.
            self._tell(kind, about, "NoPodGroup", f"queue {queue.name} is being deleted; name another queue")
            raise RetryLater(f"queue {queue.name} is being deleted")
        try:
            body = manifests.podgroup(owner, metas, template, known)
        except QuantityError as error:
            self._tell(kind, about, "NoPodGroup", f"the pods' request can't be read: {error}")
            return False
        for warning in manifests.warnings(metas):
            self._tell(kind, about, "IgnoredAnnotation", warning)
        try:
            await self._client.create(kinds.PODGROUPS, body, about.namespace)
        except errors.AlreadyExistsError:
            return True  # Another leader's, or an answer that got lost: the watch will show it.
        except errors.ForbiddenError as error:
            self._tell(kind, about, "NoPodGroup", error.message)
            raise
        return True

    def _tell(self, kind: Kind[Any], about: Object, reason: str, message: str) -> None:
        self._recorder.record(kind, about, reason, message, type_="Warning")


def _named(owners: Iterable[OwnerReference], group: str) -> OwnerReference | None:
    """Return the owner after which a generated group is named."""
    return next((each for each in owners if grouping.generated_name(each.uid) == group), None)


def _shown(owner: OwnerReference) -> str:
    return f"{owner.kind} {owner.name}"
