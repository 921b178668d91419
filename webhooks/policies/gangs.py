"""The rules of gangs: of every object that describes one, whatever its kind, and in the same words.

What holds a gang up for good is a problem; what may change (somebody scales it, nodes come) is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.ledger import reservations
from muster.ledger.reservations import (
    JOB,
    ReservationRequest,
    foreseen_minimum,
    holding,
    taken_by_spec,
)
from muster.model import device_classes, device_quota, grouping, keys, kinds, names, native_groups, tenant_texts
from muster.model.amounts import QuantityError, Resources
from muster.model.gangs import DescribedGang
from muster.model.objects import Meta, PodSpec, ResourceClaimTemplate
from webhooks.policies import common, network
from webhooks.policies.common import QueueRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import Problem
from webhooks.view import AdmissionView, groups_named

_MINIMUM: Final = f"annotation {names.GROUP_MIN_MEMBER}"
_WAITING: Final = frozenset({"", "Pending"})
"""Phases of a group of which nothing has started."""
NOT_STARTED: Final = _WAITING | {"Inqueue"}
"""Those, and that of a group that was admitted before anybody knew what it needs."""


class Place(Struct, frozen=True):
    """Where a gang's pods will wait: an existing group's queue, or the queue of the group to come.

    ``where``: what names the queue. Without a queue nobody knows it yet.
    """

    group: str = ""
    queue: str = ""
    where: str = ""


class Minimum(Struct, frozen=True):
    """minMember and minResources of the group to come; ``problems`` where a request can't be read."""

    member: int
    resources: Resources
    problems: tuple[Problem, ...] = ()


class GangSubject(Struct, frozen=True):
    """An object of ``noun``'s kind that describes a gang; ``title`` is what sentences call it, as ``CronJob nightly``."""

    gang: DescribedGang
    noun: str
    title: str
    namespace: str


class GangHints(Struct, frozen=True):
    """What an object says to Muster, of which some may have no effect.

    Attributes:
        metas: of itself and of its templates, the nearest to the pods first.
        paths: where it has each of them.
        schedulers: those of its pods; none where it has no templates.
        gang: whether pods are made from it.
    """

    metas: tuple[Meta, ...]
    paths: tuple[str, ...] = ("metadata",)
    schedulers: frozenset[str] = frozenset()
    gang: bool = False

    @property
    def says_gang(self) -> bool:
        """Whether it says that its pods start together, or wait in a queue."""
        return any(map(common.is_gang, self.metas))

    @property
    def unscheduled(self) -> bool:
        """Whether it is a gang whose pods are left to the default scheduler."""
        return bool(self.schedulers) and all(map(common.is_nobodys, self.schedulers)) and self.says_gang

    def warnings(self, before: GangHints | None, settings: WebhookSettings, *, ours: bool = False) -> Iterator[str]:
        """Say what is new and has no effect; ``ours``: Muster reads such objects, whoever schedules its pods."""
        ours = ours or (self.gang and (any(map(settings.ours, self.schedulers)) or self.says_gang))
        known = dict(zip(before.paths, before.metas, strict=True)) if before is not None else {}
        for path, meta in zip(self.paths, self.metas, strict=True):
            yield from keys.warnings(meta, known.get(path), ours=ours)
        if not self.gang:
            return
        for read in grouping.READERS:
            _, warning = read(*self.metas)
            if warning and (before is None or read(*before.metas)[1] != warning):
                yield warning
        if self.unscheduled:
            yield common.no_effect(settings.scheduler_names[0])


def hints_of(gang: DescribedGang) -> GangHints:
    """Return what a gang's object says of it."""
    return GangHints(gang.metas, gang.paths, gang.scheduler_names, gang=True)


