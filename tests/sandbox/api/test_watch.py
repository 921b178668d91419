"""Watches: from any version, with selectors, bookmarks, and an end."""

import msgspec
import pytest

from muster.kube import errors
from muster.kube.transport import Request
from muster.sandbox.core.status import StatusError
from muster.sandbox.inprocess import InProcessTransport

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def config(name, **labels):
    return {"metadata": {"name": name, "labels": labels}}


def shown(events):
    return [(each["type"], each["object"]["metadata"].get("name")) for each in events]


async def test_a_watch_without_a_version_shows_what_is_there_and_what_comes(api, events):
    await api.post(MAPS, config("a"))
    watch = events(api.watch(MAPS))
    await api.post(MAPS, config("b"))
    await api.merge(f"{MAPS}/a", {"data": {"x": "y"}})
    await api.ok("DELETE", f"{MAPS}/b")
    assert shown(watch.waiting()) == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


async def test_a_watch_from_a_version_shows_what_came_after_it(api, events):
    first = await api.post(MAPS, config("a"))
    await api.post(MAPS, config("b"))
    watch = events(api.watch(f"{MAPS}?resourceVersion={first['metadata']['resourceVersion']}"))
    assert shown(watch.waiting()) == [("ADDED", "b")]


async def test_an_object_that_leaves_the_selector_is_deleted_to_the_watch_and_back_added(api, events):
    await api.post(MAPS, config("a", x="1"))
    watch = events(api.watch(f"{MAPS}?labelSelector=x%3D1"))
    await api.merge(f"{MAPS}/a", {"metadata": {"labels": {"x": "2"}}})
    changed = await api.merge(f"{MAPS}/a", {"data": {"k": "v"}})
    await api.merge(f"{MAPS}/a", {"metadata": {"labels": {"x": "1"}}})
    seen = watch.waiting()
    assert shown(seen) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]
    left = seen[1]["object"]["metadata"]
    assert left["labels"] == {"x": "1"}, "it is shown as it last was"
    assert int(left["resourceVersion"]) == int(changed["metadata"]["resourceVersion"]) - 1, (
        "at the version of the change"
    )


async def test_a_field_selector_by_name_shows_one_object(api, events):
    watch = events(api.watch(f"{MAPS}?fieldSelector=metadata.name%3Da"))
    await api.post(MAPS, config("a"))
    await api.post(MAPS, config("b"))
    assert shown(watch.waiting()) == [("ADDED", "a")]


async def test_another_namespace_isnt_shown(api, events):
    await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    watch = events(api.watch(MAPS))
    await api.post("/api/v1/namespaces/other/configmaps", config("a"))
    assert watch.waiting() == []


async def test_a_forgotten_version_is_answered_with_an_expired_error_and_the_end(api, events):
    await api.post(MAPS, config("a"))
    api.store.compact(api.store.revision)
    [event] = await events(api.watch(f"{MAPS}?resourceVersion=1")).all()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_version_of_another_server_is_answered_with_an_error_and_the_end(api, events):
    [event] = await events(api.watch(f"{MAPS}?resourceVersion=99999")).all()
    assert event["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_initial_events_end_with_a_bookmark(api, events):
    await api.post(MAPS, config("a"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    added, bookmark = events(api.watch(f"{MAPS}?{query}")).waiting()
    assert added["type"] == "ADDED"
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"] == {
        "resourceVersion": str(api.store.revision),
        "annotations": {"k8s.io/initial-events-end": "true"},
    }


async def test_without_initial_events_only_news_come(api, events):
    await api.post(MAPS, config("a"))
    query = f"sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={api.store.revision}"
    watch = events(api.watch(f"{MAPS}?{query}"))
    await api.post(MAPS, config("b"))
    assert shown(watch.waiting()) == [("ADDED", "b")]


@pytest.mark.parametrize("query", ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan"])
async def test_half_of_the_initial_events_options_is_refused(api, query):
    with pytest.raises(StatusError) as refusal:
        api.watch(f"{MAPS}?{query}")
    assert refusal.value.code == 422


async def test_a_quiet_watch_gets_bookmarks_at_the_current_version(api, events):
    watch = events(api.watch(f"{MAPS}?allowWatchBookmarks=true&resourceVersion={api.store.revision}"))
    await api.post("/api/v1/namespaces/default/secrets", config("elsewhere"))
    bookmark = await watch.next()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(api.store.revision)


async def test_a_watch_ends_when_its_time_is_over(api, events):
    assert await events(api.watch(f"{MAPS}?timeoutSeconds=5")).all() == []
    assert api.server.open_watches == 0


async def test_a_watch_of_tables_has_the_columns_in_its_first_event_only(api, events):
    watch = events(api.watch(MAPS, accept=TABLE))
    await api.post(MAPS, config("a"))
    await api.post(MAPS, config("b"))
    first, second = watch.waiting()
    assert first["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"]
    assert not second["object"]["columnDefinitions"]


async def test_a_reader_that_lags_too_far_behind_is_cut_off(api, events, monkeypatch):
    monkeypatch.setattr("muster.sandbox.server.watching.BACKLOG", 3)
    watch = events(api.watch(MAPS))
    for number in range(5):
        await api.post(MAPS, config(f"c{number}"))
    assert len(await watch.all()) == 3
    assert api.server.open_watches == 0


async def test_the_transport_ends_a_silent_watch(api):
    transport = InProcessTransport(api.server)
    async with transport.watch(Request("GET", MAPS), idle=10) as lines:
        with pytest.raises(errors.UnreachableError, match="silent for 10 s"):
            await anext(lines)
    assert api.server.open_watches == 0


async def test_the_transport_raises_what_the_server_refuses(api):
    transport = InProcessTransport(api.server)
    with pytest.raises(errors.ApiError, match="can't understand"):
        async with transport.watch(Request("GET", MAPS, {"fieldSelector": "x"}), idle=10):
            pass


async def test_the_transport_gives_line_after_line(api):
    transport = InProcessTransport(api.server)
    await api.post(MAPS, config("a"))
    async with transport.watch(Request("GET", MAPS), idle=10) as lines:
        assert msgspec.json.decode(await anext(lines))["object"]["metadata"]["name"] == "a"
