"""Quarantined objects are tried again, ever less often, and soon after they change."""

from __future__ import annotations

import asyncio

from muster.kube.cache import ObjectCache
from muster.kube.quarantine_retry import QuarantineRetries
from muster.model.objects import Meta, Pod
from muster.sandbox import virtual_time


def pod(name, version):
    return Pod(metadata=Meta(name=name, namespace="ns", uid=f"uid-{name}", resource_version=str(version)))


def healed(steps):
    """Run steps while a cache heals; return when (loop time) a subscriber was told of which version of the bad pod."""
    tried = []

    async def main():
        loop = asyncio.get_running_loop()
        cache, poisoned = ObjectCache(), {"bad"}

        def follow(change):
            if change.new is not None and change.new.name == "bad":
                tried.append((round(loop.time() - began, 1), change.new.metadata.resource_version))
                if poisoned:
                    raise RuntimeError("nobody foresaw it")

        began = loop.time()
        cache.subscribe(follow)
        healing = asyncio.create_task(QuarantineRetries(cache).run())
        try:
            await steps(cache, poisoned)
        finally:
            healing.cancel()
            await asyncio.gather(healing, return_exceptions=True)
        return cache

    return virtual_time.run(main()), tried


def test_pauses_double_and_the_first_success_ends_them():
    async def steps(cache, poisoned):
        cache.put(pod("bad", 1))
        await asyncio.sleep(16)
        poisoned.clear()
        await asyncio.sleep(1000)

    cache, tried = healed(steps)
    assert [when for when, _ in tried] == [0, 1, 3, 7, 15, 31]
    assert cache.quarantined == {}


def test_a_new_version_is_tried_soon_and_one_that_changes_all_the_time_no_more_than_once_a_second():
    async def steps(cache, poisoned):
        cache.put(pod("bad", 1))
        await asyncio.sleep(40)
        cache.put(pod("bad", 2))
        await asyncio.sleep(2)
        for version in range(3, 43):
            cache.put(pod("bad", version))
            await asyncio.sleep(0.1)

    _, tried = healed(steps)
    assert (41, "2") in tried
    assert 2 <= sum(when > 42 for when, _ in tried) <= 5


def test_one_that_goes_is_not_tried_any_more_and_its_successor_at_once():
    async def steps(cache, poisoned):
        cache.put(pod("bad", 1))
        await asyncio.sleep(1.5)
        cache.drop(pod("bad", 2))
        await asyncio.sleep(100)
        cache.put(pod("bad", 3))
        await asyncio.sleep(0.5)

    _, tried = healed(steps)
    assert tried == [(0, "1"), (1, "1"), (101.5, "3")]
