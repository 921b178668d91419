"""What a scripted server can't vouch for: that API servers accept and mean what the client believes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from plane import PATIENCE, running

from muster.kube import errors
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.events import EventRecorder
from muster.kube.fence import FencedTransport
from muster.kube.lease import LeaderElector, LeaseTiming
from muster.kube.reflector import Reflector
from muster.kube.transport import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Request
from muster.model import kinds
from muster.model.kinds import CONFIGMAPS, DISRUPTIONBUDGETS, EVENTS, LEASES, NAMESPACES, PODGROUPS, PODS, QUEUES

CONTAINER = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}


def config(name, **data):
    return {"metadata": {"name": name}, "data": data}


def pod(name, **labels):
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [CONTAINER], "schedulerName": "test"}}


def budget(name, minimum):
    return {"metadata": {"name": name}, "spec": {"minAvailable": minimum, "selector": {"matchLabels": {"app": "x"}}}}


POD_TEMPLATE = {
    "metadata": {"labels": {"app": "x"}, "annotations": {}},
    "spec": {"containers": [CONTAINER], "tolerations": []},
}
EMPTY = {
    kinds.NODES: {
        "spec": {"taints": [], "podCIDRs": []},
        "status": {"images": [], "conditions": [], "allocatable": {}},
    },
    kinds.PODS: {"spec": {**POD_TEMPLATE["spec"], "volumes": [], "nodeSelector": {}, "schedulerName": "test"}},
    kinds.CONFIGMAPS: {"data": {}},
    kinds.SECRETS: {"data": {}},
    kinds.RESOURCEQUOTAS: {"spec": {"hard": {}, "scopes": []}},
    kinds.DISRUPTIONBUDGETS: {"spec": {"selector": {"matchExpressions": []}, "minAvailable": 1}},
    kinds.STORAGECLASSES: {
        "provisioner": "x.example.com",
        "allowedTopologies": [],
        "mountOptions": [],
        "parameters": {},
    },
    kinds.CSINODES: {"spec": {"drivers": []}},
    kinds.JOBS: {"spec": {"suspend": True, "template": {"spec": POD_TEMPLATE["spec"] | {"restartPolicy": "Never"}}}},
    kinds.DEPLOYMENTS: {"spec": {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": POD_TEMPLATE}},
    kinds.STATEFULSETS: {"spec": {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": POD_TEMPLATE}},
    kinds.LEASES: {"spec": {}},
    kinds.PODGROUPS: {"spec": {"minMember": 1, "minResources": {}}},
    kinds.QUEUES: {"spec": {"capability": {}}},
}


async def bound(client, namespace, node, *names):
    """Create pods and bind them; give their uids."""
    uids = {}
    for name in names:
        made = await client.create(PODS, pod(name, app="x"), namespace)
        uids[name] = made.metadata.uid
        await client.bind(namespace, name, made.metadata.uid, node)
    return uids


@pytest.mark.parametrize("kind", EMPTY, ids=str)
async def test_lists_and_maps_that_are_empty_can_be_read_back(plane, kind):
    namespace = await plane.namespace() if kind.namespaced else ""
    made = await plane.create(kind, {"metadata": {"name": "empty-lists"}} | EMPTY[kind], namespace)
    try:
        listing = await plane.client.list(kind, namespace)
        assert listing.unreadable == ()
        assert made.name in {each.name for each in listing.items}
    finally:
        await plane.client.delete(kind, made.name, namespace)


async def test_a_view_follows_a_namespace_through_more_than_one_page(plane, monkeypatch):
    monkeypatch.setattr("muster.kube.client.PAGE", 3)
    client, namespace = plane.client, await plane.namespace()
    for number in range(8):
        await client.create(CONFIGMAPS, {"metadata": {"name": f"c{number}"}}, namespace)
    cache, told = ObjectCache(), []
    cache.subscribe(lambda change: told.append((change.type, (change.new or change.old).name)))
    reflector = Reflector(client, CONFIGMAPS, cache, namespace=namespace)
    async with asyncio.timeout(PATIENCE), running(reflector.run()):
        await reflector.wait_synced()
        told.clear()
        await client.patch(CONFIGMAPS, "c1", {"data": {"a": "b"}}, namespace)
        await client.delete(CONFIGMAPS, "c2", namespace)
        last = await client.create(CONFIGMAPS, {"metadata": {"name": "last"}}, namespace)
        await cache.reached(last.metadata.resource_version)
    # Kubernetes puts a ConfigMap of its own into each namespace, when it gets to it.
    assert [each for each in told if each[1] != "kube-root-ca.crt"] == [
        ("MODIFIED", "c1"),
        ("DELETED", "c2"),
        ("ADDED", "last"),
    ]
    assert cache.get("c1", namespace).data == {"a": "b"}
    assert {each.name for each in cache.items()} >= {"c0", "c7", "last"}


async def test_a_view_by_labels_loses_what_no_longer_matches(plane):
    client, namespace = plane.client, await plane.namespace()
    for name in ("a", "b"):
        await client.create(PODS, pod(name, app="x"), namespace)
    cache = ObjectCache()
    reflector = Reflector(client, PODS, cache, namespace=namespace, labels="app=x")
    async with asyncio.timeout(PATIENCE), running(reflector.run()):
        await reflector.wait_synced()
        relabelled = await client.patch(PODS, "a", {"metadata": {"labels": {"app": "y"}}}, namespace)
        await cache.reached(relabelled.metadata.resource_version)
        assert [each.name for each in cache.items()] == ["b"]


async def test_a_list_selects_by_labels_and_by_fields(plane):
    client, namespace = plane.client, await plane.namespace()
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        await client.create(PODS, pod(name, app=app), namespace)
    listed = await client.list(PODS, namespace, labels="app in (x)", fields="metadata.name!=a")
    assert [each.name for each in listed.items] == ["b"]


async def test_each_kind_of_patch_changes_what_it_says(plane):
    client, namespace = plane.client, await plane.namespace()
    await client.create(PODS, pod("p", app="x"), namespace)
    merged = await client.patch(
        PODS, "p", {"metadata": {"labels": {"app": None, "a": "1"}}}, namespace, content_type=MERGE_PATCH
    )
    assert merged.metadata.labels == {"a": "1"}
    operations = [{"op": "test", "path": "/metadata/labels/a", "value": "1"}]
    operations += [{"op": "add", "path": "/metadata/labels/b", "value": "2"}]
    patched = await client.patch(PODS, "p", operations, namespace, content_type=JSON_PATCH)
    assert patched.metadata.labels == {"a": "1", "b": "2"}
    change = {"metadata": {"labels": {"c": "3"}}, "spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}
    strategic = await client.patch(PODS, "p", change, namespace, content_type=STRATEGIC_PATCH)
    assert strategic.metadata.labels == {"a": "1", "b": "2", "c": "3"}
    # A container that is named as before is the same one: what the patch doesn't mention stays.
    assert [each.resources.requests for each in strategic.spec.containers] == [{"cpu": "1"}]
    wrong = [{"op": "test", "path": "/metadata/labels/a", "value": "2"}]
    with pytest.raises(errors.InvalidError):
        await client.patch(PODS, "p", wrong, namespace, content_type=JSON_PATCH)


async def test_an_old_version_is_never_written_over_a_newer_one(plane):
    client, namespace = plane.client, await plane.namespace()
    first = await client.create(CONFIGMAPS, config("c", a="1"), namespace)
    await client.patch(CONFIGMAPS, "c", {"data": {"a": "2"}}, namespace)
    stale = {"metadata": {"name": "c", "resourceVersion": first.metadata.resource_version}, "data": {"a": "3"}}
    with pytest.raises(errors.ConflictError):
        await client.replace(CONFIGMAPS, stale, namespace)
    with pytest.raises(errors.ConflictError):
        await client.delete(CONFIGMAPS, "c", namespace, uid="of another")
    assert (await client.get(CONFIGMAPS, "c", namespace)).data == {"a": "2"}


async def test_apply_owns_what_it_says_and_takes_over_only_by_force(plane):
    client, namespace = plane.client, await plane.namespace()
    await client.apply(CONFIGMAPS, config("c", a="1", b="1"), namespace, manager="one")
    with pytest.raises(errors.ConflictError, match='conflict with "one"'):
        await client.apply(CONFIGMAPS, config("c", a="2"), namespace, manager="two", force=False)
    taken = await client.apply(CONFIGMAPS, config("c", a="2"), namespace, manager="two")
    assert taken.data == {"a": "2", "b": "1"}
    # What nobody says any more goes; what another owns stays.
    left = await client.apply(CONFIGMAPS, config("c"), namespace, manager="one")
    assert left.data == {"a": "2"}


async def test_what_exists_or_is_missing_or_makes_no_sense_is_told_apart(plane):
    client, namespace = plane.client, await plane.namespace()
    await client.create(CONFIGMAPS, config("c"), namespace)
    with pytest.raises(errors.AlreadyExistsError, match='configmaps "c" already exists'):
        await client.create(CONFIGMAPS, config("c"), namespace)
    assert await client.find(CONFIGMAPS, "none", namespace) is None
    with pytest.raises(errors.NotFoundError, match='namespaces "no-such-one" not found'):
        await client.create(CONFIGMAPS, config("c"), "no-such-one")
    with pytest.raises(errors.InvalidError, match=r"spec\.minMember"):
        await client.create(PODGROUPS, {"metadata": {"name": "g"}, "spec": {"minMember": -1}}, namespace)
    with pytest.raises(errors.BadRequestError):
        await client.send(Request("POST", CONFIGMAPS.path(namespace), {}, b"{"))


async def test_a_dry_run_stores_nothing(plane):
    client, namespace = plane.client, await plane.namespace()
    tried = await client.create(CONFIGMAPS, config("c", a="1"), namespace, dry_run=True)
    assert (tried.data, bool(tried.metadata.uid)) == ({"a": "1"}, True)
    assert await client.find(CONFIGMAPS, "c", namespace) is None


async def test_the_status_of_our_kinds_is_written_apart_from_the_rest(plane):
    client, namespace = plane.client, await plane.namespace()
    made = await client.create(PODGROUPS, {"metadata": {"name": "g"}, "spec": {"minMember": 2}}, namespace)
    change = {"spec": {"minMember": 9}, "status": {"phase": "Inqueue"}}
    changed = await client.patch(PODGROUPS, "g", change, namespace, subresource="status")
    assert (changed.spec.min_member, changed.status.phase) == (2, "Inqueue")
    assert changed.metadata.resource_version != made.metadata.resource_version
    queue = await plane.create(QUEUES, {"metadata": {"name": plane.unique("q")}, "status": {"state": "Closed"}})
    assert queue.status.state != "Closed"


async def test_a_pod_is_bound_once_and_only_that_very_pod(plane):
    client, namespace = plane.client, await plane.namespace()
    node = await plane.node("4")
    made = await client.create(PODS, pod("p"), namespace)
    with pytest.raises(errors.ConflictError):
        await client.bind(namespace, "p", "uid-of-another", node)
    await client.bind(namespace, "p", made.metadata.uid, node)
    with pytest.raises(errors.ConflictError):
        await client.bind(namespace, "p", made.metadata.uid, node)
    run = await plane.until(PODS, "p", namespace, lambda found: found and found.status.phase == "Running")
    assert run.spec.node_name == node


async def test_an_eviction_respects_a_budget(plane):
    client, namespace = plane.client, await plane.namespace()
    node = await plane.node("4")
    await client.create(DISRUPTIONBUDGETS, budget("b", minimum=1), namespace)
    uids = await bound(client, namespace, node, "a", "b")
    await plane.until(DISRUPTIONBUDGETS, "b", namespace, lambda found: found.status.disruptions_allowed == 1)
    await client.evict(namespace, "a", uids["a"])
    await plane.until(PODS, "a", namespace, lambda found: found is None)
    with pytest.raises(errors.TooManyRequestsError, match="disruption budget"):
        await client.evict(namespace, "b", uids["b"])


async def test_an_eviction_of_a_pod_that_was_another_one_evicts_nothing_but_uses_the_budget(plane):
    client, namespace = plane.client, await plane.namespace()
    node = await plane.node("4")
    await client.create(DISRUPTIONBUDGETS, budget("b", minimum=1), namespace)
    uids = await bound(client, namespace, node, "a", "b")
    await plane.until(DISRUPTIONBUDGETS, "b", namespace, lambda found: found.status.disruptions_allowed == 1)
    with pytest.raises(errors.ConflictError, match=r"the UID in the precondition \(uid-of-another\) does not match"):
        await client.evict(namespace, "a", "uid-of-another")
    assert (await client.get(PODS, "a", namespace)).metadata.deletion_timestamp is None
    with pytest.raises(errors.TooManyRequestsError, match="disruption budget"):
        await client.evict(namespace, "b", uids["b"])


async def test_a_lease_is_taken_renewed_and_released(plane):
    namespace, held = await plane.namespace(), asyncio.Event()
    timing = LeaseTiming(lease=3.0, renew=2.0, retry=0.2)

    async def lead(fence):
        held.set()
        await asyncio.Event().wait()

    elector = LeaderElector(plane.client, namespace, "worker", "test", plane.clock, timing)
    async with running(elector.run(lead)):
        async with asyncio.timeout(PATIENCE):
            await held.wait()
        taken = await plane.client.get(LEASES, "worker", namespace)
        renewed = await plane.until(
            LEASES, "worker", namespace, lambda found: found.spec.renew_time != taken.spec.renew_time
        )
        assert (renewed.spec.holder_identity, renewed.spec.lease_transitions) == (elector.identity, 0)
    assert not (await plane.client.get(LEASES, "worker", namespace)).spec.holder_identity


async def test_the_next_leader_takes_over_and_the_last_one_can_not_write(plane):
    client, namespace = plane.client, await plane.namespace()
    led: asyncio.Queue = asyncio.Queue()
    timing = LeaseTiming(lease=3.0, renew=2.0, retry=0.2)

    def leads(name):
        async def lead(fence):
            fenced = Client(FencedTransport(plane.transport, fence))
            await fenced.create(CONFIGMAPS, config(name), namespace)
            led.put_nowait((name, fence, fenced))
            await asyncio.Event().wait()

        return lead

    electors = {name: LeaderElector(client, namespace, "worker", name, plane.clock, timing) for name in ("one", "two")}
    async with asyncio.timeout(PATIENCE):
        async with running(electors["one"].run(leads("one"))):
            _, first, fenced = await led.get()
            second = asyncio.create_task(electors["two"].run(leads("two")))
            # It stands beside it, and sees who leads.
            while not electors["two"].leader:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.05)
            assert electors["two"].leader == electors["one"].identity
            assert led.empty()
        async with running(second):
            name, *_ = await led.get()
            assert (name, first.live) == ("two", False)
            with pytest.raises(errors.FenceLostError):
                await fenced.create(CONFIGMAPS, config("late"), namespace)
            lease = await client.get(LEASES, "worker", namespace)
            assert (lease.spec.holder_identity, lease.spec.lease_transitions) == (electors["two"].identity, 1)


async def test_events_are_accepted_and_counted(plane):
    client, namespace = plane.client, await plane.namespace()
    about = await client.create(CONFIGMAPS, {"metadata": {"name": "about"}}, namespace)
    recorder = EventRecorder(client, plane.clock, "muster-test")
    recorder.record(CONFIGMAPS, about, "Tested", "a message", type_="Warning")
    recorder.record(NAMESPACES, await client.get(NAMESPACES, namespace), "Tested", "cluster-scoped")
    (series, other) = recorder._series.values()
    await recorder._send(series)
    series.count, series.last = 5, datetime(2030, 1, 1, tzinfo=UTC)
    await recorder._send(series)
    await recorder._send(other)
    (event,) = (await client.list(EVENTS, namespace, fields="involvedObject.name=about")).items
    assert (event.type, event.reason, event.message, event.count) == ("Warning", "Tested", "a message", 5)
    assert other.written


@pytest.mark.only("kubernetes", reason="the sandbox refuses such a body with 400, so nobody gets to see it")
@pytest.mark.parametrize("depth", [1200, 4900])
async def test_a_pod_with_deep_managed_fields_stops_nobody(plane, depth):
    """Anybody may write them: 11 KB that a decoder can't go down into."""
    client, namespace = plane.client, await plane.namespace()
    fields = b'{"f:a":' * depth + b"{}" + b"}" * depth
    body = (
        b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"deep","managedFields":[{"manager":"m","operation":"Update",'
        b'"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":' + fields + b"}]},"
        b'"spec":{"containers":[{"name":"main","image":"busybox"}]}}'
    )
    cache, later = ObjectCache(), ObjectCache()
    reflector, fresh = (Reflector(client, PODS, each, namespace=namespace) for each in (cache, later))
    async with asyncio.timeout(PATIENCE), running(reflector.run()):
        await reflector.wait_synced()
        answer = await plane.transport.request(Request("POST", PODS.path(namespace), body=body), within=PATIENCE)
        assert answer.status == 201, answer.body[:300]
        last = await client.create(PODS, pod("after"), namespace)
        await cache.reached(last.metadata.resource_version)
        async with running(fresh.run()):
            await fresh.wait_synced()
    assert {each.name for each in cache.items()} == {each.name for each in later.items()} == {"deep", "after"}
