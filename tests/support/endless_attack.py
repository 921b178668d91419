"""A tenant's hostile objects without end, at what the control plane takes."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator, Sequence

import hostile
import hostile_fields
from hostile import Tenant
from siege import FAULTS, Siege

from muster.kube.transport import Request

MOST_ALIVE = 20_000
FULL = 500
"""Objects of a tenant at which it deletes them all. Others come while that takes, and what is made of them.

So few that each tenant has had them within the first minutes: a program's memory follows what is alive, and only where that
stays as it is does a curve tell what it doesn't give back."""
BEHIND = FULL * 4
"""Objects of a tenant above which it waits for its deletions: whether memory is flat shows where what is alive is.

So many that it seldom waits: nobody else has so much to send that the processors stay busy."""
COUNTED = 2.0
"""Seconds between two counts of what a tenant has."""
IN_FLIGHT = int(os.environ.get("MUSTER_IN_FLIGHT", "8"))
"""Requests of a tenant at once."""


async def attack(siege: Siege, namespace: str) -> None:
    """Send one tenant's requests without end, so many at once, and delete what there is whenever it is much.

    Nobody waits for another: the slowest request of a round would have all others wait, and so would a deletion.
    """
    tenant = Tenant(namespace, random.Random(f"siege {namespace}"))
    species = [each for each in hostile_fields.SPECIES if each.__name__ not in FAULTS]
    room = asyncio.Event()
    room.set()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(_send_on(siege, hostile.batches(tenant, species, hostile_fields.LARGE), room))
        group.create_task(_delete_on(siege, namespace, room))


async def _send_on(siege: Siege, batches: Iterator[Sequence[Request]], room: asyncio.Event) -> None:
    """Send one request after the other, while there is room; what belongs together comes in its order."""
    for batch in batches:
        for request in batch:
            await room.wait()
            await siege.send("siege", request)


async def _delete_on(siege: Siege, namespace: str, room: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(COUNTED)
        alive = await siege.alive(namespace)
        if alive > BEHIND:
            room.clear()
        elif alive <= FULL:
            room.set()
        if alive > FULL:
            await siege.thin(namespace)
