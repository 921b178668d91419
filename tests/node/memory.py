"""Prints the memory of each of Muster's containers on real nodes, idle and with many pods: `memory.py [PODS]`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator

import binaries
import machine
from nodes import SPACE, Nodes

from muster.kube import auth
from muster.kube.client import Client
from muster.kube.http import HttpTransport
from muster.model import kinds

_GANG = 100
_CLIENTS = 16
_QUIET = 30.0


def used(nodes: Nodes) -> dict[str, int]:
    """Return each container's working set in bytes, by its pod: what the kubelet would count against its limit."""
    pods = json.loads(nodes.kubectl("get", "pods", "--namespace", SPACE, "--output=json"))["items"]
    found = {}
    for pod in pods:
        name = pod["metadata"]["name"]
        (group,) = _groups(nodes, pod["metadata"]["uid"])
        usage = int(nodes.inside("cat", f"{group}/memory.usage_in_bytes"))
        statistics = dict(line.split() for line in nodes.inside("cat", f"{group}/memory.stat").splitlines())
        found[name] = usage - int(statistics["total_inactive_file"])
    return found


def _groups(nodes: Nodes, uid: str) -> list[str]:
    root = f"/sys/fs/cgroup/memory/{nodes.folder.name}"
    return nodes.inside("find", root, "-type", "d", "-name", f"pod{uid}").split()


def report(nodes: Nodes, when: str) -> None:
    """Print a line for each container."""
    for name, size in sorted(used(nodes).items()):
        print(f"{when}: {name} {size / 2**20:.0f} MiB", flush=True)


async def fill(nodes: Nodes, count: int) -> None:
    """Create pods in gangs that are too large for these nodes, so that all of them wait."""
    async with HttpTransport(await auth.load(str(nodes.kubeconfig))) as transport:
        client = Client(transport)
        for gang in range(-(-count // _GANG)):
            metadata = {"name": f"gang-{gang}"}
            await client.create(kinds.PODGROUPS, {"metadata": metadata, "spec": {"minMember": _GANG}}, "default")
        numbers = iter(range(count))
        await asyncio.gather(*(_create(client, numbers) for _ in range(_CLIENTS)))


async def _create(client: Client, numbers: Iterator[int]) -> None:
    for number in numbers:
        annotations = {"scheduling.k8s.io/group-name": f"gang-{number // _GANG}"}
        main = {"name": "main", "image": "busybox:1.37", "resources": {"requests": {"cpu": "1"}}}
        spec = {"schedulerName": "muster", "containers": [main]}
        pod = {"metadata": {"name": f"pod-{number}", "annotations": annotations}, "spec": spec}
        await client.create(kinds.PODS, pod, "default")


def main(count: int) -> int:
    """Return the status."""
    if lacking := machine.missing():
        print(lacking, file=sys.stderr)
        return machine.MISSING
    if status := binaries.main("node"):
        return status
    with Nodes() as nodes:
        nodes.install()
        time.sleep(_QUIET)
        report(nodes, "idle")
        asyncio.run(fill(nodes, count))
        time.sleep(_QUIET)
        report(nodes, f"with {count:,} pods")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
