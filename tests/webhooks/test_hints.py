"""Warnings of what has no effect: on values, and as an API server passes them on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from plane import PATIENCE, Plane

from muster.cli.installation import permissions
from muster.kube import errors
from muster.kube.transport import MERGE_PATCH, Request
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Object
from muster.model.workloads import CRONJOB
from webhooks.compose import WebhookOptions, serving
from webhooks.policies import hints, podgroups
from webhooks.server import ListenOptions
from webhooks.verdict import ALLOWED

MEMBER = names.GROUP_MIN_MEMBER
NO_EFFECT = 'the queue and group annotations have no effect: the pods\' schedulerName is not "muster"'
UNREADABLE = f"{MEMBER} 'two' counts as 1: write a whole number from 0 to 2147483647"


# ── on values ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_misspelt_key_of_a_gang_is_told_wherever_it_stands(ask: Any, job: Any) -> None:
    typo = "scheduling.k8s.io/group-min-members"
    said = (f"unknown annotation {typo}: did you mean {MEMBER}?",)
    assert ask(hints.validate, job(annotations={typo: "3"})).warnings == said
    assert ask(hints.validate, job(pod={typo: "3"})).warnings == said
    # Another scheduler's may mean something to whoever reads it.
    assert ask(hints.validate, job(scheduler="theirs", annotations={typo: "3"})) == ALLOWED
    kept = job(annotations={typo: "3"})
    assert ask(hints.validate, kept, "UPDATE", old=kept) == ALLOWED


@pytest.mark.parametrize("scheduler", ["", "default-scheduler"])
def test_a_gang_of_the_default_scheduler_is_told_that_nobody_reads_that(ask: Any, job: Any, scheduler: str) -> None:
    assert ask(hints.validate, job(scheduler=scheduler, annotations={MEMBER: "2"})).warnings == (NO_EFFECT,)
    assert ask(hints.validate, job(scheduler=scheduler, pod={names.QUEUE_NAME_KEYS[0]: "q"})).warnings == (NO_EFFECT,)
    assert ask(hints.validate, job(scheduler=scheduler)) == ALLOWED
    assert ask(hints.validate, job(scheduler="theirs", annotations={MEMBER: "2"})) == ALLOWED


def test_a_minimum_that_can_not_be_read_is_told_at_each_change(ask: Any, job: Any) -> None:
    good, bad, worse = (job(annotations={MEMBER: text}) for text in ("2", "two", "three"))
    assert ask(hints.validate, bad).warnings == (UNREADABLE,)
    assert ask(hints.validate, bad, "UPDATE", old=good).warnings == (UNREADABLE,)
    assert ask(hints.validate, worse, "UPDATE", old=bad).warnings != ()
    assert ask(hints.validate, bad, "UPDATE", old=bad) == ALLOWED


def test_a_job_resumed_before_its_turn_is_told_what_it_waits_for(ask: Any, job: Any, cluster: Any) -> None:
    held, resumed = (job(annotations={names.SUSPENDED: "true"}, suspend=each) for each in (True, False))
    wrong = {"type": "Unschedulable", "status": "True", "message": "3 pods need 3 cpu; 1 cpu is free: short by 2 cpu"}
    status = {"phase": "Pending", "conditions": [wrong]}
    cluster.put(kinds.PODGROUPS, "podgroup-uid-train", "dev", status=status)
    assert ask(hints.validate, resumed, "UPDATE", old=held).warnings == (
        "Job train is held, and suspended again: 3 pods need 3 cpu; 1 cpu is free: short by 2 cpu",
    )
    mine = job(suspend=True)
    assert ask(hints.validate, job(suspend=False), "UPDATE", old=mine) == ALLOWED
    cluster.put(kinds.PODGROUPS, "podgroup-uid-train", "dev", status={"phase": "Inqueue"})
    assert ask(hints.validate, resumed, "UPDATE", old=held) == ALLOWED


def test_a_gang_of_a_namespace_whose_default_is_muster_gets_our_scheduler(ask: Any, job: Any, pod: Any) -> None:
    (patch,) = ask(hints.mutate, job(scheduler="default-scheduler", annotations={MEMBER: "2"})).operations
    assert (patch["path"], patch["value"]) == ("/spec/template/spec/schedulerName", "muster")
    (patch,) = ask(hints.mutate, pod(scheduler="default-scheduler", annotations={MEMBER: "2"})).operations
    assert (patch["path"], patch["value"]) == ("/spec/schedulerName", "muster")
    assert ask(hints.mutate, job(scheduler="default-scheduler")) == ALLOWED
    assert ask(hints.mutate, job(scheduler="theirs", annotations={MEMBER: "2"})) == ALLOWED


def test_every_template_of_an_operators_gang_gets_our_scheduler(ask: Any) -> None:
    def asked(plural: str, group: str, spec: Any, **annotations: str) -> list[str]:
        meta = {"name": "x", "namespace": "dev", "uid": "u", "annotations": annotations}
        body = {"apiVersion": f"{group}/v1", "kind": "X", "metadata": meta, "spec": spec}
        verdict = ask(hints.mutate, body, resource={"group": group, "version": "v1", "resource": plural})
        assert verdict == ALLOWED or {each["value"] for each in verdict.operations} == {"muster"}
        return [] if verdict == ALLOWED else [each["path"] for each in verdict.operations]

    template: dict[str, Any] = {"spec": {"containers": []}}
    sets = {"replicatedJobs": [{"template": {"spec": {"template": template}}}] * 2}
    place = "/spec/replicatedJobs/{}/template/spec/template/spec/schedulerName"
    assert asked("jobsets", "jobset.x-k8s.io", sets, **{MEMBER: "2"}) == [place.format(0), place.format(1)]
    assert asked("jobsets", "jobset.x-k8s.io", sets) == []
    roles = {"pytorchReplicaSpecs": {"a/b": {"template": template}}}
    at = "/spec/pytorchReplicaSpecs/a~1b/template/spec/schedulerName"
    assert asked("pytorchjobs", "kubeflow.org", roles, **{MEMBER: "2"}) == [at]
    spark: dict[str, Any] = {"driver": {}, "executor": {}}
    both = ["/spec/driver/schedulerName", "/spec/executor/schedulerName"]
    assert asked("sparkapplications", "sparkoperator.k8s.io", spark, **{MEMBER: "2"}) == both
    theirs = {"driver": {"schedulerName": "theirs"}, "executor": {}}
    assert asked("sparkapplications", "sparkoperator.k8s.io", theirs, **{MEMBER: "2"}) == []


def test_a_cronjobs_gang_gets_our_scheduler(ask: Any, job: Any) -> None:
    inside = {"metadata": {"annotations": {MEMBER: "2"}}, "spec": job(scheduler="default-scheduler")["spec"]}
    body = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "n", "namespace": "dev"}}
    (patch,) = ask(hints.mutate, body | {"spec": {"schedule": "0 0 * * *", "jobTemplate": inside}}).operations
    assert patch["path"] == "/spec/jobTemplate/spec/template/spec/schedulerName"


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [("reserch", "did you mean research? Or "), ("researhc", "did you mean research? Or "), ("ops", ""), ("x", "")],
)
def test_a_queue_that_does_not_exist_is_asked_for_by_the_nearest_name(
    ask: Any, podgroup: Any, wanted: str, meant: str
) -> None:
    assert ask(podgroups.validate, podgroup(queue=wanted)).message == (
        f'queue "{wanted}" (spec.queue) does not exist: {meant}use one of the open queues (default, research) or create'
        f' it with "muster queue create --name {wanted}"'
    )


def test_a_closed_queue_is_meant_only_where_no_open_one_is_near(ask: Any, podgroup: Any, cluster: Any) -> None:
    cluster.queue("archive", state="Closed")
    cluster.queue("secret", state="Closed", namespaceSelector={"matchLabels": {"team": "ml"}})
    cluster.queue("researcs", state="Closed")
    assert "did you mean archive, which is Closed? Or use" in ask(podgroups.validate, podgroup(queue="archve")).message
    assert "did you mean research? Or use" in ask(podgroups.validate, podgroup(queue="researc")).message
    # What its namespace may not use isn't named.
    assert "did you mean" not in ask(podgroups.validate, podgroup(queue="secre")).message


# ── on both control planes ───────────────────────────────────────────────────────────────────────────────────────


class Hinted:
    """An API server that calls the webhooks for what is written in one namespace."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    async def said(self, method: str, kind: Any, body: Any, name: str = "") -> str:
        """Write; return the warnings."""
        space = self.namespace if kind.namespaced else ""
        content = {"content_type": MERGE_PATCH} if method == "PATCH" else {}
        request = Request(method, kind.path(space, name), {}, msgspec.json.encode(body), **content)
        return (await self.plane.client.send(request)).headers.get("warning", "")

    async def kind_said(self, kind: Any, meta: dict[str, Any], spec: dict[str, Any]) -> str:
        """Create; return the warnings."""
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, "spec": spec}
        return await self.said("POST", kind, body)


