"""A morning in a cluster, as the scheduler decides on it, and pictures of it: what docs/top-and-ui.md shows.

Run as a program, with tests/support on the path, it writes the pictures. Groups come by a fixed list, run for their time, and wait for what the scheduler says; no
decision is made up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import chromium
from asked import POLICY, node, queue, state
from msgspec.structs import replace

from muster.cli import expected_starts
from muster.cli.overviews import Seen
from muster.cli.ui.reader import Reader
from muster.cli.ui.server import UiServer
from muster.cli.ui.suppositions import Suppositions
from muster.model import grouping, kinds, names
from muster.model.objects import Condition, Event, Pod, PodGroup
from muster.whatif import overview
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import ClusterObjects, with_objects
from scheduler.model.plan import Eviction

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
BEGIN: Final = datetime(2026, 1, 5, 7, tzinfo=UTC)
STEP: Final = timedelta(minutes=3)
STEPS: Final = 100
LARGEST: Final = 150_000  # bytes of a picture

QUEUES: Final = (
    queue("production", weight=4, deserved={"cpu": "64"}, guarantee={"resource": {"cpu": "32"}}),
    queue("research", weight=3),
    queue("language", weight=2, parent="research"),
    queue("vision", weight=1, parent="research"),
    queue("robotics", weight=1, parent="research"),
    queue("batch", weight=2),
    queue("nightly", weight=1, parent="batch"),
    queue("reports", weight=1, parent="batch"),
)
NODES: Final = tuple(
    node(f"node-{number:02}", {"cpu": "16", "memory": "64Gi", "pods": "110"}) for number in range(1, 13)
)
WORK: Final = {
    "production": ("rank", "serve-batch", "embed"),
    "language": ("llm-tune", "tokenize", "distill", "eval-suite"),
    "vision": ("segment", "detector", "augment"),
    "robotics": ("sim-rollout", "policy"),
    "nightly": ("etl", "compact", "index"),
    "reports": ("billing", "usage"),
}


class Arrival(NamedTuple):
    """A Job that comes at a time, and its pods run for a while once they have nodes."""

    at: datetime
    name: str
    queue: str
    pods: int
    cpu: int
    minutes: int

    @property
    def minimum(self) -> int:
        """What it can't do without: Jobs of the night run with one pod, too."""
        return 1 if self.queue in {"nightly", "reports"} else self.pods


def arrivals() -> list[Arrival]:
    """Return the Jobs of the morning, the first ones first."""
    lot, found = random.Random(7), []
    for number in range(86):
        queue_name = lot.choice(
            ["production", "language", "language", "vision", "vision", "robotics", "nightly", "nightly", "reports"]
        )
        name = f"{lot.choice(WORK[queue_name])}-{number:02}"
        at = BEGIN + timedelta(minutes=lot.randint(0, 295))
        found.append(
            Arrival(
                at, name, queue_name, lot.choice([2, 4, 4, 6, 8, 12]), lot.choice([1, 2, 2, 4]), lot.randint(25, 110)
            )
        )
    return sorted(found)


