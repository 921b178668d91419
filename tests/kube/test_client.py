from __future__ import annotations

import asyncio

import msgspec
import pytest

from muster.kube import errors
from muster.kube.backoff import Backoff
from muster.kube.transport import APPLY_PATCH, Response
from muster.model import versions
from muster.model.kinds import PODS, QUEUES
from muster.model.objects import Meta, Queue


async def test_find_gives_none_for_what_does_not_exist_and_get_raises(server):
    assert await server.client.find(PODS, "a", "ns") is None
    with pytest.raises(errors.NotFoundError):
        await server.client.get(PODS, "a", "ns")


async def test_a_list_is_read_page_by_page(server):
    pages = {"": server.listing(7, server.pod("a", 1), token="t1"), "t1": server.listing(7, server.pod("b", 2))}
    server.answer = lambda request: pages[request.query.get("continue", "")]
    listing = await server.client.list(PODS, "ns", labels="app=x")
    assert [pod.name for pod in listing.items] == ["a", "b"]
    assert listing.resource_version == "7"
    assert [dict(request.query) for request in server.requests()] == [
        {"labelSelector": "app=x", "limit": "500"},
        {"labelSelector": "app=x", "limit": "500", "continue": "t1"},
    ]


async def test_a_list_whose_token_expired_is_read_again_in_one_piece(server):
    def answer(request):
        if "limit" not in request.query:
            return server.listing(9, server.pod("a", 1), server.pod("b", 2))
        if "continue" in request.query:
            return server.status(410, "Expired", "too old")
        return server.listing(7, server.pod("a", 1), token="t1")

    server.answer = answer
    listing = await server.client.list(PODS)
    assert [pod.name for pod in listing.items] == ["a", "b"]
    assert listing.resource_version == "9"


async def test_one_object_that_cannot_be_read_is_set_aside_and_the_others_are_listed(server):
    bad = server.pod("bad", 2, spec={"containers": "none"})
    server.answer = lambda _: server.listing(7, server.pod("a", 1), bad, server.pod("b", 3))
    listing = await server.client.list(PODS)
    assert [pod.name for pod in listing.items] == ["a", "b"]
    (unreadable,) = listing.unreadable
    assert unreadable.about.name == "bad"
    assert unreadable.about.metadata.uid == "uid-bad"
    assert "$.spec.containers" in unreadable.reason


async def test_a_list_of_none_may_be_written_as_null(server):
    server.answer = lambda _: server.ok({"metadata": {"resourceVersion": "3"}, "items": None})
    assert (await server.client.list(PODS)).items == ()


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequestError),
        (401, "Unauthorized", errors.UnauthorizedError),
        (403, "Forbidden", errors.ForbiddenError),
        (404, "NotFound", errors.NotFoundError),
        (409, "Conflict", errors.ConflictError),
        (409, "AlreadyExists", errors.AlreadyExistsError),
        (410, "Expired", errors.GoneError),
        (422, "Invalid", errors.InvalidError),
        (429, "TooManyRequests", errors.TooManyRequestsError),
        (500, "InternalError", errors.ServerError),
        (504, "Timeout", errors.ServerError),
        (418, "", errors.ApiError),
    ],
)
async def test_each_refusal_has_its_error(server, code, reason, kind):
    server.answer = lambda _: server.status(code, reason, "no")
    with pytest.raises(errors.ApiError) as caught:
        await server.client.get(PODS, "a", "ns")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.reason, str(caught.value)) == (code, reason, "no")


async def test_a_refusal_is_cut_to_one_bounded_line(server):
    server.answer = lambda _: Response(500, b"<html>\n" + b"x" * 100_000)
    with pytest.raises(errors.ServerError) as caught:
        await server.client.get(PODS, "a")
    assert len(str(caught.value)) <= errors.TEXT_LIMIT
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("…")


async def test_an_error_never_quotes_an_object(server):
    server.answer = lambda _: Response(403, b'{"kind": "Secret", "data": {"password": "hunter2"}}')
    with pytest.raises(errors.ForbiddenError, match=r"^HTTP 403$"):
        await server.client.get(PODS, "a")


