"""The view over caches, the overlay on it, and the whole server put together."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from controlplane import free_ports
from listening import Listening
from msgspec.structs import replace

from certs import authority
from certs.serving import CertificateFiles, ServingCertificateError
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.transport import Request, Response
from muster.model import kinds
from muster.model.amounts import Resources
from muster.model.objects import Node, Queue
from webhooks import caches
from webhooks.caches import CachedView
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions
from webhooks.verdict import ObjectRef
from webhooks.view import FreshView


def queue(name: str, parent: str = "") -> Queue:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    return msgspec.convert({"metadata": metadata, "spec": {"parent": parent}}, Queue)


def node(name: str, version: str = "1", **allocatable: str) -> Node:
    metadata = {"name": name, "uid": name, "resourceVersion": version}
    return msgspec.convert({"metadata": metadata, "status": {"allocatable": allocatable}}, Node)


def names(found: Any) -> set[str]:
    return {each.name for each in found}


def test_children_are_found_by_their_parent() -> None:
    view = CachedView()
    for each in (queue("dept"), queue("a", "dept"), queue("b", "dept")):
        view.cache(kinds.QUEUES).put(each)
    assert names(view.children("dept")) == {"a", "b"}
    assert names(view.children("root")) == {"dept"}
    view.cache(kinds.QUEUES).drop(queue("a"))
    assert names(view.children("dept")) == {"b"}


def test_the_cluster_is_as_large_as_its_nodes_and_unknown_until_they_are_listed() -> None:
    view = CachedView()
    nodes = view.cache(kinds.NODES)
    assert view.capacity() is None
    nodes.replace([node("a", cpu="4", pods="110"), node("b", cpu="4", pods="110")], "1")
    assert view.capacity() == Resources.parse({"cpu": "8", "pods": "220"})
    nodes.put(node("a", "2", cpu="6", pods="110"))
    nodes.put(node("b", "3", cpu="lots"))
    assert view.capacity() == Resources.parse({"cpu": "6", "pods": "110"})
    nodes.drop(node("a", "4"))
    assert not view.capacity()


def test_a_kind_that_is_not_watched_is_not_there() -> None:
    view = CachedView()
    assert view.get(kinds.LEGACY_QUEUES[0], "old") is None
    assert list(view.items(kinds.LEGACY_PODGROUPS[0])) == []
    assert CachedView(legacy_apis=True).watches(kinds.LEGACY_QUEUES[1])


def test_fresh_objects_and_fresh_absences_cover_what_the_caches_show() -> None:
    view = CachedView()
    for each in (queue("a", "dept"), queue("b", "dept"), queue("c")):
        view.cache(kinds.QUEUES).put(each)
    fresh = {
        ObjectRef(kinds.QUEUES, "a"): None,
        ObjectRef(kinds.QUEUES, "b"): queue("b", "elsewhere"),
        ObjectRef(kinds.QUEUES, "d"): queue("d", "dept"),
    }
    over = FreshView(view, fresh)
    assert names(over.children("dept")) == {"d"}
    assert names(over.items(kinds.QUEUES)) == {"b", "c", "d"}
    assert over.get(kinds.QUEUES, "a") is None
    assert over.get(kinds.QUEUES, "c") == queue("c")


class Lists:
    """An API server with one queue, that never has news."""

    def __init__(self) -> None:
        self.listed = asyncio.Event()

    async def request(self, request: Request, *, within: float) -> Response:  # noqa: ARG002 - the protocol's
        await self.listed.wait()
        default = {"metadata": {"name": "default", "uid": "d", "resourceVersion": "1"}}
        items = [default] if request.path.endswith("/queues") else []
        return Response(200, msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items}))

    @contextlib.asynccontextmanager
    async def watch(self, request: Request, *, idle: float) -> AsyncIterator[Any]:  # noqa: ARG002 - the protocol's
        async def nothing() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        yield nothing()


@pytest.fixture
def options(tmp_path: Path) -> WebhookOptions:
    return WebhookOptions(CertificateFiles(tmp_path), ListenOptions("127.0.0.1", 0, 0.0), probes=0)


async def test_a_server_serves_once_its_caches_are_synced(
    options: WebhookOptions, tmp_path: Path, review_of: Any, podgroup: Any, aiohttp_client: Any
) -> None:
    now = SystemClock().now()
    ca = authority.new_ca(now)
    pair = authority.issue(ca, ("127.0.0.1",), now)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    api = Lists()
    asyncio.get_running_loop().call_soon(api.listed.set)
    async with serving(Client(api), SystemClock(), options) as server:
        assert server.not_ready() == []
        trust = ssl.create_default_context(cadata=ca.certificate.decode())
        client = await aiohttp_client(Listening(port=server.port), connector=aiohttp.TCPConnector(ssl=trust))
        async with client.post("/validate/podgroups", data=review_of(podgroup())) as response:
            assert (await response.json())["response"]["allowed"]
    assert server.not_ready() == ["stopping"]


async def test_a_server_that_watches_no_more_is_not_alive(
    options: WebhookOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody foresaw why: what is foreseen is tried again."""
    now = SystemClock().now()
    pair = authority.issue(authority.new_ca(now), ("127.0.0.1",), now)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    broken = asyncio.Event()

    async def run(self: CachedView, _: Client) -> None:
        self._synced.set()
        await broken.wait()
        raise RuntimeError("a defect")

    monkeypatch.setattr(CachedView, "run", run)
    (port,) = free_ports(1)
    api = Lists()
    api.listed.set()
    async with serving(Client(api), SystemClock(), replace(options, probes=port)):
        assert await probed(port) == (200, "ok\n")
        broken.set()
        async with asyncio.timeout(30):
            while (answer := await probed(port))[0] == 200:  # noqa: ASYNC110 - the question goes over HTTP
                await asyncio.sleep(0.01)
        assert answer == (503, "the cluster isn't watched any more\n")


async def probed(port: int) -> tuple[int, str]:
    async with aiohttp.request("GET", f"http://127.0.0.1:{port}/healthz") as response:
        return response.status, await response.text()


async def test_without_a_certificate_nothing_is_started(options: WebhookOptions) -> None:
    with pytest.raises(ServingCertificateError, match="muster certs init"):
        async with serving(Client(Lists()), SystemClock(), options):
            pass


def test_a_node_that_can_not_be_counted_costs_its_own_capacity_alone(monkeypatch):
    poisoned, count = {"bad"}, caches._allocatable

    def failing(node):
        if node is not None and node.name in poisoned:
            raise ZeroDivisionError("nobody foresaw it")
        return count(node)

    monkeypatch.setattr(caches, "_allocatable", failing)
    view = CachedView()
    nodes = view.cache(kinds.NODES)
    nodes.replace([_node("bad", 1), _node("good", 2)], "3")
    nodes.put(_node("other", 4))
    assert (str(view.capacity()), nodes.unknown("")) == ("4 cpu", ["bad"])
    poisoned.clear()
    assert nodes.retry(("", "bad"))
    assert str(view.capacity()) == "6 cpu"
    nodes.drop(_node("bad", 5))
    assert str(view.capacity()) == "4 cpu"


def _node(name, version):
    meta = {"name": name, "uid": name, "resourceVersion": str(version)}
    return msgspec.convert({"metadata": meta, "status": {"allocatable": {"cpu": "2"}}}, kinds.NODES.struct)
