"""A real API server in front: it compiles our conditions, calls us, applies our patches and passes our words on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from certs import authority
from muster.cli import install
from muster.kube import auth
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.errors import ForbiddenError, InvalidError
from muster.kube.http import HttpTransport
from muster.kube.transport import Request
from muster.model import kinds, names
from webhooks.compose import Options, serving
from webhooks.registration import UrlBase, configurations
from webhooks.server import Listen
from webhooks.tls import Files

NAMESPACE = "admission"


@pytest.fixture
async def cluster(real_control_plane: Any, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a real API server that calls a real webhook server."""
    clock = SystemClock()
    ca = authority.new_ca(clock.now())
    pair = authority.issue(ca, ("127.0.0.1",), clock.now())
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    endpoint = await auth.load(str(real_control_plane.kubeconfig()))
    async with HttpTransport(endpoint) as transport:
        client = Client(transport)
        await install.apply_kinds(client, legacy_apis=True, adopt=True)
        await install.ensure_namespace(client, NAMESPACE)
        await client.apply(kinds.QUEUES, _queue(names.DEFAULT_QUEUE), manager="test")
        options = Options(Files(tmp_path), Listen("127.0.0.1", 0, 0.0), legacy_apis=True)
        async with serving(client, clock, options) as server:
            base = UrlBase(f"https://127.0.0.1:{server.port}")
            both = configurations(
                base, ca.certificate, scheduler_names=["muster"], legacy_apis=True, own_namespace="muster-system"
            )
            try:
                await install.apply_webhooks(client, *both)
                await _effective(client)
                yield client
            finally:
                await install.remove_webhooks(client)


async def _effective(client: Client) -> None:
    """Wait until the API server calls us: it takes a second to notice its own configurations, and tells nobody."""
    async with asyncio.timeout(30):
        while not await _called(client):  # noqa: ASYNC110 - see above: there is nothing to wait for
            await asyncio.sleep(0.1)


async def _called(client: Client) -> bool:
    try:
        await client.create(kinds.PODGROUPS, _podgroup("probe", "nope"), NAMESPACE, dry_run=True)
    except ForbiddenError:
        job = await client.create(kinds.JOBS, _job("probe"), NAMESPACE, dry_run=True)
        return bool(job.spec.suspend)
    return False


def _job(name: str, **annotations: str) -> Any:
    spec = {"schedulerName": "muster", "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": annotations}
    return {"metadata": metadata, "spec": {"template": {"spec": spec}}}


def _podgroup(name: str, queue: str) -> Any:
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"queue": queue}}


def _queue(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": spec}


async def _refused(made: Callable[[], Any], error: type[Exception]) -> str:
    with pytest.raises(error) as found:
        await made()
    return str(found.value)


async def test_the_story_of_admission_on_a_real_api_server(cluster: Client) -> None:
    async def group(queue: str, kind: Any = kinds.PODGROUPS) -> Any:
        return await cluster.create(kind, _podgroup(f"in-{queue}", queue), NAMESPACE)

    # 1. A queue that isn't there, in all three API groups.
    for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS):
        text = await _refused(lambda kind=kind: group("nope", kind), ForbiddenError)
        assert text.startswith(
            'admission webhook "podgroupminresources.muster.sh" denied the request:'
            ' queue "nope" (spec.queue) does not exist: '
        )

    # 2. A queue and its group from one file.
    await cluster.create(kinds.QUEUES, _queue("fresh", guarantee={"resource": {"cpu": "2"}}))
    assert (await group("fresh")).spec.queue == "fresh"

    # 3. What the children are guaranteed.
    await cluster.create(kinds.QUEUES, _queue("dept", guarantee={"resource": {"cpu": "2"}}))
    child = _queue("team", parent="dept", guarantee={"resource": {"cpu": "3"}})
    text = await _refused(lambda: cluster.create(kinds.QUEUES, child), InvalidError)
    assert "spec.guarantee.resource[cpu]: 3 with the 0 of its siblings is more than the 2 of its parent" in text

    # 4. The queue of those who name none stays.
    text = await _refused(lambda: cluster.delete(kinds.QUEUES, names.DEFAULT_QUEUE), ForbiddenError)
    assert text.endswith('queue "default" can\'t be deleted: Muster needs it; close it instead')

    # 5. A Job waits suspended; its group's queue is checked.
    job = await cluster.create(kinds.JOBS, _job("train"), NAMESPACE)
    assert (job.spec.suspend, job.metadata.annotation(names.SUSPENDED)) == (True, "true")
    wrong = _job("wrong", **{names.QUEUE_NAME_KEYS[0]: "nope"})
    text = await _refused(lambda: cluster.create(kinds.JOBS, wrong, NAMESPACE), ForbiddenError)
    assert text.startswith('admission webhook "jobs.validate.muster.sh" denied the request: queue "nope" (annotation ')

    # 6. Released, its pods come with their group's name.
    await cluster.patch(kinds.JOBS, "train", {"spec": {"suspend": False}}, NAMESPACE)
    pod = await _first_pod(cluster)
    assert pod.metadata.annotation(names.GROUP_NAME) == f"podgroup-{job.metadata.uid}"

    # 7. Deleting a queue tells what goes with it.
    response = await cluster.send(Request("DELETE", kinds.QUEUES.path(name="fresh"), {"dryRun": "All"}))
    assert response.headers["warning"] == '299 - "deleting queue \\"fresh\\" deletes 1 PodGroup in it"'


async def _first_pod(client: Client) -> Any:
    request = Request("GET", kinds.PODS.path(NAMESPACE), {"watch": "true", "labelSelector": "job-name=train"})
    async with asyncio.timeout(30), client.transport.watch(request, idle=30) as lines:
        async for line in lines:
            return msgspec.convert(msgspec.json.decode(line)["object"], kinds.PODS.struct)
    return None
