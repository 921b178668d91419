"""Generated groups, held Jobs and the life of queues."""

from __future__ import annotations

import re
from typing import Any

import pytest

from muster.kube import errors
from muster.model import kinds, names

TEMPLATE = {
    "schedulerName": names.SCHEDULER_NAME,
    "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
}


def pod(name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    meta = {"name": name, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": TEMPLATE}


def job(name: str, count: int, *, suspend: bool, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "parallelism": count,
            "completions": count,
            "suspend": suspend,
            "template": {"spec": {**TEMPLATE, "restartPolicy": "Never"}},
        },
    }


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": kinds.QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def group(name: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": name}
    return {"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup", "metadata": meta, "spec": spec}


async def test_a_bare_pod_owns_its_group_and_runs(world):
    await world.node("4")
    await world.work()
    await world.create(pod("alone"))

    found = await world.becomes(kinds.PODS, "alone", lambda found: found.spec.node_name)
    name = f"podgroup-{found.metadata.uid}"
    assert found.metadata.annotation(names.GROUP_NAME) == name
    made = await world.phase(name, "Running")
    assert made.spec.min_resources == {"cpu": "1"}
    assert [(each.kind, each.name) for each in made.metadata.owner_references] == [("Pod", "alone")]


async def test_a_group_that_admission_named_on_a_pod_is_made(world):
    await world.node("8")
    await world.work()
    spec = {
        "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": TEMPLATE},
    }
    spec |= {"replicas": 0, "serviceName": "db"}
    owner = await world.client.create(kinds.STATEFULSETS, {"metadata": {"name": "db"}, "spec": spec}, world.namespace)
    name = f"podgroup-{owner.metadata.uid}"
    named = {"template": {"metadata": {"annotations": {names.GROUP_NAME: name}}}, "replicas": 1}
    await world.client.patch(kinds.STATEFULSETS, "db", {"spec": named}, world.namespace)
    made = await world.phase(name, "Running")
    assert [each.name for each in made.metadata.owner_references] == ["db"]


async def test_a_group_that_a_user_named_is_left_for_the_user_to_make(world):
    await world.node("8")
    await world.work()
    await world.create(pod("late", {names.GROUP_NAME: "podgroup-of-mine"}))
    await world.create(pod("later", {names.GROUP_NAME: "mine"}))
    await world.create(pod("last"))
    last = await world.becomes(kinds.PODS, "last", lambda found: found.spec.node_name)
    await world.rest(3)
    made = (await world.client.list(kinds.PODGROUPS, world.namespace)).items
    assert [each.name for each in made] == [f"podgroup-{last.metadata.uid}"]


async def test_a_deployment_owns_one_group_over_all_its_replica_sets(world):
    node = await world.node("8")
    await world.work()
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {names.GROUP_MIN_MEMBER: "2"}}, "spec": TEMPLATE}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    await world.create(manifest)
    made = await world.client.get(kinds.DEPLOYMENTS, "web", world.namespace)
    name = f"podgroup-{made.metadata.uid}"
    await world.phase(name, "Running")
    first = {each.metadata.uid for each in await world.pods()}

    image = {"name": "main", "image": "busybox:2", "resources": {"requests": {"cpu": "1"}}}
    change = {"spec": {"template": {"spec": {"containers": [image]}}}}
    await world.patch(kinds.DEPLOYMENTS, "web", change)

    def rolled_out(pods):
        return len(pods) == 2 and all(each.spec.node_name == node and each.metadata.uid not in first for each in pods)

    await world.plane.all(kinds.PODS, world.namespace, holds=rolled_out)
    groups = (await world.client.list(kinds.PODGROUPS, world.namespace)).items
    assert [each.name for each in groups] == [name]
    assert groups[0].spec.min_member == 2
    assert groups[0].status.phase == "Running"