@pytest.fixture
async def hinted(plane: Plane) -> AsyncIterator[Hinted]:
    async with AsyncExitStack() as stack:
        namespace = await plane.namespace()
        await plane.client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}}, manager="test")
        options = WebhookOptions(plane.certificate, ListenOptions("127.0.0.1", 0, 0.0))
        server = await stack.enter_async_context(serving(await plane.connect(), plane.clock, options))
        await plane.register(server, namespace=namespace)
        stack.push_async_callback(plane.unregister)
        yield Hinted(plane, namespace)


def workload(kind: Any, name: str, scheduler: str = "", **annotations: str) -> dict[str, Any]:
    labels = {"app": name}
    pods: dict[str, Any] = {"containers": [{"name": "main", "image": "busybox"}]}
    pods |= {"schedulerName": scheduler} if scheduler else {}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": pods}
    meta = {"name": name}
    if kind in {kinds.DEPLOYMENTS, kinds.STATEFULSETS}:
        more = {"serviceName": name} if kind == kinds.STATEFULSETS else {}
        return {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": meta,
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template, **more},
        }
    template = {"metadata": {"annotations": annotations}, "spec": pods | {"restartPolicy": "Never"}}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": meta,
        "spec": {"suspend": True, "parallelism": 3, "completions": 3, "template": template},
    }


