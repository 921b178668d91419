"""Pods that a gang waits for and that do not exist: who creates them, and the changes that would help. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from muster.model import grouping, kinds, names
from muster.model.objects import Job, Meta, Pod, PodTemplate, Workload
from muster.model.text import counted
from muster.whatif import trials
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.supposed_pods import of_template
from muster.whatif.trials import Remedy
from scheduler.model.records import Record
from scheduler.model.snapshot import READY, GroupKey, JobInfo, TaskStatus
from scheduler.state import conversion

_COUNTED: Final = READY | {TaskStatus.PENDING}
_ORDERED: Final = "OrderedReady"


class Maker(Struct, frozen=True):
    """A workload that creates pods of a group: kind and name, how many it wants, and the template of each.

    ``ordered``: it creates the next pod once the one before it runs; ``metas`` are read for annotations, the nearest first.
    """

    kind: str
    name: str
    wanted: int
    template: PodTemplate
    ordered: bool = False
    metas: tuple[Meta, ...] = ()

    @property
    def title(self) -> str:
        """What people know it by."""
        return f"{self.kind} {self.name}"


def makers(cluster: WhatIfCluster, key: GroupKey) -> list[Maker]:
    """Return the Jobs, Deployments and StatefulSets that create a group's pods, as far as they are known."""
    state, group = cluster.state, cluster.group(key)
    owners = {each.uid for each in (group.metadata.owner_references or ())} if group is not None else set[str]()
    generated = grouping.is_generated(key.name)

    def stands_for(one: Job | Workload) -> bool:
        said = grouping.group_of(one.spec.template.metadata)
        return said == key.name if said else generated and one.metadata.uid in owners

    found = [
        Maker("Job", job.name, conversion.pods_wanted(job), job.spec.template, metas=_metas(job))
        for job in state.of(kinds.JOBS, key.namespace)
        if conversion.group_of_job(job) == key.name and not conversion.job_finished(job)
    ]
    for kind in (kinds.DEPLOYMENTS, kinds.STATEFULSETS):
        for one in state.of(kind, key.namespace):
            if stands_for(one):
                wanted = 1 if one.spec.replicas is None else one.spec.replicas
                ordered = kind is kinds.STATEFULSETS and (one.spec.pod_management_policy or _ORDERED) == _ORDERED
                found.append(Maker(kind.name, one.name, wanted, one.spec.template, ordered, _metas(one)))
    return found


def _metas(one: Job | Workload) -> tuple[Meta, ...]:
    return (one.spec.template.metadata, one.metadata)


def warnings(cluster: WhatIfCluster, key: GroupKey) -> tuple[str, ...]:
    """Say which annotations of a group's workloads, or of its pods where these aren't known, can't be meant as they are written."""
    known = [each.metas for each in makers(cluster, key)] or [(pod.metadata,) for pod in cluster.members(key)]
    return tuple(dict.fromkeys(text for metas in known for text in grouping.warnings(*metas)))


def counts(job: JobInfo) -> tuple[int, int]:
    """Return how many pods a group has that count, and how many it needs together."""
    return sum(count for status, count in job.counts.items() if status in _COUNTED), max(job.min_member, 1)