async def test_a_group_is_made_once_however_many_pods_and_events_ask_for_it(world):
    await world.node("16")
    await world.work()
    template = {"metadata": {"labels": {"app": "web"}}, "spec": TEMPLATE}
    spec = {"replicas": 8, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    await world.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
    await world.create(job("train", 2, suspend=True, annotations={names.SUSPENDED: "true"}))
    await world.plane.all(
        kinds.PODS,
        world.namespace,
        holds=lambda pods: len(pods) == 10 and all(each.metadata.annotation(names.GROUP_NAME) for each in pods),
    )
    made = kinds.PODGROUPS.path(world.namespace)
    assert [each.method for each in world.line.sent if each.writes and each.path == made] == ["POST", "POST"]


async def test_a_job_that_its_user_suspended_stays_suspended(world):
    await world.node("4")
    await world.work()
    await world.create(job("mine", 2, suspend=True))
    made = await world.job("mine")
    waiting = await world.becomes(
        kinds.PODGROUPS, f"podgroup-{made.metadata.uid}", lambda group: group.status.conditions
    )
    assert waiting.status.phase == "Pending"
    assert "suspended by its user" in waiting.status.conditions[0].message
    assert (await world.job("mine")).spec.suspend


async def test_a_job_resumed_before_its_turn_is_put_back(world):
    await world.node("1")
    await world.work()
    held = {names.SUSPENDED: "true", names.GROUP_MIN_MEMBER: "2"}
    await world.create(job("eager", 2, suspend=True, annotations=held))
    made = await world.job("eager")
    await world.phase(f"podgroup-{made.metadata.uid}", "Pending")
    change = {"metadata": {"annotations": {names.SUSPENDED: None}}, "spec": {"suspend": False}}
    resumed = await world.patch(kinds.JOBS, "eager", change)
    assert not resumed.spec.suspend
    made = await world.becomes(kinds.JOBS, "eager", lambda found: found.spec.suspend)
    assert made.metadata.annotation(names.SUSPENDED) == "true"

    def told(events):
        return any(each.reason == "Held" and each.message.endswith("short by 1 cpu") for each in events)

    await world.plane.all(kinds.EVENTS, world.namespace, holds=told)


async def test_an_event_says_how_long_a_group_was_pending_and_where_it_was_admitted(world):
    await world.work()
    await world.create(group("g", minMember=1, minResources={"cpu": "1"}))
    await world.phase("g", "Pending")
    await world.node("1")
    await world.phase("g", "Inqueue")

    def told(events):
        words = re.compile(r"Admitted to queue default; was Pending for [0-9]+s")
        return any(each.reason == "Inqueue" and words.fullmatch(each.message) for each in events)

    await world.plane.all(kinds.EVENTS, world.namespace, holds=told)


async def test_a_job_is_not_held_back_where_it_its_queue_or_its_namespace_wants_no_delay(world):
    await world.node("1")
    await world.work()
    team, off, minimum = world.plane.unique("team"), {names.DELAY: "off"}, {names.GROUP_MIN_MEMBER: "2"}
    hasty = queue(team)
    hasty["metadata"]["annotations"] = off
    await world.create(hasty, job("at-once", 2, suspend=False, annotations=off | minimum))
    await world.create(job("of-team", 2, suspend=False, annotations={names.QUEUE_NAME_KEYS[0]: team} | minimum))
    await world.create(job("held", 2, suspend=False, annotations=minimum))
    await world.becomes(kinds.JOBS, "held", lambda found: found.spec.suspend)
    await world.client.patch(kinds.NAMESPACES, world.namespace, {"metadata": {"annotations": off}})
    await world.create(job("of-space", 2, suspend=False, annotations=minimum))
    # The nearest that says so decides.
    await world.create(job("held-too", 2, suspend=False, annotations={names.DELAY: "suspend"} | minimum))
    await world.becomes(kinds.JOBS, "held-too", lambda found: found.spec.suspend)
    await world.rest(3)
    for name in ("at-once", "of-team", "of-space"):
        await world.plane.all(kinds.PODS, world.namespace, labels=f"job-name={name}", holds=lambda pods: len(pods) == 2)
        assert not (await world.job(name)).spec.suspend


async def test_without_the_enqueue_action_nothing_is_delayed(world):
    await world.node("1")
    await world.work("actions: allocate\ntiers: [{plugins: [{name: gang}, {name: predicates}]}]")
    await world.create(job("now", 2, suspend=True, annotations={names.SUSPENDED: "true"}))
    await world.becomes(kinds.JOBS, "now", lambda found: not found.spec.suspend)


async def test_a_new_leader_finishes_what_the_last_one_began(world):
    await world.node("4")
    await world.create(
        job("train", 2, suspend=True, annotations={names.SUSPENDED: "true", names.GROUP_MIN_MEMBER: "2"})
    )
    uid = (await world.job("train")).metadata.uid
    # A leader that crashed after it had let the group in.
    await world.create(group(f"podgroup-{uid}", minMember=2))
    await world.patch(kinds.PODGROUPS, f"podgroup-{uid}", {"status": {"phase": "Inqueue"}}, subresource="status")
    await world.work()
    await world.phase(f"podgroup-{uid}", "Running")


async def test_a_worker_that_starts_again_writes_nothing_new(world):
    team = world.plane.unique("team")
    waiting = {names.SUSPENDED: "true", names.GROUP_MIN_MEMBER: "9", names.QUEUE_NAME_KEYS[0]: team}
    await world.node("4")
    await world.work()
    await world.create(queue(team), job("big", 9, suspend=True, annotations=waiting))
    await world.becomes(kinds.QUEUES, team, lambda queue: queue.status.pending == 1)
    await world.rest(3)
    assert len(world.line.written(world.namespace)) > 1
    assert world.line.written(team)
    await world.stop()
    before = len(world.line.written(world.namespace, team))
    await world.work()
    await world.rest(10)
    assert world.line.written(world.namespace, team)[before:] == []


async def test_the_default_queue_is_there_and_comes_back(world):
    await world.work()
    made = await world.becomes(kinds.QUEUES, names.DEFAULT_QUEUE, lambda queue: queue.status.state == "Open")
    assert made.spec.weight == 1
    await world.client.delete(kinds.QUEUES, names.DEFAULT_QUEUE)
    await world.becomes(kinds.QUEUES, names.DEFAULT_QUEUE, lambda again: again.metadata.uid != made.metadata.uid)


async def test_a_queue_counts_its_groups(world):
    await world.node("4")
    await world.work()
    team = world.plane.unique("team")
    await world.create(queue(team, weight=2), group("a", minMember=1, queue=team), pod("x"))
    await world.create(group("b", minMember=1, queue=team, minResources={"cpu": "9"}))
    await world.create(pod("member", {names.GROUP_NAME: "a"}))
    counted = ("Open", 1, 1)
    found = await world.becomes(
        kinds.QUEUES,
        team,
        lambda queue: (
            (queue.status.state, queue.status.pending, queue.status.running) == counted and queue.status.allocated
        ),
    )
    assert found.status.allocated["cpu"] == "1"


async def test_a_queue_closes_when_what_is_in_it_is_done(world):
    await world.node("4")
    await world.work()
    team = world.plane.unique("team")
    await world.create(queue(team), group("a", minMember=1, queue=team, minResources={"cpu": "9"}))
    await world.becomes(kinds.QUEUES, team, lambda queue: queue.status.pending == 1)
    await world.patch(kinds.QUEUES, team, {"spec": {"desiredState": "Closed"}})
    await world.becomes(kinds.QUEUES, team, lambda queue: queue.status.state == "Closing")
    await world.client.delete(kinds.PODGROUPS, "a", world.namespace)
    await world.becomes(kinds.QUEUES, team, lambda queue: queue.status.state == "Closed")
    await world.patch(kinds.QUEUES, team, {"spec": {"desiredState": "Open"}})
    await world.becomes(kinds.QUEUES, team, lambda queue: queue.status.state == "Open")


async def test_a_deleted_queue_takes_its_content_along(world):
    await world.node("4")
    await world.work()
    team = world.plane.unique("team")
    waits = {names.SUSPENDED: "true", names.QUEUE_NAME_KEYS[0]: team, names.GROUP_MIN_MEMBER: "9"}
    await world.create(queue(team), job("of-team", 9, suspend=True, annotations=waits), job("other", 1, suspend=True))
    await world.becomes(kinds.QUEUES, team, lambda queue: queue.status.pending == 1)
    await world.client.delete(kinds.QUEUES, team)
    await world.plane.until(kinds.QUEUES, team, holds=lambda found: found is None)
    with pytest.raises(errors.NotFoundError):
        await world.job("of-team")
    assert (await world.job("other")).name == "other"


async def test_a_group_applied_before_its_job_is_judged_by_what_the_job_needs(world):
    await world.node("4")
    await world.work()
    await world.create(group("train", minMember=6))
    # So long that the group, which seems to need nothing, was let in.
    await world.phase("train", "Inqueue")
    late = job("train", 6, suspend=True, annotations={names.SUSPENDED: "true"})
    late["spec"]["template"]["metadata"] = {"annotations": {names.GROUP_NAME: "train"}}
    await world.create(late)
    await world.becomes(
        kinds.PODGROUPS,
        "train",
        lambda found: (
            found.status.phase == "Pending"
            and found.status.conditions
            and found.status.conditions[0].message.endswith("short by 2 cpu")
        ),
    )
    assert (await world.job("train")).spec.suspend
    assert await world.pods() == []
