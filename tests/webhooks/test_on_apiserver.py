"""An API server in front: it compiles our conditions, calls us, applies our patches and passes our words on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from plane import PATIENCE, Plane

from muster.kube.client import Client
from muster.kube.errors import ForbiddenError, InvalidError, ServerError, TooManyRequestsError
from muster.kube.transport import Request
from muster.model import kinds, names
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions, WebhookServer


@dataclass(frozen=True)
class Admitted:
    """An API server that calls webhook servers for what is written in one namespace."""

    plane: Plane
    namespace: str
    servers: Sequence[WebhookServer]

    @property
    def client(self) -> Client:
        return self.plane.client

    async def create(self, kind: Any, manifest: Any, **options: Any) -> Any:
        return await self.client.create(kind, manifest, self.namespace if kind.namespaced else "", **options)

    async def change(self, kind: Any, name: str, change: Any) -> Any:
        return await self.client.patch(kind, name, change, self.namespace)

    async def refuses(self, kind: Any, manifest: Any, why: str) -> None:
        """Wait until such an object is refused with these words: it takes a moment until a queue's state is seen."""
        async with asyncio.timeout(PATIENCE):
            while why not in await _said(self.create(kind, manifest, dry_run=True)):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.02)

    async def decided(self, kind: Any, manifest: Any) -> Any:
        """Create until somebody decides: on a busy machine many at once may be too many for the time that a review has."""
        while True:
            try:
                return await self.create(kind, manifest)
            except (ServerError, TooManyRequestsError):
                if self.plane.name == "sandbox":
                    raise


async def _admitted(plane: Plane, stack: AsyncExitStack, *, replicas: int = 1, legacy_apis: bool = False) -> Admitted:
    client, namespace = plane.client, await plane.namespace()
    await client.apply(kinds.QUEUES, _queue(names.DEFAULT_QUEUE), manager="test")
    options = WebhookOptions(plane.certificate, ListenOptions("127.0.0.1", 0, 0.0), legacy_apis=legacy_apis)
    servers = [
        await stack.enter_async_context(serving(await plane.connect(), plane.clock, options)) for _ in range(replicas)
    ]
    await plane.register(*servers, namespace=namespace, legacy_apis=legacy_apis)
    # Before the servers end: nobody may be left to wait for them.
    stack.push_async_callback(plane.unregister)
    return Admitted(plane, namespace, servers)


@pytest.fixture
async def cluster(plane: Plane, request: pytest.FixtureRequest) -> AsyncIterator[Admitted]:
    async with AsyncExitStack() as stack:
        yield await _admitted(plane, stack, **getattr(request, "param", {}))


def _job(name: str, **annotations: str) -> Any:
    spec = {"schedulerName": "muster", "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"template": {"spec": spec}}}


def _podgroup(name: str, queue: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"queue": queue, **spec}}


def _queue(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": spec}


async def _refused(made: Callable[[], Any], error: type[Exception]) -> str:
    with pytest.raises(error) as found:
        await made()
    return str(found.value)


async def test_a_group_in_a_queue_that_does_not_exist_is_refused_in_all_three_groups(plane: Plane) -> None:
    await plane.legacy_apis()
    async with AsyncExitStack() as stack:
        cluster = await _admitted(plane, stack, legacy_apis=True)
        for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS):
            text = await _refused(lambda kind=kind: cluster.create(kind, _podgroup("lost", "nope")), ForbiddenError)
            assert text.startswith(
                'admission webhook "podgroupminresources.muster.sh" denied the request:'
                ' queue "nope" (spec.queue) does not exist: '
            )


async def test_a_queue_and_its_group_can_come_from_one_file(cluster: Admitted) -> None:
    fresh = cluster.plane.unique("fresh")
    await cluster.plane.create(kinds.QUEUES, _queue(fresh, guarantee={"resource": {"cpu": "2"}}, deserved={"cpu": "2"}))
    assert (await cluster.create(kinds.PODGROUPS, _podgroup("in-fresh", fresh))).spec.queue == fresh

    # Deleting a queue tells what goes with it, as far as the webhook has seen it.
    await cluster.create(kinds.JOBS, _job("in-fresh", **{names.QUEUE_NAME_KEYS[0]: fresh}))
    request = Request("DELETE", kinds.QUEUES.path(name=fresh), {"dryRun": "All"})
    warning = f'299 - "deleting queue \\"{fresh}\\" deletes 1 PodGroup and 1 Job in it"'
    async with asyncio.timeout(PATIENCE):
        while (await cluster.client.send(request)).headers.get("warning") != warning:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.02)


