"""Operators' kinds without their operators: what one of them would make, a test makes."""

from __future__ import annotations

from typing import Any

from workloads import template

from muster.kube import errors, wait
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Object


async def operator(world: Any, kind: Kind[Any]) -> None:
    """Serve an operator's kind, without a schema: what its operator would make is made by the test."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": kind.group,
        "scope": "Namespaced",
        "names": {
            "kind": kind.name,
            "plural": kind.plural,
            "singular": kind.name.lower(),
            "listKind": f"{kind.name}List",
        },
        "versions": [{"name": kind.version, "served": True, "storage": True, "schema": schema}],
    }
    found = await world.client.find(kinds.CRDS, str(kind))
    if found is not None and found.metadata.deletion_timestamp is not None:
        # Of another test of this control plane, which has ended.
        await wait.until(world.client, kinds.CRDS, str(kind), holds=lambda crd: crd is None, within=60)
        found = None
    if found is None:
        meta = {"name": str(kind), "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"}}
        await world.client.create(kinds.CRDS, {"metadata": meta, "spec": spec})

    async def listed() -> bool:
        try:
            return bool((await world.client.list(kind, world.namespace)).resource_version)
        except errors.NotFoundError:
            return False

    await world.until(listed)


PYTORCHJOBS: Kind[Object] = Kind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob", Object)
WORKFLOWS: Kind[Object] = Kind("argoproj.io", "v1alpha1", "workflows", "Workflow", Object)


def pytorchjob(name: str, workers: int, **run_policy: Any) -> dict[str, Any]:
    roles = {"Master": (1, "2"), "Worker": (workers, "1")}
    replicas = {role: {"replicas": n, "template": {"spec": template(cpu)}} for role, (n, cpu) in roles.items()}
    annotations = {names.GROUP_MIN_MEMBER: str(workers + 1)}
    spec = {"pytorchReplicaSpecs": replicas, "runPolicy": run_policy}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}


def pod_of(owner: Any, kind: Kind[Any], name: str, cpu: str = "1", **annotations: str) -> dict[str, Any]:
    reference = {"apiVersion": kind.api_version, "kind": kind.name, "name": owner.name, "uid": owner.metadata.uid}
    meta = {"name": name, "annotations": annotations, "ownerReferences": [{**reference, "controller": True}]}
    return {"metadata": meta, "spec": {**template(cpu), "restartPolicy": "Never"}}
