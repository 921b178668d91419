"""What Muster does in a cluster, so that every right of its accounts is needed once: exercises, to be done in order.

Each asserts what a user would see, and leaves the cluster fit for the next. The first is the story of README.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deployed import Deployed

from certs import stored
from certs.targets import of_configuration
from muster.cli.demo.command import Kubectl
from muster.cli.demo.requests import ClientTerminal
from muster.cli.demo.story import STORY
from muster.cli.installation import namespaces, webhook_configurations
from muster.kube import errors, wait
from muster.kube.client import Client
from muster.kube.transport import JSON_PATCH
from muster.model import grouping, kinds, names
from muster.model.kinds import Kind

PATIENCE = 90.0
NODE = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Stage:
    """Where exercises are done: by an admin, on a cluster with Muster, with a folder for files."""

    admin: Client
    muster: Deployed
    folder: Path


Exercise = Callable[[Stage], Awaitable[None]]


def pods(cpu: str = "1", **more: Any) -> dict[str, Any]:
    """Return a pod spec that is ours."""
    container = {"name": "main", "image": "example.com/main", "resources": {"requests": {"cpu": cpu}}}
    return {"schedulerName": "muster", "containers": [container], **more}


def group(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"minMember": 1, **spec}}


async def add_node(admin: Client, name: str, cpu: str) -> None:
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    meta = {"name": name, "labels": {NODE: name}}
    made = {"metadata": meta, "status": {"capacity": amounts, "allocatable": amounts}}
    await admin.create(kinds.NODES, made)


async def add_quota(admin: Client, namespace: str) -> None:
    await namespaces.ensure(admin, namespace)
    quota = {"metadata": {"name": "compute"}, "spec": {"hard": {"cpu": "10"}}}
    await admin.create(kinds.RESOURCEQUOTAS, quota, namespace)


async def refusal(admin: Client, kind: Kind[Any], manifest: Any, namespace: str) -> str:
    """Return why something is refused, once it is: what webhooks know of may be a moment old."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await admin.create(kind, manifest, namespace, dry_run=True)
            except errors.ForbiddenError as error:
                return str(error)
            await asyncio.sleep(0.1)


async def gone(admin: Client, kind: Kind[Any], name: str, namespace: str = "") -> None:
    await wait.until(admin, kind, name, namespace, holds=lambda found: found is None, within=PATIENCE)


async def in_phase(admin: Client, name: str, namespace: str, phase: str) -> Any:
    return await wait.until(
        admin,
        kinds.PODGROUPS,
        name,
        namespace,
        holds=lambda found: found is not None and found.status.phase == phase,
        within=PATIENCE,
    )


async def story(stage: Stage) -> None:
    """Play the story of README."""
    # The API server asks the webhooks from some moment on, and tells nobody from which.
    await refusal(stage.admin, kinds.PODGROUPS, group("early", queue="nowhere"), "default")
    await wait.until(
        stage.admin,
        kinds.QUEUES,
        names.DEFAULT_QUEUE,
        holds=lambda queue: queue is not None and queue.status.state == "Open",
        within=PATIENCE,
    )
    config = stage.muster.plane.kubeconfig()
    binary = shutil.which("kubectl")
    terminal = Kubectl(binary, config, stage.folder / "cache") if binary else ClientTerminal(config)
    for step in STORY:
        for name, text in step.files.items():
            (stage.folder / name).write_text(text)
        for command in step.commands:
            answer = await terminal.run(shlex.split(command.line), stage.folder)
            assert command.check(answer) == "", f"{command.line}\n{answer.text}"


async def generate_groups(stage: Stage) -> None:
    """Let groups be made for pods of a Deployment, of a StatefulSet and of nobody, where pods are fenced."""
    admin, space = stage.admin, "generated"
    await add_node(admin, "roomy", "32")
    await namespaces.ensure(admin, space)
    await admin.patch(kinds.NAMESPACES, space, {"metadata": {"labels": {names.QUOTA_MODE: "guaranteed"}}})
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pods()}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    made: list[Any] = [
        await admin.create(kinds.DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, space),
        await admin.create(
            kinds.STATEFULSETS, {"metadata": {"name": "db"}, "spec": spec | {"serviceName": "db"}}, space
        ),
        await admin.create(kinds.PODS, {"metadata": {"name": "alone"}, "spec": pods()}, space),
    ]
    for one in made:
        found = await in_phase(admin, grouping.generated_name(one.metadata.uid), space, "Running")
        assert [owner.uid for owner in found.metadata.owner_references] == [one.metadata.uid]