async def test_the_queue_that_a_namespace_names_holds_from_the_next_group_on(cluster: Admitted) -> None:
    queue = cluster.plane.unique("named")
    await cluster.plane.create(kinds.QUEUES, _queue(queue))
    assert (await cluster.create(kinds.PODGROUPS, _podgroup("before", names.DEFAULT_QUEUE))).spec.queue == "default"
    named = {"metadata": {"annotations": {names.QUEUE_NAME_KEYS[0]: queue}}}
    changed = await cluster.client.patch(kinds.NAMESPACES, cluster.namespace, named)
    assert changed.metadata.label(names.NAMES_QUEUE) == "true"
    made = await cluster.decided(kinds.PODGROUPS, {"metadata": {"name": "after"}, "spec": {"minMember": 1}})
    assert made.spec.queue == queue
    # Its own word counts more, in namespaces that name none too.
    own = {"name": "own", "annotations": {names.QUEUE_NAME_KEYS[0]: names.DEFAULT_QUEUE}}
    assert (await cluster.create(kinds.PODGROUPS, {"metadata": own, "spec": {}})).spec.queue == names.DEFAULT_QUEUE


async def test_a_queue_that_is_missing_closes_has_children_or_is_for_others_takes_neither_new_work_nor_moved(
    cluster: Admitted,
) -> None:
    wanted = ("theirs", "closing", "shut", "above", "below")
    theirs, closing, shut, above, below = (cluster.plane.unique(name) for name in wanted)
    selector = {"matchLabels": {"team": "another"}}
    for name, spec in ((theirs, {"namespaceSelector": selector}), (above, {}), (below, {"parent": above})):
        await cluster.plane.create(kinds.QUEUES, _queue(name, **spec))
    for name, state in ((closing, "Closing"), (shut, "Closed")):
        await cluster.plane.create(kinds.QUEUES, _queue(name, desiredState="Closed"))
        await cluster.client.patch(kinds.QUEUES, name, {"status": {"state": state}}, subresource="status")
    await cluster.create(kinds.PODGROUPS, _podgroup("here", names.DEFAULT_QUEUE))
    await cluster.create(kinds.JOBS, _job("here"))
    for queue, why in (
        (theirs, f'serves only namespaces with team=another, not "{cluster.namespace}"'),
        (closing, "is Closing and takes no new PodGroup"),
        (shut, "is Closed and takes no new PodGroup"),
        (above, f"has children and takes no PodGroup itself: use one of them ({below})"),
        ("nope", "does not exist: use one of the open queues ("),
    ):
        await cluster.refuses(kinds.PODGROUPS, _podgroup("new", queue), why)
        text = await _said(cluster.change(kinds.PODGROUPS, "here", {"spec": {"queue": queue}}))
        assert f'queue "{queue}" (spec.queue) {why}' in text
        named = {"annotations": {names.QUEUE_NAME_KEYS[0]: queue}}
        for attempt in (
            cluster.create(kinds.JOBS, _job("new", **named["annotations"])),
            cluster.change(kinds.JOBS, "here", {"metadata": named}),
        ):
            text = await _said(attempt)
            assert f'queue "{queue}" (annotation {names.QUEUE_NAME_KEYS[0]}) {why.replace("PodGroup", "Job")}' in text
    text = await _refused(lambda: cluster.client.delete(kinds.QUEUES, above), ForbiddenError)
    assert f'queue "{above}" is the parent of {below}: delete or move it first' in text
    circle = cluster.client.patch(kinds.QUEUES, above, {"spec": {"parent": below}})
    assert f'queue "{below}" (spec.parent) is below queue "{above}"' in await _said(circle)


