"""What this machine does in this minute: figures of other programs' work, to hold Muster's against.

    python benchmarks/calibration.py

The same code took half as long again from one hour to the next on the machine that Muster is measured on. So each benchmark prints
these first, and states its goal as a ratio to a limit that is measured in the same run. They say weather, not speed: a loop of
Python, a TLS handshake in memory (certificates of P-256), and the first review of a process.
"""

from __future__ import annotations

import os
import platform
import ssl
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from certs import authority

_ROUNDS: Final = 5
_TURNS: Final = 200_000
_HANDSHAKES: Final = 50
_FIRST_REVIEW: Final = """
import asyncio, sys, time
sys.path.insert(0, {folder!r})
import admission
from webhooks.admission import Admission
from webhooks.metrics import WebhookMetrics
from webhooks.settings import WebhookSettings
from muster.kube.client import Client
from webhooks.caches import CachedView
path, body = admission.cases()["pod, validate, 7.4 KB"]
made = Admission(CachedView(), admission.NoLedger(), Client(None), WebhookSettings(), WebhookMetrics())
async def main():
    began = time.process_time()
    await made.handle(path, {{"timeout": "5s"}}, body)
    print(time.process_time() - began)
asyncio.run(main())
"""


@dataclass(frozen=True)
class Calibration:
    """``loop`` and ``handshake`` are of processor time, ``first_review`` too; medians, in microseconds."""

    loop: float
    handshake: float
    first_review: float
    load: float
    interpreter: str

    def __str__(self) -> str:
        return (
            f"calibration: a loop of 1,000 turns {self.loop:.0f} µs, a TLS handshake {self.handshake:.0f} µs, "
            f"the first review of a process {self.first_review:.0f} µs; load {self.load:.1f}; {self.interpreter}"
        )


def calibrate() -> Calibration:
    """Measure this minute; takes about two seconds."""
    return Calibration(
        loop=_median(_loop) / (_TURNS / 1000),
        handshake=_median(_handshakes()) / _HANDSHAKES,
        first_review=statistics.median(_first_review() for _ in range(3)),
        load=os.getloadavg()[0],
        interpreter=interpreter(),
    )


def tell() -> None:
    """Print the figures of this minute, as each benchmark does before its own."""
    print(calibrate(), flush=True)


def interpreter() -> str:
    """Name the interpreter and how it was built: one with profile-guided optimisation is a fifth faster."""
    built = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    kind = "with PGO" if "--enable-optimizations" in built else "without PGO"
    return f"{platform.python_implementation()} {platform.python_version()} {kind}"


def _median(work: Callable[[], None]) -> float:
    """Return microseconds of processor time."""
    taken = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        work()
        taken.append((time.process_time() - began) * 1e6)
    return statistics.median(taken)


def _loop() -> None:
    total = 0
    for number in range(_TURNS):
        total += number & 7


def _handshakes() -> Callable[[], None]:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    pair = authority.issue(authority.new_ca(now), ("127.0.0.1",), now)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as name:
        certificate, key = Path(name) / "tls.crt", Path(name) / "tls.key"
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        server.load_cert_chain(certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE

    def shake() -> None:
        for _ in range(_HANDSHAKES):
            there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
            ours = client.wrap_bio(back, there)
            theirs = server.wrap_bio(there, back, server_side=True)
            waiting = [ours, theirs]
            while waiting:
                for side in list(waiting):
                    try:
                        side.do_handshake()
                        waiting.remove(side)
                    except ssl.SSLWantReadError:
                        pass

    return shake


def _first_review() -> float:
    here = Path(__file__).parent
    code = _FIRST_REVIEW.format(folder=str(here))
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=here.parent)
    return float(output.stdout) * 1e6


if __name__ == "__main__":
    print(calibrate())
