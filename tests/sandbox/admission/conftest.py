"""An API server in process with the admission chain, and webhooks that are functions."""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from muster.kube.clock import LoopClock
from muster.kube.transport import MERGE_PATCH, Request
from muster.sandbox.admission import AdmissionChain, UnreachableWebhookError
from muster.sandbox.server.requests import ApiServer
from muster.sandbox.virtual_time import VirtualTimeLoop

Json = dict[str, Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Json:
    """Run the tests of this folder in virtual time."""
    return {"virtual": VirtualTimeLoop}


class Caller:
    """Answers webhook calls: each URL (without its query) has a function of the review."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[Json], Any]] = {}
        self.calls: list[tuple[str, Json]] = []
        self.bundles: list[bytes] = []

    async def call(
        self,
        url: str,
        ca_bundle: bytes,
        body: bytes,
        *,
        within: float,  # noqa: ARG002 - the interface
    ) -> tuple[int, Mapping[str, str], bytes]:
        review = json.loads(body)
        self.calls.append((url, review))
        self.bundles.append(ca_bundle)
        answer = self.handlers[url.partition("?")[0]](review)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, tuple):
            return answer
        return 200, {"content-type": "application/json"}, json.dumps(answer).encode()

    @property
    def requests(self) -> list[Json]:
        return [review["request"] for _, review in self.calls]


class Api:
    """Requests to the server as a test writes them: each gives (status, body); warnings are kept."""

    def __init__(self) -> None:
        self.server = ApiServer(LoopClock(datetime(2026, 1, 1, tzinfo=UTC)))
        self.caller = Caller()
        self.server.writes.admission = AdmissionChain(self.server, self.caller)
        self.warnings = ""

    async def send(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str
    ) -> tuple[int, Json]:
        content = b"" if body is None else json.dumps(body).encode()
        response = await self.server.handle(Request(method, path, query, content, kind))
        self.warnings = response.headers.get("warning", "")
        return response.status, json.loads(response.body)

    async def create(self, path: str, obj: Json, **query: str) -> tuple[int, Json]:
        return await self.send("POST", path, obj, **query)

    async def patch(self, path: str, patch: Json, **query: str) -> tuple[int, Json]:
        return await self.send("PATCH", path, patch, MERGE_PATCH, **query)

    async def delete(self, path: str, **query: str) -> tuple[int, Json]:
        return await self.send("DELETE", path, **query)

    async def made(self, path: str, obj: Json) -> Json:
        status, body = await self.create(path, obj)
        assert status == 201, body["message"]
        return body

    async def namespace(self, name: str, **labels: str) -> None:
        await self.made("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})

    async def register(self, kind: str, *webhooks: Json, name: str = "test") -> None:
        obj = {"metadata": {"name": name}, "webhooks": list(webhooks)}
        await self.made(f"{GROUP}/{kind}webhookconfigurations", obj)


@pytest.fixture
async def api() -> Api:
    api = Api()
    await api.namespace("team", tier="gold")
    return api


@pytest.fixture
def hook() -> Callable[..., Json]:
    """A webhook for ConfigMaps, changed by what is given."""

    def make(name: str = "a.b.c", url: str = "https://hook.test/v", **more: Any) -> Json:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
        plain = {
            "name": name,
            "clientConfig": {"url": url, "caBundle": base64.b64encode(b"PEM").decode()},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 5,
            "rules": [rule],
        }
        return plain | more

    return make


@pytest.fixture
def config_map() -> Callable[..., Json]:
    """A ConfigMap with data."""

    def make(name: str = "x", **data: str) -> Json:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}

    return make


@pytest.fixture
def answer() -> Callable[..., Callable[[Json], Json]]:
    """A webhook function that gives one response; ``operations`` are those of its patch."""

    def make(*, allowed: bool = True, operations: list[Json] | None = None, **more: Any) -> Callable[[Json], Json]:
        response: Json = {"allowed": allowed, **more}
        if operations is not None:
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}

        def respond(review: Json) -> Json:
            filled = {"uid": review["request"]["uid"], **response}
            return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": filled}

        return respond

    return make


@pytest.fixture
def unreachable() -> Callable[[str], Callable[[Json], Exception]]:
    """A webhook function that nobody reaches, for that reason."""
    return lambda why: lambda _review: UnreachableWebhookError(why)