async def test_what_is_in_a_queue_that_closes_can_be_edited_there_and_moved_away(cluster: Admitted) -> None:
    leaving, other = cluster.plane.unique("leaving"), cluster.plane.unique("other")
    for name in (leaving, other):
        await cluster.plane.create(kinds.QUEUES, _queue(name))
    await cluster.create(kinds.PODGROUPS, _podgroup("inside", leaving))
    await cluster.create(kinds.JOBS, _job("inside", **{names.QUEUE_NAME_KEYS[0]: leaving}))
    await cluster.client.patch(kinds.QUEUES, leaving, {"spec": {"desiredState": "Closed"}})
    await cluster.client.patch(kinds.QUEUES, leaving, {"status": {"state": "Closing"}}, subresource="status")
    await cluster.refuses(kinds.JOBS, _job("new", **{names.QUEUE_NAME_KEYS[0]: leaving}), "is Closing")
    edited = {"metadata": {"labels": {"edited": "yes"}}}
    for kind, moved in (
        (kinds.PODGROUPS, {"spec": {"queue": other}}),
        (kinds.JOBS, {"metadata": {"annotations": {names.QUEUE_NAME_KEYS[0]: other}}}),
    ):
        assert "edited" in (await cluster.change(kind, "inside", edited)).metadata.labels
        await cluster.change(kind, "inside", moved)
    for change in ({"weight": 3}, {"desiredState": "Open"}):
        await cluster.client.patch(kinds.QUEUES, leaving, {"spec": change})


async def _said(made: Awaitable[Any]) -> str:
    """Return the words of a refusal; none where it isn't refused."""
    try:
        await made
    except ForbiddenError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("low", "high"), [("guarantee", "deserved"), ("deserved", "capability"), ("guarantee", "capability")]
)
async def test_amounts_of_a_queue_that_do_not_fit_are_told_with_both_amounts(
    cluster: Admitted, low: str, high: str
) -> None:
    amounts: dict[str, Any] = {low: {"cpu": "3"}, high: {"cpu": "2500m"}}
    if low == "guarantee":
        amounts = {"deserved": {"cpu": "3"}} | amounts | {"guarantee": {"resource": {"cpu": "3"}}}
    made = _queue(cluster.plane.unique("odd"), **amounts)
    text = await _refused(lambda: cluster.create(kinds.QUEUES, made), InvalidError)
    path = "guarantee.resource" if low == "guarantee" else low
    assert f"spec.{path}[cpu]: 3 is more than spec.{high}[cpu], 2500m: lower it or raise the other" in text


async def _told(cluster: Admitted, made: Any) -> str:
    return await _refused(lambda: cluster.create(kinds.QUEUES, made), InvalidError)


async def test_what_is_guaranteed_must_be_deserved_and_volcano_s_annotations_of_a_tree_are_refused(
    cluster: Admitted,
) -> None:
    name = cluster.plane.unique("queue")
    text = await _told(cluster, _queue(name, guarantee={"resource": {"cpu": "3"}}))
    assert "spec.guarantee.resource[cpu]: 3 is guaranteed, and spec.deserved does not name cpu" in text
    assert "set spec.deserved[cpu] to 3 or more" in text
    for key in names.HIERARCHY:
        annotated = _queue(name)
        annotated["metadata"]["annotations"] = {key: "root/sci"}
        text = await _told(cluster, annotated)
        assert f"metadata.annotations[{key}]: Muster makes the tree of queues from spec.parent and spec.weight" in text
        assert "remove the annotation" in text


async def test_what_children_are_guaranteed_must_fit_their_parent(cluster: Admitted) -> None:
    dept, team = cluster.plane.unique("dept"), cluster.plane.unique("team")
    await cluster.plane.create(kinds.QUEUES, _queue(dept, guarantee={"resource": {"cpu": "2"}}, deserved={"cpu": "2"}))
    child = _queue(team, parent=dept, guarantee={"resource": {"cpu": "3"}}, deserved={"cpu": "3"})
    text = await _refused(lambda: cluster.create(kinds.QUEUES, child), InvalidError)
    assert "spec.guarantee.resource[cpu]: 3 with the 0 of its siblings is more than the 2 of its parent" in text


