"""How long `muster --help` takes, and `muster up` until it is ready.

Run: python benchmarks/startup.py [RUNS]
Prints the median, minimum and maximum of wall-clock seconds; whole processes, Python's start included.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import calibration

MUSTER = [sys.executable, "-m", "muster.cli"]


def helped() -> float:
    begun = time.monotonic()
    subprocess.run([*MUSTER, "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def up() -> float:
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        command = [*MUSTER, "up", "--kubeconfig-out", str(Path(folder) / "kubeconfig")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            took = time.monotonic() - begun
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
        if not line.startswith(b"ready:"):
            raise SystemExit(f"muster up did not become ready: {line!r}")
        return took


def report(name: str, measure: Callable[[], float], runs: int) -> None:
    measure()  # bytecode and file caches
    times = [measure() for _ in range(runs)]
    print(
        f"{name:14} median {statistics.median(times):.3f} s, min {min(times):.3f}, max {max(times):.3f} ({runs} runs)"
    )


def main() -> None:
    calibration.tell()
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    report("muster --help", helped, runs)
    report("muster up", up, runs)


if __name__ == "__main__":
    main()
