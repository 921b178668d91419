"""Groups that reserve when they become Inqueue: the ledger's policy Queue, with worker and admission together."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from plane import Plane
from workloads import deployment

from muster.kube import errors
from muster.model import kinds, names
from scheduler.configuration import config
from scheduler.leader import leadership
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions

HARD = 10
QUEUE = names.QUEUE_NAME_KEYS[0]
QUEUED = {names.QUOTA_POLICY: names.POLICY_QUEUE}


@pytest.fixture
async def admitted(world, plane: Plane):
    """The world with webhooks in front, in a namespace that queues, under a quota of 10 cpu."""
    async with AsyncExitStack() as stack:
        # Before the servers end: nobody may be left to wait for them; and the worker is done with them before.
        await plane.client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}}, manager="test")
        await plane.client.patch(kinds.NAMESPACES, world.namespace, {"metadata": {"labels": QUEUED}})
        options = WebhookOptions(plane.certificate, ListenOptions("127.0.0.1", 0, 0.0))
        server = await stack.enter_async_context(serving(await plane.connect(), plane.clock, options))
        await plane.register(server, namespace=world.namespace)
        stack.push_async_callback(plane.unregister)
        stack.push_async_callback(world.stop)
        spec = {"hard": {"requests.cpu": str(HARD)}}
        await world.create({"kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": spec})
        await world.becomes(kinds.RESOURCEQUOTAS, "team", lambda quota: quota.status.hard)
        yield world


def job(name, pods, run_seconds="2"):
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    pod = {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never", "containers": [main]}
    template = {"metadata": {"annotations": {names.RUN_SECONDS: run_seconds}}, "spec": pod}
    annotations = {names.GROUP_MIN_MEMBER: str(pods)}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"kind": "Job", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


def group(name, cpu):
    spec = {"minMember": 1, "queue": "default", "minResources": {"cpu": cpu}}
    return {"kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


async def group_of(world, name):
    return f"podgroup-{(await world.job(name)).metadata.uid}"


async def reserved(world):
    """What groups that the API server shows hold, in cpu."""
    groups = (await world.client.list(kinds.PODGROUPS, world.namespace)).items
    holding = [each for each in groups if each.status.phase in {"Inqueue", "Running", "Unknown"}]
    return sum(int(each.spec.min_resources["cpu"]) for each in holding)


async def test_both_jobs_are_admitted_and_the_second_starts_when_the_first_has_ended(admitted):
    await admitted.node("32")
    await admitted.work()
    await admitted.create(job("first", 6, run_seconds="600"))
    first = await admitted.phase(await group_of(admitted, "first"), "Running")
    assert first.metadata.annotations[names.QUOTA_POLICY] == "Queue"
    await admitted.create(job("second", 6, run_seconds="1"))
    name = await group_of(admitted, "second")
    waiting = await admitted.becomes(kinds.PODGROUPS, name, lambda found: found.status.conditions)
    assert waiting.status.phase == "Pending"
    condition = waiting.status.conditions[0]
    assert (condition.reason, condition.message) == (
        "NotEnoughQuota",
        'quota "team" is short by 2 requests.cpu; it waits until that is free',
    )
    pods = await admitted.pods()
    assert {pod.metadata.labels["job-name"] for pod in pods} == {"first"}
    for pod in pods:
        await admitted.patch(kinds.PODS, pod.name, {"status": {"phase": "Succeeded"}}, subresource="status")
    await admitted.phase(first.name, "Completed")
    await admitted.phase(name, "Completed")


async def test_of_a_job_of_a_thousand_pods_that_waits_the_api_server_sees_none(admitted):
    await admitted.node("4")
    await admitted.work()
    await admitted.create(job("large", 1000))
    waiting = await admitted.becomes(
        kinds.PODGROUPS, await group_of(admitted, "large"), lambda one: one.status.conditions
    )
    assert waiting.status.phase == "Pending"
    # Its controller has seen that it is held back, and there was no moment before.
    await admitted.becomes(kinds.JOBS, "large", lambda one: one.status.conditions)
    events = (await admitted.client.list(kinds.EVENTS, admitted.namespace)).items
    assert await admitted.pods() == []
    assert "SuccessfulCreate" not in {each.reason for each in events}


@pytest.mark.only("sandbox", reason="who is older is told in whole seconds, which only virtual time passes at once")
async def test_of_several_that_fit_only_one_by_one_the_oldest_goes_first(admitted):
    await admitted.node("64")
    await admitted.work()
    for name in ("a", "b", "c"):
        await admitted.create(job(name, 6))
        await asyncio.sleep(1)
    began = []
    for name in ("a", "b", "c"):
        await admitted.phase(await group_of(admitted, name), "Completed")
        assert await reserved(admitted) <= HARD
        pods = [pod for pod in await admitted.pods() if pod.metadata.labels["job-name"] == name]
        began.append(min(pod.metadata.creation_timestamp for pod in pods))
    assert began == sorted(began)


async def test_a_status_that_somebody_else_writes_asks_the_ledger_too(admitted):
    await admitted.create(group("one", "6"), group("two", "6"))
    inqueue = {"status": {"phase": "Inqueue"}}
    await admitted.patch(kinds.PODGROUPS, "one", inqueue, subresource="status")
    with pytest.raises(errors.ForbiddenError) as refused:
        await admitted.patch(kinds.PODGROUPS, "two", inqueue, subresource="status")
    assert refused.value.message.endswith(
        'PodGroup "two" requests 6 requests.cpu more, but quota "team" has 10 requests.cpu hard, 6 reserved (one 6),'
        " so 4 are free: short by 2 requests.cpu; lower spec.minResources, wait for one, or raise the quota"
    )
    await admitted.patch(kinds.PODGROUPS, "one", {"status": {"phase": "Pending"}}, subresource="status")

    async def let_in():
        try:
            return await admitted.patch(kinds.PODGROUPS, "two", inqueue, subresource="status")
        except errors.ForbiddenError:
            return None  # The replica has yet to see that the first is Pending again.

    assert await admitted.until(let_in)


async def test_without_the_plugin_the_ledger_itself_keeps_a_group_pending(admitted):
    await admitted.node("32")
    policy = 'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n'
    await admitted.work(policy)
    await admitted.create(job("first", 6, run_seconds="600"))
    first = await admitted.phase(await group_of(admitted, "first"), "Running")
    await admitted.create(job("second", 6))
    name = await group_of(admitted, "second")
    waiting = await admitted.becomes(
        kinds.PODGROUPS,
        name,
        lambda found: found.status.conditions and "short by 2" in found.status.conditions[0].message,
    )
    assert (waiting.status.phase, waiting.status.conditions[0].reason) == ("Pending", "NotEnoughQuota")
    assert len(await admitted.pods()) == 6
    await admitted.client.delete(kinds.JOBS, "first", admitted.namespace, propagation="Background")
    assert first.name != name
    await admitted.phase(name, "Running")


QUICK = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: gang}, {name: overcommit, arguments: {overcommit-factor: 1.0}}, {name: predicates}, {name: resourcequota}]
configurations:
- {name: enqueue, arguments: {inqueueTimeoutSeconds: 2}}
"""