async def test_the_queue_of_those_who_name_none_stays(cluster: Admitted) -> None:
    text = await _refused(lambda: cluster.client.delete(kinds.QUEUES, names.DEFAULT_QUEUE), ForbiddenError)
    assert text.endswith('queue "default" can\'t be deleted: Muster needs it; close it instead')


async def test_a_job_waits_suspended_and_its_pods_come_with_the_name_of_their_group(cluster: Admitted) -> None:
    job = await cluster.create(kinds.JOBS, _job("train"))
    assert (job.spec.suspend, job.metadata.annotation(names.SUSPENDED)) == (True, "true")
    wrong = _job("wrong", **{names.QUEUE_NAME_KEYS[0]: "nope"})
    text = await _refused(lambda: cluster.create(kinds.JOBS, wrong), ForbiddenError)
    assert text.startswith('admission webhook "jobs.validate.muster.sh" denied the request: queue "nope" (annotation ')
    await cluster.client.patch(kinds.JOBS, "train", {"spec": {"suspend": False}}, cluster.namespace)
    (pod,) = await cluster.plane.all(kinds.PODS, cluster.namespace, labels="job-name=train", holds=bool)
    assert pod.metadata.annotation(names.GROUP_NAME) == f"podgroup-{job.metadata.uid}"


async def test_where_the_scheduler_does_not_enqueue_no_job_is_held_back(cluster: Admitted) -> None:
    assert (await cluster.create(kinds.JOBS, _job("train"), dry_run=True)).spec.suspend
    for server in cluster.servers:
        server.delay(False)
    job = await cluster.create(kinds.JOBS, _job("train"))
    assert (bool(job.spec.suspend), job.metadata.annotation(names.SUSPENDED)) == (False, "")
    (pod,) = await cluster.plane.all(kinds.PODS, cluster.namespace, labels="job-name=train", holds=bool)
    assert pod.metadata.annotation(names.GROUP_NAME) == f"podgroup-{job.metadata.uid}"


async def test_all_that_is_wrong_is_told_at_once_and_what_is_unwise_passes_with_warnings(cluster: Admitted) -> None:
    wrong = _podgroup("wrong", "nope", minResources={"example.com/gpu": "1e30"})
    text = await _refused(lambda: cluster.create(kinds.PODGROUPS, wrong), ForbiddenError)
    assert "spec.minResources[example.com/gpu]: '1e30' is more than Kubernetes can count" in text
    assert 'queue "nope" (spec.queue) does not exist: ' in text
    unwise = _job("unwise", **{names.DELAY: "later", names.GROUP_MIN_MEMBER: "two"})
    created = Request("POST", kinds.JOBS.path(cluster.namespace), {}, msgspec.json.encode(unwise))
    warnings = (await cluster.client.send(created)).headers["warning"]
    assert 'muster.sh/delay \\"later\\" is ignored: write suspend or off' in warnings
    assert f"{names.GROUP_MIN_MEMBER} 'two' counts as 1: write a whole number" in warnings


# ── reservations ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def _at_once(cluster: Admitted, count: int) -> tuple[list[Any], list[BaseException]]:
    """Create groups of 3 cpu at once, under a quota of 10 cpu; give those that were admitted, and the refusals."""
    quota = {"metadata": {"name": "quota"}, "spec": {"hard": {"cpu": "10"}}}
    await cluster.create(kinds.RESOURCEQUOTAS, quota)
    manifests = [_podgroup(f"g{number}", "default", minResources={"cpu": "3"}) for number in range(count)]
    answers = await asyncio.gather(
        *(cluster.decided(kinds.PODGROUPS, manifest) for manifest in manifests), return_exceptions=True
    )
    refusals = [answer for answer in answers if isinstance(answer, BaseException)]
    return [answer for answer in answers if not isinstance(answer, BaseException)], refusals


