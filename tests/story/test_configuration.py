"""The file of --config, edited while Muster runs: what it says is followed, what can't be used is not, and says why."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import kubectl, muster_up

pytestmark = pytest.mark.processes

WITH = 'actions: "enqueue, allocate, backfill"\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n'
WITHOUT = WITH.replace("enqueue, ", "")
WRONG = WITH.replace("name: gang", "name: gnag")
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  template:
    spec:
      schedulerName: muster
      restartPolicy: Never
      containers: [{name: main, image: busybox, resources: {requests: {cpu: "%s"}}}]
"""
WITHIN = 60.0


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something is so: a file is followed by looking at it, and nobody is told when."""
    end = time.monotonic() + WITHIN
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def suspended(kubeconfig: Path, name: str, cpu: str) -> str:
    """Create a Job that is larger than the cluster, or not; give whether it was stored suspended."""
    kubectl(kubeconfig, "delete", "job", name, "--ignore-not-found")
    made = kubectl(kubeconfig, "create", "-f", "-", "-o", "jsonpath={.spec.suspend}", stdin=JOB % (name, cpu))
    return made.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """`muster up` with a file: its kubeconfig, and the file."""
    folder = tmp_path_factory.mktemp("followed")
    config, file = folder / "kubeconfig", folder / "scheduler.yaml"
    file.write_text(WITH)
    with muster_up("--config", str(file), "--kubeconfig-out", str(config), kubeconfig=config):
        yield config, file


def test_with_muster_up_admission_follows_the_file(followed: tuple[Path, Path]) -> None:
    config, file = followed
    assert suspended(config, "waits", "100") == "true"
    file.write_text(WITHOUT)
    until(lambda: suspended(config, "runs", "1") == "false", "admission goes on suspending Jobs")
    # Nor does the one wait any more that was suspended before.
    wait = kubectl(config, "wait", "job/waits", "--for=jsonpath={.spec.suspend}=false", "--timeout=60s")
    assert wait.returncode == 0, wait.stdout


@contextmanager
def scheduler(log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `muster scheduler` with its log in a file; it has to end with status 0."""
    command = [sys.executable, "-m", "muster.cli", "scheduler", "--probe-port", "0", *options]
    with log.open("wb") as opened, subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=opened) as process:
        try:
            yield process
        finally:
            process.terminate()
        assert process.wait(timeout=WITHIN) == 0


def test_the_scheduler_refuses_a_mistake_with_line_and_reason_and_goes_on_by_what_it_had(
    followed: tuple[Path, Path], tmp_path: Path
) -> None:
    config, file, log = followed[0], tmp_path / "scheduler.yaml", tmp_path / "log"
    file.write_text(WITH)
    options = ("--kubeconfig", str(config), "--config", str(file), "--lease-name", "another")
    with scheduler(log, *options) as one:
        until(lambda: f"following {file}: enqueue, allocate, backfill" in log.read_text(), "it doesn't start")
        file.write_text(WRONG)
        said = f"the configuration stays as it was: {file}, line 4: unknown plugin 'gnag'; did you mean gang?"
        until(lambda: said in log.read_text(), f"{said!r} isn't logged")
        assert one.poll() is None
        file.write_text(WITHOUT)
        until(lambda: f"following {file}: allocate, backfill" in log.read_text(), "the next edit isn't followed")
