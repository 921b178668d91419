"""What it costs to keep 10,000 PodGroups in 1,000 queues, and that a Job that can't run costs the API server no pods.

    python benchmarks/waiting_groups.py [--groups 10000] [--queues 1000] [--idle 100] [--pods 1000]

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
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import calibration
import uvloop

from muster.cli.installation import crds, namespaces
from muster.kube import auth, wait
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.http import HttpTransport
from muster.kube.reflector import ReflectorSet
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


async def writes(client: Client) -> Counter[str]:
    """Count the writes that the API server has seen, by resource and subresource; leases and its own bookkeeping aside."""
    metrics = (await client.send(Request("GET", "/metrics"))).body.decode()
    seen: Counter[str] = Counter()
    for found in _REQUESTS.finditer(metrics):
        labels = dict(_LABEL.findall(found["labels"]))
        if labels["verb"] in _WRITES and labels["resource"] not in {"leases", "endpointslices"}:
            what = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            seen[what] += int(float(found["count"]))
    return seen


async def all_of(calls: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    """Make calls, a number of them at a time."""
    line = iter(calls)

    async def serve() -> None:
        for call in line:
            await call()

    await asyncio.gather(*(serve() for _ in range(IN_FLIGHT)))


def resident(process: Process) -> tuple[float, float]:
    """Return a process's memory, now and at most, in MiB."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    sizes = dict(re.findall(r"^(VmRSS|VmHWM):\s+([0-9]+) kB$", text, re.MULTILINE))
    return int(sizes["VmRSS"]) / 1024, int(sizes["VmHWM"]) / 1024


def worked(pid: int) -> float:
    """Return a process's processor time in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Stages:
    """What each stage took: seconds, processor time of all who work on it, and the writes of queues' statuses."""

    def __init__(self, client: Client, plane: ControlPlane, process: Process) -> None:
        self._client = client
        self._process = process
        self._pids = {**plane.pids(), "scheduler": process.pid, "here": os.getpid()}

    @contextlib.asynccontextmanager
    async def stage(self, what: str) -> AsyncIterator[None]:
        """Print what was done while the context was open."""
        before, written = {name: worked(pid) for name, pid in self._pids.items()}, await writes(self._client)
        began = time.perf_counter()
        yield
        took = time.perf_counter() - began
        shares = {name: worked(pid) - before[name] for name, pid in self._pids.items()}
        written = await writes(self._client) - written
        print(f"  {what:66} {took:8.2f} s {resident(self._process)[0]:6.0f} MiB", flush=True)
        print("    processor: " + ", ".join(f"{name} {share:.1f} s" for name, share in shares.items() if share))
        print("    written: " + ", ".join(f"{count:,} {what}" for what, count in written.items()), flush=True)

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with self.stage(what):
            await until(holds)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something is so; looking each time that something changes would take more."""
    while not holds():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.02)


async def fill(client: Client, stages: Stages, groups: int, queues: int) -> None:
    queue = "bench-{}".format
    await all_of(
        partial(client.create, kinds.QUEUES, {"metadata": {"name": queue(number)}}) for number in range(queues)
    )
    spec = {"minMember": 1, "minResources": {"cpu": "1"}}
    async with stages.stage(f"{groups:,} PodGroups created"):
        await all_of(
            partial(
                client.create,
                kinds.PODGROUPS,
                {"metadata": {"name": f"g-{number}"}, "spec": {**spec, "queue": queue(number % queues)}},
                "default",
            )
            for number in range(groups)
        )


class Seen:
    """What the API server shows to who watches: lists of ten thousand objects would keep it from its work."""

    def __init__(self) -> None:
        self.queues: ObjectCache[Queue] = ObjectCache()
        self.groups: ObjectCache[PodGroup] = ObjectCache()

    @contextlib.asynccontextmanager
    async def kept(self, client: Client) -> AsyncIterator[None]:
        """Keep it up to date while the context is open."""
        synced = asyncio.Event()
        watching = ReflectorSet({kinds.QUEUES: self.queues, kinds.PODGROUPS: self.groups}).run(client, synced)
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

    def behind(self, pending: int) -> int:
        """Return the queues that don't count so many waiting groups."""
        return sum(each.status.pending != pending for each in self.queues.items() if each.name.startswith("bench-"))

    def right(self, pending: int) -> bool:
        """Whether each queue counts so many waiting groups."""
        return not self.behind(pending)

    def told(self) -> bool:
        """Whether every group says why it waits."""
        return all(each.status.conditions for each in self.groups.items())


async def count(client: Client, stages: Stages, process: Process, options: argparse.Namespace) -> None:
    seen = Seen()
    async with seen.kept(client):
        await stages.until("the scheduler leads", seen.leads)
        await fill(client, stages, options.groups, options.queues)
        each_has = options.groups // options.queues
        async with stages.stage("all counters right, after the last creation"):
            began = time.perf_counter()
            await until(lambda: len(seen.groups) == options.groups)
            took, behind = time.perf_counter() - began, seen.behind(each_has)
            print(
                f"  after {took:.2f} s the API server had shown all groups; counters of {behind:,} queues were behind"
            )
            await until(partial(seen.right, each_has))
        await stages.until("every group told why it waits", seen.told)
        changed = range(options.queues)  # One group of each queue.
        async with stages.stage("as many deletions as queues"):
            await all_of(partial(client.delete, kinds.PODGROUPS, f"g-{number}", "default") for number in changed)
        await stages.until("all counters right, after the last deletion", partial(seen.right, each_has - 1))
    await asyncio.sleep(40)  # Texts of conditions follow within half a minute.
    before = await writes(client)
    await asyncio.sleep(options.idle)
    print(f"  writes in {options.idle} idle seconds: {(await writes(client) - before).total()}")
    print(f"  processor time of the scheduler: {worked(process.pid):.1f} s")
    print("  memory of the scheduler: {:.0f} MiB now, {:.0f} MiB at most".format(*resident(process)), flush=True)


async def hold(client: Client, pods: int) -> None:
    """Create a Job that can't run, and count the pods that the API server ever saw of it."""
    before = await writes(client)
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
        f"  pods that the API server saw of it in 10 more seconds: {(await writes(client) - before)['pods']}",
        flush=True,
    )


async def measure(plane: ControlPlane, options: argparse.Namespace, folder: Path) -> None:
    config, port = str(plane.kubeconfig()), free_ports(1)[0]
    async with asyncio.timeout(LIMIT), HttpTransport(await auth.load(config)) as transport:
        client = Client(transport)
        await crds.apply(client, legacy_apis=False, adopt=True)
        await namespaces.ensure(client, names.SYSTEM_NAMESPACE)
        with (folder / "muster.log").open("wb") as log:
            async with running(log, "scheduler", "--kubeconfig", config, "--probe-port", str(port)) as process:
                await count(client, Stages(client, plane, process), process, options)
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
    calibration.tell()
    with ControlPlane() as plane, tempfile.TemporaryDirectory() as folder:
        uvloop.run(measure(plane, options, Path(folder)))


if __name__ == "__main__":
    main()
