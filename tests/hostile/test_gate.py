"""Whatever a tenant writes that a real API server stores: both programs live, and the other tenant's gang starts.

Each species of `hostile` is sent alone, so that a failure names it, then all are mixed, then both programs start again
in the middle of what was stored.
"""

from __future__ import annotations

import asyncio
import itertools
import random

import hostile
import pytest
from deployed import Deployed
from hostile import Tenant
from siege import FAULTS, HOSTILE, PATIENCE, Siege

# A control plane of its own: all in one process, and not in the one that has the other.
pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("hostile")]


SOME = 9
"""Requests of each species that the sandbox gets: it is slow with what is large."""


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
    await start(besieged, deployed, *dead)


async def start(besieged: Siege, deployed: Deployed, *programs: str) -> None:
    """Start programs, and wait until they are ready."""
    # Not in another thread: a program ends with the thread that started it.
    if "webhook" in programs:
        deployed.start_webhook(wait=False)
    if "scheduler" in programs:
        deployed.start_scheduler(wait=False)
    async with asyncio.timeout(PATIENCE):
        for each in besieged.programs():
            while await asyncio.to_thread(each.ready):  # noqa: ASYNC110 - a poll is all that probes allow
                await asyncio.sleep(0.1)


async def test_all_of_them_together_stop_nobody_nor_programs_that_start_among_them(besieged: Siege, deployed: Deployed):
    await revive(besieged, deployed)
    well = [each for each in hostile.SPECIES if each.__name__ not in FAULTS]
    leader = await besieged.lease()
    resident = {each.name: each.resident() for each in besieged.programs()}
    try:
        for tenant in tenants("all"):
            await besieged.attack("all", itertools.islice(hostile.mixed(tenant, well), 300))
        assert besieged.stored["all"] > 100
        await besieged.work()
        await besieged.stands(leader, resident)
        for program in (deployed.webhook, deployed.scheduler):
            await asyncio.to_thread(program.end)
        await start(besieged, deployed, "webhook", "scheduler")
        await besieged.work()
        leader = await besieged.lease()
        await besieged.work()
        await besieged.stands(leader, resident)
    finally:
        await besieged.clear()


@pytest.mark.parametrize("deployed", ["sandbox"], indirect=True)
async def test_what_a_sandbox_stores_of_each_stops_nobody_either(besieged: Siege, deployed: Deployed):
    leader = await besieged.lease()
    resident = {each.name: each.resident() for each in besieged.programs()}
    for tenant in tenants("sandbox"):
        for species in hostile.SPECIES:
            await besieged.attack(species.__name__, species(tenant)[:SOME])
    # What is nested deeply its own decoder refuses, and what these write no API server stores beside our webhooks.
    missing = {each for each in hostile.SPECIES if not besieged.stored[each.__name__]}
    assert missing <= {hostile.deep_metadata, hostile.odd_queues, hostile.odd_scheduler_names}, besieged.answers
    await besieged.work()
    await besieged.stands(leader, resident)
