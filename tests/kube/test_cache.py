from __future__ import annotations

import asyncio

import pytest

from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.decoding import Unreadable
from muster.kube.subscription import DerivedState
from muster.model.objects import Meta, Object, Pod, PodSpec


def pod(name, version, uid="", namespace="ns", node=""):
    meta = Meta(name=name, namespace=namespace, uid=uid or f"uid-{name}", resource_version=str(version))
    return Pod(metadata=meta, spec=PodSpec(node_name=node))


@pytest.fixture
def told():
    return []


@pytest.fixture
def cache(told):
    view = ObjectCache(indexes={"node": lambda each: [each.spec.node_name] if each.spec.node_name else []})
    view.subscribe(told.append)
    return view


def test_a_list_is_told_as_what_is_different(cache, told):
    kept, old, gone, remade = pod("kept", 1), pod("old", 2), pod("gone", 3), pod("again", 4, uid="first")
    cache.replace([kept, old, gone, remade], "5")
    assert cache.synced
    assert [change.type for change in told] == ["ADDED"] * 4
    told.clear()
    changed, new, second = pod("old", 7), pod("new", 8), pod("again", 9, uid="second")
    cache.replace([pod("kept", 1), changed, new, second], "10")
    assert sorted(told, key=str) == sorted(
        [
            ObjectChange("DELETED", gone, None),
            ObjectChange("MODIFIED", old, changed),
            ObjectChange("ADDED", None, new),
            ObjectChange("DELETED", remade, None),
            ObjectChange("ADDED", None, second),
        ],
        key=str,
    )
    assert cache.revision == "10"
    assert cache.get("kept", "ns") is kept
    assert len(cache) == 4


def test_subscribers_see_the_view_as_it_is_after_the_change(cache):
    seen = []
    cache.subscribe(lambda _: seen.append((len(cache), cache.revision)))
    cache.replace([pod("a", 1), pod("b", 2)], "3")
    cache.put(pod("c", 4))
    cache.drop(pod("a", 5))
    assert seen == [(2, "3"), (2, "3"), (3, "4"), (2, "5")]


def test_a_subscriber_that_fails_is_logged_and_hurts_no_other(cache, told, caplog):
    def failing(change):
        raise RuntimeError("boom")

    other = []
    end = cache.subscribe(failing)
    cache.subscribe(other.append)
    cache.put(pod("a", 1))
    assert len(told) == len(other) == 1
    assert "a subscriber failed on ADDED of ns/a" in caplog.text
    assert cache.quarantined == {("ns", "a"): "RuntimeError: boom"}
    assert (cache.unknown("ns"), cache.unknown("other")) == (["a"], [])
    end()
    caplog.clear()
    cache.put(pod("a", 2))
    assert caplog.text == ""
    assert cache.quarantined == {}


def test_an_object_is_in_doubt_until_a_retry_succeeds_or_it_goes(cache):
    poisoned, seen = {"a", "b"}, []

    def failing(change):
        if (change.new or change.old).name in poisoned:
            raise RecursionError
        seen.append((change.type, change.new))

    cache.subscribe(failing)
    cache.replace([pod("a", 1), pod("b", 2)], "3")
    assert cache.unknown("ns") == ["a", "b"]
    cache.put(pod("a", 4))  # another state of it isn't tried before its time
    assert (cache.unknown("ns"), cache.retry(("ns", "a")), seen) == (["a", "b"], False, [])
    poisoned.clear()
    assert cache.retry(("ns", "a"))
    assert (cache.unknown("ns"), seen) == (["b"], [("ADDED", pod("a", 4))])
    cache.drop(pod("b", 6))
    assert cache.unknown("ns") == []
    cache.set_aside(Unreadable(pod("c", 7), "no pod"))
    assert cache.unknown("ns") == ["c"]


def test_what_is_derived_is_stale_after_a_failure_and_told_nothing_until_it_is_made_anew(cache, caplog):
    shown, spoilt = {}, []

    def follow(change):
        if change.new is None:
            del shown[change.old.name]
            return
        shown[change.new.name] = "half"
        if change.new.spec.node_name == "poison":
            raise ZeroDivisionError
        shown[change.new.name] = "whole"

    derived = DerivedState(lambda: spoilt.append(1))
    subscription = cache.subscribe(follow, derived)
    cache.replace([pod("a", 1), pod("b", 2, node="poison"), pod("c", 2)], "3")
    assert (derived.stale, spoilt, shown["b"]) == (True, [1], "half")
    cache.drop(pod("a", 4))
    assert cache.retry(("ns", "b")) is None  # nobody was asked: it goes into what is to be made anew
    shown = dict.fromkeys((each.name for each in subscription.items()), "whole")
    derived.stale = False
    assert shown == {"c": "whole"}
    cache.put(pod("b", 5, node="poison"))
    assert (shown, derived.stale) == ({"c": "whole"}, False)  # a quarantined object costs nothing
    assert cache.retry(("ns", "b")) is False
    assert derived.stale
    shown, derived.stale = {"c": "whole"}, False
    cache.put(pod("b", 6))
    assert cache.retry(("ns", "b"))
    assert shown == {"c": "whole", "b": "whole"}
    assert caplog.text.count("a subscriber failed on") == 1


