"""What `muster admit` and `muster simulate` say of workloads that claim devices, from the files that their users apply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from muster.cli.installation import crds
from muster.sandbox.server.requests import ApiServer

API = "resource.k8s.io/v1"
GPU = "gpu.example.com"
DEVICES = "gpu.deviceclass.resource.k8s.io/devices"
TAKEN = "2026-01-01T12:00:00+00:00"
Run = Callable[..., Result]
Json = dict[str, Any]


def made(kind: str, name: str, api_version: str = API, *, there: bool = True, **fields: Any) -> Json:
    """Write an object, as a cluster has it or a file brings it."""
    meta: Json = {"name": name}
    if there:
        meta |= {"uid": f"uid-{name}", "resourceVersion": "5", "creationTimestamp": "2026-01-01T09:00:00Z"}
    if kind not in {"Node", "Namespace", "Queue", "DeviceClass", "ResourceSlice"}:
        meta["namespace"] = "default"
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}


def cluster(*devices: int) -> list[Json]:
    """A cluster whose nodes have so many devices each, and enough of all else."""
    found = [
        made("Namespace", "default", "v1"),
        made("Queue", "default", "scheduling.volcano.sh/v1beta1", spec={"weight": 1}, status={"state": "Open"}),
        made("DeviceClass", "gpu", spec={"selectors": [{"cel": {"expression": f"device.driver == '{GPU}'"}}]}),
    ]
    for number, count in enumerate(devices):
        name = f"n{number}"
        status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}
        found.append(made("Node", name, "v1", status=status))
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        listed = [{"name": f"d{each}", "capacity": {"memory": {"value": "40Gi"}}} for each in range(count)]
        spec = {"driver": GPU, "nodeName": name, "pool": pool, "devices": listed}
        found.append(made("ResourceSlice", name, spec=spec))
    return found


def template(count: int = 1, memory: str = "") -> Json:
    exactly: Json = {"deviceClassName": "gpu", "count": count}
    if memory:
        expression = f"device.capacity['{GPU}'].memory.compareTo(quantity('{memory}')) >= 0"
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    requests = [{"name": "gpu", "exactly": exactly}]
    return made("ResourceClaimTemplate", "gpu", there=False, spec={"spec": {"devices": {"requests": requests}}})


POD: Json = {
    "schedulerName": "muster",
    "restartPolicy": "Never",
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    "containers": [
        {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}}
    ],
}


def job(pods: int, name: str = "train") -> Json:
    annotations = {"scheduling.k8s.io/group-min-member": str(pods), "sandbox.muster.sh/run-seconds": "60"}
    pod = {"metadata": {"annotations": annotations}, "spec": POD}
    spec = {"parallelism": pods, "completions": pods, "template": pod}
    return made("Job", name, "batch/v1", there=False, spec=spec)


def deployment(pods: int) -> Json:
    annotations = {"scheduling.k8s.io/group-min-member": str(pods)}
    pod = {
        "metadata": {"labels": {"app": "train"}, "annotations": annotations},
        "spec": {**POD, "restartPolicy": "Always"},
    }
    spec = {"replicas": pods, "selector": {"matchLabels": {"app": "train"}}, "template": pod}
    return made("Deployment", "train", "apps/v1", there=False, spec=spec)


def gang(pods: int) -> list[Json]:
    group = made("PodGroup", "train", "scheduling.volcano.sh/v1beta1", there=False, spec={"minMember": pods})
    found = [made("Pod", f"p{number}", "v1", there=False, spec=POD) for number in range(pods)]
    for each in found:
        each["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "train"}
    return [group, *found]


WORKLOADS = {
    "Job": lambda pods: [job(pods)],
    "Deployment": lambda pods: [deployment(pods)],
    "PodGroup": gang,
}


@pytest.fixture
def admit(run: Run, tmp_path: Path) -> Callable[..., str]:
    """Asks about files in a cluster; returns what is said, in one line."""

    def asked(state: list[Json], *files: Json, status: int = 0) -> str:
        dump = tmp_path / "state.yaml"
        lines = "".join(f"- {json.dumps(each)}\n" for each in state)
        dump.write_text(f'apiVersion: dump.muster.sh/v1\nkind: StateList\ntaken: "{TAKEN}"\nitems:\n{lines}')
        result = run("admit", "-f", "-", "--state", str(dump), stdin=yaml.safe_dump_all(files))
        assert result.exit_code == status, result.output
        return " ".join(result.stdout.split())

    return asked


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_gang_starts_where_each_of_its_pods_gets_a_device(admit: Callable[..., str], kind: str) -> None:
    said = admit(cluster(2, 1), template(), *WORKLOADS[kind](3))
    assert "resourceclaimtemplate.resource.k8s.io/gpu admitted" in said
    assert f"{kind} default/train would start now, 3 pods" in said


@pytest.mark.parametrize("kind", WORKLOADS)
def test_the_device_that_a_gang_lacks_is_named(admit: Callable[..., str], kind: str) -> None:
    said = admit(cluster(2, 1), template(), *WORKLOADS[kind](4))
    assert f"{kind} default/train would not start on the cluster as it is: " in said
    assert (
        "1 of 4 pods lack devices: each claims 1 device of class gpu, of which there are 3, 3 of them free, and the nodes that take"
        " such pods have no more for them; wait until claims are deleted, or add devices"
    ) in said
    said = admit(cluster(2, 1), template(memory="80Gi"), *WORKLOADS[kind](2))
    assert "each claims 1 device of class gpu where device.capacity['gpu.example.com'].memory.compareTo(" in said
    assert "and no node has one; look at the DeviceClass, the selectors of the claim and the ResourceSlices" in said


def test_a_bare_pod_gets_devices_too(admit: Callable[..., str]) -> None:
    pod = made("Pod", "solo", "v1", there=False, spec=POD)
    assert "Pod default/solo would start now, 1 pod" in admit(cluster(1), template(), pod)
    assert "ResourceClaimTemplate default/gpu doesn't exist; create it" in admit(cluster(1), pod)
    no_class = [each for each in cluster(1) if each["kind"] != "DeviceClass"]
    assert "device class gpu doesn't exist; create it" in admit(no_class, template(), pod)


def test_who_comes_second_waits_for_the_devices_of_the_first(admit: Callable[..., str]) -> None:
    said = admit(cluster(2), template(), job(2), job(1, "late"))
    assert "Job default/train would start now, 2 pods" in said
    assert "Job default/late would start after the end of Job default/train, which holds 2 cpu and 2 devices" in said


def test_what_runs_gives_its_devices_back_when_it_ends(admit: Callable[..., str]) -> None:
    group = made("PodGroup", "old", "scheduling.volcano.sh/v1beta1", spec={"minMember": 1}, status={"phase": "Running"})
    pod = made("Pod", "old-0", "v1", spec={**POD, "nodeName": "n0"}, status={"phase": "Running"})
    pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "old"}
    results = [{"request": "gpu", "driver": GPU, "pool": "n0", "device": "d0"}]
    user = {"resource": "pods", "name": "old-0", "uid": "uid-old-0"}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
    claim = made("ResourceClaim", "old-0-gpu", spec=template()["spec"]["spec"], status=status)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "old-0", "uid": "uid-old-0", "controller": True}
    claim["metadata"] |= {
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [owner],
    }
    said = admit([*cluster(1), group, pod, claim], template(), job(1))
    assert "Job default/train would start after the end of PodGroup default/old, which holds 1 cpu and 1 device" in said


def test_claims_that_a_cluster_awaits_are_not_taken_to_be_made(admit: Callable[..., str]) -> None:
    """Of a pod that is there, its claim would be there as well, if kube-controller-manager could make it."""
    group = made("PodGroup", "train", "scheduling.volcano.sh/v1beta1", spec={"minMember": 2})
    known = made("Pod", "p0", "v1", spec=POD, status={"phase": "Pending"})
    known["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "train"}
    stored = made("ResourceClaimTemplate", "gpu", spec=template()["spec"])
    _, _, second = gang(2)
    said = admit([*cluster(2), stored, group, known], second)
    words = "the ResourceClaim of template gpu for the pod isn't created yet; kube-controller-manager creates it"
    assert words in said


def test_the_quota_of_devices_refuses_what_it_has_no_room_for(admit: Callable[..., str]) -> None:
    quota = made("ResourceQuota", "devices", "v1", spec={"hard": {DEVICES: "2"}})
    state = cluster(4)
    state[0]["metadata"]["labels"] = {"muster.sh/quota": "guarded"}
    said = admit([*state, quota], template(), job(2), job(1, "late"), status=1)
    assert f"Job late requests 1 {DEVICES}, but quota" in said
    assert f"has 2 {DEVICES} hard, 2 reserved (Job train 2), so none is free: short by 1 {DEVICES}" in said


@pytest.fixture
def simulate(run: Run) -> Callable[..., Result]:
    """Simulates objects; those that a cluster has are as somebody would write them."""

    def simulated(objects: list[Json], *words: str) -> Result:
        return run("simulate", "-f", "-", *words, stdin=yaml.safe_dump_all(objects))

    return simulated


def test_one_decision_binds_a_gang_with_claims_or_says_what_it_lacks(simulate: Callable[..., Result]) -> None:
    said = json.loads(simulate([*cluster(2, 1), template(), *gang(3)], "-o", "json").stdout)
    assert sorted(said["binds"].values()) == ["n0", "n0", "n1"]
    short = simulate([*cluster(1, 1), template(), *gang(3)])
    assert "1 of 3 pods lack devices: each claims 1 device of class gpu, of which there are 2" in short.stdout
    later = json.loads(simulate([*cluster(2, 1), template(), *gang(3)], "--cycles", "3", "-o", "json").stdout)
    assert later["tasks"] == {"default/train": {"Binding": 3}}


def test_over_time_devices_are_had_by_one_after_the_other(simulate: Callable[..., Result]) -> None:
    objects = [*cluster(2), template(), job(2), job(2, "late")]
    report = json.loads(simulate(objects, "--until-idle", "-o", "json").stdout)["report"]
    assert report["wait"]["started"] == 2
    assert report["wait"]["max"] >= 60
    both = json.loads(simulate([*cluster(2, 2), *objects[5:]], "--until-idle", "-o", "json").stdout)["report"]
    assert both["wait"]["started"] == 2
    assert both["wait"]["max"] < 1
    never = simulate([*cluster(1), template(), job(2)], "--until-idle")
    assert "Never started: 1 group" in never.stdout


NATIVE = """
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: workers, namespace: default}
spec:
  schedulingPolicy: {gang: {minCount: 3}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
"""


def native(pods: int) -> list[Json]:
    spec = {**POD, "schedulingGroup": {"podGroupName": "workers"}}
    return [yaml.safe_load(NATIVE), *[made("Pod", f"w{each}", "v1", there=False, spec=spec) for each in range(pods)]]


def test_a_podgroup_of_kubernetes_own_shares_a_claim_among_its_pods(
    admit: Callable[..., str], simulate: Callable[..., Result]
) -> None:
    said = json.loads(simulate([*cluster(1, 0), template(), *native(3)], "-o", "json").stdout)
    assert set(said["binds"].values()) == {"n0"}
    assert "PodGroup default/workers would start now, 3 pods" in admit(cluster(1, 0), template(), *native(3))
    short = admit(cluster(1, 0), template(2), *native(3))
    assert "3 pods share a claim for 2 devices of class gpu, of which there are 1, 1 of them free" in short


def sharing(pods: int, name: str = "train") -> Json:
    """A Job whose pods share a claim, by a native group that Kubernetes makes for it."""
    found = job(pods, name)
    shared = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
    found["spec"]["scheduling"] = {"schedulingPolicy": {"gang": {}}, "resourceClaims": [shared]}
    return found


def test_a_job_shares_a_claim_among_its_pods(admit: Callable[..., str], simulate: Callable[..., Result]) -> None:
    assert "Job default/train would start now, 3 pods" in admit(cluster(1, 0), template(), sharing(3))
    short = admit(cluster(1, 0), template(2), sharing(3))
    assert "3 pods share a claim for 2 devices of class gpu, of which there are 1, 1 of them free" in short
    quota = made("ResourceQuota", "devices", "v1", spec={"hard": {DEVICES: "1"}})
    state = cluster(1)
    state[0]["metadata"]["labels"] = {"muster.sh/quota": "guarded"}
    said = admit([*state, quota], template(), sharing(3), sharing(2, "late"), status=1)
    assert "Job default/train would start now, 3 pods" in said
    assert f"has 1 {DEVICES} hard, 1 reserved (Job train 1), so none is free: short by 1 {DEVICES}" in said
    objects = [*cluster(1), template(), sharing(3), sharing(2, "late")]
    report = json.loads(simulate(objects, "--until-idle", "-o", "json").stdout)["report"]
    assert report["wait"]["started"] == 2
    assert report["wait"]["max"] >= 60


def claim_of(pod: str, **fields: Json) -> Json:
    """The claim that was made for a pod."""
    claim = made("ResourceClaim", f"{pod}-gpu", spec=template()["spec"]["spec"], **fields)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}", "controller": True}
    claim["metadata"] |= {
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [owner],
    }
    return claim


def claimed(name: str, began: str, count: int, runs: str = "90m") -> list[Json]:
    """A gang that runs on n0 and holds so many of its devices, one for each pod."""
    noted = {"muster.sh/expected-duration": runs}
    group = made("PodGroup", name, "scheduling.volcano.sh/v1beta1", spec={"minMember": count, "queue": "default"})
    group |= {"status": {"phase": "Running"}}
    group["metadata"]["annotations"] = noted
    found = [group]
    for number in range(count):
        called = f"{name}-{number}"
        status = {"phase": "Running", "startTime": began}
        pod = made("Pod", called, "v1", spec={**POD, "nodeName": "n0"}, status=status)
        pod["metadata"]["annotations"] = {**noted, "scheduling.k8s.io/group-name": name}
        results = [{"request": "gpu", "driver": GPU, "pool": "n0", "device": f"d{number}"}]
        user = {"resource": "pods", "name": called, "uid": f"uid-{called}"}
        given = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
        found += [pod, claim_of(called, status=given)]
    return found


def waiting(name: str, count: int, seconds: int) -> list[Json]:
    """A gang that waits, whose claims are made and have no devices."""
    group = made("PodGroup", name, "scheduling.volcano.sh/v1beta1", spec={"minMember": count, "queue": "default"})
    group |= {"status": {"phase": "Inqueue"}}
    noted = {"muster.sh/expected-duration": "10m"}
    group["metadata"] |= {"annotations": noted, "creationTimestamp": f"2026-01-01T11:00:{seconds:02}Z"}
    found = [group]
    for number in range(count):
        called = f"{name}-{number}"
        pod = made("Pod", called, "v1", spec=POD, status={"phase": "Pending"})
        pod["metadata"]["annotations"] = {**noted, "scheduling.k8s.io/group-name": name}
        found += [pod, claim_of(called)]
    return found


async def test_a_gang_with_claims_starts_when_those_who_have_its_devices_end(server: ApiServer, run: Run) -> None:
    """Cpu is free all the time: what they wait for are devices, 30 minutes for the first and 10 more for the second."""
    state = [*cluster(2), *claimed("old", "2026-01-01T11:00:00Z", 2), *waiting("next", 2, 1), *waiting("last", 1, 2)]
    for each in [*crds.manifests(legacy_apis=False), *state]:
        group, _, version = each["apiVersion"].rpartition("/")
        resource = server.registry.by_kind(group, each["kind"], version)
        assert resource is not None
        server.store.put(resource.key, each)
    listed = await asyncio.to_thread(run, "podgroup", "list", "--start", "-n", "default")
    assert listed.exit_code == 0, listed.output
    starts = {words[0]: " ".join(words[1:]) for words in map(str.split, listed.stdout.splitlines()[1:])}
    assert "12:30 if no others" in starts["next"]
    assert "12:40 if no others" in starts["last"]
    assert "if no others" not in starts["old"]
    why = await asyncio.to_thread(run, "podgroup", "why", "next", "--start", "-n", "default")
    said = " ".join(why.stdout.split())
    assert "2 of 2 pods lack devices: each claims 1 device of class gpu, of which there are 2, 0 of them free" in said
    assert "about 12:30 UTC if nothing else arrives" in said
