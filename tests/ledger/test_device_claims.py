"""ResourceClaims as the ledger's views show them: each in the group of the pod that it was made for."""

from __future__ import annotations

from muster.kube.cache import ObjectCache
from muster.ledger.observer import Observer
from muster.ledger.view import CLAIM_SOURCE
from muster.model import kinds, names
from muster.model.objects import (
    Meta,
    OwnerReference,
    Pod,
    PodGroup,
    PodSpec,
    ResourceClaim,
    ResourceQuota,
    ResourceQuotaSpec,
)
from muster.model.objects.scheduling import PodGroupSpec

DEVICES = "gpu.deviceclass.resource.k8s.io/devices"


def pod(group: str, revision: int) -> Pod:
    meta = Meta(
        name="p", namespace="ns", uid="u-p", resource_version=str(revision), annotations={names.GROUP_NAME: group}
    )
    return Pod(metadata=meta, spec=PodSpec(scheduler_name="muster"))


def claim(name: str, revision: int, count: int, *, made_for: str = "", api_version: str = "v1") -> ResourceClaim:
    kind = "Pod" if api_version == "v1" else "PodGroup"
    owners = (OwnerReference(api_version=api_version, kind=kind, name="p", uid=made_for, controller=True),)
    meta = Meta(
        name=name,
        namespace="ns",
        uid=f"u-{name}",
        resource_version=str(revision),
        owner_references=owners if made_for else None,
    )
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return ResourceClaim(metadata=meta, spec={"devices": {"requests": [{"name": "r", "exactly": exactly}]}})


def observed() -> tuple[Observer, ObjectCache[Pod], ObjectCache[ResourceClaim]]:
    quotas, pods, claims = ObjectCache[ResourceQuota](), ObjectCache[Pod](), ObjectCache[ResourceClaim]()
    quota = Meta(name="q", namespace="ns", uid="u-q", resource_version="1")
    quotas.replace([ResourceQuota(metadata=quota, spec=ResourceQuotaSpec(hard={DEVICES: "4"}))], "1")
    pods.replace([], "1")
    claims.replace([], "1")
    return Observer({}, quotas, pods, claims, schedulers=("muster",)), pods, claims


def following_groups() -> tuple[Observer, ObjectCache[PodGroup], ObjectCache[ResourceClaim]]:
    quotas, pods, claims = ObjectCache[ResourceQuota](), ObjectCache[Pod](), ObjectCache[ResourceClaim]()
    groups = ObjectCache[PodGroup]()
    quota = Meta(name="q", namespace="ns", uid="u-q", resource_version="1")
    quotas.replace([ResourceQuota(metadata=quota, spec=ResourceQuotaSpec(hard={DEVICES: "4"}))], "1")
    for cache in (pods, claims, groups):
        cache.replace([], "1")
    return Observer({kinds.PODGROUPS: groups}, quotas, pods, claims, schedulers=("muster",)), groups, claims


def group_of_a_job(revision: int, native: str = "") -> PodGroup:
    noted = {names.SHARED_CLAIMS_OF: f"train/{native}"} if native else None
    meta = Meta(name="podgroup-j", namespace="ns", uid="u-g", resource_version=str(revision), annotations=noted)
    return PodGroup(metadata=meta, spec=PodGroupSpec(min_member=3, min_resources={DEVICES: "3"}))


def units(observer: Observer, group: str) -> int:
    return observer.view("ns").usage(group).units(DEVICES) if DEVICES in observer.view("ns").usage(group) else 0


def test_a_claim_is_in_the_group_of_its_pod_whichever_is_seen_first() -> None:
    observer, pods, claims = observed()
    claims.put(claim("c", 2, 3, made_for="u-p"))
    assert (units(observer, ""), units(observer, "gang")) == (3, 0)
    pods.put(pod("gang", 3))
    assert (units(observer, ""), units(observer, "gang")) == (0, 3)
    claims.put(claim("d", 4, 1, made_for="u-p"))
    assert units(observer, "gang") == 4
    assert observer.view("ns").revisions[CLAIM_SOURCE] == 4


def test_a_claim_stays_in_the_group_of_a_pod_that_is_gone_before_it() -> None:
    observer, pods, claims = observed()
    pods.put(pod("gang", 2))
    claims.put(claim("c", 3, 3, made_for="u-p"))
    pods.drop(pod("gang", 4))
    claims.put(claim("c", 5, 3, made_for="u-p"))
    assert (units(observer, ""), units(observer, "gang")) == (0, 3)
    claims.drop(claim("c", 6, 3, made_for="u-p"))
    assert units(observer, "gang") == 0


def test_a_claim_of_nobody_s_pod_counts_outside_groups() -> None:
    observer, pods, claims = observed()
    pods.put(pod("gang", 2))
    claims.put(claim("own", 3, 2))
    claims.put(claim("another", 4, 1, made_for="u-of-an-earlier-pod"))
    assert (units(observer, ""), units(observer, "gang")) == (3, 0)


def test_a_claim_of_a_native_group_is_in_the_group_that_stands_for_it() -> None:
    observer, _, claims = observed()
    claims.put(claim("c", 2, 3, made_for="u-n", api_version="scheduling.k8s.io/v1beta1"))
    assert (units(observer, ""), units(observer, "podgroup-u-n")) == (0, 3)
    claims.drop(claim("c", 3, 3, made_for="u-n", api_version="scheduling.k8s.io/v1beta1"))
    assert units(observer, "podgroup-u-n") == 0


def test_a_claim_of_a_job_s_native_group_is_in_the_job_s_group_as_long_as_that_says_so() -> None:
    observer, groups, claims = following_groups()
    groups.put(group_of_a_job(2))
    made = claim("c", 3, 3, made_for="u-n", api_version="scheduling.k8s.io/v1beta1")
    claims.put(made)
    assert (units(observer, "podgroup-u-n"), units(observer, "podgroup-j")) == (3, 0)
    groups.put(group_of_a_job(4, "u-n"))
    assert (units(observer, "podgroup-u-n"), units(observer, "podgroup-j")) == (0, 3)
    claims.put(claim("d", 5, 1, made_for="u-n", api_version="scheduling.k8s.io/v1beta1"))
    assert units(observer, "podgroup-j") == 4
    groups.put(group_of_a_job(6, "u-other"))
    assert (units(observer, "podgroup-u-n"), units(observer, "podgroup-j")) == (4, 0)
    groups.put(group_of_a_job(7, "u-n"))
    groups.drop(group_of_a_job(8, "u-n"))
    assert (units(observer, "podgroup-u-n"), units(observer, "podgroup-j")) == (4, 0)
