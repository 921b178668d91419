from __future__ import annotations

import pytest

from muster.kube import wait
from muster.model.kinds import PODS


def running(pod):
    return pod is not None and pod.status.phase == "Running"


async def test_what_holds_already_is_not_watched(server):
    server.answer = lambda _: server.listing(3, server.pod("a", 1, status={"phase": "Running"}))
    assert (await wait.until(server.client, PODS, "a", "ns", holds=running, within=5)).name == "a"
    assert server.requests(watching=True) == []


async def test_an_object_is_watched_until_it_holds_through_watches_that_end(server):
    server.answer = lambda _: server.listing(3)
    later = {"type": "MODIFIED", "object": server.pod("a", 5, status={"phase": "Running"})}
    server.watches = [[{"type": "ADDED", "object": server.pod("a", 4)}], [], [2.0, later]]
    assert (await wait.until(server.client, PODS, "a", "ns", holds=running, within=60)).metadata.resource_version == "5"


async def test_one_can_wait_for_the_end_of_an_object(server):
    server.answer = lambda _: server.listing(3, server.pod("a", 1))
    server.watches = [[{"type": "DELETED", "object": server.pod("a", 4)}]]
    assert await wait.until(server.client, PODS, "a", "ns", holds=lambda pod: pod is None, within=5) is None


async def test_the_wait_ends_in_time_and_hammers_nobody(server):
    server.answer = lambda _: server.listing(3)
    server.watches = [[] for _ in range(10_000)]
    with pytest.raises(TimeoutError):
        await wait.until(server.client, PODS, "a", "ns", holds=running, within=60)
    assert len(server.asked) < 60
