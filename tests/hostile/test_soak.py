"""A siege of ``MUSTER_SOAK`` minutes, at what the control plane takes: nobody restarts, memory is flat, no quota is exceeded."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
from collections.abc import Sequence

import hostile
import pytest
from deployed import Deployed
from hostile import Tenant
from siege import FAULTS, HOSTILE, Siege

pytestmark = [pytest.mark.soak, pytest.mark.processes, pytest.mark.xdist_group("hostile soak")]

SECONDS = 60 * int(os.environ.get("MUSTER_SOAK", "0")) or 20
MOST_ALIVE = 20_000
ROUND = 300
"""Requests of a tenant between two counts of what it has."""
FULL = MOST_ALIVE // len(HOSTILE) - 4 * ROUND
"""Objects of a tenant at which it deletes them all; with those that are made of others, a round more doesn't make it too many."""
IN_FLIGHT = int(os.environ.get("MUSTER_IN_FLIGHT", "8"))
"""Requests of a tenant at once."""
PAUSE = 5.0
FLAT = 64 * 1024
"""KiB by which a program's peak in the second half may exceed that in the first."""

log = logging.getLogger(__name__)


async def test_a_siege_stops_nobody_and_bends_no_quota(besieged: Siege, deployed: Deployed):
    loop = asyncio.get_running_loop()
    besieged.in_flight = IN_FLIGHT
    until = loop.time() + SECONDS
    before, leader = besieged.programs(), await besieged.lease()
    resident = {each.name: each.resident() for each in before}
    looks: list[tuple[int, ...]] = []
    async with asyncio.TaskGroup() as group:
        attacks = [group.create_task(attack(besieged, namespace)) for namespace in HOSTILE]
        while loop.time() < until:
            await asyncio.sleep(PAUSE)
            await besieged.work()
            # An API server that has no time may let the lease end; nobody else takes it then, and no process starts again.
            holder, changes = await besieged.lease()
            assert holder == leader[0]
            await besieged.stands((holder, changes), resident)
            alive = sum([await besieged.alive(namespace) for namespace in HOSTILE])
            looks.append((alive, *(each.resident() for each in before)))
            stored, refused = besieged.stored["siege"], besieged.refused["siege"]
            words = "%d stored, %d refused, %d alive, KiB %s, late %s, lease %s"
            log.info(words, stored, refused, alive, looks[-1][1:], dict(besieged.late), changes)
        for each in attacks:
            each.cancel()
    assert besieged.programs() == before
    assert besieged.stored["siege"] > SECONDS
    assert max(alive for alive, *_ in looks) <= MOST_ALIVE
    assert all(map(flat, zip(*(sizes for _, *sizes in looks), strict=True)))
    log.info("the last answers: %s", besieged.answers.most_common(20))


async def attack(siege: Siege, namespace: str) -> None:
    """Send one tenant's requests without end, and delete what there is whenever it is much."""
    tenant = Tenant(namespace, random.Random(f"siege {namespace}"))
    stream = hostile.mixed(tenant, [each for each in hostile.SPECIES if each.__name__ not in FAULTS])
    while True:
        await siege.attack("siege", itertools.islice(stream, ROUND))
        if await siege.alive(namespace) > FULL:
            await siege.clear(namespace)


def flat(sizes: Sequence[int]) -> bool:
    """Whether a program's memory has its peak in the first half, or little above it."""
    half = len(sizes) // 2
    return half == 0 or max(sizes[half:]) <= max(sizes[:half]) + FLAT
