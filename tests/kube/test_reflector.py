from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from muster.kube import decoding, errors
from muster.kube.cache import ObjectCache
from muster.kube.reflector import Reflector, ReflectorSet
from muster.model.kinds import NODES, PODS

DOWN = errors.UnreachableError("down", maybe_applied=False)


@pytest.fixture
def cache():
    return ObjectCache()


@contextlib.asynccontextmanager
async def running(reflector):
    task = asyncio.create_task(reflector.run())
    try:
        yield task
    finally:
        assert not task.done()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def event(type_, body):
    return {"type": type_, "object": body}


def bookmark(version):
    # As the API server writes it: the spec is empty where it must not be.
    return event(
        "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}, "spec": {"containers": None}}
    )


def expired():
    return event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


async def test_the_view_follows_the_watch(server, cache):
    server.answer = lambda _: server.listing(3, server.pod("a", 1), server.pod("b", 2))
    server.watches = [
        [
            event("MODIFIED", server.pod("a", 4)),
            event("DELETED", server.pod("b", 5)),
            event("ADDED", server.pod("c", 6)),
            bookmark(9),
            60.0,
        ]
    ]
    reflector = Reflector(server.client, PODS, cache, namespace="ns", labels="x=y", fields="spec.nodeName=")
    async with running(reflector):
        await reflector.wait_synced()
        await cache.reached("9")
        assert {pod.name: pod.metadata.resource_version for pod in cache.items()} == {"a": "4", "c": "6"}
        (watch,) = server.requests(watching=True)
        timeout = int(watch.query["timeoutSeconds"])
        assert 300 <= timeout <= 600
        assert dict(watch.query) == {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": "3",
            "timeoutSeconds": str(timeout),
            "labelSelector": "x=y",
            "fieldSelector": "spec.nodeName=",
        }
        assert watch.path == "/api/v1/namespaces/ns/pods"
        assert server.open == 1
    assert server.open == 0


