"""What a PodGroup of Kubernetes' own says of the group that stands for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.model import device_quota, grouping, kinds, names, native_groups
from muster.model.objects import (
    Container,
    Meta,
    NativePodGroup,
    OwnerReference,
    PodSpec,
    ResourceClaim,
    ResourceClaimTemplate,
)
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
    assert "spec.schedulingConstraints.topology is not evaluated" in native_groups.not_evaluated(one, of_job=True)


def test_without_a_constraint_its_pods_may_be_anywhere():
    assert grouping.network_topology(native_groups.described(native()))[0] is None
    assert grouping.network_topology(native_groups.described(native(schedulingConstraints={})))[0] is None


def test_the_claims_that_it_shares_are_on_the_group_that_stands_for_it():
    claims = [{"name": "gpus", "resourceClaimTemplateName": "t"}, {"name": "net", "resourceClaimName": "n"}]
    noted = native_groups.noted(native(resourceClaims=claims))
    assert list(native_groups.claims_of(Meta(annotations=noted))) == claims
    assert native_groups.noted(native()) == {}
    assert native_groups.not_evaluated(native(resourceClaims=claims)) == ""
    of_job = native_groups.not_evaluated(native(resourceClaims=claims), of_job=True)
    assert "spec.resourceClaims is not evaluated" in of_job


@pytest.mark.parametrize("written", ["", "[", "{}", '["gpus"]', "1" * 5000, "[" * 5000])
def test_what_is_no_list_of_claims_shares_none(written):
    assert native_groups.claims_of(Meta(annotations={names.SHARED_CLAIMS: written})) == ()


def test_a_claim_of_its_own_is_in_the_group_that_stands_for_it():
    def of(api_version, kind="PodGroup", *, controller=True):
        owner = OwnerReference(api_version=api_version, kind=kind, name="workers", uid="u", controller=controller)
        return native_groups.group_of_claim(ResourceClaim(metadata=Meta(owner_references=(owner,))))

    assert of("scheduling.k8s.io/v1beta1") == of("scheduling.k8s.io/v1") == grouping.generated_name("u")
    assert of("scheduling.volcano.sh/v1beta1") == of("v1", "Pod") == of("scheduling.k8s.io/v1", controller=False) == ""


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
