"""Which owner a generated group stands for: rules, walks up ownerReferences of any kind, and what may go wrong there."""

from __future__ import annotations

from typing import Any

import pytest

from muster.kube import errors
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Object

TEMPLATE = {
    "schedulerName": names.SCHEDULER_NAME,
    "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
}
CONTROLLED = {"controller": True, "blockOwnerDeletion": True}


def pod(name: str, owner: Any = None, **annotations: str) -> dict[str, Any]:
    meta = {"name": name, "annotations": annotations, "ownerReferences": [owner] if owner else []}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": TEMPLATE}


def job(name: str, count: int, owner: Any = None, **annotations: str) -> dict[str, Any]:
    meta = {"name": name, "annotations": annotations, "ownerReferences": [owner] if owner else []}
    # As long as a test may take, lest what it waits for is over before it looks.
    template = {"metadata": {"annotations": {names.RUN_SECONDS: "600"}}, "spec": {**TEMPLATE, "restartPolicy": "Never"}}
    spec = {"parallelism": count, "completions": count, "suspend": True, "template": template}
    meta["annotations"] = {names.SUSPENDED: "true"} | annotations
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def reference(owner: Any) -> dict[str, Any]:
    meta = owner.metadata
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": meta.name, "uid": meta.uid, **CONTROLLED}


_SERVED: dict[tuple[str, str], Kind[Object]] = {}
"""Kinds that the real control plane serves from their first test on: it takes two seconds to take up a new one."""


async def custom(world: Any, group: str, version: str, kind: str, plural: str) -> Kind[Object]:
    """Serve a kind without a schema, as Argo and Ray do in effect; the group is these tests' own."""
    if world.plane.name == "sandbox":
        return await _serve(world, Kind(f"t.{group}", version, plural, kind, Object))
    if (group, kind) not in _SERVED:
        own = Kind(f"{world.plane.unique('t')}.{group}", version, plural, kind, Object)
        _SERVED[group, kind] = await _serve(world, own)
    return _SERVED[group, kind]


async def _serve(world: Any, served: Kind[Object]) -> Kind[Object]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    kind = served.name
    spec = {
        "group": served.group,
        "scope": "Namespaced",
        "names": {
            "kind": kind,
            "plural": served.plural,
            "singular": kind.lower(),
            "listKind": f"{kind}List",
        },
        "versions": [{"name": served.version, "served": True, "storage": True, "schema": schema}],
    }
    await world.client.create(kinds.CRDS, {"metadata": {"name": str(served)}, "spec": spec})

    def established(crd: Any) -> bool:
        conditions = (crd.status or {}).get("conditions") or ()
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    await world.plane.until(kinds.CRDS, str(served), holds=established)

    async def listed() -> bool:
        try:
            return bool((await world.client.list(served, world.namespace)).resource_version)
        except errors.NotFoundError:
            return False

    await world.until(listed)
    return served


async def made(world: Any, kind: Kind[Object], name: str, owner: Any = None, **annotations: str) -> Any:
    meta = {"name": name, "annotations": annotations, "ownerReferences": [reference(owner)] if owner else []}
    return await world.client.create(kind, {"metadata": meta, "spec": {"any": "thing"}}, world.namespace)


async def rules(world: Any, text: str) -> None:
    data = {"muster-controller.conf": text}
    await world.client.create(
        kinds.CONFIGMAPS, {"metadata": {"name": "muster-controller-config"}, "data": data}, world.namespace
    )


async def groups(world: Any) -> dict[str, tuple[str, str]]:
    found = (await world.client.list(kinds.PODGROUPS, world.namespace)).items
    owners = {each.name: (each.metadata.owner_references or ()) for each in found}
    return {name: (owned[0].kind, owned[0].name) for name, owned in owners.items() if owned}


