"""Writes and reads of objects: versions, names, deletion, paging, dry run, and what the sandbox refuses to pretend."""

import base64
import re
from datetime import UTC, datetime

import pytest

from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.transport import Request
from muster.model import kinds
from muster.sandbox.core.users import ADMIN
from muster.sandbox.inprocess import InProcessTransport
from muster.sandbox.server.requests import ApiServer
from muster.sandbox.server.responses import warning_header

CORE = "/api/v1/namespaces/default"
MAPS = f"{CORE}/configmaps"
PODS = f"{CORE}/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def config(name, **data):
    return {"metadata": {"name": name}, "data": data}


# ── versions ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_stale_replacement_and_a_stale_patch_are_conflicts(api):
    old = await api.post(MAPS, config("a", k="1"))
    await api.merge(f"{MAPS}/a", {"data": {"k": "2"}})
    status, answer = await api.send("PUT", f"{MAPS}/a", {**old, "data": {"k": "3"}})
    assert (status, answer["reason"]) == (409, "Conflict")
    version = old["metadata"]["resourceVersion"]
    pinned = {"metadata": {"resourceVersion": version}, "data": {"k": "4"}}
    status, _ = await api.send("PATCH", f"{MAPS}/a", pinned, "application/merge-patch+json")
    assert status == 409
    assert (await api.get(f"{MAPS}/a"))["data"] == {"k": "2"}


async def test_a_write_without_effect_keeps_version_and_tells_no_watch(api, events):
    old = await api.post(MAPS, config("a", k="1"))
    watch = events(api.watch(f"{MAPS}?resourceVersion={old['metadata']['resourceVersion']}"))
    assert await api.merge(f"{MAPS}/a", {"data": {"k": "1"}}) == old
    assert await api.ok("PUT", f"{MAPS}/a", old) == old
    assert watch.waiting() == []


async def test_generation_counts_changes_of_the_spec_not_of_labels_or_status(api, pod):
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.post(path, {"metadata": {"name": "d"}, "spec": spec})
    await api.merge(f"{path}/d", {"metadata": {"labels": {"x": "y"}}})
    assert (await api.merge(f"{path}/d/status", {"status": {"replicas": 1}}))["metadata"]["generation"] == 1
    assert (await api.merge(f"{path}/d", {"spec": {"replicas": 5}}))["metadata"]["generation"] == 2


async def test_a_status_written_to_the_object_and_a_spec_written_to_its_status_are_dropped(api, pod):
    await api.post(PODS, pod())
    assert (await api.merge(f"{PODS}/p", {"status": {"phase": "Running"}}))["status"]["phase"] == "Pending"
    changed = await api.merge(f"{PODS}/p/status", {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}})
    assert changed["status"]["phase"] == "Running"
    assert "nodeName" not in changed["spec"]


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_generated_name_has_five_letters_behind_its_prefix(api):
    made = await api.post(MAPS, {"metadata": {"generateName": "x-"}})
    assert re.fullmatch(r"x-[bcdfghjklmnpqrstvwxz2456789]{5}", made["metadata"]["name"])


async def test_a_generated_name_that_is_always_taken_is_refused_after_eight_tries(api, monkeypatch):
    tried = []

    def taken(prefix):
        tried.append(prefix)
        return "taken"

    await api.post(MAPS, config("taken"))
    monkeypatch.setattr(api.server._completer._identities, "name", taken)
    status, answer = await api.send("POST", MAPS, {"metadata": {"generateName": "x-"}})
    assert (status, answer["reason"], len(tried)) == (409, "AlreadyExists", 8)
    assert "not able to generate a unique name" in answer["message"]


async def test_the_same_seed_gives_the_same_uids():
    uids = []
    for _ in range(2):
        server = ApiServer(LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), seed=7)
        namespaces = server.registry.find("", "v1", "namespaces")
        made = await server.create_object(namespaces, "", {"metadata": {"name": "a"}}, ADMIN)
        uids.append(made["metadata"]["uid"])
    assert uids[0] == uids[1]


# ── deletion ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_finalizer_holds_an_object_until_it_is_taken_away(api):
    await api.post(MAPS, {"metadata": {"name": "a", "finalizers": ["x.y/z"]}})
    held = await api.ok("DELETE", f"{MAPS}/a")
    assert held["metadata"]["deletionTimestamp"] == "2026-11-21T12:00:00Z"
    await api.merge(f"{MAPS}/a", {"metadata": {"finalizers": None}})
    assert (await api.send("GET", f"{MAPS}/a"))[0] == 404


