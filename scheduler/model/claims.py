"""Resource claims as a cycle sees them: what pods refer to, what claims request and have, and which devices are taken.

`Devices` is an immutable view; `DeviceCache` keeps it up to date, object by object. What follows from it for pods and nodes is
in `scheduler.topology.device_claims`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from muster.model import device_classes, device_quota
from muster.model.device_classes import StandIn
from muster.model.device_quota import DeviceNeed
from muster.model.objects import DeviceClass, NodeSelector, Pod, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from scheduler.model import devices, extended_resources
from scheduler.model.devices import ClaimedDevices, DeviceId, Placement, Slice, UnsupportedDevicesError
from scheduler.model.pod_claims import ClaimingGroup, ResourceClaimKey

_OF_POD: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim made from a template: which claim of its pod it is."""
_SUPPOSED: Final = "<supposed>"
"""How the key of a claim begins that is only supposed; no claim can be called that."""
DELETE_PROTECTION: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer that keeps a claim that has devices until these are taken back."""
_OVER: Final = frozenset({"Succeeded", "Failed"})
MOST_CONSUMERS: Final = 256
"""Pods that may use a claim, by the API."""


class ChosenDevices(Struct, frozen=True):
    """The devices that an unallocated claim is to get; ``devices``: (request, device, whether for admin access).

    ``group``: for whom the claim is reserved; None where that is the pod.
    """

    claim: ResourceClaimKey
    uid: str
    reach: Placement
    devices: tuple[tuple[str, DeviceId, bool], ...] = ()
    group: ClaimingGroup | None = None

    @property
    def taken(self) -> Iterable[DeviceId]:
        """The devices that nobody else may have."""
        return (device for _, device, admin in self.devices if not admin)


DeviceChoices = tuple[ChosenDevices, ...]
"""What is decided for the claims of one pod."""


class ClaimState(Struct, frozen=True):
    """A ResourceClaim.

    Attributes:
        wanted: what it requests; None where that can't be evaluated, for the reason in ``unsupported``.
        has: what it has been given; None where it waits.
        users: the uids of those for whom it is reserved: pods, or PodGroups of Kubernetes' own.
        extended: it is for extended resources of its pod.
    """

    key: ResourceClaimKey
    uid: str
    wanted: ClaimedDevices | None
    unsupported: str = ""
    has: ChosenDevices | None = None
    going: bool = False
    users: frozenset[str] = frozenset()
    extended: bool = False

    def full_for(self, user: str) -> bool:
        """Whether as many use it as may, and whoever has that uid isn't among them."""
        return len(self.users) >= MOST_CONSUMERS and user not in self.users


class HeldClaim(NamedTuple):
    """A ResourceClaim whose devices nobody can use; ``user``: the uid of the pod or group for which alone it is reserved."""

    claim: ResourceClaimKey
    uid: str
    user: str


class OfferedDevices(Struct, frozen=True, eq=False):
    """What drivers offer, and the classes that claims choose from.

    Attributes:
        extended: the classes by the extended resources that they stand for.
    """

    slices: tuple[Slice, ...] = ()
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    extended: Mapping[str, str] = field(default_factory=dict)


class Devices(Struct, frozen=True, eq=False):
    """The cluster's devices and claims at one moment.

    Attributes:
        known: whether claims are looked at here; where they aren't, pods that use some wait.
        made: the claims that were made for pods and groups, by the uid of these and the claim's name there.
        templates: what claims are made from.
        awaited: the uids of those for whom somebody makes claims; the others' count as made. None: somebody does for all.
        chosen: what was decided for claims and isn't to be seen yet.
        taken: the devices that are allocated.
    """

    known: bool = False
    offers: OfferedDevices = OfferedDevices()
    claims: Mapping[ResourceClaimKey, ClaimState] = field(default_factory=dict)
    made: Mapping[tuple[str, str], ResourceClaimKey] = field(default_factory=dict)
    chosen: Mapping[ResourceClaimKey, ChosenDevices] = field(default_factory=dict)
    taken: frozenset[DeviceId] = frozenset()
    templates: Mapping[ResourceClaimKey, ResourceClaimTemplate] = field(default_factory=dict)
    awaited: Collection[str] | None = None

    def asked(self, resources: Iterable[str]) -> bool:
        """Whether there are claims, or some of the resources that pods request are devices."""
        return bool(self.claims) or not self.offers.extended.keys().isdisjoint(resources)