async def test_pods_of_any_kind_share_the_group_of_their_owner_which_is_read_once(world):
    await world.node("8")
    cluster = await custom(world, "ray.io", "v1", "RayCluster", "rayclusters")
    head = await made(world, cluster, "ray", **{names.GROUP_MIN_MEMBER: "4"})
    await world.work()
    for number in range(4):
        await world.create(pod(f"worker-{number}", reference(head)))
    name = f"podgroup-{head.metadata.uid}"
    group = await world.phase(name, "Running")
    assert (group.spec.min_member, group.spec.min_resources) == (4, {"cpu": "4"})
    assert await groups(world) == {name: ("RayCluster", "ray")}
    assert {each.metadata.annotation(names.GROUP_NAME) for each in await world.pods()} == {name}
    (read,) = world.line.asked(cluster.path(world.namespace, "ray"))
    assert "as=PartialObjectMetadata" in read.accept


async def test_a_group_of_different_pods_needs_what_they_ask_for_together(world):
    await world.node("4")
    cluster = await custom(world, "ray.io", "v1", "RayCluster", "rayclusters")
    ray = await made(world, cluster, "ray", **{names.GROUP_MIN_MEMBER: "3"})
    await world.work()
    head = pod("head", reference(ray))
    container = TEMPLATE["containers"][0] | {"resources": {"requests": {"cpu": "2"}}}
    await world.create(head | {"spec": TEMPLATE | {"containers": [container]}})
    await world.create(pod("worker-1", reference(ray)), pod("worker-2", reference(ray)))
    group = await world.phase(f"podgroup-{ray.metadata.uid}", "Running")
    assert group.spec.min_resources == {"cpu": "4"}


async def test_annotations_say_what_a_group_asks_for_the_newer_wins_and_an_illegal_one_is_told(world):
    await world.node("8")
    await world.work()
    newer, older = "scheduling.volcano.sh/group-min-member", "scheduling.k8s.io/group-min-member"
    stated = {"scheduling.volcano.sh/group-min-resources": '{"cpu": "2"}'}
    await world.create(pod("both", **{older: "7", newer: "1"}, **stated), pod("odd", **{older: "two"}))
    both, odd = [await world.client.get(kinds.PODS, name, world.namespace) for name in ("both", "odd")]
    group = await world.phase(f"podgroup-{both.metadata.uid}", "Running")
    assert (group.spec.min_member, group.spec.min_resources) == (1, {"cpu": "2"})
    assert (await world.phase(f"podgroup-{odd.metadata.uid}", "Running")).spec.min_member == 1
    words = f"{older} 'two' counts as 1: write a whole number from 0 to 2147483647"

    def told(events: Any) -> bool:
        return any((each.reason, each.message) == ("IgnoredAnnotation", words) for each in events)

    await world.plane.all(kinds.EVENTS, world.namespace, holds=told)


async def test_pods_that_do_not_come_are_taken_to_be_like_the_last_one(world):
    await world.node("4")
    cluster = await custom(world, "ray.io", "v1", "RayCluster", "rayclusters")
    ray = await made(world, cluster, "ray", **{names.GROUP_MIN_MEMBER: "3"})
    await world.work()
    await world.create(pod("head", reference(ray)))
    group = await world.plane.until(kinds.PODGROUPS, f"podgroup-{ray.metadata.uid}", world.namespace)
    assert (group.spec.min_member, group.spec.min_resources) == (3, {"cpu": "3"})


