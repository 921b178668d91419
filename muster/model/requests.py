"""The effective request of a pod, from a node and from a quota.

Source: ``PodRequests`` of ``k8s.io/component-helpers/resource`` and the defaulting of requests from limits in
``pkg/apis/core/v1/defaults.go``. The API server defaults pods, never templates, so that step is repeated here; on a
pod that has been through it, it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from muster.model.amounts import Resources
from muster.model.objects import Container, Json, PodSpec, ResourceRequirements

Quantities = Mapping[str, Json] | None
"""A ResourceList as written."""

_POD_LEVEL: Final = ("cpu", "memory")
_HUGEPAGES: Final = "hugepages-"


def pod_request(spec: PodSpec) -> Resources:
    """Return what a pod of this spec needs: cpu, memory, ephemeral-storage, extended resources, overhead included.

    The ``pods`` that a node or a quota counts aren't part of it. An amount of zero is listed where the spec lists it.

    Raises:
        QuantityError: an amount isn't a quantity; an API server admits no such pod.
    """
    request = _containers(spec, _requests)
    if spec.resources is not None:
        request = _pod_level(spec.resources, request)
    if spec.overhead:
        request += Resources.parse(spec.overhead)
    return request


def pod_limits(spec: PodSpec) -> Resources:
    """Return what a pod of this spec may use at most, as a quota's ``limits.*`` count it; where nothing is said, nothing.

    Raises:
        QuantityError: an amount isn't a quantity.
    """
    limits = _containers(spec, _limits)
    if spec.resources is not None and spec.resources.limits:
        limits = Resources({**limits.nano, **Resources.parse(_supported(spec.resources.limits)).nano})
    if spec.overhead and limits.nano:
        # Without a limit of its own the pod stays without one.
        limits += Resources.parse(spec.overhead).only(limits)
    return limits


def _containers(spec: PodSpec, of: Callable[[Container], Quantities]) -> Resources:
    """Sum the containers and sidecars, or take a moment of initialisation that needs more."""
    request = Resources.total_of(map(of, spec.containers or ()))
    return _with_initialisation(request, spec.init_containers, of) if spec.init_containers else request


def _with_initialisation(
    containers: Resources, init_containers: Iterable[Container], of: Callable[[Container], Quantities]
) -> Resources:
    """Add the sidecars, or take a moment of initialisation that needs more.

    Name by name, and in place: a tenant's pod may have thousands of containers with names of their own.
    """
    request, sidecars, initial = dict(containers.nano), dict[str, int](), dict[str, int]()
    for container in init_containers:
        stays = container.restart_policy == "Always"
        for name, amount in Resources.parse(of(container)).nano.items():
            # It runs beside the sidecars that were started before it, not beside those after it.
            beside = sidecars.get(name, 0) + amount
            initial[name] = max(initial.get(name, 0), beside)
            if stays:
                sidecars[name] = beside
                request[name] = request.get(name, 0) + amount
    return Resources(request).maximum(Resources(initial)) if initial else Resources(request)


def _requests(container: Container) -> Quantities:
    resources = container.resources
    return _or_limits(resources.requests, resources.limits) if resources is not None else None


def _limits(container: Container) -> Quantities:
    return container.resources.limits if container.resources is not None else None


def _or_limits(requests: Quantities, limits: Quantities) -> Quantities:
    if limits and requests:
        return {**limits, **requests}
    return requests or limits


def _pod_level(resources: ResourceRequirements, containers: Resources) -> Resources:
    """Let the pod's own requests stand for those of its containers, resource by resource."""
    own = dict(Resources.parse(_supported(resources.requests)).nano)
    for name, limit in Resources.parse(_supported(resources.limits)).nano.items():
        # Of an overcommittable resource the containers' sum is the default, else the pod's limit.
        if name not in own and not (name in containers and name in _POD_LEVEL):
            own[name] = limit
    return Resources({**containers.nano, **own})


def _supported(amounts: Quantities) -> dict[str, Json]:
    return {
        name: amount for name, amount in (amounts or {}).items() if name in _POD_LEVEL or name.startswith(_HUGEPAGES)
    }