NO_DEVICES: Final = Devices()


def state_of(claim: ResourceClaim) -> ClaimState:
    """Read a claim."""
    key = ResourceClaimKey(claim.namespace, claim.name)
    wanted, unsupported = None, ""
    try:
        wanted = devices.claimed(claim.spec or {}, claim.namespace)
    except UnsupportedDevicesError as error:
        unsupported = str(error)
    status = claim.status
    has = _allocated(key, claim.metadata.uid, status.allocation) if status.allocation is not None else None
    going = claim.metadata.deletion_timestamp is not None
    users = frozenset(str(each.get("uid")) for each in status.reserved_for or ())
    return ClaimState(key, claim.metadata.uid, wanted, unsupported, has, going, users, _extended(claim))


def supposed(template: ResourceClaimTemplate, maker: str, name: str) -> ClaimState:
    """Return the claim that will be made from a template: for whom has that uid, by the name that it has there."""
    spec = (template.spec or {}).get("spec") or {}
    key = ResourceClaimKey(template.namespace, f"{_SUPPOSED}{template.name}/{maker}/{name}")
    try:
        return ClaimState(key, "", devices.claimed(spec, template.namespace))
    except UnsupportedDevicesError as error:
        return ClaimState(key, "", None, str(error))


def template_of(key: ResourceClaimKey) -> str:
    """Return the name of the template of a claim that is only supposed; empty for one that exists."""
    return key.name.removeprefix(_SUPPOSED).partition("/")[0] if key.name.startswith(_SUPPOSED) else ""


def _extended(claim: ResourceClaim) -> bool:
    return claim.metadata.annotation(extended_resources.ANNOTATION) == "true"


def _allocated(key: ResourceClaimKey, uid: str, allocation: Mapping[str, Any]) -> ChosenDevices:
    selector = allocation.get("nodeSelector")
    results = (allocation.get("devices") or {}).get("results") or ()
    return ChosenDevices(
        key,
        uid,
        Placement(selector=msgspec.convert(selector, NodeSelector)) if selector else Placement(everywhere=True),
        tuple(
            (each["request"], DeviceId(each["driver"], each["pool"], each["device"]), bool(each.get("adminAccess")))
            for each in results
        ),
    )


