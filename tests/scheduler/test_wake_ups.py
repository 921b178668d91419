"""Each change that may let somebody start has a cycle decide at once: here none is run because a second is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.model import kinds, names
from scheduler.configuration import config
from scheduler.leader import leadership
from scheduler.model.snapshot import GroupKey, ReservedNodes
from scheduler.state.apply import apply_plan

SOON = 0.9
"""Seconds: less than between two cycles that only time calls for."""
EVICTING = config.DEFAULT.replace('"enqueue, allocate, reclaim, backfill"', '"enqueue, allocate, backfill, preempt"')
BACKWARDS = config.DEFAULT.replace('"enqueue, allocate, reclaim, backfill"', '"backfill, allocate, enqueue"')

pytestmark = pytest.mark.only("sandbox", reason="that nothing happens in a second is seen in virtual time only")


def pod(name: str, group: str = "", cpu: str = "1", **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "annotations": {names.GROUP_NAME: group} if group else {}, "labels": spec.pop("labels", {})}
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    spec = {
        "schedulerName": names.SCHEDULER_NAME,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        **spec,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def group(name: str = "g", minimum: int = 1, **spec: Any) -> dict[str, Any]:
    spec = {"minMember": minimum, **spec}
    return {"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "Queue", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def quiet(world, monkeypatch):
    """A world in which nobody decides because time has passed."""
    monkeypatch.setattr(leadership, "RESYNC_INTERVAL_SECONDS", 1e6)
    return world


async def waits(world, name: str = "p", policy: str = config.DEFAULT) -> None:
    """Start a worker, and see a pod wait, whatever becomes of what is there."""
    if world.worker is None:
        await world.work(policy)
    await asyncio.sleep(20)
    assert not (await world.client.get(kinds.PODS, name, world.namespace)).spec.node_name


async def placed(world, *names: str, within: float = SOON) -> None:
    async with asyncio.timeout(within):
        for name in names or ("p",):
            await world.becomes(kinds.PODS, name, lambda found: found.spec.node_name)


# ── what others do ───────────────────────────────────────────────────────────────────────────────────────────────

Act = Callable[[Any, str], Awaitable[Any]]


ZONE = {"zone": "a"}


def beside(app: str) -> dict[str, Any]:
    """What a pod that has to be in the zone of such pods, or must not be, says."""
    leadership = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [leadership]}


async def full(world, node: str) -> None:
    await world.create(group(), pod("p", "g"), pod("stranger", cpu="4", nodeName=node, schedulerName="another"))


async def too_small(world, node: str) -> None:
    await world.create(group(), pod("p", "g", cpu="5"))


async def cordoned(world, node: str) -> None:
    await world.patch(kinds.NODES, node, {"spec": {"unschedulable": True}})
    await world.create(group(), pod("p", "g"))


async def tainted(world, node: str) -> None:
    await world.patch(kinds.NODES, node, {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
    await world.create(group(), pod("p", "g"))


async def elsewhere(world, node: str) -> None:
    await world.create(group(), pod("p", "g", nodeSelector={"disk": "fast"}))


async def in_a_queue(world, node: str, **spec: Any) -> None:
    if spec:
        await world.create(queue("team", **spec))
    await world.create(group(queue="team"), pod("p", "g"))


async def in_a_small_queue(world, node: str) -> None:
    await in_a_queue(world, node, capability={"cpu": "500m"})


async def without_its_group(world, node: str) -> None:
    await world.create(pod("p", "g"))


async def one_of_two(world, node: str) -> None:
    await world.create(group(minimum=2), pod("p", "g"))


async def gated(world, node: str) -> None:
    await world.create(group(), pod("p", "g", schedulingGates=[{"name": "example.com/wait"}]))


async def without_its_claim(world, node: str) -> None:
    await world.create(group(), pod("p", "g", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]))


async def apart_from_a_stranger(world, node: str) -> None:
    await world.patch(kinds.NODES, node, {"metadata": {"labels": ZONE}})
    stranger = pod("stranger", nodeName=node, schedulerName="another", labels={"app": "loud"})
    await world.create(stranger, group(), pod("p", "g", affinity={"podAntiAffinity": beside("loud")}))


async def bound_claim(world, node: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v"}
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"}}
    await world.plane.create(kinds.VOLUMES, {"metadata": {"name": "v"}, "spec": volume}, "")
    claim = {"metadata": {"name": "data"}, "spec": spec, "status": {"phase": "Bound"}}
    await world.plane.create(kinds.CLAIMS, claim, world.namespace)
    await world.patch(kinds.CLAIMS, "data", {"status": {"phase": "Bound"}}, subresource="status")


def patching(kind: Any, name: str, change: Any, **options: Any) -> Act:
    return lambda world, node: world.patch(kind, name or node, change, **options)


def creating(*manifests: Any) -> Act:
    return lambda world, _: world.create(*manifests)


def deleting(kind: Any, name: str) -> Act:
    return lambda world, _: world.client.delete(kind, name, world.namespace)


BIG = {"cpu": "8", "memory": "16Gi", "pods": "110"}
CHANGES = {
    "a pod is deleted": (full, deleting(kinds.PODS, "stranger")),
    "a pod ends": (full, patching(kinds.PODS, "stranger", {"status": {"phase": "Succeeded"}}, subresource="status")),
    "a node comes": (too_small, lambda world, _: world.node("8")),
    "a node grows": (too_small, patching(kinds.NODES, "", {"status": {"allocatable": BIG}}, subresource="status")),
    "a node is open again": (cordoned, patching(kinds.NODES, "", {"spec": {"unschedulable": None}})),
    "a taint goes": (tainted, patching(kinds.NODES, "", {"spec": {"taints": None}})),
    "a node gets a label": (elsewhere, patching(kinds.NODES, "", {"metadata": {"labels": {"disk": "fast"}}})),
    "its queue is made": (in_a_queue, creating(queue("team"))),
    "its queue may have more": (in_a_small_queue, patching(kinds.QUEUES, "team", {"spec": {"capability": None}})),
    "its group is made": (without_its_group, creating(group())),
    "its group needs less": (one_of_two, patching(kinds.PODGROUPS, "g", {"spec": {"minMember": 1}})),
    "the gang is complete": (one_of_two, creating(pod("p2", "g"))),
    "a gate is lifted": (gated, patching(kinds.PODS, "p", {"spec": {"schedulingGates": None}})),
    "its claim is bound": (without_its_claim, bound_claim),
    "who disturbed it has another label": (
        apart_from_a_stranger,
        patching(kinds.PODS, "stranger", {"metadata": {"labels": {"app": "silent"}}}),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_what_a_pod_waited_for_has_it_placed_at_once(quiet, name):
    arrange, act = CHANGES[name]
    node = await quiet.node("4")
    await arrange(quiet, node)
    await waits(quiet)
    await act(quiet, node)
    await placed(quiet)


# ── what the scheduler itself does ───────────────────────────────────────────────────────────────────────────────


async def test_a_pod_that_has_to_be_beside_another_follows_it_at_once(quiet, lag, monkeypatch):
    node = await quiet.node("4")
    await quiet.patch(kinds.NODES, node, {"metadata": {"labels": ZONE}})
    # Its turn is first, when nobody is there yet to be beside of.
    await quiet.create(group("g"), pod("p", "g", affinity={"podAffinity": beside("leader")}))
    # Nor does another action try it again.
    await waits(quiet, policy=config.DEFAULT.replace(", backfill", ""))
    lag(quiet.line, monkeypatch, "/pods/slow/binding", there=20)
    await quiet.create(group("h"), pod("leader", "h", labels={"app": "leader"}), pod("slow", "h"))
    await placed(quiet, "leader", "p")


async def test_a_group_that_is_let_in_after_the_nodes_were_given_away_gets_its_own_at_once(quiet):
    await quiet.node("4")
    await quiet.work(BACKWARDS)
    await quiet.create(group(), pod("p", "g"))
    await placed(quiet)


async def test_a_pod_that_is_refused_by_a_webhook_is_tried_again_when_its_pause_is_over(quiet):
    await quiet.node("4")
    await quiet.work()
    quiet.line.refuse = lambda request: request.path.endswith("/binding")
    await quiet.create(group(), pod("p", "g"))
    await asyncio.sleep(0.3)
    quiet.line.refuse = lambda _: False
    await placed(quiet, within=2)


async def test_another_configuration_counts_at_once(quiet):
    await quiet.node("4")
    await quiet.create(group(), pod("p", "g"))
    await waits(quiet, policy=config.DEFAULT.replace("enqueue, allocate, reclaim, backfill", "enqueue"))
    quiet.worker.adopt(config.parse(config.DEFAULT))
    await placed(quiet)


def bind(build, *names):
    """Let the worker bind pods of a gang to the node n."""
    for name in names:
        build.cluster.assume(f"uid-{name}", "n")


def news(build, name: str, group: str = "g") -> bool:
    """Show that a pod's binding arrived; tell whether a cycle is due."""
    before = build.cluster.changes
    build.pod(name, group, node="n", phase="Pending")
    return build.cluster.changes != before