async def test_a_misspelt_key_is_told_for_every_kind_and_a_known_one_for_none(hinted: Hinted) -> None:
    typo, meant = "scheduling.volcano.sh/queue", "did you mean scheduling.volcano.sh/queue-name?"
    for number, kind in enumerate((kinds.DEPLOYMENTS, kinds.STATEFULSETS, kinds.JOBS)):
        body = workload(kind, f"w-{number}", "muster", **{typo: "research"})
        assert f"unknown annotation {typo}: {meant}" in await hinted.said("POST", kind, body)
        fine = workload(kind, f"f-{number}", "muster", **{MEMBER: "1"})
        assert "unknown" not in await hinted.said("POST", kind, fine)
    labelled = {"name": "g", "labels": {"muster.sh/qouta": "x"}}
    said = await hinted.kind_said(kinds.PODGROUPS, labelled, {"minMember": 1})
    assert "unknown label muster.sh/qouta: did you mean muster.sh/quota?" in said
    nightly = workload(kinds.JOBS, "x", "muster", **{typo: "research"})["spec"]["template"]
    cronjobs = Kind("batch", "v1", "cronjobs", "CronJob", Object)
    spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": nightly}}}
    assert meant in await hinted.kind_said(cronjobs, {"name": "n"}, spec)
    pod = {"containers": [{"name": "main", "image": "busybox"}], "schedulerName": "muster"}
    assert meant in await hinted.kind_said(kinds.PODS, {"name": "p", "annotations": {typo: "research"}}, pod)
    change = {"metadata": {"labels": {"muster.sh/qouta": "guarded"}}}
    said = await hinted.said("PATCH", kinds.NAMESPACES, change, hinted.namespace)
    assert "unknown label muster.sh/qouta: did you mean muster.sh/quota?" in said


async def test_a_misspelt_key_among_hundreds_is_not_looked_for(hinted: Hinted) -> None:
    """For the API server looks through them, in each request, whoever wrote them."""
    for count, told in ((100, True), (200, False)):
        labels = {f"example.com/k{number}": "v" for number in range(count)} | {"muster.sh/qouta": "x"}
        said = await hinted.kind_said(kinds.PODGROUPS, {"name": f"g-{count}", "labels": labels}, {"minMember": 1})
        assert ("unknown label muster.sh/qouta" in said) is told


