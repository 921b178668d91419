"""The objects that controllers make of those that files bring: PodGroups, and the pods of workloads. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from muster.model import device_classes, device_quota, grouping, kinds, names, native_groups
from muster.model.amounts import QuantityError
from muster.model.gangs import DescribedGang, gang_of_job, gangs_of
from muster.model.grouping import OwnerRule
from muster.model.kinds import Kind
from muster.model.manifests import Manifest
from muster.model.objects import Job, Meta, NativePodGroup, OwnerReference, Pod, PodGroup, ResourceClaimTemplate
from muster.model.workloads import CRONJOB, WORKLOADS, WorkloadKind, WorkloadObject
from muster.whatif.cluster_view import KINDS, PODGROUPS, ClusterObjects, with_objects
from muster.whatif.supposed_pods import of_template
from scheduler.controllers.manifests import estimate, of_native, podgroup
from scheduler.model.snapshot import GroupKey
from scheduler.state import conversion

Json = dict[str, Any]
Wanted = tuple[GroupKey, str]
"""A group that files bring, or bring something to, and what people call it; without an API group one that isn't there."""

_NATIVE: Final = (kinds.NATIVE_PODGROUPS.api_version, kinds.NATIVE_PODGROUPS.name)
_APART: Final = timedelta(milliseconds=1)
"""Objects of a file come one after the other; a cluster notes whole seconds, and draws lots within one."""
_MOST_PODS: Final = 5000
"""Pods of one gang that are supposed at most, unless its minimum is more."""
_STATES: Final[Mapping[Any, Kind[Any]]] = {(kind.api_version, kind.name): kind for kind in KINDS}
_KINDS: Final[Mapping[Any, WorkloadKind]] = {(each.kind.api_version, each.kind.name): each for each in WORKLOADS}


def with_stored(
    state: ClusterObjects,
    stored: Sequence[tuple[Manifest, Json]],
    ledgers: Iterable[Json],
    schedulers: Sequence[str],
    rules: Sequence[OwnerRule],
) -> tuple[ClusterObjects, list[Wanted]]:
    """Add what was stored and what controllers make of it; return the groups that may start by it, too."""
    after, made = _Made(state, schedulers, rules), (*PODGROUPS, kinds.JOBS, kinds.PODS)
    added: dict[Kind[Any], list[Any]] = defaultdict(list)
    for number, body in enumerate([*(body for _, body in stored), *ledgers]):
        kind = _STATES.get((body["apiVersion"], body["kind"]))
        if kind is not None:
            one = msgspec.convert(body, kind.struct)
            if kind in made and state.find(kind, one.name, one.namespace) is None:
                one = _created(one, state, number)
            added[kind].append(one)
    after.state = with_objects(state, added)
    wanted: list[Wanted] = []
    natives = [body for _, body in stored if (body["apiVersion"], body["kind"]) == _NATIVE]
    for number, body in enumerate(natives):
        wanted += after.take_native(msgspec.convert(body, NativePodGroup), number)
    for number, (manifest, body) in enumerate(stored):
        # A name that the server makes up is another one when the file is applied.
        called = manifest.name or manifest.body["metadata"]["generateName"]
        wanted += after.take(body, called, number)
    return after.state, list(dict.fromkeys(wanted))


def native(manifest: Manifest) -> Json | None:
    """Return a PodGroup of Kubernetes' own as it would be stored; None for any other object. No rule of Muster's is about it."""
    if (manifest.body.get("apiVersion"), manifest.body.get("kind")) != _NATIVE:
        return None
    meta = {**manifest.body["metadata"], "namespace": manifest.namespace, "uid": manifest.name}
    body: Json = {**manifest.body, "metadata": meta}
    return body


def _created(one: Any, state: ClusterObjects, number: int) -> Any:
    return replace(one, metadata=replace(one.metadata, creation_timestamp=state.taken + number * _APART))


