"""docs/cli.md, written from the commands themselves: `python -m muster.cli.reference > docs/cli.md`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from muster.cli.output import wrapped

_WIDTH = 120

_INTRODUCTION = """\
# The commands

Made from the commands by `python -m muster.cli.reference > docs/cli.md`; `muster COMMAND --help` says the same.

The program has three names: `muster`, `kubectl muster` (kubectl finds the plugin by itself), and `vcctl` for
the queue commands (`vcctl queue create --name myqueue --weight 10`). [asking.md](asking.md) shows how to find out why
a workload waits, whether a file would be admitted, and when it would start.

- **Cluster**: `--kubeconfig`, `--context` and KUBECONFIG, as with kubectl. Its flags `--cluster`, `--user`, `--server`, `--token`,
  `--certificate-authority`, `--tls-server-name`, `--insecure-skip-tls-verify`, `--as`, `--as-group`, `--request-timeout` and `-v`
  (from `-v=6` on each request is printed) work too, before a command or behind it.
  `muster pg` is `muster podgroup`, `muster q` is `muster queue`. `-n` is the namespace; the default is the context's.
- **Output**: `-o table` for people (`-o text` for explanations), `wide` for more columns or unbroken lines, `json` and `yaml` for
  programs, `name` for names alone. Colours and progress appear on terminals only. What shows objects of the API also has kubectl's
  `-o jsonpath=…` and `-o custom-columns=…`, `--no-headers` and `--show-managed-fields`; what lists them `-l`, `--field-selector`,
  `--sort-by` and `-w`. JSONPath has fields, elements, slices, `*`, filters with one comparison, `{range}…{end}` and texts in quotes;
  `..`, unions and regular expressions are refused.
- **Exit status**: 0 success; 1 failure, or the answer is no; 2 usage error. `muster admit` has its own: 0 admitted, 1 refused,
  2 unknown.
- **Completion**: `muster completion bash`, `zsh` or `fish` prints a script for the shell. It completes commands, options, and
  the names of queues, PodGroups and namespaces of the cluster, if the cluster answers within a second.
"""


def pages(command: click.Group, name: str) -> Iterator[str]:
    """Write the reference, line by line."""
    yield from _INTRODUCTION.splitlines()
    for path, each in leaves(command, (name,)):
        yield ""
        yield from _section(path, each)


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Iterate over the commands that aren't groups and aren't hidden, each with its words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None and not below.hidden:
            yield from leaves(below, (*path, name))


def _section(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=" ".join(path))
    yield f"## {' '.join(path)}"
    yield ""
    yield f"    {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    for paragraph in (command.help or "").split("\n\n"):
        yield ""
        yield from wrapped(" ".join(paragraph.split()), _WIDTH)
    options = [record for each in command.get_params(context) if (record := each.get_help_record(context)) is not None]
    yield ""
    yield "| option | |"
    yield "|---|---|"
    for option, text in options:
        if text and not option.endswith("--help"):
            yield f"| `{_cell(option)}` | {_cell(text)} |"
    yield ""
    yield "```console"
    for line in shown(command):
        yield f"$ {line}"
    yield "```"


def shown(command: click.Command) -> list[str]:
    """Return the examples of a command's help."""
    lines = [line.strip().removeprefix("Example: ") for line in (command.epilog or "").splitlines()]
    return [line for line in lines if line not in {"\b", "Examples:"}]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def main() -> None:
    """Write the reference of ``muster``."""
    from muster.cli.main import muster

    for line in pages(muster, "muster"):
        click.echo(line)


if __name__ == "__main__":
    main()
