"""Groups of Deployments, StatefulSets and operators' objects: made from the object, reserved at once, changed with it."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from typing import Any

import pytest
from operated import PYTORCHJOBS, WORKFLOWS, operator, pod_of, pytorchjob
from plane import Plane
from workloads import deployment, group, template

from muster.kube import errors
from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.reflector import Reflector
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Object
from muster.model.workloads import WORKLOADS
from tests.support.frameworks import needs_them, sample
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions
from webhooks.settings import WebhookSettings

ADMINS = frozenset({"admin", "kubernetes-admin"})
"""As whom the worker of these tests writes."""
OF_WORKLOADS = frozenset(f"{each.kind.plural}.validate.muster.sh" for each in WORKLOADS)
"""The webhooks that judge workloads when they are applied; a group has to do without them where they are down."""


@pytest.fixture
async def admitted(world, plane: Plane):
    """The world with webhooks in front, but for those of workloads, in a guarded namespace under a quota of 10 cpu."""
    async with AsyncExitStack() as stack:
        await plane.client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}}, manager="test")
        labels = {"metadata": {"labels": {names.QUOTA_MODE: names.GUARDED}}}
        await plane.client.patch(kinds.NAMESPACES, world.namespace, labels)
        options = WebhookOptions(
            plane.certificate, ListenOptions("127.0.0.1", 0, 0.0), settings=WebhookSettings(accounts=ADMINS)
        )
        server = await stack.enter_async_context(serving(await plane.connect(), plane.clock, options))
        await plane.register(server, namespace=world.namespace, chosen=lambda name: name not in OF_WORKLOADS)
        stack.push_async_callback(plane.unregister)
        stack.push_async_callback(world.stop)
        await world.create(quota("10"))
        await world.becomes(kinds.RESOURCEQUOTAS, "team", lambda found: found.status.hard)
        yield world


def quota(cpu: str, **more: str) -> dict[str, Any]:
    return {"kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": cpu, **more}}}


async def apply(world: Any, kind: Kind[Any], manifest: dict[str, Any]) -> tuple[Any, str]:
    """Create an object; return it and the name of its group."""
    made = await world.client.create(kind, manifest, world.namespace)
    return made, f"podgroup-{made.metadata.uid}"


async def test_the_group_of_a_deployment_is_made_before_it_has_pods_and_changes_with_it(world):
    await world.create(quota("100", pods="0"))
    await world.becomes(kinds.RESOURCEQUOTAS, "team", lambda found: found.status.hard)
    await world.work()
    _, name = await apply(world, kinds.DEPLOYMENTS, deployment("web", 3))
    made = await world.becomes(kinds.PODGROUPS, name, lambda found: found)
    assert (made.spec.min_member, made.spec.min_resources, made.spec.queue) == (3, {"cpu": "3"}, "default")
    assert [(each.kind, each.name) for each in made.metadata.owner_references] == [("Deployment", "web")]
    # What people set on the group stays, what the Deployment says otherwise than before is followed.
    await world.patch(kinds.PODGROUPS, name, {"spec": {"queue": "mine"}})
    containers = template("2")["containers"]
    await world.patch(kinds.DEPLOYMENTS, "web", {"spec": {"template": {"spec": {"containers": containers}}}})
    grown = await world.becomes(kinds.PODGROUPS, name, lambda found: found.spec.min_resources != {"cpu": "3"})
    assert (grown.spec.min_member, grown.spec.min_resources, grown.spec.queue) == (3, {"cpu": "6"}, "mine")
    more = {"spec": {"template": {"metadata": {"annotations": {names.GROUP_MIN_MEMBER: "4"}}}}}
    await world.patch(kinds.DEPLOYMENTS, "web", more)
    grown = await world.becomes(kinds.PODGROUPS, name, lambda found: found.spec.min_member == 4)
    assert (grown.spec.min_resources, grown.spec.queue) == ({"cpu": "8"}, "mine")
    assert await world.pods() == []
    # A group that somebody deletes is made again, with what the Deployment says.
    await world.client.delete(kinds.PODGROUPS, name, world.namespace)
    again = await world.becomes(kinds.PODGROUPS, name, lambda found: found.metadata.uid != made.metadata.uid)
    assert (again.spec.min_member, again.spec.queue) == (4, "default")


async def test_a_stateful_set_has_its_group_from_its_own_template_and_what_asks_for_no_pods_or_others_has_none(world):
    await world.node("16")
    await world.work()
    spec = deployment("db", 2)["spec"]
    del spec["strategy"]
    stateful = {**spec, "serviceName": "db", "podManagementPolicy": "Parallel"}
    _, name = await apply(world, kinds.STATEFULSETS, {"metadata": {"name": "db"}, "spec": stateful})
    idle = deployment("idle", 2)
    idle["spec"]["replicas"] = 0
    await apply(world, kinds.DEPLOYMENTS, idle)
    theirs = deployment("theirs", 1)
    theirs["spec"]["template"]["spec"]["schedulerName"] = "theirs"
    await apply(world, kinds.DEPLOYMENTS, theirs)
    named = deployment("named", 1)
    named["spec"]["template"]["metadata"]["annotations"] = {names.GROUP_NAME: "mine"}
    await apply(world, kinds.DEPLOYMENTS, named)
    running = await world.phase(name, "Running")
    assert (running.spec.min_member, running.spec.min_resources) == (2, {"cpu": "2"})
    await world.rest(3)
    assert [each.name for each in (await world.client.list(kinds.PODGROUPS, world.namespace)).items] == [name]
    # From the time on that it wants pods, it has a group.
    await world.patch(kinds.DEPLOYMENTS, "idle", {"spec": {"replicas": 2}})
    uid = (await world.client.get(kinds.DEPLOYMENTS, "idle", world.namespace)).metadata.uid
    await world.phase(f"podgroup-{uid}", "Running")


async def test_a_gang_deployment_of_twelve_in_a_quota_of_ten_holds_nothing_says_so_and_starts_after_admission(admitted):
    await admitted.node("16")
    # While nobody makes its group it makes no pods either: as one whose webhook was down when it was applied.
    paused = deployment("web", 12)
    paused["spec"]["paused"] = True
    await admitted.work()
    made, name = await apply(admitted, kinds.DEPLOYMENTS, paused)
    refused = await admitted.becomes(
        kinds.PODGROUPS, name, lambda found: any(each.type == "Reserved" for each in found.status.conditions or ())
    )
    condition = next(each for each in refused.status.conditions if each.type == "Reserved")
    assert (condition.status, condition.reason) == ("False", "NotEnoughQuota")
    assert 'quota "team" is short by 2 requests.cpu' in condition.message
    # What is stated is reserved, whoever adds it up.
    assert refused.spec.min_resources is None
    assert refused.metadata.annotation(names.WANTED_RESOURCES) == '{"cpu":"12"}'
    await admitted.patch(kinds.DEPLOYMENTS, "web", {"spec": {"paused": None}})

    def told(events: Any) -> bool:
        return any(
            "exceeded quota: " in each.message and "is short by 2 requests.cpu" in each.message for each in events
        )

    await admitted.plane.all(kinds.EVENTS, admitted.namespace, holds=told)
    # Ten minutes, where time is virtual.
    await asyncio.sleep(600 if admitted.plane.name == "sandbox" else 3)
    assert await admitted.pods() == []
    ledger = await admitted.client.get(kinds.QUOTALEDGERS, names.LEDGER_NAME, admitted.namespace)
    assert ledger.data.summary == "team requests.cpu 0/10"
    await admitted.patch(kinds.RESOURCEQUOTAS, "team", {"spec": {"hard": {"requests.cpu": "12"}}})
    # A ReplicaSet that was refused for so long tries again after 1,000 seconds at the latest.
    within = 1300.0 if admitted.plane.name == "sandbox" else 90.0
    running = await admitted.phase(name, "Running", within)
    assert running.metadata.uid == refused.metadata.uid
    assert running.spec.min_resources == {"cpu": "12"}
    assert running.metadata.annotation(names.WANTED_RESOURCES) == ""
    assert made.metadata.uid == running.metadata.owner_references[0].uid


async def most_stated(world: Any, most: list[int]) -> None:
    """Keep the largest sum of spec.minResources that PodGroups of the namespace ever had, in cpu, by what a watch shows."""
    groups: ObjectCache[Any] = ObjectCache()

    def count(_: ObjectChange[Any]) -> None:
        most.append(max(most.pop(), sum(int((each.spec.min_resources or {}).get("cpu", 0)) for each in groups.items())))

    groups.subscribe(count)
    await Reflector(world.client, kinds.PODGROUPS, groups, namespace=world.namespace).run()


async def test_what_groups_of_existing_workloads_state_never_adds_up_to_more_than_the_quota(admitted):
    await admitted.node("64")
    await operator(admitted, PYTORCHJOBS)
    stateful = {**deployment("db", 4)["spec"], "serviceName": "db", "podManagementPolicy": "Parallel"}
    del stateful["strategy"]
    applied = [(kinds.DEPLOYMENTS, deployment(f"web-{number}", 4)) for number in range(4)]
    applied += [(kinds.STATEFULSETS, {"metadata": {"name": "db"}, "spec": stateful})]
    applied += [(PYTORCHJOBS, pytorchjob("train", 2))]
    own = [group(f"own-{number}", minMember=1, minResources={"cpu": "3"}) for number in range(3)]
    most = [0]
    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(most_stated(admitted, most))
        await admitted.work()
        # All at once, and people's own groups with them.
        theirs = [tasks.create_task(create_if_there_is_room(admitted, each)) for each in own]
        made = await asyncio.gather(*(apply(admitted, *each) for each in applied))
        await asyncio.gather(*theirs)
        for _, name in made:
            await admitted.becomes(kinds.PODGROUPS, name, lambda one: one)
        await admitted.rest(3)
        stated = [(await admitted.group(name)).spec.min_resources for _, name in made]
        assert None in stated
        assert 8 <= most[0] <= 10
        # Two fit into what comes to be free, and no more of them state their minimum.
        await admitted.patch(kinds.RESOURCEQUOTAS, "team", {"spec": {"hard": {"requests.cpu": "18"}}})
        await admitted.until(lambda: stating(admitted, [name for _, name in made], stated.count(None) - 2))
        await admitted.rest(3)
        assert most[0] <= 18
        await admitted.patch(kinds.RESOURCEQUOTAS, "team", {"spec": {"hard": {"requests.cpu": "40"}}})
        for _, name in made:
            found = await admitted.becomes(kinds.PODGROUPS, name, lambda one: one.spec.min_resources is not None)
            assert found.metadata.annotation(names.WANTED_RESOURCES) == ""
        watch.cancel()


async def create_if_there_is_room(world: Any, body: dict[str, Any]) -> None:
    with contextlib.suppress(errors.ForbiddenError):
        await world.client.create(kinds.PODGROUPS, body, world.namespace)


async def stating(world: Any, groups: list[str], missing: int) -> bool:
    """Whether no more than so many of the groups lack a minimum."""
    return [(await world.group(name)).spec.min_resources for name in groups].count(None) <= missing


@pytest.mark.only("sandbox", reason="tests/scheduler/test_workload_reservation.py has the reservation on both")
async def test_the_group_of_a_deployment_that_fits_reserves_before_its_pods_come(admitted):
    await admitted.node("16")
    await admitted.work()
    paused = deployment("web", 6)
    paused["spec"]["paused"] = True
    _, name = await apply(admitted, kinds.DEPLOYMENTS, paused)
    await admitted.becomes(kinds.PODGROUPS, name, lambda found: found)
    assert await admitted.pods() == []
    body = {"metadata": {"name": "other"}, "spec": {"minMember": 1, "minResources": {"cpu": "6"}}}
    with pytest.raises(errors.ForbiddenError, match=r"6 reserved \(.*\), so 4 are free: short by 2"):
        await admitted.client.create(kinds.PODGROUPS, body, admitted.namespace)
    # The minimum is larger than what the quota has left, so the group keeps what it had, and the Deployment says so.
    more = {"spec": {"template": {"metadata": {"annotations": {names.GROUP_MIN_MEMBER: "11"}}}}}
    await admitted.patch(kinds.DEPLOYMENTS, "web", more)

    def told(events: Any) -> bool:
        return any(each.reason == "PodGroupNotChanged" and "short by 1 requests.cpu" in each.message for each in events)

    await admitted.plane.all(kinds.EVENTS, admitted.namespace, holds=told)
    assert (await admitted.group(name)).spec.min_member == 6


async def test_the_group_of_an_operators_object_is_made_from_its_templates_once_it_is_not_suspended(admitted):
    await admitted.node("16")
    await operator(admitted, PYTORCHJOBS)
    await admitted.work()
    _, held = await apply(admitted, PYTORCHJOBS, pytorchjob("held", 2, suspend=True))
    over = pytorchjob("over", 2) | {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    _, ended = await apply(admitted, PYTORCHJOBS, over)
    made, name = await apply(admitted, PYTORCHJOBS, pytorchjob("train", 3))
    group = await admitted.becomes(kinds.PODGROUPS, name, lambda found: found)
    assert (group.spec.min_member, group.spec.min_resources) == (4, {"cpu": "5"})
    # Six of ten would be needed beside it, and five are reserved though it has no pods yet.
    with pytest.raises(errors.ForbiddenError, match="5 reserved"):
        await admitted.client.create(
            kinds.PODGROUPS,
            {"metadata": {"name": "other"}, "spec": {"minMember": 1, "minResources": {"cpu": "6"}}},
            admitted.namespace,
        )
    for role in ("master-0", "worker-0", "worker-1", "worker-2"):
        cpu = "2" if role == "master-0" else "1"
        await admitted.client.create(kinds.PODS, pod_of(made, PYTORCHJOBS, f"train-{role}", cpu), admitted.namespace)
    await admitted.phase(name, "Running")
    groups = {each.name for each in (await admitted.client.list(kinds.PODGROUPS, admitted.namespace)).items}
    assert groups & {held, ended, name} == {name}
    await admitted.patch(PYTORCHJOBS, "held", {"spec": {"runPolicy": {"suspend": False}}})
    resumed = await admitted.becomes(kinds.PODGROUPS, held, lambda found: found)
    assert resumed.spec.min_resources == {"cpu": "4"}


async def test_the_second_step_of_a_workflow_starts_in_a_guarded_namespace(admitted):
    await admitted.node("16")
    await operator(admitted, WORKFLOWS)
    await admitted.work()
    spec = {"schedulerName": names.SCHEDULER_NAME, "entrypoint": "main", "templates": []}
    flow, name = await apply(admitted, WORKFLOWS, {"metadata": {"name": "flow"}, "spec": spec})
    short = {names.RUN_SECONDS: "1"}
    for step, cpu in (("one", "2"), ("two", "6")):
        await admitted.client.create(
            kinds.PODS, pod_of(flow, WORKFLOWS, f"flow-{step}", cpu, **short), admitted.namespace
        )
        await admitted.becomes(kinds.PODS, f"flow-{step}", lambda found: found.status.phase == "Succeeded")
        # Completed, it holds nothing; the next step is let in all the same, and has it start again.
        await admitted.phase(name, "Completed")


@pytest.mark.only("sandbox", reason="what is served is asked each half minute: in virtual time")
async def test_an_operator_that_is_installed_later_has_its_groups_half_a_minute_later_until_it_is_gone(world):
    await world.work()
    await operator(world, PYTORCHJOBS)
    _, name = await apply(world, PYTORCHJOBS, pytorchjob("train", 1))
    await world.becomes(kinds.PODGROUPS, name, lambda found: found)
    await world.client.delete(kinds.CRDS, str(PYTORCHJOBS))
    await asyncio.sleep(60)
    before = len(world.line.sent)
    await asyncio.sleep(120)
    asked = [each.path for each in world.line.sent[before:]]
    assert "/apis" in asked
    assert not any("pytorchjobs" in each for each in asked)


def ours(value: Any) -> Any:
    """Have the pods of a published sample scheduled by Muster, wherever it has containers or Spark's roles."""
    if isinstance(value, dict):
        mine = {"schedulerName": names.SCHEDULER_NAME} if "containers" in value or "cores" in value else {}
        return {key: ours(each) for key, each in value.items()} | mine
    return [ours(each) for each in value] if isinstance(value, list) else value


