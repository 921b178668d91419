"""Devices as a cycle sees them: what slices offer, what claims request, read from the API's JSON into compact values.

What a claim or a slice says that isn't known here is named by `UnsupportedDevicesError`, so that nothing is placed as though it
hadn't been said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from muster.cel.values import CelError, Semver
from muster.model.amounts import Quantity, QuantityError
from muster.model.objects import Node, NodeSelector
from scheduler.model import constraints

MOST_RESULTS: Final = 32
"""Devices that a claim may have, by the API."""
_COUNTED, _ALL = "ExactCount", "All"
_REQUEST: Final = frozenset({"deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations"})
_DEVICE: Final = frozenset(
    {"attributes", "capacity", "consumesCounters", "taints", "nodeName", "nodeSelector", "allNodes"}
)


class UnsupportedDevicesError(ValueError):
    """It asks for what Muster doesn't evaluate; the text names that."""


class DeviceId(NamedTuple):
    """Which device."""

    driver: str
    pool: str
    name: str


class Placement(Struct, frozen=True):
    """The nodes that reach a slice or a device."""

    name: str = ""
    everywhere: bool = False
    selector: NodeSelector | None = None

    def reaches(self, node: Node) -> bool:
        """Whether a node is among them."""
        if self.name:
            return self.name == node.name
        terms = self.selector.node_selector_terms or () if self.selector is not None else ()
        return self.everywhere or any(constraints.term_matches(term, node) for term in terms)


class DeviceTaint(Struct, frozen=True):
    """What keeps requests off a device that don't tolerate it."""

    key: str
    value: str
    effect: str


class CounterName(NamedTuple):
    """Which counter of a pool."""

    of: str
    name: str


class Device(Struct, frozen=True):
    """A device.

    Attributes:
        attributes, capacity: by domain and name, as expressions see them.
        consumes: what is taken of counters while it is allocated.
        placement: its own, where its slice has none for all.
        shareable: whether several claims may have parts of it; it isn't offered.
    """

    id: DeviceId
    attributes: Mapping[str, Mapping[str, Any]]
    capacity: Mapping[str, Mapping[str, Quantity]]
    taints: tuple[DeviceTaint, ...] = ()
    consumes: tuple[tuple[CounterName, int], ...] = ()
    placement: Placement | None = None
    offered: bool = True

    def attribute(self, name: str) -> Any:
        """Return an attribute by its qualified name; None where it hasn't any of that name."""
        domain, _, own = name.partition("/")
        return self.attributes.get(domain, {}).get(own)


class Slice(Struct, frozen=True):
    """A part of a pool: some of its devices, or its counters."""

    name: str
    driver: str
    pool: str
    generation: int
    of: int
    placement: Placement | None
    devices: tuple[Device, ...] = ()
    counters: Mapping[CounterName, int] = {}
    repeats: bool = False


class DeviceRequest(Struct, frozen=True):
    """Some devices of a class, alike. ``count`` is None for all of them."""

    name: str
    device_class: str
    count: int | None = 1
    selectors: tuple[str, ...] = ()
    admin: bool = False
    tolerations: tuple[tuple[str, str, str, str], ...] = ()

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Whether a taint doesn't keep it off."""
        return taint.effect not in {"NoSchedule", "NoExecute"} or any(
            (not effect or effect == taint.effect)
            and (not key or key == taint.key)
            and (operator == "Exists" or (operator in {"", "Equal"} and value == taint.value))
            for key, operator, value, effect in self.tolerations
        )


class MatchAttribute(Struct, frozen=True):
    """The devices of some requests (of all, where none is named) have one value of an attribute."""

    attribute: str
    requests: frozenset[str] = frozenset()

    def concerns(self, request: str) -> bool:
        """Whether it is about a request, or about the one that this is an alternative of."""
        return not self.requests or request in self.requests or request.partition("/")[0] in self.requests


class ClaimedDevices(Struct, frozen=True, cache_hash=True, weakref=True):
    """What a claim requests: each request is a line of alternatives, of which the first that can be had counts.

    ``namespace``: the claim's, which pays for what is tried; ``extended``: it is for extended resources, by which its requests are called.
    """

    requests: tuple[tuple[DeviceRequest, ...], ...]
    constraints: tuple[MatchAttribute, ...] = ()
    namespace: str = ""
    extended: bool = False


# ── claims ───────────────────────────────────────────────────────────────────────────────────────────────────────


def claimed(spec: Mapping[str, Any], namespace: str) -> ClaimedDevices:
    """Read the spec of a ResourceClaim of a namespace.

    Raises:
        UnsupportedDevicesError: it asks for what isn't evaluated.
    """
    devices = spec.get("devices") or {}
    _known("claim", devices, {"requests", "constraints", "config"})
    return ClaimedDevices(
        tuple(tuple(_alternatives(each)) for each in devices.get("requests") or ()),
        tuple(_constraint(each) for each in devices.get("constraints") or ()),
        namespace,
    )


def quota_of(claim: ClaimedDevices) -> Mapping[str, int]:
    """Return how many devices of each class a claim counts for: of alternatives the most, of all devices as many as may be."""
    counts: dict[str, int] = {}
    for alternatives in claim.requests:
        most: dict[str, int] = {}
        for each in alternatives:
            count = MOST_RESULTS if each.count is None else each.count
            most[each.device_class] = max(most.get(each.device_class, 0), count)
        for name, count in most.items():
            counts[name] = counts.get(name, 0) + count
    return counts


