"""The resource claims that a pod refers to."""

from __future__ import annotations

from typing import NamedTuple

from muster.model.objects import Meta, PodSpec


class ResourceClaimKey(NamedTuple):
    """Which ResourceClaim."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Write it as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class PodClaim(NamedTuple):
    """A claim that a pod uses: one that exists by name, or one that is made for the pod alone, from a template."""

    pod: str
    name: str
    claim: ResourceClaimKey | None
    template: str = ""


def of_pod(pod: Meta, spec: PodSpec) -> tuple[PodClaim, ...]:
    """List the claims that a pod uses, but for those of an unknown form."""
    found = []
    for each in spec.resource_claims or ():
        name, claim, template = (
            str(each.get(key) or "") for key in ("name", "resourceClaimName", "resourceClaimTemplateName")
        )
        if claim:
            found.append(PodClaim("", name, ResourceClaimKey(pod.namespace, claim)))
        elif template:
            found.append(PodClaim(pod.uid, name, None, template))
    return tuple(found)
