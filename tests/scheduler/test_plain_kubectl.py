"""What kubectl alone tells of a workload: events of one reason each, the owner in the table, and how long it took."""

from __future__ import annotations

import re
from datetime import timedelta

import msgspec
from operated import PYTORCHJOBS, operator, pod_of, pytorchjob
from workloads import deployment, group, job, unschedulable

from muster.kube.transport import Request
from muster.model import kinds, names

OURS = {"component": names.SCHEDULER_NAME}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def events(world, name, kind):
    """Return the events about an object: reason and message, the first one first."""
    answer = await world.client.send(Request("GET", kinds.EVENTS.path(world.namespace)))
    found = [each for each in msgspec.json.decode(answer.body)["items"] if each["source"] == OURS]
    about = [each for each in found if (each["involvedObject"]["name"], each["involvedObject"]["kind"]) == (name, kind)]
    return [(each["reason"], each["message"]) for each in sorted(about, key=lambda each: each["firstTimestamp"])]


async def told(world, name, kind, *reasons):
    """Wait until there are events of these reasons about an object; give their messages."""

    async def found():
        by_reason = dict(await events(world, name, kind))
        return [by_reason[each] for each in reasons] if by_reason.keys() >= set(reasons) else None

    return await world.until(found)


async def test_a_job_that_starts_has_two_events_and_its_pods_one_each(world):
    await world.node("5")
    await world.work()
    await world.create(job("train", 2))
    assert await told(world, "train", "Job", "PodGroupCreated", "Started") == [
        "Its PodGroup is in queue default and needs 2 pods to start",
        "Its minimum of 2 pods is running in queue default",
    ]
    assert sorted(reason for reason, _ in await events(world, "train", "Job")) == ["PodGroupCreated", "Started"]
    for pod in await world.pods():
        await told(world, pod.name, "Pod", "Scheduled")
        assert await events(world, pod.name, "Pod") == [
            ("Scheduled", f"Successfully assigned {world.namespace}/{pod.name} to {pod.spec.node_name}")
        ]


async def test_a_job_that_waits_says_what_it_lacks_once_and_names_its_group(world):
    await world.node("5")
    await world.work()
    await world.create(job("large", 9))
    (sentence,) = await told(world, "large", "Job", "Held")
    assert re.fullmatch(
        r"Waits in queue default: 9 pods need 9 cpu; [0-9]+ cpu are free in the cluster: short by [1-9] cpu", sentence
    )
    noted = await world.becomes(kinds.JOBS, "large", lambda one: one.metadata.annotation(names.JOB_GROUP))
    found = await world.group(noted.metadata.annotation(names.JOB_GROUP))
    assert found.metadata.annotation(names.OWNER) == "Job large"
    await world.rest(30)
    assert sorted(reason for reason, _ in await events(world, "large", "Job")) == ["Held", "PodGroupCreated"]


async def owner_column(world):
    """Return the column OWNER of the table of PodGroups, by name."""
    answer = await world.client.send(Request("GET", kinds.PODGROUPS.path(world.namespace), accept=TABLE))
    table = msgspec.json.decode(answer.body)
    place = [each["name"] for each in table["columnDefinitions"]].index("Owner")
    return {row["cells"][0]: row["cells"][place] for row in table["rows"]}


async def test_a_stateful_set_is_told_of_like_a_job_and_is_not_written_to(world):
    await world.node("1")
    await world.work()
    spec = deployment("db", 2)["spec"]
    del spec["strategy"]
    stateful = {**spec, "serviceName": "db", "podManagementPolicy": "Parallel"}
    made = await world.client.create(
        kinds.STATEFULSETS, {"metadata": {"name": "db"}, "spec": stateful}, world.namespace
    )
    created, held = await told(world, "db", "StatefulSet", "PodGroupCreated", "Held")
    assert created == "Its PodGroup is in queue default and needs 2 pods to start"
    assert held.startswith("Waits in queue default: 2 pods need 2 cpu; ")
    await world.node("1")
    await told(world, "db", "StatefulSet", "Started")
    assert (await owner_column(world))[f"podgroup-{made.metadata.uid}"] == "StatefulSet db"
    now = await world.client.get(kinds.STATEFULSETS, "db", world.namespace)
    assert now.metadata.annotation(names.JOB_GROUP) == ""


