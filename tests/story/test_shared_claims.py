"""Claims that a PodGroup of Kubernetes' own shares among its pods, on a control plane of 1.37 with its feature gates and a driver's slices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import binaries
import pytest
from both_kinds import GATES, NATIVE, NODE, OURS, Cluster, built, native, up
from controlplane import ControlPlane

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("native groups")]
CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: NAME}
spec: {selectors: [{cel: {expression: "device.driver == 'NAME.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpus}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: NAME, allocationMode: ExactCount, count: 2}}]}}}
"""
SLICE = """
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: CLASS-NODE}
spec:
  driver: CLASS.example.com
  nodeName: NODE
  pool: {name: NODE, generation: 1, resourceSliceCount: 1}
  devices: [{name: d1}, {name: d2}]
"""
QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: devices}
spec: {hard: {RESOURCE: "HARD"}}
"""
OTHER = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: other}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: NAME, count: COUNT}}]}}
"""
PLAIN = "  containers: [{name: main, image: busybox, resources: {"
CLAIMING = "  resourceClaims: [{name: gpus, CLAIM}]\n  containers: [{name: main, image: busybox, resources: {claims: [{name: gpus}], "
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: NAME, annotations: {scheduling.k8s.io/group-min-member: "MEMBERS"}}
spec:
  parallelism: MEMBERS
  completions: MEMBERS
  scheduling:
    schedulingPolicy: {gang: {}}
    resourceClaims: [{name: gpus, CLAIM}]
  template:
    metadata: {annotations: {sandbox.muster.sh/run-seconds: "3600"}}
    spec:
      schedulerName: muster
      restartPolicy: Never
      tolerations: [{operator: Exists}]
      resourceClaims: [{name: gpus, CLAIM}]
      containers: [{name: main, image: busybox, resources: {claims: [{name: gpus}], requests: {cpu: 1}}}]
"""
OF_TEMPLATE, BY_NAME = "resourceClaimTemplateName: gpus", "resourceClaimName: other"
SHARED = ", resourceClaims: [{name: gpus, resourceClaimTemplateName: gpus}]"


@pytest.fixture(scope="module")
def serving() -> Iterator[Path]:
    """`muster up` on a control plane that serves native groups with claims."""
    built(binaries.VERSION)
    with ControlPlane(gates=GATES) as plane, up(plane) as config:
        yield config


@pytest.fixture
def cluster(serving: Path) -> Iterator[Cluster]:
    """A namespace of the test's own, with a class of devices by its name, of which node `native` has two."""
    cluster = Cluster(serving)
    cluster.apply(
        (CLASS + SLICE).replace("NAME", cluster.namespace).replace("CLASS", cluster.namespace).replace("NODE", "native")
    )
    yield cluster
    cluster.clear()
    for kind in ("resourceslices", "deviceclasses"):
        names = cluster.run("get", kind, "-o", "name").stdout.split()
        cluster.run("delete", *[each for each in names if f"/{cluster.namespace}" in each], "--wait=false")


def text_of(pods: Iterable[int], shared: str = SHARED, claim: str = "resourceClaimTemplateName: gpus") -> str:
    """Write a native group and its pods, each of which uses the claim."""
    numbers = list(pods)
    text = native(f"{{gang: {{minCount: {len(numbers)}}}}}", numbers, spec=shared)
    return text.replace(PLAIN, CLAIMING.replace("CLAIM", claim))


def claims(cluster: Cluster) -> list[Any]:
    found: list[Any] = cluster.get("resourceclaims")["items"]
    return found


def devices(claim: Any) -> list[str]:
    return sorted(each["device"] for each in claim["status"]["allocation"]["devices"]["results"])


def test_its_claim_is_allocated_once_and_reserved_for_the_group_until_that_is_gone(cluster: Cluster) -> None:
    cluster.apply(text_of(range(3)))
    cluster.condition("True")
    assert cluster.placed() == 3
    (claim,) = claims(cluster)
    meta = cluster.get(NATIVE, "workers")["metadata"]
    (user,) = claim["status"]["reservedFor"]
    assert user == {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "workers", "uid": meta["uid"]}
    assert [each["uid"] for each in claim["metadata"]["ownerReferences"]] == [meta["uid"]]
    assert devices(claim) == ["d1", "d2"]
    assert {each["spec"]["nodeName"] for each in cluster.get("pods")["items"]} == {"native"}
    # Its pods end, and it stays the group's; once the group is gone, kube-controller-manager takes the devices back.
    cluster.run("delete", "pods", "--all", "--force", "--grace-period=0")
    assert devices(claims(cluster)[0]) == ["d1", "d2"]
    cluster.run("delete", NATIVE, "workers")
    cluster.until("resourceclaims", "", lambda found: not found["items"])