async def test_a_pod_on_a_node_waits_for_its_kubelet_and_one_without_goes_at_once(api, pod):
    await api.post(PODS, pod("free"))
    await api.ok("DELETE", f"{PODS}/free")
    assert (await api.send("GET", f"{PODS}/free"))[0] == 404
    await api.post(PODS, pod("bound", nodeName="n"))
    leaving = await api.ok("DELETE", f"{PODS}/bound")
    assert leaving["metadata"]["deletionTimestamp"] == "2026-11-21T12:00:30Z"
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
    shortened = await api.ok("DELETE", f"{PODS}/bound", {"gracePeriodSeconds": 5})
    assert shortened["metadata"]["deletionTimestamp"] == "2026-11-21T12:00:05Z"
    await api.ok("DELETE", f"{PODS}/bound", {"gracePeriodSeconds": 0})
    assert (await api.send("GET", f"{PODS}/bound"))[0] == 404


@pytest.mark.parametrize(
    ("policy", "finalizers"), [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"]), ("Background", None)]
)
async def test_a_propagation_policy_leaves_its_finalizer(api, policy, finalizers):
    await api.post(MAPS, config("a"))
    await api.ok("DELETE", f"{MAPS}/a", {"propagationPolicy": policy})
    left = api.store.get(("", "configmaps"), "default", "a")
    assert (left and left["metadata"]["finalizers"]) == finalizers


async def test_preconditions_protect_another_object_of_the_same_name(api):
    made = await api.post(MAPS, config("a"))
    status, answer = await api.send("DELETE", f"{MAPS}/a", {"preconditions": {"uid": "other"}})
    assert (status, answer["reason"]) == (409, "Conflict")
    assert "The object might have been deleted and then recreated" in answer["message"]
    await api.ok("DELETE", f"{MAPS}/a", {"preconditions": {"uid": made["metadata"]["uid"]}})


async def test_a_collection_is_deleted_as_far_as_the_selector_goes(api):
    for name, label in (("a", "1"), ("b", "2")):
        await api.post(MAPS, {"metadata": {"name": name, "labels": {"x": label}}})
    await api.ok("DELETE", f"{MAPS}?labelSelector=x%3D1")
    assert [each["metadata"]["name"] for each in (await api.get(MAPS))["items"]] == ["b"]


async def test_a_budget_that_allows_nothing_keeps_its_pods_and_says_what_it_needs(api, pod):
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await api.post(budgets, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {}}})
    counted = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    await api.merge(f"{budgets}/b/status", {"status": counted})
    await api.post(PODS, pod(nodeName="n"))
    ready = [{"type": "Ready", "status": "True"}]
    await api.merge(f"{PODS}/p/status", {"status": {"phase": "Running", "conditions": ready}})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    status, answer = await api.send("POST", f"{PODS}/p/eviction", eviction)
    assert status == 429
    assert answer["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    [cause] = answer["details"]["causes"]
    assert cause["message"] == "The disruption budget b needs 1 healthy pods and has 1 currently"
    await api.merge(f"{budgets}/b/status", {"status": {"disruptionsAllowed": 1}})
    await api.ok("POST", f"{PODS}/p/eviction", eviction)
    assert (await api.get(f"{budgets}/b"))["status"]["disruptionsAllowed"] == 0


async def test_a_namespace_that_goes_takes_nothing_new_in_and_leaves_with_its_finalizer(api):
    await api.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
    await api.ok("DELETE", "/api/v1/namespaces/n")
    status, answer = await api.send("POST", "/api/v1/namespaces/n/configmaps", config("a"))
    assert (status, answer["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    await api.ok("PUT", "/api/v1/namespaces/n/finalize", {"metadata": {"name": "n"}, "spec": {"finalizers": []}})
    assert (await api.send("GET", "/api/v1/namespaces/n"))[0] == 404


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def pages(api, path, limit):
    token, seen = "", []
    while True:
        page = await api.get(f"{path}?limit={limit}&continue={token}")
        seen.append([each["metadata"]["name"] for each in page["items"]])
        token = page["metadata"].get("continue", "")
        if not token:
            return seen


async def test_pages_show_one_consistent_list_whatever_is_written_meanwhile(api):
    for name in "abcd":
        await api.post(MAPS, config(name))
    first = await api.get(f"{MAPS}?limit=2")
    assert first["metadata"]["remainingItemCount"] == 2
    await api.ok("DELETE", f"{MAPS}/c")
    await api.post(MAPS, config("e"))
    second = await api.get(f"{MAPS}?limit=2&continue={first['metadata']['continue']}")
    assert [each["metadata"]["name"] for each in second["items"]] == ["c", "d"]
    assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}
    assert await pages(api, MAPS, 2) == [["a", "b"], ["d", "e"]]


async def test_an_expired_page_offers_to_go_on_inconsistently(api):
    for name in "abc":
        await api.post(MAPS, config(name))
    first = await api.get(f"{MAPS}?limit=1")
    await api.ok("DELETE", f"{MAPS}/b")
    api.store.compact(api.store.revision)
    status, answer = await api.send("GET", f"{MAPS}?limit=1&continue={first['metadata']['continue']}")
    assert (status, answer["reason"]) == (410, "Expired")
    rest = await api.get(f"{MAPS}?continue={answer['metadata']['continue']}")
    assert [each["metadata"]["name"] for each in rest["items"]] == ["c"]


async def test_an_exact_version_is_the_list_as_it_was(api):
    made = await api.post(MAPS, config("a"))
    await api.ok("DELETE", f"{MAPS}/a")
    then = f"{MAPS}?resourceVersionMatch=Exact&resourceVersion={made['metadata']['resourceVersion']}"
    assert [each["metadata"]["name"] for each in (await api.get(then))["items"]] == ["a"]


@pytest.mark.parametrize("token", ["x", base64.urlsafe_b64encode(b"{}").decode(), "%FF"])
async def test_a_made_up_continue_token_is_a_bad_request(api, token):
    assert (await api.send("GET", f"{MAPS}?continue={token}"))[0] == 400


# ── dry run ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_dry_run_answers_like_the_real_thing_and_stores_nothing(api, pod):
    before = api.store.revision
    made = await api.post(f"{PODS}?dryRun=All", pod())
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert api.store.revision == before
    await api.post(MAPS, config("a", k="1"))
    before = api.store.revision
    assert (await api.merge(f"{MAPS}/a?dryRun=All", {"data": {"k": "2"}}))["data"] == {"k": "2"}
    await api.ok("DELETE", f"{MAPS}/a", {"dryRun": ["All"]})
    await api.ok("DELETE", f"{MAPS}?dryRun=All")
    assert api.store.revision == before


# ── defaults ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_pod_gets_the_priority_of_its_class_and_the_default_one_of_the_global_default(api, pod):
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await api.post(classes, {"metadata": {"name": "high"}, "value": 100})
    assert (await api.post(PODS, pod("a", priorityClassName="high")))["spec"]["priority"] == 100
    assert (await api.post(PODS, pod("b")))["spec"]["priority"] == 0
    await api.post(classes, {"metadata": {"name": "low"}, "value": -5, "globalDefault": True})
    assert (await api.post(PODS, pod("c")))["spec"]["priority"] == -5


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"requests": {"cpu": "0"}}, "BestEffort"),
    ],
)
async def test_the_class_of_service_follows_from_the_resources(api, resources, quality):
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    made = await api.post(PODS, {"metadata": {"name": "p"}, "spec": spec})
    assert made["status"]["qosClass"] == quality