def place(subject: GangSubject, view: AdmissionView) -> Place:
    """Return where a gang will wait."""
    gang = subject.gang
    if group := gang.group():
        found = next(iter(groups_named(view, subject.namespace, group).values()), None)
        queue = found.spec.queue or names.DEFAULT_QUEUE if found is not None else ""
        return Place(group, queue, f'of PodGroup "{group}"')
    namespace = _namespace(subject, view)
    annotated = gang.names_queue() or (namespace is not None and namespace.annotation(*names.QUEUE_NAME_KEYS))
    where = f"annotation {names.QUEUE_NAME_KEYS[0]}" if annotated else "where no annotation names another"
    return Place("", gang.queue(namespace), where)


def queue_problems(subject: GangSubject, where: Place, view: AdmissionView) -> list[Problem]:
    """Say why the queue can't take the gang."""
    if not where.queue:
        return []
    return common.queue_problems(view, QueueRequest(where.queue, subject.namespace, where.where, subject.noun))


def group_warnings(subject: GangSubject, where: Place, view: AdmissionView) -> list[str]:
    """Say that nobody made the group that the pods name."""
    if not where.group or groups_named(view, subject.namespace, where.group):
        return []
    return [f'PodGroup "{where.group}" does not exist yet; the pods wait until it does']


def as_scaled(before: DescribedGang, after: DescribedGang) -> DescribedGang:
    """Return a gang as it was, with the pods that it has now: who scales one of its templates makes no gang larger."""
    counts = {each.path: each.count for each in after.tasks}
    return replace(before, tasks=tuple(replace(each, count=counts.get(each.path, 0)) for each in before.tasks))


def annotation_problems(gang: DescribedGang) -> list[Problem]:
    """Say which annotations can't be read as what they are for."""
    placed = zip(gang.paths, gang.metas, strict=True)
    return [problem for path, meta in placed for problem in common.problems_at(path, meta)]


def minimum(subject: GangSubject, view: AdmissionView) -> Minimum:
    """Return what the group of a gang will be of."""
    above = _namespace(subject, view)
    member = subject.gang.min_member(above)
    try:
        return Minimum(member, subject.gang.min_resources(above, devices=_devices(subject, view)))
    except QuantityError as error:
        path = f"{subject.gang.tasks[0].path}.spec" if subject.gang.tasks else "spec"
        return Minimum(member, Resources({}), (Problem(str(error), path),))


def reserves_late(subject: GangSubject, view: AdmissionView) -> bool:
    """Whether the gang's group reserves when it becomes Inqueue."""
    return grouping.reserves_late(*subject.gang.metas, _namespace(subject, view))


def reservation(subject: GangSubject, uid: str, resources: Resources) -> ReservationRequest:
    """Return the request for what the group of a new object will hold, under that group's name."""
    group = (subject.namespace, JOB, names.VOLCANO_GROUP, grouping.generated_name(uid), uid)
    return ReservationRequest(*group, resources, scope_facts=subject.gang.scope_facts)


def unstated_minimum(
    subject: GangSubject, uid: str, view: AdmissionView, *, phases: frozenset[str] = _WAITING
) -> ReservationRequest | None:
    """Return the request for the minimum of a user's group that states none: a new object's pods are the first that are known.

    None where the group is in none of the ``phases``, reserves later, or the object has several templates.
    """
    gang, found = subject.gang, groups_named(view, subject.namespace, subject.gang.group())
    api_group, group = next(iter(found.items()), ("", None))
    if group is None or foreseen_minimum(group) is not None or not group.spec.min_member or len(gang.tasks) != 1:
        return None
    if group.status.phase not in phases or reservations.reserves_late(group.metadata):
        return None
    try:
        spec, devices = gang.tasks[0].template.spec, _devices(subject, view)
        alone = taken_by_spec(spec) + devices(native_groups.without_shared(gang.shared, spec))
        minimum = alone * group.spec.min_member + devices(PodSpec(resource_claims=gang.shared))
    except QuantityError:
        return None  # an API server stores no pod of it
    facts = tenant_texts.traits(group.metadata.annotation(names.POD_TRAITS))
    return ReservationRequest(subject.namespace, JOB, api_group, group.name, uid, minimum, scope_facts=facts)


