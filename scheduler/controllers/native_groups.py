"""PodGroups of Kubernetes' own (``scheduling.k8s.io``): each gets a PodGroup of Muster's that stands for it.

That one has what theirs lack: a queue, a reservation of the quota, a phase and reasons. The pods join it by annotation; of
what becomes of it, the condition of theirs tells as the scheduler of Kubernetes would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import structs

from muster.kube import errors
from muster.kube.cache import ObjectChange
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.workqueue import WorkQueue
from muster.model import grouping, kinds, native_groups
from muster.model.kinds import Kind, ObjectKey
from muster.model.objects import Condition, Job, NativePodGroup, Pod, PodGroup
from scheduler.controllers import manifests
from scheduler.controllers.expected_pods import ControllerPods
from scheduler.controllers.generated_groups import GeneratedGroups, GroupSource, RetryLater
from scheduler.controllers.served_kinds import ServedKinds
from scheduler.engine import lifecycle
from scheduler.model.snapshot import Phase
from scheduler.state import conversion
from scheduler.state.informers import BY_NATIVE_GROUP, Informers, group_index_key

_NATIVE: Final = kinds.NATIVE_PODGROUPS
_BY_OWNER: Final = "owner"
_SCHEDULED: Final = frozenset({Phase.RUNNING, Phase.UNKNOWN, Phase.COMPLETED})
"""Phases that a group comes to only after its minimum had nodes."""
_ABSENT: Final = 5.0
"""Seconds after which a group that pods name is looked for again."""


class NativeGroups:
    """Makes the groups that stand for native ones, has their pods join, and writes the conditions."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        generated: GeneratedGroups,
        expected: ControllerPods,
        scheduler_names: Sequence[str],
        clock: Clock,
    ) -> None:
        self._client = client
        self._informers = informers
        self._generated = generated
        self._expected = expected
        self._names = frozenset(scheduler_names)
        self._clock = clock
        self._work: WorkQueue[ObjectKey] = WorkQueue("native group", self._reconcile)
        self._served = ServedKinds(client, (_NATIVE,), self._on_native, {_BY_OWNER: _owners})
        informers.pods.subscribe(self._on_pod)
        for cache in informers.groups.values():
            cache.subscribe(self._on_group)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work.run(), name="native groups")
            group.create_task(self._served.run(), name="whether native groups are served")

    def obstacle(self, namespace: str, name: str) -> str:
        """Say why the pods of a native group have no group of Muster's; empty where they have, or are about to."""
        cache = self._served.cache(_NATIVE)
        if cache is None:
            return native_groups.not_served_text(name)
        found = cache.get(name, namespace)
        if found is None:
            return native_groups.absent_text(name) if cache.synced else ""
        return native_groups.not_evaluated(found)

    # ── what to look at ──────────────────────────────────────────────────────────────────────────────────────────

    def _on_native(self, kind: Kind[Any], change: ObjectChange[Any]) -> None:
        if change.new is not None:
            self._work.add(ObjectKey(kind, change.new.namespace, change.new.name))

    def _on_pod(self, change: ObjectChange[Pod]) -> None:
        pod = change.new
        if pod is None or pod.spec.scheduler_name not in self._names or not pod.spec.scheduling_group:
            return
        waits = not pod.spec.node_name and (pod.spec.resource_claims or not grouping.group_of(pod.metadata))
        if waits and (name := grouping.native_group(pod.spec.scheduling_group)):
            self._work.add(ObjectKey(_NATIVE, pod.namespace, name))

    def _on_group(self, change: ObjectChange[PodGroup]) -> None:
        """Have the condition follow a group, and a group that is gone made again."""
        cache, group = self._served.cache(_NATIVE), change.new or change.old
        if cache is None or group is None or not group.metadata.owner_references:
            return
        for native in cache.indexed(_BY_OWNER, group.metadata.owner_references[0].uid):
            self._work.add(ObjectKey(_NATIVE, native.namespace, native.name))

    # ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _reconcile(self, key: ObjectKey) -> None:
        cache = self._served.cache(_NATIVE)
        native: NativePodGroup | None = cache.get(key.name, key.namespace) if cache is not None else None
        if native is None or native.metadata.deletion_timestamp is not None:
            return
        pods = self._pods(native)
        if not await self._note_claims(native, pods) or not pods:
            return  # Without pods it isn't known whose scheduler it is for.
        of_job = self._group_of_job(pods)
        if unknown := native_groups.not_evaluated(native, of_job=bool(of_job)):
            await self._write(native, _unschedulable(unknown))
            return
        name = of_job or grouping.generated_name(native.metadata.uid)
        found = self._informers.find_group(native.namespace, name)
        if found is not None:
            await self._follow(native, pods, found[1])
        elif not of_job:
            await self._make(native, pods, key)
        for pod in pods:
            if not grouping.group_of(pod.metadata) and not pod.spec.node_name:
                await self._generated.join(pod, name)

    def _pods(self, native: NativePodGroup) -> list[Pod]:
        """Return its pods that are ours and may yet need nodes, the oldest first."""
        found = self._informers.pods.indexed(BY_NATIVE_GROUP, group_index_key(native.namespace, native.name))
        alive = (each for each in found if each.metadata.deletion_timestamp is None)
        return sorted((each for each in alive if each.spec.scheduler_name in self._names), key=_age)

    def _group_of_job(self, pods: Sequence[Pod]) -> str:
        """Name the group that its pods are in by their Job, for which Kubernetes made the native one; empty where there is none.

        Where people wrote the native group into the Job's template, it is what they mean.
        """
        owner = pods[0].metadata.controller()
        job: Job | None = None
        if owner is not None and grouping.JOB.matches(owner):
            job = self._informers.jobs.get(owner.name, pods[0].namespace)
        if job is None or owner is None or job.metadata.uid != owner.uid or job.spec.template.spec.scheduling_group:
            return ""
        return conversion.group_of_job(job)

    async def _note_claims(self, native: NativePodGroup, pods: Sequence[Pod]) -> bool:
        """Note which claims they share on the groups that its pods are in by their Job or by name; tell whether that is possible."""
        if not native.spec.resource_claims and not any(each.spec.resource_claims for each in pods):
            return True
        noted, possible = native_groups.noted_claims(native), True
        for name in self._named(native, pods):
            there = self._informers.find_group(native.namespace, name)
            if there is None:
                again = partial(self._work.add, ObjectKey(_NATIVE, native.namespace, native.name))
                asyncio.get_running_loop().call_later(_ABSENT, again)
            elif noted.items() <= (there[1].metadata.annotations or {}).items():
                continue
            elif self._stands_for_another(native, there[1]):
                await self._write(native, _unschedulable(native_groups.second_text(native, name)))
                possible = False
            else:
                metadata = {"uid": there[1].metadata.uid, "annotations": noted}
                with suppress(errors.NotFoundError, errors.ConflictError):  # Gone, or another of its name.
                    await self._client.patch(there[0], name, {"metadata": metadata}, native.namespace)
        return possible

    def _named(self, native: NativePodGroup, pods: Sequence[Pod]) -> set[str]:
        """Name the groups that pods of a native group are in, but for the one that stands for it; that of a Job before it has pods."""
        found, owner = {grouping.group_of(each.metadata) for each in pods}, native.metadata.controller()
        job = self._informers.jobs.get(owner.name, native.namespace) if owner and grouping.JOB.matches(owner) else None
        if job is not None and owner is not None and job.metadata.uid == owner.uid:
            found |= {conversion.group_of_job(job)} if job.spec.template.spec.scheduler_name in self._names else set()
        return found - {"", grouping.generated_name(native.metadata.uid)}

    def _stands_for_another(self, native: NativePodGroup, group: PodGroup) -> bool:
        """Whether a group's pods share the claims of another native group, that is there."""
        name, uid = native_groups.claiming(group.metadata)
        cache = self._served.cache(_NATIVE)
        other = cache.get(name, native.namespace) if name and cache is not None else None
        return other is not None and uid == other.metadata.uid != native.metadata.uid

    async def _make(self, native: NativePodGroup, pods: Sequence[Pod], key: ObjectKey) -> None:
        again = partial(self._work.add, key)
        if wait := self._expected.missing(pods[0], native_groups.min_member(native)):
            asyncio.get_running_loop().call_later(wait, again)
            return
        try:
            await self._generated.make(self._source(native, pods), again)
        except (errors.ForbiddenError, RetryLater) as error:
            # Such as a queue that doesn't exist, or is closed.
            text = error.message if isinstance(error, errors.ForbiddenError) else str(error)
            await self._write(native, _unschedulable(text))
            raise
        self._expected.made(pods[0])

    def _source(self, native: NativePodGroup, pods: Sequence[Pod]) -> GroupSource:
        specs = [each.spec for each in pods]
        return GroupSource(
            _NATIVE,
            native,
            manifests.native_owner(native),
            [native_groups.described(native)],
            manifests.native_template(native, specs),
            partial(manifests.native_need, native, specs, devices=self._generated.devices(native.namespace)),
            followed=True,
            annotations=native_groups.noted(native),
        )

    async def _follow(self, native: NativePodGroup, pods: Sequence[Pod], group: PodGroup) -> None:
        described = manifests.description(group.metadata)
        minimum = native_groups.min_member(native)
        if described is not None and described.spec.get("minMember") != minimum and not self._group_of_job(pods):
            await self._generated.follow(self._source(native, pods), group)
        if conversion.phase_of(group) in _SCHEDULED:
            await self._write(
                native, Condition(type=native_groups.INITIALLY_SCHEDULED, status="True", reason="Scheduled")
            )
        elif (wrong := lifecycle.lasting_obstacle(group.status.conditions)) is not None:
            await self._write(native, _unschedulable(wrong.message))

    # ── the condition ────────────────────────────────────────────────────────────────────────────────────────────

    async def _write(self, native: NativePodGroup, condition: Condition) -> None:
        """Write the condition, unless it says so already; once true it stays so, as upstream has it."""
        others = [each for each in native.status.conditions or () if each.type != condition.type]
        old = next((each for each in native.status.conditions or () if each.type == condition.type), None)
        if old is not None and (
            old.status == "True"
            or (old.status, old.reason, old.message) == (condition.status, condition.reason, condition.message)
        ):
            return
        since = old.last_transition_time if old is not None and old.status == condition.status else self._clock.now()
        new = structs.replace(condition, last_transition_time=since, observed_generation=native.metadata.generation)
        # The API server requires a message, which may be empty.
        written = {**msgspec.to_builtins(new), "message": new.message}
        status = {"conditions": [*map(_whole, others), written]}
        meta = {"resourceVersion": native.metadata.resource_version}
        change = {"metadata": meta, "status": status}
        try:
            await self._client.patch(_NATIVE, native.name, change, native.namespace, subresource="status")
        except (errors.NotFoundError, errors.ConflictError):
            return  # Gone or changed: the watch will show it, and it is looked at again.


def _whole(condition: Condition) -> dict[str, Any]:
    return {**msgspec.to_builtins(condition), "message": condition.message}


def _unschedulable(message: str) -> Condition:
    return Condition(type=native_groups.INITIALLY_SCHEDULED, status="False", reason="Unschedulable", message=message)


def _owners(native: NativePodGroup) -> tuple[str, ...]:
    """Return the uids by which a group may stand for a native one: its own, and that of its Job."""
    controller = native.metadata.controller()
    return (native.metadata.uid, *((controller.uid,) if controller is not None else ()))


def _age(pod: Pod) -> tuple[str, str]:
    return str(pod.metadata.creation_timestamp or ""), pod.name
