"""How long `muster podgroup why` and `muster admit` take: whole processes, asked of an API server over HTTP, and of a dump.

Run: python benchmarks/ask.py [--nodes 1000] [--pods 10000] [--runs 5] [--real | --tenant]
     (--real needs the binaries that `make controlplane` builds)

The cluster has gangs of 10 pods which fill the nodes, as many as there are pods, in 20 namespaces, and one gang that waits
for room. Without --real the API server is the sandbox's, in a process of its own. Printed per question: seconds from the
start of the process to its end, and its processor seconds, which don't depend on what else the machine does; then what
`podgroup why` spends these on. Its imports and the API server's work overlap. With --tenant the two are asked by somebody who may not list
nodes, so the visibility API answers, which is in the API server's process; one of its objects changes five times a second, as in benchmarks/visibility.py.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import calibration

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "controlplane"))

from muster.cli.installation import crds
from muster.kube import auth
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.http import HttpTransport
from muster.kube.transport import Request, Response
from muster.model import kinds, names
from muster.model.objects import prepare
from muster.sandbox.core.users import ADMIN, User
from muster.sandbox.http import HttpFront, kubeconfig
from muster.sandbox.inprocess import InProcessTransport
from muster.sandbox.server.requests import ApiServer
from muster.visibility.api import failure, resources
from muster.visibility.paths import GROUP
from muster.visibility.program import VisibilityOptions, answering
from muster.visibility.requestheader import Caller
from scheduler.configuration import builtin

GANG: Final = 10
NAMESPACES: Final = 20
TENANT: Final = "tenant"
_AT_ONCE: Final = 64
_CREATED: Final = "2026-01-01T00:00:00Z"
JOB: Final = """\
apiVersion: batch/v1
kind: Job
metadata: {name: asked, namespace: team-0}
spec:
  parallelism: 20
  completions: 20
  template:
    metadata:
      annotations: {scheduling.k8s.io/group-min-member: "20"}
    spec:
      schedulerName: muster
      restartPolicy: Never
      containers: [{name: main, image: example.com/train, resources: {requests: {cpu: "4", memory: 8Gi}}}]
"""


def node(number: int) -> dict[str, Any]:
    amounts = {"cpu": "40", "memory": "128Gi", "pods": "110"}
    return {
        "metadata": {
            "name": f"node-{number:05}",
            "labels": {
                "kubernetes.io/hostname": f"node-{number:05}",
                "kubernetes.io/os": "linux",
                "zone": f"z{number % 3}",
            },
        },
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is ready"}],
        },
    }


def pod(number: int, nodes: int, group: str = "") -> dict[str, Any]:
    gang = number // GANG
    named = group or f"gang-{gang}"
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    main = {
        "name": "main",
        "image": "example.com/train:v1",
        "command": ["train", "--epochs", "100"],
        "env": [{"name": f"SETTING_{each}", "value": "a value as there are many"} for each in range(5)],
        "resources": {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
    }
    made: dict[str, Any] = {
        "metadata": {
            "name": f"{named}-{number}",
            "namespace": "team-0" if group else f"team-{gang % NAMESPACES}",
            "labels": {"job-name": named, "app": "train"},
            "annotations": {names.GROUP_NAME: named},
        },
        "spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [main], "tolerations": tolerations},
        "status": {"phase": "Pending"},
    }
    if not group:
        made["spec"]["nodeName"] = f"node-{number % nodes:05}"
        made["status"] = {
            "phase": "Running",
            "startTime": _CREATED,
            "podIP": "10.1.2.3",
            "conditions": [
                {"type": each, "status": "True", "lastTransitionTime": _CREATED}
                for each in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
        }
    return made


def group(name: str, namespace: str, least: int, status: dict[str, Any]) -> dict[str, Any]:
    spec = {"minMember": least, "queue": "default"}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": status}


def everything(nodes: int, pods: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    for number in range(NAMESPACES):
        yield kinds.NAMESPACES, {"metadata": {"name": f"team-{number}"}}
    yield kinds.QUEUES, {"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open"}}
    for number in range(nodes):
        yield kinds.NODES, node(number)
    for number in range(pods // GANG):
        status = {"phase": "Running", "running": GANG}
        yield kinds.PODGROUPS, group(f"gang-{number}", f"team-{number % NAMESPACES}", GANG, status)
    for number in range(pods):
        yield kinds.PODS, pod(number, nodes)
    yield kinds.PODGROUPS, group("waiting", "team-0", 20, {"phase": "Inqueue"})
    for number in range(20):
        yield kinds.PODS, pod(10**7 + number, nodes, "waiting")


# ── the two API servers ──────────────────────────────────────────────────────────────────────────────────────────


class Restricted(ApiServer):
    """Lets tenants read no nodes, as the roles of a cluster do."""

    async def handle(self, request: Request, user: User = ADMIN, *, agent: str = "") -> Response:
        """Answer a request."""
        if user.name == TENANT and request.path == kinds.NODES.path():
            return failure(403, "nodes is forbidden: a tenant may not list them")
        return await super().handle(request, user, agent=agent)


async def serve(file: Path, nodes: int, pods: int, *, tenant: bool = False) -> None:
    """Be the sandbox's API server, until the process is ended."""
    server = Restricted(SystemClock())
    for definition in crds.manifests(legacy_apis=False):
        server.store.put((kinds.CRDS.group, kinds.CRDS.plural), definition)
    for kind, body in everything(nodes, pods):
        whole = {"apiVersion": kind.api_version, "kind": kind.name, **body}
        uid = f"{kind.name}-{body['metadata']['name']}".lower()
        whole["metadata"] = {**body["metadata"], "uid": uid, "creationTimestamp": _CREATED, "managedFields": _FIELDS}
        server.store.put((kind.group, kind.plural), whole)
    front = HttpFront(server, users={"token": ADMIN, TENANT: User(TENANT)})
    url = await front.start()
    async with contextlib.AsyncExitStack() as stack:
        if tenant:
            write(file.with_name(TENANT), url, TENANT)
            stack.push_async_callback(_ended, asyncio.create_task(await _visible(stack, server)))
        announce(file, url)
        await asyncio.Event().wait()


