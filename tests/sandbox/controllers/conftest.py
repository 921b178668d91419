"""A whole sandbox in virtual time, asked through its API as any client would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from muster.kube import errors
from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.transport import MERGE_PATCH, Request
from muster.sandbox.compose import Sandbox
from muster.sandbox.virtual_time import VirtualTimeLoop

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of this folder in virtual time."""
    return {"virtual": VirtualTimeLoop}


class Cluster:
    """A sandbox; its objects as plain JSON."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.client = Client(sandbox.transport())

    async def create(self, manifest: dict[str, Any]) -> Any:
        group, _, version = manifest["apiVersion"].rpartition("/")
        resource = self.sandbox.server.registry.by_kind(group, manifest["kind"], version)
        assert resource is not None
        namespace = manifest["metadata"].get("namespace", "default")
        return await self._send("POST", self._path(resource.plural, namespace), manifest)

    async def get(self, plural: str, name: str, namespace: str = "default") -> Any:
        """Return the object, or None."""
        try:
            return await self._send("GET", self._path(plural, namespace, name))
        except errors.NotFoundError:
            return None

    async def list(self, plural: str, namespace: str = "") -> list[Any]:
        items: list[Any] = (await self._send("GET", self._path(plural, namespace)))["items"]
        return items

    async def patch(
        self, plural: str, name: str, change: Any, namespace: str = "default", subresource: str = ""
    ) -> Any:
        path = self._path(plural, namespace, name, subresource)
        request = Request("PATCH", path, {}, msgspec.json.encode(change), MERGE_PATCH)
        return msgspec.json.decode((await self.client.send(request)).body)

    async def delete(self, plural: str, name: str, namespace: str = "default", propagation: str = "Background") -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        await self._send("DELETE", self._path(plural, namespace, name), options)

    async def end(self, pod: str, phase: str = "Succeeded", namespace: str = "default") -> None:
        """End a pod that no kubelet runs."""
        await self.patch("pods", pod, {"status": {"phase": phase}}, namespace, "status")

    async def names(self, plural: str, namespace: str = "default") -> list[str]:
        return [each["metadata"]["name"] for each in await self.list(plural, namespace)]

    async def events(self, name: str, namespace: str = "default") -> list[tuple[str, str]]:
        """Give (reason, message) of the events about an object, in their order, repeated as often as counted."""
        found = [each for each in await self.list("events", namespace) if each["involvedObject"]["name"] == name]
        found.sort(key=lambda each: each["firstTimestamp"])
        return [(each["reason"], each["message"]) for each in found for _ in range(each["count"])]

    def _path(self, plural: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
        resource = next(each for each in self.sandbox.server.registry.all() if each.plural == plural)
        root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
        scope = f"/namespaces/{namespace}" if resource.namespaced and namespace else ""
        return root + scope + "".join(f"/{part}" for part in (plural, name, subresource) if part)

    async def _send(self, method: str, path: str, body: Any = None) -> Any:
        content = msgspec.json.encode(body) if body is not None else b""
        return msgspec.json.decode((await self.client.send(Request(method, path, {}, content))).body)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster without nodes: pods stay Pending until a test ends them."""
    sandbox = Sandbox(LoopClock(START))
    await sandbox.start()
    await asyncio.sleep(0.1)
    yield Cluster(sandbox)
    await sandbox.stop()


@pytest.fixture
async def running(cluster: Cluster) -> Cluster:
    """A cluster with two nodes of 4 cpu, 16Gi and ten pods."""
    for name in ("n1", "n2"):
        await cluster.sandbox.add_node(name, "4", "16Gi", pods=10)
    return cluster


def _container(requests: dict[str, str] | None) -> dict[str, Any]:
    return {"name": "c", "image": "x", **({"resources": {"requests": requests}} if requests else {})}


@pytest.fixture
def new_job() -> Callable[..., dict[str, Any]]:
    """Makes the manifest of a Job: its spec's fields by name, `requests` and `annotations` of its pods."""

    def make(
        name: str = "j",
        *,
        requests: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        policy: str = "Never",
        **spec: Any,
    ) -> dict[str, Any]:
        pod = {"restartPolicy": policy, "containers": [_container(requests)]}
        template = {"metadata": {"annotations": annotations or {}}, "spec": pod}
        metadata = {"name": name}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}

    return make


@pytest.fixture
def new_pod() -> Callable[..., dict[str, Any]]:
    """Makes the manifest of a pod: `requests`, `annotations`, `labels` and fields of its spec by name."""

    def make(
        name: str,
        *,
        requests: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> dict[str, Any]:
        metadata = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
        whole = {"containers": [_container(requests)], **spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}

    return make


@pytest.fixture
def new_deployment() -> Callable[..., dict[str, Any]]:
    """Makes the manifest of a Deployment (or ReplicaSet): its spec's fields by name, `image` of its pods."""

    def make(name: str = "d", *, kind: str = "Deployment", image: str = "x:1", **spec: Any) -> dict[str, Any]:
        labels = {"app": name}
        containers = [{"name": "c", "image": image, "resources": {"requests": {"cpu": "100m"}}}]
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        whole = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template, **spec}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": whole}

    return make