async def test_an_operators_object_is_told_of_like_a_job_and_is_not_written_to(world):
    await world.node("2")
    await operator(world, PYTORCHJOBS)
    await world.work()
    made = await world.client.create(PYTORCHJOBS, pytorchjob("train", 1), world.namespace)
    for role, cpu in (("master-0", "2"), ("worker-0", "1")):
        await world.client.create(kinds.PODS, pod_of(made, PYTORCHJOBS, f"train-{role}", cpu), world.namespace)
    created, held = await told(world, "train", "PyTorchJob", "PodGroupCreated", "Held")
    assert created == "Its PodGroup is in queue default and needs 2 pods to start"
    assert held.startswith("Waits in queue default: 2 pods need 3 cpu; ")
    await world.node("2")
    await told(world, "train", "PyTorchJob", "Started")
    assert (await owner_column(world))[f"podgroup-{made.metadata.uid}"] == "PyTorchJob train"
    now = await world.client.get(PYTORCHJOBS, "train", world.namespace)
    assert now.metadata.annotation(names.JOB_GROUP) == ""


async def test_pods_that_wait_say_the_sentence_of_their_group_and_not_once_a_cycle(world):
    node = await world.node("1")
    await world.work()
    await world.create(deployment("web", 3))
    pods = await world.plane.all(kinds.PODS, world.namespace, holds=lambda pods: len(pods) == 3)
    for pod in pods:
        await told(world, pod.name, "Pod", "FailedScheduling")
    await world.rest(30)
    for pod in pods:
        failed = [text for reason, text in await events(world, pod.name, "Pod") if reason == "FailedScheduling"]
        assert failed[-1] == "Deployment web: 3 pods need 3 cpu; 1 cpu is free in the cluster: short by 2 cpu"
        assert len(failed) == len(set(failed)) <= 2  # The first may say that not all of its pods exist.
    await told(world, "web", "Deployment", "PodGroupCreated", "Held")
    assert await world.node("2") != node
    await told(world, "web", "Deployment", "Started")
    for pod in pods:
        await told(world, pod.name, "Pod", "Scheduled")


async def test_the_condition_of_a_pod_that_lacks_a_node_says_since_when_and_names_the_workload(world):
    await world.node("2")
    await world.work()
    await world.create(group("g", minMember=1))
    await world.create(deployment("web", 1, "2"))
    await world.plane.all(
        kinds.PODS, world.namespace, holds=lambda pods: len(pods) == 1 and bool(pods[0].spec.node_name)
    )
    await world.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 2}})

    def waits(pods):
        return next((each for each in pods if unschedulable(each)), None)

    found = waits(await world.plane.all(kinds.PODS, world.namespace, holds=waits))
    (condition,) = [each for each in found.status.conditions if each.type == "PodScheduled"]
    assert condition.message.startswith("Deployment web: ")
    assert condition.last_transition_time is not None
    assert condition.last_transition_time >= found.metadata.creation_timestamp


async def test_the_table_of_podgroups_has_the_owner_of_each(world):
    await world.node("4")
    await world.work()
    await world.create(job("train", 2), group("mine", minMember=1))
    made = await world.job("train")
    await world.phase(f"podgroup-{made.metadata.uid}", "Running")
    shown = await owner_column(world)
    assert shown[f"podgroup-{made.metadata.uid}"] == "Job train"
    assert shown["mine"] in {None, ""}


