"""What users read when a webhook refuses, or can't be asked. The texts are those of kube-apiserver 1.36.3."""

from __future__ import annotations

import asyncio

import pytest

MAPS = "/api/v1/namespaces/team/configmaps"
FAILED = 'Internal error occurred: failed calling webhook "a.b.c": '
POSTED = f'{FAILED}failed to call webhook: Post "https://hook.test/v?timeout=5s": '
INVALID = f"{FAILED}received invalid webhook response: "


def raw(status, body, **headers):
    return lambda _review: (status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def review(**fields):
    return lambda asked: (
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        | {name: value(asked["request"]["uid"]) if callable(value) else value for name, value in fields.items()}
    )


@pytest.mark.parametrize(
    "why",
    [
        "dial tcp 127.0.0.1:1: connect: connection refused",
        "tls: failed to verify certificate: x509: certificate signed by unknown authority",
    ],
)
async def test_a_webhook_that_nobody_reaches_fails_the_write_and_says_why(api, hook, config_map, unreachable, why):
    api.caller.handlers["https://hook.test/v"] = unreachable(why)
    await api.register("validating", hook())
    status, body = await api.create(MAPS, config_map())
    assert (status, body["reason"], body["message"]) == (500, "InternalError", POSTED + why)
    assert body["details"]["causes"] == [{"message": (POSTED + why).removeprefix("Internal error occurred: ")}]
    assert api.server.store.get(("", "configmaps"), "team", "x") is None


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (raw(400, b"some text"), "failed to call webhook: the webhook answered with status 400: some text"),
        (raw(500, b" "), "failed to call webhook: the webhook answered with status 500"),
        (
            raw(302, b"", location="https://elsewhere"),
            "failed to call webhook: the webhook answered with status 302",
        ),
        (
            raw(500, b'{"kind":"Status","apiVersion":"v1","message":"status msg"}'),
            "failed to call webhook: status msg",
        ),
        (
            raw(200, b"", content_type="application/json"),
            "failed to call webhook: 0-length response with status code: 200 and content type: application/json",
        ),
        (
            raw(200, b'{"apiVersion":"v1","kind":"Status"}'),
            "failed to call webhook: converting (v1.Status) to (v1.AdmissionReview): unknown conversion",
        ),
        (raw(200, b"{}"), "received invalid webhook response: webhook response was absent"),
        (review(), "received invalid webhook response: webhook response was absent"),
        (
            lambda asked: {"response": {"uid": asked["request"]["uid"], "allowed": True}},
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
        ),
        (
            review(response=lambda uid: {"uid": uid, "allowed": "yes"}),
            "failed to call webhook: the response is mistyped: Expected `bool | null`, got `str` - at `$.allowed`",
        ),
        (
            review(response=lambda uid: {"uid": uid, "allowed": True, "patch": "e30=", "patchType": "JSONPatch"}),
            "received invalid webhook response: validating webhook may not return response.patch",
        ),
        (
            review(response=lambda uid: {"uid": uid, "allowed": True, "patchType": "JSONPatch"}),
            "received invalid webhook response: validating webhook may not return response.patchType",
        ),
    ],
)
async def test_an_answer_of_no_use_fails_the_write_and_says_why(api, hook, config_map, handler, message):
    api.caller.handlers["https://hook.test/v"] = handler
    await api.register("validating", hook())
    status, body = await api.create(MAPS, config_map())
    assert (status, body["message"]) == (500, FAILED + message)


async def test_an_answer_to_another_request_fails_the_write(api, hook, config_map):
    api.caller.handlers["https://hook.test/v"] = review(response={"uid": "zz", "allowed": True})
    await api.register("validating", hook())
    status, body = await api.create(MAPS, config_map())
    uid = api.caller.requests[0]["uid"]
    assert (status, body["message"]) == (500, f'{INVALID}expected response.uid="{uid}", got "zz"')


async def test_what_is_not_json_fails_the_write_as_the_real_decoder_words_it(api, hook, config_map):
    api.caller.handlers["https://hook.test/v"] = raw(200, b"some text")
    await api.register("validating", hook())
    _, body = await api.create(MAPS, config_map())
    assert body["message"].startswith(f"{FAILED}failed to call webhook: couldn't get version/kind; json parse error: ")


