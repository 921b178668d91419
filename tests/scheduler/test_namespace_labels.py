"""Which namespaces are labelled, so that admission asks for their pods."""

from __future__ import annotations

import asyncio

import pytest

from muster.model import kinds, names

GROUP = {
    "kind": "PodGroup",
    "metadata": {"name": "gang"},
    "spec": {"minMember": 1, "queue": "default", "minResources": {"cpu": "1"}},
}
QUOTA = {"kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "4"}}}

nothing_happens = pytest.mark.only(
    "sandbox", reason="that nothing happens is shown by waiting, which only virtual time gives"
)


async def guarded(world):
    await world.becomes(kinds.NAMESPACES, world.namespace, lambda found: mode_of(found) == "guarded")


def mode_of(namespace):
    return namespace.metadata.label(names.QUOTA_MODE)


async def later(world):
    await asyncio.sleep(30)
    return mode_of(await world.client.get(kinds.NAMESPACES, world.namespace))


@pytest.mark.parametrize("order", [(QUOTA, GROUP), (GROUP, QUOTA)], ids=["quota first", "group first"])
async def test_a_namespace_whose_groups_reserve_of_a_quota_is_guarded(world, order):
    await world.work()
    await world.create(*order)
    await guarded(world)


async def test_what_was_there_before_the_worker_is_guarded_too(world):
    await world.create(QUOTA, GROUP)
    await world.work()
    await guarded(world)


@nothing_happens
@pytest.mark.parametrize("said", ["off", "guaranteed"])
async def test_what_the_label_says_stays(world, said):
    await world.patch(kinds.NAMESPACES, world.namespace, {"metadata": {"labels": {names.QUOTA_MODE: said}}})
    await world.work()
    await world.create(QUOTA, GROUP)
    assert await later(world) == said


async def test_where_the_operator_wants_it_such_a_namespace_is_guaranteed(world):
    await world.work(quota_mode=names.GUARANTEED)
    await world.create(QUOTA, GROUP)
    await world.becomes(kinds.NAMESPACES, world.namespace, lambda found: mode_of(found) == names.GUARANTEED)


@nothing_happens
async def test_where_the_operator_wants_no_labels_there_are_none(world):
    await world.work(quota_mode="")
    await world.create(QUOTA, GROUP)
    assert not await later(world)


@nothing_happens
@pytest.mark.parametrize("there", [(QUOTA, GROUP | {"spec": {"minMember": 1, "queue": "default"}}), (GROUP,)])
async def test_a_namespace_without_reservations_is_left_alone(world, there):
    await world.work()
    await world.create(*there)
    assert await later(world) == ""


async def test_a_namespace_that_named_a_queue_before_anybody_looked_is_labelled_so(world):
    named = {names.QUEUE_NAME_KEYS[0]: "research"}
    await world.patch(kinds.NAMESPACES, world.namespace, {"metadata": {"annotations": named}})
    await world.work()
    await world.becomes(
        kinds.NAMESPACES, world.namespace, lambda found: found.metadata.label(names.NAMES_QUEUE) == "true"
    )
