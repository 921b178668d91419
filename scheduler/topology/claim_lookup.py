"""The claims that pods mention, as far as there are any, and what is wrong with them wherever a pod would go."""

from __future__ import annotations

from scheduler.model.claims import ClaimState, Devices, supposed, template_of
from scheduler.model.constraints import Constraints
from scheduler.model.extended_resources import to_be_made
from scheduler.model.pod_claims import PodClaim, ResourceClaimKey
from scheduler.topology.extended_devices import ExtendedClaims


class ClaimLookup:
    """Finds the claims of one session."""

    def __init__(self, view: Devices, extended: ExtendedClaims) -> None:
        self._view, self._extended = view, extended
        self._supposed: dict[tuple[str, str], ClaimState] = {}

    @property
    def namespaces(self) -> set[str]:
        """The namespaces of claims that have no devices yet."""
        waiting = {each.key.namespace for each in self._view.claims.values() if each.has is None}
        return waiting | {each.key.namespace for each in self._supposed.values()} | self._extended.namespaces

    def claim(self, mentioned: PodClaim) -> ClaimState | None:
        """Return the claim that a pod mentions; None where there is none."""
        key = mentioned.claim or self._view.made.get((mentioned.maker, mentioned.name))
        if key is not None:
            return self._view.claims.get(key)
        return self._extended.claim(mentioned) or self._suppose(mentioned)

    def claims(self, demands: Constraints) -> list[ClaimState]:
        """Return the claims that pods of some demands use, each once."""
        found = {claim.key: claim for claim in map(self.claim, demands.devices) if claim is not None}
        return list(found.values())

    def wrong(self, mentioned: PodClaim) -> str:
        """Say why a claim can't be met wherever the pod would go; empty where it might."""
        if mentioned.native:
            return f"it isn't known yet which claims PodGroup {mentioned.native} of scheduling.k8s.io shares"
        claim = self.claim(mentioned)
        return self.fault(mentioned, claim) if claim is not None else self._missing(mentioned)

    def fault(self, mentioned: PodClaim, claim: ClaimState) -> str:
        """Say what is wrong with a claim as a pod mentions it; empty where nothing is."""
        if to_be_made(claim.key):
            return ""
        known = claim.key in self._view.claims
        if known and mentioned.maker and self._view.made.get((mentioned.maker, mentioned.name)) != claim.key:
            return f"ResourceClaim {claim.key} isn't the pod's own"
        if claim.going:
            return f"ResourceClaim {claim.key} is being deleted; create it anew"
        if claim.has is None and claim.wanted is None:
            return f"{title(claim.key)} has a {claim.unsupported}, which Muster doesn't evaluate"
        user = mentioned.group.uid if mentioned.group is not None else mentioned.maker
        return f"ResourceClaim {claim.key} is used by as many as may use it" if claim.full_for(user) else ""

    def _missing(self, mentioned: PodClaim) -> str:
        if mentioned.claim is not None:
            return f"ResourceClaim {mentioned.claim} doesn't exist; create it"
        template = ResourceClaimKey(mentioned.namespace, mentioned.template)
        if template not in self._view.templates:
            return f"ResourceClaimTemplate {template} doesn't exist; create it"
        whose = f"PodGroup {mentioned.group.name}" if mentioned.group is not None else "the pod"
        return (
            f"the ResourceClaim of template {mentioned.template} for {whose} isn't created yet;"
            " kube-controller-manager creates it"
        )

    def _suppose(self, mentioned: PodClaim) -> ClaimState | None:
        awaited = self._view.awaited
        template = self._view.templates.get(ResourceClaimKey(mentioned.namespace, mentioned.template))
        if awaited is None or mentioned.maker in awaited or template is None:
            return None
        place = mentioned.maker, mentioned.name
        if place not in self._supposed:
            self._supposed[place] = supposed(template, *place)
        return self._supposed[place]


def title(key: ResourceClaimKey) -> str:
    """Name a claim for people."""
    if to_be_made(key):
        return "the ResourceClaim for its extended resources"
    template = template_of(key)
    return f"a ResourceClaim of template {template}" if template else f"ResourceClaim {key}"
