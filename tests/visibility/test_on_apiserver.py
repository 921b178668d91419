"""The visibility API behind a real API server's aggregation: what tenants are answered, and that it holds nothing up.

In the sandbox, which has no aggregation and no RBAC, the group is dispatched in process: tests/story asks it there.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from controlplane import ControlPlane, free_ports
from deployed import Program
from plane import PATIENCE, Plane, running

from certs import apiservice
from certs.apiservice import ApiServiceKeeper, Registration
from certs.bundle import KeyPair
from muster.cli.installation import namespaces, permissions
from muster.cli.visible import PARTIAL
from muster.kube import errors
from muster.kube.auth import Endpoint
from muster.kube.client import Client
from muster.kube.http import HttpTransport
from muster.kube.transport import Request
from muster.model import kinds, names
from muster.visibility.paths import ROOT
from muster.visibility.server import VisibilityServer

pytestmark = [
    pytest.mark.only("kubernetes", reason="the sandbox has neither aggregation nor RBAC"),
    pytest.mark.processes,
]

SERVICES = "/api/v1/namespaces/{}/services"


class Visible:
    """The API, registered by its keeper at a Service that leads to loopback."""

    def __init__(self, plane: Plane, real: ControlPlane) -> None:
        self.plane = plane
        self.real = real
        self.stack = contextlib.AsyncExitStack()
        self.tokens: dict[str, str] = {}

    async def tenant(self, namespace: str, role: str = "edit") -> Client:
        """Return a client of somebody who has a role in a namespace, and nothing else."""
        admin, name = self.plane.client, "tenant"
        await admin.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": name}}, namespace)
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        await admin.create(kinds.ROLEBINDINGS, body, namespace)
        return await self.account(name, namespace)

    async def account(self, name: str, namespace: str) -> Client:
        """Return a client of a service account."""
        path = kinds.SERVICEACCOUNTS.path(namespace, name, "token")
        answer = await self.plane.client.send(Request("POST", path, {}, b'{"spec":{}}'))
        token = self.tokens[name] = json.loads(answer.body)["status"]["token"]
        endpoint = Endpoint.with_token(self.real.url, self.real.ca_file.read_text(), token)
        return Client(await self.stack.enter_async_context(HttpTransport(endpoint)))


async def until_answered(client: Client, path: str, within: float = PATIENCE) -> Any:
    """Return the answer to a question once there is one: roles are collected by a controller, and caches fill."""
    async with asyncio.timeout(within):
        while True:
            try:
                return json.loads((await client.send(Request("GET", path))).body)
            except (errors.NotFoundError, errors.ForbiddenError, errors.ServerError, errors.TooManyRequestsError):
                await asyncio.sleep(0.1)


def why(namespace: str, name: str) -> str:
    return f"{ROOT}/namespaces/{namespace}/podgroups/{name}/why"


def group(name: str, cpu: str = "1000") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"minMember": 1, "queue": "default", "minResources": {"cpu": cpu}}}


@pytest.fixture
async def visible(
    plane: Plane, real_control_plane: ControlPlane, serve: Callable[..., Any], ca: KeyPair
) -> AsyncIterator[tuple[Visible, VisibilityServer]]:
    """The API as an installation has it: each program under its own account, and the policies on these."""
    admin, space = plane.client, names.SYSTEM_NAMESPACE
    made = Visible(plane, real_control_plane)
    await namespaces.ensure(admin, space)
    roles = permissions.roles(legacy_apis=False, visibility=True)
    policies = [each for each in permissions.policies() if each["metadata"]["name"].startswith("apiservices.")]
    await permissions.apply(admin, [*roles, *policies])
    # What the keeper takes the bundle from; it is called for nothing.
    hook = {
        "name": "bundle.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/x", "caBundle": base64.b64encode(ca.certificate).decode()},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [],
    }
    await plane.create(kinds.VALIDATING, {"metadata": {"name": "muster"}, "webhooks": [hook]})
    service = {"metadata": {"name": apiservice.SERVICE}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    await admin.send(Request("POST", SERVICES.format(space), {}, json.dumps(service).encode()))
    async with made.stack:
        made.stack.push_async_callback(_removed, admin, [*roles, *policies])
        own = await made.account("muster-visibility", space)
        server = await made.stack.enter_async_context(serve(own, f"{apiservice.SERVICE}.{space}.svc"))
        registration = Registration(space, port=server.port, probes=(f"127.0.0.1:{server.port}",))
        async with running(ApiServiceKeeper(await made.account("muster-certs", space), registration).run()):
            await until_answered(admin, ROOT)
            yield made, server


async def _removed(admin: Client, manifests: Sequence[Any]) -> None:
    await apiservice.remove(admin)
    await admin.send(Request("DELETE", f"{SERVICES.format(names.SYSTEM_NAMESPACE)}/{apiservice.SERVICE}"))
    await permissions.remove(admin, manifests)


async def test_a_tenant_asks_why_where_and_whether_and_sees_their_own_namespace_only(visible):
    made, _ = visible
    plane, mine, rivals = made.plane, await made.plane.namespace(), await made.plane.namespace()
    await plane.client.apply(kinds.QUEUES, {"metadata": {"name": "default"}, "spec": {"weight": 1}}, manager="test")
    await plane.client.create(kinds.PODGROUPS, group("zebra"), rivals)
    await asyncio.sleep(1.1)  # Creation times have whole seconds, and the earlier one is ahead.
    await plane.client.create(kinds.PODGROUPS, group("train"), mine)
    tenant = await made.tenant(mine)
    told = (await until_answered(tenant, why(mine, "train")))["status"]
    assert (told["queue"], told["position"], told["ahead"]) == ("default", 2, [])
    assert "zebra" not in json.dumps(told)
    place = (await until_answered(tenant, why(mine, "train").replace("/why", "/position")))["status"]
    assert place == {"podGroup": "train", "queue": "default", "position": 2, "waiting": 2}
    for path in (why(rivals, "zebra"), f"{ROOT}/queues", f"{ROOT}/queues/default"):
        with pytest.raises(errors.ForbiddenError, match="cannot"):
            await tenant.send(Request("GET", path))
    objects = [{"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup", **group("more")}]
    wanted = json.dumps({"spec": {"objects": objects}}).encode()
    answer = await tenant.send(Request("POST", f"{ROOT}/namespaces/{mine}/admissions", {}, wanted))
    (verdict,) = json.loads(answer.body)["status"]["objects"]
    assert (verdict["name"], verdict["outcome"]) == ("more", "admitted")
    with pytest.raises(errors.ForbiddenError):
        await tenant.send(Request("POST", f"{ROOT}/namespaces/{rivals}/admissions", {}, wanted))
    viewer = await made.tenant(rivals, "view")
    assert (await until_answered(viewer, why(rivals, "zebra")))["status"]["position"] == 1
    with pytest.raises(errors.ForbiddenError):
        await viewer.send(Request("POST", f"{ROOT}/namespaces/{rivals}/admissions", {}, wanted))


def muster(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "muster.cli", *words, "--kubeconfig", str(config)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


async def test_the_commands_of_a_tenant_work_and_say_where_an_answer_is_a_part_of_the_truth(visible, tmp_path):
    made, _ = visible
    plane, mine, rivals = made.plane, await made.plane.namespace(), await made.plane.namespace()
    await plane.client.apply(kinds.QUEUES, {"metadata": {"name": "default"}, "spec": {"weight": 1}}, manager="test")
    await plane.client.create(kinds.PODGROUPS, group("zebra"), rivals)
    await asyncio.sleep(1.1)  # Creation times have whole seconds, and the earlier one is ahead.
    await plane.client.create(kinds.PODGROUPS, group("train"), mine)
    tenant = await made.tenant(mine)
    await until_answered(tenant, why(mine, "train"))
    config = made.real.kubeconfig("tenant", made.tokens["tenant"])
    wanted = tmp_path / "more.yaml"
    wanted.write_text(json.dumps({"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup", **group("more")}))

    async def said(*words: str, fails: bool = False) -> tuple[str, str]:
        done = await asyncio.to_thread(muster, config, *words)
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        assert "zebra" not in done.stdout + done.stderr
        return done.stdout, done.stderr

    out, note = await said("podgroup", "why", "train", "-n", mine)
    assert "place  2 in the line of queue default, behind 1 of other namespaces" in out
    assert note == f"note: {PARTIAL}\n"
    # The API is asked as soon as it is known that the tenant may not read the cluster.
    _, note = await said("podgroup", "why", "train", "-n", mine, "--v=6")
    sent = [line.split("?")[0].split()[1] for line in note.splitlines() if line.startswith("GET ")]
    assert sent == ["/api/v1/nodes", f"{ROOT}/namespaces/{mine}/workloads/train/why"]
    out, _ = await said("podgroup", "why", "podgroup/train", "-n", mine, "-o", "json")
    assert json.loads(out)["position"] == 2
    _, error = await said("podgroup", "why", "none", "-n", mine, fails=True)
    assert f'nothing called "none" in namespace {mine}' in error
    _, error = await said("podgroup", "why", "train", "-n", rivals, fails=True)
    assert "the cluster denies permission" in error
    out, note = await said("admit", "-f", str(wanted), "-n", mine)
    assert "podgroup.scheduling.volcano.sh/more admitted\n" in out
    # Where lines are broken depends on the namespace's name.
    assert "would not start on the cluster as it is: the cluster, short by 1000 cpu" in " ".join(out.split())
    assert PARTIAL in note
    out, note = await said("podgroup", "list", "--start", "-n", mine)
    assert "START" in out
    assert "not in 2 weeks" in out
    assert "expected starts are the visibility API's, as of" in note
    out, _ = await said("podgroup", "why", "train", "--start", "-n", mine)
    assert "start no time can be told: it doesn't start within two weeks" in " ".join(out.split())
    out, _ = await said("podgroup", "why", "train", "--start", "-n", mine, "-o", "json")
    assert json.loads(out)["start"].keys() == {"early", "middle", "late", "reason", "ageSeconds"}
    out, _ = await said("admit", "--start", "-f", str(wanted), "-n", mine)
    assert "no time can be told" in " ".join(out.split())
    out, _ = await said("top", "--once", "--start", "-n", mine)
    assert f"{mine}/train"[:20] in out
    assert "not in 2 weeks" in out
    assert f"note: of namespace {mine} alone" in out
    for words in (("podgroup", "list"), ("podgroup", "view", "train"), ("quota", "view")):
        out, _ = await said(*words, "-n", mine)
        assert mine in out or "train" in out
    _, error = await said("queue", "list", fails=True)
    assert "the cluster denies permission" in error
    body = {
        "metadata": {"name": "queues-for-tenants"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "muster-visibility-queues"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": mine}],
    }
    await plane.create(kinds.CLUSTERROLEBINDINGS, body)
    await until_answered(tenant, f"{ROOT}/queues")
    out, note = await said("queue", "list")
    assert "default" in out
    assert PARTIAL in note


async def test_no_name_of_kubectl_means_something_else(visible):
    made, _ = visible
    answer = await made.plane.client.send(Request("GET", "/apis"))
    groups = [each["name"] for each in json.loads(answer.body)["groups"]]
    assert groups.index("scheduling.volcano.sh") < groups.index("visibility.muster.sh")
    listed = json.loads((await made.plane.client.send(Request("GET", ROOT))).body)["resources"]
    assert not [each for each in listed if "shortNames" in each or "categories" in each]


async def test_uninstall_removes_it_and_a_namespace_is_deleted_within_ten_seconds(visible):
    made, server = visible
    plane, space = made.plane, await made.plane.namespace()
    everyone = permissions.for_everyone()
    await permissions.apply(plane.client, [everyone])
    done = await asyncio.to_thread(muster, made.real.kubeconfig(), "uninstall")
    assert done.returncode == 0, done.stderr
    assert await plane.client.find(kinds.CLUSTERROLEBINDINGS, everyone["metadata"]["name"]) is None
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{apiservice.NAME}"
    with pytest.raises(errors.NotFoundError):
        await plane.client.send(Request("GET", path))
    await server.stop()
    await _is_deleted(plane, space)


async def test_with_all_replicas_gone_a_namespace_is_deleted_within_ten_seconds(visible):
    made, server = visible
    plane = made.plane
    space = await plane.namespace()
    await server.stop()
    await _is_deleted(plane, space)
    with pytest.raises(errors.NotFoundError):
        await plane.client.send(Request("GET", f"/apis/apiregistration.k8s.io/v1/apiservices/{apiservice.NAME}"))


async def test_with_the_leader_killed_tenants_are_answered_and_a_namespace_is_deleted_within_ten_seconds(
    visible, tmp_path
):
    made, _ = visible
    plane, admin, space = made.plane, str(made.real.kubeconfig()), await made.plane.namespace()
    await namespaces.ensure(plane.client, names.SYSTEM_NAMESPACE)
    words = ("muster.cli", "scheduler", "--kubeconfig", admin)
    leader = await asyncio.to_thread(Program, tmp_path / "scheduler.log", free_ports(1)[0], *words)
    try:
        await plane.until(
            kinds.LEASES, names.SCHEDULER_LEASE, names.SYSTEM_NAMESPACE, holds=lambda lease: lease and lease.spec
        )
        # Others wait in the default queue, too.
        await plane.client.create(kinds.QUEUES, {"metadata": {"name": space}, "spec": {"weight": 1}})
        await plane.client.create(
            kinds.PODGROUPS, {**group("train"), "spec": {**group("train")["spec"], "queue": space}}, space
        )
        tenant = await made.tenant(space)
        await until_answered(tenant, why(space, "train"))
    finally:
        await asyncio.to_thread(leader.kill)
    answer = await tenant.send(Request("GET", why(space, "train")))
    assert json.loads(answer.body)["status"]["position"] == 1
    await _is_deleted(plane, space)


async def _is_deleted(plane: Plane, namespace: str) -> None:
    await plane.client.delete(kinds.NAMESPACES, namespace)
    await plane.until(kinds.NAMESPACES, namespace, holds=lambda found: found is None, within=10)


async def test_who_registers_it_may_register_nothing_else(visible):
    made, server = visible
    certs = await made.account("muster-certs", names.SYSTEM_NAMESPACE)
    other = Registration("elsewhere", port=server.port).manifest(b"")
    for change in ({"group": "batch.example.com"}, {"groupPriorityMinimum": 2000}, {}):
        spec = {**other["spec"], **change}
        name = f"{spec['version']}.{spec['group']}"
        body = json.dumps({**other, "metadata": {"name": name}, "spec": spec}).encode()
        request = Request("POST", "/apis/apiregistration.k8s.io/v1/apiservices", {"dryRun": "All"}, body)
        said = await _refused(certs, request)
        assert "registers the visibility API at Muster's own Service only" in said


async def _refused(client: Client, request: Request) -> str:
    """Return why a request is refused, once it is: API servers take up a policy after a while, and tell nobody."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.send(request)
            except errors.ForbiddenError as error:
                return str(error)
            await asyncio.sleep(0.1)
