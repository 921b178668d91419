"""`muster check` and `muster version` against a running Muster, on both control planes."""

from __future__ import annotations

import subprocess
import sys

from running import Up, kubectl

from muster import __version__

CHECKS = ["Kubernetes", "CRDs", "policies", "webhooks", "admission", "scheduler", "queue default"]


def run(up: Up, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "muster.cli", *words, "--kubeconfig", str(up.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_all_is_well_and_nothing_is_left(up):
    done = run(up, "check")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = done.stdout.splitlines()
    assert [line[:8].rstrip() for line in lines] == ["ok"] * len(CHECKS)
    assert [line[8:].partition(":")[0] for line in lines] == CHECKS
    assert "scheduler: muster-up leads" in done.stdout
    assert "muster-check" not in kubectl(up.kubeconfig, "get", "pg", "-A").stdout


def test_the_versions_of_all_three(up):
    client, server, kubernetes = run(up, "version").stdout.splitlines()
    assert client == f"client: muster {__version__}"
    assert server == "server: runs outside the cluster, as muster-up"
    assert kubernetes.startswith("Kubernetes: v1.")
    assert run(up, "version", "--client").stdout.splitlines() == [client]


def test_what_is_missing_is_named_with_a_remedy(up):
    kubectl(up.kubeconfig, "delete", "validatingadmissionpolicies", "queues.muster.sh")
    done = run(up, "check")
    assert done.returncode == 1
    assert "WRONG   policies: ValidatingAdmissionPolicy queues.muster.sh missing" in done.stdout
    assert done.stderr == "Error: 1 of these checks failed\n"
