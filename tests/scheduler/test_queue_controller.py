"""Counters and states of queues, circles of parents, deletion, and the queues of kube-batch's groups."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.cli.installation import cleanup
from muster.kube import errors
from muster.model import kinds, names
from muster.model.objects import (
    Condition,
    Job,
    JobSpec,
    JobStatus,
    Meta,
    Object,
    OwnerReference,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    Queue,
)
from scheduler.controllers import queues
from scheduler.controllers.queues import QueueContent
from scheduler.state.informers import Informers


def queue(name: str, kind: Any = kinds.QUEUES, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def group(name: str, owner: Any = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "ownerReferences": [owner] if owner else []}
    return {"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup", "metadata": meta, "spec": spec}


def a_group(phase: str, owner: tuple[str, str] | None = None, name: str = "g", *, ran: bool = False) -> PodGroup:
    owners = (
        (OwnerReference(api_version=owner[0], kind=owner[1], name="o", uid="u", controller=True),) if owner else None
    )
    conditions = (Condition(type="Scheduled", status="False"),) if ran else ()
    status = PodGroupStatus(phase=phase, conditions=conditions)
    return PodGroup(metadata=Meta(name=name, owner_references=owners), status=status)


def a_job(condition: str = "", *, suspended: bool = False) -> Job:
    conditions = (Condition(type=condition, status="True"),) if condition else ()
    return Job(spec=JobSpec(suspend=suspended), status=JobStatus(conditions=conditions))


# ── on values ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_counter_counts_what_the_design_says():
    deleted = a_group("Pending", ran=True), ()
    groups = (
        (a_group(""), ()),
        (a_group("Pending"), ()),
        (a_group("Inqueue"), ()),
        (a_group("Running"), ()),
        (a_group("Running"), (a_job(suspended=True),)),
        (a_group("Pending"), (a_job(suspended=True),)),
        (a_group("Pending", ran=True), (a_job(suspended=True),)),
        (a_group("Completed"), (a_job("Failed"),)),
        (a_group("Unknown"), ()),
        (a_group("Running", ("spark.example.com/v1", "SparkApplication")), ()),
        (a_group("Unknown", ("spark.example.com/v1", "SparkApplication")), ()),
        (a_group("Pending", ("batch/v1", "Job")), ()),
        (a_group("Pending", ("ray.io/v1", "RayCluster"), "podgroup-u"), ()),
        (a_group("Running", ran=True), (a_job("Failed"), a_job())),
        deleted,
        (a_group("Completed", ran=True), ()),
    )
    found = queues.status(Queue(metadata=Meta(name="q")), QueueContent(groups))
    assert (found.total, found.pending, found.inqueue, found.running, found.completed) == (16, 5, 1, 2, 1)
    assert (found.unknown, found.failed, found.aborted) == (3, 1, 3)
    counters = ("unknown", "pending", "inqueue", "running", "completed", "failed", "aborted")
    assert found.total == sum(getattr(found, name) for name in counters), "each group counts once"


parents = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["", *"abcdef"]))


@given(parents, st.sampled_from("abcdef"))
def test_a_circle_is_found_from_each_queue_on_it_and_from_no_other(tree, name):
    found = queues.circle(name, lambda each: tree.get(each, ""))
    above = [tree.get(name, "")]
    while above[-1] and len(above) < 10:
        above.append(tree.get(above[-1], ""))
    assert bool(found) == (name in above)
    for each in found:
        assert set(queues.circle(each, lambda one: tree.get(one, ""))) == set(found)


PHASES = ("", "Pending", "Inqueue", "Running", "Unknown", "Completed")
steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("qr"), st.sampled_from([*PHASES, "gone"])), max_size=12
)


@given(steps, st.randoms(use_true_random=False))
def test_counts_are_right_after_any_order_of_events(history, random):
    """Of each object the last state counts, whatever came between, and however events of others are mixed in."""
    last = {name: (queue_name, phase) for name, queue_name, phase in history}
    mixed = sorted(range(len(history)), key=lambda _: random.random())
    per_object = {name: iter([step for step in history if step[0] == name]) for name, _, _ in history}
    informers = Informers(legacy_apis=False)
    cache = informers.groups[kinds.PODGROUPS]
    for version, place in enumerate(mixed, start=1):
        name, queue_name, phase = next(per_object[history[place][0]])
        meta = Meta(name=name, namespace="ns", uid=name, resource_version=str(version))
        if phase == "gone":
            cache.drop(Object(metadata=meta))
        else:
            spec = PodGroupSpec(queue=queue_name)
            cache.put(PodGroup(metadata=meta, spec=spec, status=PodGroupStatus(phase=phase)))
    for queue_name in "qr":
        held = [phase or "Pending" for where, phase in last.values() if where == queue_name and phase != "gone"]
        content = QueueContent(tuple((each, ()) for _, each in informers.groups_of(queue_name)))
        found = queues.status(Queue(metadata=Meta(name=queue_name)), content)
        counts = {phase: getattr(found, phase.lower()) for phase in PHASES if phase}
        assert counts == {phase: held.count(phase) for phase in PHASES if phase}
        assert found.total == len(held)


# ── on a control plane ───────────────────────────────────────────────────────────────────────────────────────────


def job(name: str, team: str, **annotations: str) -> dict[str, Any]:
    """A Job as admission would have it, whose pod runs until told otherwise."""
    held = {names.SUSPENDED: "true", names.QUEUE_NAME_KEYS[0]: team}
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    pod = {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never", "containers": [container]}
    pod["terminationGracePeriodSeconds"] = 0
    template = {"metadata": {"annotations": {"sandbox.muster.sh/run-seconds": "100000"} | annotations}, "spec": pod}
    spec = {"suspend": True, "backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": held}, "spec": spec}


async def test_a_queue_counts_its_groups_by_what_became_of_them(world):
    await world.node("8")
    await world.work()
    team, at_once = world.plane.unique("team"), {"sandbox.muster.sh/run-seconds": "0"}
    await world.create(queue(team), job("runs", team), job("stopped", team), job("ends", team, **at_once))
    await world.create(job("fails", team, **at_once, **{"sandbox.muster.sh/exit-code": "1"}))
    await world.create(group("comes", queue=team, minMember=1, minResources={"cpu": "1"}))
    await world.create(group("waits", queue=team, minMember=1, minResources={"cpu": "99"}))
    await world.becomes(kinds.QUEUES, team, lambda one: one.status.completed == one.status.failed == 1)
    stopped = await world.job("stopped")
    await world.phase(f"podgroup-{stopped.metadata.uid}", "Running")
    await world.patch(kinds.JOBS, "stopped", {"spec": {"suspend": True}})

    counts = {"total": 6, "pending": 1, "inqueue": 1, "running": 1, "completed": 1, "failed": 1, "aborted": 1}

    def counted(one: Any) -> bool:
        return {name: getattr(one.status, name) for name in counts} == counts

    found = await world.becomes(kinds.QUEUES, team, counted)
    assert found.status.unknown == 0
    # Its pods are gone, so that it holds nothing and would have to start anew.
    group_of_it = await world.phase(f"podgroup-{stopped.metadata.uid}", "Pending")
    assert counted(await world.client.get(kinds.QUEUES, team))
    said = {each.type: each.message for each in group_of_it.status.conditions}
    assert "is suspended by its user" in said["Unschedulable"]


async def test_counts_are_right_whatever_comes_goes_moves_and_comes_back_at_once(world):
    await world.work()
    one, other = world.plane.unique("one"), world.plane.unique("other")
    await world.create(queue(one), queue(other))
    need = {"minMember": 1, "minResources": {"cpu": "1"}}

    async def live(number: int) -> None:
        name = f"g-{number}"
        await world.create(group(name, queue=one, **need))
        if number % 4 == 1:
            await world.patch(kinds.PODGROUPS, name, {"spec": {"queue": other}})
        if number % 4 > 1:
            await world.client.delete(kinds.PODGROUPS, name, world.namespace)
        if number % 4 == 3:
            await world.create(group(name, queue=other if number % 3 else one, **need))

    await asyncio.gather(*(live(number) for number in range(24)))

    async def counted(counts: dict[str, int]) -> None:
        for name, count in counts.items():
            await world.becomes(
                kinds.QUEUES, name, lambda found, count=count: found.status.total == found.status.pending == count
            )

    await counted({one: 8, other: 10})
    await asyncio.gather(
        world.client.delete(kinds.PODGROUPS, "g-0", world.namespace),
        world.client.delete(kinds.PODGROUPS, "g-4", world.namespace),
        world.patch(kinds.PODGROUPS, "g-1", {"spec": {"queue": one}}),
    )
    await counted({one: 7, other: 9})


async def test_a_deleted_job_of_a_users_group_counts_as_aborted_until_the_group_starts_again(world):
    await world.node("8")
    await world.work()
    team = world.plane.unique("team")
    await world.create(queue(team), group("mine", queue=team, minMember=1, minResources={"cpu": "1"}))
    named = {names.GROUP_NAME: "mine"}
    await world.create(job("first", team, **named))
    await world.becomes(kinds.QUEUES, team, lambda one: one.status.running == 1)
    await world.client.delete(kinds.JOBS, "first", world.namespace, propagation="Background")
    gone = await world.becomes(kinds.QUEUES, team, lambda one: one.status.aborted == 1)
    assert (gone.status.total, gone.status.running) == (1, 0)
    await world.phase("mine", "Pending")
    await world.plane.all(kinds.PODS, world.namespace, holds=lambda pods: not pods)
    assert (await world.client.get(kinds.QUEUES, team)).status.aborted == 1
    await world.create(job("second", team, **named))
    again = await world.becomes(kinds.QUEUES, team, lambda one: one.status.running == 1)
    assert (again.status.total, again.status.aborted) == (1, 0)


async def test_a_foreign_controllers_group_counts_as_unknown_only(world):
    await world.work()
    team = world.plane.unique("team")
    made = await world.client.create(kinds.CONFIGMAPS, {"metadata": {"name": "app"}}, world.namespace)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "app", "uid": made.metadata.uid, "controller": True}
    await world.create(queue(team), group("theirs", owner, queue=team, minResources={"cpu": "9"}, minMember=1))
    await world.becomes(kinds.QUEUES, team, lambda one: (one.status.pending, one.status.unknown) == (0, 1))
    assert (await world.client.get(kinds.QUEUES, team)).status.total == 1


async def test_a_circle_of_parents_is_shown_and_harmless(world):
    await world.node("4")
    await world.work()
    first, second = (world.plane.unique(name) for name in ("first", "second"))
    await world.create(queue(first), queue(second, parent=first))
    # Two edits at once, each of them fine by what the other's admission saw.
    await world.patch(kinds.QUEUES, first, {"spec": {"parent": second}})
    for name in (first, second):
        shown = await world.becomes(kinds.QUEUES, name, lambda one: one.status.state == "Unknown")
        assert f"{second} -> {first}" in shown.status.message or f"{first} -> {second}" in shown.status.message
    await world.create(group("g", queue=second, minMember=1))
    template = {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main", "image": "busybox"}]}
    meta = {"name": "p", "annotations": {names.GROUP_NAME: "g"}}
    await world.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template})
    await world.phase("g", "Running")
    await world.patch(kinds.QUEUES, first, {"spec": {"parent": None}})
    for name in (first, second):
        back = await world.becomes(kinds.QUEUES, name, lambda one: one.status.state == "Open")
        assert not back.status.message


async def test_a_closing_queue_can_be_edited_and_opened_again(world):
    await world.work()
    team = world.plane.unique("team")
    await world.create(queue(team), group("g", queue=team, minMember=1, minResources={"cpu": "9"}))
    await world.becomes(kinds.QUEUES, team, lambda one: one.status.pending == 1)
    await world.patch(kinds.QUEUES, team, {"spec": {"desiredState": "Closed"}})
    await world.becomes(kinds.QUEUES, team, lambda one: one.status.state == "Closing")
    edited = await world.patch(kinds.QUEUES, team, {"spec": {"weight": 7}})
    assert (edited.spec.weight, edited.status.state) == (7, "Closing")
    await world.patch(kinds.QUEUES, team, {"spec": {"desiredState": "Open"}})
    await world.becomes(kinds.QUEUES, team, lambda one: one.status.state == "Open")


async def test_what_a_queue_of_the_same_name_held_is_not_forgotten(world):
    await world.work()
    team = world.plane.unique("team")
    await world.create(queue(team), group("g", queue=team, minMember=1, minResources={"cpu": "9"}))
    before = await world.becomes(kinds.QUEUES, team, lambda one: one.status.pending == 1)
    # So no finalizer held it: Muster was being taken away, say.
    await world.stop()
    await world.patch(kinds.QUEUES, team, {"metadata": {"finalizers": None}})
    await world.client.delete(kinds.QUEUES, team)
    await world.work()
    await world.create(queue(team))
    after = await world.becomes(kinds.QUEUES, team, lambda one: one.status.pending == 1)
    assert after.metadata.uid != before.metadata.uid


async def test_a_queue_that_is_deleted_leaves_the_jobs_of_other_schedulers(world):
    await world.work()
    team = world.plane.unique("team")
    await world.create(queue(team))
    await world.becomes(kinds.QUEUES, team, lambda one: one.metadata.finalizers)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    meta = {"name": "foreign", "annotations": {names.QUEUE_NAME_KEYS[0]: team}}
    await world.create({"kind": "Job", "metadata": meta, "spec": {"suspend": True, "template": template}})
    await world.client.delete(kinds.QUEUES, team)
    await world.plane.until(kinds.QUEUES, team, holds=lambda found: found is None)
    assert (await world.job("foreign")).name == "foreign"


async def test_legacy_queues_are_queues_and_one_of_a_primary_ones_name_is_its_alias(world):
    await world.plane.legacy_apis()
    await world.node("4")
    await world.work(legacy_apis=True)
    for legacy in kinds.LEGACY_QUEUES:
        team = world.plane.unique("team")
        await world.plane.create(legacy, queue(team, legacy, weight=2, capability={"cpu": "1"}))
        await world.create(group(f"in-{team}", queue=team, minMember=1, minResources={"cpu": "2"}))
        held = await world.becomes(legacy, team, lambda one: one.status.pending == 1)
        assert names.QUEUE_FINALIZER in held.metadata.finalizers
        # The group may have been seen before its queue was.
        await world.becomes(
            kinds.PODGROUPS,
            f"in-{team}",
            lambda one: one.status.phase == "Pending" and "capability" in one.status.conditions[0].message,
        )

        # A primary queue of that name: from then on its spec holds, and the legacy one shows its counts.
        await world.create(queue(team))
        await world.phase(f"in-{team}", "Inqueue")
        await world.becomes(kinds.QUEUES, team, lambda one: one.status.inqueue == 1)
        alias = await world.becomes(legacy, team, lambda one: one.status.inqueue == 1 and not one.metadata.finalizers)
        await world.client.delete(legacy, alias.name)
        assert (await world.group(f"in-{team}")).status.phase == "Inqueue"


async def test_the_default_queue_of_kube_batchs_groups_is_made_where_they_are_served(world):
    await world.plane.legacy_apis()
    await world.work(legacy_apis=True)
    for legacy in kinds.LEGACY_QUEUES:
        made = await world.becomes(legacy, names.DEFAULT_QUEUE, lambda one: one.status.state == "Open")
        assert not made.metadata.finalizers
        await world.client.delete(legacy, names.DEFAULT_QUEUE)
        await world.plane.until(
            legacy,
            names.DEFAULT_QUEUE,
            holds=lambda one, made=made: one is not None and one.metadata.uid != made.metadata.uid,
        )


@pytest.mark.only("sandbox", reason="waits for a minute in which webhooks can't be reached: in virtual time")
async def test_the_default_queue_is_there_seconds_after_webhooks_can_be_reached(world):
    service = {"namespace": "nowhere", "name": "nobody", "path": "/"}
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["queues"]}
    hook = {
        "name": "queues.example.com",
        "clientConfig": {"service": service, "caBundle": ""},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    made = await world.plane.create(kinds.VALIDATING, {"metadata": {"name": "not-yet"}, "webhooks": [hook]})
    await world.work()
    await asyncio.sleep(100)
    with pytest.raises(errors.NotFoundError):
        await world.client.get(kinds.QUEUES, names.DEFAULT_QUEUE)
    await world.client.delete(kinds.VALIDATING, made.name)
    await world.becomes(kinds.QUEUES, names.DEFAULT_QUEUE, lambda one: one.status.state == "Open", within=2)


async def test_uninstalling_lets_go_of_the_queues_of_all_groups(world):
    await world.plane.legacy_apis()
    await world.work(legacy_apis=True)
    mine, legacy = world.plane.unique("team"), kinds.LEGACY_QUEUES[1]
    await world.create(queue(mine))
    await world.plane.create(legacy, queue("old", legacy))
    for kind, name in ((kinds.QUEUES, mine), (legacy, "old")):
        await world.becomes(kind, name, lambda one: one.metadata.finalizers)
    await world.stop()
    await cleanup.release_queues(world.client)
    for kind, name in ((kinds.QUEUES, mine), (legacy, "old")):
        assert not (await world.client.get(kind, name)).metadata.finalizers


async def test_deleting_a_legacy_queue_deletes_what_is_in_it(world):
    await world.plane.legacy_apis()
    await world.work(legacy_apis=True)
    legacy, theirs = kinds.LEGACY_QUEUES[0], kinds.LEGACY_PODGROUPS[0]
    await world.plane.create(legacy, queue("old", legacy))
    await world.becomes(legacy, "old", lambda one: one.metadata.finalizers)
    await world.client.create(theirs, {"metadata": {"name": "g"}, "spec": {"queue": "old"}}, world.namespace)
    await world.becomes(legacy, "old", lambda one: one.status.total == 1)
    await world.client.delete(legacy, "old")
    await world.plane.until(legacy, "old", holds=lambda found: found is None)
    with pytest.raises(errors.NotFoundError):
        await world.client.get(theirs, "g", world.namespace)