@needs_them
@pytest.mark.only("sandbox", reason="six kinds served: the real control plane takes seconds for each")
async def test_what_operators_publish_as_samples_gets_a_group_of_its_templates(world):
    samples = {
        ("pytorchjob-simple", "kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"): {},
        ("mpijob-pi", "kubeflow.org", "v2beta1", "mpijobs", "MPIJob"): {"cpu": "2", "memory": "2Gi"},
        ("leaderworkerset", "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"): {"cpu": "100m"},
        ("raycluster-volcano-queue", "ray.io", "v1", "rayclusters", "RayCluster"): {"cpu": "2", "memory": "3Gi"},
        ("rayjob-volcano-queue", "ray.io", "v1", "rayjobs", "RayJob"): {"cpu": "2", "memory": "3Gi"},
        ("spark-pi-python", "sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication"): {
            "cpu": "2",
            "memory": "1792Mi",
        },
    }
    kinds_of = {name: Kind(group, version, plural, kind, Object) for name, group, version, plural, kind in samples}
    for kind in kinds_of.values():
        await operator(world, kind)
    await world.work()
    for (name, *_), need in samples.items():
        kind = kinds_of[name]
        body = ours(sample(name, kind.name))
        body["metadata"] |= {"namespace": world.namespace, "annotations": {names.GROUP_MIN_MEMBER: "2"}}
        _, group = await apply(world, kind, body)
        made = await world.becomes(kinds.PODGROUPS, group, lambda found: found)
        assert (kind.name, made.spec.min_member, made.spec.min_resources or {}) == (kind.name, 2, need)
