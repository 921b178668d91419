"""The PodGroup controller: makes the groups of workloads that name none, and holds Jobs until their group's turn.

All of it follows from what the caches show, so that it is done again after a crash, and doing it twice does it once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from muster.kube import errors
from muster.kube.cache import Change
from muster.kube.client import Client
from muster.kube.events import Recorder
from muster.model import grouping, kinds, names
from muster.model.amounts import QuantityError
from muster.model.kinds import Kind
from muster.model.objects import Job, Meta, Object, OwnerReference, Pod, PodGroup, PodSpec
from muster.model.requests import pod_request
from scheduler import intake
from scheduler.snapshot import Phase
from scheduler.views import BY_CONTROLLER, Views, queue_of
from scheduler.work import Work

log = logging.getLogger(__name__)

_LEVELS: Final = 10
_OFF: Final = "off"
_READABLE: Final[dict[tuple[str, str], Kind[Any]]] = {
    (kind.api_version, kind.name): kind
    for kind in (kinds.REPLICASETS, kinds.JOBS, kinds.DEPLOYMENTS, kinds.STATEFULSETS)
}


class _Key(NamedTuple):
    kind: Kind[Any]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class PodGroupController:
    """Generates PodGroups and suspends or resumes Jobs.

    ``delays``: whether groups wait in Pending at all (the enqueue action is configured).
    """

    def __init__(
        self, client: Client, views: Views, recorder: Recorder, scheduler_names: Sequence[str], *, delays: bool
    ) -> None:
        self._client = client
        self._views = views
        self._recorder = recorder
        self._names = frozenset(scheduler_names)
        self._delays = delays
        self._released: frozenset[str] = frozenset()
        self._work: Work[_Key] = Work("workload", self._reconcile)
        views.jobs.subscribe(self._on_job)
        views.pods.subscribe(self._on_pod)
        for cache in views.groups.values():
            cache.subscribe(self._on_group)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run()

    def release(self, jobs: frozenset[str]) -> None:
        """Take over which Jobs may start, by uid: the last cycle knew them, and gave their group its turn."""
        more, self._released = jobs - self._released, jobs
        if more:
            for job in self._views.jobs.items():
                if job.metadata.uid in more:
                    self._on_job(Change("MODIFIED", job, job))

    # ── what to look at ──────────────────────────────────────────────────────────────────────────────────────────

    def _on_job(self, change: Change[Job]) -> None:
        if change.new is not None and change.new.spec.template.spec.scheduler_name in self._names:
            self._work.add(_Key(kinds.JOBS, change.new.namespace, change.new.name))

    def _on_pod(self, change: Change[Pod]) -> None:
        if change.new is not None and self._homeless(change.new):
            self._work.add(_Key(kinds.PODS, change.new.namespace, change.new.name))

    def _on_group(self, change: Change[PodGroup]) -> None:
        one = change.new or change.old
        if one is None or (change.old and change.new and intake.phase_of(change.old) is intake.phase_of(change.new)):
            return
        for job in self._views.jobs_of(one):
            self._on_job(Change("MODIFIED", job, job))

    def _homeless(self, pod: Pod) -> bool:
        """Whether a pod waits for a group to be made: it names none, or admission named one that nobody made yet."""
        group = grouping.group_of(pod.metadata)
        return (
            pod.spec.scheduler_name in self._names
            and not pod.spec.node_name
            and not pod.spec.scheduling_group
            and pod.metadata.deletion_timestamp is None
            and (not group or (grouping.is_generated(group) and self._views.find_group(pod.namespace, group) is None))
        )

    async def _reconcile(self, key: _Key) -> None:
        if key.kind is kinds.JOBS:
            job = self._views.jobs.get(key.name, key.namespace)
            if job is not None and job.metadata.deletion_timestamp is None and not intake.job_finished(job):
                await self._job(job)
            return
        pod = self._views.pods.get(key.name, key.namespace)
        if pod is not None and self._homeless(pod):
            await self._pod(pod)

    # ── Jobs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _job(self, job: Job) -> None:
        found = self._views.find_group(job.namespace, intake.group_of_job(job))
        group = found[1] if found is not None else None
        if group is None and not grouping.group_of(job.spec.template.metadata):
            metas = [job.spec.template.metadata, job.metadata, *self._namespace(job.namespace)]
            owner = OwnerReference(api_version=kinds.JOBS.api_version, kind="Job", name=job.name, uid=job.metadata.uid)
            await self._generate(job, kinds.JOBS, owner, metas, job.spec.template.spec)
        elif self._may_start(job, group):
            await self._resume(job)
        elif self._delayed(job, group):
            await self._suspend(job)

    def _may_start(self, job: Job, group: PodGroup | None) -> bool:
        """Whether it is a Job's turn: its group's phase alone doesn't tell, it may be from before the Job was known."""
        if not self._delays:
            return True
        has_turn = group is not None and intake.phase_of(group) in {Phase.INQUEUE, Phase.RUNNING, Phase.UNKNOWN}
        return has_turn and job.metadata.uid in self._released

    async def _resume(self, job: Job) -> None:
        if job.spec.suspend and job.metadata.annotation(names.SUSPENDED):
            await self._patch_job(job, suspend=False, note=None)

    def _delayed(self, job: Job, group: PodGroup | None) -> bool:
        """Whether a Job that isn't suspended ought to be: its group waits, nobody said off, and nothing of it started."""
        if job.spec.suspend or group is None or intake.phase_of(group) is not Phase.PENDING:
            return False
        queue = self._views.cache(kinds.QUEUES).get(queue_of(group))
        metas = [job.metadata, *([queue.metadata] if queue is not None else []), *self._namespace(job.namespace)]
        said = next(filter(None, (meta.annotation(names.DELAY) for meta in metas)), "")
        return said != _OFF and not self._started(job)

    def _started(self, job: Job) -> bool:
        pods = self._views.pods.indexed(BY_CONTROLLER, job.metadata.uid)
        return bool(job.status.succeeded or job.status.failed) or any(pod.spec.node_name for pod in pods)

    async def _suspend(self, job: Job) -> None:
        await self._patch_job(job, suspend=True, note="true")
        name = intake.group_of_job(job)
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
        owners, metas = await self._owners(pod)
        chosen = grouping.chosen_owner(owners, grouping.DEFAULT_RULES)
        if chosen is None:
            chosen = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid)
        group, named = grouping.generated_name(chosen.uid), grouping.group_of(pod.metadata)
        if named not in {"", group}:
            return  # Written by hand, or by another's rules: whoever did makes that group.
        if chosen.kind == kinds.JOBS.name and chosen.api_version == kinds.JOBS.api_version:
            # Its group is made from the Job, whose template is what was promised.
            self._work.add(_Key(kinds.JOBS, pod.namespace, chosen.name))
        elif self._views.find_group(pod.namespace, group) is None:
            nearest = [pod.metadata, *metas, *self._namespace(pod.namespace)]
            await self._generate(pod, kinds.PODS, chosen, nearest, pod.spec)
        if not named:
            await self._join(pod, group)

    async def _owners(self, pod: Pod) -> tuple[list[OwnerReference], list[Meta]]:
        """Walk up the controllers, up to the first that a rule matches; the metadata of those that could be read."""
        owners: list[OwnerReference] = []
        metas: list[Meta] = []
        above = pod.metadata.controller()
        while above is not None and len(owners) < _LEVELS:
            owners.append(above)
            found = await self._read(above, pod.namespace)
            if found is None:
                break
            metas.append(found.metadata)
            rule = grouping.matching_rule(above, grouping.DEFAULT_RULES)
            above = found.metadata.controller() if rule is None or rule.level > 0 else None
        return owners, metas

    async def _read(self, owner: OwnerReference, namespace: str) -> Object | None:
        kind = _READABLE.get((owner.api_version, owner.kind))
        if kind is None:
            return None
        cached: Object | None = None
        if kind in {kinds.REPLICASETS, kinds.JOBS}:
            cached = self._views.cache(kind).get(owner.name, namespace)
        found = cached if cached is not None else await self._client.find(kind, owner.name, namespace)
        return found if found is not None and found.metadata.uid == owner.uid else None

    async def _join(self, pod: Pod, group: str) -> None:
        meta = {"uid": pod.metadata.uid, "annotations": {names.GROUP_NAME: group}}
        try:
            await self._client.patch(kinds.PODS, pod.name, {"metadata": meta}, pod.namespace)
        except (errors.NotFoundError, errors.ConflictError):
            return  # Gone, or another of its name.

    # ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _namespace(self, name: str) -> Iterable[Meta]:
        found = self._views.cache(kinds.NAMESPACES).get(name)
        return (found.metadata,) if found is not None else ()

    async def _generate(
        self, about: Object, kind: Kind[Any], owner: OwnerReference, metas: Sequence[Meta], template: PodSpec
    ) -> None:
        try:
            body = manifest(owner, metas, template)
        except QuantityError as error:
            self._recorder.record(
                kind, about, "NoPodGroup", f"the pods' request can't be read: {error}", type_="Warning"
            )
            return
        try:
            await self._client.create(kinds.PODGROUPS, body, about.namespace)
        except errors.AlreadyExistsError:
            return  # Another leader's, or an answer that got lost: the watch will show it.
        except errors.ForbiddenError as error:
            self._recorder.record(kind, about, "NoPodGroup", error.message, type_="Warning")
            raise


def manifest(owner: OwnerReference, metas: Sequence[Meta], template: PodSpec) -> dict[str, Any]:
    """Write the PodGroup generated for ``owner``; ``metas`` are read for annotations, the nearest first.

    Raises:
        QuantityError: the template's request can't be read.
    """
    member, _ = grouping.min_member(*metas)
    stated, _ = grouping.min_resources(*metas)
    amounts = stated if stated is not None else pod_request(template) * member
    return {
        "metadata": {
            "name": grouping.generated_name(owner.uid),
            # The same answer as admission's, for whom what this group holds was or wasn't reserved already.
            **({"annotations": {names.QUOTA_POLICY: names.POLICY_QUEUE}} if grouping.reserves_late(*metas) else {}),
            "ownerReferences": [
                {
                    "apiVersion": owner.api_version,
                    "kind": owner.kind,
                    "name": owner.name,
                    "uid": owner.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "minMember": member,
            "queue": grouping.queue_name(*metas),
            "minResources": amounts.quantities(),
            **({"priorityClassName": template.priority_class_name} if template.priority_class_name else {}),
        },
    }
