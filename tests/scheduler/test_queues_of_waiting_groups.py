"""What becomes of who waits in a queue that is missing, or that closes: the leader on an API server, with the configuration that ships."""

from __future__ import annotations

import pytest
from workloads import deployment, group, job, pod, reason, said

from muster.model import kinds, names

QUEUE = names.QUEUE_NAME_KEYS[0]


def queue(name, **spec):
    return {"apiVersion": kinds.QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


async def test_a_group_of_a_missing_queue_is_told_so_and_starts_when_the_queue_comes(world):
    late = world.plane.unique("late")
    await world.node("4")
    await world.work()
    await world.create(group("lost", minMember=1, queue=late), pod("lost-0", "lost"))
    found = await world.becomes(kinds.PODGROUPS, "lost", lambda one: reason(one) == "QueueNotFound")
    assert (found.status.phase, late in said(found)) == ("Pending", True)
    await world.create(queue(late))
    await world.phase("lost", "Running")


@pytest.mark.parametrize("workload", ["job", "deployment"])
async def test_who_waits_for_room_in_a_queue_that_closes_starts_all_the_same_and_then_it_is_closed(world, workload):
    team = world.plane.unique("team")
    await world.node("4")
    await world.create(queue(team))
    await world.work()
    await world.create(group("before", minMember=1), pod("before-0", "before", "4"))
    await world.phase("before", "Running")
    if workload == "job":
        await world.create(job("train", 2, **{QUEUE: team}))
    else:
        made = deployment("train", 2)
        made["spec"]["template"]["metadata"]["annotations"][QUEUE] = team
        await world.create(made)

    def of_the_workload(holds):
        return lambda found: any(one.spec.queue == team and holds(one) for one in found)

    async def wait(holds):
        await world.plane.all(kinds.PODGROUPS, world.namespace, holds=of_the_workload(holds))

    await wait(lambda one: (one.status.phase, reason(one)) == ("Pending", "NotEnoughResources"))
    await world.patch(kinds.QUEUES, team, {"spec": {"desiredState": "Closed"}})
    await world.becomes(kinds.QUEUES, team, lambda one: one.status.state == "Closing")
    await world.client.delete(kinds.PODS, "before-0", world.namespace)
    await wait(lambda one: one.status.phase == "Running")
    kind = kinds.JOBS if workload == "job" else kinds.DEPLOYMENTS
    await world.client.delete(kind, "train", world.namespace, propagation="Background")
    await world.becomes(kinds.QUEUES, team, lambda one: one.status.state == "Closed")
