"""The effective request of a pod, from a node and from a quota.

Source: ``PodRequests`` of ``k8s.io/component-helpers/resource`` and the defaulting of requests from limits in
``pkg/apis/core/v1/defaults.go``. The API server defaults pods, never templates, so that step is repeated here; on a
pod that has been through it, it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from muster.model.amounts import NOTHING, Resources
from muster.model.objects import Container, Json, PodSpec, ResourceRequirements

_POD_LEVEL: Final = ("cpu", "memory")
_HUGEPAGES: Final = "hugepages-"


def pod_request(spec: PodSpec) -> Resources:
    """Return what a pod of this spec needs: cpu, memory, ephemeral-storage, extended resources, overhead included.

    The ``pods`` that a node or a quota counts aren't part of it. An amount of zero is listed where the spec lists it.

    Raises:
        QuantityError: an amount isn't a quantity; an API server admits no such pod.
    """
    request = _containers(spec, _container)
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


def _limits(container: Container) -> Resources:
    return Resources.parse(container.resources.limits) if container.resources is not None else NOTHING


def _containers(spec: PodSpec, of: Callable[[Container], Resources]) -> Resources:
    """Sum the containers and sidecars, or take a moment of initialisation that needs more."""
    request = NOTHING
    for container in spec.containers:
        request = _sum(request, of(container))
    sidecars, initial = NOTHING, NOTHING
    for container in spec.init_containers or ():
        mine = of(container)
        if container.restart_policy == "Always":
            request, sidecars = _sum(request, mine), _sum(sidecars, mine)
            initial = initial.maximum(sidecars)
        else:
            # It runs beside the sidecars that were started before it, not beside those after it.
            initial = initial.maximum(_sum(sidecars, mine))
    return request.maximum(initial) if initial.nano else request


def _container(container: Container) -> Resources:
    resources = container.resources
    if resources is None:
        return NOTHING
    return Resources.parse(_or_limits(resources.requests, resources.limits))


def _or_limits(requests: Mapping[str, Json] | None, limits: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
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


def _supported(amounts: Mapping[str, Json] | None) -> dict[str, Json]:
    return {
        name: amount for name, amount in (amounts or {}).items() if name in _POD_LEVEL or name.startswith(_HUGEPAGES)
    }


def _sum(first: Resources, second: Resources) -> Resources:
    # Most pods have one container: an addition of nothing is most of the work, and isn't done.
    if not first.nano:
        return second
    return first + second if second.nano else first
