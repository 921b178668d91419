"""How long a scheduler takes on the real control plane, from its start or from the last creation to the last bind.

Run: python benchmarks/scheduler_plane.py [--load 20x500@1000] [--live] [--command "CMD {kubeconfig}" ...]
     (needs the binaries that `make controlplane` builds)

Each command is run on a fresh etcd and kube-apiserver, without controllers or kubelets: all that happens is the
scheduling. ``--load GxP@N`` means G gangs of P pods on N nodes. By default everything is pending when the scheduler starts;
with ``--live`` it runs first, and then the pods are created, 32 at a time. ``{kubeconfig}`` and ``{name}`` (the scheduler's
name in the pods) are filled in. The default command is Muster's scheduler of this checkout, compiled to bytecode before as
an installation is. Given several, they are measured one after the other in one run, so that they can be compared by ratio.
``--lean`` measures the lean binder after each of them: the limit of the same minute.

Printed per command: seconds to the first and the last bind, pods bound per second between them, processor seconds and the
most memory of its processes, and how long the creations took.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import contextlib
import http.client
import multiprocessing
import os
import re
import shlex
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import calibration

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "controlplane"))

from controlplane import ControlPlane  # the path above is set at run time

from muster.cli.installation import crds
from muster.kube import auth
from muster.kube.client import Client
from muster.kube.errors import ConflictError
from muster.kube.http import HttpTransport
from muster.model import kinds, names

LEAN: Final = (
    f"{sys.executable} {Path(__file__).parent / 'lean_binder.py'} --kubeconfig {{kubeconfig}} --scheduler-name {{name}}"
)
"""The limit: what binds without deciding."""
MUSTER: Final = f"{sys.executable} -m scheduler --kubeconfig {{kubeconfig}} --probe-port 0 --log-level warning"
_AT_ONCE: Final = 32
_PATIENCE: Final = 120.0
_NAME: Final = re.compile(rb'"name":"([^"]+)"')
_VERSION: Final = re.compile(rb'"resourceVersion":"(\d+)"')
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    gangs: int
    size: int
    nodes: int

    @classmethod
    def parse(cls, text: str) -> Load:
        found = re.fullmatch(r"(\d+)x(\d+)@(\d+)", text)
        if found is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not a load; write it like 20x500@1000")
        return cls(*map(int, found.groups()))

    @property
    def pods(self) -> int:
        return self.gangs * self.size


class Binds:
    """When each pod got its node, as a process of its own saw it.

    Beside what creates the pods it would fall behind, and an API server ends the watch of who does.
    """

    def __init__(self, plane: ControlPlane, expected: int) -> None:
        spawned = multiprocessing.get_context("spawn")
        self._times, sender = spawned.Pipe(duplex=False)
        arguments = (plane.url, str(plane.ca_file), plane.token, expected, sender)
        self._process = spawned.Process(target=_send_binds, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch; the process has started then, and takes nothing from what is measured."""
        self._process.start()
        self._received(_PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join(10)

    def times(self, within: float) -> Sequence[float]:
        """Return the moments, in seconds of `time.monotonic`, once all pods are bound.

        Raises:
            SystemExit: they weren't within so many seconds.
        """
        return self._received(within)

    def _received(self, within: float) -> Sequence[float]:
        if not self._times.poll(within):
            raise SystemExit(f"not all pods were bound after {within:.0f} s")
        found: Sequence[float] = self._times.recv()
        return found


def _send_binds(url: str, ca_file: str, token: str, expected: int, sender: Connection) -> None:
    """Say that it runs; watch the pods; send the moments in which they got their nodes. Reads lines as they are, so that it costs little."""
    times: dict[bytes, float] = {}
    version = ""
    sender.send([])
    while len(times) < expected:
        with contextlib.suppress(http.client.HTTPException, OSError):
            for line in _watched(url, ca_file, token, version):
                seen = _VERSION.search(line)
                version = seen[1].decode() if seen is not None else ""
                found = _NAME.search(line) if b'"nodeName":"' in line else None
                if found is not None:
                    times.setdefault(found[1], time.monotonic())
                if len(times) == expected:
                    break
    sender.send(list(times.values()))


def _watched(url: str, ca_file: str, token: str, version: str) -> http.client.HTTPResponse:
    address = urlsplit(url)
    context = ssl.create_default_context(cafile=ca_file)
    connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=context)
    path = f"/api/v1/namespaces/default/pods?watch=true&resourceVersion={version}"
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    return connection.getresponse()


async def fill(plane: ControlPlane, load: Load, scheduler: str, *, pods: bool, rest: bool) -> None:
    """Create the kinds, nodes and groups (``rest``), the pods, or all of it."""
    async with HttpTransport(await auth.load(str(plane.kubeconfig()))) as transport:
        client, slots = Client(transport), asyncio.Semaphore(_AT_ONCE)

        async def create(kind: Any, manifest: dict[str, Any], namespace: str = "") -> None:
            async with slots:
                await client.create(kind, manifest, namespace)

        async with asyncio.TaskGroup() as group:
            if rest:
                await prepare(client)
                for number in range(load.nodes):
                    group.create_task(add_node(client, slots, f"node-{number:05}"))
        async with asyncio.TaskGroup() as group:
            for gang in range(load.gangs):
                name = f"g{gang:04}"
                if pods:
                    spec = {"minMember": load.size, "queue": "default"}
                    await create(kinds.PODGROUPS, {"metadata": {"name": name}, "spec": spec}, "default")
                for number in range(load.size if pods else 0):
                    pod = pod_of(name, number, scheduler)
                    group.create_task(create(kinds.PODS, pod, "default"))


