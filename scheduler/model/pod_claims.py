"""The resource claims that a pod refers to, and those that a PodGroup of Kubernetes' own shares among its pods.

Source: ``staging/src/k8s.io/dynamic-resource-allocation/resourceclaim`` of Kubernetes (`BindTo`).
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from muster.model import grouping
from muster.model.objects import Meta, PodSpec


class ResourceClaimKey(NamedTuple):
    """Which ResourceClaim."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Write it as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class ClaimingGroup(NamedTuple):
    """A PodGroup of Kubernetes' own for which claims are reserved, instead of for each of its pods."""

    name: str
    uid: str


class PodClaim(NamedTuple):
    """A claim that a pod uses: one that exists by name, or one that is made from a template.

    Attributes:
        maker: the uid of the pod that it is made for, or of the group; empty where it exists by name.
        namespace: where its template is.
        group: for whom it is reserved; None where that is the pod.
        native: the PodGroup of Kubernetes' own that the pod names, until it is known which claims that shares.
    """

    maker: str
    name: str
    claim: ResourceClaimKey | None
    template: str = ""
    namespace: str = ""
    group: ClaimingGroup | None = None
    native: str = ""

    @property
    def own(self) -> bool:
        """Whether it is made for the pod alone."""
        return self.claim is None and self.group is None and not self.native


class SharedClaims(Struct, frozen=True):
    """The claims of a PodGroup of Kubernetes' own: (name, name of the claim, name of the template) of each."""

    group: ClaimingGroup
    claims: frozenset[tuple[str, ...]]

    def resolve(self, mentioned: PodClaim) -> PodClaim:
        """Return the group's claim where a pod means that, which is so if all of both is the same; else the pod's.

        Of a pod that names another group it isn't known what it means.
        """
        if mentioned.native and mentioned.native != self.group.name:
            return mentioned
        stated = (mentioned.name, mentioned.claim.name if mentioned.claim is not None else "", mentioned.template)
        if stated not in self.claims:
            return mentioned._replace(native="")
        maker = self.group.uid if mentioned.template else ""
        return mentioned._replace(maker=maker, group=self.group, native="")


def of_pod(pod: Meta, spec: PodSpec) -> tuple[PodClaim, ...]:
    """List the claims that a pod uses, but for those of an unknown form."""
    found, native = [], grouping.native_group(spec.scheduling_group)
    for each in spec.resource_claims or ():
        name, claim, template = (
            str(each.get(key) or "") for key in ("name", "resourceClaimName", "resourceClaimTemplateName")
        )
        if claim:
            found.append(PodClaim("", name, ResourceClaimKey(pod.namespace, claim), native=native))
        elif template:
            found.append(PodClaim(pod.uid, name, None, template, pod.namespace, native=native))
    return tuple(found)
