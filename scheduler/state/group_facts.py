"""Facts of a group from its pods, Jobs and quotas: whether it is over or inadmissible, and what it is to hold. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice, repeat

from muster.ledger.conversion import limits_of, readable
from muster.ledger.reservations import limited, taken_by_spec, waits_for_quota
from muster.model import native_groups, scopes
from muster.model.amounts import QuantityError, Resources
from muster.model.device_quota import DeviceNeed
from muster.model.objects import Job, PodGroup, PodSpec, PriorityClass, ResourceQuota
from scheduler.model.claims import DeviceCache
from scheduler.model.holding import Holding
from scheduler.model.snapshot import OCCUPYING, ExpectedPods, JobInfo, Phase, TaskStatus
from scheduler.state import conversion
from scheduler.state.members import IndexedPod
from scheduler.state.task_classes import TaskClasses

_ALIVE = OCCUPYING | {TaskStatus.PENDING, TaskStatus.GATED}
"""Neither ended nor being deleted."""


def stated_minimum(group: PodGroup) -> tuple[Resources | None, str]:
    """Return what a group states to need; or None, and what is wrong with it where that can't be read."""
    try:
        return conversion.min_resources(group), ""
    except QuantityError as error:
        return None, f"spec.minResources: {error}; correct it"


class LimitedNames:
    """What the ResourceQuotas of each namespace limit, as `reservations.limited` writes it, without scopes."""

    def __init__(self) -> None:
        self._quotas: dict[str, dict[str, frozenset[str]]] = {}

    def learn(self, quota: ResourceQuota, *, gone: bool) -> bool:
        """Take in a quota; tell whether it limits something else than before."""
        before = self.of(quota.namespace)
        known = self._quotas.setdefault(quota.namespace, {})
        if gone:
            known.pop(quota.name, None)
        else:
            known[quota.name] = frozenset(scopes.split_name(limited(name))[0] for name in limits_of(quota))
        if not known:
            del self._quotas[quota.namespace]
        return self.of(quota.namespace) != before

    def of(self, namespace: str) -> frozenset[str]:
        """Return the names that some quota of a namespace limits."""
        return frozenset().union(*self._quotas.get(namespace, {}).values())


def inadmissible(batch: Collection[Job]) -> str:
    """Return why a group must not be admitted: a user suspended its Job. Empty where nobody did."""
    mine = next((job for job in batch if conversion.suspended_by_user(job)), None)
    if mine is None:
        return ""
    return f"Job {mine.name} is suspended by its user; set its spec.suspend to false to let it start"


def expected_pods(
    batch: Iterable[Job], alive: Mapping[str, int], classes: TaskClasses, priorities: Mapping[str, PriorityClass]
) -> Iterator[ExpectedPods]:
    """Return the pods that Jobs have yet to make; ``alive``: how many each has, by its uid."""
    for job in batch:
        missing = conversion.pods_wanted(job) - alive.get(job.metadata.uid, 0)
        if missing > 0:
            template = job.spec.template
            kind = classes.of_pod(template.metadata, template.spec)
            yield conversion.expected_pods(job, kind, missing, priorities)


def over(batch: Collection[Job], members: Iterable[IndexedPod]) -> bool:
    """Whether nothing of a group runs or will run again."""
    statuses = [member.task.status for member in members]
    if batch:
        return all(map(conversion.job_finished, batch)) and _ALIVE.isdisjoint(statuses)
    if not statuses or any(status not in conversion.ENDED for status in statuses):
        return False
    return not any(conversion.replaced(member.pod) for member in members)


def next_holding(
    group: PodGroup,
    batch: Collection[Job],
    members: Collection[IndexedPod],
    names: Collection[str],
    devices: DeviceCache,
) -> Holding | None:
    """Return what a group's status has to say before it may go on; None where it says so.

    A Completed group is started again by a live pod or an unfinished Job: of its minimum those that succeeded are there.
    Another one whose minimum nobody stated holds what its pods take, as soon as these are known. ``names``: what quotas
    limit in its namespace; ``devices``: knows the templates of claims.
    """
    phase, status = conversion.phase_of(group), group.status
    statuses = {member.task.status for member in members}
    if phase is Phase.COMPLETED:
        if _ALIVE.isdisjoint(statuses) and not any(map(conversion.will_run, batch)):
            return None
        return Holding(_succeeded(batch, members), _minimum(group, batch, members, names, devices))
    if phase not in {Phase.PENDING, Phase.INQUEUE} or not OCCUPYING.isdisjoint(statuses):
        return None
    minimum, noted = _minimum(group, batch, members, names, devices), readable(status.min_resources)
    # With pods there, those that come and go would make it change all the time: then it only grows.
    if minimum is None or (minimum == noted if not members else not (minimum - noted).positive()):
        return None
    return Holding(status.succeeded_before, minimum)


def holds_the_same(job: JobInfo, old: PodGroup, new: PodGroup) -> bool:
    """Whether a group's new status is no reason to ask anew what it is to hold."""
    phases = {conversion.phase_of(old), conversion.phase_of(new)}
    return (
        job.next_holding is None
        and (len(phases) == 1 or Phase.COMPLETED not in phases)
        and conversion.holding(old.status) == conversion.holding(new.status)
    )


def _succeeded(batch: Collection[Job], members: Iterable[IndexedPod]) -> int:
    """Count the pods that succeeded and stay; those of a Job that is gone follow it."""
    jobs = {job.metadata.uid for job in batch}
    return sum(
        conversion.stays_succeeded(pod) and ((of_job := conversion.job_uid(pod)) == "" or of_job in jobs)
        for pod, _, _ in members
    )


def _minimum(
    group: PodGroup,
    batch: Collection[Job],
    members: Iterable[IndexedPod],
    names: Collection[str],
    devices: DeviceCache,
) -> Resources | None:
    """Return what minMember of a group's pods take of quotas; None where its spec says it, or no quota would limit it."""
    member = group.spec.min_member
    if group.spec.min_resources is not None or waits_for_quota(group) is not None or member <= 0 or not names:
        return None
    need, shared = devices.need(group.namespace), native_groups.claims_of(group.metadata)

    def alone(spec: PodSpec) -> Resources:
        return need(native_groups.without_shared(shared, spec))

    taken = [amounts for amounts in islice(_taken(batch, members, alone), member) if amounts is not None]
    if not taken:
        return None
    # Pods that nobody has seen yet are taken to be like the last one.
    whole = sum(taken, taken[-1] * (member - len(taken))) + need(PodSpec(resource_claims=shared))
    return whole if any(name in whole for name in names) else None


def _taken(batch: Iterable[Job], members: Iterable[IndexedPod], devices: DeviceNeed) -> Iterator[Resources | None]:
    """Return what each pod of a group takes: those that are there by age, then those that Jobs have yet to make."""
    alive = [member for member in members if member.task.status in _ALIVE]
    specs = [pod.spec for pod, _, _ in sorted(alive, key=lambda member: (member.task.created, member.task.name))]
    yield from (_amounts(spec, devices) for spec in specs)
    there = Counter(member.task.controller for member in alive)
    for job in batch:
        missing = conversion.pods_wanted(job) - there[job.metadata.uid]
        yield from repeat(_amounts(job.spec.template.spec, devices), max(missing, 0))


def _amounts(spec: PodSpec, devices: DeviceNeed) -> Resources | None:
    with suppress(QuantityError):
        return taken_by_spec(spec) + devices(spec)
    return None  # an API server stores no such pod
