"""The subject of a question: a PodGroup, a pod or a workload, and the PodGroup that stands for it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from muster.model import grouping, kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Job, OwnerReference, Pod, Workload
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects
from scheduler.model.snapshot import GroupKey
from scheduler.state import conversion

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_WORKLOADS: Final[tuple[Kind[Any], ...]] = (kinds.JOBS, kinds.DEPLOYMENTS, kinds.STATEFULSETS)
_ALIASES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("pg", "podgroups", "podgroup.scheduling.volcano.sh", "podgroups.scheduling.volcano.sh"), "podgroup"
    ),
    **dict.fromkeys(("po", "pods"), "pod"),
    **dict.fromkeys(("jobs", "job.batch", "jobs.batch"), "job"),
    **dict.fromkeys(("deploy", "deployments", "deployment.apps", "deployments.apps"), "deployment"),
    **dict.fromkeys(("sts", "statefulsets", "statefulset.apps", "statefulsets.apps"), "statefulset"),
    **dict.fromkeys(("cj", "cronjobs", "cronjob.batch", "cronjobs.batch"), "cronjob"),
}


class Subject(Struct, frozen=True):
    """What was named, and the PodGroup that stands for it.

    Attributes:
        title: kind, namespace and name.
        key: the PodGroup; None where there is none.
        pod: the pod that was named, if it was one.
        remark: why there is no question to ask of a PodGroup, a sentence; empty where there is one.
    """

    title: str
    key: GroupKey | None = None
    pod: Pod | None = None
    remark: str = ""


def find(state: ClusterObjects, namespace: str, name: str, schedulers: Collection[str]) -> Subject | None:
    """Return what is called ``name``, or ``kind/name`` as kubectl has it; None where nothing is."""
    written, _, called = name.rpartition("/")
    kind = _ALIASES.get(written.lower(), written.lower())
    # What no API server has defaulted, as in a file, has no scheduler's name and counts as Muster's.
    return next(_candidates(state, namespace, kind, called, {*schedulers, ""}), None)


def _candidates(
    state: ClusterObjects, namespace: str, kind: str, name: str, schedulers: Collection[str]
) -> Iterator[Subject]:
    if kind in {"", "podgroup"} and (key := _group(state, namespace, name)) is not None:
        yield Subject(f"PodGroup {namespace}/{name}", key)
    yield from _generated_for(state, namespace, kind, name)
    for each in _WORKLOADS:
        found: Job | Workload | None = state.find(each, name, namespace) if kind in {"", each.name.lower()} else None
        if found is not None:
            yield _of_workload(state, each.name, found, schedulers)
    pod = state.find(kinds.PODS, name, namespace) if kind in {"", "pod"} else None
    if pod is not None:
        yield _of_pod(state, pod, schedulers)
    yield from _owning(state, namespace, kind, name, schedulers)


def _group(state: ClusterObjects, namespace: str, name: str) -> GroupKey | None:
    found = (kind for kind in PODGROUPS if state.find(kind, name, namespace) is not None)
    return next((GroupKey(kind.group, namespace, name) for kind in found), None)


def _generated_for(state: ClusterObjects, namespace: str, kind: str, name: str) -> Iterator[Subject]:
    """Return the group that Muster made for a workload of that name, of whichever kind."""
    for each in state.of(kinds.PODGROUPS, namespace):
        for owner in each.metadata.owner_references or () if grouping.is_generated(each.name) else ():
            if _is_called(owner, kind, name):
                yield Subject(f"{owner.kind} {namespace}/{name}", GroupKey(kinds.PODGROUPS.group, namespace, each.name))


def _is_called(owner: OwnerReference, kind: str, name: str) -> bool:
    """Whether a reference is to an object of this name and kind; kubectl takes a kind's plural, and its API group, too."""
    written = kind.partition(".")[0]
    return owner.name == name and (not kind or written in {owner.kind.lower(), f"{owner.kind.lower()}s"})