def _alternatives(request: Mapping[str, Any]) -> Iterable[DeviceRequest]:
    _known("request", request, {"name", "exactly", "firstAvailable"})
    if "exactly" in request:
        yield _request(request["name"], request["exactly"], _REQUEST)
    elif not request.get("firstAvailable"):
        raise UnsupportedDevicesError(f"request {request.get('name')!r} of an unknown form")
    for each in request.get("firstAvailable") or ():
        yield _request(f"{request['name']}/{each['name']}", each, (_REQUEST | {"name"}) - {"adminAccess"})


def _request(name: str, stated: Mapping[str, Any], fields: Iterable[str]) -> DeviceRequest:
    _known(f"request {name!r}", stated, fields)
    mode = stated.get("allocationMode") or _COUNTED
    if mode not in {_COUNTED, _ALL}:
        raise UnsupportedDevicesError(f"allocation mode {mode} of devices")
    if not stated.get("deviceClassName"):
        raise UnsupportedDevicesError(f"request {name!r} without a class of devices")
    return DeviceRequest(
        name,
        stated["deviceClassName"],
        None if mode == _ALL else int(stated.get("count") or 1),
        selectors(stated.get("selectors")),
        bool(stated.get("adminAccess")),
        tuple(
            (each.get("key") or "", each.get("operator") or "", each.get("value") or "", each.get("effect") or "")
            for each in stated.get("tolerations") or ()
        ),
    )


def selectors(stated: Iterable[Mapping[str, Any]] | None) -> tuple[str, ...]:
    """Return the expressions of selectors.

    Raises:
        UnsupportedDevicesError: there is a selector of another kind.
    """
    found = []
    for each in stated or ():
        _known("selector", each, {"cel"})
        found.append(str((each.get("cel") or {}).get("expression", "")))
    return tuple(found)


def _constraint(stated: Mapping[str, Any]) -> MatchAttribute:
    _known("constraint", stated, {"requests", "matchAttribute"})
    if not stated.get("matchAttribute"):
        raise UnsupportedDevicesError("a constraint on devices of an unknown form")
    return MatchAttribute(stated["matchAttribute"], frozenset(stated.get("requests") or ()))


def _known(where: str, stated: Mapping[str, Any], fields: Iterable[str]) -> None:
    unknown = sorted(key for key in stated.keys() - set(fields) if stated[key] not in (None, [], {}))
    if unknown:
        raise UnsupportedDevicesError(f"field {unknown[0]!r} of a {where} for devices")


# ── slices ───────────────────────────────────────────────────────────────────────────────────────────────────────


def read_slice(name: str, spec: Mapping[str, Any]) -> Slice:
    """Read the spec of a ResourceSlice. A device that can't be read is not offered, and its pool is invalid no more for it."""
    driver, pool = spec["driver"], spec["pool"]
    per_device = bool(spec.get("perDeviceNodeSelection"))
    return Slice(
        name=name,
        driver=driver,
        pool=pool["name"],
        generation=int(pool.get("generation") or 0),
        of=int(pool.get("resourceSliceCount") or 0),
        placement=None if per_device else _placement(spec),
        devices=tuple(
            _device(DeviceId(driver, pool["name"], each["name"]), each) for each in spec.get("devices") or ()
        ),
        counters={
            CounterName(group["name"], counter): Quantity.parse(str(amount["value"])).nano
            for group in spec.get("sharedCounters") or ()
            for counter, amount in (group.get("counters") or {}).items()
        },
        repeats=len({each["name"] for each in spec.get("sharedCounters") or ()})
        < len(spec.get("sharedCounters") or ()),
    )


def _placement(stated: Mapping[str, Any]) -> Placement:
    selector = stated.get("nodeSelector")
    return Placement(
        stated.get("nodeName") or "",
        bool(stated.get("allNodes")),
        msgspec.convert(selector, NodeSelector) if selector else None,
    )


def _device(id_: DeviceId, stated: Mapping[str, Any]) -> Device:
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, dict[str, Quantity]] = {}
    offered = not any(stated[key] for key in stated.keys() - _DEVICE - {"name"})
    try:
        for name, value in (stated.get("attributes") or {}).items():
            domain, own = _qualified(name, id_.driver)
            attributes.setdefault(domain, {})[own] = _attribute(value)
        for name, value in (stated.get("capacity") or {}).items():
            domain, own = _qualified(name, id_.driver)
            capacity.setdefault(domain, {})[own] = Quantity.parse(str(value["value"]))
    except (CelError, QuantityError, UnsupportedDevicesError):
        offered = False
    return Device(
        id_,
        attributes,
        capacity,
        tuple(
            DeviceTaint(each["key"], each.get("value") or "", each.get("effect") or "")
            for each in stated.get("taints") or ()
        ),
        tuple(
            (CounterName(each["counterSet"], counter), Quantity.parse(str(amount["value"])).nano)
            for each in stated.get("consumesCounters") or ()
            for counter, amount in (each.get("counters") or {}).items()
        ),
        _placement(stated),
        offered,
    )


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, own = name.partition("/")
    return (domain, own) if slash else (driver, name)


def _attribute(value: Mapping[str, Any]) -> Any:
    for kind in ("int", "bool", "string"):
        if kind in value:
            return value[kind]
    if "version" in value:
        return Semver.parse(value["version"])
    raise UnsupportedDevicesError("an attribute of an unknown type")
