"""What claims on devices take of quotas, as Kubernetes counts it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec import structs

from muster.ledger.reservations import held
from muster.model import device_classes, device_quota
from muster.model.amounts import NANO, Resources
from muster.model.objects import (
    Container,
    DeviceClass,
    Meta,
    PodSpec,
    ResourceClaimTemplate,
    ResourceRequirements,
)
from muster.model.requests import pod_request


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


def by_all_names(**amounts):
    """As of classes that stand for a resource of their own, each called as the class."""
    names = ("{}.deviceclass.resource.k8s.io/devices", "requests.deviceclass.resource.kubernetes.io/{}")
    found = {each.format(name): str(amount) for name, amount in amounts.items() for each in names}
    return found | {f"requests.example.com/{RESOURCES[name]}": str(amount) for name, amount in amounts.items()}


RESOURCES = {"gpu": "gpu", "net": "nic"}


def _asking(*, initial=(), **amounts):
    def container(of):
        return Container(name="main", resources=ResourceRequirements(limits=of))

    return PodSpec(containers=(container(amounts),), init_containers=tuple(map(container, initial)) or None)


STOOD_FOR = {"example.com/gpu": "gpu", "deviceclass.resource.kubernetes.io/gpu": "gpu", "example.com/nic": "net"}


@pytest.mark.parametrize(
    ("pod", "taken"),
    [
        (_asking(**{"example.com/gpu": "2", "cpu": "4"}), by_all_names(gpu=2)),
        (_asking(**{"example.com/gpu": "2", "deviceclass.resource.kubernetes.io/gpu": "1"}), by_all_names(gpu=3)),
        (_asking(**{"example.com/nic": "1", "example.com/other": "7"}), by_all_names(net=1)),
        (_asking(initial=[{"example.com/gpu": "3"}], **{"example.com/gpu": "2"}), by_all_names(gpu=3)),
        (_asking(cpu="4"), {}),
    ],
    ids=["a resource", "two resources of one class", "others", "more while it is initialised", "none"],
)
def test_what_a_class_stands_for_counts_as_its_devices(pod, taken):
    assert device_quota.of_pod(pod, {}.get, lambda: STOOD_FOR).quantities() == taken
    assert device_quota.of_pod(pod, {}.get).quantities() == {}


def test_claims_count_once_more_by_the_resource_that_their_class_stands_for_and_no_node_needs_to_have_it():
    """As `addExtendedResourceQuota` of Kubernetes has it: what pods request themselves isn't counted twice."""
    templates = {"two": ResourceClaimTemplate(spec={"spec": {"devices": {"requests": [exactly(count=2)]}}})}
    claims = ({"name": "a", "resourceClaimTemplateName": "two"},)
    alone = PodSpec(resource_claims=claims)
    assert device_quota.of_pod(alone, templates.get, lambda: STOOD_FOR).quantities() == by_all_names(gpu=2)
    implicit = {"deviceclass.resource.kubernetes.io/gpu": "gpu"}
    assert device_quota.of_pod(alone, templates.get, lambda: implicit).quantities() == devices(gpu=2)
    both = structs.replace(_asking(**{"example.com/gpu": "1"}), resource_claims=claims)
    taken = device_quota.of_pod(both, templates.get, lambda: STOOD_FOR)
    assert taken.quantities() == by_all_names(gpu=3)
    stated = {**pod_request(both).quantities(), **taken.quantities()}
    on_nodes = [each for each in stated if not device_quota.for_quotas_alone(each, stated)]
    assert on_nodes == ["example.com/gpu"]
    assert not device_quota.for_quotas_alone("requests.example.com/gpu", {"requests.example.com/gpu": "1"})
    assert held(Resources.parse(stated))["example.com/gpu"] == 3 * NANO


def test_of_several_classes_for_a_resource_the_newest_stands_for_it():
    def made(name, created):
        meta = Meta(name=name, creation_timestamp=datetime(2026, 1, created, tzinfo=UTC))
        return DeviceClass(metadata=meta, spec={"extendedResourceName": "example.com/gpu"})

    found = device_classes.of([made("old", 1), made("new", 2), made("a", 1)])
    implicit = {f"deviceclass.resource.kubernetes.io/{name}": name for name in ("old", "new", "a")}
    assert found == {"example.com/gpu": "new", **implicit}
