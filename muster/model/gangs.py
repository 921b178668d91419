"""The gangs that an object describes before any of its pods exists: their queue, minimum, templates and need.

Admission judges a workload by this when it is applied, and the PodGroup controller makes its group from it: what is
reserved is what the group holds later. Which object a group stands for is for the owner rules (`muster.model.grouping`):
the pods of a Deployment are one gang, those of a CronJob one for each Job. Annotations are read along the path from the
pods' template to the object's metadata, nearest first, as the rules read those of owners; the namespace comes last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.model import grouping, names, native_groups, scopes
from muster.model.amounts import Resources
from muster.model.device_quota import NO_DEVICES, DeviceNeed
from muster.model.grouping import OwnerRule
from muster.model.kinds import Kind
from muster.model.objects import Job, Json, Meta, OwnerReference, PodSpec, PodTemplate
from muster.model.requests import pod_request
from muster.model.workloads import Steps, WorkloadKind, WorkloadObject, at_once

_MAX_INT32: Final = 2**31 - 1
_METADATA: Final = "metadata"


class TaskTemplate(Struct, frozen=True):
    """Pods alike: ``count`` of them at once, of a template that stands at ``path`` of its object."""

    path: str
    template: PodTemplate
    count: int = 1


class DescribedGang(Struct, frozen=True):
    """The pods that one generated group is for.

    Attributes:
        metas: of the templates, of what stands between, and of the object; the nearest to the pods first.
        paths: where the object has each of them.
        tasks: the pods, as far as the object has their templates; in the order in which a controller creates them.
        owner: kind of what the group stands for.
        own: whether that is the object itself; else each child of that kind, as each Job of a CronJob, has a group.
        shared: the ResourceClaims that its pods share.
    """

    metas: tuple[Meta, ...]
    paths: tuple[str, ...] = ()
    tasks: tuple[TaskTemplate, ...] = ()
    owner: str = ""
    own: bool = True
    shared: tuple[dict[str, Json], ...] = ()

    @property
    def at_once(self) -> int:
        """How many pods the object lets exist at one time."""
        return sum(each.count for each in self.tasks)

    @property
    def scheduler_names(self) -> frozenset[str]:
        """The schedulerNames of its templates; empty text where one has none."""
        return frozenset(each.template.spec.scheduler_name for each in self.tasks)

    @property
    def scope_facts(self) -> str:
        """What decides in which scopes of quotas its pods are; those of the first template, empty where there is none."""
        return scopes.scope_facts(self.tasks[0].template.spec) if self.tasks else ""

    def group(self) -> str:
        """Name the group that its pods' templates name; empty where they name none."""
        return next(filter(None, (grouping.group_of(each.template.metadata) for each in self.tasks)), "")

    def in_native_group(self) -> bool:
        """Whether its pods' templates name a group of Kubernetes' own, whose pods join another group of Muster's."""
        return any(grouping.native_group(each.template.spec.scheduling_group) for each in self.tasks)

    def names_queue(self) -> bool:
        """Whether the object or its templates name a queue; else the namespace decides."""
        return any(meta.annotation(*names.QUEUE_NAME_KEYS) for meta in self.metas)

    def queue(self, *above: Meta | None) -> str:
        """Return the queue of its group; ``above``: the metadata of owners and the namespace."""
        return grouping.queue_name(*self.metas, *above)

    def min_member(self, *above: Meta | None) -> int:
        """Return minMember of its group."""
        return grouping.min_member(*self.metas, *above)[0]

    def min_resources(self, *above: Meta | None, devices: DeviceNeed = NO_DEVICES) -> Resources:
        """Return minResources of its group: what an annotation says, else what its first pods request.

        ``devices``: as in `need`.

        Raises:
            QuantityError: a request can't be read; an API server stores no such pod.
        """
        stated, _ = grouping.min_resources(*self.metas, *above)
        return stated if stated is not None else self.need(self.min_member(*above), devices)

    def need(self, pods: int, devices: DeviceNeed = NO_DEVICES) -> Resources:
        """Return what the first ``pods`` of it request; those that it has no template for are like the last one's.

        ``devices``: gives what a pod's claims on devices take of quotas.

        Raises:
            QuantityError: a request can't be read.
        """
        tasks = [each for each in self.tasks if each.count > 0] or list(self.tasks[:1])
        total = devices(PodSpec(resource_claims=self.shared))
        for number, task in enumerate(tasks, 1):
            some = pods if number == len(tasks) else min(task.count, pods)
            if some:
                spec = task.template.spec
                total += (pod_request(spec) + devices(native_groups.without_shared(self.shared, spec))) * some
            pods -= some
        return total

    def warnings(self) -> list[str]:
        """Say which annotations can't be meant as they are written."""
        return list(grouping.warnings(*self.metas))


