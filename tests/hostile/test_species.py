"""Each species of `hostile` alone, so that a failure names it; and on a sandbox what that stores of each."""

from __future__ import annotations

import os
import random

import hostile
import hostile_fields
import hostile_kinds
import pytest
from deployed import Deployed
from hostile import Tenant
from revisions import Recorder
from siege import FAULTS, HOSTILE, Siege, started

pytestmark = [pytest.mark.soak, pytest.mark.processes]

SOME = 9
"""Requests of each species that the sandbox gets: it is slow with what is large."""


def tenants(seed: str) -> list[Tenant]:
    return [Tenant(namespace, random.Random(f"{seed} {namespace}")) for namespace in HOSTILE]


def faulty(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.xfail(reason=FAULTS[name], strict=True)] if name in FAULTS else []


@pytest.mark.skipif(
    "MUSTER_SOAK" not in os.environ, reason="one by one in `make soak`; test_gate.py sends all together"
)
@pytest.mark.xdist_group("hostile species")
@pytest.mark.parametrize(
    "species", [pytest.param(each, id=each.__name__, marks=faulty(each.__name__)) for each in hostile_fields.SPECIES]
)
async def test_one_species_stops_nobody(species: hostile.Species, besieged: Siege, deployed: Deployed):
    # One that a test before this one has ended: so one species fails one test.
    await started(besieged, deployed, *(each.name for each in besieged.programs() if each.resident() == 0))
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


@pytest.mark.xdist_group("hostile sandbox")
@pytest.mark.parametrize("deployed", ["sandbox"], indirect=True)
async def test_what_a_sandbox_stores_of_each_stops_nobody_either(
    besieged: Siege, deployed: Deployed, recorded: Recorder
):
    leader, before = await besieged.lease(), besieged.programs()
    resident = {each.name: each.resident() for each in before}
    for tenant in tenants("sandbox"):
        for species in hostile_fields.SPECIES:
            await besieged.attack(species.__name__, species(tenant)[:SOME])
    # What is nested deeply its own decoder refuses, and what these write no API server stores beside our webhooks.
    missing = {each for each in hostile_fields.SPECIES if not besieged.stored[each.__name__]}
    known = {hostile.deep_metadata, hostile.odd_queues, hostile.odd_scheduler_names, hostile_kinds.native_groups}
    assert missing <= known, besieged.answers
    await besieged.work()
    # As in test_gate.py: a server that has no time may let the lease end.
    holder, changes = await besieged.lease()
    assert (holder, besieged.programs()) == (leader[0], before)
    await besieged.stands((holder, changes), resident)
    assert await recorded.violations() == []
