"""Extended resources that a class of devices stands for: the claim that is made for a pod that requests some in its containers.

Source: ``pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go`` of Kubernetes. A container that only initialises
may have the devices of those that run later, and those of one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from muster.model.amounts import Resources
from muster.model.objects import Container, PodSpec
from scheduler.model.pod_claims import ResourceClaimKey

ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
"""What such a claim is known by; its value is ``true``."""
OWN: Final = "<extended-resources>"
"""The name of such a claim among those of its pod, and how its own begins until it is made; no claim can be called that."""


class RequestedDevices(Struct, frozen=True):
    """A request of such a claim."""

    name: str
    resource: str
    count: int


class ContainerRequest(Struct, frozen=True):
    """Which request has devices for a container."""

    container: str
    resource: str
    request: str


class PodRequests(Struct, frozen=True):
    """What the claim of a pod requests, and for whom."""

    requests: tuple[RequestedDevices, ...]
    mappings: tuple[ContainerRequest, ...]


def key_of(namespace: str, pod: str) -> ResourceClaimKey:
    """Return what stands for the claim of a pod, by its uid, until that is made."""
    return ResourceClaimKey(namespace, f"{OWN}{pod}")


def to_be_made(key: ResourceClaimKey) -> bool:
    """Whether it stands for a claim that is yet to be made."""
    return key.name.startswith(OWN)


def of_pod(spec: PodSpec, resources: Collection[str]) -> PodRequests:
    """Return what the claim of a pod requests for some of its resources: together as much as the pod itself."""
    found = [_of_resource(spec, each) for each in sorted(resources)]
    requests = sorted((each for one in found for each in one.requests), key=lambda each: each.name)
    return PodRequests(tuple(requests), tuple(each for one in found for each in one.mappings))


def _of_resource(spec: PodSpec, resource: str) -> PodRequests:
    initial, running = list(_initial(spec)), dict(_running(spec))
    own = {
        number: RequestedDevices(_name(number, container, resource), resource, count)
        for number, container in running.items()
        if (count := _count(container, resource))
    }
    mappings = [ContainerRequest(running[number].name, resource, each.name) for number, each in own.items()]
    largest: RequestedDevices | None = None
    more: list[tuple[str, list[str], bool]] = []
    for number, container in initial:
        lacking, names = _count(container, resource), list[str]()
        if not lacking:
            continue
        for each in (each for later, each in own.items() if later > number):
            names.append(each.name)
            lacking -= each.count
            if lacking <= 0:
                break
        more.append((container.name, names, lacking > 0))
        if lacking > 0 and (largest is None or largest.count < lacking):
            largest = RequestedDevices(_name(number, container, resource), resource, lacking)
    for container_name, names, lacks in more:
        mappings += [ContainerRequest(container_name, resource, each) for each in names]
        if lacks and largest is not None:
            mappings.append(ContainerRequest(container_name, resource, largest.name))
    requests = (*([largest] if largest is not None else []), *own.values())
    return PodRequests(requests, tuple(mappings))


def _numbered(spec: PodSpec) -> Iterator[tuple[int, Container, bool]]:
    """Iterate over the containers with their numbers, and whether each ends before the others begin."""
    initial = spec.init_containers or ()
    for number, container in enumerate((*initial, *(spec.containers or ()))):
        yield number, container, number < len(initial) and container.restart_policy != "Always"


def _initial(spec: PodSpec) -> Iterable[tuple[int, Container]]:
    return ((number, container) for number, container, ends in _numbered(spec) if ends)


def _running(spec: PodSpec) -> Iterable[tuple[int, Container]]:
    return ((number, container) for number, container, ends in _numbered(spec) if not ends)


def _count(container: Container, resource: str) -> int:
    stated = _requested(container)
    return Resources.parse({resource: stated[resource]}).units(resource) if resource in stated else 0


def _name(number: int, container: Container, resource: str) -> str:
    return f"container-{number}-request-{sorted(_requested(container)).index(resource)}"


def _requested(container: Container) -> Mapping[str, Any]:
    return (container.resources.requests if container.resources is not None else None) or {}


def shared_out(requests: Sequence[RequestedDevices], devices: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Any]]:
    """Share the devices that were chosen for each resource out among requests: (request, device)."""
    left = {resource: iter(chosen) for resource, chosen in devices.items()}
    for each in requests:
        for _ in range(each.count):
            yield each.name, next(left[each.resource])