def announce(file: Path, url: str) -> None:
    write(file, url, "token")
    print("ready", flush=True)


def write(file: Path, url: str, token: str) -> None:
    file.write_text(kubeconfig(url, token))


async def _visible(stack: contextlib.AsyncExitStack, server: ApiServer) -> Coroutine[Any, Any, None]:
    """Have the visibility API answer for its group, and return what changes an object all the time."""
    client = Client(InProcessTransport(server))
    options = VisibilityOptions(Path(), builtin.policy(), (names.SCHEDULER_NAME,), crds.manifests(legacy_apis=False))
    api = await stack.enter_async_context(answering(client, SystemClock(), options))

    async def handle(request: Request, user: User) -> Response:
        return await api.handle(request, Caller(user.name, user.uid, user.groups, user.extra))

    server.aggregate(GROUP, resources(), handle)
    return change(client)


async def change(client: Client) -> None:
    """Change a node five times a second."""
    while True:
        await client.patch(kinds.NODES, "node-00000", {"metadata": {"annotations": {"at": str(time.monotonic())}}})
        await asyncio.sleep(0.2)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


# Every object of a real server has such.
_FIELDS: Final = [
    {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": _CREATED,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {f"f:field{each}": {} for each in range(10)},
            "f:spec": {f"f:field{each}": {} for each in range(20)},
        },
    }
]


@contextlib.contextmanager
def sandbox(folder: Path, nodes: int, pods: int, *, tenant: bool = False) -> Iterator[Path]:
    file = folder / "kubeconfig"
    command = [sys.executable, __file__, "--serve", str(file), "--nodes", str(nodes), "--pods", str(pods)]
    command += ["--tenant"] if tenant else []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield file
        finally:
            process.terminate()


@contextlib.contextmanager
def real(nodes: int, pods: int) -> Iterator[Path]:
    from controlplane import ControlPlane  # the path above is set at run time

    with ControlPlane(nodes_simulated=False) as plane:
        # Only the API server is asked; and without kubelets, its controllers would call the nodes dead.
        plane.kill("kube-controller-manager")
        asyncio.run(fill(plane.kubeconfig(), nodes, pods))
        yield plane.kubeconfig()


async def fill(file: Path, nodes: int, pods: int) -> None:
    async with HttpTransport(await auth.load(str(file))) as transport:
        client = Client(transport)
        await crds.apply(client, legacy_apis=False, adopt=True)
        await create(client, nodes, pods)