class _Made:
    """A state that grows by what controllers make of one object after the other."""

    def __init__(self, state: ClusterObjects, schedulers: Sequence[str], rules: Sequence[OwnerRule]) -> None:
        self.state = state
        self._schedulers = schedulers
        self._rules = rules

    def take(self, body: Json, called: str, number: int) -> Iterator[Wanted]:
        """Make what controllers make of an object; return the groups that it brings, or brings something to."""
        kind = _STATES.get((body["apiVersion"], body["kind"]))
        workload = _KINDS.get((body["apiVersion"], body["kind"]))
        if workload is not None:
            one = _created(msgspec.convert(body, WorkloadObject), self.state, number)
            yield from self._of_workload(workload, one, called)
        elif kind in PODGROUPS:
            item = msgspec.convert(body, kind.struct)
            yield GroupKey(kind.group, item.namespace, item.name), f"PodGroup {item.namespace}/{called}"
        elif kind is kinds.JOBS or kind is kinds.PODS:
            named = msgspec.convert(body["metadata"], Meta)
            item = self.state.find(kind, named.name, named.namespace)
            assert item is not None, "it was stored"
            spec = item.spec.template.spec if isinstance(item, Job) else item.spec
            if spec.scheduler_name in self._schedulers:
                name = self._of_job(item) if isinstance(item, Job) else self._of_pod(item)
                native = grouping.native_group(spec.scheduling_group) if isinstance(item, Pod) else ""
                label = f"PodGroup {item.namespace}/{native}" if native else f"{kind.name} {item.namespace}/{called}"
                yield self._wanted(item.namespace, name, label)

    def take_native(self, native: NativePodGroup, number: int) -> Iterator[Wanted]:
        """Make the group that stands for one of Kubernetes' own, where pods name it that are ours."""
        pods = [each for each in self.state.of(kinds.PODS, native.namespace) if self._is_member(each, native.name)]
        if not pods or native_groups.not_evaluated(native):
            return
        made = _created(native, self.state, number)
        name = grouping.generated_name(native.metadata.uid)
        if not self._has_group(name, native.namespace):
            above, devices = self._namespace(native.namespace), self._devices(native.namespace)
            body = of_native(made, [each.spec for each in pods], above, devices)
            self._add_group(msgspec.convert(body, PodGroup), made.metadata)
        for pod in pods:
            annotations = {**(pod.metadata.annotations or {}), names.GROUP_NAME: name}
            self._add(kinds.PODS, replace(pod, metadata=replace(pod.metadata, annotations=annotations)))
        yield GroupKey(kinds.PODGROUPS.group, native.namespace, name), f"PodGroup {native.namespace}/{native.name}"

    def _is_member(self, pod: Pod, native: str) -> bool:
        ours = pod.spec.scheduler_name in self._schedulers and not grouping.group_of(pod.metadata)
        return ours and grouping.native_group(pod.spec.scheduling_group) == native

    def _wanted(self, namespace: str, name: str, label: str) -> Wanted:
        found = next((each for each in PODGROUPS if self.state.find(each, name, namespace) is not None), None)
        if found is None:
            return GroupKey("", namespace, name), label
        return GroupKey(found.group, namespace, name), (
            label if grouping.is_generated(name) else f"PodGroup {namespace}/{name}"
        )

    def _of_job(self, job: Job) -> str:
        name = conversion.group_of_job(job)
        if not grouping.group_of(job.spec.template.metadata) and not self._has_group(name, job.namespace):
            noted = native_groups.noted_of_job(job)
            self._generate(name, job.metadata, grouping.job_reference(job.metadata), gang_of_job(job), noted)
        return name

    def _of_pod(self, pod: Pod) -> str:
        if name := grouping.group_of(pod.metadata):
            return name
        if native := grouping.native_group(pod.spec.scheduling_group):
            return self._standing_for(native, pod)
        owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid)
        name = grouping.generated_name(owner.uid)
        annotations = {**(pod.metadata.annotations or {}), names.GROUP_NAME: name}
        self._add(kinds.PODS, replace(pod, metadata=replace(pod.metadata, annotations=annotations)))
        need = partial(estimate, [pod.spec], devices=self._devices(pod.namespace))
        body = podgroup(owner, [pod.metadata, *self._namespace(pod.namespace)], pod.spec, need)
        self._add_group(msgspec.convert(body, PodGroup), pod.metadata)
        return name

    def _standing_for(self, native: str, pod: Pod) -> str:
        """Have a pod join the group that stands for one of Kubernetes' own; return its name, or the other's where there is none."""
        title = f"{kinds.NATIVE_PODGROUPS.name} {native}"
        known = self.state.of(kinds.PODGROUPS, pod.namespace)
        name = next((each.name for each in known if grouping.owner_of(each.metadata) == title), "")
        if name:
            annotations = {**(pod.metadata.annotations or {}), names.GROUP_NAME: name}
            self._add(kinds.PODS, replace(pod, metadata=replace(pod.metadata, annotations=annotations)))
        return name or native

    def _of_workload(self, workload: WorkloadKind, one: WorkloadObject, called: str) -> Iterator[Wanted]:
        """Make the group of each gang that an object describes, and the pods that its controller makes at once."""
        title = f"{workload.kind.name} {one.namespace}/{called}"
        for number, gang in enumerate(gangs_of(workload, one, self._rules)):
            if not gang.tasks or gang.scheduler_names.isdisjoint(self._schedulers):
                continue
            uid = one.metadata.uid if gang.own else f"{one.metadata.uid}-{number}"
            owner = OwnerReference(
                api_version=workload.kind.api_version, kind=workload.kind.name, name=called, uid=uid, controller=True
            )
            name = gang.group() or grouping.generated_name(uid)
            if not gang.group() and not self._has_group(name, one.namespace):
                self._generate(name, one.metadata, owner, gang)
            self._make_pods(name, one.metadata, gang, owner)
            label = title if gang.own else f"{'one run' if workload is CRONJOB else 'a part'} of {title}"
            yield self._wanted(one.namespace, name, label)

    def _make_pods(self, name: str, made_for: Meta, gang: DescribedGang, owner: OwnerReference) -> None:
        key = GroupKey("", made_for.namespace, name)
        there = sum(grouping.group_of(each.metadata) == name for each in self.state.of(kinds.PODS, made_for.namespace))
        templates = [task.template for task in gang.tasks for _ in range(min(task.count, _MOST_PODS))]
        pods = [
            of_template(template, key, f"{made_for.name}-{name}-{number}", made_for, owner)
            for number, template in islice(enumerate(templates), there, _MOST_PODS)
        ]
        self.state = with_objects(self.state, {kinds.PODS: pods})

    def _generate(
        self,
        name: str,
        made_for: Meta,
        owner: OwnerReference,
        gang: DescribedGang,
        noted: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        metas = [*gang.metas, *self._namespace(made_for.namespace)]
        try:
            body = podgroup(owner, metas, gang.tasks[0].template.spec, annotations=noted)
            body["spec"]["minResources"] = gang.min_resources(
                *self._namespace(made_for.namespace),
                devices=self._devices(made_for.namespace),
            ).quantities()
        except QuantityError:
            return  # refused as it is
        self._add_group(msgspec.convert(body | {"metadata": body["metadata"] | {"name": name}}, PodGroup), made_for)

    def _add_group(self, group: PodGroup, made_for: Meta) -> None:
        meta = replace(
            group.metadata,
            namespace=made_for.namespace,
            uid=group.name,
            creation_timestamp=made_for.creation_timestamp,
        )
        self._add(kinds.PODGROUPS, replace(group, metadata=meta))

    def _add(self, kind: Kind[Any], item: Any) -> None:
        self.state = with_objects(self.state, {kind: [item]})

    def _has_group(self, name: str, namespace: str) -> bool:
        return any(self.state.find(kind, name, namespace) is not None for kind in PODGROUPS)

    def _devices(self, namespace: str) -> device_quota.DeviceNeed:
        def template(name: str) -> ResourceClaimTemplate | None:
            return self.state.find(kinds.RESOURCECLAIMTEMPLATES, name, namespace)

        return device_quota.need_by(template, lambda: device_classes.of(self.state.of(kinds.DEVICECLASSES)))

    def _namespace(self, name: str) -> list[Meta]:
        found = self.state.find(kinds.NAMESPACES, name)
        return [found.metadata] if found is not None else []
