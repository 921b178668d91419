"""How long the page of `muster ui` takes to load, and how evenly it scrolls: a real browser, without a screen, and a server beside it.

Run: PYTHONPATH=tests/support python benchmarks/ui.py [--queues 1000] [--groups 10000] [--frames 300]
     (chromium has to be there: python3 tests/support/chromium.py)

The cluster has ten queues below each queue, two pods in each group, and as many nodes as are needed for nine of ten groups; a reading comes every five seconds.
Printed: what the machine makes at this time of work that takes an idle one 10 ms, before and after; seconds for a reading to be decided on, and its size;
what the child takes that plays expected starts, run times stated and not; milliseconds from the navigation to the first rows, and from one frame to the next while lists are scrolled by 600 pixels a frame: the limit of this browser is 16.7.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

import calibration
import chromium
import msgspec
from asked import POLICY, TAKEN, gang, node, queue, state
from msgspec.structs import replace

from muster.cli.expected_starts import Forecasts
from muster.cli.overviews import Seen
from muster.cli.ui.reader import Reader
from muster.cli.ui.server import UiServer
from muster.cli.ui.suppositions import Suppositions
from muster.model import names
from muster.model.objects import Event
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.overview import Overview, overview

WORK: Final = 120_000
LOADED: Final = """
requestAnimationFrame(function look(now) {
  if (document.querySelector('#groups .row') && document.querySelector('#tree .row')) window.shown = performance.now();
  else requestAnimationFrame(look);
})"""
SCROLL: Final = """
new Promise(done => {
  const box = document.querySelector('BOX'), times = [];
  let way = 600;
  requestAnimationFrame(function next(now) {
    times.push(now);
    if (times.length > FRAMES) return done(times);
    if (box.scrollTop + box.clientHeight >= box.scrollHeight - 1) way = -600;
    if (box.scrollTop === 0) way = 600;
    box.scrollTop += way;
    requestAnimationFrame(next);
  });
})"""


def machine() -> float:
    """Return milliseconds for some work."""
    began = time.perf_counter()
    sum(range(WORK * 4))
    return (time.perf_counter() - began) * 1000


def objects(queues: int, groups: int) -> Iterator[dict[str, Any]]:
    """Return a cluster of that size."""
    for number in range(groups * 2 * 9 // 10 // 40 + 1):
        yield node(f"node-{number:05}", {"cpu": "40", "memory": "1Ti", "pods": "110"})
    inner = max(queues // 11, 1)
    for number in range(inner):
        yield queue(f"org-{number:03}", weight=number % 5 + 1)
    leaves = [f"team-{number:04}" for number in range(queues - inner)]
    for number, name in enumerate(leaves):
        yield queue(name, weight=number % 3 + 1, parent=f"org-{number % inner:03}")
    for number in range(groups):
        place = f"node-{number // 20:05}" if number < groups * 9 // 10 else ""
        yield from gang(f"group-{number:05}", [1, 1], leaves[number % len(leaves)], place)


async def starts(queues: int, groups: int, *, stated: bool) -> None:
    """Print what expected starts take in the process of their own, which is this one's only child so far."""
    made = list(objects(queues, groups))
    for number, each in enumerate(made):
        if each["kind"] == "Pod" and stated:
            each["metadata"]["annotations"] |= {names.EXPECTED_DURATION: f"{90 + number % 400}m"}
            each["status"]["startTime"] = "2026-01-01T11:00:00Z"
    found = state(made)
    seen = Seen(Overview(TAKEN, (), (), (), ()), found, (), POLICY)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    told = await Forecasts(["muster"]).play(seen)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    of_processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    known = sum(each.at is not None for each in told.groups.values())
    print(
        f"expected starts, run times {'stated' if stated else 'not stated'}: {known} of {len(told.groups)} groups have a time, {told.missing}"
        f" {of_processor:.1f} s of the processor, {took:.1f} s, {after.ru_maxrss / 1024:.0f} MiB at most so far"
    )


async def main(queues: int, groups: int, frames: int) -> None:
    calibration.tell()
    before = machine()
    for stated in (False, True):
        await starts(queues, groups, stated=stated)
    found = state(objects(queues, groups))
    began = time.perf_counter()
    plan = WhatIfCluster(found, POLICY, ["muster"]).decide()
    seen = Seen(overview(found, [], plan), found, (), POLICY)
    decided = time.perf_counter() - began
    size = len(msgspec.json.encode(seen.overview))
    print(
        f"{len(seen.overview.queues)} queues, {len(seen.overview.groups)} groups, {len(seen.overview.waiting())} wait"
    )
    print(f"a reading: {decided:.2f} s to decide on, {size / 1e6:.1f} MB to send")
    readings = 0

    async def read() -> Seen:
        nonlocal readings
        readings += 1
        return seen._replace(overview=replace(seen.overview, taken=TAKEN + timedelta(seconds=5 * readings)))

    async def no_events(_: str, __: str) -> Sequence[Event]:
        return ()

    reader = Reader(read, no_events, 5)
    await reader.start()
    server = UiServer(reader, Suppositions(reader, ["muster"]).answer)
    await server.start()
    again = asyncio.create_task(reader.run())
    async with chromium.browser() as page:
        await page.size(1440, 860)
        await page.send("Page.addScriptToEvaluateOnNewDocument", source=LOADED)
        loads = []
        for _ in range(5):
            await page.open("about:blank")
            await page.open(server.url)
            loads.append(await page.until("window.shown"))
        told("page load until the first rows", loads)
        for box in ("#groups", "#tree"):
            times = await page.run(SCROLL.replace("BOX", box).replace("FRAMES", str(frames)))
            told(f"frames of {box}", [later - earlier for earlier, later in pairwise(times)])
        print(f"readings meanwhile: {readings}; errors: {page.errors}")
    began = time.perf_counter()
    await Suppositions(reader, ["muster"]).answer(b'{"drain": ["node-00000"]}')
    print(f"what if, one node drained: {time.perf_counter() - began:.1f} s")
    again.cancel()
    await server.stop()
    print(f"the machine: {before:.0f} ms before, {machine():.0f} ms after")


def told(what: str, values: list[float]) -> None:
    """Print some milliseconds."""
    line = sorted(values)
    print(
        f"{what}: p50 {statistics.median(line):.1f} ms, p95 {line[int(len(line) * 0.95)]:.1f}, most {line[-1]:.1f}, of {len(line)}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("queues", 1000), ("groups", 10_000), ("frames", 300)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asyncio.run(main(**vars(parser.parse_args())))
