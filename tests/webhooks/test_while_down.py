"""What can be written while no webhook server answers: all that changes nothing Muster judges, so Jobs end and nodes drain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from plane import Plane

from muster.kube.errors import ServerError
from muster.kube.transport import Request
from muster.model import kinds, names
from muster.model.kinds import Kind
from webhooks.admission import Admission
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions

HOLD = "example.com/hold"


@dataclass(frozen=True)
class Down:
    """A namespace labelled ``guaranteed`` with one object of each kind that is judged, and nobody to judge it."""

    plane: Plane
    namespace: str
    queue: str

    async def change(self, kind: Kind[Any], change: Mapping[str, Any], subresource: str = "") -> Any:
        """Change the one object of a kind."""
        name, space = (self.queue, "") if kind == kinds.QUEUES else ("held", self.namespace)
        return await self.plane.client.patch(kind, name, change, space, subresource=subresource)


def _pods(**more: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container], **more}


def _held(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "held", "finalizers": [HOLD]}, "spec": spec}


async def _nobody_answers(*_: Any) -> tuple[int, Mapping[str, str], bytes]:
    """Answer as a load balancer does that has no server behind it."""
    return 503, {}, b""


@pytest.fixture
async def down(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Down]:
    space, queue = await plane.namespace(**{names.QUOTA_MODE: names.GUARANTEED}), plane.unique("held")
    await plane.client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}, "spec": {}}, manager="test")
    await plane.create(kinds.QUEUES, {"metadata": {"name": queue}, "spec": {}})
    for kind, manifest in (
        (kinds.PODS, _held(**_pods())),
        (kinds.PODGROUPS, _held(minMember=1, minResources={"cpu": "1"})),
        (kinds.JOBS, _held(suspend=True, template={"spec": _pods()})),
        (kinds.RESOURCEQUOTAS, _held(hard={"cpu": "100"})),
    ):
        await plane.client.create(kind, manifest, space)
    async with serving(
        await plane.connect(), plane.clock, WebhookOptions(plane.certificate, ListenOptions("127.0.0.1", 0, 0.0))
    ) as server:
        await plane.register(server, namespace=space)
        with monkeypatch.context() as broken:
            broken.setattr(Admission, "handle", _nobody_answers)
            yield Down(plane, space, queue)
        # Before the server ends: nobody may be left to wait for it.
        await plane.unregister()


JUDGED: tuple[tuple[Kind[Any], str, Mapping[str, Any]], ...] = (
    (kinds.PODS, "", {"spec": {"activeDeadlineSeconds": 60}}),
    (kinds.PODS, "", {"metadata": {"annotations": {names.GROUP_NAME: "another"}}}),
    (kinds.PODS, "", {"metadata": {"annotations": {names.VOLCANO_GROUP_NAME: "another"}}}),
    (kinds.PODGROUPS, "", {"spec": {"minResources": {"cpu": "2"}}}),
    (kinds.PODGROUPS, "", {"spec": {"queue": "another"}}),
    (kinds.PODGROUPS, "", {"spec": {"priorityClassName": "another"}}),
    (kinds.PODGROUPS, "", {"metadata": {"annotations": {names.POD_TRAITS: "terminating"}}}),
    (kinds.PODGROUPS, "", {"metadata": {"annotations": {names.QUOTA_POLICY: names.POLICY_QUEUE}}}),
    (kinds.JOBS, "", {"metadata": {"annotations": {names.QUEUE_NAME_KEYS[0]: "another"}}}),
    (kinds.JOBS, "", {"metadata": {"annotations": {names.GROUP_MIN_RESOURCES: '{"cpu": "9"}'}}}),
    (kinds.JOBS, "", {"spec": {"template": {"metadata": {"annotations": {names.GROUP_NAME: "another"}}}}}),
    (kinds.RESOURCEQUOTAS, "", {"spec": {"hard": {"cpu": "1"}}}),
    (kinds.QUEUES, "", {"spec": {"weight": 2}}),
)


async def test_what_nobody_judges_is_written_and_what_is_judged_is_not(down: Down) -> None:
    for kind in (kinds.PODS, kinds.PODGROUPS, kinds.JOBS, kinds.RESOURCEQUOTAS, kinds.QUEUES):
        changed = await down.change(kind, {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}})
        assert changed.metadata.annotation("a") == "b"
    for kind, subresource, change in JUDGED:
        with pytest.raises(ServerError, match="failed calling webhook"):
            pytest.fail(f"written: {await down.change(kind, change, subresource)} {change}")


@pytest.mark.only("kubernetes", reason="the sandbox has no resize")
async def test_a_pod_does_not_grow_unseen(down: Down) -> None:
    larger = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
    with pytest.raises(ServerError, match="failed calling webhook"):
        await down.change(kinds.PODS, {"spec": {"containers": [larger]}}, "resize")


async def test_a_job_and_its_pods_end_and_a_node_drains(down: Down) -> None:
    await down.change(kinds.PODS, {"status": {"phase": "Succeeded"}}, "status")
    await down.change(kinds.JOBS, {"spec": {"parallelism": 3}})
    for kind in (kinds.PODS, kinds.PODGROUPS, kinds.JOBS):
        at_once = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
        await down.plane.client.send(Request("DELETE", kind.path(down.namespace, "held"), at_once))
        assert (await down.plane.client.get(kind, "held", down.namespace)).metadata.deletion_timestamp
        await down.change(kind, {"metadata": {"finalizers": None}})
        await down.plane.until(kind, "held", down.namespace, holds=lambda found: found is None)
