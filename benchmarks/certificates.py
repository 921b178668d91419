"""What certificates cost a webhook server: handshakes, with and without the swap of contexts, and reloads under load.

    python benchmarks/certificates.py [--seconds 5] [--connections 16] [--every 1.0]

Handshakes: one server process, connections opened and closed as fast as this process can; "plain" has one context for
good, "live" hands each connection over, "live, reloaded" does after 100 reloads. Reloads: wrk (Debian's package of that
name) sends reviews over connections that stay open, without and with a new certificate every so many seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import calibration
import uvloop
from admission import NoLedger, cases, cpu_seconds, wrk

from certs import authority
from certs.bundle import KeyPair
from certs.serving import CertificateFiles, LiveCertificate
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.model import kinds
from muster.model.objects import Meta, Queue, QueueStatus
from webhooks.admission import Admission
from webhooks.caches import CachedView
from webhooks.metrics import WebhookMetrics
from webhooks.server import ListenOptions, WebhookServer
from webhooks.settings import WebhookSettings

RELOADS = 100
OPENERS = 8


class Plain(LiveCertificate):
    """A certificate that never changes, and the usual session tickets: what a server has that doesn't reload."""

    def __init__(self, files: CertificateFiles) -> None:
        super().__init__(files)
        certificate, key = files.current()
        self.listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.listening.set_alpn_protocols(["http/1.1"])
        self.listening.load_cert_chain(certificate, key)


def write(folder: Path, ca: KeyPair) -> None:
    pair = authority.issue(ca, ("127.0.0.1",), SystemClock().now())
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


async def serve(folder: Path, ca: KeyPair, mode: str, every: float, pipe: Any) -> None:
    view = CachedView()
    view.cache(kinds.QUEUES).put(Queue(metadata=Meta(name="default", uid="q"), status=QueueStatus(state="Open")))
    admission = Admission(view, NoLedger(), Client(None), WebhookSettings(), WebhookMetrics())  # type: ignore[arg-type]
    certificate = Plain(CertificateFiles(folder)) if mode == "plain" else LiveCertificate(CertificateFiles(folder))
    server = WebhookServer(admission, certificate, ListenOptions("127.0.0.1", 0, 0))
    await server.start()
    for _ in range(RELOADS if mode == "live, reloaded" else 0):
        write(folder, ca)
        certificate.refresh()
    pipe.send(server.port)
    took: list[float] = []
    loop = asyncio.get_running_loop()
    while not pipe.poll():
        await asyncio.sleep(every or 0.1)
        if every:
            await loop.run_in_executor(None, write, folder, ca)
            began = time.perf_counter()
            certificate.refresh()
            took.append(time.perf_counter() - began)
    pipe.send(took)


def run_server(folder: Path, ca: KeyPair, mode: str, every: float, pipe: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(folder, ca, mode, every, pipe))


def with_server(mode: str, every: float, measure: Callable[[int, int, Path], Any]) -> tuple[Any, list[float]]:
    """Run a server in a process of its own; give what was measured, and how long each reload took, in seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder, ca = Path(name), authority.new_ca(SystemClock().now())
        write(folder, ca)
        here, there = multiprocessing.Pipe()
        process = multiprocessing.Process(target=run_server, args=(folder, ca, mode, every, there))
        process.start()
        try:
            if not here.poll(30):
                raise SystemExit("the server did not start within 30 seconds")
            assert process.pid is not None
            found = measure(here.recv(), process.pid, folder)
            here.send("end")
            return found, here.recv()
        finally:
            process.terminate()
            process.join(10)


async def shake(port: int, seconds: float) -> int:
    """Open connections for so long; give how many."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    deadline = time.monotonic() + seconds

    async def opening() -> int:
        count = 0
        while time.monotonic() < deadline:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.transport.abort()
            count += 1
        return count

    return sum(await asyncio.gather(*(opening() for _ in range(OPENERS))))


def handshakes(seconds: float) -> None:
    for mode in ("plain", "live", "live, reloaded"):

        def measure(port: int, pid: int, _: Path) -> tuple[int, float]:
            before = cpu_seconds(pid)
            count = asyncio.run(shake(port, seconds))
            return count, cpu_seconds(pid) - before

        (count, cpu), _ = with_server(mode, 0, measure)
        print(
            f"handshakes, {mode:14} {count / seconds:7,.0f}/s wall   {cpu / count * 1e6:4.0f} µs of the server"
            f" = {count / cpu:6,.0f}/s of a core"
        )


def reloads(arguments: argparse.Namespace) -> None:
    path, body = cases()["PodGroup, validate, 1.1 KB"]
    # Twice each, in turns: what else the machine does changes from one second to the next.
    for every in (0.0, arguments.every) * 2:
        found, took = with_server("live", every, lambda port, _, folder: wrk(port, path, body, folder, arguments))
        reload = (
            f"   {len(took)} reloads of {statistics.median(took) * 1e3:.2f} ms, {max(took) * 1e3:.2f} ms at most"
            if took
            else "   no reload"
        )
        print(
            f"reviews {found['per second']:7,.0f}/s   p50 {found['p50']:6.2f} ms   p99 {found['p99']:6.2f} ms"
            f"   not 200: {found['errors']:.0f}{reload}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two reloads")
    arguments = parser.parse_args()
    calibration.tell()
    handshakes(arguments.seconds)
    reloads(arguments)


if __name__ == "__main__":
    main()