@pytest.mark.parametrize(
    "cluster", [{"replicas": 1}, {"replicas": 2}], indirect=True, ids=["one replica", "two replicas"]
)
@pytest.mark.parametrize("count", [40, 64])
async def test_of_many_groups_at_once_exactly_as_many_are_admitted_as_the_quota_holds(
    cluster: Admitted, count: int
) -> None:
    admitted, refusals = await _at_once(cluster, count)
    assert len(admitted) == 3
    assert {type(each) for each in refusals} == {ForbiddenError}
    text = str(refusals[0])
    assert text.startswith('admission webhook "podgroupminresources.muster.sh" denied the request: PodGroup "g')
    assert 'quota "quota" has 10 cpu hard, 9 reserved' in text
    assert "short by 2 cpu" in text
    stored = (await cluster.client.list(kinds.PODGROUPS, cluster.namespace)).items
    assert {each.name for each in stored} == {each.name for each in admitted}
    ledger = await cluster.client.get(kinds.QUOTALEDGERS, names.LEDGER_NAME, cluster.namespace)
    assert ledger.data.summary == "quota cpu 9/10"


async def test_what_a_deleted_group_held_is_free_at_once(cluster: Admitted) -> None:
    admitted, _ = await _at_once(cluster, 4)
    await cluster.client.delete(kinds.PODGROUPS, admitted[0].name, cluster.namespace)
    await cluster.create(kinds.PODGROUPS, _podgroup("next", "default", minResources={"cpu": "4"}))


async def test_a_quota_below_what_is_reserved_is_told_to_who_lowers_it(cluster: Admitted) -> None:
    await _at_once(cluster, 3)
    change = b'{"spec": {"hard": {"cpu": "5"}}}'
    path = kinds.RESOURCEQUOTAS.path(cluster.namespace, "quota")
    response = await cluster.client.send(Request("PATCH", path, {}, change, "application/merge-patch+json"))
    assert "9 reserved: short by " in response.headers["warning"]


# ── the policies around what is reserved ────────────────────────────────────────────────────────────────────────────


def _pod(name: str, cpu: str, group: str = "", scheduler: str = "") -> Any:
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "annotations": {names.GROUP_NAME: group} if group else {}}
    return {
        "metadata": metadata,
        "spec": {"schedulerName": scheduler or ("muster" if group else "theirs"), "containers": [main]},
    }


async def _fenced(cluster: Admitted) -> None:
    """Label the namespace, and wait until its pods are asked for: of 4 cpu a group has 3."""
    label = {"metadata": {"labels": {names.QUOTA_MODE: "guarded"}}}
    await cluster.client.patch(kinds.NAMESPACES, cluster.namespace, label)
    await cluster.create(kinds.RESOURCEQUOTAS, {"metadata": {"name": "quota"}, "spec": {"hard": {"cpu": "4"}}})
    await cluster.create(kinds.PODGROUPS, _podgroup("gang", "default", minResources={"cpu": "3"}))
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await cluster.create(kinds.PODS, _pod("probe", "2"), dry_run=True)
            except ForbiddenError as error:
                if "pods.guarded.muster.sh" in str(error):
                    return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("cluster", [{"replicas": 2}], indirect=True)
