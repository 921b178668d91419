"""The programs at work on a sandbox, and what they tell of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from commands import cluster, muster
from controlplane import free_ports
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from muster.cli.installation import permissions
from muster.kube import wait
from muster.kube.client import Client
from muster.kube.errors import ForbiddenError
from muster.model import kinds
from muster.sandbox.core.users import ADMIN
from muster.visibility import requestheader

SECRET = "hunter2-in-a-secret"
SECONDS = 60.0
CONFIG = 'actions: "enqueue, allocate, backfill"\ntiers:\n- plugins: [{name: gang}, {name: proportion}, {name: predicates}]\n'
JOB = {
    "metadata": {"name": "train", "annotations": {"scheduling.k8s.io/group-min-member": "2"}},
    "spec": {
        "parallelism": 2,
        "completions": 2,
        "template": {
            "spec": {
                "schedulerName": "muster",
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "busybox",
                        "resources": {"requests": {"cpu": "1"}},
                        "env": [{"name": "PASSWORD", "value": SECRET}],
                    }
                ],
            }
        },
    },
}
QUOTA = {"metadata": {"name": "compute"}, "spec": {"hard": {"cpu": "5"}}}
NODE = {"metadata": {"name": "node-1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}


@dataclass(frozen=True)
class Told:
    """What one program told: its metrics, its state, the answers of its probes, its log."""

    metrics: str
    state: Any
    alive: tuple[int, str]
    ready: tuple[int, str]
    log: str

    def families(self) -> dict[str, Metric]:
        """Return the metrics by name; a family without samples is one, too."""
        return {family.name: family for family in text_string_to_metric_families(self.metrics)}

    def value(self, name: str, **labels: str) -> float | None:
        samples = (sample for family in self.families().values() for sample in family.samples)
        return next(
            (each.value for each in samples if each.name == name and labels.items() <= each.labels.items()), None
        )


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """What each program tells after some work, by their names."""
    return asyncio.run(_told(tmp_path_factory.mktemp("telemetry")))


@pytest.fixture(scope="session")
def metrics_folder(told: dict[str, Told], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has what each program showed of its metrics, in a file of its name."""
    folder = tmp_path_factory.mktemp("metrics")
    for name, each in told.items():
        (folder / name).write_text(each.metrics)
    return folder


async def _told(folder: Path) -> dict[str, Told]:
    port, webhook, scheduler, certs, visibility, asked = free_ports(6)
    (folder / "scheduler.yaml").write_text(CONFIG)
    kubeconfig = ("--kubeconfig", str(folder / "kubeconfig"))
    url, certificates = f"https://127.0.0.1:{port}", str(folder / "certificates")
    async with cluster(folder) as client, contextlib.AsyncExitStack() as programs:
        await _succeeds("install", *kubeconfig)
        await _succeeds("certs", "init", "--host", "127.0.0.1", "--probe", f"127.0.0.1:{port}", *kubeconfig)
        await _succeeds("certs", "export", "--folder", certificates, *kubeconfig)
        serving = (
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--certificates",
            certificates,
            "--drain",
            "0",
            "--account",
            ADMIN.name,
        )
        await programs.enter_async_context(_program(folder, webhook, "webhook", *kubeconfig, *serving))
        await _succeeds("install", "--url", url, "--ca-file", f"{certificates}/ca.crt", *kubeconfig)
        # Both programs are the administrator here; rights are proved in tests/rbac.
        await permissions.apply(client, permissions.policies(ADMIN.name))
        deciding = ("--config", str(folder / "scheduler.yaml"))
        await programs.enter_async_context(_program(folder, scheduler, "scheduler", *kubeconfig, *deciding))
        await programs.enter_async_context(_program(folder, certs, "certs", "run", *kubeconfig))
        trust = {"requestheader-client-ca-file": (folder / "certificates" / "ca.crt").read_text()}
        about = {"metadata": {"name": requestheader.CONFIGMAP[1]}, "data": trust}
        await client.create(kinds.CONFIGMAPS, about, requestheader.CONFIGMAP[0])
        answering = ("--certificates", certificates, "--host", "127.0.0.1", "--port", str(asked), "--drain", "0")
        await programs.enter_async_context(_program(folder, visibility, "visibility", *kubeconfig, *answering))
        await _work(client)
        await _until(scheduler, 'muster_scheduler_podgroup_wait_seconds_count{stage="bind"} 1.0')
        await _until(scheduler, 'muster_ledger_quota_hard{namespace="default",resource="cpu"}')
        await _until(certs, "muster_certificates_not_after_timestamp_seconds{")
        await _until(certs, "muster_webhook_paths_since_timestamp_seconds{")
        return {
            "webhook": await _scraped(folder, "webhook", webhook),
            "scheduler": await _scraped(folder, "scheduler", scheduler),
            "certs": await _scraped(folder, "certs", certs),
            "visibility": await _scraped(folder, "visibility", visibility),
        }


async def _succeeds(*words: str) -> None:
    status, said = await muster(*words)
    assert status == 0, said


@contextlib.asynccontextmanager
async def _program(folder: Path, probes: int, name: str, *options: str) -> AsyncIterator[None]:
    words = (
        "--probe-port",
        str(probes),
        *([] if name == "visibility" else ["--debug-state"]),
        "--log-level",
        "debug",
        "--log-format",
        "json",
    )
    with (folder / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "muster.cli", name, *options, *words, stdout=log, stderr=log
        )
    try:
        await _until(probes, "ok", "/readyz")
        yield
    finally:
        process.terminate()
        await process.wait()


async def _work(client: Client) -> None:
    """Have a queue refused, a quota kept, and a Job run."""
    await wait.until(client, kinds.QUEUES, "default", holds=lambda found: found is not None, within=SECONDS)
    await client.create(kinds.NODES, NODE)
    await client.patch(kinds.NODES, "node-1", NODE, subresource="status")
    await client.create(kinds.RESOURCEQUOTAS, QUOTA, "default")
    await client.create(kinds.SECRETS, {"metadata": {"name": "s"}, "stringData": {"password": SECRET}}, "default")
    for queue in ("nope", "default"):
        group = {"metadata": {"name": "gang"}, "spec": {"minMember": 1, "queue": queue, "minResources": {"cpu": "9"}}}
        with pytest.raises(ForbiddenError):
            await client.create(kinds.PODGROUPS, group, "default")
    await client.create(kinds.JOBS, JOB, "default")


async def _until(port: int, text: str, path: str = "/metrics") -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                if text in (await _fetched(port, path))[1]:
                    return
            await asyncio.sleep(0.1)


async def _fetched(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.request("GET", f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def _scraped(folder: Path, name: str, port: int) -> Told:
    metrics = (await _fetched(port, "/metrics"))[1]
    # Of all programs this one keeps no state of its own.
    state = "null" if name == "visibility" else (await _fetched(port, "/debug/state"))[1]
    alive, ready = await _fetched(port, "/healthz"), await _fetched(port, "/readyz")
    return Told(metrics, json.loads(state), alive, ready, (folder / f"{name}.log").read_text())