@pytest.mark.parametrize(
    ("response", "code", "reason", "message"),
    [
        ({}, 400, None, "denied the request without explanation"),
        ({"status": {"message": "mm", "code": 200}}, 400, None, "denied the request: mm"),
        ({"status": {"reason": "Rr", "code": 422}}, 422, "Rr", "denied the request: Rr"),
        ({"status": {"status": "Success", "message": "x", "code": 403}}, 403, None, "denied the request: x"),
        ({"status": {"reason": "Forbidden", "message": "no", "code": 403}}, 403, "Forbidden", "denied the request: no"),
    ],
)
async def test_a_denial_copies_code_and_reason_and_derives_neither(
    api, hook, config_map, answer, response, code, reason, message
):
    api.caller.handlers["https://hook.test/v"] = answer(allowed=False, **response)
    await api.register("validating", hook())
    status, body = await api.create(MAPS, config_map())
    assert (status, body["code"], body.get("reason")) == (code, code, reason)
    assert body["message"] == f'admission webhook "a.b.c" {message}'


async def test_a_denial_carries_details_and_asks_for_patience(api, hook, config_map, answer):
    details = {
        "name": "n",
        "kind": "k",
        "causes": [{"field": "f", "message": "m", "reason": "q"}],
        "retryAfterSeconds": 3,
    }
    status = {"message": "busy", "code": 429, "reason": "TooManyRequests", "details": details}
    api.caller.handlers["https://hook.test/v"] = answer(allowed=False, status=status)
    await api.register("validating", hook())
    _, body = await api.create(MAPS, config_map())
    assert body["details"] == details


async def test_warnings_are_shown_on_denials_too(api, hook, config_map, answer):
    api.caller.handlers["https://hook.test/v"] = answer(allowed=False, warnings=["mind the gap"])
    await api.register("validating", hook())
    await api.create(MAPS, config_map())
    assert api.warnings == '299 - "mind the gap"'


async def test_a_failure_policy_of_ignore_lets_pass_what_could_not_be_asked_but_not_what_was_refused(
    api, hook, config_map, answer, unreachable
):
    await api.register("validating", hook(failurePolicy="Ignore"))
    for why, expected in (("gone", 201), ("denied", 400)):
        handler = unreachable(why) if why == "gone" else answer(allowed=False)
        api.caller.handlers["https://hook.test/v"] = handler
        status, _ = await api.create(MAPS, config_map(why))
        assert status == expected


async def test_a_webhook_that_takes_too_long_fails_the_write_after_its_timeout(api, hook, config_map):
    loop = asyncio.get_running_loop()
    api.caller.handlers["https://hook.test/v"] = lambda _review: asyncio.sleep(60)
    await api.register("validating", hook())
    start = loop.time()
    status, body = await api.create(MAPS, config_map())
    assert (status, body["message"], loop.time() - start) == (500, f"{POSTED}context deadline exceeded", 5)


async def test_a_webhook_that_asks_to_be_called_later_is_called_later(api, hook, config_map, answer):
    loop = asyncio.get_running_loop()
    busy = [(429, {"retry-after": "1"}, b"later"), (503, {"retry-after": "2"}, b"later")]
    api.caller.handlers["https://hook.test/v"] = lambda review: busy.pop(0) if busy else answer()(review)
    await api.register("validating", hook())
    start = loop.time()
    status, _ = await api.create(MAPS, config_map())
    assert (status, len(api.caller.calls), loop.time() - start) == (201, 3, 3)


async def test_patience_with_a_busy_webhook_ends_with_its_timeout(api, hook, config_map):
    api.caller.handlers["https://hook.test/v"] = raw(503, b"later", retry_after="2")
    await api.register("validating", hook())
    status, body = await api.create(MAPS, config_map())
    assert (status, len(api.caller.calls)) == (500, 3)
    assert body["message"] == f"{POSTED}context deadline exceeded"


