"""The story of `make demo`, part by part, on both control planes and both ways of asking."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from pathlib import Path

import pytest

from muster.cli.demo.command import Kubectl, Terminal
from muster.cli.demo.requests import ClientTerminal
from muster.cli.demo.story import STORY, CommandResult, StoryStep, refused, running_pods, succeeds

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("story")


@pytest.fixture(scope="module")
def terminal(up, folder: Path) -> Terminal:
    binary = shutil.which("kubectl")
    # Without kubectl the story is played by the same requests, as `muster demo` does.
    return Kubectl(binary, up.kubeconfig, folder / "cache") if binary else ClientTerminal(up.kubeconfig)


@pytest.mark.parametrize("step", STORY, ids=[step.title for step in STORY])
def test_each_part_of_the_story_is_so(step: StoryStep, terminal: Terminal, folder: Path):
    for name, text in step.files.items():
        (folder / name).write_text(text)
    for command in step.commands:
        answer = asyncio.run(terminal.run(shlex.split(command.line), folder))
        assert command.check(answer) == "", f"{command.line}\n{answer.text}"


def test_the_page_shows_the_story_with_every_command():
    transcript = (ROOT / "docs/story.md").read_text().split("<!-- transcript")[1].split("<!-- end of transcript -->")[0]
    shown = [
        line.strip().removeprefix("$ ") for line in transcript.splitlines() if line.strip().startswith("$ kubectl")
    ]
    assert shown == [command.line for step in STORY for command in step.commands]


@pytest.mark.parametrize(
    ("check", "answer", "complaint"),
    [
        (succeeds("created"), CommandResult(0, "x created"), ""),
        (succeeds("created"), CommandResult(1, "x created"), "ended with status 1"),
        (succeeds("created"), CommandResult(0, "x configured"), "doesn't say created"),
        (refused("night"), CommandResult(1, "queue night is closed"), ""),
        (refused("night"), CommandResult(0, "queue night is closed"), "ended with status 0"),
        (running_pods(1), CommandResult(0, "NAME READY STATUS\na 1/1 Running"), ""),
        (running_pods(1), CommandResult(0, "NAME READY STATUS\na 0/1 Pending"), "shows pods ['Pending']"),
        (running_pods(2), CommandResult(0, "NAME READY STATUS\na 1/1 Running"), "shows pods ['Running']"),
    ],
)
def test_a_check_of_the_story_can_fail(check, answer, complaint):
    assert check(answer) == complaint


def test_no_file_of_the_story_has_a_name_twice():
    names = [name for step in STORY for name in step.files]
    assert len(names) == len(set(names))
    used = re.findall(r"-f (\S+)", " ".join(command.line for step in STORY for command in step.commands))
    assert set(used) == set(names)
