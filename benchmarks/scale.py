"""How many pods a second several schedulers bind, each with nodes and queues of its own: a simulation with measured costs.

    python benchmarks/scale.py                (the curve, from the costs below)
    python benchmarks/scale.py --measure      (the costs, on this machine; needs the binaries that `make controlplane` builds)

Virtual time goes on in steps. In each, every scheduler has one core for events of pods and for its own decisions and binds, of which 64
are under way at most; the API servers have so many cores for binds, statuses, and one copy of each event for each watcher. "All"
means that each scheduler watches all pods, as Muster does today, "own" that each watches those that name it as their scheduler.
Nothing else is modelled: etcd's disk, the network and the kubelets only make it slower.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import calibration

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "controlplane"))

import scheduler_plane
from controlplane import ControlPlane  # the path above is set at run time

from muster.kube import auth
from muster.kube.http import HttpTransport
from muster.kube.transport import Request
from muster.model import kinds, names

STEP: Final = 0.01
IN_FLIGHT: Final = 64
ROUND_TRIP: Final = 0.002
"""Seconds that a bind is under way where nobody waits."""
EVENTS: Final = 5
"""Of a pod in its life: created, bound, running, ended, deleted."""
PODS: Final = 100_000
"""That are simulated: a rate is what it is by then."""
SCHEDULERS: Final = (1, 2, 4, 8, 16, 32)
CORES: Final = (2, 8, 32, 64)
WATCHERS: Final = 4
"""Beside the schedulers: webhook replicas and the controller manager."""
_LOAD: Final = scheduler_plane.Load(10, 500, 500)
_COPIES: Final = 8


@dataclass(frozen=True)
class Costs:
    """Seconds of processor time.

    Attributes:
        written: of the API server and etcd for a pod: its creation, its bind, its statuses, its deletion.
        copied: of the API server for an event of one watcher.
        seen: of a scheduler for an event of any pod.
        placed: of a scheduler for a pod of its own: deciding, and the bind.
    """

    written: float = 0.0032
    copied: float = 0.00003
    seen: float = 0.0001
    placed: float = 0.00025


def rate(schedulers: int, cores: int, costs: Costs, *, own: bool, pods: int = PODS) -> float:
    """Simulate until so many pods are bound; return pods a second."""
    left = [pods // schedulers] * schedulers
    budget = [0.0] * schedulers
    events = [0.0] * schedulers
    waiting = 0.0  # seconds of work that the API servers have before them
    bound, now = 0, 0.0
    per_pod = costs.written + EVENTS * costs.copied * ((1 if own else schedulers) + WATCHERS)
    while bound < pods - schedulers:
        now += STEP
        waiting = max(0.0, waiting - cores * STEP)
        # A bind is answered when what was there before it is done, so a busy API server slows everybody's 64 down.
        possible = IN_FLIGHT * STEP / (ROUND_TRIP + waiting / cores)
        made = [0] * schedulers
        for each in range(schedulers):
            budget[each] = min(budget[each] + STEP, 10 * STEP)
            seen = min(events[each], budget[each] / costs.seen)
            events[each] -= seen
            budget[each] -= seen * costs.seen
            # What isn't seen yet can't be counted as free, so who is behind with events places nothing.
            placed = 0 if events[each] > 1 else int(min(left[each], possible, budget[each] / costs.placed))
            budget[each] -= placed * costs.placed
            left[each] -= placed
            made[each] = placed
        waiting += sum(made) * per_pod
        bound += sum(made)
        for each in range(schedulers):
            events[each] += EVENTS * (made[each] if own else sum(made))
    return bound / now


def curve(costs: Costs) -> Iterator[tuple[int, list[float]]]:
    """Return pods a second by schedulers, for each number of the API servers' cores; watching all pods, then their own."""
    for schedulers in SCHEDULERS:
        yield schedulers, [rate(schedulers, cores, costs, own=own) for own in (False, True) for cores in CORES]


# ── costs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def measure() -> Costs:
    """Measure on the real control plane: creations and binds of 5,000 pods, with and without watchers who read along."""
    alone, binding = _served(watchers=0)
    watched, _ = _served(watchers=_COPIES)
    events = _LOAD.pods * 2  # created and bound; the others cost as much
    muster = scheduler_plane.measure(scheduler_plane.MUSTER, _LOAD, names.SCHEDULER_NAME, live=True)
    lean = scheduler_plane.measure(scheduler_plane.LEAN, _LOAD, names.SCHEDULER_NAME, live=True)
    seen = lean.cpu / events / 2
    return Costs(
        written=(alone + binding) / _LOAD.pods,
        copied=max(0.0, watched - alone) / (events * _COPIES),
        seen=seen,
        placed=max(muster.cpu / _LOAD.pods - 2 * seen, 0.0),
    )


def _served(watchers: int) -> tuple[float, float]:
    """Return seconds of API server and etcd for creating pods, and for binding them, with so many who watch."""
    with ControlPlane(nodes_simulated=False) as plane:
        plane.kill("kube-controller-manager")
        asyncio.run(scheduler_plane.fill(plane, _LOAD, names.SCHEDULER_NAME, pods=False, rest=True))
        pids = [pid for name, pid in plane.pids().items() if name in {"kube-apiserver", "etcd"}]

        def spent() -> float:
            return sum(scheduler_plane.used(pid)[0] for pid in pids)

        async def created() -> None:
            async with contextlib.AsyncExitStack() as stack:
                transport = await stack.enter_async_context(
                    HttpTransport(await auth.load(str(plane.kubeconfig())), connections=watchers + 1)
                )
                reading = [asyncio.create_task(_read(transport)) for _ in range(watchers)]
                await asyncio.sleep(1)
                await asyncio.to_thread(
                    lambda: asyncio.run(scheduler_plane.fill(plane, _LOAD, names.SCHEDULER_NAME, pods=True, rest=False))
                )
                await asyncio.sleep(1)
                for each in reading:
                    each.cancel()
                await asyncio.gather(*reading, return_exceptions=True)

        before = spent()
        asyncio.run(created())
        middle = spent()
        scheduler_plane.bind(plane, scheduler_plane.LEAN, _LOAD, names.SCHEDULER_NAME, live=False)
        return middle - before, spent() - middle


async def _read(transport: HttpTransport) -> None:
    request = Request("GET", kinds.PODS.path("default"), {"watch": "true", "resourceVersion": "0"})
    async with transport.watch(request, idle=600) as lines:
        async for _ in lines:
            pass


def table(rows: Sequence[tuple[int, Sequence[float]]]) -> str:
    head = " | ".join(f"{watched}, {cores} cores" for watched in ("all", "own") for cores in CORES)
    lines = [f"| schedulers | {head} |", "|---|" + "---|" * 2 * len(CORES)]
    lines += [f"| {count} | " + " | ".join(f"{each:,.0f}" for each in rates) + " |" for count, rates in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args()
    if options.measure:
        calibration.tell()
    began = time.monotonic()
    costs = measure() if options.measure else Costs()
    print(f"{costs}; pods bound a second ({time.monotonic() - began:.0f} s):", flush=True)
    print(table(list(curve(costs))))


if __name__ == "__main__":
    main()
