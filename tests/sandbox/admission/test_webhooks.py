"""Which webhooks are asked, in which order, and what they are told."""

from __future__ import annotations

import asyncio

import pytest

MAPS = "/api/v1/namespaces/team/configmaps"
URL = "https://hook.test/v"
DEPLOYMENTS = "/apis/apps/v1/namespaces/team/deployments"


@pytest.fixture
def listening(api, answer):
    """The server, whose webhook allows everything."""
    api.caller.handlers[URL] = answer()
    return api


def rule(*resources, operations=("*",), groups=("",), versions=("v1",), **more):
    return {
        "apiGroups": list(groups),
        "apiVersions": list(versions),
        "operations": list(operations),
        "resources": list(resources),
    } | more


async def test_a_webhook_is_told_all_of_a_create(listening, hook, config_map):
    await listening.register("validating", hook())
    await listening.create(MAPS, config_map(a="1"), dryRun="All", fieldManager="me")
    ((url, review),) = listening.caller.calls
    request = review["request"]
    assert (url, review["kind"], review["apiVersion"]) == (
        f"{URL}?timeout=5s",
        "AdmissionReview",
        "admission.k8s.io/v1",
    )
    assert request.pop("uid")
    obj = request.pop("object")
    assert (obj["data"], obj["apiVersion"], obj["kind"]) == ({"a": "1"}, "v1", "ConfigMap")
    assert obj["metadata"]["uid"]
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert request == {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "x",
        "namespace": "team",
        "operation": "CREATE",
        "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]},
        "oldObject": None,
        "dryRun": True,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"], "fieldManager": "me"},
    }


async def test_mutating_webhooks_see_an_object_without_a_uid(listening, hook, config_map):
    await listening.register("mutating", hook())
    await listening.create(MAPS, config_map())
    assert "uid" not in listening.caller.requests[0]["object"]["metadata"]


async def test_an_update_shows_both_states_and_a_deletion_the_last(listening, hook, config_map):
    await listening.made(MAPS, config_map(a="1"))
    await listening.register("validating", hook())
    await listening.patch(f"{MAPS}/x", {"data": {"a": "2"}})
    await listening.delete(f"{MAPS}/x")
    update, deletion = listening.caller.requests
    assert (update["operation"], update["object"]["data"], update["oldObject"]["data"]) == (
        "UPDATE",
        {"a": "2"},
        {"a": "1"},
    )
    assert (deletion["operation"], deletion["object"], deletion["oldObject"]["data"]) == ("DELETE", None, {"a": "2"})


@pytest.mark.parametrize(
    ("rules", "asked"),
    [
        ([rule("configmaps")], True),
        ([rule("*")], True),
        ([rule("*/*")], True),
        ([rule("configmaps/*")], True),
        ([rule("configmaps/status")], False),
        ([rule("secrets")], False),
        ([rule("configmaps", operations=["UPDATE", "DELETE"])], False),
        ([rule("configmaps", operations=["CREATE"])], True),
        ([rule("configmaps", groups=["apps"])], False),
        ([rule("configmaps", groups=["*"], versions=["*"])], True),
        ([rule("configmaps", versions=["v2"])], False),
        ([rule("configmaps", scope="Cluster")], False),
        ([rule("configmaps", scope="Namespaced")], True),
        ([rule("secrets"), rule("configmaps")], True),
        ([], False),
    ],
)
async def test_rules_say_for_which_requests_a_webhook_is(listening, hook, config_map, rules, asked):
    await listening.register("validating", hook(rules=rules))
    await listening.create(MAPS, config_map())
    assert bool(listening.caller.calls) == asked


async def test_a_rule_on_a_resource_never_sees_its_subresources(listening, hook):
    await listening.register("validating", hook(rules=[rule("deployments", groups=["apps"])]))
    container = {"name": "c", "image": "i"}
    spec = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
    }
    await listening.made(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
    await listening.patch(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 1}})
    assert [request["operation"] for request in listening.caller.requests] == ["CREATE"]