async def test_the_wait_that_a_server_asks_for_is_known(server):
    server.answer = lambda _: Response(429, b"later", {"retry-after": "7"})
    with pytest.raises(errors.TooManyRequestsError) as caught:
        await server.client.get(PODS, "a")
    assert caught.value.retry_after == 7
    server.answer = lambda _: server.status(429, "TooManyRequests", "x", details={"retryAfterSeconds": 3})
    with pytest.raises(errors.TooManyRequestsError) as caught:
        await server.client.get(PODS, "a")
    assert caught.value.retry_after == 3


async def test_a_redirect_or_a_foreign_page_is_no_success(server):
    server.answer = lambda _: Response(302, b"")
    with pytest.raises(errors.ApiError, match="HTTP 302"):
        await server.client.delete(PODS, "a", "ns")
    server.answer = lambda _: Response(200, b"<html>login</html>")
    with pytest.raises(errors.ServerError, match="can't be read"):
        await server.client.get(PODS, "a")


async def test_a_limited_client_gives_up_in_its_own_time(server):
    server.answer = lambda _: asyncio.sleep(20, server.listing(1))
    await server.client.list(PODS)
    with pytest.raises(errors.UnreachableError):
        await server.client.limited(10).list(PODS)


async def test_writes_name_their_manager_kind_and_version(server):
    server.answer = lambda request: Response(200, request.body or b"{}")
    await server.client.create(QUEUES, Queue(metadata=Meta(name="q")), dry_run=True)
    await server.client.replace(QUEUES, {"metadata": {"name": "q", "resourceVersion": "3"}})
    await server.client.apply(QUEUES, {"metadata": {"name": "q"}}, manager="other", force=False)
    create, replace, apply = server.requests()
    assert dict(create.query) == {"fieldManager": "muster", "dryRun": "All"}
    assert create.path == "/apis/scheduling.volcano.sh/v1beta1/queues"
    assert msgspec.json.decode(create.body)["kind"] == "Queue"
    assert (replace.method, replace.path) == ("PUT", "/apis/scheduling.volcano.sh/v1beta1/queues/q")
    assert msgspec.json.decode(replace.body)["metadata"]["resourceVersion"] == "3"
    assert (apply.content_type, dict(apply.query)) == (APPLY_PATCH, {"fieldManager": "other", "force": "false"})


async def test_binding_and_evicting_name_the_very_pod(server):
    server.answer = lambda _: server.ok({"kind": "Status"}, 201)
    await server.client.bind("ns", "p", "uid-1", "node-1")
    await server.client.evict("ns", "p", "uid-1")
    await server.client.delete(PODS, "p", "ns", uid="uid-1")
    bind, evict, delete = server.requests()
    assert bind.path == "/api/v1/namespaces/ns/pods/p/binding"
    assert msgspec.json.decode(bind.body)["metadata"]["uid"] == "uid-1"
    assert evict.path == "/api/v1/namespaces/ns/pods/p/eviction"
    assert msgspec.json.decode(evict.body)["deleteOptions"] == {"preconditions": {"uid": "uid-1"}}
    assert msgspec.json.decode(delete.body)["preconditions"] == {"uid": "uid-1"}


def test_versions_compare_as_numbers_of_any_length():
    assert versions.at_least("1000", "999")
    assert not versions.at_least("999", "1000")
    assert versions.at_least("9" * 40, "9" * 40)
    assert not versions.at_least("", "1")


@pytest.mark.parametrize("wrong", ["", "0", "01", "-1", "1e3", "abc", "١"])
def test_what_is_no_version_is_refused(wrong):
    with pytest.raises(ValueError, match="resourceVersion"):
        versions.number(wrong)


def test_pauses_double_up_to_a_limit_and_start_small_after_success():
    backoff = Backoff(0.8, 30)
    pauses = [backoff.pause() for _ in range(9)]
    for pause, whole in zip(pauses, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30], strict=True):
        assert whole / 2 <= pause <= whole
    assert backoff.pause(at_least=120) == 120
    backoff.reset()
    assert backoff.pause() <= 0.8


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a/status", "../../secrets", "a%2fb", "x" * 254, "x" * 250_000])
async def test_what_nothing_can_be_called_is_not_found_and_no_path_is_made_of_it(server, name):
    assert await server.client.find(PODS, name, "ns") is None
    assert server.asked == []