@pytest.mark.parametrize("left_out", [True, False])
def test_the_last_binding_of_a_gang_is_news_to_those_who_could_take_its_place(build, left_out):
    build.node("n", "4").gang("g", 2, 3).gang("h", 1, 1)
    build.cluster.snapshot()
    bind(build, "g-0", "g-1", "h-0")
    build.cluster.remember(None, {}, left_out=left_out)
    assert not news(build, "g-0")
    assert news(build, "h-0", "h") is left_out
    assert news(build, "g-1") is left_out
    # No assumption is left behind by those that don't arrive.
    bind(build, "g-2")
    build.gone("g-2")
    bind(build, "g-1")
    assert not news(build, "g-1")


def test_a_victim_that_was_being_bound_is_found_when_its_binding_arrived(build):
    build.node("n", "1").priority("high", 10)
    build.gang("low", 0, 1).cycle(EVICTING)
    build.gang("urgent", 1, 1, priorityClassName="high")
    waiting = build.cycle(EVICTING)
    assert (waiting.evictions, waiting.left_out) == ((), True)
    build.cluster.remember(waiting.reserved_nodes, waiting.partially_bound, left_out=waiting.left_out)
    assert news(build, "low-0", "low")
    assert [each.task.name for each in build.decide(EVICTING).evictions] == ["low-0"]