@pytest.mark.parametrize(
    ("selectors", "asked"),
    [
        ({"namespaceSelector": {"matchLabels": {"tier": "gold"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"tier": "silver"}}}, False),
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["team"]}
                    ]
                }
            },
            False,
        ),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, True),
        ({"objectSelector": {"matchLabels": {"a": "c"}}}, False),
        ({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}, True),
    ],
)
async def test_selectors_take_the_labels_of_namespace_and_object(listening, hook, config_map, selectors, asked):
    await listening.register("validating", hook(**selectors))
    obj = config_map()
    obj["metadata"]["labels"] = {"a": "b"}
    await listening.create(MAPS, obj)
    assert bool(listening.caller.calls) == asked


async def test_an_object_selector_takes_a_change_that_removes_the_label(listening, hook, config_map):
    obj = config_map()
    obj["metadata"]["labels"] = {"a": "b"}
    await listening.made(MAPS, obj)
    await listening.register("validating", hook(objectSelector={"matchLabels": {"a": "b"}}))
    await listening.patch(f"{MAPS}/x", {"metadata": {"labels": {"a": None}}})
    await listening.patch(f"{MAPS}/x", {"data": {"b": "c"}})
    assert len(listening.caller.calls) == 1


async def test_a_namespace_selector_takes_a_namespace_by_its_own_new_labels(listening, hook):
    rules = [rule("namespaces")]
    await listening.register("validating", hook(rules=rules, namespaceSelector={"matchLabels": {"tier": "gold"}}))
    await listening.create("/api/v1/namespaces", {"metadata": {"name": "a", "labels": {"tier": "gold"}}})
    await listening.create("/api/v1/namespaces", {"metadata": {"name": "b"}})
    assert [(request["name"], request["namespace"]) for request in listening.caller.requests] == [("a", "a")]


@pytest.mark.parametrize(
    ("conditions", "asked"),
    [
        (["object.data.a == '1'"], True),
        (["object.data.a == '2'"], False),
        (["has(object.data)", "request.userInfo.username != 'kubernetes-admin'"], False),
        (["request.operation == 'CREATE' && oldObject == null", "request.namespace in ['team']"], True),
        (["!('muster.sh/x' in object.metadata.?annotations.orValue({}))"], True),
    ],
)
async def test_match_conditions_keep_requests_away(listening, hook, config_map, conditions, asked):
    named = [{"name": f"c{number}", "expression": text} for number, text in enumerate(conditions)]
    await listening.register("validating", hook(matchConditions=named))
    status, body = await listening.create(MAPS, config_map(a="1"))
    assert status == 201, body
    assert bool(listening.caller.calls) == asked


@pytest.mark.parametrize(
    ("policy", "others", "status"), [("Fail", [], 403), ("Ignore", [], 201), ("Fail", ["false"], 201)]
)
async def test_a_condition_without_a_value_counts_as_the_failure_policy_says(
    listening, hook, config_map, policy, others, status
):
    conditions = [{"name": f"c{n}", "expression": text} for n, text in enumerate(["object.nope == 1", *others])]
    await listening.register("validating", hook(matchConditions=conditions, failurePolicy=policy))
    given, body = await listening.create(MAPS, config_map())
    assert (given, listening.caller.calls) == (status, [])
    if status == 403:
        text = "configmaps \"x\" is forbidden: expression 'object.nope == 1' resulted in error: no such key: nope"
        assert body["message"] == text


async def test_mutating_webhooks_come_one_after_another_in_the_order_of_their_configurations(
    api, hook, config_map, answer
):
    def appending(mark):
        def respond(review):
            before = review["request"]["object"]["data"]["trace"]
            return answer(operations=[{"op": "replace", "path": "/data/trace", "value": before + mark}])(review)

        return respond

    for mark in "abc":
        api.caller.handlers[f"https://{mark}"] = appending(mark)
    await api.register("mutating", hook("c.x.y", "https://c"), name="z")
    await api.register("mutating", hook("a.x.y", "https://a"), hook("b.x.y", "https://b"), name="m")
    _, body = await api.create(MAPS, config_map(trace="-"))
    assert body["data"] == {"trace": "-abc"}


