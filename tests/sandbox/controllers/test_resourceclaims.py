"""Claims on devices: made from templates with their pods, and free again when nobody uses them any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muster.kube import errors

Cluster = Any
API = "resource.k8s.io/v1"
REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
RESULT = {"request": "gpu", "driver": "d.example.com", "pool": "n", "device": "d1"}
FINALIZER = "resource.kubernetes.io/delete-protection"


def pod(name: str, **reference: str) -> dict[str, Any]:
    spec = {
        "schedulerName": "somebody",
        "resourceClaims": [{"name": "gpu", **reference}],
        "containers": [{"name": "main", "image": "busybox"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def template() -> dict[str, Any]:
    stated = {"metadata": {"labels": {"app": "x"}}, "spec": REQUESTS}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": stated}


def claim(name: str) -> dict[str, Any]:
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": REQUESTS}


async def allocate(cluster: Cluster, name: str, *pods: dict[str, Any]) -> None:
    """Do as a scheduler does."""
    users = [{"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]} for each in pods]
    await cluster.patch("resourceclaims", name, {"metadata": {"finalizers": [FINALIZER]}})
    status = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": users}
    await cluster.patch("resourceclaims", name, {"status": status}, subresource="status")


async def test_a_pod_gets_a_claim_of_its_own_from_a_template(cluster: Cluster) -> None:
    await cluster.create(template())
    made = await cluster.create(pod("p", resourceClaimTemplateName="t"))
    await asyncio.sleep(1)
    (own,) = await cluster.list("resourceclaims", "default")
    assert own["metadata"]["name"].startswith("p-gpu-")
    assert own["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert own["metadata"]["labels"] == {"app": "x"}
    (owner,) = own["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (made["metadata"]["uid"], True)
    request = own["spec"]["devices"]["requests"][0]["exactly"]
    assert request == {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    status = (await cluster.get("pods", "p"))["status"]["resourceClaimStatuses"]
    assert status == [{"name": "gpu", "resourceClaimName": own["metadata"]["name"]}]


async def test_a_pod_waits_for_its_template_and_says_so(cluster: Cluster) -> None:
    await cluster.create(pod("p", resourceClaimTemplateName="t"))
    await asyncio.sleep(1)
    assert "FailedResourceClaimCreation" in {reason for reason, _ in await cluster.events("p")}
    await cluster.create(template())
    await asyncio.sleep(10)
    assert len(await cluster.list("resourceclaims", "default")) == 1


async def test_a_claim_of_a_pod_goes_with_it_though_it_has_devices(cluster: Cluster) -> None:
    await cluster.create(template())
    made = await cluster.create(pod("p", resourceClaimTemplateName="t"))
    await asyncio.sleep(1)
    (own,) = await cluster.names("resourceclaims")
    await allocate(cluster, own, made)
    await cluster.delete("pods", "p")
    await asyncio.sleep(60)
    assert await cluster.names("resourceclaims") == []


async def test_a_claim_of_a_pod_goes_when_that_has_ended(cluster: Cluster) -> None:
    await cluster.create(template())
    made = await cluster.create(pod("p", resourceClaimTemplateName="t"))
    await asyncio.sleep(1)
    (own,) = await cluster.names("resourceclaims")
    await allocate(cluster, own, made)
    await cluster.end("p")
    await asyncio.sleep(1)
    assert await cluster.names("resourceclaims") == []


async def test_a_shared_claim_keeps_its_devices_until_its_last_pod_has_ended(cluster: Cluster) -> None:
    await cluster.create(claim("shared"))
    pods = [await cluster.create(pod(name, resourceClaimName="shared")) for name in ("p1", "p2")]
    await allocate(cluster, "shared", *pods)
    await cluster.end("p1")
    await asyncio.sleep(1)
    status = (await cluster.get("resourceclaims", "shared"))["status"]
    assert [each["name"] for each in status["reservedFor"]] == ["p2"]
    assert status["allocation"]
    await cluster.end("p2")
    await asyncio.sleep(1)
    left = await cluster.get("resourceclaims", "shared")
    assert not left.get("status")
    assert not left["metadata"].get("finalizers")


async def test_a_claim_in_use_that_is_deleted_stays_until_its_pod_has_ended(cluster: Cluster) -> None:
    await cluster.create(claim("c"))
    made = await cluster.create(pod("p", resourceClaimName="c"))
    await allocate(cluster, "c", made)
    await cluster.delete("resourceclaims", "c")
    await asyncio.sleep(1)
    assert (await cluster.get("resourceclaims", "c"))["status"]["allocation"]
    await cluster.end("p")
    await asyncio.sleep(1)
    assert await cluster.get("resourceclaims", "c") is None


async def test_what_a_claim_requests_does_not_change(cluster: Cluster) -> None:
    await cluster.create(claim("c"))
    with pytest.raises(errors.InvalidError, match="field is immutable"):
        await cluster.patch("resourceclaims", "c", {"spec": {"devices": {"requests": None}}})
    with pytest.raises(errors.InvalidError, match="exactly one of"):
        await cluster.create(claim("d") | {"spec": {"devices": {"requests": [{"name": "gpu"}]}}})


async def test_a_claim_for_a_pod_s_extended_resources_goes_when_that_has_ended(cluster: Cluster) -> None:
    container = {"name": "main", "image": "busybox"}
    spec = {"schedulerName": "somebody", "containers": [container]}
    made = await cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    own, meta = claim("c"), made["metadata"]
    own["metadata"] |= {
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": meta["uid"], "controller": True},
        ],
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
    }
    await cluster.create(own)
    await allocate(cluster, "c", made)
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "gpu"}
    told = {"resourceClaimName": "c", "requestMappings": [mapping]}
    await cluster.patch("pods", "p", {"status": {"extendedResourceClaimStatus": told}}, subresource="status")
    await asyncio.sleep(1)
    assert await cluster.names("resourceclaims") == ["c"]
    await cluster.end("p")
    await asyncio.sleep(1)
    assert await cluster.names("resourceclaims") == []
