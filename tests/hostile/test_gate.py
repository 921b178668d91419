"""Whatever a tenant writes that a real API server stores: both programs live, and the other tenant's gang starts.

Here all species of `hostile` come together, and both programs start again in the midst of what was stored. One by one they
come in `make soak` (test_species.py).
"""

from __future__ import annotations

import asyncio
import random

import hostile
import hostile_fields
import pytest
from deployed import Deployed
from hostile import Tenant
from revisions import Recorder
from siege import HOSTILE, Siege, started

# A control plane of its own: all in one process, and not in the one that has the other.
pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("hostile")]

MANY = 9
"""Requests of each species and tenant."""


async def test_all_species_together_stop_nobody_nor_programs_that_start_among_them(
    besieged: Siege, deployed: Deployed, recorded: Recorder
) -> None:
    leader, before = await besieged.lease(), besieged.programs()
    resident = {each.name: each.resident() for each in besieged.programs()}
    for namespace in HOSTILE:
        tenant = Tenant(namespace, random.Random(f"all {namespace}"))
        for species in hostile_fields.SPECIES:
            await besieged.attack(species.__name__, species(tenant)[:MANY])
    # What isn't stored is refused by the webhooks for what it is.
    missing = {each for each in hostile_fields.SPECIES if not besieged.stored[each.__name__]}
    assert missing <= {hostile.odd_queues, hostile.odd_scheduler_names}, besieged.answers
    await besieged.work()
    # An API server that has no time may let the lease end; nobody else takes it then, and no program starts again.
    holder, changes = await besieged.lease()
    assert (holder, besieged.programs()) == (leader[0], before)
    await besieged.stands((holder, changes), resident)
    for program in (deployed.webhook, deployed.scheduler, deployed.visibility):
        await asyncio.to_thread(program.end)
    await started(besieged, deployed, "webhook", "scheduler", "visibility")
    await besieged.work()
    leader = await besieged.lease()
    await besieged.work()
    await besieged.stands(leader, resident)
    assert await recorded.violations() == []
