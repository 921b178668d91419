"""Where nothing changes, nothing is written: of all kinds of workloads together, and whatever others do meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from workloads import deployment, group, job, pod, unschedulable

from muster.kube.transport import STRATEGIC_PATCH
from muster.model import kinds, names


async def populated(world: Any) -> None:
    """Have work in every phase that lasts; there is room for all that isn't to wait, whoever comes first."""
    await world.node("5")
    await world.work()
    await world.create(job("runs", 2), job("waits", 9))
    await world.create(job("ends", 1, seconds=0))
    await world.create(deployment("web", 2), group("pods-wait", minMember=9, minResources={"cpu": "9"}))
    await world.create(*(pod(f"p-{number}", "pods-wait") for number in range(9)))
    await world.becomes(kinds.JOBS, "ends", lambda one: one.status.succeeded)
    await world.becomes(kinds.PODS, "p-8", unschedulable)


async def others_write(world: Any, number: int) -> None:
    """Have a kubelet report that nothing is new, and somebody write notes onto all that a scheduler watches."""
    (node,) = (await world.client.list(kinds.NODES)).items
    note = {"metadata": {"annotations": {"example.com/note": str(number)}}}
    heartbeat = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:{number:02}Z"}
    beat = {"status": {"conditions": [heartbeat]}}
    await world.client.patch(kinds.NODES, node.name, beat, subresource="status", content_type=STRATEGIC_PATCH)
    for kind, name in (
        (kinds.NODES, node.name),
        (kinds.NAMESPACES, world.namespace),
        (kinds.QUEUES, names.DEFAULT_QUEUE),
        (kinds.JOBS, "runs"),
        (kinds.JOBS, "waits"),
        (kinds.DEPLOYMENTS, "web"),
        (kinds.PODGROUPS, "pods-wait"),
        (kinds.PODS, "p-0"),
        (kinds.PODS, "theirs"),
    ):
        await world.patch(kind, name, note)


async def test_cycles_in_which_nothing_changes_write_nothing_whatever_others_do(world, monkeypatch):
    # A hundred take longer together than a status may be put off whose numbers changed.
    monkeypatch.setattr("scheduler.leader.leadership.MIN_CYCLE_INTERVAL_SECONDS", 0.02)
    await populated(world)
    theirs = pod("theirs", "")
    theirs["spec"]["schedulerName"] = "default-scheduler"
    await world.create(theirs)
    await world.rest(100)
    phases = {each.status.phase for each in (await world.client.list(kinds.PODGROUPS, world.namespace)).items}
    assert phases >= {"Pending", "Running", "Completed"}

    (node,) = (await world.client.list(kinds.NODES)).items
    mine = (world.namespace, node.name, names.DEFAULT_QUEUE)
    before = len(world.line.written(*mine))
    for number in range(10):
        await others_write(world, number)
        await world.rest(3)
    assert world.line.written(*mine)[before:] == []


@pytest.mark.only("sandbox", reason="two minutes pass; the test above has as many cycles, on both")
async def test_nothing_is_written_in_two_idle_minutes(world):
    await populated(world)
    await asyncio.sleep(60)
    before = len(world.line.written())
    await asyncio.sleep(120)
    assert world.line.written()[before:] == []