async def test_what_a_group_reserved_only_its_own_pods_can_take(cluster: Admitted) -> None:
    await _fenced(cluster)
    await cluster.create(kinds.PODS, _pod("out", "1"))
    text = await _refused(lambda: cluster.create(kinds.PODS, _pod("more", "1")), ForbiddenError)
    assert text == (
        'admission webhook "pods.guarded.muster.sh" denied the request: exceeded quota: Pod "more" requests 1 cpu,'
        ' but quota "quota" has 4 cpu hard, 3 reserved (gang 3), 1 used by other pods, so none is free:'
        " short by 1 cpu; lower its requests, wait for gang, or raise the quota"
    )
    # Another scheduler's pod is no member because it says so, neither when it is admitted nor when it is seen.
    text = await _refused(lambda: cluster.create(kinds.PODS, _pod("stranger", "1", "gang", "theirs")), ForbiddenError)
    assert "requests 1 cpu, but quota" in text
    # What the group's owner owns is a member, and nobody can say so of a pod instead.
    operator = await cluster.create(kinds.CONFIGMAPS, {"metadata": {"name": "operator"}})
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "operator",
        "uid": operator.metadata.uid,
        "controller": True,
    }
    owned = {"metadata": {"ownerReferences": [owner]}}
    await cluster.client.patch(kinds.PODGROUPS, "gang", owned, cluster.namespace)
    theirs = _pod("owned", "1", "gang", "theirs")
    theirs["metadata"]["ownerReferences"] = [owner]
    async with asyncio.timeout(PATIENCE):
        while not await _noted(cluster, theirs):  # noqa: ASYNC110 - the API server tells nobody when it has noticed
            await asyncio.sleep(0.05)
    noted = await cluster.create(kinds.PODS, theirs)
    assert noted.metadata.annotation(names.MEMBER_OF) == "gang"
    forged = _pod("forged", "1", "gang", "theirs")
    forged["metadata"]["annotations"][names.MEMBER_OF] = "gang"
    text = await _refused(lambda: cluster.create(kinds.PODS, forged), ForbiddenError)
    assert "'gang' is not a PodGroup whose owner owns this pod too" in text
    for number in range(2):
        await cluster.create(kinds.PODS, _pod(f"member-{number}", "1", "gang"))
    text = await _refused(lambda: cluster.create(kinds.PODS, _pod("member-3", "1", "gang")), ForbiddenError)
    assert 'requests 1 cpu beyond what PodGroup "gang" has reserved' in text


async def _noted(cluster: Admitted, pod: Any) -> bool:
    """Whether the API server calls for pods of other schedulers by now, and they are noted as members."""
    try:
        tried = await cluster.create(kinds.PODS, pod, dry_run=True)
    except ForbiddenError:
        return False
    return bool(tried.metadata.annotation(names.MEMBER_OF))


