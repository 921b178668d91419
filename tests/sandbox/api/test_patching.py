"""Patches: merge, JSON, strategic merge, and server-side apply with its owners."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sandbox.codec import fields, strategic
from muster.sandbox.codec.patching import merge_patch
from muster.sandbox.fieldmanager import fieldsets

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEPLOYMENT = fields.builtin("apps", "v1", "Deployment")


def merged(obj, patch):
    return strategic.strategic_merge(DEPLOYMENT, obj, patch)


def containers(*entries):
    return {"spec": {"template": {"spec": {"containers": list(entries)}}}}


def merged_containers(old, patch, **directives):
    result = merged(containers(*old), {"spec": {"template": {"spec": {"containers": patch, **directives}}}})
    return result["spec"]["template"]["spec"]["containers"]


# ── strategic merge ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_list_with_a_merge_key_merges_by_it():
    old = [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "2"}]
    assert merged_containers(old, [{"name": "b", "image": "3"}]) == [old[0], {"name": "b", "image": "3"}]


def test_an_entry_is_deleted_by_its_key_and_a_list_replaced_by_a_directive():
    old = [{"name": "a"}, {"name": "b"}]
    assert merged_containers(old, [{"name": "a", "$patch": "delete"}]) == [{"name": "b"}]
    assert merged_containers(old, [{"$patch": "replace"}, {"name": "c"}]) == [{"name": "c"}]


def test_an_atomic_list_is_replaced_whole():
    old = {"spec": {"template": {"spec": {"tolerations": [{"key": "a"}]}}}}
    patch = {"spec": {"template": {"spec": {"tolerations": [{"key": "b"}]}}}}
    assert merged(old, patch) == patch


def test_the_asked_for_order_holds_and_what_it_doesnt_name_stays_in_place():
    old = [{"name": name} for name in "axb"]
    order = [{"name": "b"}, {"name": "a"}]
    result = merged_containers(old, [], **{"$setElementOrder/containers": order})
    assert [each["name"] for each in result] == ["x", "b", "a"]


def test_retained_keys_drop_the_others():
    old = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert merged(old, patch) == {"spec": {"strategy": {"type": "Recreate"}}}


def test_a_map_is_replaced_or_emptied_by_a_directive_and_a_null_removes():
    old = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    assert merged(old, {"metadata": {"labels": {"$patch": "replace", "c": "3"}}})["metadata"]["labels"] == {"c": "3"}
    assert merged(old, {"metadata": {"labels": {"$patch": "delete"}}})["metadata"]["labels"] == {}
    assert merged(old, {"metadata": {"labels": {"a": None}}})["metadata"]["labels"] == {"b": "2"}


def test_values_are_deleted_from_a_primitive_list():
    old = {"metadata": {"finalizers": ["a", "b"]}}
    assert merged(old, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}) == {
        "metadata": {"finalizers": ["b"]}
    }
    assert merged(old, {"metadata": {"finalizers": ["b", "c"]}})["metadata"]["finalizers"] == ["a", "b", "c"]


names = st.sampled_from("abcd")
entries = st.lists(names, unique=True).flatmap(
    lambda keys: st.tuples(
        *(st.fixed_dictionaries({"name": st.just(key), "image": st.sampled_from("xyz")}) for key in keys)
    )
)


@given(entries, entries, st.lists(names, unique=True))
def test_a_strategic_merge_is_idempotent_and_changes_nothing_it_was_given(old, patch, order):
    # Entries of the patch have to be in the order, and in their order.
    given = [each["name"] for each in patch]
    order = [*(each for each in order if each not in given), *given]
    directives = {"$setElementOrder/containers": [{"name": each} for each in order]}
    before = [dict(each) for each in old]
    once = merged_containers(old, list(patch), **directives)
    assert merged_containers(once, list(patch), **directives) == once
    assert list(old) == before
    assert {each["name"] for each in once} == {each["name"] for each in (*old, *patch)}
    placed = [each["name"] for each in once if each["name"] in order]
    assert placed == [each for each in order if each in placed]


json = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(json, json)
def test_a_merge_patch_is_idempotent_and_leaves_no_null_it_brought(obj, patch):
    once = merge_patch(obj, patch)
    assert merge_patch(once, patch) == once


# ── field sets ───────────────────────────────────────────────────────────────────────────────────────────────────

sets = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(st.sampled_from(["f:a", "f:b", "f:c"]), inner, min_size=1, max_size=3).flatmap(
        lambda node: st.sampled_from([node, {**node, ".": {}}])
    ),
    max_leaves=6,
).filter(lambda node: bool(node) and "." not in node)


def members(node):
    return set(fieldsets.paths(node))


@given(sets, sets)
def test_field_sets_are_sets(one, other):
    assert members(fieldsets.union(one, other)) == members(one) | members(other)
    assert members(fieldsets.minus(one, other)) == members(one) - members(other)
    assert members(fieldsets.common(one, other)) == members(one) & members(other)


# ── server-side apply ────────────────────────────────────────────────────────────────────────────────────────────


def wanted(name="a", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_what_a_manager_applies_no_more_goes_unless_another_owns_it(api):
    await api.apply(f"{MAPS}/a", "one", wanted(x="1", y="2"))
    await api.apply(f"{MAPS}/a", "two", wanted(y="2"))
    _, left = await api.apply(f"{MAPS}/a", "one", wanted())
    assert left["data"] == {"y": "2"}


async def test_a_field_of_another_is_a_conflict_and_taken_by_force(api):
    await api.apply(f"{MAPS}/a", "one", wanted(x="1"))
    status, answer = await api.apply(f"{MAPS}/a", "two", wanted(x="2"))
    assert status == 409
    assert answer["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    status, taken = await api.apply(f"{MAPS}/a", "two", wanted(x="2"), force=True)
    owners = {each["manager"]: each["fieldsV1"] for each in taken["metadata"]["managedFields"]}
    assert (status, owners) == (200, {"two": {"f:data": {"f:x": {}}}})


async def test_an_update_takes_what_it_changes_and_gives_up_what_it_removes(api):
    await api.apply(f"{MAPS}/a", "one", wanted(x="1", y="1"))
    await api.merge(f"{MAPS}/a?fieldManager=two", {"data": {"x": "2"}})
    changed = await api.merge(f"{MAPS}/a?fieldManager=three", {"data": {"y": None}})
    owners = {each["manager"]: each["fieldsV1"] for each in changed["metadata"]["managedFields"]}
    assert owners == {"two": {"f:data": {"f:x": {}}}}


async def test_applying_the_same_again_changes_nothing(api):
    _, first = await api.apply(f"{MAPS}/a", "one", wanted(x="1"))
    _, second = await api.apply(f"{MAPS}/a", "one", wanted(x="1"))
    assert first == second


async def test_status_and_object_are_owned_apart(api, pod):
    await api.post(PODS, pod())
    await api.merge(f"{PODS}/p/status?fieldManager=kubelet", {"status": {"phase": "Running"}})
    owners = (await api.get(f"{PODS}/p"))["metadata"]["managedFields"]
    assert [(each["manager"], each.get("subresource")) for each in owners] == [("cmp", None), ("kubelet", "status")]


async def test_ownership_can_be_forgotten_by_an_empty_entry_and_not_by_an_empty_list(api):
    await api.apply(f"{MAPS}/a", "one", wanted(x="1"))
    kept = await api.merge(f"{MAPS}/a", {"metadata": {"managedFields": []}})
    assert "managedFields" in kept["metadata"]
    forgotten = await api.merge(f"{MAPS}/a", {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in forgotten["metadata"]
    status, answer = await api.apply(f"{MAPS}/a", "two", wanted(x="2"))
    assert (status, answer["details"]["causes"][0]["message"]) == (409, 'conflict with "before-first-apply" using v1')


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (wanted(name="b"), "the name of the object (b) does not match the name on the URL (a)"),
        ({**wanted(), "kind": "Secret"}, "invalid object type: /v1, Kind=Secret"),
        (
            {**wanted(), "metadata": {"name": "a", "managedFields": [{"manager": "x"}]}},
            "metadata.managedFields must be nil",
        ),
    ],
)
async def test_an_apply_of_something_else_is_refused(api, body, message):
    status, answer = await api.apply(f"{MAPS}/a", "one", body)
    assert (status, answer["message"]) == (400, message)