async def test_at_an_update_what_changes_is_told_and_nothing_else(hinted: Hinted) -> None:
    body = workload(kinds.DEPLOYMENTS, "web", "muster", **{MEMBER: "two"})
    assert "counts as 1" in await hinted.said("POST", kinds.DEPLOYMENTS, body)
    noted = {"metadata": {"annotations": {"example.com/note": "x"}}}
    assert await hinted.said("PATCH", kinds.DEPLOYMENTS, noted, "web") == ""
    again = {"spec": {"template": {"metadata": {"annotations": {MEMBER: "three"}}}}}
    assert "counts as 1" in await hinted.said("PATCH", kinds.DEPLOYMENTS, again, "web")
    right = {"spec": {"template": {"metadata": {"annotations": {MEMBER: "3"}}}}}
    assert await hinted.said("PATCH", kinds.DEPLOYMENTS, right, "web") == ""


async def test_a_gang_without_our_scheduler_is_told_and_gets_it_where_the_namespace_says_so(hinted: Hinted) -> None:
    client, space = hinted.plane.client, hinted.namespace
    for number, kind in enumerate((kinds.DEPLOYMENTS, kinds.JOBS)):
        body = workload(kind, f"w-{number}", **{MEMBER: "2"})
        assert "have no effect" in await hinted.said("POST", kind, body)
    await client.patch(kinds.NAMESPACES, space, {"metadata": {"labels": {names.DEFAULT_SCHEDULER: "true"}}})
    async with asyncio.timeout(PATIENCE):
        number = 0
        while "have no effect" in await hinted.said(
            "POST", kinds.DEPLOYMENTS, workload(kinds.DEPLOYMENTS, f"d-{number}", **{MEMBER: "2"})
        ):
            number += 1
            await asyncio.sleep(0.1)
    made = await client.get(kinds.DEPLOYMENTS, f"d-{number}", space)
    assert made.spec.template.spec.scheduler_name == "muster"
    plain = workload(kinds.DEPLOYMENTS, "plain")
    assert await hinted.said("POST", kinds.DEPLOYMENTS, plain) == ""
    assert (await client.get(kinds.DEPLOYMENTS, "plain", space)).spec.template.spec.scheduler_name != "muster"
    # What Muster schedules from then on is held like any Job of its own.
    job = workload(kinds.JOBS, "held", **{MEMBER: "2"})
    job["spec"]["suspend"] = False
    await hinted.said("POST", kinds.JOBS, job)
    assert (await client.get(kinds.JOBS, "held", space)).metadata.annotation(names.SUSPENDED) == "true"


async def test_a_held_job_that_its_user_resumes_is_told_why_it_waits(hinted: Hinted) -> None:
    client, space = hinted.plane.client, hinted.namespace
    job = workload(kinds.JOBS, "train", "muster", **{MEMBER: "3"})
    job["metadata"]["annotations"] = {names.SUSPENDED: "true"}
    await hinted.said("POST", kinds.JOBS, job)
    made = await client.get(kinds.JOBS, "train", space)
    name = f"podgroup-{made.metadata.uid}"
    await hinted.plane.create(kinds.PODGROUPS, {"metadata": {"name": name}, "spec": {"minMember": 3}}, space)
    wrong = {"type": "Unschedulable", "status": "True", "message": "3 pods need 3 cpu; 1 cpu is free: short by 2 cpu"}
    status = {"status": {"phase": "Pending", "conditions": [wrong]}}
    await client.patch(kinds.PODGROUPS, name, status, space, subresource="status")
    path, resume = kinds.JOBS.path(space, "train"), msgspec.json.encode({"spec": {"suspend": False}})
    dry = Request("PATCH", path, {"dryRun": "All"}, resume, content_type=MERGE_PATCH)
    async with asyncio.timeout(PATIENCE):
        # The webhook sees the group when its watch has shown it.
        while (await client.send(dry)).headers.get("warning") != (  # noqa: ASYNC110
            '299 - "Job train is held, and suspended again: 3 pods need 3 cpu; 1 cpu is free: short by 2 cpu"'
        ):
            await asyncio.sleep(0.05)
    # As Muster resumes it: its note goes with the suspension.
    ours = {"metadata": {"annotations": {names.SUSPENDED: None}}, "spec": {"suspend": False}}
    assert await hinted.said("PATCH", kinds.JOBS, ours, "train") == ""


