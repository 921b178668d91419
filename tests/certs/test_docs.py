"""docs/certificates.md: its recipes, run in their order on a sandbox behind real TLS."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from commands import QUICK, cluster, muster
from controlplane import free_ports
from plane import running

from certs.publish import RotationTarget, Rotator
from muster.cli.certs import files
from muster.kube.client import Client
from muster.kube.clock import SystemClock

PAGE = (Path(__file__).parents[2] / "docs" / "certificates.md").read_text()
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What takes minutes is waited for less long.
SHORTER = {"rotate-ca": "--publish-wait 0.2s --soak 0.2s"}
SECONDS = 60.0


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with cluster(tmp_path) as reached:
        yield reached


@pytest.fixture
async def shell(client: Client, tmp_path: Path, monkeypatch) -> AsyncIterator[Callable[..., Any]]:
    """Runs a line of the page and gives what was said; one that ends in & goes on until the end."""
    port, probes = map(str, free_ports(2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("KUBECACHEDIR", str(tmp_path / "cache"))
    started: list[asyncio.subprocess.Process] = []

    async def run(line: str) -> str:
        words = shlex.split(line.replace("9443", port).removesuffix("&").partition(" || ")[0])
        if line.endswith("&"):
            more = ("--probe-port", probes, "--drain", "0")
            started.append(await asyncio.create_subprocess_exec(*QUICK, *words[1:], *more))
            await listening(int(port))
            return ""
        async with asyncio.timeout(SECONDS):
            # In this process, since a start of Python for each line is all that it would take longer.
            status, said = await (muster(*words[1:]) if words[0] == "muster" else program(words))
        assert status == 0 or line.endswith("|| true"), f"{line}\n{said}"
        return said

    yield run
    for process in started:
        process.terminate()
        assert await process.wait() == 0


async def program(words: list[str]) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said = (await process.communicate())[0].decode()
    return process.returncode, said


async def listening(port: int) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)


def lines() -> list[str]:
    commands = [line for block in BLOCK.findall(PAGE) for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in commands)
    return [line.removeprefix("$ ") for line in commands]


@pytest.mark.processes
@pytest.mark.usefixtures("quick_looks")
async def test_the_recipes_of_the_page_do_what_it_says(shell, client, tmp_path):
    async def kubelet() -> None:
        """Do what the page has something do every minute, more often."""
        rotator = Rotator(client, SystemClock(), RotationTarget())
        while True:
            observation = await rotator.look(probing=False)
            files.write(tmp_path / "certificates", files.content(observation, authority=False))
            await asyncio.sleep(0.2)

    said: dict[str, str] = {}
    async with contextlib.AsyncExitStack() as stack:
        for line in lines():
            if line.startswith("kubectl") and shutil.which("kubectl") is None:
                pytest.skip("kubectl isn't there, and the page needs it from here on")
            if line.startswith("muster certs rotate-ca --dry-run"):
                await stack.enter_async_context(running(kubelet()))
            shorter = next((more for word, more in SHORTER.items() if word in line), "")
            said[line] = await shell(f"{line} {shorter}".strip())
    assert "1 replica is accepted by" in said["muster certs verify"]
    assert "would enter phase publish" in said["muster certs rotate-ca --dry-run"]
    assert "soak -> retire" in said["muster certs rotate-ca --publish-wait 30s --soak 0s"]
    assert "withdraw -> steady" in said["muster certs rollback"]
    assert "Muster's own CA is in charge" in next(
        text for line, text in said.items() if "--ca-file" in line and "inject" in line
    )
    assert "cert-manager writes the bundle" in said["muster certs status"]


@pytest.mark.parametrize("metric", sorted(set(re.findall(r"`(muster_[a-z_]+)`", PAGE))))
def test_the_metrics_that_the_page_names_exist(metric):
    root = Path(__file__).parents[2]
    sources = "".join((root / name).read_text() for name in ("certs/metrics.py", "webhooks/metrics.py"))
    name = metric.removeprefix("muster_certificates_").removeprefix("muster_webhook_paths_").removesuffix("_total")
    assert name in sources
