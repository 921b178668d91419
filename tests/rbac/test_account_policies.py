"""Policies on Muster's own accounts: with every permission that roles can give, they change what they need and nothing else."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from plane import PATIENCE, Plane

from certs import targets
from muster.cli.installation import permissions
from muster.kube import errors
from muster.kube.client import Client
from muster.kube.transport import JSON_PATCH, STRATEGIC_PATCH, Request
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Pod
from scheduler.model import extended_resources
from scheduler.model.claims import DELETE_PROTECTION
from webhooks.registration import ServiceRef, configurations

ACCOUNT = "system:serviceaccount:muster-system:muster-scheduler"
POLICIES = [each for each in permissions.policies(schedulers=["nobody"]) if ".accounts." in each["metadata"]["name"]]


@dataclass(frozen=True)
class Guarded:
    """The policies, and a client that is Muster's account with all permissions."""

    plane: Plane
    account: Client
    namespace: str
    names: dict[Kind[Any], str]

    async def change(self, kind: Kind[Any], change: Any, **options: Any) -> Any:
        """Change the object of a kind as Muster's account."""
        space = self.namespace if kind.namespaced else ""
        return await self.account.patch(kind, self.names[kind], change, space, **options)


def _pods() -> dict[str, Any]:
    return {"schedulerName": "nobody", "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}


def _entries(kind: Kind[Any], namespace: str) -> list[Any]:
    """Return webhooks of ours that are called for one namespace that nobody has."""
    both = configurations(
        ServiceRef("muster-system", "muster-webhook"), b"", scheduler_names=["x"], legacy_apis=False, own_namespace="x"
    )
    found = [each for each in both[kind == kinds.VALIDATING]["webhooks"] if ".scheduler." not in each["name"]]
    chosen = [copy.deepcopy(each) for each in found[:2]]
    for each in chosen:
        here = {"key": names.NAMESPACE_NAME, "operator": "In", "values": [f"{namespace}-not"]}
        each["namespaceSelector"]["matchExpressions"].append(here)
        del each["clientConfig"]["caBundle"]
    return chosen


@pytest.fixture
async def guarded(plane: Plane) -> AsyncIterator[Guarded]:
    space = await plane.namespace(theirs="yes")
    await plane.client.patch(kinds.NAMESPACES, space, {"metadata": {"annotations": {"theirs": "yes"}}})
    named = {kinds.NAMESPACES: space}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "x"}
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "y",
        "hostPath": {"path": "/x"},
    }
    for kind, body in (
        (kinds.PODS, {"spec": _pods()}),
        (kinds.JOBS, {"spec": {"suspend": True, "template": {"spec": _pods()}}}),
        (kinds.CLAIMS, {"spec": claim}),
        (kinds.VOLUMES, {"spec": volume}),
        (kinds.VALIDATING, {"webhooks": _entries(kinds.VALIDATING, space)}),
        (kinds.MUTATING, {"webhooks": _entries(kinds.MUTATING, space)}),
    ):
        named[kind] = plane.unique("own")
        meta = {"name": named[kind], "labels": {"theirs": "yes"}, "annotations": {"theirs": "yes"}}
        await plane.create(kind, {"metadata": meta, **body}, space if kind.namespaced else "")
    account = await plane.acting_as(ACCOUNT)
    await permissions.apply(plane.client, POLICIES)
    found = Guarded(plane, account, space, named)
    for kind in (kinds.NAMESPACES, *named):
        await _until(found, kind, refused=True)
    async with asyncio.timeout(PATIENCE):
        while not await _keeps_its_job(found):  # noqa: ASYNC110 - see `_until`
            await asyncio.sleep(0.05)
    yield found
    await permissions.remove(plane.client, POLICIES)
    for kind in named:
        await _until(found, kind, refused=False)


async def _until(guarded: Guarded, kind: Kind[Any], *, refused: bool) -> None:
    """Wait until the API server has noticed: it tells nobody when it does."""
    async with asyncio.timeout(PATIENCE):
        while await _refused(guarded, kind) is not refused:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.05)


async def _refused(guarded: Guarded, kind: Kind[Any]) -> bool:
    try:
        await guarded.change(kind, {"metadata": {"labels": {"probe": str(asyncio.get_running_loop().time())}}})
    except errors.ForbiddenError:
        return True
    return False