async def test_an_event_is_the_same_in_both_groups(api):
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "message": "hello", "count": 3}
    await api.post(f"{CORE}/events", event)
    new = await api.get("/apis/events.k8s.io/v1/namespaces/default/events/e")
    assert (new["note"], new["regarding"]["name"], new["deprecatedCount"]) == ("hello", "p", 3)
    listed = await api.get("/api/v1/events?fieldSelector=involvedObject.name%3Dp")
    assert listed["items"][0]["message"] == "hello"


# ── custom resources ─────────────────────────────────────────────────────────────────────────────────────────────

THING = "/apis/example.com/v1/namespaces/default/things"


def definition(**version):
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    v1 = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [v1],
    }
    return {"metadata": {"name": "things.example.com"}, "spec": spec}


async def test_a_definition_serves_at_once_and_takes_its_objects_with_it(api):
    assert await api.send("GET", THING) == (404, "404 page not found\n")
    made = await api.post(DEFINITIONS, definition())
    assert {each["type"]: each["status"] for each in made["status"]["conditions"]}["Established"] == "True"
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "finalizers": ["x.y/z"]}}
    await api.post(THING, thing)
    await api.ok("DELETE", f"{DEFINITIONS}/things.example.com")
    status, answer = await api.send("POST", THING, {**thing, "metadata": {"name": "u"}})
    assert (status, "custom resource definition is terminating" in answer["message"]) == (403, True)
    await api.merge(f"{THING}/t", {"metadata": {"finalizers": None}})
    assert (await api.send("GET", THING))[0] == 404
    assert (await api.send("GET", f"{DEFINITIONS}/things.example.com"))[0] == 404