def _owning(
    state: ClusterObjects, namespace: str, kind: str, name: str, schedulers: Collection[str]
) -> Iterator[Subject]:
    """Return what is known of a CronJob, or of an operator's object, by the Jobs and pods that it owns: the group of one that waits."""
    jobs = [
        (owner, each) for each in state.of(kinds.JOBS, namespace) if (owner := _owner(each, kind, name)) is not None
    ]
    runs = [(owner, each) for owner, each in jobs if not conversion.job_finished(each)]
    for owner, job in runs:
        found = _of_workload(state, "Job", job, schedulers)
        if found.key is not None or len(runs) == 1:
            yield replace(found, title=f"{owner.kind} {namespace}/{name}")
    if jobs and not runs:
        yield Subject(
            f"{jobs[0][0].kind} {namespace}/{name}", remark="none of its Jobs is unfinished, so it has no run now"
        )
    pods = [
        (owner, each) for each in state.of(kinds.PODS, namespace) if (owner := _owner(each, kind, name)) is not None
    ]
    for owner, pod in sorted(pods, key=lambda each: bool(each[1].spec.node_name)):
        yield replace(_of_pod(state, pod, schedulers), title=f"{owner.kind} {namespace}/{name}", pod=None)


def _owner(one: Job | Pod, kind: str, name: str) -> OwnerReference | None:
    return next((each for each in one.metadata.owner_references or () if _is_called(each, kind, name)), None)


def _of_workload(state: ClusterObjects, kind: str, one: Job | Workload, schedulers: Collection[str]) -> Subject:
    title, template = f"{kind} {one.namespace}/{one.name}", one.spec.template
    said = grouping.group_of(template.metadata) or (conversion.group_of_job(one) if isinstance(one, Job) else "")
    name = said or grouping.generated_name(one.metadata.uid)
    if template.spec.scheduler_name not in schedulers:
        return Subject(
            title, remark=_others(template.spec.scheduler_name, "spec.template.spec.schedulerName", schedulers)
        )
    if isinstance(one, Job) and conversion.job_finished(one):
        return Subject(title, remark="it is finished")
    if native := grouping.native_group(template.spec.scheduling_group):
        return _in_native_group(state, one.namespace, native, title)
    key = _group(state, one.namespace, name)
    if key is not None:
        return Subject(title, key)
    if grouping.group_of(template.metadata):
        return Subject(title, remark=_missing(name))
    if isinstance(one, Workload) and one.spec.replicas == 0:
        return Subject(title, remark="it is scaled to 0, so it has no pods and no PodGroup")
    return Subject(title, remark="it has no PodGroup yet: Muster creates it with its first pod at the latest")


def _of_pod(state: ClusterObjects, pod: Pod, schedulers: Collection[str]) -> Subject:
    title = f"Pod {pod.namespace}/{pod.name}"
    if pod.status.phase in _ENDED:
        return Subject(title, pod=pod, remark=f"it is {pod.status.phase}")
    if pod.spec.node_name:
        return Subject(title, pod=pod, remark=f"it is {pod.status.phase or 'Pending'} on node {pod.spec.node_name}")
    if pod.metadata.deletion_timestamp is not None:
        return Subject(title, pod=pod, remark="it is being deleted")
    if pod.spec.scheduler_name not in schedulers:
        return Subject(title, pod=pod, remark=_others(pod.spec.scheduler_name, "spec.schedulerName", schedulers))
    name = grouping.group_of(pod.metadata)
    if not name and (native := grouping.native_group(pod.spec.scheduling_group)):
        return replace(_in_native_group(state, pod.namespace, native, title), pod=pod)
    if not name:
        return Subject(title, pod=pod, remark="it has no PodGroup yet: Muster creates one for it or for its owner")
    key = _group(state, pod.namespace, name)
    return Subject(title, key, pod) if key is not None else Subject(title, pod=pod, remark=_missing(name))


def _in_native_group(state: ClusterObjects, namespace: str, native: str, title: str) -> Subject:
    """Return the group that stands for a PodGroup of Kubernetes' own, of what ``title`` names."""
    found = next(_generated_for(state, namespace, "podgroup", native), None)
    if found is not None:
        return replace(found, title=title)
    named = f"PodGroup {native} of {names.KUBERNETES_GROUP} (spec.schedulingGroup)"
    return Subject(title, remark=f"it names {named}, which Muster takes up once it exists and has pods")


def _missing(name: str) -> str:
    return f"it names PodGroup {name} (annotation {names.GROUP_NAME}), which does not exist: create that, or remove the annotation"


def _others(scheduler: str, field: str, schedulers: Collection[str]) -> str:
    ours = names.SCHEDULER_NAME if names.SCHEDULER_NAME in schedulers else min(filter(None, schedulers))
    return f"Muster does not schedule it: {field} is {scheduler}; to have Muster schedule it, set {ours} there"