async def _keeps_its_job(guarded: Guarded) -> bool:
    """Whether the policy on deletions holds already."""
    try:
        await guarded.account.delete(kinds.JOBS, guarded.names[kinds.JOBS], guarded.namespace, dry_run=True)
    except errors.ForbiddenError:
        return True
    return False


def _at_path(path: str) -> list[Any]:
    return [{"op": "replace", "path": "/webhooks/0/clientConfig/service/path", "value": path}]


def _condition(name: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": name, "status": "False", "reason": "Unschedulable"}]}}


_STATUS = {"subresource": "status", "content_type": STRATEGIC_PATCH}
_JSON = {"content_type": JSON_PATCH}
_META = {"metadata": {"annotations": {names.GROUP_NAME: "g"}}}
_CLAIM_REF = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "x", "name": "c", "uid": "u"}
SEGMENT = "a" * 43

NEEDED: tuple[tuple[Kind[Any], Any, Mapping[str, Any]], ...] = (
    (kinds.PODS, _META, {}),
    (kinds.PODS, _condition("PodScheduled"), _STATUS),
    (kinds.PODS, {"status": {"conditions": [{"type": "PodScheduled", "$patch": "delete"}]}}, _STATUS),
    (kinds.NAMESPACES, {"metadata": {"labels": {names.QUOTA_MODE: "guarded", names.QUOTA_POLICY: "Queue"}}}, {}),
    (kinds.JOBS, {"metadata": {"annotations": {names.JOB_GROUP: "g"}}}, {}),
    (kinds.JOBS, {"metadata": {"annotations": {names.SUSPENDED: "true"}}, "spec": {"suspend": False}}, {}),
    (kinds.JOBS, {"metadata": {"annotations": {names.SUSPENDED: None}}, "spec": {"suspend": True}}, {}),
    (kinds.CLAIMS, {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}}, {}),
    (
        kinds.VOLUMES,
        {
            "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
            "spec": {"claimRef": _CLAIM_REF},
        },
        {},
    ),
    (kinds.VALIDATING, _at_path(f"/validate/podgroups/{SEGMENT}"), _JSON),
    (kinds.MUTATING, _at_path(f"/mutate/jobs/{SEGMENT}"), _JSON),
    (kinds.MUTATING, _at_path(f"/mutate/jobs/{'b' * 43}"), _JSON),
)

_META_CHANGES: tuple[Any, ...] = (
    {"metadata": {"labels": {"theirs": None}}},
    {"metadata": {"labels": {"more": "yes"}}},
    {"metadata": {"annotations": {"theirs": "no"}}},
    {"metadata": {"annotations": {"theirs": None}}},
    {"metadata": {"annotations": {"more": "yes"}}},
    {"metadata": {"finalizers": ["example.com/hold"]}},
    {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}]}},
)
FORBIDDEN: tuple[tuple[Kind[Any], Any, Mapping[str, Any]], ...] = (
    *((kind, change, {}) for kind in (kinds.PODS, kinds.JOBS, kinds.CLAIMS, kinds.VOLUMES) for change in _META_CHANGES),
    *(
        (kind, change, {})
        for kind in (kinds.NAMESPACES, kinds.MUTATING)
        for change in _META_CHANGES
        if "own" not in str(change)
    ),
    (kinds.PODS, {"spec": {"containers": [{"name": "main", "image": "mine"}]}}, {"content_type": STRATEGIC_PATCH}),
    (kinds.PODS, {"spec": {"activeDeadlineSeconds": 1}}, {}),
    (kinds.PODS, {"metadata": {"annotations": {names.VOLUMES_WRITTEN: "now"}}}, {}),
    (kinds.PODS, _condition("Ready"), _STATUS),
    (kinds.PODS, {"status": {"phase": "Failed"}}, _STATUS),
    (kinds.PODS, {"metadata": {"labels": {"more": "yes"}}}, _STATUS),
    (kinds.NAMESPACES, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}, {}),
    (kinds.JOBS, {"spec": {"parallelism": 9}}, {}),
    (kinds.JOBS, {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}, {}),
    (kinds.VOLUMES, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}, {}),
    (kinds.VOLUMES, {"spec": {"claimRef": {**_CLAIM_REF, "name": "another"}}}, {}),
    (kinds.VOLUMES, {"spec": {"claimRef": None}}, {}),
    (kinds.MUTATING, [{"op": "remove", "path": "/webhooks/0"}], _JSON),
    (kinds.MUTATING, [{"op": "replace", "path": "/webhooks/1/failurePolicy", "value": "Fail"}], _JSON),
    (kinds.MUTATING, [{"op": "replace", "path": "/webhooks/0/rules", "value": []}], _JSON),
    (kinds.MUTATING, [{"op": "replace", "path": "/webhooks/0/clientConfig/service/name", "value": "mine"}], _JSON),
    (kinds.MUTATING, [{"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": "https://a.b"}}], _JSON),
    (kinds.MUTATING, _at_path(f"/mutate/pods/{SEGMENT}"), _JSON),
    (kinds.MUTATING, _at_path(f"/mutate/jobs/{SEGMENT}/more"), _JSON),
    (kinds.MUTATING, _at_path("/mutate"), _JSON),
)


