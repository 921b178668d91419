"""How long the visibility API takes for an answer: asked in its own process, of a cluster that changes while it is asked.

Run: python benchmarks/visibility.py [--nodes 1000] [--pods 10000] [--asked 200] [--tenants 50]

The cluster is that of benchmarks/ask.py, served over HTTP by a process of its own. One of its objects changes five times a second,
so that a state is never kept for longer than it may be. Printed: what the machine makes at this time of work that takes an idle one 10 ms, before
and after; milliseconds for each question alone, with processor milliseconds of the process meanwhile; then with tenants who ask `why` all the time, each
after the other, how long each waits.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import ask
import yaml

from muster.cli.installation import crds
from muster.kube import auth
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.http import HttpTransport
from muster.kube.transport import Request
from muster.model import kinds, names
from muster.model.objects import prepare
from muster.visibility.api import VisibilityApi
from muster.visibility.paths import ROOT
from muster.visibility.program import VisibilityOptions, answering
from muster.visibility.requestheader import Caller
from scheduler.configuration import builtin

WHO: Final = Caller("tenant")
WORK: Final = 120_000
TEAM: Final = f"{ROOT}/namespaces/team-0"
JOB: Final = json.dumps({"spec": {"objects": [yaml.safe_load(ask.JOB)]}}).encode()
QUESTIONS: Final = {
    "why": Request("GET", f"{TEAM}/podgroups/waiting/why"),
    "why, changes tried": Request("GET", f"{TEAM}/podgroups/waiting/why", {"changes": "true"}),
    "position": Request("GET", f"{TEAM}/podgroups/waiting/position"),
    "queues": Request("GET", f"{ROOT}/queues"),
    "admit": Request("POST", f"{TEAM}/admissions", {}, JOB),
}


async def main(nodes: int, pods: int, asked: int, tenants: int) -> None:
    prepare()
    with tempfile.TemporaryDirectory() as folder, ask.sandbox(Path(folder), nodes, pods) as file:
        async with HttpTransport(await auth.load(str(file))) as transport:
            client = Client(transport)
            options = VisibilityOptions(
                Path(), builtin.policy(), (names.SCHEDULER_NAME,), crds.manifests(legacy_apis=False)
            )
            async with answering(client, SystemClock(), options) as api:
                changing = asyncio.create_task(change(client))
                await ready(api)
                # As the program does.
                gc.collect()
                gc.freeze()
                await calibrate(asked)
                for name, question in QUESTIONS.items():
                    report(
                        name,
                        [await answered(api, question) for _ in range(asked if "tried" not in name else asked // 4)],
                    )
                await crowd(api, asked, tenants)
                await calibrate(asked)
                changing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await changing


async def change(client: Client) -> None:
    while True:
        await client.patch(kinds.NODES, "node-00000", {"metadata": {"annotations": {"at": str(time.monotonic())}}})
        await asyncio.sleep(0.2)


async def calibrate(asked: int) -> None:
    """Have the same work done as often as a question is asked: what others take of the machine is seen in it."""
    found = []
    for _ in range(asked):
        await asyncio.sleep(0.05)
        began, processor = time.monotonic(), time.process_time()
        sum(each * each % 7 for each in range(WORK))
        found.append((time.monotonic() - began, time.process_time() - processor))
    report("calibration", found)


async def ready(api: VisibilityApi) -> None:
    while (await api.handle(QUESTIONS["position"], WHO)).status != 200:  # noqa: ASYNC110 - as a client would
        await asyncio.sleep(0.1)


async def answered(api: VisibilityApi, question: Request, who: Caller = WHO) -> tuple[float, float]:
    """Return seconds and processor seconds."""
    if who is WHO:
        await asyncio.sleep(
            0.05
        )  # So that a part of them, and not all or none, finds a state that is older than a second.
    began, processor = time.monotonic(), time.process_time()
    answer = await api.handle(question, who)
    if answer.status not in {200, 201, 429}:
        raise SystemExit(answer.body.decode())
    return time.monotonic() - began, time.process_time() - processor


async def crowd(api: VisibilityApi, asked: int, tenants: int) -> None:
    """Have tenants ask at once, each in a namespace of theirs as far as there are some."""

    async def one(number: int) -> list[tuple[float, float]]:
        team = number % ask.NAMESPACES
        question = Request("GET", f"{ROOT}/namespaces/team-{team}/podgroups/gang-{team}/why")
        return [await answered(api, question, Caller(f"tenant-{number}")) for _ in range(max(asked // 10, 1))]

    found: list[Any] = await asyncio.gather(*map(one, range(tenants)))
    report(f"why, {tenants} tenants at once", [each for some in found for each in some])


def report(name: str, found: list[tuple[float, float]]) -> None:
    walls, processors = ([1000 * each for each in part] for part in zip(*found, strict=True))
    (wall, processor) = (statistics.quantiles(each, n=100)[98] for each in (walls, processors))
    print(
        f"{name:26} p50 {statistics.median(walls):.0f} ms, p99 {wall:.0f} ms;"
        f" processor p50 {statistics.median(processors):.0f} ms, p99 {processor:.0f} ms ({len(walls)} asked)",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, default in (("nodes", 1000), ("pods", 10_000), ("asked", 200), ("tenants", 50)):
        parser.add_argument(f"--{option}", type=int, default=default)
    given = parser.parse_args()
    asyncio.run(main(given.nodes, given.pods, given.asked, given.tenants))