async def serve_legacy_groups(stage: Stage) -> None:
    """Refuse and serve PodGroups of kube-batch's two groups as those of the primary one."""
    admin, space = stage.admin, "legacy"
    stage.muster.serve_legacy_apis()
    await namespaces.ensure(admin, space)
    for kind in kinds.LEGACY_QUEUES:
        name = f"old-{kind.version}"
        await admin.create(kind, {"metadata": {"name": name}, "spec": {}})
        counted = partial(wait.until, admin, kind, name, within=PATIENCE)
        await counted(holds=lambda found: found is not None and bool(found.metadata.finalizers and found.status.state))
    served = (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)
    for kind, other in zip(served, (*served[1:], served[0]), strict=True):
        assert "nowhere" in await refusal(admin, kind, group("lost", queue="nowhere"), space)
        name = f"taken-{kind.version}"
        await admin.create(kind, group(name), space)
        assert kind.group in await refusal(admin, other, group(name), space)
        await wait.until(
            admin,
            kind,
            name,
            space,
            holds=lambda found: found is not None and found.status.phase == "Inqueue",
            within=PATIENCE,
        )


async def serve_chosen_namespaces(stage: Stage) -> None:
    """Refuse a namespace that a queue isn't for."""
    admin = stage.admin
    await namespaces.ensure(admin, "strangers")
    selector = {"matchLabels": {"team": "a"}}
    await admin.create(kinds.QUEUES, {"metadata": {"name": "private"}, "spec": {"namespaceSelector": selector}})
    assert "strangers" in await refusal(admin, kinds.PODGROUPS, group("stray", queue="private"), "strangers")


async def delete_queue(stage: Stage) -> None:
    """Delete a queue with PodGroups of all three groups and a Job in it: all of them go."""
    admin, space = stage.admin, "doomed"
    await namespaces.ensure(admin, space)
    await admin.create(kinds.QUEUES, {"metadata": {"name": "doomed"}})
    content: list[tuple[Kind[Any], str]] = []
    for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS):
        content.append((kind, f"in-{kind.version}"))
        await admin.create(kind, group(content[-1][1], queue="doomed"), space)
    meta = {"name": "work", "annotations": {names.QUEUE_NAME_KEYS[0]: "doomed"}}
    template = {"spec": pods("1000", restartPolicy="Never")}
    job = await admin.create(kinds.JOBS, {"metadata": meta, "spec": {"template": template}}, space)
    generated = grouping.generated_name(job.metadata.uid)
    content += [(kinds.PODGROUPS, generated), (kinds.JOBS, "work")]
    await wait.until(admin, kinds.PODGROUPS, generated, space, holds=lambda found: found is not None, within=PATIENCE)
    await wait.until(
        admin,
        kinds.QUEUES,
        "doomed",
        holds=lambda queue: queue is not None and names.QUEUE_FINALIZER in (queue.metadata.finalizers or ()),
        within=PATIENCE,
    )
    await admin.delete(kinds.QUEUES, "doomed")
    await gone(admin, kinds.QUEUES, "doomed")
    for kind, name in content:
        await gone(admin, kind, name, space)