async def test_a_webhook_is_asked_again_when_a_later_one_changed_the_object(api, hook, config_map, answer):
    counts = {"first": 0, "second": 0}

    def first(review):
        counts["first"] += 1
        return answer(
            operations=[
                {"op": "add", "path": "/data/seen", "value": review["request"]["object"]["data"].get("set", "no")}
            ]
        )(review)

    def second(review):
        counts["second"] += 1
        return answer(operations=[{"op": "add", "path": "/data/set", "value": "yes"}])(review)

    api.caller.handlers |= {"https://1": first, "https://2": second}
    again = {"reinvocationPolicy": "IfNeeded"}
    await api.register("mutating", hook("one.x.y", "https://1", **again), hook("two.x.y", "https://2", **again))
    _, body = await api.create(MAPS, config_map(a="1"))
    assert body["data"] == {"a": "1", "set": "yes", "seen": "yes"}
    # The first because the second changed something, the second because the first then did; nobody a third time.
    assert counts == {"first": 2, "second": 2}


@pytest.mark.parametrize("policy", ["Never", "IfNeeded"])
async def test_nobody_is_asked_again_without_need(api, hook, config_map, answer, policy):
    change = [{"op": "add", "path": "/data/set", "value": "yes"}]
    api.caller.handlers |= {"https://1": answer(operations=change), "https://2": answer()}
    again = {"reinvocationPolicy": policy}
    await api.register("mutating", hook("one.x.y", "https://1", **again), hook("two.x.y", "https://2", **again))
    await api.create(MAPS, config_map(a="1"))
    assert [url for url, _ in api.caller.calls] == ["https://1?timeout=5s", "https://2?timeout=5s"]


async def test_validating_webhooks_are_asked_at_once_and_the_first_refusal_counts(api, hook, config_map, answer):
    loop = asyncio.get_running_loop()

    def slow(seconds, response):
        async def respond(review):
            await asyncio.sleep(seconds)
            return response(review)

        return respond

    denied = {"allowed": False}
    api.caller.handlers |= {
        "https://1": slow(3, answer(**denied, status={"message": "one"})),
        "https://2": slow(1, answer(**denied, status={"message": "two"})),
        "https://3": slow(2, answer()),
    }
    await api.register("validating", *(hook(f"w{n}.x.y", f"https://{n}") for n in (1, 2, 3)))
    start = loop.time()
    _, body = await api.create(MAPS, config_map())
    assert body["message"] == 'admission webhook "w2.x.y" denied the request: two'
    assert loop.time() - start == 3


async def test_a_validating_webhook_sees_what_the_mutating_ones_made(api, hook, config_map, answer):
    api.caller.handlers |= {
        "https://m": answer(operations=[{"op": "add", "path": "/data/b", "value": "2"}]),
        "https://v": answer(),
    }
    await api.register("mutating", hook("m.x.y", "https://m"))
    await api.register("validating", hook("v.x.y", "https://v"))
    await api.create(MAPS, config_map(a="1"))
    assert api.caller.requests[-1]["object"]["data"] == {"a": "1", "b": "2"}


async def test_webhooks_are_not_asked_about_webhooks(listening, hook):
    everything = [rule("*/*", groups=["*"], versions=["*"])]
    await listening.register("validating", hook(rules=everything))
    await listening.register("validating", hook(), name="other")
    await listening.namespace("asked")
    assert [request["name"] for request in listening.caller.requests] == ["asked"]


async def test_a_change_of_the_configuration_counts_for_the_next_request(listening, hook, config_map):
    await listening.register("validating", hook())
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/test"
    await listening.patch(path, {"webhooks": [hook(rules=[rule("secrets")])]})
    await listening.create(MAPS, config_map("a"))
    await listening.patch(path, {"webhooks": [hook()]})
    await listening.create(MAPS, config_map("b"))
    await listening.delete(path)
    await listening.create(MAPS, config_map("c"))
    assert [request["name"] for request in listening.caller.requests] == ["b"]


