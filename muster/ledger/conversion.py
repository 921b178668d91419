"""PodGroups, Pods, ResourceClaims and ResourceQuotas as a view of the ledger shows them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

import msgspec

from muster.ledger.namespace_view import NamespaceView, Tombstones
from muster.ledger.reservations import held, holding, reserving, stated_minimum, taken_by, waits_for_quota
from muster.ledger.view import CLAIM_SOURCE, ObservedGroup, ObservedPod, ObservedQuota
from muster.model import device_quota, grouping, names, native_groups, scopes, tenant_texts, versions
from muster.model.amounts import NOTHING, QuantityError, Resources
from muster.model.objects import Pod, PodGroup, ResourceClaim, ResourceQuota

_LONGEST_KEPT: Final = 2048
"""Bytes of a list of resources that is remembered, with what it comes to."""


def limits_of(quota: ResourceQuota) -> Resources:
    """Return what a quota limits, by names that tell its scopes."""
    return scopes.scoped(readable(quota.spec.hard), scopes.scope_set(quota.spec))


def readable(amounts: Mapping[str, object] | None) -> Resources:
    """Return the amounts that can be read; the others hold and limit nothing, as with the API server's own controllers.

    Only for what is stored already: admission refuses a malformed amount, naming it.
    """
    nano: dict[str, int] = {}
    for name, amount in (amounts or {}).items():
        if tenant_texts.is_resource(name):
            with suppress(QuantityError):
                nano |= Resources.parse({name: amount}).nano
    return Resources(nano)


def view_of_lists(
    groups: Mapping[str, Iterable[PodGroup]],
    quotas: Iterable[ResourceQuota],
    pods: Iterable[Pod],
    schedulers: Collection[str] | None = None,
    claims: Iterable[ResourceClaim] = (),
) -> NamespaceView:
    """Return a view of one namespace made of lists, for who looks on; it knows nothing of revisions.

    ``groups`` are by API group; ``schedulers`` as in `member_of`.
    """
    view = NamespaceView({}, Tombstones())
    for quota in quotas:
        view.put_quota(observed_quota(quota))
    shown = {}
    for pod in pods:
        shown[pod.metadata.uid] = observed_pod(pod, schedulers=schedulers)
        view.put_pod(shown[pod.metadata.uid])
    for group, items in groups.items():
        for item in items:
            view.put(observed_group(group, item, 0))
    for claim in claims:
        view.put_pod(observed_claim(claim, shown.get(pod_of(claim)), view.standing_for(maker_of(claim))))
    return view


def observed_group(group: str, item: PodGroup, absent_at: int) -> ObservedGroup:
    """Return a PodGroup of an API group as a view shows it; see `ObservedGroup` for ``absent_at``."""
    stated = stated_minimum(item)
    wanted = waits_for_quota(item)
    amounts = holding(item, _minimum_of(stated)) if stated and reserving(item) else NOTHING
    meta = item.metadata
    scope_facts = tenant_texts.traits(meta.annotation(names.POD_TRAITS))
    return ObservedGroup(
        group,
        meta.name,
        meta.uid,
        versions.number(meta.resource_version),
        amounts,
        absent_at,
        scope_facts,
        holding(item, held(wanted)) if wanted is not None else NOTHING,
        native_groups.claiming(meta)[1] if meta.annotation(names.SHARED_CLAIMS_OF) else "",
    )


def _minimum_of(stated: Mapping[str, object]) -> Resources:
    written = msgspec.json.encode(stated)
    return _minimum(written) if len(written) <= _LONGEST_KEPT else held(readable(stated))


@lru_cache(maxsize=4096)
def _minimum(written: bytes) -> Resources:
    """Read what groups alike ask for, in JSON, once: it is looked at again whenever the status of one comes back."""
    return held(readable(msgspec.json.decode(written)))


def observed_pod(pod: Pod, amounts: Resources | None = None, schedulers: Collection[str] | None = None) -> ObservedPod:
    """Return a Pod as a view shows it; ``amounts`` where it is known what it takes, ``schedulers`` as in `counted_with`."""
    if amounts is None:
        try:
            amounts = taken_by(pod)
        except QuantityError:
            amounts = NOTHING
    meta = pod.metadata
    version = versions.number(meta.resource_version)
    group = grouping.counted_with(meta, pod.spec.scheduler_name, schedulers)
    gone_by = meta.deletion_timestamp.timestamp() if meta.deletion_timestamp is not None else 0.0
    return ObservedPod(meta.uid, group, version, amounts, scopes.scope_facts(pod.spec), gone_by)


def pod_of(claim: ResourceClaim) -> str:
    """Return the uid of the pod that a claim was made for; empty where it was made for none."""
    owner = claim.metadata.controller()
    return owner.uid if owner is not None and (owner.api_version, owner.kind) == ("v1", "Pod") else ""


def maker_of(claim: ResourceClaim) -> str:
    """Return the uid of the pod, or of the PodGroup of Kubernetes' own, that a claim was made for; empty where it was made for none."""
    return pod_of(claim) or native_groups.maker_of(claim)


def observed_claim(claim: ResourceClaim, pod: ObservedPod | None, standing: str = "") -> ObservedPod:
    """Return a ResourceClaim as a view shows it: with the group of the pod that it was made for, as far as that is known.

    One that was made for a PodGroup of Kubernetes' own is in the group that stands for it, which is ``standing`` where a group says so.
    """
    meta, native = claim.metadata, native_groups.maker_of(claim)
    group = pod.group if pod is not None else ""
    if native:
        group = standing or grouping.generated_name(native)
    return ObservedPod(
        meta.uid,
        group,
        versions.number(meta.resource_version),
        device_quota.of_claim(claim.spec),
        place=CLAIM_SOURCE,
    )


def observed_quota(quota: ResourceQuota, limits: Resources | None = None) -> ObservedQuota:
    """Return a ResourceQuota as a view shows it; ``limits`` where it is known what it limits."""
    meta = quota.metadata
    hard = limits if limits is not None else limits_of(quota)
    return ObservedQuota(meta.name, meta.uid, versions.number(meta.resource_version), hard)


def takes_the_same(old: Pod, new: Pod) -> bool:
    """Whether two versions of a pod take the same of quotas."""
    # Most changes of a pod are of its conditions, and adding up what it asks for is most of the work.
    return old.metadata.uid == new.metadata.uid and (old.spec, old.status.phase) == (new.spec, new.status.phase)
