"""An error that nobody foresaw, in what follows one object, stops nobody else; once it is mended nothing is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from clusters import APART, made, pod, shown, tasks_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from msgspec.structs import replace

from muster.kube import decoding
from muster.kube.subscription import DerivedState
from muster.kube.transport import Request
from muster.model import kinds, names
from scheduler.controllers import podgroups
from scheduler.leader import leadership
from scheduler.leader.events import ObjectChanged
from scheduler.leader.state import SchedulerState
from scheduler.model.snapshot import GroupKey
from scheduler.model.storage import StorageCache
from scheduler.state import conversion, pods, usage
from scheduler.state.informers import Informers
from scheduler.state.peer_index import PeerIndex

PODS = st.sampled_from([f"p{number}" for number in range(4)])
NODES = st.sampled_from(["n0", "n1"])
GROUPS = st.sampled_from(["g0", "g1"])


class Poisoned:
    """Steps deep in the cluster that fail for some objects, by name, before or after they have changed something."""

    def __init__(self) -> None:
        self.names: dict[str, bool] = {}
        self._patches = contextlib.ExitStack()
        for owner, name, about in (
            (pods.PodIndex, "_settle", lambda _, member, __: member.pod.name),
            (pods.PodIndex, "_group_name", lambda _, each: each.name),
            (PeerIndex, "join", lambda _, uid, *__: uid),
            (usage.NodeUsage, "_add", lambda _, task, __: task.name),
            (StorageCache, "_put", lambda *given, **_: given[3].name),
        ):
            self._poison(owner, name, about)
        for module, name, about in (
            (conversion, "min_resources", lambda group: group.name),
            (usage, "_row", lambda _, node, __: node.name),
        ):
            self._poison(module, name, about)

    def _poison(self, owner: Any, name: str, about: Callable[..., str]) -> None:
        step = getattr(owner, name)

        def failing(*given: Any, **named: Any) -> Any:
            first = self.names.get(about(*given, **named))
            if first:
                raise ZeroDivisionError(name)
            done = step(*given, **named)
            if first is not None:
                raise ZeroDivisionError(name)
            return done

        self._patches.enter_context(mock.patch.object(owner, name, failing))

    def end(self) -> None:
        self._patches.close()


class Healing(RuleBasedStateMachine):
    """Objects come, change and go in the caches, and steps for some of them fail."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.ERROR)
        self.poisoned = Poisoned()
        self.informers = Informers(legacy_apis=False)
        self.state = SchedulerState((names.SCHEDULER_NAME,))
        self.derived = DerivedState()
        self.informers.feed(lambda kind, item, gone: self.state.handle(ObjectChanged(kind, item, gone)), self.derived)
        self.version = 0

    def teardown(self) -> None:
        self.is_mended_and_is_what_the_caches_show()
        self.poisoned.end()
        logging.disable(logging.NOTSET)

    def _put(self, kind: Any, item: Any) -> None:
        self.version += 1
        self.informers.cache(kind).put(_with(item, resource_version=str(self.version)))

    @rule(name=NODES, cpu=st.sampled_from(["2", "4"]))
    def a_node(self, name: str, cpu: str) -> None:
        status = {"allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "9"}}
        self._put(kinds.NODES, made(kinds.NODES, {"metadata": {"name": name, "uid": name}, "status": status}))

    @rule(name=GROUPS, least=st.integers(0, 3))
    def a_group(self, name: str, least: int) -> None:
        meta = {"name": name, "namespace": "ns", "uid": name}
        spec = {"minMember": least, "minResources": {"cpu": "1"}}
        self._put(kinds.PODGROUPS, made(kinds.PODGROUPS, {"metadata": meta, "spec": spec}))

    @rule(name=st.sampled_from(["v0", "v1"]))
    def a_volume(self, name: str) -> None:
        self._put(kinds.VOLUMES, made(kinds.VOLUMES, {"metadata": {"name": name, "uid": name}, "spec": {}}))

    @rule(
        name=PODS,
        group=GROUPS,
        node=st.one_of(st.just(""), NODES),
        phase=st.sampled_from(["Pending", "Running", "Succeeded"]),
        app=st.sampled_from(["a", "b"]),
        port=st.booleans(),
        affinity=st.sampled_from([None, APART]),
    )
    def a_pod(self, name: str, group: str, node: str, phase: str, **more: Any) -> None:
        self._put(kinds.PODS, pod(name, group, node, phase, **more))

    @rule(kind=st.sampled_from([kinds.PODS, kinds.NODES, kinds.PODGROUPS]), name=st.one_of(PODS, NODES, GROUPS))
    def goes(self, kind: Any, name: str) -> None:
        cache = self.informers.cache(kind)
        known = cache.get(name, "ns" if kind.namespaced else "")
        if known is not None:
            self.version += 1
            cache.drop(_with(known, resource_version=str(self.version)))

    @rule(name=PODS, node=NODES)
    def a_binding_is_on_its_way(self, name: str, node: str) -> None:
        with contextlib.suppress(ZeroDivisionError):
            self.state.cluster.assume(name, node)

    @rule(name=st.one_of(PODS, NODES, GROUPS, st.just("v0")), first=st.booleans())
    def steps_fail(self, name: str, *, first: bool) -> None:
        """Before they do anything, or once they have done it."""
        self.poisoned.names[name] = first

    @rule(
        name=PODS,
        node=NODES,
        first=st.booleans(),
        affinity=st.sampled_from([None, APART]),
        then=st.sampled_from(["", "n0", "n1"]),
    )
    def a_pod_fails_and_changes(self, name: str, node: str, *, first: bool, affinity: Any, then: str) -> None:
        self.a_node(node, "4")
        self.steps_fail(name=name, first=first)
        self.a_pod(name, "g0", node, "Running", app="a", port=False, affinity=affinity)
        self.a_pod(name, "g0", then, "Running" if then else "Pending", app="b", port=True, affinity=None)
        self.is_mended_and_is_what_the_caches_show()

    @rule()
    def a_cycle_begins(self) -> None:
        self._snapshot()

    def _snapshot(self) -> None:
        """What a leader does for a snapshot: once more for each object that is to be left out."""
        for _ in range(20):
            try:
                if self.derived.stale:
                    self.state.rebuild(self.informers.tell_all)
                    self.derived.stale = False
                self.state.snapshot()
            except leadership.BlamedError as error:
                blamed = error
            else:
                return
            assert isinstance(blamed.__cause__, Exception)
            assert self.informers.quarantine(blamed.culprit, blamed.__cause__)
        pytest.fail("each round quarantines an object, and there aren't so many")

    @rule()
    def is_mended_and_is_what_the_caches_show(self) -> None:
        self.poisoned.names.clear()
        self._snapshot()
        for kind in (kinds.NODES, kinds.PODGROUPS, kinds.VOLUMES, kinds.PODS):
            cache = self.informers.cache(kind)
            assert all(map(cache.retry, cache.quarantined))
            assert not cache.quarantined
        assert not self.derived.stale
        fresh = SchedulerState((names.SCHEDULER_NAME,))
        fresh.rebuild(self.informers.tell_all)
        for uid, node in self.state.cluster._pods.under_way()[0].items():
            fresh.cluster.assume(uid, node)
        assert shown(self.state.cluster) == shown(fresh.cluster)
        assert tasks_of(self.state.cluster) == tasks_of(fresh.cluster)
        assert self.state.cluster.storage.view().volumes == fresh.cluster.storage.view().volumes
        self.state.cluster.validate()


def _with(item: Any, **metadata: str) -> Any:
    return replace(item, metadata=replace(item.metadata, **metadata))


Healing.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestHealing = Healing.TestCase


def test_what_is_under_way_survives_that_the_state_is_made_anew():
    informers, state = Informers(legacy_apis=False), SchedulerState((names.SCHEDULER_NAME,))
    informers.feed(lambda kind, item, gone: state.handle(ObjectChanged(kind, item, gone)), DerivedState())
    status = {"allocatable": {"cpu": "9", "memory": "4Gi", "pods": "9"}}
    informers.cache(kinds.NODES).put(made(kinds.NODES, {"metadata": {"name": "n0", "uid": "n0"}, "status": status}))
    group = {"metadata": {"name": "g0", "namespace": "ns", "uid": "g0", "resourceVersion": "1"}}
    informers.cache(kinds.PODGROUPS).put(made(kinds.PODGROUPS, group))
    for name in ("placed", "leaving", "spared", "waiting"):
        informers.pods.put(pod(name, "g0", "n0" if name in {"leaving", "spared"} else "", "Running"))
    key = GroupKey(kinds.PODGROUPS.group, "ns", "g0")
    cluster = state.cluster
    cluster.assume("placed", "n0")
    cluster.evicting("leaving")
    cluster.spare("spared")
    cluster.nominate({"waiting": "n0"})
    cluster.remember(None, {key: 7.0})
    cluster.group(key.group, made(kinds.PODGROUPS, group | {"status": {"phase": "Inqueue"}}))
    cluster.refused(key, "no quota")
    cluster.close_nodes(frozenset({"n0"}))
    before, jobs = shown(cluster), tasks_of(cluster)
    state.rebuild(informers.tell_all)
    assert state.cluster is not cluster
    assert (shown(state.cluster), tasks_of(state.cluster)) == (before, jobs)
    one, other = cluster.snapshot(), state.cluster.snapshot()
    assert (
        (other.nominated, other.partially_bound)
        == (one.nominated, one.partially_bound)
        == ({"waiting": "n0"}, {key: 7.0})
    )
    assert (other.jobs[0].unreserved, other.jobs[0].phase.value, other.table.closed) == ("no quota", "Inqueue", {"n0"})
    assert other.revision != one.revision
    informers.pods.drop(pod("placed", "g0", "", "Running"))
    state.rebuild(informers.tell_all)
    assert "placed" not in state.cluster._pods.under_way()[0]


# ── through the loop ─────────────────────────────────────────────────────────────────────────────────────────────

CONTAINER = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
SELECTOR = {"matchLabels": {"app": "poison"}}
OBJECTS: dict[Any, dict[str, Any]] = {
    kinds.NODES: {"status": {"allocatable": {"cpu": "1"}}},
    kinds.PODS: {"spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [CONTAINER], "nodeName": "crowded"}},
    kinds.JOBS: {"spec": {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}},
    kinds.PRIORITYCLASSES: {"value": 7},
    kinds.NAMESPACES: {},
    kinds.DISRUPTIONBUDGETS: {"spec": {"minAvailable": 1, "selector": SELECTOR}},
    kinds.RESOURCEQUOTAS: {"spec": {"hard": {"cpu": "9"}}},
    kinds.CLAIMS: {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    kinds.VOLUMES: {
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/x"}}
    },
    kinds.STORAGECLASSES: {"provisioner": "example.com/p"},
    kinds.CSINODES: {"spec": {"drivers": []}},
    kinds.PODGROUPS: {"spec": {"minMember": 1}},
    kinds.QUEUES: {"spec": {"weight": 2}},
}
"""An object of each kind that the leader's state follows."""
UNREADABLE = "muster_scheduler_unreadable_objects"

sandbox = pytest.mark.only(
    "sandbox", reason="pauses of minutes, and what is in a worker, are seen in virtual time only"
)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of objects of which the leader's state can't take in a change, each with half of it done."""
    handle, found = SchedulerState.handle, {"poison"}

    def failing(state: SchedulerState, event: Any) -> bool:
        changed = handle(state, event)
        if isinstance(event, ObjectChanged) and event.item.name in found:
            raise RuntimeError("nobody foresaw it")
        return changed

    monkeypatch.setattr(SchedulerState, "handle", failing)
    learn = leadership.SchedulerState.rebuild

    def rebuild(state: SchedulerState, tell_all: Any) -> None:
        def tell(each: Any) -> bool:
            def one(kind: Any, item: Any) -> None:
                each(kind, item)
                if item.name in found:
                    raise RuntimeError("nobody foresaw it")

            return bool(tell_all(one))

        learn(state, tell)

    monkeypatch.setattr(SchedulerState, "rebuild", rebuild)
    return found


def unknown(world: Any, kind: Any) -> float | None:
    found: float | None = world.worker.metrics.registry.get_sample_value(UNREADABLE, {"kind": str(kind)})
    return found


async def gang(world: Any, name: str, node: str) -> None:
    """See to it that a gang is placed."""
    meta = {"name": name, "annotations": {names.GROUP_NAME: name}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [CONTAINER]}
    await world.create(
        {
            "apiVersion": kinds.PODGROUPS.api_version,
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": 1},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec},
    )
    found = await world.becomes(kinds.PODS, name, lambda one: one.spec.node_name, within=10)
    assert found.spec.node_name == node


@sandbox
@pytest.mark.parametrize("kind", OBJECTS, ids=str)
async def test_an_object_that_can_not_be_followed_is_quarantined_and_the_others_go_on(world, poisoned, caplog, kind):
    node = await world.node("8")
    await world.work()
    leading = world.worker._term
    where = world.namespace if kind.namespaced else ""
    body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "poison"}, **OBJECTS[kind]}
    stored = await world.plane.create(kind, body, where)
    await gang(world, "first", node)
    await asyncio.sleep(30)
    await gang(world, "second", node)
    assert (unknown(world, kind), world.worker._term) == (1, leading)
    assert caplog.text.count("a subscriber failed on ADDED") == 1  # though it was tried again and again
    events = (await world.client.list(kinds.EVENTS, world.namespace if where else "default")).items
    about = [each for each in events if each.reason == "Unreadable" and each.involved_object["name"] == "poison"]
    assert [(each.involved_object["kind"], each.involved_object["uid"]) for each in about] == [
        (kind.name, stored.metadata.uid)
    ]
    assert "RuntimeError: nobody foresaw it" in about[0].message

    poisoned.clear()
    await asyncio.sleep(60)
    assert unknown(world, kind) is None
    informers, state = leading._informers, leading._state
    fresh = SchedulerState((names.SCHEDULER_NAME,))
    fresh.rebuild(informers.tell_all)
    assert shown(state.cluster) == shown(fresh.cluster)
    assert tasks_of(state.cluster) == tasks_of(fresh.cluster)
    state.cluster.validate()
    await gang(world, "third", node)


async def test_what_can_not_be_followed_has_an_event_that_kubectl_describe_finds(world, poisoned):
    node = await world.node("8")
    await world.work()
    meta = {"name": "poison"}
    await world.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, **OBJECTS[kinds.PODS]})
    await gang(world, "honest", node)
    stored = await world.client.get(kinds.PODS, "poison", world.namespace)
    # What `kubectl describe pod` asks for.
    about = f"involvedObject.name=poison,involvedObject.namespace={world.namespace},involvedObject.uid={stored.metadata.uid}"
    asked = Request("GET", kinds.EVENTS.path(world.namespace), {"fieldSelector": about})

    async def described() -> list[Any]:
        while True:
            answer = await world.client.send(asked)
            found = [each for each in json.loads(answer.body)["items"] if each["reason"] == "Unreadable"]
            if found:
                return found
            await asyncio.sleep(0.2)

    (event,) = await asyncio.wait_for(described(), 60)
    assert (event["type"], event["involvedObject"]["kind"]) == ("Warning", "Pod")
    assert event["message"].startswith("Muster can't read this Pod and counts what it takes as unknown: ")
    assert event["message"].endswith("; correct or delete it")
    assert unknown(world, kinds.PODS) == 1


# ── in a cycle, and in a controller ──────────────────────────────────────────────────────────────────────────────


@sandbox
@pytest.mark.parametrize("where", ["making its job", "deciding"])
async def test_a_group_that_a_cycle_fails_with_is_quarantined_and_the_others_go_on(world, monkeypatch, caplog, where):
    poisoned = {"poison"}
    if where == "deciding":
        decide = leadership.decide

        def failing(snapshot: Any, *more: Any) -> Any:
            if any(job.key.name in poisoned for job in snapshot.jobs):
                raise ZeroDivisionError("nobody foresaw it")
            return decide(snapshot, *more)

        monkeypatch.setattr(leadership, "decide", failing)
    else:
        monkeypatch.setattr(conversion, "sla_of", lambda group: 1 // 0 if group.name in poisoned else None)
    node = await world.node("8")
    await world.work()
    leading = world.worker._term
    await gang(world, "before", node)
    group = {"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "poison"}}
    await world.create(group | {"spec": {"minMember": 1}})
    await gang(world, "after", node)
    await asyncio.sleep(20)
    await gang(world, "later", node)
    assert (world.worker._term, unknown(world, kinds.PODGROUPS)) == (leading, 1)
    assert "PodGroup" in caplog.text
    poisoned.clear()
    await asyncio.sleep(60)
    assert unknown(world, kinds.PODGROUPS) is None
    await world.phase("poison", "Inqueue")


@sandbox
async def test_a_cycle_that_fails_with_no_group_is_tried_again_and_then_left_to_another_leader(
    world, monkeypatch, caplog
):
    decide, broken = leadership.decide, True

    def failing(*given: Any) -> Any:
        if broken:
            raise ZeroDivisionError("nobody foresaw it")
        return decide(*given)

    node = await world.node("8")
    monkeypatch.setattr(leadership, "decide", failing)
    await world.work()
    await asyncio.sleep(3)
    assert caplog.text.count("the cycle is tried again") == 1
    broken = False
    await gang(world, "g", node)
    broken = True
    world.worker.adopt(world.policy)
    await asyncio.sleep(60)
    with pytest.raises(ExceptionGroup) as caught:
        await world.stop()
    assert caught.group_contains(ZeroDivisionError)


@sandbox
async def test_an_object_that_a_controller_fails_with_does_not_end_the_leader(world, monkeypatch, caplog):
    reconcile = podgroups.PodGroupController._reconcile
    poisoned = {"poison"}

    async def failing(controller: Any, key: Any) -> None:
        if key.name in poisoned:
            raise ZeroDivisionError("nobody foresaw it")
        await reconcile(controller, key)

    monkeypatch.setattr(podgroups.PodGroupController, "_reconcile", failing)
    await world.node("8")
    await world.work()
    leading = world.worker._term
    for name in ("poison", "other"):
        meta = {"name": name, "namespace": world.namespace}
        spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [CONTAINER]}
        await world.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    await world.becomes(kinds.PODS, "other", lambda one: one.spec.node_name)
    await asyncio.sleep(60)
    assert world.worker._term is leading
    assert caplog.text.count("an error in Muster") == 1
    poisoned.clear()
    await world.becomes(kinds.PODS, "poison", lambda one: one.spec.node_name, within=120)


# ── nodes with what can't be read ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> set[bytes]:
    """Texts that no object with one of them in it can be read for."""
    decode_shallow, found = decoding.decode_shallow, set[bytes]()

    def failing(decode: Any, text: Any) -> Any:
        typed = decode.__self__.type
        if typed in {kinds.PODS.struct, decoding._Wire[kinds.PODS.struct]} and any(
            each in bytes(text) for each in found
        ):
            raise RecursionError("no decoder goes as deep")
        return decode_shallow(decode, text)

    monkeypatch.setattr(decoding, "decode_shallow", failing)
    return found


@sandbox
@pytest.mark.parametrize("end", ["it goes", "it can be read"])
async def test_a_node_with_a_pod_that_can_not_be_read_takes_no_more_pods(world, unreadable, end):
    node = await world.node("8")
    meta = {"name": "illegible"}
    spec = {"schedulerName": "another", "containers": [CONTAINER], "nodeName": node, "terminationGracePeriodSeconds": 0}
    await world.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    unreadable.add(b'"illegible"')
    await world.work()
    group = {"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "g"}}
    mine = {"schedulerName": names.SCHEDULER_NAME, "containers": [CONTAINER]}
    meta = {"name": "p", "annotations": {names.GROUP_NAME: "g"}}
    await world.create(
        group | {"spec": {"minMember": 1}}, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": mine}
    )
    words = "1 node is closed, for a pod there can't be read"
    await world.becomes(
        kinds.PODGROUPS, "g", lambda one: any(words in each.message for each in one.status.conditions or ()), within=20
    )
    assert not (await world.client.get(kinds.PODS, "p", world.namespace)).spec.node_name
    if end == "it goes":
        await world.client.delete(kinds.PODS, "illegible", world.namespace)
    else:
        unreadable.clear()
        await world.patch(kinds.PODS, "illegible", {"metadata": {"labels": {"more": "legible"}}})
    await world.becomes(kinds.PODS, "p", lambda one: one.spec.node_name, within=5)
