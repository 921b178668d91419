"""The commands against an API server over HTTP: what they print, what they leave alone, what they say when it is not as it should be."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import Result

from muster.cli import cluster, connect
from muster.cli.installation import crds
from muster.kube import errors
from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.transport import Request, Response
from muster.model import kinds
from muster.model.kinds import Kind
from muster.sandbox import virtual_time
from muster.sandbox.inprocess import InProcessTransport
from muster.sandbox.server.requests import ApiServer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TABLES = (
    "queue list",
    "queue list -o wide",
    "queue list -o name",
    "queue view research",
    "queue view research -o yaml",
    "podgroup list -n team-a",
    "podgroup list -n team-a -o wide",
    "podgroup list -A",
    "podgroup list -o name",
    "podgroup view train -n team-a",
    "podgroup view train -n team-a -o json",
)


@pytest.fixture
def ask(run: Callable[..., Result]) -> Callable[..., Any]:
    """Runs a command in a thread, beside the server."""
    return lambda command: asyncio.to_thread(run, *command.split())


@pytest.mark.parametrize("command", TABLES)
async def test_a_table_is_as_somebody_read_it(command: str, furnished: Any, ask: Any, golden: Any) -> None:
    furnished("busy.yaml")
    result = await ask(command)
    assert result.exit_code == 0, result.output
    golden(re.sub(r"[^a-zA-Z]+", "-", command), f"$ muster {command}\n{result.output}")


async def test_groups_of_every_kind_are_listed_by_their_own_names_and_say_whom_they_are_made_for(
    server: ApiServer, ask: Any
) -> None:
    for definition in crds.manifests(legacy_apis=True):
        server.store.put((kinds.CRDS.group, kinds.CRDS.plural), definition)
    legacy = kinds.LEGACY_PODGROUPS[0]
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "6a0ab211"}]
    for kind, name, more in ((legacy, "qj-1", {}), (kinds.PODGROUPS, "podgroup-6a0ab211", {"ownerReferences": owners})):
        meta = {"name": name, "namespace": "default", "uid": name, **more}
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, "spec": {}}
        server.store.put((kind.group, kind.plural), body)
    names_, document, one, wide = [
        (await ask(f"podgroup {rest}")).output
        for rest in ("list -o name", "list -o json", "view qj-1 -o yaml", "list -o wide")
    ]
    assert names_.split() == [f"podgroup.{kinds.PODGROUPS.group}/podgroup-6a0ab211", f"podgroup.{legacy.group}/qj-1"]
    assert [each["metadata"]["name"] for each in msgspec.json.decode(document)["items"]] == [
        "podgroup-6a0ab211",
        "qj-1",
    ]
    assert yaml.safe_load(one)["apiVersion"] == legacy.api_version
    assert "Job train" in wide


async def test_the_quotas_of_a_namespace_are_as_somebody_read_them(furnished: Any, ask: Any, golden: Any) -> None:
    furnished("quota.yaml")
    golden("quota-view", (await ask("quota view -n team-a")).output)


async def test_a_dump_gives_the_answers_of_the_cluster(furnished: Any, ask: Any, tmp_path: Path) -> None:
    furnished("busy.yaml")
    dump = await ask("dump")
    (tmp_path / "state.yaml").write_text(dump.stdout)
    for question in ("podgroup why train -n team-a", "admit -f files/job.yaml -f files/refused.yaml"):
        live, told = await ask(question), await ask(f"{question} --state {tmp_path / 'state.yaml'}")
        assert live.stdout == told.stdout
        assert live.exit_code == told.exit_code


async def test_admit_leaves_the_cluster_as_it_is(furnished: Any, ask: Any) -> None:
    store = furnished("quota.yaml").store
    before = store.revision
    assert (await ask("admit -f files/both.yaml -f files/brings.yaml -f files/job.yaml")).exit_code == 1
    assert store.revision == before


async def test_what_exists_is_judged_as_a_change(furnished: Any, ask: Any, tmp_path: Path) -> None:
    furnished("busy.yaml")
    group = {
        "apiVersion": kinds.PODGROUPS.api_version,
        "kind": "PodGroup",
        "spec": {"minMember": 6, "queue": "nightly"},
    }
    group["metadata"] = {"name": "train", "namespace": "team-a"}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(group))
    result = await ask(f"admit -f {tmp_path / 'train.yaml'} -o json")
    (told,) = yaml.safe_load(result.stdout)["objects"]
    assert told["outcome"] == "refused"
    assert "error when applying a patch to" in told["message"]
    assert 'queue "nightly" (spec.queue) does not exist' in told["message"]


@pytest.mark.parametrize(
    ("name", "namespace", "minimum", "said"),
    [("second", "default", 2, "runs already, 2 pods"), ("done", "team-a", 1, "has ended already")],
)
async def test_what_runs_already_is_not_said_to_start(
    name: str, namespace: str, minimum: int, said: str, furnished: Any, ask: Any, tmp_path: Path
) -> None:
    furnished("busy.yaml")
    group = {
        "apiVersion": kinds.PODGROUPS.api_version,
        "kind": "PodGroup",
        "spec": {"minMember": minimum, "queue": "default"},
    }
    group["metadata"] = {"name": name, "namespace": namespace}
    (tmp_path / "group.yaml").write_text(yaml.safe_dump(group))
    answer = await ask(f"admit -f {tmp_path / 'group.yaml'}")
    assert f"PodGroup {namespace}/{name} {said}" in answer.stdout


async def test_a_job_that_exists_can_not_be_judged_by_a_dump(furnished: Any, ask: Any, tmp_path: Path) -> None:
    furnished("empty.yaml")
    job = yaml.safe_load((Path(__file__).parent / "files" / "job.yaml").read_text())
    furnished("empty.yaml").store.put(("batch", "jobs"), {**job, "metadata": {**job["metadata"], "uid": "job"}})
    (tmp_path / "state.yaml").write_text((await ask("dump")).stdout)
    result = await ask(f"admit -f files/job.yaml --state {tmp_path / 'state.yaml'}")
    assert result.exit_code == 2
    assert "this Job exists" in result.stdout


ELSEWHERE = "batch-system"
DEPLOYED = {"metadata": {"name": "muster-scheduler", "labels": {"app.kubernetes.io/part-of": "muster"}}}
SERVICE = {"namespace": ELSEWHERE, "name": "muster-webhook"}
REGISTERED = {
    "metadata": {"name": "muster"},
    "webhooks": [{"name": "x.muster.sh", "clientConfig": {"service": SERVICE}, "rules": []}],
}


@pytest.mark.parametrize(
    ("kind", "thing"),
    [(kinds.DEPLOYMENTS, DEPLOYED), (kinds.VALIDATING, REGISTERED)],
    ids=["by-deployment", "by-webhooks"],
)
async def test_the_configuration_is_that_of_the_namespace_that_muster_is_installed_in(
    server: ApiServer, ask: Any, tmp_path: Path, kind: Kind[Any], thing: Any
) -> None:
    for definition in crds.manifests(legacy_apis=False):
        server.store.put((kinds.CRDS.group, kinds.CRDS.plural), definition)
    said = "allocate (ConfigMap batch-system/muster-scheduler)"
    configured = {"metadata": {"name": "muster-scheduler", "namespace": ELSEWHERE}}
    text = {"data": {"scheduler.yaml": "actions: allocate"}}
    place = {"namespace": ELSEWHERE} if kind.namespaced else {}
    typed = {"apiVersion": kind.api_version, "kind": kind.name}
    server.store.put((kind.group, kind.plural), typed | thing | {"metadata": thing["metadata"] | place})
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2, "queue": "default"}}
    typed = {"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup"}
    server.store.put((kinds.PODGROUPS.group, kinds.PODGROUPS.plural), typed | group)
    asked = "podgroup why g -n default -o json"
    assert "there is no ConfigMap batch-system/muster-scheduler" in (await ask(asked)).stdout
    server.store.put(("", "configmaps"), {"apiVersion": "v1", "kind": "ConfigMap"} | configured | text)
    assert msgspec.json.decode((await ask(asked)).stdout)["configuration"] == said
    (tmp_path / "state.yaml").write_text((await ask("dump")).stdout)
    kept = await ask(f"{asked} --state {tmp_path / 'state.yaml'}")
    assert msgspec.json.decode(kept.stdout)["configuration"] == said


async def test_where_muster_s_namespace_may_not_be_read_that_is_told_by_its_name(furnished: Any) -> None:
    server = furnished("empty.yaml")
    body = {"apiVersion": "apps/v1", "kind": "Deployment"} | DEPLOYED
    server.store.put(("apps", "deployments"), body | {"metadata": DEPLOYED["metadata"] | {"namespace": ELSEWHERE}})
    state = await cluster.read(Client(Forbidding(server, "configmaps")), NOON)
    assert [text.partition(":")[0] for text in state.unread] == ["configmaps are left out, no permission to list them"]
    assert state.home == ELSEWHERE


@pytest.mark.parametrize(
    ("command", "status"), [("podgroup why train", 1), ("dump", 1), ("admit -f files/job.yaml", 2)]
)
async def test_without_muster_in_the_cluster_it_is_said_how_to_install_it(
    server: Any, ask: Any, command: str, status: int
) -> None:
    result = await ask(command)
    assert result.output == "Error: this cluster does not have Muster's CRDs: run `muster install`\n"
    assert result.exit_code == status


class Forbidding:
    """A transport of somebody who may not list some kinds."""

    def __init__(self, server: Any, *plurals: str) -> None:
        self._inner = InProcessTransport(server)
        self._plurals = plurals

    async def request(self, request: Request, *, within: float) -> Response:
        plural = request.path.rpartition("/")[2]
        if plural in self._plurals:
            text = f'{plural} is forbidden: User "jane" cannot list resource "{plural}" in API group "" at the cluster scope'
            return Response(403, msgspec.json.encode({"kind": "Status", "reason": "Forbidden", "message": text}))
        return await self._inner.request(request, within=within)

    def watch(self, request: Request, *, idle: float) -> Any:
        return self._inner.watch(request, idle=idle)


async def test_a_right_that_is_missing_is_named(furnished: Any, noon: None) -> None:
    client = Client(Forbidding(furnished("busy.yaml"), "nodes"))
    with pytest.raises(errors.ForbiddenError) as refused:
        await cluster.read(client, NOON)
    said = 'the cluster denies permission: nodes is forbidden: User "jane" cannot list resource "nodes"'
    assert connect.explained(refused.value).startswith(said)


class Busy(Forbidding):
    """A transport to a server that isn't ready for some kinds at first."""

    async def request(self, request: Request, *, within: float) -> Response:
        plural = request.path.rpartition("/")[2]
        if plural in self._plurals:
            self._plurals = tuple(each for each in self._plurals if each != plural)
            body = {"kind": "Status", "reason": "TooManyRequests", "message": "storage is (re)initializing"}
            return Response(429, msgspec.json.encode(body), {"retry-after": "30"})
        return await self._inner.request(request, within=within)


def test_a_server_that_is_not_ready_is_asked_again() -> None:
    server = ApiServer(LoopClock(NOON))
    for definition in crds.manifests(legacy_apis=False):
        server.store.put((kinds.CRDS.group, kinds.CRDS.plural), definition)
    state = virtual_time.run(cluster.read(Client(Busy(server, "pods", "queues")), NOON))
    assert state.unread == ()


async def test_what_only_refines_the_answer_may_be_forbidden_and_that_is_told(furnished: Any) -> None:
    client = Client(Forbidding(furnished("busy.yaml"), "persistentvolumes", "poddisruptionbudgets"))
    state = await cluster.read(client, NOON)
    assert len(state.of(kinds.NODES)) == 2
    assert [text.partition(":")[0] for text in state.unread] == [
        "poddisruptionbudgets are left out, no permission to list them",
        "persistentvolumes are left out, no permission to list them",
    ]
