"""Workloads on an API server: refused when they are applied, and never in the way of who rolls out, scales, rolls back or deletes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from plane import PATIENCE, Plane

from muster.kube import wait
from muster.kube.errors import ForbiddenError, NotFoundError
from muster.kube.transport import Request
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Object
from muster.model.workloads import CRONJOB, OPERATORS, WorkloadObject
from tests.support.frameworks import definition, needs_them, sample
from webhooks.admission import Admission
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions

TYPO = "scheduling.k8s.io/group-min-members"
MEMBERS, QUEUE = names.GROUP_MIN_MEMBER, names.QUEUE_NAME_KEYS[0]
AUTOSCALERS: Kind[Object] = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", Object)
HPA = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"


class Cluster:
    """A namespace whose workloads are judged, with a queue of its own; ``down`` is set where nobody answers any more."""

    def __init__(self, plane: Plane, namespace: str, queue: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.queue = queue
        self.down = False
        self.asked: list[str] = []

    async def create(self, kind: Kind[Any], one: Any) -> Any:
        return await self.plane.client.create(kind, one, self.namespace)

    async def change(self, kind: Kind[Any], change: Any, subresource: str = "", **options: Any) -> Any:
        return await self.plane.client.patch(kind, "web", change, self.namespace, subresource=subresource, **options)

    async def unscaled(self) -> None:
        """Delete the autoscaler, where there is one."""
        if self.plane.name == "kubernetes":
            await self.plane.client.delete(AUTOSCALERS, "web", self.namespace)

    async def refused(self, kind: Kind[Any], one: Any) -> str:
        with pytest.raises(ForbiddenError) as found:
            await self.create(kind, one)
        return str(found.value)

    async def said(self, kind: Kind[Any], one: Any) -> str:
        """Create for a try; return the warnings."""
        body = msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.name, **one})
        request = Request("POST", kind.path(self.namespace), {"dryRun": "All"}, body)
        return (await self.plane.client.send(request)).headers.get("warning", "")

    async def refused_once_seen(self, change: Any) -> str:
        """Try a change until it is refused: it takes a moment until webhooks see what was made."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.change(kinds.DEPLOYMENTS, change, dry_run=True)
                except ForbiddenError as error:
                    return str(error)
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Close the queue; return when the webhooks have seen it."""
        await self.plane.client.patch(kinds.QUEUES, self.queue, {"spec": {"desiredState": "Closed"}})
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.plane.client.create(
                        kinds.DEPLOYMENTS, self.deployment("probe"), self.namespace, dry_run=True
                    )
                except ForbiddenError:
                    return
                await asyncio.sleep(0.02)

    def deployment(self, name: str = "web", queue: str = "", members: int = 2, replicas: int = 2) -> dict[str, Any]:
        labels = {"app": name}
        metadata = {"name": name, "annotations": {MEMBERS: str(members), QUEUE: queue or self.queue}}
        template = {"metadata": {"labels": labels}, "spec": pods("Always")}
        return {
            "metadata": metadata,
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        }


def pods(restart: str = "Never") -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {"schedulerName": "muster", "restartPolicy": restart, "containers": [container]}


@pytest.fixture
async def cluster(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    namespace, queue = await plane.namespace(), plane.unique("research")
    cluster, handle = Cluster(plane, namespace, queue), Admission.handle

    async def answer(self: Admission, path: str, query: Mapping[str, str], body: bytes) -> Any:
        cluster.asked.append(path)
        return (503, {}, b"") if cluster.down else await handle(self, path, query, body)

    monkeypatch.setattr(Admission, "handle", answer)
    await plane.client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}, "spec": {}}, manager="test")
    await plane.create(kinds.QUEUES, {"metadata": {"name": queue}, "spec": {}})
    async with AsyncExitStack() as stack:
        options = WebhookOptions(plane.certificate, ListenOptions("127.0.0.1", 0, 0.0))
        server = await stack.enter_async_context(serving(await plane.connect(), plane.clock, options))
        await plane.register(server, namespace=namespace)
        # Before the server ends: nobody may be left to wait for it.
        stack.push_async_callback(plane.unregister)
        yield cluster
        cluster.down = False  # what shows that nobody is called any more is judged, too


async def test_a_deployment_a_cronjob_and_a_statefulset_that_can_never_run_are_refused_when_they_are_applied(
    cluster: Cluster,
) -> None:
    text = await cluster.refused(kinds.DEPLOYMENTS, cluster.deployment(queue="nope"))
    assert text.startswith(
        'admission webhook "deployments.validate.muster.sh" denied the request:'
        f' queue "nope" (annotation {QUEUE}) does not exist: use one of the open queues ('
    )
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "10"}}}
    await cluster.create(kinds.RESOURCEQUOTAS, quota)
    text = await cluster.refused(kinds.DEPLOYMENTS, cluster.deployment(members=12, replicas=12))
    assert 'Deployment web requests 12 requests.cpu, but quota "team" has 10 requests.cpu hard' in text
    job = {"parallelism": 12, "template": {"spec": pods()}}
    nightly = {"schedule": "0 3 * * *", "jobTemplate": {"metadata": {"annotations": {MEMBERS: "12"}}, "spec": job}}
    text = await cluster.refused(CRONJOB.kind, {"metadata": {"name": "nightly"}, "spec": nightly})
    assert 'a Job of CronJob nightly requests 12 requests.cpu, but quota "team" has 10 requests.cpu hard: short' in text
    ordered = cluster.deployment()
    ordered["spec"]["serviceName"] = "web"
    assert "the gang never starts: it needs 2 pods at once, and a StatefulSet" in await cluster.refused(
        kinds.STATEFULSETS, ordered
    )
    slow = {"parallelism": 2, "completions": 4, "template": {"spec": pods()}}
    late = {"metadata": {"name": "late", "annotations": {MEMBERS: "4"}}, "spec": slow}
    assert "the gang never starts: it needs 4 pods at once" in await cluster.refused(kinds.JOBS, late)
    # One that makes no pods for now has time to change, and others may be scaled; nodes may come.
    await cluster.create(kinds.JOBS, late | {"spec": slow | {"parallelism": 0}})
    said = await cluster.said(kinds.DEPLOYMENTS, cluster.deployment(members=4, replicas=2))
    assert "the gang waits until it is scaled: it needs 4 pods at once, replicas allow 2" in said
    assert "all nodes together have no cpu, the gang needs 4 cpu to start" in said
    # What Muster doesn't schedule costs no call.
    asked = len(cluster.asked)
    foreign = cluster.deployment("foreign", "nope")
    foreign["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"
    await cluster.create(kinds.DEPLOYMENTS, foreign)
    assert "/validate/workloads" not in cluster.asked[asked:]


@pytest.mark.parametrize("down", [False, True], ids=["closed", "down"])
async def test_what_runs_is_rolled_out_scaled_rolled_back_and_deleted_while_its_queue_is_closed_or_nobody_answers(
    cluster: Cluster,
    down: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    plane, namespace = cluster.plane, cluster.namespace
    before = await cluster.create(kinds.DEPLOYMENTS, cluster.deployment())
    await plane.all(kinds.REPLICASETS, namespace, holds=lambda found: len(found) == 1)
    await cluster.close()
    cluster.down = down
    template = {"metadata": {"annotations": {"version": "2"}}, "spec": {"priority": None}}
    await cluster.change(kinds.DEPLOYMENTS, {"spec": {"template": template}})
    await plane.all(kinds.REPLICASETS, namespace, holds=lambda found: len(found) == 2)
    await cluster.change(kinds.DEPLOYMENTS, {"spec": {"replicas": 3}}, "scale")
    for replicas in (4, 1):
        await autoscale(cluster, replicas)
    await cluster.unscaled()
    # Back to the template that it had, as kubectl rollout undo does it.
    await cluster.change(kinds.DEPLOYMENTS, {"spec": {"template": {"metadata": {"annotations": {"version": None}}}}})
    found = await plane.client.get(kinds.DEPLOYMENTS, "web", namespace)
    assert found.spec.template.metadata.annotations in (None, {})
    assert found.metadata.uid == before.metadata.uid
    foreground = {"propagationPolicy": "Foreground", "gracePeriodSeconds": "0"}
    await plane.client.send(Request("DELETE", kinds.DEPLOYMENTS.path(namespace, "web"), foreground))
    await plane.until(kinds.DEPLOYMENTS, "web", namespace, holds=lambda found: found is None)
    await plane.all(kinds.PODS, namespace, holds=lambda found: not found)


async def autoscale(cluster: Cluster, replicas: int) -> None:
    """Have an autoscaler set the number of replicas: a real one where there is one, else what it would write."""
    plane, namespace = cluster.plane, cluster.namespace
    if plane.name == "kubernetes":
        # It needs no metrics for what is outside of its limits.
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        limits = {"minReplicas": replicas, "maxReplicas": replicas, "scaleTargetRef": target}
        await plane.client.apply(AUTOSCALERS, {"metadata": {"name": "web"}, "spec": limits}, namespace, manager="test")
    else:
        autoscaler, change = await plane.acting_as(HPA), {"spec": {"replicas": replicas}}
        await autoscaler.patch(kinds.DEPLOYMENTS, "web", change, namespace, subresource="scale")
    await plane.until(
        kinds.DEPLOYMENTS, "web", namespace, holds=lambda found: found is not None and found.spec.replicas == replicas
    )


OPERATOR = "system:serviceaccount:operators:operator"
OPERATED = {
    "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": pods()}}}},
    "TrainJob": {"runtimeRef": {"name": "torch"}},
    "Workflow": {"schedulerName": "muster", "templates": []},
}


@pytest.mark.parametrize("down", [False, True], ids=["closed", "down"])
async def test_an_operator_goes_on_with_its_objects_while_their_queue_is_closed_or_nobody_answers(
    cluster: Cluster,
    down: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    plane, namespace = cluster.plane, cluster.namespace
    chosen = {each.kind.name: each.kind for each in OPERATORS if each.kind.name in OPERATED}
    for kind in chosen.values():
        await without(cluster, kind)
        await plane.create(kinds.CRDS, schemaless(kind))
    metadata = {"name": "web", "annotations": {QUEUE: cluster.queue, MEMBERS: "2"}}
    for name, kind in chosen.items():
        assert 'queue "nope"' in await _refused_once_served(
            cluster, kind, {"metadata": metadata | {"annotations": {QUEUE: "nope"}}, "spec": OPERATED[name]}
        )
        await cluster.create(kind, {"metadata": metadata, "spec": OPERATED[name]})
    await cluster.close()
    cluster.down = down
    operator = await plane.acting_as(OPERATOR)
    fewer = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}
    for name, kind in chosen.items():
        held = {"metadata": {"finalizers": ["example.com/operator"], "labels": {"example.com/seen": "yes"}}}
        await operator.patch(kind, "web", held, namespace)
        status = {"status": {"conditions": [{"type": "Running", "status": "True"}]}}
        await operator.patch(kind, "web", status, namespace, subresource="status")
        spec = {"suspend": True} | (fewer if name == "PyTorchJob" else {})
        await operator.patch(kind, "web", {"spec": spec}, namespace)
        foreground = {"propagationPolicy": "Foreground"}
        await plane.client.send(Request("DELETE", kind.path(namespace, "web"), foreground))
        await operator.patch(kind, "web", {"metadata": {"finalizers": None}}, namespace)
        await plane.until(kind, "web", namespace, holds=lambda found: found is None)


async def test_gangs_of_cronjobs_and_operators_get_muster_s_scheduler_where_the_namespace_says_so(
    cluster: Cluster,
) -> None:
    client, kind = cluster.plane.client, next(each.kind for each in OPERATORS if each.kind.name == "PyTorchJob")
    await without(cluster, kind)
    await cluster.plane.create(kinds.CRDS, schemaless(kind))
    await client.patch(kinds.NAMESPACES, cluster.namespace, {"metadata": {"labels": {names.DEFAULT_SCHEDULER: "true"}}})
    plain = {"spec": _unscheduled(pods())}
    metadata = {"name": "web", "annotations": {QUEUE: cluster.queue, MEMBERS: "1"}}
    operated = {"metadata": metadata, "spec": {"pytorchReplicaSpecs": {"Worker": {"template": plain}}}}
    nightly = {
        "metadata": metadata,
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": plain}}},
    }
    async with asyncio.timeout(PATIENCE):
        for each, one in ((kind, operated), (CRONJOB.kind, nightly)):
            while "schedulerName': 'muster'" not in str(await _tried(cluster, each, one)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    # Of others nothing is changed.
    del operated["metadata"]["annotations"]
    assert "muster'" not in str(await _tried(cluster, kind, operated))
    assert "muster'" not in str(await _tried(cluster, CRONJOB.kind, nightly))


async def _tried(cluster: Cluster, kind: Kind[Any], one: Any) -> Any:
    """Return the spec that would be stored; None of a kind that isn't served yet."""
    try:
        return (await cluster.plane.client.create(kind, one, cluster.namespace, dry_run=True)).spec
    except NotFoundError:
        return None


