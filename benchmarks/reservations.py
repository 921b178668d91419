"""How fast PodGroups are created through real admission webhooks, each with its reservation in the quota ledger.

    python benchmarks/reservations.py [--total 2000] [--clients 64] [--rounds 10]

Starts the real control plane (`make controlplane` first), measures creations without any webhook, then with one and
with two webhook replicas, each a process of its own; two are reached in turns, by connection, as behind a Service.
Everything shares this machine, clients included. For each: `--rounds` times 64 creations at once, and `--total`
creations by `--clients` clients, all in one namespace under one quota. Then the same in a namespace that has 10,000
groups already; what a pod outside every group costs more in a guarded namespace; and 64 who reserve by a plain
compare-and-swap loop each, for comparison. About two minutes; ends itself after fifteen.
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
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import calibration
import msgspec
import uvloop

from certs import authority
from muster.cli.installation import crds, webhook_configurations
from muster.kube import auth, errors, wait
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.http import HttpTransport
from muster.ledger.reservations import ReservationRequest
from muster.ledger.table import Table
from muster.ledger.tally import Totals
from muster.model import kinds, names
from muster.model.amounts import Resources
from muster.model.objects import Meta, QuotaLedger
from webhooks.registration import UrlBase, configurations

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "controlplane"), str(ROOT / "tests" / "support")]

from controlplane import ControlPlane, free_ports  # noqa: E402 - found by the line above
from plane import forward  # noqa: E402 - the same

BURST = 64
LIMIT = 900.0
MANY = 10_000


def quantile(seconds: Sequence[float], share: float) -> float:
    """Return a quantile in milliseconds."""
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

    async def stream(self, total: int, clients: int) -> float:
        """Create so many, and return how many were created in a second."""
        taken: list[float] = []
        left = iter(range(total))

        async def client() -> None:
            for _ in left:
                taken.append(await self.create())  # noqa: PERF401 - shared by all clients, as it happens

        began, failed = time.perf_counter(), len(self.failures)
        await asyncio.gather(*(client() for _ in range(clients)))
        elapsed = time.perf_counter() - began
        line(f"{total:,} by {clients} clients", taken, elapsed, len(self.failures) - failed)
        return len(taken) / elapsed


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
    """Return one address for all replicas."""
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


async def many_groups(client: Client, namespace: str) -> None:
    """Fill a namespace with groups, while no webhook is called."""
    left = iter(range(MANY))

    async def fill() -> None:
        for number in left:
            spec = {"minMember": 1, "queue": names.DEFAULT_QUEUE, "minResources": {"cpu": "1"}}
            await client.create(kinds.PODGROUPS, {"metadata": {"name": f"old{number}"}, "spec": spec}, namespace)

    await asyncio.gather(*(fill() for _ in range(64)))


async def pods(client: Client, total: int, clients: int) -> None:
    """Compare creations of pods outside every group in a namespace that is guarded, and in one that isn't."""
    for mode in ("off", "guarded"):
        await namespace_of(client, f"pods-{mode}", mode)
        for parallel in (1, clients):
            taken: list[float] = []
            left, began = iter(range(total // 4)), time.perf_counter()
            await asyncio.gather(*(create_pods(client, f"pods-{mode}", left, parallel, taken) for _ in range(parallel)))
            line(f"{mode}: {total // 4} pods by {parallel}", taken, time.perf_counter() - began, 0)


async def namespace_of(client: Client, name: str, mode: str) -> None:
    """Create a namespace with a quota in a mode, and wait until the quota's controller has seen it."""
    await client.create(kinds.NAMESPACES, {"metadata": {"name": name, "labels": {names.QUOTA_MODE: mode}}})
    quota = {"metadata": {"name": "quota"}, "spec": {"hard": {"requests.cpu": "1M"}}}
    await client.create(kinds.RESOURCEQUOTAS, quota, name)
    await wait.until(
        client,
        kinds.RESOURCEQUOTAS,
        "quota",
        name,
        holds=lambda found: bool(found and found.status.hard),
        within=30,
    )


async def create_pods(
    client: Client, namespace: str, numbers: Iterator[int], parallel: int, taken: list[float]
) -> None:
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [main], "schedulerName": "nobody", "automountServiceAccountToken": False}
    for number in numbers:
        began = time.perf_counter()
        await client.create(kinds.PODS, {"metadata": {"name": f"p{number}-{parallel}"}, "spec": spec}, namespace)
        taken.append(time.perf_counter() - began)


async def compare_and_swap(client: Client) -> None:
    """Have 64 reserve at once, each by its own loop of read, decide, write."""
    namespace = "compare-and-swap"
    await client.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
    hard = Resources.parse({"cpu": "1M"})
    table = Table("2026-01-01T00:00:00Z", {"podgroups": 1}, {"quota": Totals("uid", hard)})
    ledger = QuotaLedger(metadata=Meta(name=names.LEDGER_NAME, namespace=namespace), data=table.render())
    await client.create(kinds.QUOTALEDGERS, ledger, namespace)
    writes = 0

    async def reserve(number: int) -> float:
        nonlocal writes
        began = time.perf_counter()
        while True:
            stored = await client.get(kinds.QUOTALEDGERS, names.LEDGER_NAME, namespace)
            request = ReservationRequest(
                namespace, "PodGroup", "g", f"g{number}", f"u{number}", Resources.parse({"cpu": 1})
            )
            after, _ = Table.parse(stored.data).reserve([request])
            writes += 1
            with contextlib.suppress(errors.ConflictError):
                await client.replace(
                    kinds.QUOTALEDGERS, msgspec.structs.replace(stored, data=after.render()), namespace
                )
                return time.perf_counter() - began

    began = time.perf_counter()
    taken = await asyncio.gather(*(reserve(number) for number in range(BURST)))
    line(f"1 x {BURST} at once, {writes} writes", taken, time.perf_counter() - began, 0)


async def with_webhooks(
    client: Client,
    kubeconfig: Path,
    ca: Any,
    folder: Path,
    replicas: int,
    arguments: argparse.Namespace,
    namespace: str = "",
) -> None:
    if not namespace:
        namespace = f"replicas-{replicas}"
        await client.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(webhook(kubeconfig, folder)) for _ in range(replicas)]
        async with address([port for port, _ in started]) as url:
            both = configurations(
                UrlBase(url), ca.certificate, scheduler_names=["muster"], legacy_apis=False, own_namespace=""
            )
            await webhook_configurations.apply(client, *both)
            await noticed(client, namespace)
            quota = {"metadata": {"name": "quota"}, "spec": {"hard": {"cpu": "1M"}}}
            await client.create(kinds.RESOURCEQUOTAS, quota, namespace)
            load = Load(client, namespace)
            await measure(load, arguments)
            ledger = await client.get(kinds.QUOTALEDGERS, names.LEDGER_NAME, namespace)
            used = ", ".join(f"{cpu_seconds(process):.1f}" for _, process in started)
            print(f"  created {load.created:,}; the ledger says: {ledger.data.summary}; CPU of the webhooks: {used} s")
            if namespace == "many":
                say("pods, 1 webhook replica")
                await pods(client, arguments.total, arguments.clients)
            await webhook_configurations.remove(client)


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
        await crds.apply(client, legacy_apis=False, adopt=True)
        await client.apply(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}}, manager="benchmark")
        calibration.tell()
        say("no webhook")
        await client.create(kinds.NAMESPACES, {"metadata": {"name": "no-webhook"}})
        await measure(Load(client, "no-webhook"), arguments)
        for replicas in (1, 2):
            say(f"{replicas} webhook replica{'s' if replicas > 1 else ''}")
            await with_webhooks(client, kubeconfig, ca, folder, replicas, arguments)
        if arguments.short:
            return
        await client.create(kinds.NAMESPACES, {"metadata": {"name": "many"}})
        await many_groups(client, "many")
        say(f"1 webhook replica, {MANY:,} groups in the namespace")
        await with_webhooks(client, kubeconfig, ca, folder, 1, arguments, "many")
        say("no webhook, a plain compare-and-swap loop per request")
        await compare_and_swap(client)


def say(title: str) -> None:
    print(f"{title} (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--total", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--short", action="store_true", help="Only without webhook, and with one and two replicas.")
    with (
        tempfile.TemporaryDirectory() as name,
        ControlPlane(nodes_simulated=False) as running,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(main(parser.parse_args(), running, Path(name)))
