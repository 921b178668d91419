"""`muster up` as a process: how it starts, ends, and fails."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from running import kubectl, muster_up

pytestmark = pytest.mark.processes

GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: %s, namespace: default}
spec: {minMember: 1, queue: %s}
"""


def started(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "muster.cli", "up", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def address(kubeconfig: Path) -> tuple[str, int]:
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    host, _, port = server.removeprefix("https://").rpartition(":")
    return host, int(port)


def leader(kubeconfig: Path) -> str:
    lease = ("lease", "muster-scheduler", "-n", "muster-system", "-o", "jsonpath={.spec.holderIdentity}")
    return kubectl(kubeconfig, "get", *lease).stdout


def listening_ports(pid: int) -> set[str]:
    """Return the local ports on which a process listens, from /proc."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        # What the process closes meanwhile isn't what it listens on.
        with contextlib.suppress(FileNotFoundError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    rows = [row.split() for row in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and row[9] in inodes}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_of_it_with_status_0_and_nothing_is_left(tmp_path, number):
    config = tmp_path / "kubeconfig"
    with muster_up("--kubeconfig-out", str(config), kubeconfig=config) as up:
        place = address(config)
        assert len(listening_ports(up.process.pid)) == 2
        assert up.end(number) == 0
    assert not config.exists()
    with socket.socket() as probe:
        assert probe.connect_ex(place) != 0


def test_the_kubeconfig_can_be_read_by_its_owner_only(tmp_path):
    config = tmp_path / "kubeconfig"
    with muster_up("--nodes", "0", "--kubeconfig-out", str(config), kubeconfig=config):
        assert config.stat().st_mode & 0o777 == 0o600


def test_a_signal_while_it_starts_ends_it_at_once_without_a_traceback(tmp_path):
    command = [sys.executable, "-m", "muster.cli", "up", "--nodes", "1000", "--kubeconfig-out", str(tmp_path / "k")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        # Until it listens it has nothing to tell; from then on it is on its way to being ready.
        while process.poll() is None and not listening_ports(process.pid):
            os.sched_yield()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--config", "no-such-file.yaml"], "no-such-file.yaml"),
        (["--kubeconfig", "no-such-file"], "no-such-file"),
        (["--kubeconfig-out", "/proc/no-such-folder/kubeconfig"], "/proc/no-such-folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_can_not_be_is_one_line_that_names_it(options, said):
    result = started(*options)
    assert result.returncode == 1
    assert result.stdout == ""
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--node-cpu", "much"], "Invalid value for '--node-cpu': 'much' is not a quantity"),
        (["--node-memory", "-1Gi"], "Invalid value for '--node-memory': -1Gi is not more than zero"),
        (["--nodes", "-1"], "Invalid value for '--nodes': -1 is not in the range"),
        (["--port", "http"], "Invalid value for '--port': 'http' is not a valid integer"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_that_makes_no_sense_is_refused_before_anything_starts(options, said):
    result = started(*options)
    assert result.returncode == 2
    assert said in result.stderr.strip().splitlines()[-1]


def test_a_configuration_is_refused_with_its_line_and_the_nearest_name(tmp_path):
    file = tmp_path / "scheduler.yaml"
    file.write_text('actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: gnag\n')
    result = started("--config", str(file))
    assert result.returncode == 1
    assert f"{file}, line 4" in result.stderr
    assert "gang" in result.stderr


def test_a_port_in_use_is_one_line_that_names_it(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = started("--port", str(port), "--kubeconfig-out", str(tmp_path / "kubeconfig"))
    assert result.returncode == 1
    assert str(port) in result.stderr
    assert "in use" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_beside_a_cluster_a_normal_end_takes_the_webhooks_away(real_control_plane, tmp_path):
    config = real_control_plane.kubeconfig()
    with muster_up("--kubeconfig", str(config), kubeconfig=config) as up:
        refused = kubectl(config, "create", "-f", "-", stdin=GROUP % ("lost", "nowhere"))
        assert refused.returncode == 1
        assert "nowhere" in refused.stdout
        assert up.end(signal.SIGTERM) == 0
    for kind in (
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ):
        assert kubectl(config, "get", kind, "-o", "name").stdout == ""


def test_beside_a_cluster_a_crash_leaves_the_webhooks_and_a_new_start_recovers(real_control_plane):
    config = real_control_plane.kubeconfig()
    with muster_up("--kubeconfig", str(config), kubeconfig=config) as up:
        up.end(signal.SIGKILL)
    crashed = leader(config)
    # Nobody answers: what would be reserved without the ledger is refused.
    refused = kubectl(config, "create", "-f", "-", stdin=GROUP % ("crashed", "default"))
    assert refused.returncode == 1
    assert "failed calling webhook" in refused.stdout
    with muster_up("--kubeconfig", str(config), kubeconfig=config):
        # Ready is who leads: the default queue, which a leader makes, was there before.
        assert leader(config) not in {"", crashed}
        created = kubectl(config, "create", "-f", "-", stdin=GROUP % ("recovered", "default"))
        assert created.returncode == 0, created.stdout
        assert kubectl(config, "delete", "pg", "recovered").returncode == 0


def test_beside_a_cluster_that_another_serves_it_refuses_and_leaves_the_other_s_webhooks(real_control_plane):
    config = real_control_plane.kubeconfig()
    with muster_up("--kubeconfig", str(config), kubeconfig=config) as up:
        second = started("--kubeconfig", str(config))
        assert (second.returncode, second.stdout) == (1, "")
        assert second.stderr == (
            "Error: Muster serves this cluster already: muster-up holds the Lease muster-system/muster-scheduler; "
            "end that program first\n"
        )
        refused = kubectl(config, "create", "-f", "-", stdin=GROUP % ("lost", "nowhere"))
        assert "nowhere" in refused.stdout
        assert up.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("plane", ["sandbox", "kubernetes"])
def test_its_ca_is_rotated_under_load_and_its_secrets_go_with_it(plane, request, tmp_path):
    config, options, waits = tmp_path / "kubeconfig", ["--kubeconfig-out", str(tmp_path / "kubeconfig")], []
    if plane == "kubernetes":
        config = request.getfixturevalue("real_control_plane").kubeconfig()
        options, waits = ["--kubeconfig", str(config)], ["--publish-wait", "1s", "--soak", "1s"]
    with muster_up(*options, kubeconfig=config) as up:
        command = [sys.executable, "-m", "muster.cli", "certs", "rotate-ca", *waits, "--kubeconfig", str(config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as rotation:
            refusals = []
            while rotation.poll() is None:
                refusals.append(kubectl(config, "create", "-f", "-", stdin=GROUP % ("lost", "nowhere")).stdout)
            assert rotation.stdout is not None
            said = rotation.stdout.read()
        assert rotation.returncode == 0, said
        assert "retire -> steady" in said
        assert [each for each in refusals if 'queue "nowhere" (spec.queue) does not exist' not in each] == []
        assert len(refusals) > 1
        assert up.end(signal.SIGTERM) == 0
    if plane == "kubernetes":
        assert "muster-webhook" not in kubectl(config, "get", "secrets", "-n", "muster-system", "-o", "name").stdout


def test_two_do_not_share_a_kubeconfig_and_the_first_goes_on(tmp_path):
    config = tmp_path / "kubeconfig"
    with muster_up("--nodes", "0", "--kubeconfig-out", str(config), kubeconfig=config) as up:
        before = config.read_text()
        second = started("--nodes", "0", "--kubeconfig-out", str(config))
        assert (second.returncode, second.stdout) == (1, "")
        assert second.stderr == (
            f"Error: {config} is the kubeconfig of another muster up, which still runs; "
            "name another file with --kubeconfig-out\n"
        )
        assert config.read_text() == before
        assert kubectl(config, "get", "queues").returncode == 0
        up.end(signal.SIGKILL)
    # What a crash leaves is nobody's any more.
    with muster_up("--nodes", "0", "--kubeconfig-out", str(config), kubeconfig=config) as up:
        assert config.read_text() != before
        assert up.end(signal.SIGTERM) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path):
    config = tmp_path / "config"
    config.write_text("apiVersion: v1\nkind: Config\ncurrent-context: production\n")
    result = started("--kubeconfig-out", str(config))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"Error: {config} exists and wasn't written by muster up; remove it, or name another file with --kubeconfig-out\n"
    )
    assert "production" in config.read_text()