def test_a_plan_that_leaves_nobody_out_calls_for_no_other(build):
    build.node("n", "4").gang("g", 2, 2)
    plan = build.cycle()
    assert (len(plan.binds), plan.left_out, plan.unsettles(None)) == (2, False, False)
    build.gang("wide", 1, 1, "9")
    plan = build.cycle()
    assert (plan.left_out, plan.unsettles(None)) == (True, False)


def test_nodes_that_are_kept_no_longer_are_another_cycle_s(build):
    kept = ReservedNodes(GroupKey(kinds.PODGROUPS.group, "ns", "g"), ("n",), 0.0)
    build.node("n", "4").gang("wide", 1, 1, "9")
    plan = build.cycle()
    assert plan.unsettles(kept)
    assert not plan.unsettles(None)
    assert not replace(plan, reserved_nodes=kept._replace(since=1.0)).unsettles(kept)


def test_the_counters_of_a_queue_are_no_news(build):
    def shown(**status):
        before = build.cluster.changes
        meta = {"name": "team", "uid": "team"}
        build.cluster.queue(msgspec.convert({"metadata": meta, "spec": {}, "status": status}, kinds.QUEUES.struct))
        return build.cluster.changes != before

    assert shown(state="Open", running=1)
    build.cycle()  # What a cycle finds out about a queue is remembered with it.
    assert not shown(state="Open", running=2, allocated={"cpu": "2"})
    assert shown(state="Closed", running=2)


# ── whatever happens ─────────────────────────────────────────────────────────────────────────────────────────────