async def test_each_phase_says_how_long_the_one_before_took_and_a_new_leader_knows_it_too(world):
    await world.node("4")
    await world.work()
    await world.create(job("train", 2, seconds=12))
    name = f"podgroup-{(await world.job('train')).metadata.uid}"
    running = await world.phase(name, "Running")
    since = running.status.last_phase_transition_time
    assert since >= running.metadata.creation_timestamp
    (started,) = await told(world, name, "PodGroup", "Running")
    assert re.fullmatch(r"Its minimum of pods is running; was (Inqueue|Pending) for [0-9]+s", started)
    await world.stop()
    await world.work()
    assert (await world.group(name)).status.last_phase_transition_time == since
    done = await world.phase(name, "Completed")
    assert done.status.last_phase_transition_time - since >= timedelta(seconds=8)
    (over,) = await told(world, name, "PodGroup", "Completed")
    lasted = re.fullmatch(r"Its pods have ended; was Running for ([0-9]+)s", over)
    assert int(lasted[1]) >= 8


async def test_a_job_copied_with_the_note_of_another_gets_a_group_of_its_own(world):
    await world.node("4")
    await world.work()
    await world.create(job("first", 2))
    noted = await world.becomes(kinds.JOBS, "first", lambda one: one.metadata.annotation(names.JOB_GROUP))
    await world.create(job("second", 2, **{names.JOB_GROUP: noted.metadata.annotation(names.JOB_GROUP)}))
    own = f"podgroup-{(await world.job('second')).metadata.uid}"
    await world.phase(own, "Running")
    await world.becomes(kinds.JOBS, "second", lambda one: one.metadata.annotation(names.JOB_GROUP) == own)


# ── pods that can't start, and Jobs that failed for good; a kubelet's words, as the test writes them ─────────────────────


def container(state, image="registry.example/nothing:1"):
    return {
        "name": "main",
        "image": image,
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


async def tell(world, pod, state, phase):
    change = {"status": {"phase": phase, "containerStatuses": [container(state)]}}
    await world.patch(kinds.PODS, pod.name, change, subresource="status")


def failing(group):
    return next(
        (each for each in group.status.conditions or () if (each.type, each.status) == ("Failing", "True")), None
    )


async def only_group(world):
    (found,) = (await world.client.list(kinds.PODGROUPS, world.namespace)).items
    return found


async def test_a_gang_that_cannot_pull_its_image_says_so_in_the_table_and_by_an_event(world):
    await world.node("5")
    await world.work()
    await world.create(deployment("web", 2))
    group = await world.until(lambda: _running(world))
    first, _ = await world.pods()
    await tell(world, first, {"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}, "Running")
    words = "1 of 2 pods can't pull image registry.example/nothing:1: ErrImagePull"
    told_of = await world.becomes(kinds.PODGROUPS, group.name, failing)
    assert (failing(told_of).reason, failing(told_of).message) == ("PodsNotStarting", words)
    assert await told(world, group.name, "PodGroup", "PodsNotStarting") == [words]
    answer = await world.client.send(Request("GET", kinds.PODGROUPS.path(world.namespace), accept=TABLE))
    table = msgspec.json.decode(answer.body)
    at = [each["name"] for each in table["columnDefinitions"]].index("Reason")
    assert [row["cells"][at] for row in table["rows"]] == ["PodsNotStarting"]
    await tell(world, first, {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "Running")
    await world.becomes(kinds.PODGROUPS, group.name, lambda found: not failing(found))


async def _running(world):
    found = (await world.client.list(kinds.PODGROUPS, world.namespace)).items
    return found[0] if found and found[0].status.phase == "Running" else None


async def test_a_job_that_failed_for_good_leaves_its_word_on_the_completed_group(world):
    await world.node("5")
    await world.work()
    made = job("train", 2)
    made["spec"]["backoffLimit"] = 0
    await world.create(made)
    group = await world.until(lambda: _running(world))
    for each in await world.pods():
        await tell(world, each, {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "Failed")
    completed = await world.phase(group.name, "Completed")
    assert failing(completed).message.startswith("Job train failed: ")
    assert "exit code 137 (OOMKilled)" in failing(completed).message
    assert failing(completed).reason == "PodsFailed"
    assert (await told(world, group.name, "PodGroup", "PodsFailed"))[0].startswith("Job train failed: ")
