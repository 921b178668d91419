"""The events of workloads, groups and pods, whole, for one pod and for several: as somebody read them.

After a change: GOLDEN=write pytest tests/scheduler/test_event_goldens.py, and read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from muster.ledger import wording
from muster.model import kinds, names
from muster.model.objects import Condition
from scheduler.leader.group_events import GroupEvents
from scheduler.model.plan import GroupStatus, Urgency
from scheduler.model.snapshot import GroupKey, Phase

GOLDEN = Path(__file__).with_name("golden-events.txt")
COUNTS = (1, 3)


def job(name: str, pods: int, *, minimum: int = 0, priority: str = "", seconds: str = "30") -> dict:
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never", "containers": [main]}
    if priority:
        spec["priorityClassName"] = priority
    template = {"metadata": {"annotations": {names.RUN_SECONDS: seconds}}, "spec": spec}
    annotations = {names.GROUP_MIN_MEMBER: str(minimum or pods)}
    work = {"parallelism": pods, "completions": pods, "template": template}
    return {"kind": "Job", "metadata": {"name": name, "annotations": annotations}, "spec": work}


def written(events, count: int) -> set[str]:
    """Write each event once, in words that are the same in every run."""
    lines = {
        f"{each.involved_object['kind']} {each.involved_object['name']}, {each.type} {each.reason}: {each.message}"
        for each in events
    }
    for pattern, shown in _PLAIN:
        lines = {re.sub(pattern, shown, each) for each in lines}
    return {f"{count}: {each}" for each in lines}


_PLAIN = (
    (r"podgroup-[0-9a-f-]{36}", "podgroup-…"),
    (r"\b(first|wide|urgent)-[a-z0-9]{5}\b", r"\1-…"),
    (r"[a-z0-9-]+/(first|wide|urgent)\b", r"ns/\1"),
    (r"assigned \S+ to \S+", "assigned … to …"),
    (r" for [0-9ms]+$", " for …"),
)


@pytest.mark.only("sandbox", reason="what is told is the same on both")
async def test_the_events_of_jobs_their_groups_and_their_pods_are_as_somebody_read_them(world):
    told: set[str] = set()
    await world.work("actions: enqueue, allocate, preempt, backfill")
    for count in COUNTS:
        node = await world.node(str(count + 1))
        high = {"metadata": {"name": world.plane.unique("high")}, "value": 1000}
        await world.client.create(kinds.PRIORITYCLASSES, high)
        await world.create(job("first", count + 1, minimum=1, seconds="600"))
        group = f"podgroup-{(await world.job('first')).metadata.uid}"
        await world.phase(group, "Running")
        await world.create(job("wide", count + 2))
        await world.until(lambda: _has(world, "wide", "Held"))
        await world.create(job("urgent", count, priority=high["metadata"]["name"]))
        await world.becomes(kinds.JOBS, "urgent", lambda found: found.status.succeeded == count)  # noqa: B023
        group = f"podgroup-{(await world.job('urgent')).metadata.uid}"
        await world.phase(group, "Completed")
        await world.rest(3)
        told |= written((await world.client.list(kinds.EVENTS, world.namespace)).items, count)
        for name in ("first", "wide", "urgent"):
            await world.client.delete(kinds.JOBS, name, world.namespace)
        for each in (await world.client.list(kinds.EVENTS, world.namespace)).items:
            await world.client.delete(kinds.EVENTS, each.name, world.namespace)
        await world.client.delete(kinds.NODES, node)
        await world.plane.all(kinds.PODGROUPS, world.namespace, holds=lambda groups: not groups)
        await world.plane.all(kinds.PODS, world.namespace, holds=lambda pods: not pods)
    text = "".join(f"{line}\n" for line in sorted(told))
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


async def _has(world, name: str, reason: str) -> bool:
    found = (await world.client.list(kinds.EVENTS, world.namespace)).items
    return any((each.involved_object["name"], each.reason) == (name, reason) for each in found)


async def test_that_a_minimum_is_about_to_be_reserved_is_no_event():
    told = []
    recorder = SimpleNamespace(record=lambda *said, **_: told.append(said[2:]))
    events = GroupEvents(recorder, {"": kinds.PODGROUPS}, lambda _: None)
    for text in (wording.unreserved(()), 'quota "team" is short by 1 cpu'):
        wrong = Condition(type="Unschedulable", status="True", reason="NotEnoughQuota", message=text)
        key = GroupKey("", "ns", "g")
        phase = Phase.PENDING
        events.record(GroupStatus(key, "u", "default", phase, phase, (wrong,), 0, 0, 0, Urgency.NOW))
    assert told == [("NotEnoughQuota", 'quota "team" is short by 1 cpu')]
