"""What a refusal costs the API server: all that exists in the namespace is listed for it, and for so many a second at most."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muster.ledger.reservations import Exceeded, Reserved
from muster.model import kinds

SLOW = 0.05
"""Seconds that an answer is under way, each way: a large namespace is listed in as many."""


@pytest.mark.only("sandbox", reason="how long a list takes is set, and told, in virtual time")
@pytest.mark.parametrize(("dry_run", "askers"), [(False, 8), (True, 1)])
async def test_who_asks_for_too_much_without_a_pause_has_what_exists_listed_a_third_of_the_time(
    lab: Any, asking: Any, *, dry_run: bool, askers: int
) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    assert await lab.create(one, "train", "6") == Reserved()
    await one.sees("train")
    one.network.latency = SLOW
    one.network.sent.clear()
    loop = asyncio.get_running_loop()
    until = loop.time() + 5
    refused: list[bool] = []

    async def ask_on(number: int) -> None:
        while loop.time() < until:
            refused.append(isinstance(await asking(one, f"greedy-{number}", "6", dry_run=dry_run), Exceeded))

    await asyncio.gather(*map(ask_on, range(askers)))
    assert all(refused)
    lists = one.network.count("GET", "podgroups")
    assert 8 <= lists <= 5 / (2 * SLOW) / 3 + 1
    assert len(refused) >= (askers - 1) * lists


@pytest.mark.only("sandbox", reason="how long a list takes is set, and told, in virtual time")
async def test_who_is_refused_once_waits_for_nothing_and_others_are_granted_at_once(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    assert await lab.create(one, "train", "6") == Reserved()
    await one.sees("train")
    loop = asyncio.get_running_loop()
    one.network.latency = SLOW
    one.network.sent.clear()
    started = loop.time()
    assert isinstance(await asking(one, "greedy", "6"), Exceeded)
    assert loop.time() - started < 5 * SLOW
    # The namespace rests now; who fits needs no list.
    started = loop.time()
    assert await asking(one, "small", "1") == Reserved()
    assert loop.time() - started < 3 * SLOW
    assert one.network.count("GET", kinds.PODGROUPS.plural) == 1