def gangs_of(workload: WorkloadKind, one: WorkloadObject, rules: Sequence[OwnerRule]) -> tuple[DescribedGang, ...]:
    """Return the gangs that an object describes; none where by the rules each pod, or an owner above, has the group.

    Raises:
        msgspec.ValidationError: a field that is read has another type; the API server says best what is wrong.
    """
    if not workload.templates:
        owner = _owner(workload.below, one.metadata, workload.kind, rules)
        own = owner == workload.kind.name
        return (DescribedGang((one.metadata,), (_METADATA,), owner=owner, own=own),) if owner else ()
    found = [*_gangs(workload, one, rules)]
    mine = [each for each in found if each.own]
    return (*([_joined(mine)] if mine else []), *(each for each in found if not each.own))


def named_schedulers(workload: WorkloadKind, one: WorkloadObject) -> frozenset[str]:
    """Return the schedulers that an object names beside its templates."""
    places = (path.split(".") for path in workload.scheduler_names)
    found = (steps[-1][1] for keys in places for steps in _walk([("", {"spec": one.spec})], keys))
    return frozenset(name for name in found if isinstance(name, str))


def gang_of_job(job: Job) -> DescribedGang:
    """Return the gang that a Job's pods are."""
    count = at_once(job.spec.parallelism, job.spec.completions)
    tasks = (TaskTemplate("spec.template", job.spec.template, count),)
    paths = ("spec.template.metadata", _METADATA)
    metas, shared = (job.spec.template.metadata, job.metadata), native_groups.shared_by_job(job)
    return DescribedGang(metas, paths, tasks, grouping.JOB.kind, shared=shared)


def _joined(parts: Sequence[DescribedGang]) -> DescribedGang:
    """Join gangs of the same object; of their metadata the nearest to the pods come first."""
    depth = max(len(each.metas) for each in parts)
    places = [(each, level) for level in range(depth) for each in parts if level < len(each.metas) - 1]
    places.append((parts[0], -1))
    metas, paths = ([each.metas[level] for each, level in places], [each.paths[level] for each, level in places])
    tasks = tuple(task for each in parts for task in each.tasks)
    return DescribedGang(tuple(metas), tuple(paths), tasks, parts[0].owner)


def _gangs(workload: WorkloadKind, one: WorkloadObject, rules: Sequence[OwnerRule]) -> Iterator[DescribedGang]:
    """Return a gang for each template that the object has."""
    for where in workload.templates:
        owner = _owner(where.below, one.metadata, workload.kind, rules)
        own = owner == workload.kind.name
        if not owner:
            continue
        for steps in _walk([("", {"spec": one.spec})], where.path.split(".")):
            path, value = steps[-1]
            template = where.read(value)
            between = [(f"{place}.{_METADATA}", step) for place, step in steps[:0:-1][1:] if _has_meta(step)]
            metas = (template.metadata, *(msgspec.convert(step[_METADATA], Meta) for _, step in between), one.metadata)
            paths = (f"{path}.{_METADATA}", *(place for place, _ in between), _METADATA)
            count = where.count(steps) * (where.copies(steps) if own else 1)
            task = TaskTemplate(path, template, min(max(count, 0), _MAX_INT32))
            yield DescribedGang(metas, paths, (task,), owner, own)


def _has_meta(step: Json) -> bool:
    return isinstance(step, dict) and isinstance(step.get(_METADATA), dict)


def _owner(below: Sequence[tuple[str, str]], meta: Meta, kind: Kind[Any], rules: Sequence[OwnerRule]) -> str:
    """Return the kind of what the group of such pods stands for; empty where that is each pod, or something above."""
    chain = [OwnerReference(api_version=version, kind=name) for version, name in below]
    chain.append(OwnerReference(api_version=kind.api_version, kind=kind.name))
    for place, owner in enumerate(chain):
        if rule := grouping.matching_rule(owner, rules):
            chosen = place + rule.level
            if chosen < 0 or (chosen >= len(chain) and meta.controller() is not None):
                return ""
            return chain[min(chosen, len(chain) - 1)].kind
    return kind.name if meta.controller() is None else ""


def _walk(steps: Steps, keys: Sequence[str]) -> Iterator[Steps]:
    """Return each way from the last of ``steps`` along the keys, as far as the object has it."""
    if not keys:
        yield steps
        return
    path, value = steps[-1]
    key = keys[0].rstrip("[]{}")
    found = value.get(key) if isinstance(value, dict) else None
    here = f"{path}.{key}".lstrip(".")
    if keys[0].endswith("[]"):
        entries: Iterable[tuple[Any, Json]] = enumerate(found) if isinstance(found, list) else ()
    elif keys[0].endswith("{}"):
        entries = found.items() if isinstance(found, dict) else ()
    else:
        if found is not None:
            yield from _walk([*steps, (here, found)], keys[1:])
        return
    for place, entry in entries:
        yield from _walk([*steps, (f"{here}[{place}]", entry)], keys[1:])
