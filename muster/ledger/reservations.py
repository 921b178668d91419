"""Requests to the ledger and its answers: values, known to all who call it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from muster.model import grouping, names, scopes, tenant_texts
from muster.model.amounts import NANO, NOTHING, Resources
from muster.model.objects import Container, Json, Meta, Pod, PodGroup, PodSpec, ResourceRequirements
from muster.model.requests import pod_limits, pod_request
from muster.model.text import shown

PODGROUP: Final = "PodGroup"
JOB: Final = "Job"
POD: Final = "Pod"
CLAIM: Final = "ResourceClaim"
GROUPS: Final = (PODGROUP, JOB)
"""What reserves: a group, or a Job for the group that it will get."""
MEMBERS: Final = (POD, CLAIM)
"""What takes of what its group reserved: a pod, and a claim on devices that was made for one."""
KINDS: Final = (*GROUPS, *MEMBERS)

COMPLETED: Final = "Completed"
"""The phase of a group that is over."""

_BEFORE: Final = frozenset({"", "Pending"})
_COUNT_PODS: Final = "count/pods"
_OF_PODS: Final = frozenset({"pods", "cpu", "memory", "ephemeral-storage"})
_OF_STORAGE: Final = ".storageclass.storage.k8s.io/"
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_LONGEST_KEPT: Final = 2048
"""Bytes of what containers ask for that is remembered, with what it comes to."""
_ENCODER: Final = msgspec.json.Encoder()
_CONTAINERS: Final = msgspec.json.Decoder(tuple[ResourceRequirements | None, ...])


class ReservationRequest(Struct, frozen=True):
    """What an object will hold if the API server stores it.

    Attributes:
        kind: ``PodGroup``, ``Job`` for the group that a Job will get, ``Pod``, or ``ResourceClaim``.
        group: API group of the PodGroup; for a Job, of the group to come; for a Pod, or the Pod of a claim, the name of the
            PodGroup that it is in, empty where it is in none.
        name: the PodGroup's or Pod's name; for a Job, ``podgroup-<uid of the Job>``, so that both are one charge.
        uid: of the object in the review, final in the validating phase.
        amounts: minResources as written, or what a Pod takes of quotas; ``requests.cpu`` and ``cpu`` are one thing.
        revision: on UPDATE the resourceVersion of oldObject, else empty.
        previous: on UPDATE what oldObject had; None is none.
        scope_facts: what decides in which scopes of quotas it is (`muster.model.scopes`); empty where that isn't known.
        previous_facts: on UPDATE the scope facts of oldObject.
    """

    namespace: str
    kind: str
    group: str
    name: str
    uid: str
    amounts: Resources
    revision: str = ""
    previous: Resources | None = None
    scope_facts: str = ""
    previous_facts: str = ""

    def __post_init__(self) -> None:
        """Refuse what the ledger can't hold.

        Raises:
            InvalidTextError: a name, a uid, a resource or scope facts that a row of the ledger couldn't be read back with.
            ValueError: an unknown kind, previous amounts without their revision, or a negative amount.
        """
        if self.kind not in KINDS:
            raise ValueError(f"the ledger keeps reservations for {', '.join(KINDS)}, not for {self.kind}")
        if self.previous is not None and not self.revision:
            raise ValueError(f"a reservation for {self.name} changes amounts, so it needs the revision that had them")
        if self.amounts.is_negative or (self.previous is not None and self.previous.is_negative):
            raise ValueError(f"a reservation for {self.name} has a negative amount: {self.amounts}")
        if self.asks:
            self._check()

    def _check(self) -> None:
        # What asks for nothing becomes no row; and must pass, so that any object can lose its finalizers.
        subdomains = (self.name, self.group) if self.group else (self.name,)
        fits = tenant_texts.fits_a_row(subdomains, self.amounts, self.uid)
        if fits and (not self.scope_facts or tenant_texts.traits(self.scope_facts) == self.scope_facts):
            return
        where = f"{self.kind} {shown(self.name)}"
        tenant_texts.check(where, subdomains=subdomains, resources=self.amounts, uids=(self.uid,))
        if tenant_texts.traits(self.scope_facts) != self.scope_facts:
            raise tenant_texts.InvalidTextError(f"{where}: {shown(self.scope_facts)} says nothing of scopes")

    @property
    def account(self) -> str:
        """The name of the group on whose account it is; empty for a Pod or a claim outside every group."""
        return self.group if self.kind in MEMBERS else self.name

    @property
    def changes_scopes(self) -> bool:
        """Whether it is an UPDATE that takes its object from some scopes of quotas to others."""
        return self.previous is not None and self.previous_facts != self.scope_facts

    @property
    def asks(self) -> bool:
        """Whether there is anything that is `asked`."""
        return bool(self.amounts if self.previous is None else self.asked)

    @property
    def asked(self) -> Resources:
        """The most that it would hold on top of what its object holds already: where its scopes change, all of it."""
        if self.previous is None:
            return held(self.amounts).positive()
        if self.changes_scopes:
            return held(self.amounts)
        return (held(self.amounts) - held(self.previous)).positive()

    def growth(self, scope_sets: Iterable[str]) -> Resources:
        """Return what it will count for on top of what its object counts for already: in all, and in each of these scopes."""
        sets = tuple(scope_sets)
        before = scopes.in_scopes(held(self.previous or NOTHING), self.previous_facts, sets)
        return (scopes.in_scopes(held(self.amounts), self.scope_facts, sets) - before).positive()


class Shortage(Struct, frozen=True):
    """Why one resource of one quota can't hold a reservation: ``reserved + used + asked - hard == short``, in nano-units.

    Attributes:
        reserved: what unfinished groups, other than the one that asks, hold or have reserved.
        used: what pods hold beyond what their groups have reserved: those outside every group, all of it.
    """

    resource: str
    hard: int
    reserved: int
    used: int
    asked: int
    short: int
    quota: str = ""


class Leaving(Struct, frozen=True):
    """Pods that are being deleted, of those that make a reservation impossible.

    Attributes:
        amounts: what they take until they are gone.
        gone_by: when the last of their grace periods ends, in seconds since 1970.
    """

    amounts: Resources
    gone_by: float


class Reserved(Struct, frozen=True):
    """Yes. ``recorded`` is false where no quota limits what is requested, so that nothing was written."""

    recorded: bool = True


class Exceeded(Struct, frozen=True):
    """No.

    Attributes:
        quota: name of the first quota that can't hold it; empty when the name is taken.
        shortages: every resource that is short, of every quota.
        holders: who holds most of what is short: (name, amounts), largest first.
        taken_in: the API group in which another PodGroup has this name; empty when a quota is the reason.
        of_group: of a Pod, whether it is its group that a reservation was refused, of which these are the shortages.
        leaving: the pods among those that hold what is short that are being deleted; None where none is.
    """

    quota: str
    shortages: tuple[Shortage, ...] = ()
    holders: tuple[tuple[str, Resources], ...] = ()
    taken_in: str = ""
    of_group: bool = False
    leaving: Leaving | None = None


class Unavailable(Struct, frozen=True):
    """Neither yes nor no in time: the caller may try again. ``reason`` is for people, one line."""

    reason: str


ReservationAnswer = Reserved | Exceeded | Unavailable


class Observed(Struct, frozen=True):
    """The ledger knows the quota now. ``overcommitted`` says where reservations no longer fit it."""

    overcommitted: tuple[Shortage, ...] = ()


@lru_cache(maxsize=4096)
def limited(resource: str) -> str:
    """Return the name in minResources of what a quota calls ``resource``: ``requests.cpu`` limits ``cpu``.

    A quota with scopes limits what counts in them: ``requests.cpu@Terminating`` is ``cpu@Terminating``.
    """
    if resource.startswith(_COUNT_PODS) and scopes.split_name(resource)[0] == _COUNT_PODS:
        return "pods" + resource.removeprefix(_COUNT_PODS)
    return resource.removeprefix("requests.")


def all_limited(resources: Iterable[str]) -> frozenset[str]:
    """Return what quotas that have these resources limit, as `limited` writes it; and the same without scopes, which facts add."""
    scoped = set(map(limited, resources))
    return frozenset(scoped | {scopes.split_name(name)[0] for name in scoped})


def taken_by_pods(resource: str) -> bool:
    """Whether pods, or claims on devices, take of what a quota calls ``resource``; anything else Kubernetes alone counts."""
    name = limited(scopes.split_name(resource)[0]).removeprefix("limits.")
    if name in _OF_PODS or name.startswith("hugepages-"):
        return True
    return "/" in name and not name.startswith("count/") and _OF_STORAGE not in name


@lru_cache(maxsize=4096)
def _is_limited_so(resource: str) -> bool:
    return limited(resource) == resource


def held(amounts: Resources) -> Resources:
    """Write minResources by the names of `limited`; where a group lists both spellings, the larger counts."""
    nano: dict[str, int] = {}
    if all(map(_is_limited_so, amounts.nano)):
        return amounts
    for name, amount in amounts.nano.items():
        nano[limited(name)] = max(amount, nano.get(limited(name), 0))
    return Resources(nano)


def reserves_late(meta: Meta) -> bool:
    """Whether a group reserves when it becomes Inqueue, and not when it is created."""
    return meta.annotation(names.QUOTA_POLICY) == names.POLICY_QUEUE


def reserving(group: PodGroup) -> bool:
    """Whether a group holds its minResources in the state that it is in.

    A Completed group holds nothing; one that reserves late, nothing while it is Pending.
    """
    phase = group.status.phase
    return phase != COMPLETED and not (phase in _BEFORE and reserves_late(group.metadata))


def stated_minimum(group: PodGroup) -> Mapping[str, Json] | None:
    """Return what a group's minimum takes of quotas: by its own word, else what the scheduler noted of its pods.

    One that waits for its minimum holds nothing, whatever was noted.
    """
    spec = group.spec.min_resources
    if spec is not None:
        return spec
    return group.status.min_resources if waits_for_quota(group) is None else None


def waits_for_quota(group: PodGroup) -> Resources | None:
    """Return the minimum that a group will state once it is reserved, and doesn't hold until then; None where it waits for none."""
    return grouping.wanted_resources(group.metadata) if group.spec.min_resources is None else None


