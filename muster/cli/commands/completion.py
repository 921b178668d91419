"""``muster completion``: scripts that let a shell complete commands, options and names; also for the kubectl plugin."""

from __future__ import annotations

import sys
from typing import Final, NoReturn

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from muster.cli.options import examples

_SHELLS: Final = ("bash", "zsh", "fish")
_PROGRAMS: Final = ("muster", "vcctl")

# What kubectl asks of a plugin's completion is cobra's protocol: a name a line, and a number that says what else to offer.
_NAMES_ONLY: Final = 4
_FILES_TOO: Final = 0


@click.command(
    epilog=examples(
        "source <(muster completion bash)",
        "muster completion zsh > ~/.zfunc/_muster",
        "muster completion fish > ~/.config/fish/completions/muster.fish",
    )
)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print a completion script for SHELL: commands, options, and names from the cluster, for `muster` and `vcctl`.

    `kubectl muster` needs no script: kubectl runs the program kubectl_complete-muster, which is installed beside muster.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "one of those that click knows"
    for program in _PROGRAMS:
        command = click.Group(program)
        click.echo(kind(command, {}, program, f"_{program.upper()}_COMPLETE").source())


def for_kubectl(command: click.Command) -> NoReturn:
    """Complete the plugin's arguments as kubectl asks for it; the last of them is what is being typed."""
    *before, incomplete = sys.argv[1:] or [""]
    known = ShellComplete(command, {}, "kubectl muster", "")
    found = known.get_completions(before, incomplete)
    for item in found:
        if item.type == "plain":
            click.echo(_line(item))
    click.echo(f":{_FILES_TOO if any(item.type != 'plain' for item in found) else _NAMES_ONLY}")
    sys.exit(0)


def _line(item: CompletionItem) -> str:
    return f"{item.value}\t{item.help}" if item.help else str(item.value)