def test_a_claim_that_it_names_is_given_back_by_the_last_group(cluster: Cluster) -> None:
    cluster.apply(OTHER.replace("NAME", cluster.namespace).replace("COUNT", "1"))
    cluster.apply(
        text_of(range(2), ", resourceClaims: [{name: gpus, resourceClaimName: other}]", "resourceClaimName: other")
    )
    cluster.condition("True")
    (claim,) = claims(cluster)
    assert [each["resource"] for each in claim["status"]["reservedFor"]] == ["podgroups"]
    cluster.run("delete", "pods", "--all", "--force", "--grace-period=0")
    cluster.run("delete", NATIVE, "workers")
    cluster.until("resourceclaims", "other", lambda found: not found.get("status", {}).get("allocation"))


def test_two_groups_do_not_share_and_the_second_waits_and_is_told_why(cluster: Cluster) -> None:
    cluster.apply(text_of(range(2)))
    cluster.condition("True")
    first = cluster.get(NATIVE, "workers")["metadata"]["uid"]
    cluster.apply(text_of([8, 9]).replace("workers", "late"))
    words = f"2 pods share a claim for 2 devices of class {cluster.namespace}, of which there are 2, 0 of them free"

    def told(found: Any) -> Any:
        return any(words in each["message"] for each in found.get("status", {}).get("conditions", []))

    cluster.until(NATIVE, "late", told)
    assert words in " ".join(cluster.muster("podgroup", "why", "late").split())
    assert cluster.placed() == 2
    cluster.run("delete", "pods", "w-0", "w-1", "--force", "--grace-period=0")
    cluster.run("delete", NATIVE, "workers")
    cluster.until("pods", "", lambda found: all("nodeName" in each["spec"] for each in found["items"]))
    (claim,) = cluster.until("resourceclaims", "", lambda found: len(found["items"]) == 1)["items"]
    assert claim["status"]["reservedFor"][0]["uid"] != first


def test_the_quota_of_devices_counts_it_once(cluster: Cluster) -> None:
    resource = f"{cluster.namespace}.deviceclass.resource.k8s.io/devices"
    cluster.run("label", "namespace", cluster.namespace, "muster.sh/quota=guarded")
    cluster.apply(QUOTA.replace("RESOURCE", resource).replace("HARD", "2"))
    cluster.apply(text_of(range(3)))
    cluster.condition("True")
    (ours,) = cluster.get(OURS)["items"]
    assert ours["spec"]["minResources"][resource] == "2"
    row = [resource, "2", "2", "0", "0"]
    assert row in [line.split()[1:] for line in cluster.muster("quota", "view").splitlines()]
    other = OTHER.replace("NAME", cluster.namespace).replace("COUNT", "1")
    refused = cluster.run("apply", "-f", "-", stdin=other)
    assert f"has 2 {resource} hard, 2 reserved (PodGroup workers 2), so none is free: short by 1" in refused.stdout


def test_the_devices_of_a_group_whose_node_is_gone_are_given_back_and_others_chosen(cluster: Cluster) -> None:
    second = f"{cluster.namespace}-second"
    cluster.apply(NODE.replace("native", second))
    try:
        cluster.run("delete", "resourceslice", f"{cluster.namespace}-native")
        cluster.apply(SLICE.replace("CLASS", cluster.namespace).replace("NODE", second))
        cluster.apply(text_of(range(2)))
        cluster.condition("True")
        assert {each["spec"]["nodeName"] for each in cluster.get("pods")["items"]} == {second}
        cluster.run("delete", "node", second)
        cluster.apply(SLICE.replace("CLASS", cluster.namespace).replace("NODE", "native"))
        cluster.run("delete", "pods", "--all", "--force", "--grace-period=0")
        cluster.apply(text_of(range(2)))
        cluster.until(
            "pods", "", lambda found: [each["spec"].get("nodeName") for each in found["items"]] == ["native", "native"]
        )
        (claim,) = claims(cluster)
        assert {each["pool"] for each in claim["status"]["allocation"]["devices"]["results"]} == {"native"}
        assert [each["name"] for each in claim["status"]["reservedFor"]] == ["workers"]
    finally:
        cluster.run("delete", "node", second, "--ignore-not-found")


def test_admit_judges_a_file_of_a_group_that_shares_a_claim(cluster: Cluster) -> None:
    def said(count: int) -> str:
        template = CLASS.split("---")[1].replace("NAME", cluster.namespace).replace("count: 2", f"count: {count}")
        return " ".join(cluster.muster("admit", "-f", "-", stdin=f"{template}---{text_of(range(2))}").split())

    cluster.run("delete", "resourceclaimtemplate", "gpus")
    assert f"PodGroup {cluster.namespace}/workers would start now, 2 pods" in said(2)
    never = said(3)
    assert f"PodGroup {cluster.namespace}/workers would not start" in never
    assert (
        f"2 pods share a claim for 3 devices of class {cluster.namespace}, of which there are 2, 2 of them free"
        in never
    )