async def _leaving(guarded: Guarded) -> None:
    """Evict and delete what Muster may, and try what it may not."""
    account, space = guarded.account, guarded.namespace
    pod = await account.get(kinds.PODS, guarded.names[kinds.PODS], space)
    job = await account.get(kinds.JOBS, guarded.names[kinds.JOBS], space)
    for options in (None, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}, {"preconditions": {}}):
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": space},
            **({"deleteOptions": options} if options is not None else {}),
        }
        path = kinds.PODS.path(space, pod.name, "eviction")
        with pytest.raises(errors.ForbiddenError, match="Muster's accounts evict"):
            await account.send(Request("POST", path, {"dryRun": "All"}, json.dumps(body).encode()))
    with pytest.raises(errors.ForbiddenError, match="Muster's accounts delete"):
        await account.delete(kinds.JOBS, job.name, space)
    main = {"name": "main", "image": "busybox"}
    theirs = {"template": {"spec": {"restartPolicy": "Never", "containers": [main]}}, "suspend": True}
    other = await guarded.plane.create(
        kinds.JOBS, {"metadata": {"name": guarded.plane.unique("theirs")}, "spec": theirs}, space
    )
    with pytest.raises(errors.ForbiddenError, match="Muster's accounts delete"):
        await account.delete(kinds.JOBS, other.name, space, uid=other.metadata.uid)
    another = {"template": {"spec": _pods() | {"schedulerName": "volcano"}}, "suspend": True}
    other = await guarded.plane.create(
        kinds.JOBS, {"metadata": {"name": guarded.plane.unique("theirs")}, "spec": another}, space
    )
    with pytest.raises(errors.ForbiddenError, match="Muster's accounts delete"):
        await account.delete(kinds.JOBS, other.name, space, uid=other.metadata.uid)
    with pytest.raises(errors.ForbiddenError, match="Muster's accounts delete"):
        await account.delete(kinds.JOBS, job.name, space, uid=job.metadata.uid, propagation="Orphan")
    system = await guarded.plane.create(
        kinds.JOBS,
        {
            "metadata": {"name": guarded.plane.unique("theirs")},
            "spec": {"suspend": True, "template": {"spec": _pods()}},
        },
        "kube-system",
    )
    with pytest.raises(errors.ForbiddenError, match="Muster's accounts delete"):
        await account.delete(kinds.JOBS, system.name, "kube-system", uid=system.metadata.uid)
    await guarded.plane.client.delete(kinds.JOBS, system.name, "kube-system")
    await account.evict(space, pod.name, pod.metadata.uid)
    await account.delete(kinds.JOBS, job.name, space, uid=job.metadata.uid)
    for kind, fields in ((kinds.PODS, {"spec": _pods()}), (kinds.JOBS, {"spec": theirs})):
        guarded.names[kind] = guarded.plane.unique("own")  # what comes after is about others
        await guarded.plane.create(kind, {"metadata": {"name": guarded.names[kind]}, **fields}, space)


def _device_claim(name: str, pod: Pod, **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.metadata.uid, "controller": True}
    meta = {"name": name, "annotations": {extended_resources.ANNOTATION: "true"}, "ownerReferences": [owner]}
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]
    return {"metadata": meta | more.pop("metadata", {}), "spec": {"devices": {"requests": requests, **more}}}