# ── versions ─────────────────────────────────────────────────────────────────────────────────────────────────────


THINGS = "/apis/t.example.com/{}/namespaces/team/things"


@pytest.fixture
async def things(listening):
    """The server with a resource in two versions."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}}
        for name in ("v1", "v2")
    ]
    names = {"kind": "Thing", "plural": "things"}
    spec = {"group": "t.example.com", "scope": "Namespaced", "names": names, "versions": versions}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await listening.made(path, {"metadata": {"name": "things.t.example.com"}, "spec": spec})
    return listening


@pytest.mark.parametrize(("policy", "asked"), [("Equivalent", ["v1"]), ("Exact", [])])
async def test_a_rule_for_one_version_takes_requests_in_another_when_it_says_equivalent(things, hook, policy, asked):
    rules = [rule("things", groups=["t.example.com"], versions=["v1"])]
    await things.register("validating", hook(rules=rules, matchPolicy=policy))
    status, body = await things.create(
        THINGS.format("v2"),
        {"apiVersion": "t.example.com/v2", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"a": 1}},
    )
    assert status == 201, body
    requests = things.caller.requests
    assert [request["kind"]["version"] for request in requests] == asked
    assert [request["requestKind"]["version"] for request in requests] == ["v2"] * len(asked)
    assert [request["object"]["apiVersion"] for request in requests] == [
        f"t.example.com/{version}" for version in asked
    ]


async def test_a_patch_for_another_version_changes_the_object_in_its_own(things, hook, answer):
    rules = [rule("things", groups=["t.example.com"], versions=["v1"])]
    things.caller.handlers[URL] = answer(
        operations=[{"op": "replace", "path": "/spec/a", "value": 2}, {"op": "add", "path": "/spec/nope", "value": 2}]
    )
    await things.register("mutating", hook(rules=rules))
    _, body = await things.create(
        THINGS.format("v2"),
        {"apiVersion": "t.example.com/v2", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"a": 1}},
    )
    assert (body["apiVersion"], body["spec"]) == ("t.example.com/v2", {"a": 2})


async def test_a_webhook_with_side_effects_that_is_there_from_older_days_keeps_dry_runs_out(
    listening, hook, config_map
):
    key = ("admissionregistration.k8s.io", "validatingwebhookconfigurations")
    listening.server.store.put(key, {"metadata": {"name": "old"}, "webhooks": [hook(sideEffects="Some")]})
    status, body = await listening.create(MAPS, config_map(), dryRun="All")
    assert (status, body["message"]) == (400, 'admission webhook "a.b.c" does not support dry run')
    assert (await listening.create(MAPS, config_map()))[0] == 201


async def test_a_generated_name_is_told_to_validating_webhooks_only(listening, hook):
    await listening.register("mutating", hook())
    await listening.register("validating", hook())
    _, body = await listening.create(MAPS, {"metadata": {"generateName": "gen-"}})
    first, second = listening.caller.requests
    assert "name" not in first
    assert second["name"] == second["object"]["metadata"]["name"] == body["metadata"]["name"]


async def test_a_binding_is_told_as_what_it_is(listening, hook):
    await listening.made(
        "/api/v1/namespaces/team/pods",
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    )
    await listening.made("/api/v1/nodes", {"metadata": {"name": "n"}})
    await listening.register("validating", hook(rules=[rule("pods/binding")]))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    status, body = await listening.create(
        "/api/v1/namespaces/team/pods/p/binding", {"metadata": {"name": "p"}, "target": target}
    )
    assert status == 201, body
    (request,) = listening.caller.requests
    assert (request["kind"]["kind"], request["resource"]["resource"], request["subResource"]) == (
        "Binding",
        "pods",
        "binding",
    )
    assert request["object"]["target"]["name"] == "n"
