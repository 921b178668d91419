"""Writes deploy/share, which the wheel puts into share/: the page for `man muster`, and what shells complete by.

`python deploy/release/share.py`; a test fails when a file there is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from muster import __version__
from muster.cli import reference
from muster.cli.main import muster

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "share"
_COMPLETED: Final = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/site-functions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
"""Where each shell looks, below a prefix's share/."""
_STATUS: Final = (
    "0: success. 1: failure, or the answer is no. 2: usage error. muster admit: 0 admitted, 1 refused, 2 unknown."
)


def files() -> Mapping[str, str]:
    """Return the content of each file, by its place below share/."""
    made = {"man/man1/muster.1": "\n".join(_manual()) + "\n"}
    for program in ("muster", "vcctl"):
        for shell, place in _COMPLETED.items():
            kind = get_completion_class(shell)
            assert kind is not None, "one of those that click knows"
            asked = kind(click.Group(program), {}, program, f"_{program.upper()}_COMPLETE")
            # Not `source`, which looks for a bash first.
            script = asked.source_template % asked.source_vars()
            made[place.format(program)] = script.rstrip("\n") + "\n"
    return made


def _manual() -> Iterator[str]:
    context = click.Context(muster, info_name="muster", **muster.context_settings)
    yield f'.TH MUSTER 1 "" "Muster {__version__}" "User Commands"'
    yield from (".SH NAME", "muster \\- gang scheduling, queues and quotas for batch workloads on Kubernetes")
    yield from (".SH SYNOPSIS", ".B muster", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]...")
    yield ".SH DESCRIPTION"
    for paragraph in f"{muster.help}\n\n{muster.epilog or ''}".strip().split("\n\n"):
        yield from (".PP", _text(paragraph))
    yield from _options(muster, context)
    yield ".SH COMMANDS"
    for path, command in reference.leaves(muster, ("muster",)):
        yield from _command(path, command, context)
    yield from (".SH EXIT STATUS", _text(_STATUS))
    yield from (".SH ENVIRONMENT", ".TP", ".B KUBECONFIG", "Files that name clusters, as with kubectl.")
    yield from (".SH SEE ALSO", r"kubectl(1); each command's \fB\-\-help\fR")


def _command(path: tuple[str, ...], command: click.Command, above: click.Context) -> Iterator[str]:
    context = click.Context(command, parent=above, info_name=" ".join(path))
    yield f".SS {_text(' '.join(path))}"
    yield from (".B " + _text(" ".join(path)), _text(" ".join(command.collect_usage_pieces(context))))
    for paragraph in (command.help or "").split("\n\n"):
        yield from (".PP", _text(paragraph))
    yield from _options(command, context)
    yield from (".PP", ".nf", *(_text(line) for line in reference.shown(command)), ".fi")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for each in command.params:
        if (record := each.get_help_record(context)) is not None and record[1]:
            yield from (".TP", rf"\fB{_text(record[0])}\fR", _text(record[1]))
    # A command keeps its option for help as the first context that asked named it, perhaps one without our settings.
    names = ", ".join(context.help_option_names)
    yield from (".TP", rf"\fB{_text(names)}\fR", "Show this message and exit.")


def _text(words: str) -> str:
    """Write what roff reads as these words."""
    line = " ".join(words.replace("\b", " ").split()).replace("\\", r"\e").replace("-", r"\-").replace("…", "...")
    return rf"\&{line}" if line.startswith((".", "'")) else line


def main() -> int:
    """Write all files."""
    for place, content in files().items():
        file = FOLDER / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