def job(claim: str = OF_TEMPLATE, name: str = "train", pods: int = 3) -> str:
    """Write a Job whose pods share a claim: kube-controller-manager makes the native group, with the claim."""
    return JOB.replace("NAME", name).replace("CLAIM", claim).replace("MEMBERS", str(pods))


def placed(cluster: Cluster, count: int) -> None:
    cluster.until("pods", "", lambda found: sum("nodeName" in each["spec"] for each in found["items"]) == count)


def test_the_claim_of_a_job_is_allocated_once_and_reserved_for_the_group_that_kubernetes_makes(
    cluster: Cluster,
) -> None:
    cluster.apply(job())
    placed(cluster, 3)
    (group,), (claim,) = cluster.get(NATIVE)["items"], claims(cluster)
    assert [each["kind"] for each in group["metadata"]["ownerReferences"] if each.get("controller")] == ["Job"]
    (user,) = claim["status"]["reservedFor"]
    assert (user["resource"], user["uid"]) == ("podgroups", group["metadata"]["uid"])
    assert devices(claim) == ["d1", "d2"]
    cluster.until(
        NATIVE,
        group["metadata"]["name"],
        lambda found: [each["status"] for each in found.get("status", {}).get("conditions", [])] == ["True"],
    )
    (ours,) = cluster.get(OURS)["items"]
    assert [each["kind"] for each in ours["metadata"]["ownerReferences"]] == ["Job"]
    cluster.run("delete", "job", "train")
    cluster.until("resourceclaims", "", lambda found: not found["items"])


def test_a_claim_that_a_job_names_is_reserved_for_its_group_and_given_back(cluster: Cluster) -> None:
    cluster.apply(OTHER.replace("NAME", cluster.namespace).replace("COUNT", "1"))
    cluster.apply(job(BY_NAME))
    placed(cluster, 3)
    (claim,) = claims(cluster)
    assert [each["resource"] for each in claim["status"]["reservedFor"]] == ["podgroups"]
    cluster.run("delete", "job", "train")
    cluster.until("resourceclaims", "other", lambda found: not found.get("status", {}).get("allocation"))


def test_a_second_job_waits_for_the_devices_of_the_first_and_is_told_why(cluster: Cluster) -> None:
    cluster.apply(job(pods=1))
    placed(cluster, 1)
    cluster.apply(job(name="late"))
    words = f"3 pods share a claim for 2 devices of class {cluster.namespace}, of which there are 2, 0 of them free"

    def told(found: Any) -> Any:
        return any(
            words in each["message"] for one in found["items"] for each in one.get("status", {}).get("conditions", [])
        )

    cluster.until(NATIVE, "", told)
    assert words in " ".join(cluster.muster("why", "job/late").split())
    cluster.run("delete", "job", "train")
    placed(cluster, 3)


def test_the_quota_of_devices_counts_the_claim_of_a_job_once(cluster: Cluster) -> None:
    resource = f"{cluster.namespace}.deviceclass.resource.k8s.io/devices"
    cluster.run("label", "namespace", cluster.namespace, "muster.sh/quota=guarded")
    cluster.apply(QUOTA.replace("RESOURCE", resource).replace("HARD", "2"))
    cluster.apply(job())
    placed(cluster, 3)
    (ours,) = cluster.get(OURS)["items"]
    assert ours["spec"]["minResources"][resource] == "2"
    row = [resource, "2", "2", "0", "0"]
    assert row in [line.split()[1:] for line in cluster.muster("quota", "view").splitlines()]
    refused = cluster.run("apply", "-f", "-", stdin=job(name="late")).stdout
    assert f"has 2 {resource} hard, 2 reserved (Job train 2), so none is free: short by 2" in refused


def test_admit_judges_a_file_of_a_job_that_shares_a_claim(cluster: Cluster) -> None:
    def file(count: int) -> str:
        template = CLASS.split("---")[1].replace("NAME", cluster.namespace).replace("count: 2", f"count: {count}")
        return f"{template}---{job()}"

    def said(count: int) -> str:
        return " ".join(cluster.muster("admit", "-f", "-", stdin=file(count)).split())

    cluster.run("delete", "resourceclaimtemplate", "gpus")
    assert f"Job {cluster.namespace}/train would start now, 3 pods" in said(2)
    assert (
        f"3 pods share a claim for 3 devices of class {cluster.namespace}, of which there are 2, 2 of them free"
        in said(3)
    )