async def test_muster_s_accounts_make_and_delete_claims_for_extended_resources_and_no_others(guarded: Guarded) -> None:
    account, space = guarded.account, guarded.namespace
    pod = await account.get(kinds.PODS, guarded.names[kinds.PODS], space)
    unique, kind = guarded.plane.unique, kinds.RESOURCECLAIMS
    tolerant = [{"name": "r", "exactly": {"deviceClassName": "gpu", "tolerations": [{"operator": "Exists"}]}}]
    for more in (
        {"metadata": {"annotations": None}},
        {"metadata": {"ownerReferences": None}},
        {"metadata": {"labels": {"theirs": "yes"}}},
        {"config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}]},
        {"requests": tolerant},
    ):
        with pytest.raises(errors.ForbiddenError, match="Muster's accounts make"):
            await account.create(kind, _device_claim(unique("claim"), pod, **more), space)
    theirs = await guarded.plane.create(
        kind, _device_claim(unique("claim"), pod, metadata={"annotations": None}), space
    )
    with pytest.raises(errors.ForbiddenError, match="delete no others"):
        await account.delete(kind, theirs.name, space, uid=theirs.metadata.uid)
    made = await account.create(kind, _device_claim(unique("claim"), pod), space)
    with pytest.raises(errors.ForbiddenError, match="those by uid"):
        await account.delete(kind, made.name, space)
    protect = {"metadata": {"finalizers": [DELETE_PROTECTION]}}
    for one in (made, theirs):
        await account.patch(kind, one.name, protect, space)
    await account.patch(kind, made.name, {"metadata": {"finalizers": []}}, space)
    with pytest.raises(errors.ForbiddenError, match="of a ResourceClaim"):
        await account.patch(kind, theirs.name, {"metadata": {"finalizers": []}}, space)
    await account.delete(kind, made.name, space, uid=made.metadata.uid)
    await guarded.plane.client.patch(kind, theirs.name, {"metadata": {"finalizers": []}}, space)


async def test_muster_s_accounts_change_what_they_need_and_nothing_else(guarded: Guarded) -> None:
    for kind, change, options in NEEDED:
        assert await guarded.change(kind, change, **options), f"{kind}: {change}"
    for kind in (kinds.VALIDATING, kinds.MUTATING):
        whole = await guarded.plane.client.get(kind, guarded.names[kind])
        await guarded.account.apply(
            kind, targets.of_configuration(kind, whole).manifest(b"PEM"), manager=targets.MANAGER
        )
    for kind, change, options in FORBIDDEN:
        with pytest.raises(errors.ForbiddenError, match="Muster's accounts"):
            pytest.fail(f"{kind}: {change} gave {await guarded.change(kind, change, **options)}")
    await _leaving(guarded)
    # Somebody else is none of these policies' business.
    for kind in guarded.names:
        space = guarded.namespace if kind.namespaced else ""
        await guarded.plane.client.patch(kind, guarded.names[kind], _META_CHANGES[1], space)


async def test_who_keeps_the_certificates_annotates_webhook_servers_and_changes_no_other_pod(guarded: Guarded) -> None:
    certs = await guarded.plane.acting_as(ACCOUNT.replace("scheduler", "certs"))
    server = {"app.kubernetes.io/part-of": "muster", "app.kubernetes.io/component": "webhook"}
    name, space = guarded.plane.unique("server"), guarded.namespace
    await guarded.plane.create(kinds.PODS, {"metadata": {"name": name, "labels": server}, "spec": _pods()}, space)
    written = {"metadata": {"annotations": {names.VOLUMES_WRITTEN: "now"}}}
    await certs.patch(kinds.PODS, name, written, space)
    for change in (_META, _META_CHANGES[1], _META_CHANGES[4]):
        with pytest.raises(errors.ForbiddenError, match="Muster's accounts"):
            await certs.patch(kinds.PODS, name, change, space)
    with pytest.raises(errors.ForbiddenError, match="muster-certs changes pods of the webhook servers only"):
        await certs.patch(kinds.PODS, guarded.names[kinds.PODS], written, space)
