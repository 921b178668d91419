"""Which writes an API server calls us for: what is ours to judge, and nothing of those who have nothing to do with us."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from plane import ACCOUNTS, Plane

from muster.model import kinds, names
from muster.model.kinds import Kind
from webhooks.admission import Admission
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions

_SYSTEM = "kube-system"


@dataclass(frozen=True)
class Watched:
    """An API server that calls a webhook server for three namespaces: the test's, the system's, and Muster's own."""

    plane: Plane
    here: str
    own: str
    reviews: list[str]

    async def reviewed(self, kind: Kind[Any], manifest: Mapping[str, Any], namespace: str = "") -> list[str]:
        """Create an object, to try; give the paths at which we were asked about it."""
        self.reviews.clear()
        named = {"metadata": {"name": "tried"}, **manifest}
        await self.plane.client.create(kind, named, (namespace or self.here) if kind.namespaced else "", dry_run=True)
        return sorted(self.reviews)

    async def changed(self, kind: Kind[Any], name: str, change: Any, subresource: str = "") -> list[str]:
        """Change an object; give the paths at which we were asked about it."""
        self.reviews.clear()
        namespace = self.here if kind.namespaced else ""
        await self.plane.client.patch(kind, name, change, namespace, subresource=subresource)
        return sorted(self.reviews)


@pytest.fixture
async def watched(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    reviews: list[str] = []
    handle = Admission.handle

    async def noted(self: Admission, path: str, query: Mapping[str, str], body: bytes) -> Any:
        reviews.append(path)
        return await handle(self, path, query, body)

    monkeypatch.setattr(Admission, "handle", noted)
    here, own = await plane.namespace(), await plane.namespace()
    await plane.until(ACCOUNTS, "default", _SYSTEM)
    await plane.client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}, "spec": {}}, manager="test")
    options = WebhookOptions(plane.certificate, ListenOptions("127.0.0.1", 0, 0.0))
    async with serving(await plane.connect(), plane.clock, options) as server:
        await plane.register(server, namespace=here, beside=(own, _SYSTEM), own_namespace=own)
        yield Watched(plane, here, own, reviews)
        # Before the server ends: nobody may be left to wait for it.
        await plane.unregister()


def _pods(scheduler: str) -> Any:
    return {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}


def _job(scheduler: str) -> Any:
    return {"spec": {"template": {"spec": _pods(scheduler)}}}


_QUOTA = {"spec": {"hard": {"requests.cpu": "1"}}}
_GROUP = {"spec": {"minMember": 1}}
_OURS: tuple[tuple[Kind[Any], Any, list[str]], ...] = (
    (kinds.PODS, {"spec": _pods("muster")}, ["/mutate/pods"]),
    (kinds.JOBS, _job("muster"), ["/mutate/jobs", "/validate/jobs"]),
    (kinds.PODGROUPS, _GROUP, ["/validate/podgroups"]),
    (kinds.RESOURCEQUOTAS, _QUOTA, ["/validate/resourcequotas"]),
)


def _deployment(scheduler: str) -> dict[str, Any]:
    labels = {"app": "theirs"}
    template = {"metadata": {"labels": labels}, "spec": {**_pods(scheduler), "restartPolicy": "Always"}}
    return {"spec": {"selector": {"matchLabels": labels}, "template": template}}


async def test_neither_the_system_nor_muster_itself_waits_for_a_webhook(watched: Watched) -> None:
    for kind, manifest, asked in _OURS:
        assert await watched.reviewed(kind, manifest) == asked
        for namespace in (_SYSTEM, watched.own):
            assert await watched.reviewed(kind, manifest, namespace) == [], f"{kind} in {namespace}"


async def test_what_is_not_ours_to_judge_never_waits_for_a_webhook(watched: Watched) -> None:
    for kind, manifest in (
        (kinds.PODS, {"spec": _pods("default-scheduler")}),
        (kinds.JOBS, _job("default-scheduler")),
        (kinds.DEPLOYMENTS, _deployment("default-scheduler")),
        (kinds.CONFIGMAPS, {"data": {"a": "b"}}),
        (kinds.NAMESPACES, {}),
        (kinds.PRIORITYCLASSES, {"value": 1}),
    ):
        assert await watched.reviewed(kind, manifest) == [], f"{kind}"
    assert await watched.reviewed(kinds.DEPLOYMENTS, _deployment("muster")) == ["/validate/workloads"]
    # A Job of others that says it is in one of our queues is told that this does nothing.
    annotated = {"metadata": {"name": "tried", "annotations": {names.QUEUE_NAME_KEYS[0]: "q"}}, **_job("other")}
    assert await watched.reviewed(kinds.JOBS, annotated) == ["/validate/jobs"]


async def test_what_controllers_say_of_ours_never_waits_for_a_webhook(watched: Watched) -> None:
    queue, namespace = watched.plane.unique("said"), watched.here
    await watched.plane.create(kinds.QUEUES, {"metadata": {"name": queue}, "spec": {}})
    await watched.plane.create(kinds.PODGROUPS, {"metadata": {"name": "g"}, "spec": {"queue": queue}}, namespace)
    await watched.plane.create(kinds.PODS, {"metadata": {"name": "p"}, "spec": _pods("muster")}, namespace)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    for kind, name, change in (
        (kinds.QUEUES, queue, {"status": {"state": "Open", "pending": 1}}),
        (kinds.PODGROUPS, "g", {"status": {"phase": "Inqueue"}}),
        (kinds.PODS, "p", {"status": {"conditions": [condition]}}),
    ):
        assert await watched.changed(kind, name, change, "status") == [], f"status of {kind}"
    assert await watched.changed(kinds.PODS, "p", {"metadata": {"labels": {"a": "b"}}}) == []
    # As the Job controller counts the pods that ended: by a finalizer that it sets, and takes away again.
    for finalizers in (["batch.kubernetes.io/job-tracking"], None):
        assert await watched.changed(kinds.PODS, "p", {"metadata": {"finalizers": finalizers}}) == []
    assert await watched.changed(kinds.QUEUES, queue, {"spec": {"weight": 2}}) == ["/validate/queues"]
    assert await watched.changed(kinds.PODGROUPS, "g", {"spec": {"minMember": 2}}) == ["/validate/podgroups"]