async def without(cluster: Cluster, kind: Kind[Any]) -> None:
    """Delete the CRD of another test of this control plane, which has a schema of its own."""
    name, client = str(kind), cluster.plane.client
    if await client.find(kinds.CRDS, name) is not None:
        await client.delete(kinds.CRDS, name)
        await wait.until(client, kinds.CRDS, name, holds=lambda crd: crd is None, within=PATIENCE)


def schemaless(kind: Kind[Any]) -> dict[str, Any]:
    """Return a CRD of a kind with a status, and any fields."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": kind.version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    words = {"kind": kind.name, "plural": kind.plural, "singular": kind.name.lower(), "listKind": f"{kind.name}List"}
    meta = {"name": str(kind), "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"}}
    return {
        "metadata": meta,
        "spec": {"group": kind.group, "scope": "Namespaced", "names": words, "versions": [version]},
    }


async def test_an_update_is_refused_for_what_it_makes_worse_itself(cluster: Cluster) -> None:
    await cluster.create(kinds.RESOURCEQUOTAS, {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "10"}}})
    await cluster.create(kinds.DEPLOYMENTS, cluster.deployment())
    larger = {"metadata": {"annotations": {MEMBERS: "12"}}}
    with pytest.raises(ForbiddenError, match=r"Deployment web requests 12 requests\.cpu, but quota"):
        await cluster.change(kinds.DEPLOYMENTS, larger)
    with pytest.raises(ForbiddenError, match=r'queue "nope" .* does not exist'):
        await cluster.change(kinds.DEPLOYMENTS, {"metadata": {"annotations": {QUEUE: "nope"}}})
    # So it is once its group is there, which the scheduler makes.
    await cluster.change(kinds.DEPLOYMENTS, {"metadata": {"annotations": {MEMBERS: "8"}}})
    uid = (await cluster.plane.client.get(kinds.DEPLOYMENTS, "web", cluster.namespace)).metadata.uid
    group = {"metadata": {"name": f"podgroup-{uid}"}, "spec": {"minMember": 8, "minResources": {"cpu": "8"}}}
    await cluster.create(kinds.PODGROUPS, group)
    assert "short by 2 requests.cpu" in await cluster.refused_once_seen(larger)
    # Tried as often as one likes, nothing is taken for it: the rest of the quota is there for others.
    await cluster.create(kinds.DEPLOYMENTS, cluster.deployment("other", members=2))


@needs_them
async def test_the_objects_of_every_framework_are_refused_in_a_queue_that_does_not_exist(cluster: Cluster) -> None:
    plane = cluster.plane
    for operator in OPERATORS:
        await without(cluster, operator.kind)
        await plane.create(kinds.CRDS, definition(str(operator.kind)))
    for name, kind, change in SAMPLES:
        workload = next(each for each in OPERATORS if each.kind.name == kind)
        one = sample(name, kind) if name else TRAINJOB
        one = {"spec": one["spec"], "metadata": {"name": "web", "annotations": {QUEUE: "nope"}}}
        change(one["spec"])
        text = await _refused_once_served(cluster, workload.kind, one)
        plural = workload.kind.plural
        assert text.startswith(f'admission webhook "{plural}.validate.muster.sh" denied the request: queue "nope" ')
        one["metadata"]["annotations"] = {TYPO: "2"}
        assert f"unknown annotation {TYPO}: did you mean {MEMBERS}?" in await cluster.said(workload.kind, one)
        one["metadata"]["annotations"] = {}
        found = await cluster.said(workload.kind, one)
        assert "unknown" not in found
        assert "no effect" not in found
        if workload.templates:
            one["metadata"]["annotations"] = {MEMBERS: "1"}
            assert "have no effect" in await cluster.said(workload.kind, _unscheduled(one))


async def _refused_once_served(cluster: Cluster, kind: Kind[WorkloadObject], one: Any) -> str:
    """Create an object of a CRD that was just made: it takes a moment until it is served, and tells nobody."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await cluster.create(kind, one)
            except ForbiddenError as error:
                return str(error)
            except NotFoundError:
                await asyncio.sleep(0.05)