PODS = {
    "plain": {},
    "beside": {"affinity": {"podAffinity": beside("x")}, "labels": {"app": "y"}},
    "apart": {"affinity": {"podAntiAffinity": beside("x")}},
    "x": {"labels": {"app": "x"}},
    "port": {"ports": [{"hostPort": 80}]},
}
POLICIES = (config.DEFAULT, EVICTING, EVICTING.replace("preempt", "reclaim"), BACKWARDS)
EVENT = st.one_of(
    st.tuples(st.just("node"), st.sampled_from("ab"), st.integers(0, 3)),
    st.tuples(
        *(st.just("gang"), st.sampled_from(sorted(PODS)), st.integers(1, 3)),
        *(st.sampled_from(["default", "other"]), st.sampled_from(["low", "high"])),
    ),
    st.tuples(st.sampled_from(["pod", "arrives", "runs", "fails", "goes", "counters"]), st.integers(0, 9)),
)


class Watcher:
    """A worker as values: cycles are run when something called for one, and by the clock none."""

    def __init__(self, build, policy: str) -> None:
        self.build, self.policy = build.queue("default").queue("other").priority("high", 10).priority("low", 1), policy
        self.pods: dict[str, tuple[str, dict[str, Any]]] = {}
        self.bound: dict[str, str] = {}
        self.shown: set[str] = set()
        self.gangs = 0
        self.kept = None
        self.node("a", 2)
        self.node("b", 1)

    def happen(self, event: tuple[Any, ...]) -> None:
        before = self.build.cluster.changes
        getattr(self, event[0])(*event[1:])
        due = self.build.cluster.changes != before
        for _ in range(20):
            if not due:
                return
            due = self.cycle()
        raise AssertionError("it decides again and again")

    def cycle(self) -> bool:
        plan = self.build.decide(self.policy)
        for each in plan.binds:
            self.bound[each.task.name] = each.node
        apply_plan(self.build.cluster, plan)
        self.build.cluster.remember(plan.reserved_nodes, plan.partially_bound, left_out=plan.left_out)
        due, self.kept = plan.unsettles(self.kept), plan.reserved_nodes
        return due

    def _one(self, number: int, among: Any) -> str | None:
        names = sorted(among)
        return names[number % len(names)] if names else None

    def node(self, name: str, cpu: int) -> None:
        self.build.node(name, str(cpu), labels=ZONE | {"kubernetes.io/hostname": name})

    def gang(self, kind: str, count: int, queue: str, level: str) -> None:
        self.gangs += 1
        name = f"{level}-{self.gangs}"
        self.build.group(name, 1, phase="Pending", queue=queue, priorityClassName=level)
        for number in range(count):
            self.pods[f"{name}-{number}"] = (name, PODS[kind])
        self.pod(0)

    def pod(self, number: int) -> None:
        name = self._one(number, self.pods.keys() - self.shown)
        if name is not None:
            self.shown.add(name)
            self._show(name)

    def _show(self, name: str, **more: Any) -> None:
        group, spec = self.pods[name]
        self.build.pod(name, group, **spec, **more)

    def arrives(self, number: int) -> None:
        if (name := self._one(number, self.bound)) is not None:
            self._show(name, node=self.bound[name], phase="Pending")

    def runs(self, number: int) -> None:
        if (name := self._one(number, self.bound)) is not None:
            self._show(name, node=self.bound[name])

    def fails(self, number: int) -> None:
        if (name := self._one(number, self.bound)) is not None:
            self.build.cluster.forget(f"uid-{name}")

    def goes(self, number: int) -> None:
        if (name := self._one(number, self.shown)) is not None:
            self.shown.remove(name)
            self.bound.pop(name, None)
            del self.pods[name]
            self.build.gone(name)

    def counters(self, number: int) -> None:
        meta = {"name": "default", "uid": "default"}
        status = {"state": "Open", "running": number}
        self.build.cluster.queue(msgspec.convert({"metadata": meta, "spec": {}, "status": status}, kinds.QUEUES.struct))


@settings(max_examples=25, deadline=None)
@given(policy=st.sampled_from(POLICIES), events=st.lists(EVENT, min_size=8, max_size=14))
def test_where_nothing_calls_for_a_cycle_none_would_find_anything(make_build, policy, events):
    watcher = Watcher(make_build(), policy)
    for event in events:
        watcher.happen(event)
        idle = watcher.build.decide(policy)
        assert (idle.binds, idle.evictions) == ((), ())
        assert [each for each in idle.statuses if each.phase is not each.before] == []
