"""Pods, claims, slices and classes of devices as objects, and what a cycle decides on them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from muster.model import names
from scheduler.configuration import config
from scheduler.simulator import state

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU = "gpu.example.com"
NATIVE = "scheduling.k8s.io/v1beta1"


def node(name):
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}


def offered(node_name, *devices, **more):
    stated = [{"name": each} if isinstance(each, str) else each for each in devices]
    pool = {"name": node_name or "net", "generation": 1, "resourceSliceCount": 1}
    where = {"nodeName": node_name} if node_name else {"allNodes": True}
    spec = {"driver": GPU, "pool": pool, "devices": stated, **where, **more}
    return _device("ResourceSlice", f"slice-{node_name}", spec)


def device_class(name="gpu", expression=f"device.driver == '{GPU}'"):
    return _device("DeviceClass", name, {"selectors": [{"cel": {"expression": expression}}]})


def claim(name, *, pod="", native="", status=None, device_class="gpu", **exactly):
    request = {"name": "r", "exactly": {"deviceClassName": device_class, **exactly}}
    meta = {"namespace": "ns", "uid": f"uid-{name}"}
    if pod or native:
        meta["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpu"}
        kind = ("v1", "Pod") if pod else (NATIVE, "PodGroup")
        owner = {"apiVersion": kind[0], "kind": kind[1], "name": pod or native, "uid": pod or f"uid-{native}"}
        meta["ownerReferences"] = [{**owner, "controller": True}]
    return _device("ResourceClaim", name, {"devices": {"requests": [request]}}, meta) | {"status": status or {}}


def _device(kind, name, spec, meta=()):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **dict(meta)},
        "spec": spec,
    }


def allocated(name, device, *, on):
    field = {"key": "metadata.name", "operator": "In", "values": [on]}
    results = [{"request": "r", "driver": GPU, "pool": on, "device": device}]
    allocation = {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    return claim(name, status={"allocation": allocation})


def template(**exactly):
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}
    return _device("ResourceClaimTemplate", "t", {"spec": {"devices": {"requests": [request]}}}, {"namespace": "ns"})


def pod(name, *claims, own=False, group="g"):
    refs = [{"name": each, "resourceClaimName": each} for each in claims]
    refs += [{"name": "gpu", "resourceClaimTemplateName": "t"}] if own else []
    meta = {"name": name, "namespace": "ns", "uid": name, "annotations": {"scheduling.k8s.io/group-name": group}}
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    spec = {"containers": containers, "resourceClaims": refs}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def standing(minimum, *shared, **spec):
    """A group that stands for the native one ``n``, which shares claims."""
    made = group(minimum, **spec)
    owner = {"apiVersion": NATIVE, "kind": "PodGroup", "name": "n", "uid": "uid-n", "controller": True}
    noted = {"muster.sh/shared-claims": json.dumps(shared)}
    return {**made, "metadata": {**made["metadata"], "annotations": noted, "ownerReferences": [owner]}}


def group(minimum=1, **spec):
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "ns"},
        "spec": {"minMember": minimum, **spec},
        "status": {"phase": "Inqueue"},
    }


PREDICATES = "actions: allocate\ntiers:\n- plugins:\n  - {name: gang}\n  - {name: predicates}\n"


def decided(*objects, policy=PREDICATES, awaited=()):
    """Decide once; ``awaited``: the uids of those whose claims somebody is to make from templates, as in a cluster."""
    cluster = state.load(objects, [names.SCHEDULER_NAME])
    cluster.devices.suppose(awaited)
    return state.run(cluster, config.parse(policy, "a test's"), NOW, 1)


def binds(*objects, **more):
    return {key.removeprefix("ns/"): node for key, node in decided(*objects, **more).binds.items()}


def message(*objects, **more):
    plan = decided(*objects, **more).json()
    return " ".join(each["message"] for each in plan["podgroups"]["ns/g"]["conditions"])


def devices_of(*objects):
    return {
        bind.task.name: [device.name for each in bind.devices for _, device, _ in each.devices]
        for bind in decided(*objects).plan.binds
    }