def wide():
    """A Job of one pod that fits in what two nodes of 4 cpu have together, and on neither."""
    made = job("wide", 1)
    main = made["spec"]["template"]["spec"]["containers"][0]
    return {
        **made,
        "spec": {**made["spec"], "template": _asking(made, {**main, "resources": {"requests": {"cpu": "6"}}})},
    }


def _asking(made, container):
    template = made["spec"]["template"]
    return {**template, "spec": {**template["spec"], "containers": [container]}}


@pytest.mark.parametrize("policy", [names.POLICY_QUEUE, names.POLICY_REJECT])
async def test_a_group_that_goes_back_gives_its_reservation_back_where_groups_queue(admitted, policy):
    await admitted.node("4")
    await admitted.node("4")
    change = {"metadata": {"labels": {names.QUOTA_POLICY: policy}}}
    await admitted.client.patch(kinds.NAMESPACES, admitted.namespace, change)
    await admitted.create(wide())
    await admitted.work(QUICK)
    name = await group_of(admitted, "wide")
    back = await admitted.becomes(
        kinds.PODGROUPS,
        name,
        lambda found: (
            found.status.phase == "Pending" and any(each.type == "Postponed" for each in found.status.conditions or ())
        ),
    )
    assert back.spec.min_resources == {"cpu": "6"}
    await admitted.becomes(kinds.JOBS, "wide", lambda found: found.spec.suspend)
    if policy == names.POLICY_QUEUE:
        await admitted.create(job("other", 6))
        await admitted.phase(await group_of(admitted, "other"), "Running")
    else:
        with pytest.raises(errors.ForbiddenError, match="short by 2"):
            await admitted.create(job("other", 6))


