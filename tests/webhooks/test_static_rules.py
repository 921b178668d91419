"""What can be said of one object alone holds while no webhook answers: by schema, by CEL, and by a policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from muster.cli.installation import permissions
from muster.kube import errors
from muster.kube.transport import Request
from muster.model import kinds, tenant_texts

PATIENCE = 90.0
NO_NAMES = ("a/b", "A", "-a", "a-", "a..b", ".", "a b", "a\n", "%")
"""The rule of the CRD is that of `muster.model.tenant_texts`."""


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"weight": 0}, "spec.weight"),
        ({"weight": 65536}, "spec.weight"),
        ({"capability": {"cpu": "-1"}}, "spec.capability.cpu"),
        ({"deserved": {"cpu": "much"}}, "spec.deserved.cpu"),
        ({"maxPodGroups": -1}, "spec.maxPodGroups"),
        ({"desiredState": "Ajar"}, "spec.desiredState"),
        ({"parent": "default"}, "queue default takes the PodGroups that name no queue, so it can have no children"),
        ({"parent": "NAME"}, "spec.parent must be another queue"),
        *(({"parent": each}, "spec.parent must be the name of a queue") for each in NO_NAMES),
    ],
)
async def test_a_queue_that_can_not_be_meant_is_refused(plane: Any, spec: dict[str, Any], said: str) -> None:
    name = plane.unique("queue")
    spec = {key: name if value == "NAME" else value for key, value in spec.items()}
    with pytest.raises(errors.InvalidError) as failure:
        await plane.create(kinds.QUEUES, {"metadata": {"name": name}, "spec": spec})
    assert said in str(failure.value)


@pytest.mark.parametrize("parent", ["a", "team-a.b0", "0", ""])
async def test_a_parent_that_can_be_a_queue_is_accepted(plane: Any, parent: str) -> None:
    assert not parent or tenant_texts.is_subdomain(parent)
    await plane.create(kinds.QUEUES, {"metadata": {"name": plane.unique("queue")}, "spec": {"parent": parent}})


def test_the_rule_of_the_crd_is_that_of_the_border() -> None:
    assert not any(map(tenant_texts.is_subdomain, NO_NAMES))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"minMember": -1}, "spec.minMember"),
        ({"minTaskMember": {"worker": -1}}, "spec.minTaskMember.worker"),
        ({"minResources": {"cpu": "-1"}}, "spec.minResources.cpu"),
        ({"minResources": {"cpu": "NaN"}}, "spec.minResources.cpu"),
    ],
)
async def test_a_group_that_can_not_be_meant_is_refused(plane: Any, spec: dict[str, Any], said: str) -> None:
    space = await plane.namespace()
    with pytest.raises(errors.InvalidError) as failure:
        await plane.create(kinds.PODGROUPS, {"metadata": {"name": "g"}, "spec": spec}, space)
    assert said in str(failure.value)


@pytest.fixture
async def policies(plane: Any) -> AsyncIterator[None]:
    """Muster's policy on queues, as installed, and gone again when the test ends."""
    mine = [each for each in permissions.policies() if each["metadata"]["name"] == "queues.muster.sh"]
    assert len(mine) == 2
    probe = {"metadata": {"name": "default"}, "spec": {"weight": 1}}
    if await plane.client.find(kinds.QUEUES, "default") is None:
        await plane.create(kinds.QUEUES, probe)
    await permissions.apply(plane.client, mine)
    await _until(plane, refused=True)
    yield
    await permissions.remove(plane.client, mine)
    await _until(plane, refused=False)


async def _until(plane: Any, *, refused: bool) -> None:
    """Wait until the API server has noticed: it tells nobody when it does."""
    async with asyncio.timeout(PATIENCE):
        while (await _deleted(plane, "default") is not None) is not refused:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.05)


async def _deleted(plane: Any, name: str) -> errors.ApiError | None:
    try:
        await plane.client.send(Request("DELETE", kinds.QUEUES.path(name=name), {"dryRun": "All"}))
    except errors.ForbiddenError as error:
        return error
    return None


async def test_the_queues_that_muster_needs_stay_while_the_server_is_down(plane: Any, policies: None) -> None:
    refusal = await _deleted(plane, "default")
    assert refusal is not None
    assert 'queue "default" can\'t be deleted: Muster needs it; close it instead' in refusal.message
    other = plane.unique("queue")
    await plane.create(kinds.QUEUES, {"metadata": {"name": other}})
    assert await _deleted(plane, other) is None