async def keep_ledger(stage: Stage) -> None:
    """Make a ledger again that somebody deleted, in the foreground even, and let its namespace go."""
    admin, space = stage.admin, "kept"
    await add_quota(admin, space)
    await admin.create(kinds.PODGROUPS, group("first", minResources={"cpu": "6"}), space)
    before = await admin.get(kinds.QUOTALEDGERS, names.LEDGER_NAME, space)
    await admin.delete(kinds.QUOTALEDGERS, names.LEDGER_NAME, space, propagation="Foreground")
    await wait.until(
        admin,
        kinds.QUOTALEDGERS,
        names.LEDGER_NAME,
        space,
        holds=lambda one: one is not None and one.metadata.uid != before.metadata.uid and bool(one.data.seeded_at),
        within=PATIENCE,
    )
    text = await refusal(admin, kinds.PODGROUPS, group("second", minResources={"cpu": "6"}), space)
    assert "6 reserved" in text or "6 cpu reserved" in text
    await admin.delete(kinds.NAMESPACES, space)
    await gone(admin, kinds.NAMESPACES, space)


async def hand_over(stage: Stage) -> None:
    """Let a worker that stands by take over, first from one that ends, then from one that crashes."""
    admin, muster = stage.admin, stage.muster
    for number, crashes in enumerate((False, True)):
        leaving, before = muster.scheduler, await holder(admin)
        muster.start_scheduler()
        if crashes:
            leaving.kill()
            await let_lease_run_out(admin)
        else:
            leaving.end()
        await wait.until(
            admin,
            kinds.LEASES,
            "muster-scheduler",
            names.SYSTEM_NAMESPACE,
            holds=lambda lease, before=before: (
                lease is not None and lease.spec.holder_identity not in {"", None, before}
            ),
            within=PATIENCE,
        )
        made = await admin.create(kinds.PODS, {"metadata": {"name": f"after-{number}"}, "spec": pods()}, "default")
        await in_phase(admin, grouping.generated_name(made.metadata.uid), "default", "Running")


async def let_lease_run_out(admin: Client) -> None:
    """Have the lease of a worker that crashed end soon: how long it lasts is proved where time is virtual."""
    soon = {"spec": {"leaseDurationSeconds": 1}}
    await admin.patch(kinds.LEASES, "muster-scheduler", soon, names.SYSTEM_NAMESPACE)


async def holder(admin: Client) -> str | None:
    return (await admin.get(kinds.LEASES, "muster-scheduler", names.SYSTEM_NAMESPACE)).spec.holder_identity


