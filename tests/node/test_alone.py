"""`make node` as users start it: what it says, what it lacks, and that it ends without a trace. Clusters of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import pytest
import up
from binaries import VERSION

pytestmark = pytest.mark.processes

HERE = Path(__file__).parent
PLANE = HERE.parent / "controlplane"
SECONDS = 600


def traces() -> set[str]:
    """Return what a cluster leaves while it runs: cgroups, mounts, processes, folders, interfaces."""
    groups = {str(each) for each in Path("/sys/fs/cgroup").glob("*/muster-node-*")}
    mounts = {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if "muster-node-" in line}
    folders = {str(each) for each in Path(tempfile.gettempdir()).glob("muster-node-*")}
    folders |= {each for each in ("/var/lib/kubelet", "/var/lib/cni") if Path(each).exists()}
    links = {f"link {each.name}" for each in Path("/sys/class/net").iterdir()}
    return groups | mounts | folders | links | set(processes())


def processes() -> list[str]:
    """Return the command lines that name a folder of a cluster."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "muster-node-" in command:
            found.append(command)
    return found


@pytest.fixture
def made(real):
    """`make node` with one node, as a process group of its own: Ctrl-C goes to all of a terminal's foreground group."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "up.py"), "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": f"{PLANE}:{HERE}"},
        text=True,
        process_group=0,
    )
    yield process
    process.kill()
    process.wait()


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the status after Ctrl-C, and what was said from then on."""
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=SECONDS)
    return process.returncode, said


def test_it_says_how_to_reach_the_cluster_and_leaves_no_trace_after_ctrl_c(request, figures):
    before = traces()
    made = request.getfixturevalue("made")
    ready = next((line for line in iter(made.stdout.readline, "") if line.startswith("ready after ")), "")
    took, _, exported = ready.strip().partition(" s: export KUBECONFIG=")
    assert exported
    figures["make node with one node, s"] = float(took.split()[-1])
    kubectl = Path(exported).parent / "bin" / "kubectl"
    words = [str(kubectl), "--kubeconfig", exported, "get", "nodes"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    # One pinned version: the node's is that of the control plane.
    assert f" {VERSION}" in shown
    assert {"kubelet", "containerd", "kube-proxy"} <= {
        Path(each.split()[0]).name for each in traces() if each[0] != "l"
    }
    assert interrupted(made) == (0, "")
    assert traces() <= before


def test_interrupted_while_it_starts_it_leaves_no_trace_either(request):
    before = traces()
    made = request.getfixturevalue("made")
    deadline = time.monotonic() + SECONDS
    while not any("kubelet" in each.partition(" ")[0] for each in processes()):
        assert time.monotonic() < deadline
        assert made.poll() is None, made.stdout.read()
        time.sleep(0.1)
    status, said = interrupted(made)
    assert status == 0, said
    assert said.splitlines()[1:] == ["starting 1 nodes and installing the chart …"]
    assert traces() <= before


def test_what_is_missing_is_said_in_one_sentence_with_status_3(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(machine, "PATH", str(tmp_path))
    monkeypatch.setattr(machine, "PLUGINS", tmp_path)
    assert up.check() == 3
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.endswith(f"apt-get install --no-install-recommends {' '.join(machine.packages())}")


def test_who_is_not_root_is_told_so_with_status_3(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert up.check() == 3
    assert capsys.readouterr().err == "make node: a real node needs root: it makes namespaces and mounts\n"


def test_without_go_and_binaries_it_says_what_to_install_with_status_3(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(machine, "missing", lambda: "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert up.check() == 3
    assert "install Go" in capsys.readouterr().out
