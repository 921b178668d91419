"""Whatever a tenant writes that a real API server stores: both programs live, and the other tenant's gang starts.

Each species of `hostile` is sent alone, so that a failure names it.
"""

from __future__ import annotations

import asyncio
import random

import hostile
import pytest
from deployed import Deployed
from hostile import Tenant
from siege import FAULTS, HOSTILE, Siege

# A control plane of its own: all in one process, and not in the one that has the other.
pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("hostile")]


def tenants(seed: str) -> list[Tenant]:
    return [Tenant(namespace, random.Random(f"{seed} {namespace}")) for namespace in HOSTILE]


def faulty(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.xfail(reason=FAULTS[name], strict=True)] if name in FAULTS else []


@pytest.mark.parametrize(
    "species", [pytest.param(each, id=each.__name__, marks=faulty(each.__name__)) for each in hostile.SPECIES]
)
async def test_one_species_stops_nobody(species: hostile.Species, besieged: Siege, deployed: Deployed):
    await revive(besieged, deployed)
    before, leader = besieged.programs(), await besieged.lease()
    resident = {each.name: each.resident() for each in before}
    try:
        for tenant in tenants(species.__name__):
            await besieged.attack(species.__name__, species(tenant))
        # Where nothing of it is stored, it is because it was judged, and not because nobody answered.
        judged = all("denied the request" in each or "is invalid" in each for each in besieged.answers)
        assert besieged.stored[species.__name__] > 0 or judged, besieged.answers
        await besieged.work()
        await besieged.stands(leader, resident)
    finally:
        await besieged.clear()


async def revive(besieged: Siege, deployed: Deployed) -> None:
    """Start a program that a test before this one has ended, so that one species fails one test."""
    dead = {each.name for each in besieged.programs() if each.resident() == 0}
    if "webhook" in dead:
        await asyncio.to_thread(deployed.start_webhook)
    if "scheduler" in dead:
        await asyncio.to_thread(deployed.start_scheduler)