async def test_a_job_for_a_queue_that_is_misspelt_is_asked_for_the_nearest(hinted: Hinted) -> None:
    team = hinted.plane.unique("research")
    await hinted.plane.create(kinds.QUEUES, {"metadata": {"name": team}})
    body = {"metadata": {"name": "g"}, "spec": {"minMember": 1, "queue": team.replace("research", "reserch")}}

    async def answer() -> str:
        try:
            await hinted.plane.client.create(kinds.PODGROUPS, body, hinted.namespace)
        except errors.ForbiddenError as error:
            return error.message
        return ""

    async with asyncio.timeout(PATIENCE):
        while f"does not exist: did you mean {team}? Or use one of the open queues" not in await answer():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


# ── values that mean nothing: a policy ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def judged(plane: Plane) -> AsyncIterator[str]:
    """A namespace, and Muster's policy on values, as installed."""
    mine = [each for each in permissions.policies() if each["metadata"]["name"] == "values.muster.sh"]
    space = await plane.namespace()
    await plane.client.patch(kinds.NAMESPACES, space, {"metadata": {"annotations": {names.QUOTA_POLICY: "Old"}}})
    await permissions.apply(plane.client, mine)
    async with asyncio.timeout(PATIENCE):
        while not await refused(plane, kinds.NAMESPACES, space, "labels", names.QUOTA_MODE, "no"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    yield space
    await permissions.remove(plane.client, mine)


async def refused(plane: Plane, kind: Any, name: str, where: str, key: str, value: str, space: str = "") -> str:
    try:
        body = msgspec.json.encode({"metadata": {where: {key: value}}})
        dry = {"dryRun": "All"}
        await plane.client.send(Request("PATCH", kind.path(space, name), dry, body, content_type=MERGE_PATCH))
    except errors.ForbiddenError as error:
        return error.message
    return ""


async def test_a_value_that_means_nothing_is_refused_where_it_changes(plane: Plane, judged: str) -> None:
    for where, key, wrong, said, right in (
        ("labels", names.QUOTA_MODE, "garded", "write guarded, guaranteed or off", "guarded"),
        ("labels", names.QUOTA_POLICY, "Bogus", "write Reject or Queue", "Queue"),
        ("annotations", names.QUOTA_POLICY, "Bogus", "write Reject or Queue", "Reject"),
        ("labels", names.DEFAULT_SCHEDULER, "flase", "write true or false", "true"),
        ("annotations", names.DELAY, "later", "write suspend or off", "off"),
    ):
        message = await refused(plane, kinds.NAMESPACES, judged, where, key, wrong)
        assert f'{where[:-1]} {key} "{wrong}" means nothing: {said}' in message
        assert await refused(plane, kinds.NAMESPACES, judged, where, key, right) == ""
    # What was stored before anybody judged it keeps nobody from changing the rest.
    assert await refused(plane, kinds.NAMESPACES, judged, "labels", "example.com/x", "y") == ""
    assert "means nothing" in await refused(plane, kinds.NAMESPACES, judged, "annotations", names.QUOTA_POLICY, "Older")
    for kind in (kinds.DEPLOYMENTS, kinds.JOBS):
        await plane.create(kind, workload(kind, "w"), judged)
        assert "means nothing" in await refused(plane, kind, "w", "annotations", names.QUOTA_POLICY, "Bogus", judged)
    # So it is in templates, and of what stood there before the rest may change.
    for kind in (kinds.DEPLOYMENTS, kinds.STATEFULSETS, kinds.JOBS):
        with pytest.raises(errors.ForbiddenError, match="of the pods' template means nothing; write Reject or Queue"):
            await plane.create(kind, workload(kind, "t", **{names.QUOTA_POLICY: "Bogus"}), judged)
    inside = {"spec": {"template": workload(kinds.JOBS, "x", **{names.QUOTA_POLICY: "Bogus"})["spec"]["template"]}}
    nightly = {"metadata": {"name": "n"}, "spec": {"schedule": "0 0 * * *", "jobTemplate": inside}}
    with pytest.raises(errors.ForbiddenError, match="of the pods' template means nothing"):
        await plane.create(CRONJOB.kind, nightly, judged)
    await plane.create(kinds.PODGROUPS, {"metadata": {"name": "g"}, "spec": {"minMember": 1}}, judged)
    assert "means nothing" in await refused(
        plane, kinds.PODGROUPS, "g", "annotations", names.QUOTA_POLICY, "Bogus", judged
    )
    long = await refused(plane, kinds.NAMESPACES, judged, "annotations", names.DELAY, "x" * 500)
    assert "annotation muster.sh/delay means nothing" in long
