"""docs/asking.md: what it shows is what happens."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from muster.cli.main import muster

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "asking.md").read_text()
FILES = re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^```console\n\$ muster (.*?)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds the files of the page and its state."""
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    shutil.copy(ROOT / "tests" / "cli" / "states" / "busy.yaml", tmp_path / "state.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("command", "shown"), COMMANDS)
def test_a_command_of_the_page_prints_what_the_page_shows(command: str, shown: str, folder: Path) -> None:
    assert folder.is_dir()
    assert CliRunner().invoke(muster, shlex.split(command)).output == shown


def test_the_hook_for_pre_commit_runs_the_command_that_the_page_describes(folder: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["id"] in TEXT
    # pre-commit puts the files behind entry and args.
    words = [*shlex.split(hook["entry"]), *hook["args"], "job.yaml"]
    assert words[0] == "muster"
    assert CliRunner().invoke(muster, words[1:]).exit_code == 0
    assert CliRunner().invoke(muster, [*words[1:], "night.yaml"]).exit_code == 1
    assert (folder / "night.yaml").exists()
