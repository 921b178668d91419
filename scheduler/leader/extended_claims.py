"""Makes the claims of pods for extended resources that classes of devices stand for, and tells each pod which it has.

As kube-scheduler does: the claim is the pod's, is made before the pod is bound, and is deleted where the pod isn't.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from muster.kube import errors
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.model import device_classes, kinds
from muster.model.objects import DeviceClass, Pod, ResourceClaim
from scheduler.model import extended_resources
from scheduler.model.claims import DELETE_PROTECTION, ChosenDevices
from scheduler.model.extended_resources import ANNOTATION, PodRequests
from scheduler.model.pod_claims import ResourceClaimKey
from scheduler.model.tasks import Task

_LONGEST: Final = 200
"""Characters of a pod's name that its claim's begins with."""


class ExtendedClaimWriter:
    """The claims that this leader makes."""

    def __init__(self, client: Client, existing: ObjectCache[ResourceClaim], classes: ObjectCache[DeviceClass]) -> None:
        self._client, self._claims, self._classes = client, existing, classes

    async def make(self, choice: ChosenDevices, task: Task) -> ChosenDevices | None:
        """Make the claim that a choice stands for; return the choice as it is for that one, or nothing where that can't be.

        Raises:
            KubeError: the API server refused, or couldn't be reached.
        """
        classes = self._stood_for({resource for resource, _, _ in choice.devices})
        pod = await self._client.find(kinds.PODS, task.name, task.namespace)
        if pod is None or pod.metadata.uid != task.uid or classes is None:
            return None
        wanted = extended_resources.of_pod(pod.spec, classes)
        claim = await self._client.create(kinds.RESOURCECLAIMS, _manifest(pod, wanted, classes), task.namespace)
        await self._claims.reached(claim.metadata.resource_version)
        devices: dict[str, list[Any]] = {}
        for resource, device, _ in choice.devices:
            devices.setdefault(resource, []).append(device)
        shared = extended_resources.shared_out(wanted.requests, devices)
        key = ResourceClaimKey(claim.namespace, claim.name)
        return replace(
            choice, claim=key, uid=claim.metadata.uid, devices=tuple((name, each, False) for name, each in shared)
        )

    async def tell(self, claim: ResourceClaim, task: Task) -> None:
        """Write into a pod's status which claim it has, and which of its requests are for which container.

        Raises:
            KubeError: the API server refused, or couldn't be reached.
        """
        pod = await self._client.get(kinds.PODS, task.name, task.namespace)
        stated = {
            "requestMappings": [
                {"containerName": each.container, "resourceName": each.resource, "requestName": each.request}
                for each in _requests(pod, claim).mappings
            ],
            "resourceClaimName": claim.name,
        }
        change = {"metadata": {"uid": task.uid}, "status": {"extendedResourceClaimStatus": stated}}
        await self._client.patch(kinds.PODS, task.name, change, task.namespace, subresource="status")

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete the claim of a pod that isn't bound, and its devices with it.

        Raises:
            KubeError: the API server refused, or couldn't be reached.
        """
        left = [each for each in claim.metadata.finalizers or () if each != DELETE_PROTECTION]
        change = {"metadata": {"uid": claim.metadata.uid, "finalizers": left}}
        try:
            await self._client.patch(kinds.RESOURCECLAIMS, claim.name, change, claim.namespace)
            await self._client.delete(kinds.RESOURCECLAIMS, claim.name, claim.namespace, uid=claim.metadata.uid)
        except errors.NotFoundError:
            return

    def _stood_for(self, resources: set[str]) -> dict[str, str] | None:
        known = device_classes.of(self._classes.items())
        return {each: known[each] for each in resources} if resources <= known.keys() else None

    def of(self, task: Task) -> list[ResourceClaim]:
        """Return the claims that were made for a pod."""
        return [each for each in self._claims.items() if _owned_by(each, task.uid)]


def extended(claim: ResourceClaim) -> bool:
    """Whether a claim is for extended resources of its pod."""
    return claim.metadata.annotation(ANNOTATION) == "true"


def _owned_by(claim: ResourceClaim, uid: str) -> bool:
    owner = claim.metadata.controller() if extended(claim) else None
    return owner is not None and owner.uid == uid


def _requests(pod: Pod, claim: ResourceClaim) -> PodRequests:
    """Return what a claim is for: those of the pod's resources of which it has requests."""
    devices: Any = (claim.spec or {}).get("devices") or {}
    names = {each["name"] for each in devices.get("requests") or ()}
    found = [extended_resources.of_pod(pod.spec, [each]) for each in sorted(_resources(pod))]
    theirs = [each for each in found if each.requests and names.issuperset(one.name for one in each.requests)]
    return PodRequests(
        tuple(one for each in theirs for one in each.requests), tuple(one for each in theirs for one in each.mappings)
    )


def _resources(pod: Pod) -> set[str]:
    """Return the extended resources that a pod's containers request."""
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    stated = [each.resources.requests or {} for each in containers if each.resources is not None]
    return {name for requests in stated for name in requests if "/" in name}


def _manifest(pod: Pod, wanted: PodRequests, classes: dict[str, str]) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.metadata.uid, "controller": True}
    requests = [
        {
            "name": each.name,
            "exactly": {
                "deviceClassName": classes[each.resource],
                "allocationMode": "ExactCount",
                "count": each.count,
            },
        }
        for each in wanted.requests
    ]
    meta = {
        "generateName": f"{pod.name[:_LONGEST]}-extended-resources-",
        "annotations": {ANNOTATION: "true"},
        "ownerReferences": [owner],
    }
    return {"metadata": meta, "spec": {"devices": {"requests": requests}}}