async def test_a_replicaset_that_nobody_owns_owns_the_group_of_its_pods(world):
    await world.node("4")
    await world.work()
    labels = {"app": "bare"}
    meta = {"labels": labels, "annotations": {names.GROUP_MIN_MEMBER: "2"}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": meta, "spec": TEMPLATE}}
    replicaset = await world.client.create(
        kinds.REPLICASETS, {"metadata": {"name": "bare"}, "spec": spec}, world.namespace
    )
    name = f"podgroup-{replicaset.metadata.uid}"
    await world.phase(name, "Running")
    assert await groups(world) == {name: ("ReplicaSet", "bare")}


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
async def test_a_workload_of_another_kind_owns_the_group_of_its_pods(world, kind):
    nodes = [await world.node("4") for _ in range(2)]
    served = Kind("apps", "v1", f"{kind.lower()}s", kind, Object)
    await world.work()
    labels = {"app": "two"}
    meta = {"labels": labels, "annotations": {names.GROUP_MIN_MEMBER: "2"}}
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": {"metadata": meta, "spec": TEMPLATE}}
    if kind == "StatefulSet":
        spec |= {"replicas": 2, "serviceName": "two", "podManagementPolicy": "Parallel"}
    owner = await world.client.create(served, {"metadata": {"name": "two"}, "spec": spec}, world.namespace)
    name = f"podgroup-{owner.metadata.uid}"
    group = await world.phase(name, "Running")
    assert group.spec.min_member == 2
    assert await groups(world) == {name: (kind, "two")}
    if kind == "DaemonSet":
        assert {each.spec.node_name for each in await world.pods()} == set(nodes)


async def test_a_group_goes_with_its_owner(world):
    await world.node("1")
    await world.work()
    await world.create(job("short", 2), pod("alone"))
    alone = await world.client.get(kinds.PODS, "alone", world.namespace)
    owners = {kinds.JOBS: await world.job("short"), kinds.PODS: alone}
    for kind, owner in owners.items():
        name = f"podgroup-{owner.metadata.uid}"
        await world.plane.until(kinds.PODGROUPS, name, world.namespace)
        await world.client.delete(kind, owner.name, world.namespace)
        await world.plane.until(kinds.PODGROUPS, name, world.namespace, holds=lambda found: found is None)


async def test_without_the_right_to_read_an_owner_the_group_stands_for_it_all_the_same_and_an_event_says_so(world):
    await world.node("8")
    operator = await custom(world, "example.com", "v1", "Trainer", "trainers")
    trainer = await made(world, operator, "mnist")
    world.line.refuse = lambda request: "/trainers/" in request.path
    await world.work()
    await world.create(pod("a", reference(trainer)), pod("b", reference(trainer)))
    await world.phase(f"podgroup-{trainer.metadata.uid}", "Running")

    def told(events: Any) -> bool:
        remedy = f'allow "get" on {operator} in a ClusterRole labelled muster.sh/owner-reader: "true"'
        return any(each.reason == "OwnerUnreadable" and remedy in each.message for each in events)

    await world.plane.all(kinds.EVENTS, world.namespace, holds=told)
    assert len(world.line.asked(operator.path(world.namespace, "mnist"))) == 1


async def test_owners_that_own_each_other_and_those_of_a_kind_that_nobody_serves_end_the_walk(world):
    await world.node("8")
    thing = await custom(world, "example.com", "v1", "Thing", "things")
    first = await made(world, thing, "first")
    second = await made(world, thing, "second", first)
    circle = {"metadata": {"ownerReferences": [reference(second)]}}
    await world.client.patch(thing, "first", circle, world.namespace)
    lost = {"apiVersion": "gone.example.com/v1", "kind": "Gone", "name": "gone", "uid": "0c0ffee0", **CONTROLLED}
    third = await world.client.create(thing, {"metadata": {"name": "third"}}, world.namespace)
    await world.work()
    await world.create(pod("a", reference(first)), pod("b", reference(third)))
    await world.phase(f"podgroup-{second.metadata.uid}", "Running")
    await world.phase(f"podgroup-{third.metadata.uid}", "Running")
    if world.plane.name == "sandbox":  # Kubernetes' garbage collector takes away what such an owner has.
        await world.create(pod("c", lost))
        await world.phase("podgroup-0c0ffee0", "Running")


async def test_the_walk_ends_after_ten_levels(world):
    await world.node("8")
    thing = await custom(world, "example.com", "v1", "Thing", "things")
    line = [await made(world, thing, "thing-0")]
    for number in range(1, 13):
        line.append(await made(world, thing, f"thing-{number}", line[-1]))
    await world.work()
    await world.create(pod("deep", reference(line[-1])))
    # The owner of the pod is the first level.
    await world.phase(f"podgroup-{line[-10].metadata.uid}", "Running")


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", "Job"),
        ("podgroup-level-rules: [{apiversion: GROUP/v1alpha1, kind: workflow, adjust-level: -1}]", "Job"),
        ("podgroup-level-rules: []", "Workflow"),
        ("podgroupLevel: [{apiversion: GROUP/v1alpha1, kind: WORKFLOW}]", "Workflow"),
        ("podgroupLevel: [{apiversion: batch/v1, kind: job, adjust-level: 1}]", "Workflow"),
        ("podgroupLevel: [{apiversion: batch/v1, kind: job, adjust-level: -1}]", "Pod"),
    ],
    ids=["by default", "one below the workflow", "the root", "the workflow", "one above the job", "each pod"],
)
async def test_jobs_of_a_workflow_are_grouped_as_the_rules_say(world, text, chosen):
    await world.node("8")
    workflows = await custom(world, "argoproj.io", "v1alpha1", "Workflow", "workflows")
    if text:
        await rules(world, text.replace("GROUP", workflows.group))
    flow = await made(world, workflows, "steps")
    await world.work()
    await world.create(job("one", 2, reference(flow)), job("two", 2, reference(flow)))

    def placed(pods: Any) -> bool:
        return len(pods) == 4 and all(each.spec.node_name for each in pods)

    pods = await world.plane.all(kinds.PODS, world.namespace, holds=placed)
    owners = {name: kind for name, (kind, _) in (await groups(world)).items()}
    assert set(owners.values()) == {chosen}
    assert len(owners) == {"Job": 2, "Workflow": 1, "Pod": 4}[chosen]
    assert {each.metadata.annotation(names.GROUP_NAME) for each in pods} == set(owners)
    noted = {(await world.job(name)).metadata.annotation(names.JOB_GROUP) for name in ("one", "two")}
    assert noted == ({""} if chosen == "Pod" else set(owners))