@pytest.mark.only(
    "sandbox", reason="that the answer to a write comes before the watch shows it is put in order by hand"
)
async def test_a_group_starts_when_the_ledger_agreed_though_the_watch_shows_it_late_and_no_second_is_waited_for(
    admitted, lag, monkeypatch
):
    monkeypatch.setattr(leadership, "RESYNC_INTERVAL_SECONDS", 1e6)
    watch = admitted.line.watch

    @asynccontextmanager
    async def late(request, *, idle):
        async def slowly(lines):
            async for line in lines:
                if "/podgroups" in request.path:
                    await asyncio.sleep(0.5)
                yield line

        async with watch(request, idle=idle) as lines:
            yield slowly(lines)

    monkeypatch.setattr(admitted.line, "watch", late)
    lag(admitted.line, monkeypatch, "/podgroups/one/status", back=0.2)
    await admitted.node("32")
    # Labelled before: otherwise the first group of a namespace waits until every API server has seen the label.
    labelled = {"metadata": {"labels": {names.QUOTA_MODE: names.GUARDED}}}
    await admitted.client.patch(kinds.NAMESPACES, admitted.namespace, labelled)
    await admitted.work()
    queued = {names.QUOTA_POLICY: names.POLICY_QUEUE, names.GROUP_NAME: "one"}
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [main]}
    await admitted.create(group("one", "6"))
    await admitted.create({"kind": "Pod", "metadata": {"name": "p", "annotations": queued}, "spec": spec})
    async with asyncio.timeout(1):
        await admitted.becomes(kinds.PODS, "p", lambda found: found.spec.node_name)


async def test_a_group_that_reserves_late_has_others_evicted_once_its_reservation_is_stored(admitted):
    soon = config.DEFAULT + "configurations: [{name: reclaim, arguments: {leastRunTime: 1s}}]\n"
    await admitted.node("4")
    for name in ("lends", "due"):
        await admitted.create({"apiVersion": kinds.QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}})
    await admitted.work(soon)
    borrowing = deployment("borrowing", 4)
    borrowing["spec"]["template"]["metadata"]["annotations"] |= {names.GROUP_MIN_MEMBER: "1", QUEUE: "lends"}
    await admitted.create(borrowing)
    await admitted.until(lambda: running(admitted, 4), within=120)
    due = job("due", 2, "600")
    due["metadata"]["annotations"][QUEUE] = "due"
    await admitted.create(due)
    name = await group_of(admitted, "due")
    await admitted.phase(name, "Running", within=120)
    sent = [
        each.path.rsplit("/", 1)[1]
        for each in admitted.line.sent
        if (each.path.endswith(f"{name}/status") and b"Inqueue" in each.body)
        or (each.path.endswith("/eviction") and not each.query.get("dryRun"))
    ]
    assert sent.count("eviction") == 2
    assert sent[0] == "status"
    assert await reserved(admitted) <= HARD


async def running(world, count):
    return [pod for pod in await world.pods() if pod.status.phase == "Running"][count - 1 :]
