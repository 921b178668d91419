from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes


def muster(*arguments: str, name: str = "muster") -> subprocess.CompletedProcess[str]:
    script = (
        f"import sys; sys.argv[0] = {name!r}; from muster.cli.main import {name} as run; run()"
        if name == "vcctl"
        else ("from muster.cli.main import main; main()")
    )
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def one_line(text: str) -> str:
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


def test_help_names_every_command_and_imports_none_of_them():
    script = (
        "import sys; sys.argv = ['muster', '--help']\n"
        "from muster.cli.main import main\n"
        "try: main()\n"
        "finally: print(sorted(m for m in sys.modules if m in {'aiohttp', 'numpy', 'rich', 'pydantic', 'cryptography'}))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert re.search(r"^  up  +Run Muster on this machine", result.stdout, re.MULTILINE)
    assert result.stdout.strip().endswith("[]")


@pytest.mark.parametrize("command", ["up", "demo", "queue", "install", "uninstall", "webhook", "scheduler"])
def test_each_command_explains_itself(command):
    result = muster(command, "--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Usage: ")


def test_the_scheduler_tells_of_a_configuration_that_is_not_there_in_one_line():
    result = muster("scheduler", "--config", "nowhere.yaml")
    assert (result.returncode, result.stderr) == (1, "Error: nowhere.yaml: No such file or directory\n")


def test_whoever_has_seen_enough_of_an_answer_hears_no_complaint():
    states = Path(__file__).parent / "states"
    words = ["podgroup", "why", "train", "-n", "team-a", "--state", str(states / "busy.yaml")]
    command = [sys.executable, "-m", "muster.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_a_misspelt_command_is_a_short_error():
    result = muster("quue")
    assert result.returncode == 2
    assert "No such command 'quue'" in result.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no-such-file"),
        ("{", "kubeconfig"),
        ("apiVersion: v1\nkind: Config\n", "kubeconfig"),
    ],
)
def test_a_kubeconfig_that_can_not_be_used_is_one_line_that_names_it(tmp_path, content, said):
    file = tmp_path / ("no-such-file" if content is None else "kubeconfig")
    if content is not None:
        file.write_text(content)
    result = muster("queue", "list", "--kubeconfig", str(file))
    assert result.returncode == 1
    assert said in one_line(result.stderr)


def test_a_server_that_is_not_there_is_one_line(tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    result = muster("queue", "list", "--kubeconfig", str(file))
    assert result.returncode == 1
    assert "the API server does not answer" in one_line(result.stderr)


def test_a_queue_without_a_name_is_asked_for():
    result = muster("queue", "view")
    assert result.returncode == 2
    assert "missing the name of the queue" in result.stderr


def test_a_weight_out_of_range_is_refused_before_anything_is_sent():
    result = muster("queue", "create", "--name", "q", "--weight", "0")
    assert result.returncode == 2
    assert "1<=x<=65535" in result.stderr


def test_vcctl_has_the_queue_commands():
    result = muster("queue", "--help", name="vcctl")
    assert result.returncode == 0
    assert {"create", "view", "list"} <= set(result.stdout.split())