async def test_what_a_trainjob_says_reaches_the_groups_of_its_jobs(world):
    await world.node("8")
    await world.plane.create(kinds.QUEUES, {"metadata": {"name": (queue := world.plane.unique("research"))}})
    trainjobs = await custom(world, "trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
    jobsets = await custom(world, "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
    said = {names.QUEUE_NAME_KEYS[0]: queue, names.GROUP_MIN_MEMBER: "2"}
    train = await world.client.create(trainjobs, {"metadata": {"name": "train", "annotations": said}}, world.namespace)
    below = await made(world, jobsets, "train", train)
    await world.work()
    await world.create(job("train-node-0", 2, reference(below)))
    one = await world.job("train-node-0")
    running = await world.phase(f"podgroup-{one.metadata.uid}", "Running")
    assert (running.spec.queue, running.spec.min_member) == (queue, 2)


async def test_rules_change_while_running_and_a_mistake_in_them_changes_nothing(world):
    await world.node("8")
    workflows = await custom(world, "argoproj.io", "v1alpha1", "Workflow", "workflows")
    flow = await made(world, workflows, "steps")
    await world.work()
    await rules(world, "podgroup-level-rules:\n- {kind: job}")

    def told(events: Any) -> bool:
        return any(each.reason == "InvalidRules" and "line 2: apiversion is missing" in each.message for each in events)

    await world.plane.all(kinds.EVENTS, world.namespace, holds=told)
    await world.create(job("one", 1, reference(flow)))
    one = await world.job("one")
    await world.phase(f"podgroup-{one.metadata.uid}", "Running")

    change = {"data": {"muster-controller.conf": "podgroup-level-rules: []"}}
    await world.client.patch(kinds.CONFIGMAPS, "muster-controller-config", change, world.namespace)

    async def follows() -> bool:
        await world.client.delete(kinds.JOBS, "two", world.namespace) if await found("two") else None
        await world.create(job("two", 1, reference(flow)))
        two = await world.plane.all(
            kinds.PODGROUPS,
            world.namespace,
            holds=lambda items: any(each.metadata.owner_references[0].name in {"two", "steps"} for each in items),
        )
        return any(each.name == f"podgroup-{flow.metadata.uid}" for each in two)

    async def found(name: str) -> bool:
        return await world.client.find(kinds.JOBS, name, world.namespace) is not None

    await world.until(follows)


async def test_a_name_that_other_rules_gave_a_pod_stays(world):
    await world.node("8")
    workflows = await custom(world, "argoproj.io", "v1alpha1", "Workflow", "workflows")
    flow = await made(world, workflows, "steps")
    below = await made(world, workflows, "inner", flow)
    await world.work()
    # Admission, with rules that this worker doesn't have (yet), chose the one below the root.
    named = f"podgroup-{below.metadata.uid}"
    await world.create(pod("a", reference(below), **{names.GROUP_NAME: named}))
    await world.phase(named, "Running")
    assert await groups(world) == {named: ("Workflow", "inner")}


async def cron_job(world: Any, name: str, schedule: str, **annotations: str) -> Any:
    """Create a CronJob whose Jobs come as admission would have them."""
    inner = job(name, 2)
    template = {"metadata": {"annotations": inner["metadata"]["annotations"]}, "spec": inner["spec"]}
    spec = {"schedule": schedule, "concurrencyPolicy": "Forbid", "jobTemplate": template}
    served = Kind("batch", "v1", "cronjobs", "CronJob", Object)
    manifest = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
    return await world.client.create(served, manifest, world.namespace)


async def test_each_job_that_a_cronjob_starts_has_a_group_of_its_own_as_the_cronjob_asks(world):
    await world.node("8")
    await world.work()
    await cron_job(world, "often", "@every 1s", **{names.GROUP_MIN_MEMBER: "2"})
    (started, *_) = await world.plane.all(kinds.JOBS, world.namespace, holds=bool)
    group = await world.phase(f"podgroup-{started.metadata.uid}", "Running")
    assert group.spec.min_member == 2
    assert (await groups(world))[group.name] == ("Job", started.name)


async def test_the_nearest_that_says_so_names_the_queue_up_to_a_cronjob_and_the_namespace(world):
    await world.node("8")
    teams = [world.plane.unique(name) for name in ("cron", "space")]
    for team in teams:
        await world.create({"kind": "Queue", "metadata": {"name": team}, "spec": {}})
    space = {"metadata": {"annotations": {names.QUEUE_NAME_KEYS[0]: teams[1]}}}
    await world.client.patch(kinds.NAMESPACES, world.namespace, space)
    annotations = {names.QUEUE_NAME_KEYS[0]: teams[0]}
    nightly = await cron_job(world, "nightly", "0 0 1 1 *", **annotations)
    await world.work()
    # As `kubectl create job --from=cronjob/nightly` does.
    await world.create(job("of-cron", 1, reference(nightly)), job("of-nobody", 1))
    for name, team in zip(("of-cron", "of-nobody"), teams, strict=True):
        uid = (await world.job(name)).metadata.uid
        assert (await world.phase(f"podgroup-{uid}", "Running")).spec.queue == team


async def test_no_group_is_made_into_a_queue_that_is_being_deleted(world):
    await world.node("1")
    await world.work()
    team = world.plane.unique("team")
    await world.create({"kind": "Queue", "metadata": {"name": team}, "spec": {}})
    await world.becomes(kinds.QUEUES, team, lambda queue: queue.metadata.finalizers)
    held = {"metadata": {"finalizers": [names.QUEUE_FINALIZER, "example.com/test"]}}
    await world.patch(kinds.QUEUES, team, held)
    await world.client.delete(kinds.QUEUES, team)
    await world.becomes(kinds.QUEUES, team, lambda queue: queue.status.state == "Closing")
    await world.create(pod("late", **{names.QUEUE_NAME_KEYS[0]: team}))

    def told(events: Any) -> bool:
        return any(each.reason == "NoPodGroup" and "is being deleted" in each.message for each in events)

    await world.plane.all(kinds.EVENTS, world.namespace, holds=told)
    assert await groups(world) == {}
    await world.patch(kinds.QUEUES, team, {"metadata": {"finalizers": None}})
