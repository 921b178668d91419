"""What a PodGroup of Kubernetes' own says of the group that stands for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.model import device_quota, grouping, kinds, names, native_groups
from muster.model.gangs import gang_of_job
from muster.model.objects import (
    Container,
    Job,
    JobSpec,
    Meta,
    NativePodGroup,
    OwnerReference,
    PodSpec,
    PodTemplate,
    ResourceClaim,
    ResourceClaimTemplate,
)
from muster.model.objects.workloads import JobScheduling
from scheduler.controllers import manifests


def native(**spec: Any) -> NativePodGroup:
    body = {"metadata": {"name": "workers", "namespace": "ns", "uid": "u"}, "spec": spec}
    return msgspec.convert(body, kinds.NATIVE_PODGROUPS.struct)


def test_the_key_of_its_constraint_is_the_tier_of_its_group():
    group = native(schedulingConstraints={"topology": [{"key": "example.com/rack"}]})
    assert native_groups.not_evaluated(group) == ""
    asked, warning = grouping.network_topology(native_groups.described(group))
    assert (asked, warning) == ({"mode": "hard", "highestTierName": "example.com/rack"}, "")


def test_the_longest_key_is_taken():
    key = f"{'a' * 253}/{'b' * 63}"
    asked, warning = grouping.network_topology(
        native_groups.described(native(schedulingConstraints={"topology": [{"key": key}]}))
    )
    assert (asked, warning) == ({"mode": "hard", "highestTierName": key}, "")


def test_several_keys_are_not_evaluated_and_no_key_where_its_job_has_the_group():
    several = native(schedulingConstraints={"topology": [{"key": "rack"}, {"key": "zone"}]})
    assert "spec.schedulingConstraints.topology is not evaluated" in native_groups.not_evaluated(several)
    one = native(schedulingConstraints={"topology": [{"key": "rack"}]})
    said = native_groups.not_evaluated(one, of_job=True)
    assert "spec.schedulingConstraints.topology is not evaluated, and its pods are placed as its Job" in said


def test_without_a_constraint_its_pods_may_be_anywhere():
    assert grouping.network_topology(native_groups.described(native()))[0] is None
    assert grouping.network_topology(native_groups.described(native(schedulingConstraints={})))[0] is None


def test_the_claims_that_it_shares_are_on_the_group_that_stands_for_it():
    claims = [{"name": "gpus", "resourceClaimTemplateName": "t"}, {"name": "net", "resourceClaimName": "n"}]
    noted = native_groups.noted(native(resourceClaims=claims))
    assert list(native_groups.claims_of(Meta(annotations=noted))) == claims
    assert native_groups.noted(native()) == {}
    assert native_groups.not_evaluated(native(resourceClaims=claims)) == ""
    assert native_groups.not_evaluated(native(resourceClaims=claims), of_job=True) == ""


@pytest.mark.parametrize("written", ["", "[", "{}", '["gpus"]', "1" * 5000, "[" * 5000])
def test_what_is_no_list_of_claims_shares_none(written):
    assert native_groups.claims_of(Meta(annotations={names.SHARED_CLAIMS: written})) == ()


def test_a_claim_of_its_own_is_told_by_its_controller():
    def of(api_version, kind="PodGroup", *, controller=True):
        owner = OwnerReference(api_version=api_version, kind=kind, name="workers", uid="u", controller=controller)
        return native_groups.maker_of(ResourceClaim(metadata=Meta(owner_references=(owner,))))

    assert of("scheduling.k8s.io/v1beta1") == of("scheduling.k8s.io/v1") == "u"
    assert of("scheduling.volcano.sh/v1beta1") == of("v1", "Pod") == of("scheduling.k8s.io/v1", controller=False) == ""


def test_whose_claims_a_group_shares_its_owner_says_or_an_annotation():
    owner = OwnerReference(api_version="scheduling.k8s.io/v1beta1", kind="PodGroup", name="n", uid="u", controller=True)
    assert native_groups.claiming(Meta(owner_references=(owner,))) == ("n", "u")
    noted = native_groups.noted_claims(native(resourceClaims=[{"name": "gpus", "resourceClaimName": "c"}]))
    assert native_groups.claiming(Meta(annotations=noted)) == ("workers", "u")
    for odd in ("", "/", "workers", "workers/", "/u"):
        assert native_groups.claiming(Meta(annotations={names.SHARED_CLAIMS_OF: odd})) == ("", "")


SHARED = {"name": "gpus", "resourceClaimTemplateName": "eight"}


def job(*, controlled: bool = False, named: bool = False) -> Job:
    owner = OwnerReference(api_version="v1", kind="Other", name="o", uid="o", controller=True)
    claims = (SHARED, {"name": "own", "resourceClaimTemplateName": "one"})
    group = {"podGroupName": "mine"} if named else None
    template = PodTemplate(
        spec=PodSpec(containers=(Container(name="main"),), resource_claims=claims, scheduling_group=group)
    )
    meta = Meta(name="train", namespace="ns", uid="j", owner_references=(owner,) if controlled else None)
    return Job(
        metadata=meta,
        spec=JobSpec(parallelism=3, template=template, scheduling=JobScheduling(resource_claims=(SHARED,))),
    )


def test_a_job_s_pods_share_claims_where_kubernetes_makes_a_group_for_it():
    assert native_groups.shared_by_job(job()) == (SHARED,)
    assert native_groups.shared_by_job(job(controlled=True)) == native_groups.shared_by_job(job(named=True)) == ()
    assert native_groups.claiming(Meta(annotations=native_groups.noted_of_job(job()))) == ("train", "j-native")
    assert native_groups.noted_of_job(job(named=True)) == {}


def test_what_a_job_s_pods_share_counts_once():
    devices = device_quota.need_by({"eight": _template(8), "one": _template(1)}.get, dict)
    assert gang_of_job(job()).need(3, devices).quantities()["gpu.deviceclass.resource.k8s.io/devices"] == "11"
    assert gang_of_job(job(named=True)).need(3, devices).units("gpu.deviceclass.resource.k8s.io/devices") == 27


def test_what_its_pods_share_counts_once():
    shared = {"name": "gpus", "resourceClaimTemplateName": "eight"}
    own = {"name": "own", "resourceClaimTemplateName": "one"}
    spec = PodSpec(containers=(Container(name="main"),), resource_claims=(shared, own))
    group = native(schedulingPolicy={"gang": {"minCount": 3}}, resourceClaims=[shared])
    devices = device_quota.need_by({"eight": _template(8), "one": _template(1)}.get, dict)
    body = manifests.of_native(group, [spec], (), devices)
    assert body["spec"]["minResources"]["gpu.deviceclass.resource.k8s.io/devices"] == "11"


def _template(count):
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
    return ResourceClaimTemplate(spec={"spec": {"devices": {"requests": [request]}}})