async def test_unknown_fields_are_an_error_a_warning_or_nothing(api):
    await api.post(DEFINITIONS, definition())
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"n": 1, "m": 2}}
    status, answer = await api.send("POST", f"{THING}?fieldValidation=Strict&dryRun=All", thing)
    assert status == 400
    assert answer["message"].endswith('strict decoding error: unknown field "spec.m"')
    made = await api.post(f"{THING}?dryRun=All", thing)
    assert (made["spec"], api.warnings) == ({"n": 1}, '299 - "unknown field \\"spec.m\\""')
    await api.post(f"{THING}?fieldValidation=Ignore", thing)
    assert api.warnings == ""


# ── what isn't done is refused ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{CORE}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": []}}),
        ("POST", f"{PODS}/p/exec", None),
        ("POST", f"{CORE}/serviceaccounts/default/token", {}),
        ("GET", "/api/v1/watch/pods", None),
    ],
)
async def test_what_the_sandbox_doesnt_do_it_refuses_and_points_to_the_real_thing(api, method, path, body):
    status, answer = await api.send(method, path, body)
    assert (status, answer["reason"]) == (501, "NotImplemented")
    assert "use a real control plane (kube-apiserver), see docs/sandbox.md" in answer["message"]


async def test_what_is_kept_without_a_controller_comes_with_a_warning(api):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await api.post(f"{CORE}/persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": spec})
    assert "runs no volume controller" in api.warnings


# ── bodies from hell ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"null", 400),
        (b"[]", 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"metadata":{"name":"a"},"data":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, 400),
        (b'{"metadata":{"name":5}}', 400),
        (b'{"metadata":[]}', 400),
        (b" " * (3 * 1024 * 1024 + 1), 413),
    ],
)
async def test_any_body_is_answered_with_a_status(api, body, code):
    status, answer = await api.send("POST", MAPS, body)
    assert (status, answer["kind"]) == (code, "Status")
    assert "\n" not in answer["message"]


async def test_yaml_is_read_as_kubernetes_reads_it(api):
    text = b"metadata: {name: a}\ndata: {day: '2026-11-21', yes: 'no'}\n"
    status, made = await api.send("POST", MAPS, text, "application/yaml")
    assert (status, made["data"]["day"]) == (201, "2026-11-21")
    bomb = b"metadata: &a {name: b}\ndata: {x: *a}\n"
    assert (await api.send("POST", MAPS, bomb, "application/yaml"))[0] == 400


async def test_a_client_that_reads_protobuf_only_is_told_what_it_can_have(api):
    status, answer = await api.send("GET", MAPS, accept="application/vnd.kubernetes.protobuf")
    assert (status, answer["reason"]) == (406, "NotAcceptable")


async def test_metadata_alone_can_be_had(api):
    await api.post(MAPS, config("a", k="v"))
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    _, listed = await api.send("GET", MAPS, accept=accept)
    assert listed["kind"] == "PartialObjectMetadataList"
    assert listed["items"][0].keys() == {"kind", "apiVersion", "metadata"}


# ── the two ways in ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_typed_client_works_over_the_transport(api, pod):
    client = Client(InProcessTransport(api.server))
    await client.create(kinds.PODS, pod(), "default")
    await client.bind("default", "p", "", "n1")
    bound = await client.get(kinds.PODS, "p", "default")
    assert bound.spec.node_name == "n1"
    assert len((await client.list(kinds.PODS)).items) == 1


async def test_the_version_names_the_sandbox(api):
    assert (await api.get("/version"))["gitVersion"] == "v1.37.2+muster-sandbox"
    response = await InProcessTransport(api.server).request(Request("GET", "/readyz"), within=1)
    assert (response.status, response.body) == (200, b"ok")


def test_a_warning_header_stays_within_what_clients_read():
    header = warning_header([f"{number:03}" + "x" * 300 for number in range(20)])
    assert header.count("299 - ") == 15
    assert warning_header(["a", "a", "", "b\nc", 'd"e']) == '299 - "a", 299 - "d\\"e"'
