"""Pods that do not exist yet, as the controller of their workload would make them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from muster.model import grouping, kinds, names, native_groups
from muster.model.objects import Job, Meta, Object, OwnerReference, Pod, PodStatus, PodTemplate
from muster.whatif.cluster_view import ClusterObjects
from scheduler.model.plan import Bind
from scheduler.model.snapshot import GroupKey
from scheduler.state import conversion


def awaiting_claims(state: ClusterObjects) -> frozenset[str]:
    """Return the uids of pods, and of PodGroups of Kubernetes' own, that are there: their claims are made, or about to be."""

    def there(item: Object) -> bool:
        created = item.metadata.creation_timestamp
        return created is not None and created < state.taken

    pods = {pod.metadata.uid for pod in state.of(kinds.PODS) if pod.spec.resource_claims and there(pod)}
    makers = {native_groups.claiming(group.metadata)[1] for group in state.of(kinds.PODGROUPS) if there(group)}
    return frozenset(pods | makers)


def as_placed(pod: Pod, bind: Bind | None) -> Pod:
    """Return a pod as it is once it was bound; as it was without a node for it."""
    if bind is None:
        return pod
    return replace(pod, spec=replace(pod.spec, node_name=bind.node), status=replace(pod.status, phase="Running"))


def missing_of_job(job: Job, there: Iterable[Pod]) -> list[Pod]:
    """Return the pods that a Job has yet to make beside those that are there."""
    controllers = (pod.metadata.controller() for pod in there)
    count = sum(each is not None and each.uid == job.metadata.uid for each in controllers)
    return [_of_job(job, number) for number in range(count, conversion.pods_wanted(job))]


def _of_job(job: Job, number: int) -> Pod:
    key = GroupKey("", job.namespace, conversion.group_of_job(job))
    return of_template(
        job.spec.template, key, f"{job.name}-{number}", job.metadata, grouping.job_reference(job.metadata)
    )


def of_template(
    template: PodTemplate, key: GroupKey, name: str, made_for: Meta, owner: OwnerReference | None = None
) -> Pod:
    """Return a pod of a group, made by a template; ``made_for`` is whose uid and age it has."""
    annotations = {**(template.metadata.annotations or {}), names.GROUP_NAME: key.name}
    meta = Meta(
        name=name,
        namespace=key.namespace,
        uid=f"{made_for.uid}-{name.removeprefix(f'{made_for.name}-')}",
        labels=template.metadata.labels,
        annotations=annotations,
        owner_references=(owner,) if owner is not None else None,
        creation_timestamp=made_for.creation_timestamp,
    )
    return Pod(metadata=meta, spec=template.spec, status=PodStatus(phase="Pending"))