class Morning:
    """The cluster while time goes by; `step` is what happens in the next minutes."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.events: list[Event] = []
        self.state = state([*NODES, *QUEUES], BEGIN)
        self._coming = arrivals()
        self._ends: dict[str, datetime] = {}
        self._jobs: dict[str, Arrival] = {}

    def step(self) -> Seen:
        """Let time go by; return what somebody sees who looks then."""
        self.now += STEP
        self.state = replace(self.state, taken=self.now)
        self._end()
        self._arrive()
        cluster = WhatIfCluster(self.state, POLICY, ["muster"])
        outcome = cluster.run_until_idle([*cluster.running(), *cluster.waiting()], to_rest=True)
        self._take_over(cluster.state_now(), outcome.evictions)
        seen = WhatIfCluster(self.state, POLICY, ["muster"])
        plan = seen.decide()
        for key, record in plan.records.items():
            group = self.state.find(kinds.PODGROUPS, key.name, key.namespace)
            if group is not None and group.status.conditions is None and record.message and group.status.running == 0:
                self._tell(group, "Unschedulable", str(record.reason and record.reason.value), record.message)
        told = [each for each in self.events if each.reason in overview.EVICTED]
        shown = overview.overview(self.state, told, plan)
        return Seen(shown, self.state, tuple(self.events), POLICY)

    def _arrive(self) -> None:
        while self._coming and self._coming[0].at <= self.now:
            one = self._coming.pop(0)
            uid = f"{one.name}-uid"
            namespace = "production" if one.queue == "production" else "research" if one.queue in {"language", "vision", "robotics"} else "batch"  # fmt: skip
            name = grouping.generated_name(uid)
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": one.name, "uid": uid, "controller": True}
            meta = {"namespace": namespace, "creationTimestamp": one.at.isoformat(), "ownerReferences": [owner]}
            group = {
                "apiVersion": kinds.PODGROUPS.api_version,
                "kind": "PodGroup",
                "spec": {"minMember": one.minimum, "queue": one.queue},
            }
            group |= {"metadata": {**meta, "name": name, "uid": name}, "status": {"phase": "Pending"}}
            pods = [self._pod(one, name, meta, number) for number in range(one.pods)]
            new = state([group, *pods], self.now)
            self.state = with_objects(self.state, {kind: new.of(kind) for kind in (kinds.PODGROUPS, kinds.PODS)})
            self._jobs[name] = one

    @staticmethod
    def _pod(one: Arrival, group: str, meta: dict[str, Any], number: int) -> dict[str, Any]:
        name = f"{one.name}-{number}"
        mine = {**meta, "name": name, "uid": f"{name}-pod", "annotations": {names.GROUP_NAME: group}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": mine, "spec": _spec(one), "status": {"phase": "Pending"}}

    def _end(self) -> None:
        over = {name for name, at in self._ends.items() if at <= self.now}
        self._ends = {name: at for name, at in self._ends.items() if name not in over}
        gone = [each for each in self.state.of(kinds.PODS) if grouping.group_of(each.metadata) in over]
        ended = [each for each in self.state.of(kinds.PODGROUPS) if each.name in over]
        self.state = with_objects(self.state, {}, {kinds.PODS: gone, kinds.PODGROUPS: ended})
        # By the Jobs that ended one knows how long others will run.
        done = state([_done(self._jobs[each.name], each.namespace, self.now) for each in ended], self.now)
        self.state = with_objects(self.state, {kinds.JOBS: done.of(kinds.JOBS)})

    def _take_over(self, after: ClusterObjects, evictions: Sequence[Eviction]) -> None:
        """Take over what was decided: places, and pods that their Jobs make again."""
        placed = {each.metadata.uid: each.spec.node_name for each in after.of(kinds.PODS) if each.spec.node_name}
        left = {each.metadata.uid for each in after.of(kinds.PODS)}
        pods = [
            self._as_decided(each, placed, gone=each.metadata.uid not in left) for each in self.state.of(kinds.PODS)
        ]
        self.state = with_objects(self.state, {kinds.PODS: pods})
        running: dict[str, int] = {}
        for each in pods:
            name = grouping.group_of(each.metadata)
            running[name] = running.get(name, 0) + bool(each.spec.node_name)
        self._note_evictions(evictions)
        for group in self.state.of(kinds.PODGROUPS):
            self._note_phase(group, running.get(group.name, 0))

    def _as_decided(self, pod: Pod, placed: dict[str, str], *, gone: bool) -> Pod:
        if gone:
            return replace(
                pod, spec=replace(pod.spec, node_name=""), status=replace(pod.status, phase="Pending", start_time=None)
            )
        if pod.spec.node_name or pod.metadata.uid not in placed:
            return pod
        status = replace(pod.status, phase="Running", start_time=self.now)
        return replace(pod, spec=replace(pod.spec, node_name=placed[pod.metadata.uid]), status=status)

    def _note_phase(self, group: PodGroup, running: int) -> None:
        phase = "Running" if running >= group.spec.min_member else "Pending"
        status = replace(group.status, phase=phase, running=running)
        if phase != group.status.phase:
            status = replace(status, last_phase_transition_time=self.now, conditions=None)
            if phase == "Running":
                self._ends[group.name] = self.now + timedelta(minutes=self._jobs[group.name].minutes)
            else:
                self._ends.pop(group.name, None)
        self.state = with_objects(self.state, {kinds.PODGROUPS: [replace(group, status=status)]})
        if phase == "Running" and status.conditions is None:
            self._tell(replace(group, status=status), "Scheduled", "Bound", f"{running} pods are bound")

    def _note_evictions(self, evictions: Sequence[Eviction]) -> None:
        counts: dict[tuple[Any, Any], int] = {}
        for each in evictions:
            counts[each.group, each.beneficiary] = counts.get((each.group, each.beneficiary), 0) + 1
        for (lost, winner), count in counts.items():
            group = self.state.find(kinds.PODGROUPS, winner.name, winner.namespace) if winner is not None else None
            whom = grouping.title(group.namespace, group.name, grouping.owner_of(group.metadata)) if group is not None else "another queue"  # fmt: skip
            self._record(lost.namespace, lost.name, "Reclaimed", f"{count} pods are evicted for {whom}")

    def _tell(self, group: PodGroup, kind: str, reason: str, message: str) -> None:
        condition = Condition(type=kind, status="True", reason=reason, message=message, last_transition_time=self.now)
        told = replace(group, status=replace(group.status, conditions=(condition,)))
        self.state = with_objects(self.state, {kinds.PODGROUPS: [told]})
        self._record(group.namespace, group.name, reason, message)

    def _record(self, namespace: str, name: str, reason: str, message: str) -> None:
        about = {"kind": "PodGroup", "namespace": namespace, "name": name}
        self.events.append(Event(reason=reason, message=message, involved_object=about, last_timestamp=self.now))
        last = self.events[-1]
        self.events[-1] = replace(
            last, metadata=replace(last.metadata, namespace=namespace, name=f"{name}.{len(self.events)}")
        )


def _spec(one: Arrival) -> dict[str, Any]:
    requests = {"cpu": str(one.cpu), "memory": f"{one.cpu * 3}Gi"}
    return {"schedulerName": "muster", "containers": [{"name": "main", "resources": {"requests": requests}}]}


def _done(one: Arrival, namespace: str, now: datetime) -> dict[str, Any]:
    """Return a Job that has just completed."""
    times = {"startTime": (now - timedelta(minutes=one.minutes)).isoformat(), "completionTime": now.isoformat()}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": namespace, "name": one.name, "uid": f"{one.name}-uid"},
        "spec": {"parallelism": one.pods, "template": {"spec": _spec(one)}},
        "status": {**times, "conditions": [{"type": "Complete", "status": "True"}]},
    }


def morning() -> list[Seen]:
    """Return what was seen, reading after reading."""
    one = Morning()
    return [one.step() for _ in range(STEPS)]


PICTURES: Final = {
    "ui-light": ("light", "#queue=language&tab=line", "[...document.querySelectorAll('#groups .row')].filter(each => !each.hidden).sort((one, other) => one.row.at - other.row.at)[2].click()"),
    "ui-dark": ("dark", "#tab=line", ""),
    "ui-history": ("light", "#queue=research&tab=history", ""),
    "ui-what-if": ("dark", "#tab=what-if", "document.querySelector('#drain').value = 'node-03 node-04'; document.querySelector('#weight-queue').value = 'vision'; document.querySelector('#weight').value = 4; document.querySelector('#ask').click()"),
}  # fmt: skip


async def draw() -> None:
    """Write the pictures."""
    readings = morning()
    last = readings[-1]

    async def read() -> Seen:
        return readings.pop(0)

    async def events(namespace: str, name: str) -> Sequence[Event]:
        about = {"kind": "PodGroup", "namespace": namespace, "name": name}
        return [each for each in last.events if each.involved_object == about]

    reader = Reader(read, events, 3600)
    while readings:
        await reader.start()
    found = await expected_starts.Forecasts(["muster"]).play(last)
    assert not found.missing, found.missing

    reader.tell_starts(found)
    server = UiServer(reader, Suppositions(reader, ["muster"]).answer)
    await server.start()
    IMAGES.mkdir(exist_ok=True)
    for name, (scheme, fragment, script) in PICTURES.items():
        async with chromium.browser() as page:
            await page.send("Emulation.setTimezoneOverride", timezoneId="UTC")
            await page.send("Emulation.setLocaleOverride", locale="en-US")
            await page.size(1280, 700)
            await page.scheme(scheme)
            await page.open(server.url + fragment)
            await page.until("document.querySelectorAll('#tree .row').length > 0")
            if script:
                await page.run(script)
            await page.until("document.querySelector('#ask').disabled === false")
            await page.run("new Promise(done => setTimeout(done, 500))")
            picture = await page.screenshot()
            assert len(picture) < LARGEST, f"{name} has {len(picture)} bytes"
            await asyncio.to_thread((IMAGES / f"{name}.png").write_bytes, picture)
    await server.stop()


if __name__ == "__main__":
    asyncio.run(draw())
