"""How long the visibility API takes for an answer: asked in its own process, of a cluster that changes while it is asked.

Run: python benchmarks/visibility.py [--nodes 1000] [--pods 10000] [--asked 200] [--tenants 50]
     python benchmarks/visibility.py --beside-leader [--nodes 1000] [--pods 10000] [--tenants 50]

The cluster is that of benchmarks/ask.py, served over HTTP by a process of its own. One of its objects changes five times a second,
so that a state is never kept for longer than it may be. Printed: what the machine makes at this time of work that takes an idle one 10 ms, before
and after; milliseconds for each question alone, with processor milliseconds of the process meanwhile; then with tenants who ask `why` all the time, each
after the other, how long each waits.

With ``--beside-leader`` a scheduler leads in that cluster, with one processor for it and the API server, and another for who answers tenants and the
tenants, so that what is seen is not the machine's lack of processors. In turns of twenty seconds nobody asks, tenants ask `why` all the time, and, for
comparison, nobody asks while a process that has nothing to do with Muster keeps the tenants' processor as busy. Printed are the leader's cycles, how far
apart it renews its Lease, and the processor seconds that each process took of a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import ask
import yaml

from muster.cli.installation import crds, namespaces
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

Turn = tuple[list[float], list[float], list[float]]
"""Seconds of cycles, between renewals of the Lease, and of processors."""
WHO: Final = Caller("tenant")
WORK: Final = 120_000
TURN: Final = 20.0
"""Seconds."""
TURNS: Final = 4
QUIET: Final = "nobody asks"
ASKING: Final = "tenants ask"
BESIDE: Final = "nobody asks, a stranger is as busy"
STRANGER: Final = """
import json
text = json.dumps([{"metadata": {"name": f"pod-{number}", "labels": {"app": str(number)}}} for number in range(2000)])
while True:
    found = {each["metadata"]["name"]: each for each in json.loads(text)}
"""
LEADER: Final = """
import sys, prometheus_client
from muster.cli.main import main
observe = prometheus_client.Histogram.observe
with open(sys.argv.pop(1), "a", buffering=1) as cycles:
    def told(self, amount, exemplar=None):
        if self._name == "muster_scheduler_cycle_seconds":
            print(amount, file=cycles)
        observe(self, amount, exemplar)
    prometheus_client.Histogram.observe = told
    main()
"""
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
                changing = asyncio.create_task(ask.change(client))
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


async def beside_leader(nodes: int, pods: int, tenants: int) -> None:
    """Print the leader's cycles and renewals while nobody asks, and while tenants do."""
    prepare()
    mine, others = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {others})
    renewals: list[float] = []
    found: dict[str, list[Turn]] = {QUIET: [], ASKING: [], BESIDE: []}
    with tempfile.TemporaryDirectory() as folder, ask.sandbox(Path(folder), nodes, pods) as file:
        async with HttpTransport(await auth.load(str(file))) as transport:
            client = Client(transport)
            await namespaces.ensure(client, names.SYSTEM_NAMESPACE)
            options = VisibilityOptions(
                Path(), builtin.policy(), (names.SCHEDULER_NAME,), crds.manifests(legacy_apis=False)
            )
            with leader(file, Path(folder) / "cycles") as cycles:
                os.sched_setaffinity(0, {mine})
                async with answering(client, SystemClock(), options) as api, asyncio.TaskGroup() as around:
                    await ready(api)
                    gc.collect()
                    gc.freeze()
                    following = [around.create_task(each) for each in (cordon(client), renewed(client, renewals))]
                    await asyncio.sleep(TURN)
                    for _ in range(TURNS):
                        for what, turns in found.items():
                            begun, seen, spent = len(cycles.read_text().split()), len(renewals), processors()
                            with stranger() if what == BESIDE else contextlib.nullcontext():
                                asked = around.create_task(all_the_time(api, tenants)) if what == ASKING else None
                                await asyncio.sleep(TURN)
                                if asked is not None:
                                    asked.cancel()
                            gaps = [after - before for before, after in itertools.pairwise(renewals[seen:])]
                            used = [after - spent[name] for name, after in processors().items() if name in spent]
                            turns.append(([float(each) for each in cycles.read_text().split()[begun:]], gaps, used))
                    for each in following:
                        each.cancel()
    for what, turns in found.items():
        for name, some in zip(("cycles", "Lease renewals"), zip(*turns, strict=True), strict=False):
            values = [value for part in some for value in part]
            p99 = statistics.quantiles(values, n=100)[98]
            print(
                f"{name}, {what}: p50 {1000 * statistics.median(values):.1f} ms,"
                f" p99 {1000 * p99:.1f} ms, longest {1000 * max(values):.1f} ms ({len(values)})"
            )
        shares = [statistics.mean(each) / TURN for each in zip(*(used for *_, used in turns), strict=True)]
        print(f"processors, {what}: this one, API server, leader: {', '.join(f'{each:.2f}' for each in shares)}")


def processors() -> dict[int, float]:
    """Return the processor seconds so far of this process and of its children, by their ids."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    found = {}
    for process in (os.getpid(), *map(int, children)):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        found[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


@contextlib.contextmanager
def stranger() -> Iterator[None]:
    """Keep this process' processor busy with another one."""
    with subprocess.Popen([sys.executable, "-c", STRANGER]) as process:
        try:
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def leader(kubeconfig: Path, cycles: Path) -> Iterator[Path]:
    """Run a scheduler that writes the seconds of each cycle to a file."""
    cycles.touch()
    words = ("scheduler", "--kubeconfig", str(kubeconfig), "--probe-port", "0")
    with subprocess.Popen([sys.executable, "-c", LEADER, str(cycles), *words], stderr=subprocess.DEVNULL) as process:
        try:
            yield cycles
        finally:
            process.terminate()


async def renewed(client: Client, renewals: list[float]) -> None:
    """Note when the Lease is renewed, in seconds, as the leader writes it."""
    while True:
        lease = await client.find(kinds.LEASES, names.SCHEDULER_LEASE, names.SYSTEM_NAMESPACE)
        if lease is not None and lease.spec.renew_time:
            at = datetime.fromisoformat(lease.spec.renew_time).timestamp()
            if not renewals or at != renewals[-1]:
                renewals.append(at)
        await asyncio.sleep(0.2)


async def cordon(client: Client) -> None:
    """Have the leader decide again, five times a second."""
    for turn in itertools.count():
        await client.patch(kinds.NODES, "node-00000", {"spec": {"unschedulable": turn % 2 == 0}})
        await asyncio.sleep(0.2)


async def all_the_time(api: VisibilityApi, tenants: int) -> None:
    async def one(number: int) -> None:
        team = number % ask.NAMESPACES
        question = Request("GET", f"{ROOT}/namespaces/team-{team}/podgroups/gang-{team}/why")
        while True:
            await answered(api, question, Caller(f"tenant-{number}"))
            await asyncio.sleep(0.05)

    await asyncio.gather(*map(one, range(tenants)))


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
    parser.add_argument("--beside-leader", action="store_true")
    given = parser.parse_args()
    if given.beside_leader:
        asyncio.run(beside_leader(given.nodes, given.pods, given.tenants))
    else:
        asyncio.run(main(given.nodes, given.pods, given.asked, given.tenants))
