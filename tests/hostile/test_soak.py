"""A siege of ``MUSTER_SOAK`` minutes, at what the control plane takes: nobody restarts, memory is flat, no quota is exceeded."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from deployed import Deployed
from endless_attack import IN_FLIGHT, MOST_ALIVE, attack
from revisions import Recorder
from siege import HOSTILE, Siege

pytestmark = [pytest.mark.soak, pytest.mark.processes, pytest.mark.xdist_group("hostile soak")]

SECONDS = 60 * int(os.environ.get("MUSTER_SOAK", "0")) or 20
EVERY = min(60.0, SECONDS / 4)
"""Seconds from one look to the next. Each asks sixty questions; asked without a pause they alone would take a fifth of two processors."""
CURVE = 8
"""Points of a program's memory that the last line has."""
FLAT = 64 * 1024
"""KiB by which a program's peak in the second half may exceed that in the first."""

log = logging.getLogger(__name__)


async def test_a_siege_stops_nobody_and_bends_no_quota(besieged: Siege, deployed: Deployed, recorded: Recorder):
    loop = asyncio.get_running_loop()
    besieged.in_flight = IN_FLIGHT
    began = loop.time()
    until = began + SECONDS
    before, leader, made = besieged.programs(), await besieged.lease(), await besieged.made()
    resident = {each.name: each.resident() for each in before}
    looks: list[tuple[int, ...]] = []
    async with asyncio.TaskGroup() as group:
        attacks = [group.create_task(attack(besieged, namespace)) for namespace in HOSTILE]
        for number in itertools.count(1):
            await asyncio.sleep(max(0.0, began + number * EVERY - loop.time()))
            if loop.time() >= until:
                break
            await besieged.work()
            # An API server that has no time may let the lease end; nobody else takes it then, and no process starts again.
            holder, changes = await besieged.lease()
            assert holder == leader[0]
            await besieged.stands((holder, changes), resident)
            alive = sum([await besieged.alive(namespace) for namespace in HOSTILE])
            looks.append((alive, *(each.resident() for each in before)))
            stored, refused = besieged.stored["siege"], besieged.refused["siege"]
            words = "%d objects, %d stored, %d refused, %d alive, KiB %s, late %s, lease %s"
            log.info(words, besieged.created, stored, refused, alive, looks[-1][1:], dict(besieged.late), changes)
        for each in attacks:
            each.cancel()
    violations = await recorded.violations()
    made = await besieged.made() - made
    log.info("%s", summary(besieged, looks, [each.name for each in before], loop.time() - began, made, len(violations)))
    assert violations == []
    assert besieged.programs() == before
    assert besieged.stored["siege"] > SECONDS
    assert max(alive for alive, *_ in looks) <= MOST_ALIVE
    assert all(map(flat, zip(*(sizes for _, *sizes in looks), strict=True)))
    log.info("the last answers: %s", besieged.answers.most_common(20))
    log.info("processor time: %s", processor_seconds(deployed))


def summary(
    siege: Siege, looks: Sequence[Sequence[int]], names: Sequence[str], seconds: float, made: int, violations: int
) -> str:
    """Return the figures of a whole run, as one line for benchmarks/results.md.

    ``made`` are objects that anybody made: tenants, and what makes pods and PodGroups of theirs. No restart is what a look
    asserts, so a run that comes to its end had none.
    """
    curve = looks[:: max(1, len(looks) // CURVE)]
    memory = "; ".join(
        f"{name} {', '.join(str(look[place] // 1024) for look in curve)} MiB" for place, name in enumerate(names, 1)
    )
    return (
        f"siege of {seconds / 60:.1f} min, {siege.in_flight} at once: {made} objects made, {siege.created} of them by tenants, "
        f"{siege.stored['siege']} requests stored and {siege.refused['siege']} refused, at most "
        f"{max(alive for alive, *_ in looks)} alive; {violations} violations at any revision, 0 restarts, "
        f"{siege.late.total()} times late; {memory}"
    )


def processor_seconds(deployed: Deployed) -> dict[str, int]:
    """Return what each program has had of the processors, those of the control plane and this one too: who limits a siege."""
    programs = {"webhook": deployed.webhook, "scheduler": deployed.scheduler, "visibility": deployed.visibility}
    pids = {name: program.pid for name, program in programs.items()}
    found = {"tests": os.getpid(), **deployed.plane.pids(), **pids}
    ticks = {
        name: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for name, pid in found.items()
    }
    return {name: sum(map(int, each)) // os.sysconf("SC_CLK_TCK") for name, each in ticks.items()}


def flat(sizes: Sequence[int]) -> bool:
    """Whether a program's memory has its peak in the first half, or little above it."""
    half = len(sizes) // 2
    return half == 0 or max(sizes[half:]) <= max(sizes[:half]) + FLAT
