"""docs/cli.md is what the commands say, and every command shows how it is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from muster.cli import reference
from muster.cli.main import muster

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def leaves(command: click.Command, path: str = "muster") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from leaves(below, f"{path} {name}")
    else:
        yield path, command


COMMANDS = dict(leaves(muster))


def test_the_page_of_the_commands_is_what_they_say() -> None:
    assert PAGE.read_text().splitlines() == list(reference.pages(muster, "muster")), "make it anew, see its head"


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_shows_how_it_is_used(path: str) -> None:
    assert any(line.startswith((path, f"source <({path}")) for line in reference.shown(COMMANDS[path]))


@pytest.mark.parametrize("path", COMMANDS)
def test_an_example_is_one_that_the_command_takes(path: str) -> None:
    for line in reference.shown(COMMANDS[path]):
        words = (
            line.partition("#")[0].replace("source <(", "").rstrip(")").partition(" >")[0].partition(" ||")[0].split()
        )
        known, rest = next(
            (name, words[len(name.split()) :]) for name in COMMANDS if words[: len(name.split())] == name.split()
        )
        # Files that an example names don't exist here; whether they are options and arguments at all is what counts.
        rest = [
            __file__ if "." in word and not word.startswith(("-", "https:")) and "=" not in word else word
            for word in rest
        ]
        COMMANDS[known].make_context(known, [str(Path(__file__).parent) if "/etc/" in word else word for word in rest])


@pytest.mark.parametrize("path", COMMANDS)
def test_a_help_fits_eighty_columns(path: str) -> None:
    context = click.Context(COMMANDS[path], info_name=path, terminal_width=80)
    assert not [line for line in COMMANDS[path].get_help(context).splitlines() if len(line) > 100]
