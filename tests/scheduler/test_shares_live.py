"""Shares, where programs run: workers on an API server, the configuration that ships, groups that wait for a full cluster."""

from __future__ import annotations

import pytest
from workloads import deployment, job, said

from muster.model import kinds, names
from scheduler.configuration import config

CAPACITY = config.DEFAULT.replace("proportion", "capacity")
AT_ONCE = "configurations: [{name: reclaim, arguments: {leastRunTime: 1s}}]\n"
"""Takes back from pods that have just begun, too, so that nobody here waits for a minute."""
QUEUE = names.QUEUE_NAME_KEYS[0]


def queue(name, **spec):
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def group(name, in_queue="default", minimum=1):
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": minimum, "queue": in_queue},
    }


def pods(group_name, count, cpu="1", **spec):
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{group_name}-{number}",
                "annotations": {"scheduling.k8s.io/group-name": group_name},
            },
            "spec": {
                "schedulerName": "muster",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
                **spec,
            },
        }
        for number in range(count)
    ]


@pytest.fixture
async def full(world):
    """A cluster of 4 cpu that one pod uses; ``leave`` has it go."""

    async def leave():
        await world.client.delete(kinds.PODS, "before-0", world.namespace)

    world.leave = leave
    await world.node("4")
    await world.create(group("before"), *pods("before", 1, "4"))
    await world.work(config.DEFAULT)
    await world.phase("before", "Running")
    return world


async def wait_in_line(world, *names):
    """See groups wait: they are Pending, and none of their pods has a node."""
    for name in names:
        await world.becomes(
            kinds.PODGROUPS, name, lambda found: found.status.phase == "Pending" and found.status.conditions
        )
    assert [pod.metadata.name for pod in await world.pods() if pod.spec.node_name] == ["before-0"]


async def have_nodes(world):
    """Count the pods that have nodes, by group."""
    counts = {}
    for pod in await world.pods():
        if pod.spec.node_name and pod.metadata.deletion_timestamp is None:
            name = pod.metadata.annotations["scheduling.k8s.io/group-name"]
            counts[name] = counts.get(name, 0) + 1
    return counts


async def told_of_losses(world, reason, count):
    """Whether PodGroups have events of that reason that count as many evicted pods."""
    events = (await world.client.list(kinds.EVENTS, world.namespace)).items
    told = [each.message for each in events if each.reason == reason and each.involved_object["kind"] == "PodGroup"]
    lost = [message.rpartition(": ")[2].split() for message in told]
    return sum(1 if words[0] == "pod" else int(words[0]) for words in lost) == count


async def comes_to(world, **counts):
    async def so():
        return await have_nodes(world) == counts

    await world.until(so)


async def test_of_two_jobs_that_each_ask_for_more_than_a_share_one_is_backfilled_beside_a_hopeless_pod(full):
    await full.create(queue("one"), queue("two"), queue("three"))
    await full.create(group("first", "one"), *pods("first", 1, "3"))
    await full.create(group("second", "two"), *pods("second", 1, "3"))
    await full.create(group("hopeless", "three"), *pods("hopeless", 1, "100m", nodeSelector={"no": "node"}))
    await wait_in_line(full, "first", "second", "hopeless")
    await full.leave()
    await full.phase("first", "Running")
    assert await have_nodes(full) == {"first": 1}


FLAGGED = config.DEFAULT.replace("- name: gang", "- name: gang\n    enableJobOrder: true")
TIERLESS = config.DEFAULT.partition("tiers:")[0]


@pytest.mark.parametrize("policy", [FLAGGED, TIERLESS], ids=["a flag that is true", "no tiers"])
async def test_no_gang_starts_in_part_under_a_file_that_turns_nothing_off(full, policy):
    full.worker.adopt(config.parse(policy))
    await full.create(group("six", minimum=6), *pods("six", 6))
    await wait_in_line(full, "six")
    await full.leave()
    words = "6 pods need 6 cpu; 4 cpu are free in the cluster: short by 2 cpu"
    await full.becomes(kinds.PODGROUPS, "six", lambda found: said(found) == words)
    await full.create(group("four", minimum=4), *pods("four", 4))
    await full.phase("four", "Running")
    assert await have_nodes(full) == {"four": 4}


async def test_queues_divide_what_gets_free_by_their_weights(full):
    await full.create(queue("research", weight=3), queue("reports", weight=1))
    await full.create(group("training", "research"), *pods("training", 6))
    await full.create(group("printing", "reports"), *pods("printing", 6))
    await wait_in_line(full, "training", "printing")
    await full.leave()
    await comes_to(full, training=3, printing=1)