async def test_a_closed_watch_goes_on_from_the_last_version_without_a_list(server, cache):
    server.answer = lambda _: server.listing(3)
    server.watches = [[event("ADDED", server.pod("a", 4)), 60.0, bookmark(8), 60.0], [60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(130)
    assert [watch.query["resourceVersion"] for watch in server.requests(watching=True)][:2] == ["3", "8"]
    assert len(server.requests()) == 1


async def test_a_busy_server_that_ends_each_watch_soon_is_followed_without_a_pause(server, cache):
    server.answer = lambda _: server.listing(1)
    server.watches = [[0.1, event("ADDED", server.pod(f"p-{number}", number))] for number in range(2, 102)] + [[60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(100 * 0.1 + 0.5)
        assert len(cache) == 100
    assert len(server.requests()) == 1


async def test_a_silent_watch_is_given_up_after_70_seconds(server, cache):
    server.answer = lambda _: server.listing(3)
    server.watches = [[100.0], [60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(72)
    assert len(server.requests(watching=True)) == 2


async def test_a_watch_that_never_said_a_word_of_a_server_that_went_back_leads_to_a_new_list(server, cache):
    # As the real API server (1.36) behaves after etcd was restored from a backup, for a version it doesn't have any more.
    pages = [server.listing(300), server.listing(20)]
    server.answer = lambda _: pages.pop(0)
    server.revision = 20
    server.watches = [[70.0], [60.0], [bookmark(25), 60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(75)
        assert cache.revision == "25"
    assert len(server.requests()) == 2


async def test_a_watch_of_what_never_changes_is_opened_anew_without_a_list_and_without_a_warning(server, cache, caplog):
    # An etcd with its usual settings sends nothing for ten minutes, so an API server has no bookmark to send.
    server.answer = lambda _: server.listing(300)
    server.revision = 1000  # of other kinds
    server.watches = [[70.0] for _ in range(10)]
    with caplog.at_level("INFO"):
        async with running(reflector := Reflector(server.client, PODS, cache)):
            await asyncio.sleep(8 * 71)
            assert reflector.trouble == ""
    assert len(server.requests()) == 1
    assert {request.query["resourceVersion"] for request in server.requests(watching=True)} == {"300"}
    assert len(server.probed) == 8
    assert caplog.messages == []


async def test_a_silent_watch_of_a_server_that_is_gone_is_told(server, cache):
    server.answer = lambda _: server.listing(300)
    server.watches = [[70.0]]
    async with running(reflector := Reflector(server.client, PODS, cache)):
        await asyncio.sleep(72)
        assert "down" in reflector.trouble


@pytest.mark.parametrize("how", ["event", "answer"])
async def test_a_version_that_is_too_old_leads_to_a_new_list(server, cache, how):
    pages = [server.listing(3, server.pod("a", 1), server.pod("b", 2)), server.listing(20, server.pod("a", 12))]
    server.answer = lambda _: pages.pop(0)
    gone = [expired()] if how == "event" else [errors.GoneError(410, "Expired", "too old")]
    server.watches = [gone, [60.0]]
    told = []
    async with running(Reflector(server.client, PODS, cache)):
        cache.subscribe(told.append)
        await cache.reached("20")
    assert [(change.type, (change.new or change.old).name) for change in told[2:]] == [
        ("DELETED", "b"),
        ("MODIFIED", "a"),
    ]


async def test_a_server_that_has_forgotten_the_version_is_listed_again(server, cache):
    pages = [server.listing(300), server.listing(20)]
    server.answer = lambda _: pages.pop(0)
    server.watches = [[errors.ServerError(504, "Timeout", "Too large resource version: 300, current: 20")], [60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(5)
    assert cache.revision == "20"


async def test_after_a_gap_a_watch_is_asked_for_what_went_back_and_without_one_it_is_not(server, cache):
    server.answer = lambda _: server.listing(300)
    server.watches = [[bookmark(301)], [bookmark(302), DOWN], [1.0, DOWN], [60.0, bookmark(303), 60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(30)
        assert len(server.requests(watching=True)) == 4
        assert len(server.probed) == 1
        assert len(server.requests()) == 1


async def test_a_restore_that_one_reflector_notices_makes_all_list_again(server):
    caches = {PODS: ObjectCache(), NODES: ObjectCache()}
    lists = {"pods": [server.listing(300, server.pod("old", 290)), server.listing(210, server.pod("new", 205))]}
    lists["nodes"] = [server.listing(300), server.listing(211)]
    server.answer = lambda request: lists[request.path.rsplit("/", 1)[1]].pop(0)
    # The new watch of pods would tell of what comes after 300 only; the one of nodes lives through it all.
    ends = {"pods": [[5.0, DOWN], [60.0], [60.0]], "nodes": [[300.0], [60.0]]}
    opens = server.watch
    server.watch = lambda request, *, idle: _from(server, opens, ends, request, idle)
    watching, synced = ReflectorSet(caches), asyncio.Event()
    kinds, told = [str(PODS), str(NODES)], []
    watching.timeline.subscribe(lambda: told.append(watching.timeline.relisting(kinds)))
    task = asyncio.create_task(watching.run(server.client, synced))
    await asyncio.sleep(4)
    assert watching.timeline.sure(kinds)
    server.revision = 205
    await asyncio.sleep(40)
    assert (watching.timeline.restores, told) == (1, [True])
    assert {pod.name for pod in caches[PODS].items()} == {"new"}
    assert [cache.revision for cache in caches.values()] == ["210", "211"]
    assert watching.timeline.sure(kinds)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _from(server, opens, ends, request, idle):
    server.watches = [ends[request.path.rsplit("/", 1)[1]].pop(0)]
    return opens(request, idle=idle)


async def test_after_a_server_could_not_be_reached_only_a_whole_list_tells(server, cache):
    pages = [server.listing(300), server.listing(400, server.pod("between", 250))]
    server.answer = lambda _: pages.pop(0)
    server.watches = [[bookmark(301), DOWN], [DOWN], [DOWN], [bookmark(402), 60.0], [60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(20)
        assert cache.get("between", "ns")
    assert not server.probed


async def test_the_same_version_of_another_history_is_another_state(server, cache):
    cache.replace([decoding.item(PODS, msgspec.json.encode(server.pod("a", 5)))], "9")
    told = []
    cache.subscribe(told.append)
    cache.replace([decoding.item(PODS, msgspec.json.encode(server.pod("a", 5, spec={"nodeName": "n"})))], "7")
    assert [(change.type, change.new.spec.node_name) for change in told] == [("MODIFIED", "n")]


@pytest.mark.parametrize("code", [401, 403, 429, 500, 503])
async def test_an_overloaded_server_is_not_asked_for_lists(server, cache, code):
    server.answer = lambda _: server.listing(3)
    server.watches = [[errors.from_status(code, {"message": "no"})] for _ in range(5)] + [[60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(60)
    assert len(server.requests()) == 1
    assert len(server.requests(watching=True)) == 6


async def test_the_wait_that_an_overloaded_server_asks_for_is_kept(server, cache):
    server.answer = lambda _: server.listing(3)
    server.watches = [[errors.from_status(429, {}, retry_after=50)], [60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(49)
        assert len(server.requests(watching=True)) == 1
        await asyncio.sleep(2)
        assert len(server.requests(watching=True)) == 2


@pytest.mark.parametrize(
    "line", [b"not json", b'{"type": "ADDED"}', b'{"type": "ADDED", "object": []}', b'{"type": "NEW", "object": {}}']
)
async def test_a_line_that_makes_no_sense_leads_to_a_new_list(server, cache, line):
    server.answer = lambda _: server.listing(3)
    server.watches = [[line], [60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(10)
    assert len(server.requests()) == 2


async def test_one_object_that_cannot_be_read_does_not_stop_the_others(server, cache, caplog):
    bad = server.pod("bad", 5, spec={"containers": 7})
    server.answer = lambda _: server.listing(3, server.pod("a", 1), bad)
    server.watches = [[event("MODIFIED", bad), event("MODIFIED", server.pod("a", 6)), 60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await cache.reached("6")
    assert cache.get("a", "ns").metadata.resource_version == "6"
    assert "$.spec.containers" in cache.unreadable["ns", "bad"]
    assert caplog.text.count("can't be read") == 1


async def test_trouble_is_told_once_until_it_is_over(server, cache, caplog):
    caplog.set_level("INFO")
    server.answer = lambda _: DOWN
    reflector = Reflector(server.client, PODS, cache)
    async with running(reflector):
        await asyncio.sleep(300)
        assert reflector.trouble == "pods can't be watched: down"
        assert not cache.synced
        assert caplog.text.count("down") == 1
        server.answer = lambda _: server.listing(3)
        server.watches = [[60.0] for _ in range(5)]
        await reflector.wait_synced()
        await asyncio.sleep(1)
        assert reflector.trouble == ""
        assert "pods are watched again" in caplog.text


@pytest.mark.parametrize(("refusals", "levels"), [(1, ["INFO"]), (5, ["INFO", "WARNING"])])
async def test_permissions_that_come_a_moment_late_are_no_reason_to_warn(server, cache, caplog, refusals, levels):
    caplog.set_level("INFO")
    forbidden = server.status(403, "Forbidden", 'pods is forbidden: User "muster" cannot list resource "pods"')
    answers = iter([forbidden] * refusals)
    server.answer = lambda _: next(answers, None) or server.listing(3)
    server.watches = [[60.0] for _ in range(5)]
    reflector = Reflector(server.client, PODS, cache)
    async with running(reflector):
        await reflector.wait_synced()
    assert [each.levelname for each in caplog.records if "can't be watched" in each.message] == levels


@pytest.mark.parametrize("what", ["all", "watch", "watch closes at once", "watch says nothing new", "watch gone"])
async def test_a_failing_server_is_not_hammered(server, cache, what):
    """Ten minutes of outage; without any pause these would be thousands of requests."""
    server.answer = (lambda _: DOWN) if what == "all" else (lambda _: server.listing(3))
    ends = {"watch closes at once": [], "watch says nothing new": [bookmark(3)], "watch gone": [expired()]}
    lines = ends.get(what, [DOWN])
    server.watches = [list(lines) for _ in range(10_000)]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(600)
    pauses = [later - earlier for (earlier, _), (later, _) in zip(server.asked, server.asked[1:], strict=False)]
    assert len(server.asked) <= (100 if what == "watch gone" else 50)
    assert len(server.asked) >= 20
    assert max(pauses) <= 30


async def test_the_pauses_are_short_again_after_a_good_watch(server, cache):
    server.answer = lambda _: server.listing(3)
    server.watches = [[DOWN] for _ in range(8)] + [[11.0, DOWN], [60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await asyncio.sleep(300)
    times = [at for at, request in server.asked if "watch" in request.query]
    assert times[9] - times[8] <= 11 + 0.8


async def test_of_several_kinds_it_is_told_which_is_missing_and_why(server):
    forbidden = server.status(403, "Forbidden", 'nodes is forbidden: User "muster" cannot list resource "nodes"')
    server.answer = lambda request: forbidden if request.path.endswith("/nodes") else server.listing(3)
    server.watches = [[60.0] for _ in range(20)]
    watching, synced = ReflectorSet({PODS: ObjectCache(), NODES: ObjectCache()}), asyncio.Event()
    assert watching.missing() == ["the first list of pods", "the first list of nodes"]
    task = asyncio.create_task(watching.run(server.client, synced))
    await asyncio.sleep(20)
    (missing,) = watching.missing()
    assert missing.startswith("nodes can't be watched: ")
    assert 'cannot list resource "nodes"' in missing
    assert (watching.failing(), synced.is_set()) == (1, False)
    state = watching.state()
    assert (state["nodes"]["trouble"], state["pods"]["trouble"]) == (missing, "")
    server.answer = lambda _: server.listing(3)
    await synced.wait()
    await asyncio.sleep(1)
    assert (watching.missing(), watching.failing()) == ([], 0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_server_that_asks_for_a_moment_is_no_warning(server, cache, caplog):
    caplog.set_level("INFO")
    answers = [errors.TooManyRequestsError(429, "TooManyRequests", "storage is (re)initializing", retry_after=1)]
    server.answer = lambda _: answers.pop() if answers else server.listing(3)
    server.watches = [[60.0]]
    async with running(Reflector(server.client, PODS, cache)):
        await cache.reached("3")
    refused = [each for each in caplog.records if "initializing" in each.message]
    assert [each.levelname for each in refused] == ["INFO"]