# ── patches ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ({"patch": "e30="}, f"{INVALID}webhook returned response.patch but not response.patchType"),
        ({"patchType": "JSONPatch"}, f"{INVALID}webhook returned response.patchType but not response.patch"),
        ({"patch": "W10=", "patchType": ""}, f'{INVALID}webhook returned invalid response.patchType of ""'),
        (
            {"patch": "###", "patchType": "JSONPatch"},
            f"{FAILED}failed to call webhook: response.patch is not base64: Only base64 data is allowed",
        ),
        (
            {"patch": "eHg=", "patchType": "JSONPatch"},
            f"{FAILED}received undecodable patch in webhook response: JSON is malformed: invalid character (byte 0)",
        ),
        (
            {"patch": "e30=", "patchType": "JSONPatch"},
            f"{FAILED}received undecodable patch in webhook response: a JSON patch is a list of objects",
        ),
    ],
)
async def test_a_malformed_patch_fails_the_write(api, hook, config_map, answer, response, message):
    api.caller.handlers["https://hook.test/v"] = answer(**response)
    await api.register("mutating", hook())
    status, body = await api.create(MAPS, config_map())
    assert (status, body["message"]) == (500, message)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/nope/x", "value": "1"},
        {"op": "remove", "path": "/data/nope"},
        {"op": "test", "path": "/data/a", "value": "2"},
        {"op": "frob", "path": "/data/a", "value": "2"},
        {"op": "add", "path": "/metadata/name/x/y", "value": "1"},
        {"op": "add", "value": "1"},
        {},
    ],
)
async def test_a_patch_that_does_not_apply_fails_the_write(api, hook, config_map, answer, operation):
    api.caller.handlers["https://hook.test/v"] = answer(operations=[operation])
    await api.register("mutating", hook())
    status, body = await api.create(MAPS, config_map(a="1"))
    assert status == 500
    assert body["message"].startswith("Internal error occurred: the JSON patch does not apply: ")


async def test_a_patch_to_a_wrong_type_fails_the_write(api, hook, config_map, answer):
    api.caller.handlers["https://hook.test/v"] = answer(operations=[{"op": "add", "path": "/data/a", "value": 2}])
    await api.register("mutating", hook())
    status, body = await api.create(MAPS, config_map(a="1"))
    assert status == 500
    assert body["message"].startswith("Internal error occurred: json: cannot unmarshal number into Go struct field")


@pytest.mark.parametrize(
    ("operation", "data"),
    [
        ({"op": "add", "path": "/data/b", "value": "2"}, {"a": "1", "b": "2"}),
        ({"op": "replace", "path": "/data/nope", "value": "1"}, {"a": "1", "nope": "1"}),
        ({"op": "copy", "from": "/data/a", "path": "/data/c"}, {"a": "1", "c": "1"}),
        ({"op": "move", "from": "/data/a", "path": "/data/c"}, {"c": "1"}),
        ({"op": "add", "path": "/unknown", "value": "2"}, {"a": "1"}),
        ({"op": "replace", "path": "/metadata/uid", "value": "mine"}, {"a": "1"}),
    ],
)
async def test_a_patch_that_applies_changes_what_is_stored(api, hook, config_map, answer, operation, data):
    api.caller.handlers["https://hook.test/v"] = answer(operations=[operation])
    await api.register("mutating", hook())
    status, body = await api.create(MAPS, config_map(a="1"))
    assert (status, body["data"]) == (201, data)
    assert "unknown" not in body
    assert body["metadata"]["uid"] != "mine"


async def test_a_patch_on_a_deletion_is_refused(api, hook, config_map, answer):
    await api.made(MAPS, config_map())
    api.caller.handlers["https://hook.test/v"] = answer(operations=[{"op": "add", "path": "/x", "value": 1}])
    await api.register("mutating", hook())
    status, body = await api.delete(f"{MAPS}/x")
    text = 'admission webhook "a.b.c" attempted to modify the object, which is not supported for this operation'
    assert (status, body["message"]) == (500, f"Internal error occurred: {text}")


# ── where it is ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_webhook_behind_a_service_is_called_by_the_service_name_once_that_exists(api, hook, config_map, answer):
    service = {"name": "hooks", "namespace": "team", "path": "/check"}
    await api.register("validating", hook(clientConfig={"service": service, "caBundle": "UEVN"}))
    _, body = await api.create(MAPS, config_map())
    url = "https://hooks.team.svc:443/check"
    assert body["message"] == f'{FAILED}failed to call webhook: Post "{url}?timeout=5s": service "hooks" not found'
    await api.made(
        "/api/v1/namespaces/team/services", {"metadata": {"name": "hooks"}, "spec": {"ports": [{"port": 443}]}}
    )
    api.caller.handlers[url] = answer()
    status, _ = await api.create(MAPS, config_map())
    assert (status, api.caller.calls[0][0], api.caller.bundles) == (201, f"{url}?timeout=5s", [b"PEM"])


async def test_without_a_way_to_call_webhooks_a_write_that_needs_one_fails(api, hook, config_map):
    api.server.writes.admission.caller = None
    await api.register("validating", hook())
    status, body = await api.create(MAPS, config_map())
    assert (status, body["message"]) == (500, f"{POSTED}this Muster sandbox was started without a way to call webhooks")