async def preempt(stage: Stage) -> None:
    """Let a gang of high priority take the place of a pod that another gang can spare."""
    admin, space = stage.admin, "preemption"
    await namespaces.ensure(admin, space)
    await add_node(admin, "tight", "8")
    await admin.create(kinds.PRIORITYCLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    for name, count, more in (("cheap", 2, {}), ("urgent", 1, {"priorityClassName": "urgent"})):
        await admin.create(kinds.PODGROUPS, group(name, **more), space)
        for number in range(count):
            meta = {"name": f"{name}-{number}", "annotations": {names.GROUP_NAME: name}}
            spec = pods("4", nodeSelector={NODE: "tight"}, **more)
            await admin.create(kinds.PODS, {"metadata": meta, "spec": spec}, space)
        await wait.until(
            admin,
            kinds.PODGROUPS,
            name,
            space,
            holds=lambda found, count=count: found is not None and found.status.running == count,
            within=PATIENCE,
        )
    left = (await admin.list(kinds.PODS, space)).items
    assert sorted(pod.name.partition("-")[0] for pod in left) == ["cheap", "urgent"]


async def show_an_autoscaler(stage: Stage) -> None:
    """Mark the pod of a gang that lacks a node as what autoscalers make nodes for, and start it once the node is there."""
    admin, space = stage.admin, "autoscaled"
    await namespaces.ensure(admin, space)
    await admin.create(kinds.PODGROUPS, group("patient"), space)
    meta = {"name": "patient", "annotations": {names.GROUP_NAME: "patient"}}
    await admin.create(kinds.PODS, {"metadata": meta, "spec": pods(nodeSelector={NODE: "to-come"})}, space)
    await wait.until(
        admin,
        kinds.PODS,
        "patient",
        space,
        holds=lambda pod: (
            pod is not None and any(each.reason == "Unschedulable" for each in pod.status.conditions or ())
        ),
        within=PATIENCE,
    )
    await add_node(admin, "to-come", "2")
    await in_phase(admin, "patient", space, "Running")


async def crash(stage: Stage) -> None:
    """Kill both programs while one gang has reserved and another waits, and start them again."""
    admin, muster, space = stage.admin, stage.muster, "crash"
    await add_quota(admin, space)
    await admin.create(kinds.PODGROUPS, group("first", minResources={"cpu": "6"}), space)
    work = {"parallelism": 2, "completions": 2, "template": {"spec": pods("100", restartPolicy="Never")}}
    meta = {"name": "large", "annotations": {names.GROUP_MIN_MEMBER: "2"}}
    job = await admin.create(kinds.JOBS, {"metadata": meta, "spec": work}, "default")
    generated = grouping.generated_name(job.metadata.uid)
    await wait.until(
        admin,
        kinds.PODGROUPS,
        generated,
        "default",
        holds=lambda found: (
            found is not None and any(each.type == "Unschedulable" for each in found.status.conditions or ())
        ),
        within=PATIENCE,
    )
    muster.webhook.kill()
    muster.scheduler.kill()
    await let_lease_run_out(admin)
    second, third = (group(name, minResources={"cpu": cpu}) for name, cpu in (("second", "6"), ("third", "4")))
    with pytest.raises(errors.ServerError, match="failed calling webhook"):
        await admin.create(kinds.PODGROUPS, second, space)
    muster.start_webhook()
    assert "10 cpu" in await refusal(admin, kinds.PODGROUPS, second, space)
    await admin.create(kinds.PODGROUPS, third, space)
    await add_node(admin, "huge", "256")
    muster.start_scheduler()
    await in_phase(admin, generated, "default", "Completed")


async def keep_certificates(stage: Stage) -> None:
    """Let the leader replace the CA that came from a file by one of ours, and a bundle that somebody took away."""
    admin, muster = stage.admin, stage.muster
    replica = ("--probe", muster.address, "--publish-wait", "1s", "--soak", "1s")
    asked = asyncio.create_task(asyncio.to_thread(muster.certs, "init", *replica))
    await wait.until(
        admin,
        kinds.SECRETS,
        stored.TLS,
        names.SYSTEM_NAMESPACE,
        holds=lambda secret: secret is not None and bool(stored.read_served(secret).pair.key),
        within=PATIENCE,
    )
    muster.certs("export", "--folder", str(muster.folder))
    assert "steady: CA until" in await asked
    await bundle_is(stage, stored.read_served(await admin.get(kinds.SECRETS, stored.TLS, names.SYSTEM_NAMESPACE)))
    assert "1 replica is accepted by" in muster.certs("verify")
    took = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    # Of both: which of them the leader wrote before, and which `init` did, is a matter of who was quicker.
    for kind in (kinds.VALIDATING, kinds.MUTATING):
        await admin.patch(kind, webhook_configurations.NAME, took, content_type=JSON_PATCH)
    await bundle_is(stage, stored.read_served(await admin.get(kinds.SECRETS, stored.TLS, names.SYSTEM_NAMESPACE)))
    for kind in (kinds.VALIDATING, kinds.MUTATING):
        await path_is_put_right(admin, kind)


async def path_is_put_right(admin: Client, kind: Any) -> None:
    """Have the last part of a webhook's path be another for a moment."""
    found = await admin.get(kind, webhook_configurations.NAME)
    before = found.webhooks[0]["clientConfig"]["url"]
    other = [{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": f"{before}/other"}]
    await admin.patch(kind, webhook_configurations.NAME, other, content_type=JSON_PATCH)
    await wait.until(
        admin,
        kind,
        webhook_configurations.NAME,
        holds=lambda now: now is not None and now.webhooks[0]["clientConfig"]["url"] == before,
        within=PATIENCE,
    )


async def bundle_is(stage: Stage, served: stored.ServerSecret) -> None:
    """Wait until every webhook has the bundle of the Secret."""
    for kind in (kinds.VALIDATING, kinds.MUTATING):
        await wait.until(
            stage.admin,
            kind,
            webhook_configurations.NAME,
            holds=lambda found, kind=kind: (
                found is not None
                and {entry.trusted for entry in of_configuration(kind, found).entries} == {served.trusted}
            ),
            within=PATIENCE,
        )


async def allocate_devices(stage: Stage) -> None:
    """Bind a pod whose resource claim has to be allocated first."""
    admin, space, driver = stage.admin, "devices", "gpu.example.com"
    await namespaces.ensure(admin, space)
    selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
    stated = {"selectors": selectors, "extendedResourceName": "example.com/gpu"}
    await admin.create(kinds.DEVICECLASSES, {"metadata": {"name": "gpu"}, "spec": stated})
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    part = {"driver": driver, "pool": pool, "allNodes": True, "devices": [{"name": "d"}, {"name": "e"}]}
    await admin.create(kinds.RESOURCESLICES, {"metadata": {"name": "part"}, "spec": part})
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    claim = {"metadata": {"name": "claim"}, "spec": {"devices": {"requests": [request]}}}
    await admin.create(kinds.RESOURCECLAIMS, claim, space)
    await admin.create(kinds.PODGROUPS, group("devices"), space)
    meta = {"name": "devices", "annotations": {names.GROUP_NAME: "devices"}}
    spec = pods(resourceClaims=[{"name": "gpu", "resourceClaimName": "claim"}])
    await admin.create(kinds.PODS, {"metadata": meta, "spec": spec}, space)
    extended, amounts = pods(), {"example.com/gpu": "1"}
    extended["containers"][0]["resources"] = {"requests": {"cpu": "1", **amounts}, "limits": amounts}
    await admin.create(kinds.PODS, {"metadata": meta | {"name": "extended"}, "spec": extended}, space)
    for name in ("devices", "extended"):
        await wait.until(
            admin,
            kinds.PODS,
            name,
            space,
            holds=lambda pod: pod is not None and bool(pod.spec.node_name),
            within=PATIENCE,
        )


async def stand_for_a_native_group(stage: Stage) -> None:
    """Start the pods of a PodGroup of Kubernetes' own, after it has said what it waits for."""
    admin, space, native = stage.admin, "native", kinds.NATIVE_PODGROUPS
    await namespaces.ensure(admin, space)
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    made = await admin.create(native, {"metadata": {"name": "workers"}, "spec": policy}, space)
    for number in range(2):
        spec = pods("100m", schedulingGroup={"podGroupName": "workers"}, nodeSelector={NODE: "native"})
        await admin.create(kinds.PODS, {"metadata": {"name": f"worker-{number}"}, "spec": spec}, space)
    await _initially_scheduled(admin, space, "False")
    await add_node(admin, "native", "1")
    await in_phase(admin, grouping.generated_name(made.metadata.uid), space, "Running")
    await _initially_scheduled(admin, space, "True")


async def _initially_scheduled(admin: Client, space: str, status: str) -> None:
    def holds(found: Any) -> bool:
        conditions = found.status.conditions or () if found is not None else ()
        return any((each.type, each.status) == ("PodGroupInitiallyScheduled", status) for each in conditions)

    await wait.until(admin, kinds.NATIVE_PODGROUPS, "workers", space, holds=holds, within=PATIENCE)


EXERCISES: tuple[Exercise, ...] = (
    story,
    generate_groups,
    serve_chosen_namespaces,
    keep_ledger,
    preempt,
    show_an_autoscaler,
    allocate_devices,
    stand_for_a_native_group,
    crash,
    serve_legacy_groups,
    delete_queue,
    hand_over,
    keep_certificates,
)


class Course:
    """Has each exercise done once, in order, whichever is asked for first."""

    def __init__(self) -> None:
        self._outcomes: dict[Exercise, Exception | None] = {}

    async def upto(self, last: Exercise, stage: Stage) -> None:
        """Do what comes before ``last`` and wasn't done, then ``last``; raises what went wrong in that one."""
        for each in EXERCISES[: EXERCISES.index(last) + 1]:
            if each not in self._outcomes:
                try:
                    await each(stage)
                except Exception as error:  # noqa: BLE001 - whatever it is, it fails the test of that exercise
                    self._outcomes[each] = error
                else:
                    self._outcomes[each] = None
        if (error := self._outcomes[last]) is not None:
            raise error
