"""ResourceClaims on devices: a quota of them holds for those that are made for pods and for those that people make."""

from __future__ import annotations

from muster.ledger.reservations import CLAIM, ReservationRequest
from muster.model import device_quota, grouping, kinds, native_groups
from muster.model.objects import ResourceClaim
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Allowed, Verdict
from webhooks.view import AdmissionView


def validate(request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    """Ask the ledger for what a new claim takes; what it requests never changes.

    One that was made for a pod, or for a PodGroup of Kubernetes' own, may have of what that group reserved. Where the pod isn't seen
    yet, it counts outside.
    """
    claim = request.new(ResourceClaim)
    meta = claim.metadata
    group, owner = _group_of_native(claim, request.namespace, view), meta.controller()
    if owner is not None and (owner.api_version, owner.kind) == (kinds.PODS.api_version, kinds.PODS.name):
        pod = view.get(kinds.PODS, owner.name, request.namespace)
        if pod is not None and pod.metadata.uid == owner.uid:
            group = grouping.counted_with(pod.metadata, pod.spec.scheduler_name, settings.scheduler_names)
    amounts = device_quota.of_claim(claim.spec)
    place = (request.namespace, CLAIM, group, meta.name or request.name, meta.uid)
    reservation = ReservationRequest(*place, amounts)
    return Allowed(reservation=reservation) if reservation.asks else ALLOWED


def _group_of_native(claim: ResourceClaim, namespace: str, view: AdmissionView) -> str:
    """Return the group for whose native one a claim is made; empty where it is made for none.

    That of a Job says so itself, as soon as the scheduler has seen the native one.
    """
    native = native_groups.maker_of(claim)
    if not native:
        return ""
    groups = (each for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS) for each in view.items(kind, namespace))
    found = (each.name for each in groups if native_groups.claiming(each.metadata)[1] == native)
    return min(found, default=grouping.generated_name(native))
