"""Programs that tests run: `muster up`, kubectl."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

READY_SECONDS = 120


class Up:
    """A running `muster up`."""

    def __init__(self, process: subprocess.Popen[str], kubeconfig: Path) -> None:
        self.process = process
        self.kubeconfig = kubeconfig

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=READY_SECONDS)


@contextmanager
def muster_up(*options: str, kubeconfig: Path) -> Iterator[Up]:
    """Run `muster up` with its own end of a pipe, until it is ready; ended at the end whatever happens."""
    command = [sys.executable, "-m", "muster.cli", "up", *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"ready: export KUBECONFIG={kubeconfig}\n"
            yield Up(process, kubeconfig)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(timeout=READY_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def kubectl(
    kubeconfig: Path, *words: str, stdin: str = "", cache: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run kubectl; its answer is one text."""
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    if cache is not None:
        environment["KUBECACHEDIR"] = str(cache)
    return subprocess.run(
        ["kubectl", *words],
        env=environment,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=90,
    )