def _for_muster(spec: Any) -> None:
    """Have the first template that is found name Muster."""
    templates = [spec]
    while templates:
        value = templates.pop(0)
        if isinstance(value, dict) and "containers" in value:
            value["schedulerName"] = "muster"
            return
        templates += list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    raise AssertionError("no template")


def _unscheduled(value: Any) -> Any:
    """Leave out every schedulerName."""
    if isinstance(value, dict):
        return {key: _unscheduled(each) for key, each in value.items() if key != "schedulerName"}
    return [_unscheduled(each) for each in value] if isinstance(value, list) else value


TRAINJOB: dict[str, Any] = {"spec": {"runtimeRef": {"name": "torch-distributed"}}}
SAMPLES: tuple[tuple[str, str, Any], ...] = (
    ("pytorchjob-simple", "PyTorchJob", _for_muster),
    ("mpijob-pi", "MPIJob", _for_muster),
    ("", "TrainJob", lambda _: None),
    ("raycluster-volcano-queue", "RayCluster", _for_muster),
    ("rayjob-volcano-queue", "RayJob", _for_muster),
    ("jobset-depends-on", "JobSet", _for_muster),
    ("leaderworkerset", "LeaderWorkerSet", _for_muster),
    ("spark-pi-python", "SparkApplication", lambda spec: spec["driver"].update(schedulerName="muster")),
    ("workflow-steps", "Workflow", lambda spec: spec.update(schedulerName="muster")),
)
