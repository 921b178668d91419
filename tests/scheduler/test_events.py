"""What a leader knows follows from the events that it was told of, and from nothing else."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from workloads import deployment, job

from muster.model import kinds, names
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.leader import events
from scheduler.leader.state import SchedulerState
from scheduler.model.snapshot import GroupKey

EVICTING = config.DEFAULT.replace('"enqueue, allocate, backfill"', '"enqueue, allocate, backfill, preempt"')
POLICY = config.parse(EVICTING)
API_GROUP = kinds.PODGROUPS.group


def facts(snapshot):
    """All that a snapshot tells, but for where it is kept."""
    table = snapshot.table
    nodes = (table.names, table.ready, snapshot.axes.names, table.allocatable.tolist())
    amounts = (snapshot.idle.tolist(), snapshot.releasing.tolist())
    rest = [name for name in snapshot.__struct_fields__ if name not in {"table", "idle", "releasing"}]
    return nodes, amounts, {name: repr(getattr(snapshot, name)) for name in rest}


class History:
    """A leader as values: what happens to it is told and written down."""

    def __init__(self, build) -> None:
        self.build = build
        self.state = SchedulerState({names.SCHEDULER_NAME})
        self.told: list[events.Event] = []
        self.now = build.now
        self.version = 0
        self.gangs: dict[str, Any] = {}
        self.pods: dict[str, Any] = {}
        self.bound: dict[str, str] = {}
        self.leaving: list[str] = []
        self.writing: list[Any] = []
        self._shows(kinds.QUEUES, {"metadata": {"name": "default"}})
        for name, value in (("low", 1), ("high", 10)):
            self._shows(kinds.PRIORITYCLASSES, {"metadata": {"name": name}, "value": value})
        self.node("a", 2)

    def tell(self, event: events.Event) -> None:
        self.told.append(event)
        self.state.handle(event)

    def _shows(self, kind, body, *, gone=False):
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        item = msgspec.convert(body, kind.struct)
        self.tell(events.ObjectChanged(kind, item, gone))
        return item

    def node(self, name, cpu):
        allocatable = {"cpu": str(cpu), "memory": "8Gi", "pods": "9"}
        ready = [{"type": "Ready", "status": "True"}]
        self._shows(
            kinds.NODES, {"metadata": {"name": name}, "status": {"allocatable": allocatable, "conditions": ready}}
        )

    def gang(self, pods, minimum, level):
        name = f"g{len(self.gangs)}"
        meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "creationTimestamp": self.now.isoformat()}
        spec = {"minMember": min(pods, minimum), "queue": "default", "priorityClassName": level}
        self.gangs[name] = self._shows(kinds.PODGROUPS, {"metadata": meta, "spec": spec})
        for number in range(pods):
            self._pod(self.build.a_pod(f"{name}-{number}", name))

    def _pod(self, pod, *, gone=False):
        self.version += 1
        pod = replace(pod, metadata=replace(pod.metadata, resource_version=str(self.version)))
        self.pods[pod.metadata.uid] = pod
        self.tell(events.ObjectChanged(kinds.PODS, pod, gone))
        if gone:
            del self.pods[pod.metadata.uid]

    def cycle(self, seconds):
        self.now += timedelta(seconds=seconds)
        plan = decide(self.state.snapshot(), POLICY, self.now)
        late = [each for number, each in enumerate(plan.statuses) if (number + seconds) % 3 == 0]
        assumed = tuple(each for each in plan.statuses if each not in late)
        self.tell(events.PlanDecided(plan, self.now.timestamp(), assumed))
        self.bound |= {bind.task.uid: bind.node for bind in plan.binds}
        self.leaving += [each.task.uid for each in plan.evictions]
        self.writing += plan.statuses

    def arrives(self, number):
        if self.bound:
            uid = sorted(self.bound)[number % len(self.bound)]
            node = self.bound.pop(uid)
            if uid in self.pods and not self.pods[uid].spec.node_name:
                pod = self.pods[uid]
                phase = "Running" if number % 2 else "Pending"
                self._pod(replace(pod, spec=replace(pod.spec, node_name=node), status=replace(pod.status, phase=phase)))

    def fails(self, number):
        if self.bound:
            uid = sorted(self.bound)[number % len(self.bound)]
            del self.bound[uid]
            self.tell(events.BindFailed(uid))

    def evicted(self, number):
        if self.leaving:
            uid = self.leaving.pop(number % len(self.leaving))
            if number % 3 == 0:
                self.tell(events.EvictionRefused(uid))
                self.tell(events.EvictionRetryDue(uid))
            elif number % 3 == 1:
                self.tell(events.EvictionRefused(uid))
            elif uid in self.pods:
                self._pod(self.pods[uid], gone=True)

    def stored(self, number):
        if self.writing:
            status = self.writing.pop(number % len(self.writing))
            known = self.gangs[status.key.name]
            self.version += number % 3
            meta = replace(known.metadata, resource_version=str(self.version - number % 2))
            self.tell(events.StatusStored(status.key, replace(known, metadata=meta, status=status.struct())))

    def refused(self, number):
        if self.gangs:
            key = GroupKey(API_GROUP, "ns", sorted(self.gangs)[number % len(self.gangs)])
            self.tell(events.ReservationRefused(key, "the quota is used up"))
            if number % 2:
                self.tell(events.ReservationRetryDue(key))

    def reservations(self, number):
        found = {(API_GROUP, name): "not yet" for name in sorted(self.gangs)[: number % 3]}
        self.tell(events.ReservationsRead("ns", found))
        self.tell(events.LedgerRead("ns", None))
        self.tell(events.LedgerChanged("ns"))

    def goes(self, number):
        if self.pods:
            self._pod(self.pods[sorted(self.pods)[number % len(self.pods)]], gone=True)


SOME = st.integers(0, 9)
STEP = st.one_of(
    st.tuples(st.just("node"), st.sampled_from("ab"), st.integers(0, 4)),
    st.tuples(st.just("gang"), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["low", "high"])),
    st.tuples(st.just("cycle"), st.sampled_from([0, 1, 20, 70])),
    st.tuples(st.sampled_from(["arrives", "fails", "evicted", "stored", "refused", "reservations", "goes"]), SOME),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEP, min_size=6, max_size=25))
def test_the_events_of_a_history_told_anew_give_the_same_snapshot_and_the_same_plan(make_build, steps):
    history = History(make_build())
    for name, *arguments in steps:
        getattr(history, name)(*arguments)
    again = SchedulerState({names.SCHEDULER_NAME})
    for event in history.told:
        again.handle(event)
    before, after = history.state.snapshot(), again.snapshot()
    assert facts(after) == facts(before)
    assert repr(decide(after, POLICY, history.now)) == repr(decide(before, POLICY, history.now))
    for state in (history.state, again):
        state.cluster.validate()


@pytest.mark.only("sandbox", reason="what a leader is told doesn't depend on who tells it")
async def test_a_worker_knows_nothing_that_no_event_told(world, monkeypatch):
    states: list[SchedulerState] = []
    told: list[events.Event] = []
    handle = SchedulerState.handle

    def recorded(state, event):
        if state not in states:
            states.append(state)
        told.append(event)
        return handle(state, event)

    monkeypatch.setattr(SchedulerState, "handle", recorded)
    await world.node("4")
    await world.work(EVICTING)
    await world.create(deployment("web", 2), job("train", 2), job("large", 9))
    await world.becomes(kinds.JOBS, "train", lambda one: one.status.active == 2)
    await world.create(job("short", 1, seconds=0))
    await asyncio.sleep(30)
    (state,) = states
    again = SchedulerState({names.SCHEDULER_NAME})
    for event in told:
        handle(again, event)
    assert facts(again.snapshot()) == facts(state.snapshot())
    kinds_told = {type(event) for event in told}
    assert kinds_told >= {events.ObjectChanged, events.PlanDecided, events.StatusStored}