async def prepare(client: Client) -> None:
    await crds.apply(client, legacy_apis=False, adopt=True)
    await client.create(kinds.NAMESPACES, {"metadata": {"name": names.SYSTEM_NAMESPACE}})
    await client.create(kinds.QUEUES, {"metadata": {"name": "default"}, "spec": {"weight": 1}})
    try:
        await client.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": "default"}}, "default")
    except ConflictError:
        return


async def add_node(client: Client, slots: asyncio.Semaphore, name: str) -> None:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "256"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    async with slots:
        await client.create(kinds.NODES, {"metadata": {"name": name}})
        # The server puts the taint not-ready on new nodes; nobody else is there to take it away.
        await client.patch(kinds.NODES, name, {"spec": {"taints": None}})
        status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}
        await client.patch(kinds.NODES, name, status, subresource="status")


def pod_of(group: str, number: int, scheduler: str) -> dict[str, Any]:
    container = {"name": "c", "image": "example.com/c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    return {
        "metadata": {"name": f"{group}-{number:04}", "annotations": {names.GROUP_NAME: group}},
        "spec": {
            "schedulerName": scheduler,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


# ── what the scheduler's processes use ───────────────────────────────────────────────────────────────────────────


def family(root: int) -> Iterator[int]:
    """Return a process and all below it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(after[1]), []).append(int(entry.name))
    line = [root]
    while line:
        each = line.pop()
        yield each
        line += parents.get(each, [])


def used(root: int) -> tuple[float, float]:
    """Return processor seconds and the most memory, in MiB, of a process and all below it."""
    seconds = memory = 0.0
    for each in family(root):
        try:
            after = (Path("/proc") / str(each) / "stat").read_text().rpartition(")")[2].split()
            status = (Path("/proc") / str(each) / "status").read_text()
        except OSError:
            continue
        seconds += (int(after[11]) + int(after[12])) / _TICKS
        most = re.search(r"VmHWM:\s+(\d+)", status)
        memory += int(most[1]) / 1024 if most else 0
    return seconds, memory


# ── one run ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Run:
    """One scheduling of a load. Seconds from the scheduler's start; where it ran before (``live``), from the last creation.

    Attributes:
        first: until the first bind.
        last: until the last bind.
        cpu: processor seconds of the scheduler's processes, those before the creations left out where it is live.
        memory: the most memory of its processes, in MiB.
        created: seconds that the creations took.
        bound: pods that got a node; fewer than the load's where ``last`` is the time until it was given up.
    """

    first: float
    last: float
    cpu: float
    memory: float
    created: float
    bound: int
    live: bool

    def __str__(self) -> str:
        rate = f"{self.bound / max(self.last - self.first, 0.001):.0f} pods/s, {self.memory:.0f} MiB"
        if self.live:
            return (
                f"last bind {self.last:.2f} s after the last creation; {self.cpu:.1f} CPU s, {rate}; "
                f"creations took {self.created:.1f} s"
            )
        return (
            f"last bind {self.last:.2f} s after the start, the first {self.first:.2f} s; {self.cpu:.1f} CPU s, {rate}"
        )


def measure(command: str, load: Load, scheduler: str, *, live: bool) -> Run:
    """Run one scheduler on one load, on a control plane of its own.

    Raises:
        SystemExit: not all pods were bound in two minutes.
    """
    with ControlPlane(nodes_simulated=False) as plane:
        # Only what schedulers do is measured; and without kubelets, its controllers would call the nodes dead.
        plane.kill("kube-controller-manager")
        asyncio.run(fill(plane, load, scheduler, pods=not live, rest=True))
        return bind(plane, command, load, scheduler, live=live)


def bind(plane: ControlPlane, command: str, load: Load, scheduler: str, *, live: bool) -> Run:
    """Run one scheduler until all pods are bound; where it is ``live``, they are made once it runs.

    Raises:
        SystemExit: not all pods were bound in two minutes.
    """
    with Binds(plane, load.pods) as binds:
        begun, before = time.monotonic(), 0.0
        words = shlex.split(command.format(kubeconfig=plane.kubeconfig(), name=scheduler))
        process = subprocess.Popen(words, start_new_session=True)
        try:
            if live:
                time.sleep(_SETTLE)
                begun, before = time.monotonic(), used(process.pid)[0]
                asyncio.run(fill(plane, load, scheduler, pods=True, rest=False))
            created = time.monotonic()
            times = binds.times(_PATIENCE)
            seconds, memory = used(process.pid)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
    since = created if live else begun
    first, last = min(times) - since, max(times) - since
    return Run(first, last, seconds - before, memory, created - begun, load.pods, live)


_SETTLE: Final = 8.0
"""Seconds that a scheduler has to become leader and read its lists, before pods are created live."""


def compiled() -> None:
    """Compile Muster to bytecode, as an installation is."""
    for package in ("muster", "scheduler", "certs"):
        compileall.compile_dir(Path(__file__).parents[1] / package, quiet=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=Load.parse, default=Load(20, 500, 1000))
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--command", action="append", dest="commands")
    parser.add_argument("--scheduler-name", default=names.SCHEDULER_NAME)
    parser.add_argument("--lean", action="store_true")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    calibration.tell()
    compiled()
    # Whoever ends this ends what it started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for _ in range(options.runs):
        for command in options.commands or [MUSTER]:
            for each in [command, LEAN] if options.lean else [command]:
                found = measure(each, options.load, options.scheduler_name, live=options.live)
                print(f"{' '.join(shlex.split(each)[:3])}: {found}", flush=True)


if __name__ == "__main__":
    main()
