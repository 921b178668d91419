"""What claims on devices take of quotas, as Kubernetes counts it."""

from __future__ import annotations

import pytest

from muster.model import device_quota
from muster.model.objects import PodSpec, ResourceClaimTemplate


def exactly(name="gpu", **more):
    return {"exactly": {"deviceClassName": name, **more}}


def alternatives(*parts):
    return {"firstAvailable": [{"name": f"p{number}", **part["exactly"]} for number, part in enumerate(parts)]}


def counted(*requests):
    spec = {"devices": {"requests": list(requests)}}
    return device_quota.of_claim(spec).quantities()


def devices(**counts):
    return {f"{name}.deviceclass.resource.k8s.io/devices": str(count) for name, count in counts.items()}


@pytest.mark.parametrize(
    ("requests", "taken"),
    [
        ([], {}),
        ([exactly()], devices(gpu=1)),
        ([exactly(allocationMode="ExactCount", count=3), exactly(count=2), exactly("nic")], devices(gpu=5, nic=1)),
        ([exactly(allocationMode="All")], devices(gpu=32)),
        ([exactly(allocationMode="Some", count=3)], {}),
        ([alternatives(exactly(count=1), exactly(count=4), exactly("mig", count=2)), exactly()], devices(gpu=5, mig=2)),
        ([alternatives(exactly(allocationMode="All"), exactly(count=4))], devices(gpu=32)),
        ([{"future": {}}, "odd", {"exactly": None}], {}),
    ],
    ids=["none", "one", "sums", "all", "an unknown mode", "alternatives", "all of alternatives", "unknown forms"],
)
def test_the_most_that_a_claim_may_get_counts(requests, taken):
    assert counted(*requests) == taken


def test_the_claims_of_a_pod_are_counted_by_their_templates():
    spec = {"spec": {"devices": {"requests": [exactly(count=2)]}}}
    templates = {"two": ResourceClaimTemplate(spec=spec)}
    refs = [("a", "two"), ("b", "two"), ("c", "none")]
    claims = [{"name": name, "resourceClaimTemplateName": template} for name, template in refs]
    pod = PodSpec(resource_claims=(*claims, {"name": "d", "resourceClaimName": "shared"}))
    assert device_quota.of_pod(pod, templates.get).quantities() == devices(gpu=4)
