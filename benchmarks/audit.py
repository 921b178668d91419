"""How much of a processor the leader's auditor takes on the real control plane, and how long ago its oldest audit is.

    python benchmarks/audit.py [--namespaces 1000] [--minutes 10]    (needs the binaries that `make controlplane` builds)

Each namespace has a quota, two PodGroups and ten pods that another scheduler is to place. Printed once a minute, from when
every namespace has a ledger: the part of a core since then, by the auditor's own metric, the oldest audit, and failures.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import calibration

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "controlplane"))

from controlplane import ControlPlane, free_ports  # the path above is set at run time

from muster.cli.installation import crds
from muster.kube import auth
from muster.kube.client import Client
from muster.kube.errors import ForbiddenError, ServerError
from muster.kube.http import HttpTransport
from muster.model import kinds, names

_AT_ONCE: Final = 32
_GROUPS, _PODS = 2, 10
_LEDGERS_WITHIN: Final = 900.0


def manifests(namespace: str) -> list[tuple[Any, dict[str, Any], str]]:
    """Return what is made for one namespace, in order."""
    quota = {"metadata": {"name": "compute"}, "spec": {"hard": {"cpu": "100", "memory": "200Gi"}}}
    made: list[tuple[Any, dict[str, Any], str]] = [
        (kinds.NAMESPACES, {"metadata": {"name": namespace, "labels": {names.QUOTA_MODE: names.GUARDED}}}, ""),
        (kinds.RESOURCEQUOTAS, quota, namespace),
    ]
    for number in range(_GROUPS):
        spec = {"minMember": 5, "minResources": {"cpu": "5", "memory": "5Gi"}}
        made.append((kinds.PODGROUPS, {"metadata": {"name": f"gang-{number}"}, "spec": spec}, namespace))
    for number in range(_PODS):
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
        about = {"name": f"pod-{number}", "annotations": {names.GROUP_NAME: f"gang-{number % _GROUPS}"}}
        spec = {"schedulerName": "another", "automountServiceAccountToken": False, "containers": [container]}
        made.append((kinds.PODS, {"metadata": about, "spec": spec}, namespace))
    return made


async def fill(client: Client, count: int) -> None:
    """Install Muster's kinds, and make the namespaces."""
    await crds.apply(client, legacy_apis=False, adopt=True)
    await client.create(kinds.NAMESPACES, {"metadata": {"name": names.SYSTEM_NAMESPACE}})
    await client.create(kinds.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}, "spec": {"weight": 1}})
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(namespace: str) -> None:
        async with room:
            for kind, manifest, where in manifests(namespace):
                await created(client, kind, manifest, where)

    await asyncio.gather(*(one(f"team-{number:05}") for number in range(count)))


async def created(client: Client, kind: Any, manifest: dict[str, Any], namespace: str) -> None:
    """Create an object; of a namespace that is new, controllers first make the account and count the quota."""
    async with asyncio.timeout(_LEDGERS_WITHIN):
        while True:
            try:
                await client.create(kind, manifest, namespace)
            except (ForbiddenError, ServerError):
                await asyncio.sleep(1)
            else:
                return


async def seeded(client: Client) -> int:
    """Count the ledgers that say something."""
    return sum(bool(each.data.seeded_at) for each in (await client.list(kinds.QUOTALEDGERS)).items)


def metric(port: int, name: str) -> float:
    """Return a metric of the scheduler."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found[1]) if found else float("nan")


async def measure(client: Client, port: int, namespaces: int, minutes: int) -> None:
    """Wait for all ledgers, then tell each minute how the auditor does."""
    async with asyncio.timeout(_LEDGERS_WITHIN):
        while (there := await seeded(client)) < namespaces:
            print(f"{there} ledgers", flush=True)
            await asyncio.sleep(10)
    began, before = time.monotonic(), metric(port, "muster_quota_audit_cpu_seconds_total")
    for minute in range(1, minutes + 1):
        await asyncio.sleep(max(0.0, began + 60 * minute - time.monotonic()))
        spent = metric(port, "muster_quota_audit_cpu_seconds_total") - before
        share = spent / (time.monotonic() - began)
        oldest, failed = (metric(port, f"muster_quota_audit_{name}") for name in ("oldest_seconds", "failures_total"))
        print(
            f"minute {minute}: {share:.2%} of a core ({spent:.2f} s), the oldest audit {oldest:.0f} s ago,"
            f" {failed:.0f} failures",
            flush=True,
        )


async def with_client(plane: ControlPlane, then: Callable[[Client], Awaitable[None]]) -> None:
    """Do something as an administrator."""
    async with HttpTransport(await auth.load(str(plane.kubeconfig()))) as transport:
        await then(Client(transport))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--namespaces", type=int, default=1000)
    parser.add_argument("--minutes", type=int, default=10)
    arguments = parser.parse_args()
    calibration.tell()
    with ControlPlane(nodes_simulated=False) as plane:
        began, port = time.monotonic(), free_ports(1)[0]
        asyncio.run(with_client(plane, partial(fill, count=arguments.namespaces)))
        print(f"{arguments.namespaces} namespaces made in {time.monotonic() - began:.0f} s", flush=True)
        command = ("-m", "scheduler", "--kubeconfig", str(plane.kubeconfig()), "--probe-port", str(port))
        scheduler = subprocess.Popen([sys.executable, *command, "--log-level", "warning"])
        try:
            then = partial(measure, port=port, namespaces=arguments.namespaces, minutes=arguments.minutes)
            asyncio.run(with_client(plane, then))
        finally:
            scheduler.terminate()
            scheduler.wait()


if __name__ == "__main__":
    main()