def test_what_is_derived_and_never_had_a_quarantined_object_is_not_told_that_it_went(cache):
    told = []

    def follow(change):
        told.append(change.type)
        raise LookupError

    derived = DerivedState()
    cache.subscribe(follow, derived)
    cache.put(pod("a", 1))
    derived.stale = False
    cache.drop(pod("a", 2))
    assert (told, cache.unknown("ns"), derived.stale) == (["ADDED"], [], False)


def test_an_object_whose_keys_can_not_be_told_is_left_out_of_the_index_alone(told):
    poisoned = {"bad"}

    def keys(each):
        if each.name in poisoned:
            raise KeyError(each.name)
        return (each.spec.node_name,)

    view = ObjectCache(indexes={"node": keys})
    view.subscribe(told.append)
    view.replace([pod("good", 1, node="n1"), pod("bad", 2, node="n1")], "3")
    assert [each.name for each in view.indexed("node", "n1")] == ["good"]
    assert (len(told), view.unknown("ns")) == (2, ["bad"])
    view.put(pod("bad", 4, node="n1"))
    assert view.retry(("ns", "bad")) is False
    poisoned.clear()
    assert view.retry(("ns", "bad"))
    assert sorted(each.name for each in view.indexed("node", "n1")) == ["bad", "good"]
    poisoned.add("good")
    view.put(pod("good", 5, node="n2"))  # its old keys can't be told any more
    assert [each.name for each in view.indexed("node", "n1")] == ["bad"]
    view.drop(pod("good", 6))
    assert view.unknown("ns") == []


def test_an_index_follows_every_change(cache):
    cache.replace([pod("a", 1, node="n1"), pod("b", 2, node="n1"), pod("c", 3)], "3")
    names = lambda node: sorted(each.name for each in cache.indexed("node", node))  # noqa: E731 - local shorthand
    assert names("n1") == ["a", "b"]
    cache.put(pod("a", 4, node="n2"))
    cache.put(pod("c", 5, node="n2"))
    assert (names("n1"), names("n2")) == (["b"], ["a", "c"])
    cache.drop(pod("a", 6, node="n2"))
    cache.replace([pod("c", 5, node="n2")], "7")
    assert (names("n1"), names("n2"), names("n3")) == ([], ["c"], [])


def test_namespaces_are_kept_apart(cache):
    cache.replace([pod("a", 1), pod("a", 2, uid="x", namespace="other")], "3")
    assert [each.metadata.uid for each in cache.by_namespace("other")] == ["x"]
    cache.drop(pod("a", 4, uid="x", namespace="other"))
    assert list(cache.by_namespace("other")) == []
    assert len(cache) == 1


def test_what_cannot_be_read_any_more_stays_as_it_was_last_seen(cache, told):
    cache.replace([pod("a", 1)], "1")
    told.clear()
    about = Object(metadata=Meta(name="a", namespace="ns", uid="uid-a", resource_version="4"))
    cache.set_aside(Unreadable(about, "bad"))
    assert (cache.get("a", "ns"), cache.unreadable, cache.revision, told) == (
        pod("a", 1),
        {("ns", "a"): "bad"},
        "4",
        [],
    )
    cache.replace([], "5", [Unreadable(about, "bad")])
    assert cache.get("a", "ns") == pod("a", 1)
    cache.put(pod("a", 6))
    assert cache.unreadable == {}
    cache.replace([], "7")
    assert cache.get("a", "ns") is None


def test_an_unreadable_object_never_keeps_its_predecessor_alive(cache, told):
    cache.replace([pod("a", 1), pod("b", 2)], "2")
    told.clear()
    about = Object(metadata=Meta(name="a", namespace="ns", uid="another", resource_version="4"))
    cache.set_aside(Unreadable(about, "bad"))
    assert told == [ObjectChange("DELETED", pod("a", 1), None)]
    other = Object(metadata=Meta(name="b", namespace="ns", uid="another", resource_version="5"))
    cache.replace([], "6", [Unreadable(other, "bad")])
    assert len(cache) == 0


async def test_one_can_wait_for_a_version(cache):
    cache.replace([], "9")
    await cache.reached("9")
    waiting = asyncio.create_task(cache.reached("100"))
    abandoned = asyncio.create_task(cache.reached("100"))
    await asyncio.sleep(1)
    abandoned.cancel()
    cache.advance("99")
    await asyncio.sleep(1)
    assert not waiting.done()
    cache.put(pod("a", 101))
    await waiting
    with pytest.raises(ValueError, match="resourceVersion"):
        await cache.reached("x")