def sentence(cluster: WhatIfCluster, job: JobInfo, *, stuck: bool) -> str:
    """Say who creates the pods that are missing, and what to change where nobody does; empty where none is missing.

    ``stuck``: the group waits for them; else only what is sure to be in its way later is told.
    """
    (there, least), known = counts(job), makers(cluster, job.key)
    if there >= least or job.counts.get(TaskStatus.GATED) or job.inadmissible:
        return ""
    wanted = sum(each.wanted for each in known)
    ordered = next((each for each in known if each.ordered and each.wanted > there), None)
    if ordered is not None:
        return (
            f"{ordered.title} creates its pods one after the other (podManagementPolicy {_ORDERED}), each once the one"
            f" before it runs, and none runs before {least} exist: create it anew with podManagementPolicy Parallel"
        )
    if not stuck and (not known or wanted >= least):
        return ""
    if not known:
        owner = grouping.owner_of(group.metadata) if (group := cluster.group(job.key)) is not None else ""
        if owner:
            return f"{owner} creates {_those(there, least, '; ')}"
        more = counted(least - there, "more pod" if there else "pod")
        return (
            f"no Job, Deployment or StatefulSet creates them: create {more} with the annotation {names.GROUP_NAME}: {job.key.name}"
            + (f", or lower minMember to {there}" if there else "")
        )
    title = known[0].title if len(known) == 1 else f"its {len(known)} workloads"
    if wanted < least:
        return f"{title} {'wants' if len(known) == 1 else 'want'} {counted(wanted, 'pod')}, fewer than the minimum of {least}"
    return f"{title} {'creates' if len(known) == 1 else 'create'} {_those(there, least, ', and ')}: its events say why"


def _those(there: int, least: int, between: str) -> str:
    """Write ``them; none of 3 exist``."""
    if least == 1:
        return f"it{between}it does not exist"
    return f"them{between}{there or 'none'} of {least} {'exists' if there == 1 else 'exist'}"


def remedies(cluster: WhatIfCluster, job: JobInfo, record: Record) -> Iterator[Remedy]:
    """Try a smaller minimum, and the pods that are missing, each by itself."""
    there, least = counts(job)
    if there >= least or job.inadmissible or job.counts.get(TaskStatus.GATED):
        return
    tried = partial(trials.outcome, cluster, record)
    if there and not job.min_task_member:
        then = tried(partial(cluster.restate, job.key, min_member=there))
        if then is not None:
            text = f"a minMember of {there}, instead of {least}{then}"
            yield Remedy(text, {"kind": "minMember", "minMember": there, "enough": not then})
    pods = _missing(cluster, job, least - there)
    then = tried(partial(cluster.pods, pods)) if pods else None
    if then is not None:
        text = f"{_asked(makers(cluster, job.key), least - there, least)}{then}"
        yield Remedy(text, {"kind": "pods", "count": least - there, "enough": not then})


def _asked(known: list[Maker], more: int, least: int) -> str:
    if len(known) != 1:
        return counted(more, "more pod")
    (maker,) = known
    if maker.ordered and maker.wanted >= least:
        return f"podManagementPolicy Parallel for {maker.title}, created anew: then it creates {counted(more, 'more pod')} at once"
    if maker.wanted >= least:
        return f"{counted(more, 'more pod')} of {maker.title}, which wants {maker.wanted}"
    if maker.kind == "Job":
        return f"a parallelism (and completions) of {least} for {maker.title}, instead of {maker.wanted}"
    command = f"kubectl scale {maker.kind.lower()} {maker.name} --replicas={least}"
    return f"{least} replicas of {maker.title}, instead of {maker.wanted}: `{command}`"


def _missing(cluster: WhatIfCluster, job: JobInfo, count: int) -> list[Pod]:
    """Return pods as whoever creates them would make them; like one that is there where nobody is known."""
    like = next((each for each in cluster.members(job.key) if each.status.phase == "Pending"), None)
    known = makers(cluster, job.key)
    template = known[0].template if known else None
    if template is None and like is not None:
        template = PodTemplate(metadata=like.metadata, spec=replace(like.spec, node_name=""))
    if template is None:
        return []
    group = cluster.group(job.key)
    assert group is not None, f"{job.key} is known"
    return [of_template(template, job.key, f"zz.{number}.{job.key.name}", group.metadata) for number in range(count)]


def data(cluster: WhatIfCluster, key: GroupKey) -> list[dict[str, Any]]:
    """Write who creates the pods, for programs."""
    return [{"kind": each.kind, "name": each.name, "pods": each.wanted} for each in makers(cluster, key)]