def growth(subject: GangSubject, uid: str, resources: Resources, view: AdmissionView) -> ReservationRequest:
    """Return the request for a gang that is larger now: for what is more than its group holds.

    Where nobody sees the group yet, for all of it: a name is charged once, so what is reserved for it costs nothing more.
    """
    asked = reservation(subject, uid, resources)
    group = groups_named(view, subject.namespace, asked.name).get(names.VOLCANO_GROUP)
    if group is None or not group.metadata.resource_version:
        return asked
    # By the group's uid: to the ledger, rows of one name and several uids are alternatives.
    holds = holding(group, common.amounts(foreseen_minimum(group), "spec.minResources")[0])
    facts = tenant_texts.traits(group.metadata.annotation(names.POD_TRAITS)) or asked.scope_facts
    version = group.metadata.resource_version
    return replace(asked, uid=group.metadata.uid, revision=version, previous=holds, previous_facts=facts)


def starting_problems(subject: GangSubject, member: int) -> list[Problem]:
    """Say that a Job's gang can never start: its pods come in turns. One that makes none for now has time to change."""
    at_once = subject.gang.at_once
    if member <= at_once or not at_once:
        return []
    text = (
        f"the gang never starts: it needs {member} pods at once, parallelism and completions allow {at_once}:"
        f" raise them to {member} or lower {_MINIMUM} to {at_once}"
    )
    return [Problem(text)]


def ordered_problem(member: int) -> Problem:
    """Say that a StatefulSet's gang can never start: it makes its pods one after the other."""
    return Problem(
        f"the gang never starts: it needs {member} pods at once, and a StatefulSet makes each only once the one before is"
        f" ready: set spec.podManagementPolicy to Parallel, or lower {_MINIMUM} to 1"
    )


def scale_warnings(subject: GangSubject, member: int) -> list[str]:
    """Say that a gang waits until somebody scales it."""
    at_once = subject.gang.at_once
    if member <= at_once or not at_once:
        return []
    return [f"the gang waits until it is scaled: it needs {member} pods at once, replicas allow {at_once}"]


def capacity_warnings(subject: GangSubject, found: Minimum, view: AdmissionView) -> list[str]:
    """Say what the cluster and the quotas, empty, could not hold."""
    return [
        *common.size_warnings(view, found.member, found.resources),
        *common.quota_warnings(view, subject.namespace, found.member, found.resources, subject.gang.scope_facts),
    ]


def network_problems(
    subject: GangSubject,
    found: Minimum,
    view: AdmissionView,
    before: GangSubject | None = None,
    had: Minimum | None = None,
) -> list[Problem]:
    """Say why a gang can never start in this network; of one that was there ``before``, where it asks for more of it now."""
    above = _namespace(subject, view)
    metas = (*subject.gang.metas, above)
    if before is not None and had is not None:
        same = network.gang_request((*before.gang.metas, above)) == network.gang_request(metas)
        if same and found.member <= had.member and not common.grew(found.resources, had.resources):
            return []
    return network.gang_problems(view, metas, found.member, found.resources)


def quota_problems(subject: GangSubject, resources: Resources, view: AdmissionView) -> list[Problem]:
    """Say which quota is too small for a minimum even while nothing else takes any of it."""
    return common.never_fits(view, subject.namespace, subject.title, resources, subject.gang.scope_facts)


def _devices(subject: GangSubject, view: AdmissionView) -> device_quota.DeviceNeed:
    def template(name: str) -> ResourceClaimTemplate | None:
        return view.get(kinds.RESOURCECLAIMTEMPLATES, name, subject.namespace)

    return device_quota.need_by(template, lambda: device_classes.of(view.items(kinds.DEVICECLASSES)))


def _namespace(subject: GangSubject, view: AdmissionView) -> Meta | None:
    found = view.get(kinds.NAMESPACES, subject.namespace)
    return found.metadata if found is not None else None