async def test_departments_keep_to_their_capability_and_queues_to_what_is_guaranteed_to_others(full):
    full.worker.adopt(config.parse(CAPACITY))
    await full.create(queue("red", capability={"cpu": "3"}), queue("blue", guarantee={"resource": {"cpu": "1"}}))
    await full.create(queue("red1", parent="red"), queue("red2", parent="red"), queue("blue1", parent="blue"))
    await full.create(group("one", "red1"), *pods("one", 4), group("two", "red2"), *pods("two", 4))
    await wait_in_line(full, "one", "two")
    await full.leave()

    async def capped():
        return sum((await have_nodes(full)).values()) == 3

    await full.until(capped)
    await full.create(group("other", "blue1"), *pods("other", 1))
    await full.phase("other", "Running")
    counts = await have_nodes(full)
    assert (counts.pop("other"), sum(counts.values())) == (1, 3)


async def test_a_queue_that_takes_one_group_at_a_time_starts_one_without_enqueue(world):
    await world.node("4")
    await world.create(queue("few", maxPodGroups=1))
    await world.work(config.DEFAULT.replace("enqueue, ", ""))
    await world.create(group("first", "few"), *pods("first", 1))
    await world.phase("first", "Running")
    await world.create(group("second", "few"), *pods("second", 1))
    words = "queue few has 1 unfinished PodGroup past Pending and its maxPodGroups is 1: wait until one ends, or raise maxPodGroups"
    await world.becomes(kinds.PODGROUPS, "second", lambda found: said(found) == words)
    assert await have_nodes(world) == {"first": 1}
    await world.client.delete(kinds.PODGROUPS, "first", world.namespace)
    await world.client.delete(kinds.PODS, "first-0", world.namespace)
    await world.phase("second", "Running")


def single(name, in_queue):
    """A Deployment of one pod: its group has a minimum of one."""
    made = deployment(name, 1)
    made["spec"]["template"]["metadata"]["annotations"][QUEUE] = in_queue
    return made


async def run(world, *wanted):
    """Whether as many pods run as are wanted of each name that pods begin with."""
    running = [pod.name for pod in await world.pods() if pod.status.phase == "Running"]
    return all(sum(name.startswith(begins) for name in running) >= count for begins, count in wanted)


async def test_what_groups_of_one_borrowed_goes_back_to_the_queue_that_it_is_due(world):
    await world.node("4")
    await world.create(queue("lends"), queue("due"))
    await world.work(config.DEFAULT + AT_ONCE)
    await world.create(*[single(f"single{number}", "lends") for number in range(4)])
    await world.until(lambda: run(world, ("single", 4)))
    await world.create(job("training", 2, **{QUEUE: "due"}))
    await world.until(lambda: run(world, ("training", 2), ("single", 2)), within=180)
    await world.until(lambda: told_of_losses(world, "Reclaimed", 2))


async def test_a_department_takes_from_its_own_first_and_leaves_others_what_they_deserve(world):
    await world.node("6")
    await world.create(queue("red", deserved={"cpu": "3"}), queue("blue", deserved={"cpu": "3"}))
    await world.create(queue("red1", parent="red"), queue("red2", parent="red", deserved={"cpu": "2"}))
    await world.create(queue("blue1", parent="blue", deserved={"cpu": "2"}))
    await world.work(CAPACITY + AT_ONCE)
    await world.create(*[single(f"own{number}", "red1") for number in range(3)])
    await world.create(*[single(f"other{number}", "blue1") for number in range(3)])
    await world.until(lambda: run(world, ("own", 3), ("other", 3)))
    await world.create(job("training", 2, **{QUEUE: "red2"}))
    await world.until(lambda: run(world, ("training", 2), ("own", 1), ("other", 3)), within=180)


PREEMPTING = config.DEFAULT.replace("allocate, reclaim", "allocate, preempt, reclaim")


@pytest.mark.parametrize("minimum", [3, 1])
async def test_a_deployment_of_high_priority_preempts_for_its_minimum_on_a_full_cluster(world, minimum):
    await world.node("4")
    await world.create({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000})
    await world.work(PREEMPTING)
    below = deployment("below", 4)
    below["spec"]["template"]["metadata"]["annotations"][names.GROUP_MIN_MEMBER] = "1"
    await world.create(below)
    await world.until(lambda: run(world, ("below", 4)))
    urgent = deployment("urgent", 3)
    urgent["spec"]["template"]["metadata"]["annotations"][names.GROUP_MIN_MEMBER] = str(minimum)
    urgent["spec"]["template"]["spec"]["priorityClassName"] = "high"
    await world.create(urgent)
    await world.until(lambda: run(world, ("urgent", minimum), ("below", 4 - minimum)), within=180)
    await world.rest(5)
    counts = [pod.name.split("-")[0] for pod in await world.pods() if pod.spec.node_name]
    assert (counts.count("urgent"), counts.count("below")) == (minimum, 4 - minimum)
    await world.until(lambda: told_of_losses(world, "Preempted", minimum))