async def create(client: Client, nodes: int, pods: int) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def make(kind: Any, body: dict[str, Any]) -> None:
        async with slots:
            namespace = body["metadata"].get("namespace", "")
            await client.create(kind, body, namespace)
            name, change = body["metadata"]["name"], {"status": body.get("status")}
            if kind is kinds.NODES:
                await client.patch(kind, name, {"spec": {"taints": None}})
            if kind is kinds.NAMESPACES:
                await client.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": "default"}}, name)
            elif change["status"]:
                await client.patch(kind, name, change, namespace, subresource="status")

    ordered: dict[Any, list[Any]] = {}
    for kind, body in everything(nodes, pods):
        ordered.setdefault(kind.plural, []).append((kind, body))
    for found in ordered.values():
        await asyncio.gather(*(make(kind, body) for kind, body in found))


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────────────


def measured(command: list[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """Return wall-clock seconds, processor seconds, and MiB of memory of a process."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024


def report(name: str, words: list[str], environment: dict[str, str], runs: int) -> None:
    command = [sys.executable, "-m", "muster.cli", *words]
    measured(command, environment)  # bytecode and file caches
    walls, processors, memory = zip(*(measured(command, environment) for _ in range(runs)), strict=True)
    print(
        f"{name:26} {statistics.median(walls):.2f} s, at best {min(walls):.2f};"
        f" processor {statistics.median(processors):.2f} s, at best {min(processors):.2f}; {max(memory):.0f} MiB",
        flush=True,
    )


def parts(environment: dict[str, str], runs: int) -> None:
    """Print what `podgroup why` spends its time on, at best."""
    command = [sys.executable, str(Path(__file__).with_name("ask_parts.py"))]
    best: dict[str, float] = {}
    for _ in range(runs + 1):
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        for part, seconds in json.loads(done.stdout):
            best[part] = min(best.get(part, seconds), seconds)
    print(f"podgroup why, step by step; processor seconds, at best: {sum(best.values()):.2f}")
    for part, seconds in best.items():
        print(f"  {part:34} {seconds:.3f}")


def as_tenant(nodes: int, pods: int, runs: int) -> None:
    """Print how long a tenant's commands take."""
    prepare()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.yaml").write_text(JOB)
        with sandbox(folder, nodes, pods, tenant=True) as file:
            environment = os.environ | {
                "KUBECONFIG": str(file.with_name(TENANT)),
                "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
            }
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            for title, words in (
                ("--version", ["--version"]),
                ("podgroup why", ["podgroup", "why", "waiting", "-n", "team-0"]),
                ("admit", ["admit", "-f", str(folder / "job.yaml")]),
                ("--version", ["--version"]),
            ):
                report(f"{title}, as a tenant", words, environment, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--tenant", action="store_true")
    parser.add_argument("--serve", type=Path)
    options = parser.parse_args()
    if options.serve is not None:
        asyncio.run(serve(options.serve, options.nodes, options.pods, tenant=options.tenant))
        return
    calibration.tell()
    if options.tenant:
        as_tenant(options.nodes, options.pods, options.runs)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.yaml").write_text(JOB)
        chosen = real(options.nodes, options.pods) if options.real else sandbox(folder, options.nodes, options.pods)
        with chosen as file:
            # As where it is installed: compiled once.
            environment = os.environ | {"KUBECONFIG": str(file), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            dump = subprocess.run(
                [sys.executable, "-m", "muster.cli", "dump"], env=environment, stdout=subprocess.PIPE, check=True
            )
            (folder / "state.yaml").write_bytes(dump.stdout)
            why, admit = ["podgroup", "why", "waiting", "-n", "team-0"], ["admit", "-f", str(folder / "job.yaml")]
            state = ["--state", str(folder / "state.yaml")]
            print(f"{options.nodes} nodes, {options.pods} pods, dump of {len(dump.stdout) / 1e6:.1f} MB")
            report("--version", ["--version"], environment, options.runs)
            report("queue list", ["queue", "list"], environment, options.runs)
            for words in (why, admit):
                question = " ".join(words[:2]) if words is why else words[0]
                report(question, words, environment, options.runs)
                report(f"{question}, of a dump", [*words, *state], environment, options.runs)
            parts(environment, options.runs)


if __name__ == "__main__":
    main()