class DeviceCache:
    """Keeps `Devices` up to date. Until it learns of something, nobody looks at claims here."""

    def __init__(self) -> None:
        self._known = False
        self._slices: dict[str, Slice] = {}
        self._classes: dict[str, tuple[str, ...]] = {}
        self._extended: dict[str, StandIn] = {}
        self._claims: dict[ResourceClaimKey, ClaimState] = {}
        self._templates: dict[ResourceClaimKey, ResourceClaimTemplate] = {}
        self._made: dict[tuple[str, str], ResourceClaimKey] = {}
        self._taken: Counter[DeviceId] = Counter()
        self._chosen: dict[str, tuple[ChosenDevices, ...]] = {}
        self._offers: OfferedDevices | None = None
        self._view: Devices | None = None
        self._awaited: Collection[str] | None = None
        self._ended: set[str] = set()
        self.changes = 0
        """How many there were."""

    def suppose(self, awaited: Collection[str] = ()) -> None:
        """Count claims that would be made from templates as made, but for those of whom has one of these uids.

        There is no controller of claims here, either, so those of pods that are over count as given back.
        """
        self._awaited = awaited

    def pod(self, pod: Pod, *, gone: bool = False) -> None:
        """Learn of a pod: whether what was decided for its claims is to be seen now, or it is over."""
        uid = pod.metadata.uid
        if self._awaited is None:
            if pod.spec.node_name or gone:
                self.choose(uid, ())
            return
        over = gone or pod.status.phase in _OVER
        if over:
            self.choose(uid, ())
        if over != (uid in self._ended) and (pod.spec.resource_claims or self._claims):
            (self._ended.add if over else self._ended.discard)(uid)
            self._view = None

    def claim(self, claim: ResourceClaim, *, gone: bool = False) -> None:
        """Learn of a claim."""
        state = state_of(claim)
        self._changed()
        old = self._claims.pop(state.key, None)
        owner = claim.metadata.controller()
        name = extended_resources.OWN if state.extended else claim.metadata.annotation(_OF_POD) or ""
        made = (owner.uid, name) if owner is not None else None
        if old is not None and old.has is not None:
            self._taken.subtract(old.has.taken)
        if gone:
            if made is not None and self._made.get(made) == state.key:
                del self._made[made]
            return
        self._claims[state.key] = state
        if made is not None:
            self._made[made] = state.key
        if state.has is not None:
            self._taken.update(state.has.taken)

    def device_class(self, class_: DeviceClass, *, gone: bool = False) -> None:
        """Learn of a class of devices."""
        # A class whose selectors aren't known chooses nothing, which is said of claims that name it.
        stated = () if gone else devices.selectors((class_.spec or {}).get("selectors"))
        self._offered()
        self._classes.pop(class_.name, None)
        self._extended.pop(class_.name, None)
        if gone:
            return
        self._classes[class_.name] = stated
        self._extended[class_.name] = device_classes.class_of(class_)

    def slice(self, part: ResourceSlice, *, gone: bool = False) -> None:
        """Learn of a part of a pool."""
        read = None if gone else devices.read_slice(part.name, part.spec or {})
        self._offered()
        if read is None:
            self._slices.pop(part.name, None)
        else:
            self._slices[part.name] = read

    def claim_template(self, template: ResourceClaimTemplate, *, gone: bool = False) -> None:
        """Learn of what claims are made from."""
        self._changed()
        key = ResourceClaimKey(template.namespace, template.name)
        if gone:
            self._templates.pop(key, None)
        else:
            self._templates[key] = template

    def need(self, namespace: str) -> DeviceNeed:
        """Return what counts the claims that are made for pods of a namespace, as quotas do."""
        return device_quota.need_by(
            lambda name: self._templates.get(ResourceClaimKey(namespace, name)),
            lambda: device_classes.stood_for(self._extended.values()),
        )

    def choose(self, pod: str, choices: tuple[ChosenDevices, ...]) -> None:
        """Remember what is being done for a pod, by its uid; nothing to forget it."""
        if self._chosen.pop(pod, ()) != choices:
            self._view = None
        if choices:
            self._chosen[pod] = choices

    def held(self, uids: Collection[str]) -> set[DeviceId]:
        """Return the devices that pods and groups have, by their uids."""
        users = frozenset(uids)
        found = [choice for uid in users for choice in self._chosen.get(uid, ())]
        found += [each.has for each in self._claims.values() if each.has is not None and users & each.users]
        return {device for each in found for device in each.taken}

    def chosen(self, pod: str) -> tuple[ChosenDevices, ...]:
        """Return what is being done for a pod, by its uid."""
        return self._chosen.get(pod, ())

    def view(self) -> Devices:
        """Return the present state."""
        if not self._known:
            return NO_DEVICES
        if self._offers is None:
            stood_for = device_classes.stood_for(self._extended.values())
            self._offers = OfferedDevices(tuple(self._slices.values()), dict(self._classes), stood_for)
        if self._view is None:
            chosen = {each.claim: each for choices in self._chosen.values() for each in choices}
            claims, freed = self._without_ended()
            taken = {device for device, count in self._taken.items() if count > freed[device]}
            taken.update(device for each in chosen.values() for device in each.taken)
            self._view = Devices(
                True,
                self._offers,
                claims,
                dict(self._made),
                chosen,
                frozenset(taken),
                dict(self._templates),
                self._awaited,
            )
        return self._view

    def _without_ended(self) -> tuple[dict[ResourceClaimKey, ClaimState], Counter[DeviceId]]:
        """Return the claims as they are once nobody has devices that is over, and those devices."""
        claims, freed = dict(self._claims), Counter[DeviceId]()
        for key, claim in self._claims.items() if self._ended else ():
            if claim.has is not None and claim.users and claim.users <= self._ended:
                freed.update(claim.has.taken)
                claims[key] = replace(claim, has=None, users=frozenset())
        return claims, freed

    def _changed(self) -> None:
        self._known, self._view = True, None
        self.changes += 1

    def _offered(self) -> None:
        self._changed()
        self._offers = None
