"""The store on its own: what it shows is what its history says, at every version."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.sandbox.core.store import ExpiredError, Store, identity

PODS = ("", "pods")


def pod(namespace, name, **more):
    return {"metadata": {"namespace": namespace, "name": name}, **more}


def names(objects):
    return [identity(each) for each in objects]


def test_a_list_is_in_the_order_of_namespace_and_name():
    store = Store()
    for namespace, name in (("b", "1"), ("a", "2"), ("a-b", "1"), ("a", "10")):
        store.put(PODS, pod(namespace, name))
    assert names(store.list(PODS)) == [("a", "10"), ("a", "2"), ("a-b", "1"), ("b", "1")]
    assert names(store.list(PODS, "a")) == [("a", "10"), ("a", "2")]


def test_every_write_is_one_revision_and_what_was_read_stays_as_it_was():
    store = Store()
    first = store.put(PODS, pod("a", "1", spec={"x": 1}))
    second = store.put(PODS, {**first, "spec": {"x": 2}})
    assert (first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]) == ("2", "3")
    assert first["spec"] == {"x": 1}
    assert store.remove(PODS, "a", "1")["metadata"]["resourceVersion"] == "4"
    assert store.get(PODS, "a", "1") is None


def test_what_a_subscriber_writes_comes_after_what_caused_it_for_everybody():
    store = Store()
    seen = []

    def first(event):
        if event.object["metadata"]["name"] == "cause":
            store.put(PODS, pod("a", "effect"))

    store.subscribe(first)
    store.subscribe(lambda event: seen.append(event.object["metadata"]["name"]))
    store.put(PODS, pod("a", "cause"))
    assert seen == ["cause", "effect"]


def test_who_unsubscribes_hears_no_more():
    store = Store()
    seen = []
    stop = store.subscribe(seen.append)
    store.put(PODS, pod("a", "1"))
    stop()
    store.put(PODS, pod("a", "2"))
    assert len(seen) == 1


def test_a_forgotten_revision_is_expired_and_a_remembered_one_isnt():
    store = Store(history=2)
    for number in range(4):
        store.put(PODS, pod("a", str(number)))
    assert [event.revision for event in store.since(PODS, 3)] == [4, 5]
    with pytest.raises(ExpiredError):
        store.since(PODS, 2)
    with pytest.raises(ExpiredError):
        store.snapshot(PODS, 2)


def test_compaction_forgets_in_every_kind():
    store = Store()
    store.put(PODS, pod("a", "1"))
    store.put(("", "nodes"), pod("", "n"))
    store.compact(3)
    with pytest.raises(ExpiredError):
        store.since(PODS, 1)
    with pytest.raises(ExpiredError):
        store.since(("", "nodes"), 2)
    assert store.since(PODS, 3) == []


steps = st.lists(
    st.tuples(st.sampled_from(["put", "remove"]), st.sampled_from("ab"), st.sampled_from("123"), st.integers(0, 3)),
    max_size=40,
)


@given(steps)
@settings(max_examples=200, deadline=None)
def test_replaying_the_events_since_any_version_gives_the_list(history):
    store = Store()
    at = {store.revision: []}
    for verb, namespace, name, value in history:
        if verb == "put":
            store.put(PODS, pod(namespace, name, value=value))
        elif store.get(PODS, namespace, name) is not None:
            store.remove(PODS, namespace, name)
        at[store.revision] = store.list(PODS)
    for revision, objects in at.items():
        state = {identity(each): each for each in objects}
        for event in store.since(PODS, revision):
            if event.type == "DELETED":
                assert state.pop(identity(event.object)) == event.old
            else:
                assert (event.type == "ADDED") == (identity(event.object) not in state)
                state[identity(event.object)] = event.object
        assert [state[key] for key in sorted(state)] == store.list(PODS)
        assert store.snapshot(PODS, revision) == objects
        assert store.snapshot(PODS, revision, "a") == [each for each in objects if identity(each)[0] == "a"]