def foreseen_minimum(group: PodGroup) -> Mapping[str, Json] | None:
    """Return what a group's minimum takes of quotas, or will once it is reserved."""
    wanted = waits_for_quota(group)
    return wanted.quantities() if wanted is not None else stated_minimum(group)


def holding(group: PodGroup, minimum: Resources) -> Resources:
    """Return what a group holds in the state that it is in, where its whole minimum takes ``minimum``."""
    if not reserving(group):
        return NOTHING
    return missing_part(minimum, group.spec.min_member, group.status.succeeded_before)


def missing_part(minimum: Resources, member: int, succeeded: int) -> Resources:
    """Return what the rest of a minimum takes once so many of ``member`` pods succeeded; parts are rounded up."""
    if succeeded <= 0 or not minimum:
        return minimum
    missing, whole = max(member - succeeded, 0), max(member, 1)
    return Resources({name: -(-amount * missing // whole) for name, amount in minimum.nano.items()})


def taken_by(pod: Pod) -> Resources:
    """Return what a pod takes of quotas, in the names of `held`; nothing once it has ended.

    Raises:
        QuantityError: an amount isn't a quantity; an API server stores no such pod.
    """
    return NOTHING if pod.status.phase in _ENDED else taken_by_spec(pod.spec)


def taken_by_spec(spec: PodSpec) -> Resources:
    """Return what a pod of this spec takes of quotas until it ends.

    Raises:
        QuantityError: an amount isn't a quantity.
    """
    if spec.init_containers or spec.overhead or spec.resources is not None:
        return _added(spec)
    # Pods of a workload are alike, and each is added up at its review and again when it is seen.
    try:
        written = _ENCODER.encode([container.resources for container in spec.containers or ()])
    except (ValueError, OverflowError):  # a number that can't be written again is no amount either
        return _added(spec)
    return _taken(written) if len(written) <= _LONGEST_KEPT else _added(spec)


@lru_cache(maxsize=2048)
def _taken(written: bytes) -> Resources:
    """Add up what plain containers ask for, by their requirements in JSON."""
    containers = tuple(Container(resources=each) for each in _CONTAINERS.decode(written))
    return _added(PodSpec(containers=containers))


def _added(spec: PodSpec) -> Resources:
    nano = dict(pod_request(spec).nano)
    for name, amount in pod_limits(spec).nano.items():
        nano["limits." + name] = amount
    nano["pods"] = NANO
    return Resources(nano)
