"""How fast PodGroups are created through real admission webhooks, each with its reservation in the quota ledger.

    python benchmarks/reservations.py [--total 2000] [--clients 64] [--rounds 10]

Starts the real control plane (`make controlplane` first), measures creations without any webhook, then with one and
with two webhook replicas, each a process of its own; two are reached in turns, by connection, as behind a Service.
Everything shares this machine, clients included. For each: `--rounds` times 64 creations at once, and `--total`
creations by `--clients` clients, all in one namespace under one quota. About a minute; ends itself after ten.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from certs import authority
from muster.cli import install
from muster.kube import auth, errors
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.http import HttpTransport
from muster.model import kinds, names
from webhooks.registration import UrlBase, configurations

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "controlplane"), str(ROOT / "tests" / "support")]

from controlplane import ControlPlane, free_ports  # noqa: E402 - found by the line above
from plane import forward  # noqa: E402 - the same

BURST = 64
LIMIT = 600.0


def quantile(seconds: Sequence[float], share: float) -> float:
    """Give a quantile in milliseconds."""
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))] * 1000


def line(title: str, taken: Sequence[float], elapsed: float, failed: int) -> None:
    print(
        f"  {title:34} {len(taken) / elapsed:6,.0f}/s   p50 {quantile(taken, 0.5):6.0f} ms"
        f"   p99 {quantile(taken, 0.99):6.0f} ms   failed: {failed}",
        flush=True,
    )


class Load:
    """Creates groups of one cpu in a namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.created = 0
        self.failures: list[str] = []

    async def create(self) -> float:
        number = self.created + len(self.failures)
        self.created += 1
        spec = {"minMember": 1, "queue": names.DEFAULT_QUEUE, "minResources": {"cpu": "1"}}
        began = time.perf_counter()
        try:
            await self._client.create(
                kinds.PODGROUPS, {"metadata": {"name": f"g{number}"}, "spec": spec}, self._namespace
            )
        except errors.KubeError as error:
            self.created -= 1
            self.failures.append(str(error))
        return time.perf_counter() - began

    async def bursts(self, rounds: int) -> None:
        taken: list[float] = []
        began, failed = time.perf_counter(), len(self.failures)
        for _ in range(rounds):
            taken += await asyncio.gather(*(self.create() for _ in range(BURST)))
        line(f"{rounds} x {BURST} at once", taken, time.perf_counter() - began, len(self.failures) - failed)

    async def stream(self, total: int, clients: int) -> None:
        taken: list[float] = []
        left = iter(range(total))

        async def client() -> None:
            for _ in left:
                taken.append(await self.create())  # noqa: PERF401 - shared by all clients, as it happens

        began, failed = time.perf_counter(), len(self.failures)
        await asyncio.gather(*(client() for _ in range(clients)))
        line(f"{total:,} by {clients} clients", taken, time.perf_counter() - began, len(self.failures) - failed)


@contextlib.contextmanager
def webhook(kubeconfig: Path, certificates: Path) -> Any:
    """Run one webhook replica; give its port and process."""
    port, probes = free_ports(2)
    command = [sys.executable, "-m", "webhooks", "--kubeconfig", str(kubeconfig), "--certificates", str(certificates)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--probe-port", str(probes), "--drain", "0"]
    command += ["--log-level", "warning"]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            ready(f"http://127.0.0.1:{probes}/readyz", process)
            yield port, process
        finally:
            process.terminate()


def ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise SystemExit(f"{url} is not ready")


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def address(ports: Sequence[int]) -> AsyncIterator[str]:
    """Give one address for all replicas."""
    if len(ports) == 1:
        yield f"https://127.0.0.1:{ports[0]}"
        return
    (shared,) = free_ports(1)
    process = multiprocessing.get_context("spawn").Process(target=pass_on, args=(shared, ports), daemon=True)
    process.start()
    try:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", shared)
                writer.close()
                break
            await asyncio.sleep(0.1)
        yield f"https://127.0.0.1:{shared}"
    finally:
        process.terminate()
        process.join()


def pass_on(shared: int, ports: Sequence[int]) -> None:
    """Take connections and pass them on to the replicas in turns, until ended."""

    async def serve() -> None:
        listener = await asyncio.start_server(partial(forward, itertools.cycle(ports)), "127.0.0.1", shared)
        await listener.serve_forever()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


async def noticed(client: Client, namespace: str) -> None:
    """Wait until the API server calls the webhooks."""
    probe = {"metadata": {"name": "probe"}, "spec": {"queue": "no-such-queue"}}
    while True:
        try:
            await client.create(kinds.PODGROUPS, probe, namespace, dry_run=True)
        except errors.ForbiddenError:
            return
        await asyncio.sleep(0.05)


async def measure(load: Load, arguments: argparse.Namespace) -> None:
    await load.bursts(arguments.rounds)
    await load.stream(arguments.total, arguments.clients)
    for text in sorted(set(load.failures))[:3]:
        print(f"  failed: {text}")


async def with_webhooks(
    client: Client, kubeconfig: Path, ca: Any, folder: Path, replicas: int, arguments: argparse.Namespace
) -> None:
    namespace = f"replicas-{replicas}"
    await client.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(webhook(kubeconfig, folder)) for _ in range(replicas)]
        async with address([port for port, _ in started]) as url:
            both = configurations(
                UrlBase(url), ca.certificate, scheduler_names=["muster"], legacy_apis=False, own_namespace=""
            )
            await install.apply_webhooks(client, *both)
            await noticed(client, namespace)
            quota = {"metadata": {"name": "quota"}, "spec": {"hard": {"cpu": "1M"}}}
            await client.create(kinds.RESOURCEQUOTAS, quota, namespace)
            load = Load(client, namespace)
            await measure(load, arguments)
            ledger = await client.get(kinds.QUOTALEDGERS, names.LEDGER_NAME, namespace)
            used = ", ".join(f"{cpu_seconds(process):.1f}" for _, process in started)
            print(f"  created {load.created:,}; the ledger says: {ledger.data.summary}; CPU of the webhooks: {used} s")
            await install.remove_webhooks(client)


async def main(arguments: argparse.Namespace, plane: ControlPlane, folder: Path) -> None:
    now = SystemClock().now()
    ca = authority.new_ca(now)
    pair = authority.issue(ca, ("127.0.0.1",), now)
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    kubeconfig = plane.kubeconfig()
    endpoint = await auth.load(str(kubeconfig))
    async with asyncio.timeout(LIMIT), HttpTransport(endpoint, connections=max(arguments.clients, BURST)) as transport:
        client = Client(transport)
        await install.apply_kinds(client, legacy_apis=False, adopt=True)
        await client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}}, manager="benchmark")
        say("no webhook")
        await client.create(kinds.NAMESPACES, {"metadata": {"name": "no-webhook"}})
        await measure(Load(client, "no-webhook"), arguments)
        for replicas in (1, 2):
            say(f"{replicas} webhook replica{'s' if replicas > 1 else ''}")
            await with_webhooks(client, kubeconfig, ca, folder, replicas, arguments)


def say(title: str) -> None:
    print(f"{title} (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--total", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10)
    with (
        tempfile.TemporaryDirectory() as name,
        ControlPlane(nodes_simulated=False) as running,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(main(parser.parse_args(), running, Path(name)))
