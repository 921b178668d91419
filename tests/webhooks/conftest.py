"""A cluster in memory, and the policies asked about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from muster.kube.client import Client
from muster.kube.transport import Request, Response
from muster.ledger.reservations import Observed, Reserved
from muster.model import kinds
from muster.model.amounts import Resources
from muster.model.kinds import Kind
from webhooks import review
from webhooks.admission import Admission
from webhooks.metrics import WebhookMetrics
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.view import parent_of

KINDS = {
    kind.plural + kind.group: kind
    for kind in (*vars(kinds).values(), *kinds.LEGACY_PODGROUPS, *kinds.LEGACY_QUEUES)
    if isinstance(kind, Kind)
}
PLURALS = {"PodGroup": "podgroups", "Queue": "queues", "Job": "jobs", "Pod": "pods", "ResourceQuota": "resourcequotas"}


class Cluster:
    """A view whose objects a test puts there as JSON."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Kind[Any], str, str], Any] = {}
        self.size: Resources | None = None

    def put(self, kind: Kind[Any], name: str, namespace: str = "", **fields: Any) -> None:
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"} | fields.pop("metadata", {})
        self.objects[kind, namespace, name] = msgspec.convert({"metadata": metadata, **fields}, kind.struct)

    def queue(self, name: str, *, state: str = "Open", metadata: Any = None, **spec: Any) -> None:
        self.put(kinds.QUEUES, name, spec=spec, status={"state": state}, metadata=metadata or {})

    def namespace(self, name: str, *, annotations: Any = None, labels: Any = None) -> None:
        self.put(kinds.NAMESPACES, name, metadata={"annotations": annotations or {}, "labels": labels or {}})

    def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        return self.objects.get((kind, namespace, name))

    def items(self, kind: Any, namespace: str = "") -> Iterable[Any]:
        return [found for key, found in self.objects.items() if key[0] == kind and namespace in {"", key[1]}]

    def children(self, queue: str) -> Iterable[Any]:
        return [found for found in self.items(kinds.QUEUES) if parent_of(found) == queue]

    def capacity(self) -> Resources | None:
        return self.size


@pytest.fixture
def cluster() -> Cluster:
    """A cluster with two open queues, one of them the default, and the namespace ``dev``."""
    cluster = Cluster()
    cluster.queue("default")
    cluster.queue("research")
    cluster.namespace("dev")
    return cluster


def body(obj: Any, operation: str = "CREATE", **fields: Any) -> bytes:
    """Write the review of an object; ``old`` is oldObject, the rest are fields of the request."""
    group, _, version = obj["apiVersion"].rpartition("/")
    metadata = obj["metadata"]
    request = {
        "uid": "6f0c5b4e",
        "kind": {"group": group, "version": version, "kind": obj["kind"]},
        "resource": {"group": group, "version": version, "resource": PLURALS.get(obj["kind"], "")},
        "operation": operation,
        "name": metadata.get("name", ""),
        "namespace": metadata.get("namespace", ""),
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": None if operation == "DELETE" else obj,
        "oldObject": obj if operation == "DELETE" else fields.pop("old", None),
        "dryRun": False,
    } | fields
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


@pytest.fixture
def review_of() -> Callable[..., bytes]:
    """Gives `body`."""
    return body


@pytest.fixture
def ask(cluster: Cluster) -> Callable[..., Any]:
    """Gives what a policy says of an object: ``ask(policy, object, operation, old=…)``."""

    def asked(
        policy: Any, obj: Any, operation: str = "CREATE", settings: WebhookSettings | None = None, **fields: Any
    ) -> Any:
        request: AdmissionRequest = review.parse(body(obj, operation, **fields))
        return policy(request, cluster, settings or WebhookSettings())

    return asked


@pytest.fixture
def podgroup() -> Callable[..., Any]:
    """Makes a PodGroup as JSON."""

    def made(name: str = "gang", *, status: Any = None, metadata: Any = None, group: str = "", **spec: Any) -> Any:
        version = "v1alpha1" if group else "v1beta1"
        return {
            "apiVersion": f"{group or 'scheduling.volcano.sh'}/{version}",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "dev", "uid": f"uid-{name}", "resourceVersion": "7"}
            | (metadata or {}),
            "spec": {"queue": "default"} | spec,
            "status": status or {},
        }

    return made


@pytest.fixture
def queue() -> Callable[..., Any]:
    """Makes a Queue as JSON."""

    def made(name: str = "team", *, group: str = "", **spec: Any) -> Any:
        version = "v1alpha1" if group else "v1beta1"
        return {
            "apiVersion": f"{group or 'scheduling.volcano.sh'}/{version}",
            "kind": "Queue",
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {"weight": 1} | spec,
        }

    return made


@pytest.fixture
def job() -> Callable[..., Any]:
    """Makes a Job of two pods with 1 cpu each, as JSON."""

    def made(
        name: str = "train", *, scheduler: str = "muster", annotations: Any = None, pod: Any = None, **spec: Any
    ) -> Any:
        template = {
            "metadata": {"annotations": pod or {}},
            "spec": {
                "schedulerName": scheduler,
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
            },
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": "dev", "uid": f"uid-{name}", "annotations": annotations or {}},
            "spec": {"parallelism": 2, "completions": 2, "template": template} | spec,
        }

    return made


@pytest.fixture
def pod() -> Callable[..., Any]:
    """Makes a pod as JSON."""

    def made(
        name: str = "worker-0", *, scheduler: str = "muster", annotations: Any = None, owner: Any = None, **spec: Any
    ) -> Any:
        metadata: dict[str, Any] = {"name": name, "namespace": "dev", "uid": f"uid-{name}", "resourceVersion": "7"}
        if annotations is not None:
            metadata["annotations"] = annotations
        if owner:
            api_version, kind, owner_name = owner
            reference = {"apiVersion": api_version, "kind": kind, "name": owner_name, "uid": f"uid-{owner_name}"}
            metadata["ownerReferences"] = [reference | {"controller": True}]
        containers = [{"name": "main", "image": "busybox"}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"schedulerName": scheduler, "containers": containers} | spec,
        }

    return made


class Api:
    """An API server that answers GETs from a dict of paths, and notes what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []

    async def request(self, request: Request, *, within: float) -> Response:  # noqa: ARG002 - the protocol's
        self.asked.append(request.path)
        answer = self.answers.get(request.path)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            status = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}
            return Response(404, msgspec.json.encode(status))
        return Response(200, msgspec.json.encode(answer))

    def watch(self, request: Request, *, idle: float) -> Any:
        raise NotImplementedError


class Ledger:
    """Says what a test told it to, and notes what it was asked."""

    def __init__(self) -> None:
        self.answer: Any = Reserved()
        self.learned: Any = Observed()
        self.asked: list[Any] = []

    async def reserve(self, request: Any, *, deadline: float, dry_run: bool) -> Any:
        self.asked.append((request, deadline, dry_run))
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def observe_quota(
        self, namespace: str, name: str, uid: str, hard: Any, *, deadline: float, dry_run: bool
    ) -> Any:
        self.asked.append((namespace, name, uid, hard, deadline, dry_run))
        return self.learned


@pytest.fixture
def api() -> Api:
    """An API server that knows nothing yet."""
    return Api()


@pytest.fixture
def ledger() -> Ledger:
    """A ledger that grants everything."""
    return Ledger()


@pytest.fixture
def admission(cluster: Cluster, ledger: Ledger, api: Api) -> Admission:
    """The real admission over the cluster, the ledger and the API server of this test."""
    return Admission(cluster, ledger, Client(api), WebhookSettings(), WebhookMetrics())
