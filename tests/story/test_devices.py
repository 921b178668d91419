"""Gangs whose pods claim devices, as their users apply them with kubectl, under the shipped configuration."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from running import Up, kubectl

PATIENCE = 90.0
API = "resource.k8s.io/v1"


def driver(namespace: str) -> str:
    return f"{namespace}.example.com"


def resource(namespace: str) -> str:
    return f"{namespace}.example.com/gpu"


def published(namespace: str, node: str, devices: int) -> list[dict[str, Any]]:
    """A node, and what a driver would publish of it."""
    name = f"{namespace}-{node}"
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    made = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"story": namespace},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    gpus = [
        {
            "name": f"gpu-{number}",
            "attributes": {"model": {"string": "a"}},
            "capacity": {"memory": {"value": "40Gi"}},
        }
        for number in range(devices)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver(namespace), "nodeName": name, "pool": pool, "devices": gpus}
    return [made, {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}]


def offered(namespace: str) -> list[dict[str, Any]]:
    """A class of devices, and a template that claims one."""
    chosen = [{"cel": {"expression": f"device.driver == '{driver(namespace)}'"}}]
    memory = f"device.capacity['{driver(namespace)}'].memory.compareTo(quantity('40Gi')) >= 0"
    exactly = {"deviceClassName": namespace, "selectors": [{"cel": {"expression": memory}}]}
    stated = {"selectors": chosen, "extendedResourceName": resource(namespace)}
    return [
        {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": namespace}, "spec": stated},
        {
            "apiVersion": API,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "gpu", "namespace": namespace},
            "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
        },
    ]


def job(namespace: str, name: str, pods: int) -> dict[str, Any]:
    template = {
        "metadata": {
            "labels": {"app": name},
            "annotations": {
                "scheduling.k8s.io/group-min-member": str(pods),
                "sandbox.muster.sh/run-seconds": "3600",
            },
        },
        "spec": {
            "schedulerName": "muster",
            "restartPolicy": "Never",
            "nodeSelector": {"story": namespace},
            "tolerations": [{"operator": "Exists"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
            "containers": [
                {
                    "name": "main",
                    "image": "busybox",
                    "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
                }
            ],
        },
    }
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@pytest.fixture
def apply(up: Up, namespace: str) -> Iterator[Callable[..., None]]:
    def applied(*objects: dict[str, Any]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        done = kubectl(up.kubeconfig, "apply", "-f", "-", stdin=json.dumps(listed))
        assert done.returncode == 0, done.stdout

    applied(*published(namespace, "a", 1), *published(namespace, "b", 1), *offered(namespace))
    yield applied
    kubectl(up.kubeconfig, "delete", "nodes", "-l", f"story={namespace}", "--wait=false")
    kubectl(up.kubeconfig, "delete", "resourceslices", "--ignore-not-found", f"{namespace}-a", f"{namespace}-b")
    kubectl(up.kubeconfig, "delete", "deviceclass", namespace)


def own(namespace: str, name: str, count: int) -> str:
    """A claim that is made for no pod."""
    exactly = {"deviceClassName": namespace, "count": count}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return json.dumps(
        {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    )


def given(up: Up, namespace: str, name: str, pods: int) -> tuple[list[str], list[str]]:
    """Wait until so many pods have a node; return their nodes, and the devices of the claims that are reserved for them."""
    end, nodes = time.monotonic() + PATIENCE, list[str]()
    while len(nodes) < pods and time.monotonic() < end:
        answer = kubectl(
            up.kubeconfig, "get", "pods", "-n", namespace, "-l", f"app={name}", "-o", "jsonpath={..spec.nodeName}"
        )
        nodes = answer.stdout.split()
    answer = kubectl(up.kubeconfig, "get", "resourceclaims", "-n", namespace, "-o", "json")
    claims = [each["status"] for each in json.loads(answer.stdout)["items"] if each.get("status", {}).get("allocation")]
    theirs = [each for each in claims if each["reservedFor"][0]["name"].startswith(f"{name}-")]
    results = [result for each in theirs for result in each["allocation"]["devices"]["results"]]
    return sorted(nodes), sorted(f"{each['pool']}/{each['device']}" for each in results)


def why(up: Up, namespace: str, name: str) -> str:
    """Return what `muster why` says, in one line."""
    command = [sys.executable, "-m", "muster.cli", "why", name, "-n", namespace, "--kubeconfig", str(up.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert not done.returncode, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def test_a_gang_gets_all_its_devices_and_the_next_waits_for_them(
    up: Up, namespace: str, apply: Callable[..., None]
) -> None:
    both = [f"{namespace}-a", f"{namespace}-b"]
    devices = [f"{each}/gpu-0" for each in both]
    apply(job(namespace, "train", 2))
    assert given(up, namespace, "train", 2) == (both, devices)

    apply(job(namespace, "late", 2))
    words = f"2 of 2 pods lack devices: each claims 1 device of class {namespace} where device.capacity["
    end, answer = time.monotonic() + PATIENCE, ""
    while words not in answer and time.monotonic() < end:
        answer = why(up, namespace, "job/late")
    assert words in answer
    assert "of which there are 2, 0 of them free" in answer
    assert given(up, namespace, "late", 0) == ([], [])

    kubectl(up.kubeconfig, "delete", "job", "train", "-n", namespace)
    assert given(up, namespace, "late", 2) == (both, devices)


def test_a_quota_of_devices_holds_for_claims_that_are_to_be_made(
    up: Up, namespace: str, apply: Callable[..., None]
) -> None:
    def claim(name: str, count: int) -> tuple[int, str]:
        done = kubectl(up.kubeconfig, "create", "-f", "-", stdin=own(namespace, name, count))
        return done.returncode, " ".join(done.stdout.split())

    resource = f"{namespace}.deviceclass.resource.k8s.io/devices"
    assert not kubectl(up.kubeconfig, "label", "namespace", namespace, "muster.sh/quota=guarded").returncode
    hard = {"spec": {"hard": {resource: "3"}}}
    apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "devices", "namespace": namespace}, **hard}
    )
    apply(job(namespace, "train", 2))
    status, said = claim("two", 2)
    words = (
        f'exceeded quota: ResourceClaim "two" requests 2 {resource}, but quota "devices" has 3 {resource} hard, '
        f"2 reserved (Job train 2), so 1 is free: short by 1 {resource}; lower its requests, wait for Job train, or raise the quota"
    )
    assert status, said
    assert words in said
    # Its own claims take of what it reserved.
    assert len(given(up, namespace, "train", 2)[0]) == 2
    late = {"apiVersion": "v1", "kind": "List", "items": [job(namespace, "late", 2)]}
    refused = kubectl(up.kubeconfig, "create", "-f", "-", stdin=json.dumps(late))
    assert f"Job late requests 2 {resource}" in refused.stdout
    assert claim("one", 1)[0] == 0
    status, said = claim("another", 1)
    assert status, said
    assert f"2 reserved (Job train 2), 1 used by claims, so none is free: short by 1 {resource}" in said


def asking(namespace: str, name: str, pods: int, count: int) -> dict[str, Any]:
    made = job(namespace, name, pods)
    spec = made["spec"]["template"]["spec"]
    del spec["resourceClaims"]
    amounts = {resource(namespace): str(count)}
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1", **amounts}, "limits": amounts}
    return made


def test_a_quota_of_what_a_class_stands_for_holds_for_claims_that_are_to_be_made(
    up: Up, apply: Callable[..., None], namespace: str, request: pytest.FixtureRequest
) -> None:
    names = [f"requests.{resource(namespace)}", f"requests.deviceclass.resource.kubernetes.io/{namespace}"]
    assert not kubectl(up.kubeconfig, "label", "namespace", namespace, "muster.sh/quota=guarded").returncode
    meta = {"name": "devices", "namespace": namespace}
    apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": dict.fromkeys(names, "3")}})
    apply(job(namespace, "train", 2))
    if request.node.callspec.params["up"] == "kubernetes":
        used, end = dict[str, str](), time.monotonic() + PATIENCE
        while used != dict.fromkeys(names, "2") and time.monotonic() < end:
            used = listed(up, namespace, "resourcequotas")[0]["status"]["used"]
        assert used == dict.fromkeys(names, "2")
    late = kubectl(up.kubeconfig, "apply", "-f", "-", stdin=json.dumps(job(namespace, "late", 2)))
    assert late.returncode
    assert any(f"Job late requests 2 {name}" in late.stdout for name in names), late.stdout
    assert "2 reserved (Job train 2), so 1 is free: short by 1" in late.stdout


@pytest.mark.parametrize("implicit", [False, True], ids=["its own name", "the name of the class"])
def test_a_quota_of_devices_holds_for_what_pods_request_as_a_resource(
    up: Up, namespace: str, apply: Callable[..., None], *, implicit: bool
) -> None:
    def gang(name: str) -> dict[str, Any]:
        made = asking(namespace, name, 2, 1)
        amounts = {f"deviceclass.resource.kubernetes.io/{namespace}": "1"}
        if implicit:
            resources = made["spec"]["template"]["spec"]["containers"][0]["resources"]
            resources |= {"requests": {"cpu": "1", **amounts}, "limits": amounts}
        return made

    counted = f"{namespace}.deviceclass.resource.k8s.io/devices"
    requested = (
        f"requests.deviceclass.resource.kubernetes.io/{namespace}" if implicit else f"requests.{resource(namespace)}"
    )
    assert not kubectl(up.kubeconfig, "label", "namespace", namespace, "muster.sh/quota=guarded").returncode
    meta = {"name": "devices", "namespace": namespace}
    hard = {counted: "3", requested: "9"}
    apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}})
    apply(gang("train"))
    late = {"apiVersion": "v1", "kind": "List", "items": [gang("late")]}
    refused = " ".join(kubectl(up.kubeconfig, "create", "-f", "-", stdin=json.dumps(late)).stdout.split())
    assert f"Job late requests 2 {counted}, but quota" in refused
    assert f"has 3 {counted} hard, 2 reserved (Job train 2), so 1 is free: short by 1 {counted}" in refused
    view = [sys.executable, "-m", "muster.cli", "quota", "view", "-n", namespace, "--kubeconfig", str(up.kubeconfig)]
    rows = [
        line.split()[1:]
        for line in subprocess.run(view, capture_output=True, text=True, check=True).stdout.splitlines()
    ]
    assert [counted, "3", "2", "0", "1"] in rows
    assert [requested, "9", "2", "0", "7"] in rows
    # The claims that are made for its pods take of what it reserved.
    assert len(given(up, namespace, "train", 2)[0]) == 2
    one = kubectl(up.kubeconfig, "create", "-f", "-", stdin=own(namespace, "one", 1))
    assert one.returncode == 0, one.stdout


def listed(up: Up, namespace: str, kind: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(kubectl(up.kubeconfig, "get", kind, "-n", namespace, "-o", "json").stdout)[
        "items"
    ]
    return items


def test_a_gang_gets_all_the_devices_that_it_requests_as_a_resource_and_the_next_waits_for_them(
    up: Up, namespace: str, apply: Callable[..., None]
) -> None:
    both = [f"{namespace}-a", f"{namespace}-b"]
    apply(*published(namespace, "a", 2), *published(namespace, "b", 2))
    devices = [f"{each}/gpu-{number}" for each in both for number in range(2)]
    quotas = {f"requests.{resource(namespace)}": "6", f"{namespace}.deviceclass.resource.k8s.io/devices": "6"}
    assert not kubectl(up.kubeconfig, "label", "namespace", namespace, "muster.sh/quota=guarded").returncode
    meta = {"name": "devices", "namespace": namespace}
    apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": quotas}})
    apply(asking(namespace, "train", 2, 2))
    found = given(up, namespace, "train", 2)
    assert found == (both, devices)

    claims = {each["metadata"]["name"]: each for each in listed(up, namespace, "resourceclaims")}
    for pod in listed(up, namespace, "pods"):
        told = pod["status"]["extendedResourceClaimStatus"]
        claim = claims.pop(told["resourceClaimName"])
        mapping = {
            "containerName": "main",
            "resourceName": resource(namespace),
            "requestName": "container-0-request-1",
        }
        assert told["requestMappings"] == [mapping]
        assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
        assert claim["metadata"]["generateName"] == f"{pod['metadata']['name']}-extended-resources-"
        (owner,) = claim["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", pod["metadata"]["uid"], True)
        (request,) = claim["spec"]["devices"]["requests"]
        assert (request["name"], request["exactly"]["deviceClassName"]) == ("container-0-request-1", namespace)
        assert request["exactly"]["count"] == 2
        assert [each["uid"] for each in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    assert not claims
    # Pods count for the resource, and their claims for the class: each device once.
    end, used = time.monotonic() + PATIENCE, dict[str, str]()
    while used != dict.fromkeys(quotas, "4") and time.monotonic() < end:
        used = listed(up, namespace, "resourcequotas")[0]["status"]["used"]
    assert used == dict.fromkeys(quotas, "4")

    apply(asking(namespace, "late", 2, 1))
    # Its group waits to be admitted, since nodes have nothing left of the resource.
    words = f"short by 2 {resource(namespace)}"
    end, answer = time.monotonic() + PATIENCE, ""
    while words not in answer and time.monotonic() < end:
        answer = why(up, namespace, "job/late")
    assert words in answer
    assert len(listed(up, namespace, "resourceclaims")) == 2

    kubectl(up.kubeconfig, "delete", "job", "train", "-n", namespace)
    assert len(given(up, namespace, "late", 2)[1]) == 2
