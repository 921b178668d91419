"""What a PodGroup of Kubernetes' own says of the group that stands for it."""

from __future__ import annotations

from typing import Any

import msgspec

from muster.model import grouping, kinds, native_groups
from muster.model.objects import NativePodGroup


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
