"""What stands in the way of an installation is told before anything is changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
import pytest
from commands import cluster, muster

from muster.cli.installation import crds, namespaces, permissions, preflight, webhook_configurations
from muster.kube.client import Client
from muster.kube.transport import Request, Response
from muster.model import kinds, names


class Versioned:
    """An API server of some version, which would count what is written."""

    def __init__(self, version: str) -> None:
        self._version = version
        self.asked: list[Request] = []

    async def request(self, request: Request, **_deadline: float) -> Response:
        self.asked.append(request)
        if request.path == "/version":
            return Response(200, json.dumps({"gitVersion": self._version}).encode(), {})
        status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not here"}
        return Response(404, json.dumps(status).encode(), {})


@pytest.mark.parametrize("version", ["v1.29.14", "v1.9.0", "v1.29.1-eks-5e0fdde"])
async def test_a_cluster_that_is_too_old_is_refused_before_anything_is_written(version):
    server = Versioned(version)
    with pytest.raises(click.ClickException) as caught:
        await crds.apply(Client(server), legacy_apis=False, adopt=False)
    assert caught.value.message == f"this cluster is Kubernetes {version}; Muster needs 1.30 or newer"
    assert not [request for request in server.asked if request.writes]


@pytest.mark.parametrize("version", ["v1.30.0", "v1.36.3", "v2.0.0", "a fork"])
async def test_one_that_is_new_enough_or_does_not_say_is_not_refused(version):
    await preflight.version(Client(Versioned(version)))


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: Any) -> AsyncIterator[Client]:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    async with cluster(tmp_path) as reached:
        yield reached


async def written(client: Client) -> list[str]:
    """Name what an installation would have made."""
    made = [*(await client.list(kinds.CLUSTERROLES)).items, *(await client.list(kinds.CRDS)).items]
    return sorted(each.name for each in made if each.metadata.label(names.PART_OF) == "muster")


async def test_a_release_of_helm_in_the_cluster_is_refused_by_name(client: Client):
    marks = {preflight.RELEASE: "batch", preflight.RELEASE_NAMESPACE: "platform"}
    await client.create(kinds.CLUSTERROLES, {"metadata": {"name": "muster-webhook", "annotations": marks}, "rules": []})
    status, said = await muster("install")
    assert status == 1
    assert said == (
        "Error: Muster is in this cluster already, as Helm release platform/batch: use `helm upgrade batch -n platform`, "
        "or uninstall it first\n"
    )
    assert await written(client) == []


async def test_webhooks_of_an_installation_inside_the_cluster_are_not_taken_over(client: Client):
    service = {"namespace": "muster-system", "name": "muster-webhook", "path": "/validate/pods"}
    webhook = {"name": "a.example.com", "clientConfig": {"service": service}, "sideEffects": "None"}
    manifest = {"metadata": {"name": "muster"}, "webhooks": [webhook | {"admissionReviewVersions": ["v1"]}]}
    await client.create(kinds.VALIDATING, manifest)
    status, said = await muster("install")
    assert (status, said) == (
        1,
        (
            "Error: Muster is in this cluster already: its webhooks call Service muster-system/muster-webhook; "
            "run `muster uninstall` first\n"
        ),
    )
    assert await written(client) == []


async def another_products(client: Client) -> dict[str, Any]:
    crd = next(each for each in crds.manifests(legacy_apis=False) if each["spec"]["names"]["plural"] == "queues")
    crd["metadata"].pop("labels")
    await client.create(kinds.CRDS, crd)
    return crd


async def test_another_product_s_kind_is_refused_and_adopted_when_asked(client: Client):
    await another_products(client)
    status, said = await muster("install")
    name = "queues.scheduling.volcano.sh"
    assert (status, said) == (
        1,
        f"Error: {name} exists and isn't Muster's; --adopt-crds replaces its schema, objects stay\n",
    )
    assert await written(client) == []
    assert (await muster("install", "--adopt-crds"))[0] == 0
    assert name in await written(client)


async def test_objects_stored_in_a_version_that_is_not_served_are_in_the_way(client: Client):
    crd = await another_products(client)
    version = crd["spec"]["versions"][0]
    old = version | {"name": "v1alpha1", "storage": False}
    await client.patch(kinds.CRDS, crd["metadata"]["name"], {"spec": {"versions": [version, old]}})
    found = await client.get(kinds.CRDS, crd["metadata"]["name"])
    await client.patch(
        kinds.CRDS,
        found.name,
        {"status": {"storedVersions": ["v1alpha1", "v1beta1"]}},
        subresource="status",
    )
    status, said = await muster("install", "--adopt-crds")
    assert (status, said) == (
        1,
        (
            "Error: queues.scheduling.volcano.sh has objects stored as version v1alpha1, which Muster doesn't serve: migrate "
            "them to v1beta1, and take v1alpha1 out of its status.storedVersions\n"
        ),
    )
    assert await written(client) == []


async def test_kinds_stay_when_muster_is_uninstalled_unless_asked(client: Client):
    assert (await muster("install"))[0] == 0
    assert (await muster("uninstall"))[0] == 0
    primary = sorted(each["metadata"]["name"] for each in crds.manifests(legacy_apis=False))
    assert await written(client) == primary
    queue = {"metadata": {"name": "left", "finalizers": [names.QUEUE_FINALIZER]}}
    await client.create(kinds.QUEUES, queue)
    _, said = await muster("uninstall", "--crds")
    assert said.endswith("deleting the CRDs and their objects\nCRDs and their objects removed\n")
    assert await written(client) == []


async def test_kinds_that_an_object_keeps_are_named(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(crds, "GONE_SECONDS", 0.5)
    assert (await muster("install"))[0] == 0
    held = {"metadata": {"name": "held", "finalizers": ["example.com/backup"]}, "spec": {"minMember": 1}}
    await client.create(kinds.PODGROUPS, held, "default")
    status, said = await muster("uninstall", "--crds")
    assert (status, said.splitlines()[-1]) == (
        1,
        (
            "Error: still being deleted after 0.5 s: podgroups.scheduling.volcano.sh. Objects of theirs have finalizers: find them with "
            "`kubectl get podgroups.scheduling.volcano.sh --all-namespaces`, and remove the finalizers"
        ),
    )


async def lease(client: Client, **spec: Any) -> None:
    await client.apply(
        kinds.LEASES,
        {"metadata": {"name": "muster-scheduler"}, "spec": {"leaseDurationSeconds": 2} | spec},
        names.SYSTEM_NAMESPACE,
        manager="a leader",
    )


async def test_a_lease_that_nobody_renews_is_no_obstacle(client: Client):
    await namespaces.ensure(client, names.SYSTEM_NAMESPACE)
    await preflight.alone(client, "muster")
    await lease(client, holderIdentity="muster-up_1", renewTime="2026-01-01T00:00:00.000000Z")
    await preflight.alone(client, "muster")
    await lease(client, holderIdentity="")
    await preflight.alone(client, "muster")


async def test_a_lease_that_is_renewed_is_one(client: Client):
    await namespaces.ensure(client, names.SYSTEM_NAMESPACE)
    await lease(client, leaseDurationSeconds=60, holderIdentity="a-pod_1", renewTime="2026-01-01T00:00:00.000000Z")
    looking = asyncio.create_task(preflight.alone(client, "muster"))
    await asyncio.sleep(0)
    await lease(client, leaseDurationSeconds=60, holderIdentity="a-pod_1", renewTime="2026-01-01T00:00:02.000000Z")
    with pytest.raises(click.ClickException) as caught:
        await looking
    assert caught.value.message == (
        "Muster serves this cluster already: a-pod holds the Lease muster-system/muster-scheduler; end that program first"
    )


async def test_webhooks_that_call_another_machine_are_one_and_those_of_a_crash_are_not(client: Client):
    async def register(url: str) -> None:
        webhook = {"name": "a.example.com", "clientConfig": {"url": url}, "sideEffects": "None"}
        manifest = {"metadata": {"name": "muster"}, "webhooks": [webhook | {"admissionReviewVersions": ["v1"]}]}
        await client.apply(kinds.MUTATING, manifest, manager="somebody")

    await register("https://127.0.0.1:1234/mutate/jobs")
    await preflight.alone(client, "muster")
    await register("https://10.0.0.5:9443/mutate/jobs")
    with pytest.raises(click.ClickException) as caught:
        await preflight.alone(client, "muster")
    assert caught.value.message == (
        "Muster serves this cluster already: its webhooks call https://10.0.0.5:9443; run `muster uninstall` first"
    )


async def test_what_calls_another_address_is_not_removed(client: Client):
    webhook = {"name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1:1234/a"}, "sideEffects": "None"}
    manifest = {"metadata": {"name": "muster"}, "webhooks": [webhook | {"admissionReviewVersions": ["v1"]}]}
    await client.create(kinds.VALIDATING, manifest)
    await webhook_configurations.remove(client, "https://127.0.0.1:4321")
    assert await client.find(kinds.VALIDATING, "muster") is not None
    await webhook_configurations.remove(client, "https://127.0.0.1:1234")
    assert await client.find(kinds.VALIDATING, "muster") is None


async def test_roles_that_collect_others_go_before_these(client: Client):
    """Else the controller that writes what they collect has a change to write, and makes the role again."""
    gone: list[str] = []

    class Watched:
        async def delete(self, kind: Any, name: str, namespace: str = "") -> Any:
            gone.append(f"{kind.name} {name}")
            return await client.delete(kind, name, namespace)

    given = permissions.roles(legacy_apis=True, metrics=True)
    collecting = [each["metadata"]["name"] for each in given if "aggregationRule" in each]
    assert collecting
    await permissions.remove(Watched(), given)  # type: ignore[arg-type]
    roles = [each for each in gone if each.startswith("ClusterRole ")]
    assert sorted(roles[: len(collecting)]) == sorted(f"ClusterRole {name}" for name in collecting)
    assert len(gone) == len(given)


@pytest.mark.parametrize(("holder", "left"), [("", []), ("a-pod", ["muster-scheduler"])])
async def test_a_lease_goes_with_the_installation_unless_a_program_holds_it_still(client: Client, holder, left):
    await namespaces.ensure(client, names.SYSTEM_NAMESPACE)
    await lease(client, holderIdentity=holder)
    assert (await muster("uninstall"))[0] == 0
    assert [each.name for each in (await client.list(kinds.LEASES, names.SYSTEM_NAMESPACE)).items] == left
