"""What it costs to keep 10,000 PodGroups in 1,000 queues, and that a Job that can't run costs the API server no pods.

    python benchmarks/workloads.py [--groups 10000] [--queues 1000] [--idle 100] [--pods 1000]

Starts the real control plane (`make controlplane` first) without nodes, then `muster scheduler` as a process of its own,
with --groups PodGroups that lack nodes. Prints how long after the last creation, and later after the last of many
deletions, the counters of all queues were right,
how many writes there were in --idle seconds once it is quiet (by the API server's own count, leases aside), and the
scheduler's memory. Then runs `muster up` beside it and creates a Job of --pods pods that can't run. About five minutes,
most of it the creations and the first writing of each group's status; ends itself after twenty.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from muster.cli import install
from muster.kube import auth, wait
from muster.kube.cache import Cache
from muster.kube.client import Client
from muster.kube.http import HttpTransport
from muster.kube.reflector import Watching
from muster.kube.transport import Request
from muster.model import kinds, names
from muster.model.objects import PodGroup, Queue

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "controlplane")]

from controlplane import ControlPlane, free_ports  # noqa: E402 - found by the line above

LIMIT = 1200.0
IN_FLIGHT = 64
_REQUESTS = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>[0-9.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = {"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}


async def writes(client: Client, resource: str = "") -> int:
    """Count the writes that the API server has seen, of one resource or of all but leases and its own bookkeeping."""
    metrics = (await client.send(Request("GET", "/metrics"))).body.decode()
    total = 0.0
    for found in _REQUESTS.finditer(metrics):
        labels = dict(_LABEL.findall(found["labels"]))
        mine = labels["resource"] == resource if resource else labels["resource"] not in {"leases", "endpointslices"}
        if labels["verb"] in _WRITES and mine:
            total += float(found["count"])
    return int(total)


async def all_of(calls: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    """Make calls, a number of them at a time."""
    line = iter(calls)

    async def serve() -> None:
        for call in line:
            await call()

    await asyncio.gather(*(serve() for _ in range(IN_FLIGHT)))


def resident(process: Process) -> tuple[float, float]:
    """Give a process's memory, now and at most, in MiB."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    sizes = dict(re.findall(r"^(VmRSS|VmHWM):\s+([0-9]+) kB$", text, re.MULTILINE))
    return int(sizes["VmRSS"]) / 1024, int(sizes["VmHWM"]) / 1024


def worked(process: Process) -> float:
    """Give a process's processor time in seconds."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def until(process: Process, what: str, holds: Callable[[], bool]) -> None:
    """Wait until something is so; print the seconds, and the program's processor time since it started and memory."""
    began = time.perf_counter()
    while not holds():  # noqa: ASYNC110 - looking each time that something changes would take more
        await asyncio.sleep(0.02)
    took = time.perf_counter() - began
    print(f"  {what:66} {took:8.1f} s {worked(process):8.1f} s {resident(process)[0]:6.0f} MiB", flush=True)


async def fill(client: Client, groups: int, queues: int) -> None:
    queue = "bench-{}".format
    await all_of(
        lambda number=number: client.create(kinds.QUEUES, {"metadata": {"name": queue(number)}})
        for number in range(queues)
    )
    spec = {"minMember": 1, "minResources": {"cpu": "1"}}
    began = time.perf_counter()
    await all_of(
        lambda number=number: client.create(
            kinds.PODGROUPS,
            {"metadata": {"name": f"g-{number}"}, "spec": {**spec, "queue": queue(number % queues)}},
            "default",
        )
        for number in range(groups)
    )
    print(f"  {groups:,} PodGroups created in {time.perf_counter() - began:.1f} s", flush=True)