async def test_of_pods_and_groups_at_once_no_more_are_admitted_than_the_quota_holds(cluster: Admitted) -> None:
    await _fenced(cluster)
    await cluster.client.delete(kinds.PODGROUPS, "gang", cluster.namespace)
    asked = [cluster.decided(kinds.PODS, _pod(f"out-{number}", "1")) for number in range(8)]
    asked += [
        cluster.decided(kinds.PODGROUPS, _podgroup(f"g{number}", "default", minResources={"cpu": "1"}))
        for number in range(8)
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(not isinstance(answer, BaseException) for answer in answers) == 4


async def test_owner_rules_change_what_admission_names_while_it_runs(plane: Plane) -> None:
    """The podgroup controller follows the same ConfigMap, so both name one group."""
    async with AsyncExitStack() as stack:
        space = await plane.namespace()
        options = WebhookOptions(plane.certificate, ListenOptions("127.0.0.1", 0, 0.0), namespace=space)
        server = await stack.enter_async_context(serving(await plane.connect(), plane.clock, options))
        await plane.client.apply(kinds.QUEUES, _queue(names.DEFAULT_QUEUE), manager="test")
        await plane.register(server, namespace=space)
        stack.push_async_callback(plane.unregister)

        above = await plane.client.create(kinds.CONFIGMAPS, {"metadata": {"name": "workflow"}}, space)
        manifest = _job("step")
        manifest["metadata"]["ownerReferences"] = [_controller("v1", "ConfigMap", above)]
        job = await plane.client.create(kinds.JOBS, manifest, space)
        pod = {"metadata": {"name": "p", "ownerReferences": [_controller("batch/v1", "Job", job)]}}
        pod["spec"] = manifest["spec"]["template"]["spec"]

        async def named(owner: Any) -> None:
            async with asyncio.timeout(PATIENCE):
                while True:
                    made = await plane.client.create(kinds.PODS, pod, space, dry_run=True)
                    if made.metadata.annotation(names.GROUP_NAME) == f"podgroup-{owner.metadata.uid}":
                        return
                    await asyncio.sleep(0.05)

        await named(job)
        text = "podgroup-level-rules: [{apiversion: batch/v1, kind: job, adjust-level: 1}]"
        data = {"muster-controller.conf": text}
        config = {"metadata": {"name": "muster-controller-config"}, "data": data}
        await plane.client.create(kinds.CONFIGMAPS, config, space)
        await named(above)
        wrong = {"data": {"muster-controller.conf": "podgroup-level-rules: [{kind: job}]"}}
        await plane.client.patch(kinds.CONFIGMAPS, "muster-controller-config", wrong, space)
        await named(above)
        await plane.client.delete(kinds.CONFIGMAPS, "muster-controller-config", space)
        await named(job)


def _controller(version: str, kind: str, owner: Any) -> dict[str, Any]:
    meta = owner.metadata
    return {"apiVersion": version, "kind": kind, "name": meta.name, "uid": meta.uid, "controller": True}


# ── reviews that no API server sent ──────────────────────────────────────────────────────────────────────────────


async def test_who_knows_a_path_can_not_have_more_reserved_than_the_quota(cluster: Admitted) -> None:
    """Forged: quotas that are larger, gone or new; groups that are deleted, smaller, completed; a Job and pods of theirs."""
    quota = await cluster.create(kinds.RESOURCEQUOTAS, {"metadata": {"name": "quota"}, "spec": {"hard": {"cpu": "10"}}})
    both = [
        await cluster.decided(kinds.PODGROUPS, _podgroup(name, "default", minResources={"cpu": "4"}))
        for name in ("one", "two")
    ]
    larger = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"cpu": "1000"}}}
    old = {**larger, "metadata": _meta(quota), "spec": {"hard": {"cpu": "10"}}}
    forged = [
        (kinds.RESOURCEQUOTAS, "UPDATE", larger | {"metadata": _meta(quota)}, old, ""),
        (kinds.RESOURCEQUOTAS, "CREATE", larger | {"metadata": {"name": "quota", "uid": "f1"}}, None, ""),
        (kinds.RESOURCEQUOTAS, "CREATE", larger | {"metadata": {"name": "more", "uid": "f2"}}, None, ""),
        (kinds.RESOURCEQUOTAS, "DELETE", None, old, ""),
    ]
    for each in both:
        before = {"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup", "metadata": _meta(each)}
        before["spec"] = {"queue": "default", "minResources": {"cpu": "4"}}
        smaller = before | {"spec": {"queue": "default", "minResources": {"cpu": "1m"}}}
        over = before | {"status": {"phase": "Completed"}}
        forged += [
            (kinds.PODGROUPS, "DELETE", None, before, ""),
            (kinds.PODGROUPS, "UPDATE", smaller, before, ""),
            (kinds.PODGROUPS, "UPDATE", over, before, "status"),
            (kinds.PODGROUPS, "CREATE", smaller, None, ""),
            (kinds.PODGROUPS, "CREATE", smaller | {"metadata": {"name": each.name, "uid": "f3"}}, None, ""),
        ]
    (server,) = cluster.servers
    for kind, operation, new, before, part in forged:
        review = _review(kind, operation, cluster.namespace, new, before, part)
        status, _, body = await server.handle(f"/validate/{kind.plural}", {"timeout": "5s"}, review)
        assert status in {200, 400}, body
    with pytest.raises((ForbiddenError, TooManyRequestsError)):
        await cluster.create(kinds.PODGROUPS, _podgroup("three", "default", minResources={"cpu": "3"}))
    stored = (await cluster.client.list(kinds.PODGROUPS, cluster.namespace)).items
    assert {each.name: each.spec.min_resources for each in stored} == {name: {"cpu": "4"} for name in ("one", "two")}


def _meta(found: Any) -> dict[str, str]:
    meta = found.metadata
    return {"name": meta.name, "uid": meta.uid, "namespace": meta.namespace, "resourceVersion": meta.resource_version}


def _review(kind: Any, operation: str, namespace: str, new: Any, old: Any, part: str) -> bytes:
    resource = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    request = {
        "uid": "forged",
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.name},
        "resource": resource,
        "subResource": part,
        "name": (new or old)["metadata"]["name"],
        "namespace": namespace,
        "operation": operation,
        "userInfo": {"username": "mallory"},
        "object": new,
        "oldObject": old,
        "dryRun": False,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
