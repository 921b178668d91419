"""What shells and kubectl are told to complete."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import Result

from muster.cli import completion
from muster.cli.main import kubectl_complete, muster

pytestmark = pytest.mark.processes

PROGRAM = "import sys; sys.argv[0] = {name!r}; from muster.cli.main import {entry} as run; run()"
NOBODY = """\
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
"""


def completed(entry: str, words: str, *arguments: str, **environment: str) -> list[str]:
    name = {"main": "muster", "vcctl": "vcctl"}[entry]
    variables = {f"_{name.upper()}_COMPLETE": "bash_complete", "COMP_WORDS": words} if words else {}
    variables["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    command = [sys.executable, "-c", PROGRAM.format(name=name, entry=entry), *arguments]
    done = subprocess.run(
        command, env=os.environ | variables | environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_completes_both_programs(run: Callable[..., Result], shell: str, tmp_path: Path) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert all(f"_{name}_COMPLETE={shell}_complete" in result.stdout for name in ("MUSTER", "VCCTL"))
    program = shutil.which(shell)
    if program is not None:
        (tmp_path / "script").write_text(result.stdout)
        subprocess.run([program, "-n", str(tmp_path / "script")], check=True)


def test_commands_and_options_are_completed() -> None:
    assert completed("main", "muster podgroup why --st") == ["plain,--start", "plain,--state"]
    assert completed("vcctl", "vcctl queue cr") == ["plain,create"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("muster queue view re", ["research"]),
        ("muster queue create --parent ni", ["night"]),
        ("muster podgroup why -n team-a l", ["later", "lost"]),
        ("muster podgroup list -n te", ["team-a"]),
        ("muster podgroup view t", []),
    ],
)
async def test_names_are_completed_from_the_cluster(
    furnished: Any, monkeypatch: pytest.MonkeyPatch, words: str, names: list[str]
) -> None:
    furnished("busy.yaml")
    monkeypatch.setattr(completion, "SECONDS", 60)
    *before, incomplete = words.split(" ")[1:]
    shell = ShellComplete(muster, {}, "muster", "")
    found = await asyncio.to_thread(shell.get_completions, before, incomplete)
    assert [item.value for item in found] == names


@pytest.mark.parametrize("words", [["queue", "view"], ["podgroup", "why"]])
@pytest.mark.parametrize("file", ["kubeconfig", "missing"])
def test_a_cluster_that_does_not_answer_has_no_names_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], file: str
) -> None:
    (tmp_path / "kubeconfig").write_text(NOBODY)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / file))
    assert ShellComplete(muster, {}, "muster", "").get_completions(words, "re") == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["queue", "view", "re"], ["research", ":4"]),
        (["po"], ["podgroup", ":4"]),
        (["podgroup", "why", "--config", ""], [":0"]),
        ([], [":4"]),
    ],
)
async def test_kubectl_is_told_names_in_its_own_protocol(
    furnished: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: list[str],
) -> None:
    furnished("busy.yaml")
    monkeypatch.setattr(completion, "SECONDS", 60)
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-muster", *arguments])
    with pytest.raises(SystemExit):
        await asyncio.to_thread(kubectl_complete)
    said = [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert said == told if arguments else said[-1:] == told


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_kubectl_asks_the_program_beside_the_plugin(tmp_path: Path) -> None:
    for name, entry in (("kubectl-muster", "main"), ("kubectl_complete-muster", "kubectl_complete")):
        text = f"#!{sys.executable}\n{PROGRAM.format(name=name, entry=entry)}\n"
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["kubectl", "__complete", "muster", "queue", "cl"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["close", ":4"]