class Seen:
    """What the API server shows to who watches: lists of ten thousand objects would keep it from its work."""

    def __init__(self) -> None:
        self.queues: Cache[Queue] = Cache()
        self.groups: Cache[PodGroup] = Cache()

    @contextlib.asynccontextmanager
    async def kept(self, client: Client) -> AsyncIterator[None]:
        """Keep it up to date while the context is open."""
        synced = asyncio.Event()
        watching = Watching({kinds.QUEUES: self.queues, kinds.PODGROUPS: self.groups}).run(client, synced)
        task = asyncio.create_task(watching)
        try:
            await synced.wait()
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    def leads(self) -> bool:
        """Whether a scheduler has begun to work: it makes the default queue first, and then its state."""
        queue = self.queues.get(names.DEFAULT_QUEUE)
        return queue is not None and bool(queue.status.state)

    def right(self, pending: int) -> bool:
        """Whether each queue counts so many waiting groups."""
        return {each.status.pending for each in self.queues.items() if each.name.startswith("bench-")} == {pending}

    def told(self) -> bool:
        """Whether every group says why it waits."""
        return all(each.status.conditions for each in self.groups.items())


async def count(client: Client, process: Process, options: argparse.Namespace) -> None:
    seen = Seen()
    async with seen.kept(client):
        await until(process, "the scheduler leads", seen.leads)
        await fill(client, options.groups, options.queues)
        each_has = options.groups // options.queues
        await until(process, "all counters right, after the last creation", partial(seen.right, each_has))
        await until(process, "every group told why it waits", seen.told)
        changed = range(options.queues)  # One group of each queue.
        await all_of(partial(client.delete, kinds.PODGROUPS, f"g-{number}", "default") for number in changed)
        what = "all counters right, after the last of as many deletions as queues"
        await until(process, what, partial(seen.right, each_has - 1))
    await asyncio.sleep(40)  # Texts of conditions follow within half a minute.
    before = await writes(client)
    await asyncio.sleep(options.idle)
    print(f"  writes in {options.idle} idle seconds: {await writes(client) - before}")
    print(f"  processor time of the scheduler: {worked(process):.1f} s")
    print("  memory of the scheduler: {:.0f} MiB now, {:.0f} MiB at most".format(*resident(process)), flush=True)


async def hold(client: Client, pods: int) -> None:
    """Create a Job that can't run, and count the pods that the API server ever saw of it."""
    before = await writes(client, "pods")
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]}}
    meta = {"name": "large", "annotations": {names.GROUP_MIN_MEMBER: str(pods)}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    job = await client.create(kinds.JOBS, {"metadata": meta, "spec": spec}, "default")

    began = time.perf_counter()
    told = await wait.until(
        client,
        kinds.PODGROUPS,
        f"podgroup-{job.metadata.uid}",
        "default",
        holds=lambda group: group is not None and bool(group.status.conditions),
        within=LIMIT,
    )
    took = time.perf_counter() - began
    assert told is not None
    print(f"  a Job of {pods:,} pods that can't run: {told.status.phase} and told why after {took:.1f} s", flush=True)
    await asyncio.sleep(10)
    print(
        f"  pods that the API server saw of it in 10 more seconds: {await writes(client, 'pods') - before}", flush=True
    )


async def measure(plane: ControlPlane, options: argparse.Namespace, folder: Path) -> None:
    config, port = str(plane.kubeconfig()), free_ports(1)[0]
    async with asyncio.timeout(LIMIT), HttpTransport(await auth.load(config)) as transport:
        client = Client(transport)
        await install.apply_kinds(client, legacy_apis=False, adopt=True)
        await install.ensure_namespace(client, install.SYSTEM_NAMESPACE)
        with (folder / "muster.log").open("wb") as log:
            async with running(log, "scheduler", "--kubeconfig", config, "--probe-port", str(port)) as process:
                await count(client, process, options)
            async with running(log, "muster.cli", "up", "--kubeconfig", config) as process:
                assert process.stdout is not None
                print(f"  muster up: {(await process.stdout.readline()).decode().partition(':')[0]}", flush=True)
                await hold(client, options.pods)


@contextlib.asynccontextmanager
async def running(log: Any, *arguments: str) -> AsyncIterator[Process]:
    """Run a program of ours; what it complains of goes to ``log``."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *arguments, stdout=asyncio.subprocess.PIPE, stderr=log, cwd=ROOT
    )
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("groups", 10_000), ("queues", 1_000), ("idle", 100), ("pods", 1_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with ControlPlane() as plane, tempfile.TemporaryDirectory() as folder:
        uvloop.run(measure(plane, options, Path(folder)))


if __name__ == "__main__":
    main()
