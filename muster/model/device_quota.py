"""Devices as ResourceQuotas count them: the most that a claim may get, by class.

Source: ``pkg/quota/v1/evaluator/core/resource_claims.go`` of Kubernetes. What a pod's claims come to is known before they exist: templates
don't change, and for what it requests of a resource that a class stands for, the scheduler makes one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from muster.model.amounts import NANO, NOTHING, Resources
from muster.model.device_classes import IMPLICIT
from muster.model.objects import PodSpec, ResourceClaimTemplate
from muster.model.requests import pod_request

PER_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
"""How a quota's name for the devices of a class ends; it begins with the name of the class."""
MOST_DEVICES: Final = 32
"""Devices that a claim may have, by the API."""
_COUNTED, _ALL = "ExactCount", "All"
_REQUESTS: Final = "requests."

TemplateReader = Callable[[str], ResourceClaimTemplate | None]
"""The ResourceClaimTemplates of one namespace, by name."""
StoodFor = Callable[[], Mapping[str, str]]
"""Returns the classes of devices by the resources that they stand for."""

DeviceNeed = Callable[[PodSpec], Resources]
"""What the claims take that are made for a pod."""


def NO_DEVICES(_: PodSpec) -> Resources:  # noqa: N802 - it stands for a value
    """Count no claims."""
    return NOTHING


def of_class(resource: str) -> bool:
    """Whether a resource is the devices of a class: no node has it."""
    return resource.endswith(PER_CLASS)


def for_quotas_alone(resource: str, stated: Collection[str]) -> bool:
    """Whether ``resource``, of those that a group states to need, is what its claims take of quotas: no node needs to have it."""
    if of_class(resource):
        return True
    if not resource.startswith(_REQUESTS) or "/" not in resource:
        return False
    return any(each.startswith(_REQUESTS + IMPLICIT) for each in stated)


def of_claim(spec: Mapping[str, Any] | None) -> Resources:
    """Return what a ResourceClaim of this spec takes: of alternatives the most, of all devices as many as may be."""
    counts: dict[str, int] = {}
    for request in _listed((_mapping(spec).get("devices")), "requests"):
        most: dict[str, int] = {}
        for each in _listed(request, "firstAvailable") or [_mapping(request.get("exactly"))]:
            name = each.get("deviceClassName")
            if isinstance(name, str) and name:
                most[name] = max(most.get(name, 0), _count(each))
        for name, count in most.items():
            counts[name] = counts.get(name, 0) + count
    return Resources({f"{name}{PER_CLASS}": count * NANO for name, count in counts.items() if count})


def of_pod(spec: PodSpec, template: TemplateReader, stood_for: StoodFor = dict) -> Resources:
    """Return what the claims take that are made for a pod of this spec; a template that isn't there counts for nothing.

    Of a resource that a class stands for, the claim is counted that is made where no device plugin has the resource.

    Raises:
        QuantityError: an amount isn't a quantity.
    """
    total = NOTHING
    for each in spec.resource_claims or ():
        name = each.get("resourceClaimTemplateName")
        found = template(name) if isinstance(name, str) and name else None
        if found is not None:
            total += of_claim(_mapping(_mapping(found.spec).get("spec")))
    return _with_names(total + _of_resources(spec, stood_for), stood_for)


def _with_names(devices: Resources, stood_for: StoodFor) -> Resources:
    """Add the names of resources by which Kubernetes counts the same claims once more, where a class has one of its own.

    Written as a quota has them, since nodes have resources of these names, too, and need not have that many.
    """
    if not devices:
        return devices
    found, classes = dict(devices.nano), stood_for()
    for resource, name in classes.items():
        amount = devices.nano.get(f"{name}{PER_CLASS}", 0)
        if amount and not resource.startswith(IMPLICIT):
            found[f"{_REQUESTS}{resource}"] = found[f"{_REQUESTS}{IMPLICIT}{name}"] = amount
    return Resources(found)


def _of_resources(spec: PodSpec, stood_for: StoodFor) -> Resources:
    stated = (each.resources for each in (*(spec.containers or ()), *(spec.init_containers or ())))
    if not any(
        "/" in name for each in stated if each is not None for name in (*(each.requests or ()), *(each.limits or ()))
    ):
        return NOTHING
    classes, requested = stood_for(), pod_request(spec)
    counts = Counter[str]()
    for name in classes.keys() & requested.nano.keys():
        counts[classes[name]] += requested.units(name)
    return Resources({f"{name}{PER_CLASS}": count * NANO for name, count in counts.items() if count})


def need_by(template: TemplateReader, stood_for: StoodFor) -> DeviceNeed:
    """Return what counts the claims that are made for pods, by these templates and classes of devices."""
    return partial(of_pod, template=template, stood_for=stood_for)


def _count(request: Mapping[str, Any]) -> int:
    mode = request.get("allocationMode") or _COUNTED
    if mode == _ALL:
        return MOST_DEVICES
    count = request.get("count")
    return (count if isinstance(count, int) and count > 0 else 1) if mode == _COUNTED else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any, field: str) -> list[Mapping[str, Any]]:
    items = _mapping(value).get(field)
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list | tuple) else []
