"""How many reviews a second one webhook server answers on one core, over TLS, with the real policies.

    python benchmarks/admission.py [--seconds 5] [--connections 16] [--loop uvloop|asyncio]

Starts the server in a process of its own, and wrk (Debian's package of that name) against it. No API server and no
ledger write: what is measured is the path that every review takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import calibration
import uvloop

from certs import authority
from certs.serving import CertificateFiles, LiveCertificate
from muster.kube.client import Client
from muster.ledger.reservations import Observed, Reserved
from muster.model import kinds
from muster.model.objects import Meta, Namespace, Queue, QueueStatus
from webhooks.admission import Admission
from webhooks.caches import CachedView
from webhooks.metrics import WebhookMetrics
from webhooks.server import ListenOptions, WebhookServer
from webhooks.settings import WebhookSettings


class NoLedger:
    """Grants everything at once: a namespace without a quota."""

    async def reserve(self, *_: Any, **__: Any) -> Reserved:
        return Reserved(recorded=False)

    async def observe_quota(self, *_: Any, **__: Any) -> Observed:
        return Observed()


def pod() -> dict[str, Any]:
    """A pod of a Job with sidecars, environment and managed fields, as an API server sends it."""
    environment = [{"name": f"SETTING_{number}", "value": f"value-of-setting-{number}"} for number in range(20)]
    containers = [
        {
            "name": name,
            "image": f"registry.example.com/team/{name}:1.2.3",
            "env": environment,
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        for name in ("main", "sidecar", "logs")
    ]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "5f1e4c3a", "controller": True}
    fields: dict[str, Any] = {"f:spec": {f"f:field{number}": {} for number in range(40)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "train-",
            "namespace": "dev",
            "labels": {"job-name": "train"},
            "ownerReferences": [owner],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": fields}],
        },
        "spec": {
            "schedulerName": "muster",
            "containers": containers,
            "volumes": [{"name": "data", "emptyDir": {}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
    }


def podgroup() -> dict[str, Any]:
    metadata = {"name": "gang", "namespace": "dev", "uid": "6a0e", "labels": {"app": "train"}}
    spec = {"minMember": 4, "queue": "research", "minResources": {"cpu": "4", "memory": "8Gi"}}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}


def review(obj: dict[str, Any], resource: str, size: int) -> bytes:
    """Write the CREATE of an object, padded to about ``size`` bytes by an annotation."""
    group, _, version = obj["apiVersion"].rpartition("/")
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": group, "version": version, "kind": obj["kind"]},
        "resource": {"group": group, "version": version, "resource": resource},
        "name": obj["metadata"].get("name", ""),
        "namespace": "dev",
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:job-controller",
            "groups": ["system:authenticated"],
        },
        "object": obj,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    whole = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    short = size - len(json.dumps(whole))
    obj["metadata"]["annotations"] = {"example.com/note": "x" * max(0, short - 40)}
    return json.dumps(whole).encode()


def cases() -> dict[str, tuple[str, bytes]]:
    # Name and uid are made between the two; a pod without them is refused.
    named = pod()
    named["metadata"] |= {"name": "train-x7k2p", "uid": "0c9a3f7e-52d1-4c0b-9c3e-6b2f0d8e1a57"}
    return {
        "pod, mutate, 7.4 KB (patched)": ("/mutate/pods", review(pod(), "pods", 7400)),
        "pod, validate, 7.4 KB": ("/validate/pods", review(named, "pods", 7400)),
        "PodGroup, mutate, 1.1 KB": ("/mutate/podgroups", review(podgroup(), "podgroups", 1100)),
        "PodGroup, validate, 1.1 KB": ("/validate/podgroups", review(podgroup(), "podgroups", 1100)),
    }


async def serve(folder: Path, started: Any) -> None:
    view = CachedView()
    view.cache(kinds.NAMESPACES).put(Namespace(metadata=Meta(name="dev", uid="n")))
    for queue in ("default", "research"):
        view.cache(kinds.QUEUES).put(Queue(metadata=Meta(name=queue, uid=queue), status=QueueStatus(state="Open")))
    admission = Admission(view, NoLedger(), Client(None), WebhookSettings(), WebhookMetrics())  # type: ignore[arg-type]
    for path, body in cases().values():
        # A refusal costs other than what is measured here, and wrk reads no verdict.
        _, _, answer = await admission.handle(path, {"timeout": "5s"}, body)
        assert b'"allowed":true' in answer, answer
    server = WebhookServer(admission, LiveCertificate(CertificateFiles(folder)), ListenOptions("127.0.0.1", 0, 0))
    await server.start()
    started.send(server.port)
    await asyncio.Event().wait()


def run_server(folder: Path, loop: str, started: Any) -> None:
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(folder, started))


def wrk(port: int, path: str, body: bytes, folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Load one path and give requests per second, latencies in milliseconds, and answers that weren't 200."""
    payload, script = folder / "body.json", folder / "wrk.lua"
    payload.write_bytes(body)
    script.write_text(
        f'local file = io.open("{payload}", "rb")\n'
        'wrk.method = "POST"\nwrk.body = file:read("*a")\nwrk.headers["Content-Type"] = "application/json"\n'
        "done = function(summary, latency, requests)\n"
        '  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration,\n'
        "    latency:percentile(50), latency:percentile(99), summary.errors.status))\nend\n",
    )
    url = f"https://127.0.0.1:{port}{path}?timeout=5s"
    command = ["wrk", "-t1", f"-c{arguments.connections}", f"-d{arguments.seconds}s", "-s", str(script), url]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=arguments.seconds + 30).stdout
    line = next(line for line in output.splitlines() if line.startswith("RESULT"))
    requests, micros, p50, p99, errors = map(float, line.split()[1:])
    rate = requests / micros * 1e6
    return {"requests": requests, "per second": rate, "p50": p50 / 1000, "p99": p99 / 1000, "errors": errors}


def cpu_seconds(pid: int) -> float:
    """What a process has used of a core: on a machine with other work to do, the steadier figure."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop")
    arguments = parser.parse_args()
    calibration.tell()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        now = datetime.fromtimestamp(int(Path(name).stat().st_mtime), UTC)
        pair = authority.issue(authority.new_ca(now), ("127.0.0.1",), now)
        (folder / "tls.crt").write_bytes(pair.certificate)
        (folder / "tls.key").write_bytes(pair.key)
        receiver, sender = multiprocessing.Pipe(duplex=False)
        server = multiprocessing.Process(target=run_server, args=(folder, arguments.loop, sender))
        server.start()
        try:
            if not receiver.poll(30):
                raise SystemExit("the server did not start within 30 seconds")
            port = receiver.recv()
            assert server.pid is not None
            print(f"{arguments.loop}, {arguments.connections} connections, {arguments.seconds} s each")
            for title, (path, body) in cases().items():
                before = cpu_seconds(server.pid)
                found = wrk(port, path, body, folder, arguments)
                each = (cpu_seconds(server.pid) - before) / found["requests"]
                print(
                    f"{title:32} {found['per second']:8,.0f} reviews/s   p50 {found['p50']:5.2f} ms"
                    f"   p99 {found['p99']:5.2f} ms   CPU {each * 1e6:4.0f} µs = {1 / each:6,.0f} reviews/s of a core"
                    f"   not 200: {found['errors']:.0f}",
                )
        finally:
            server.terminate()
            server.join(10)


if __name__ == "__main__":
    main()
