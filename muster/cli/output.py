"""The output formats of commands: kubectl's table, JSON, YAML or names."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from muster.model.durations import human_duration

DOCUMENTS = ("json", "yaml")
FORMATS = ("table", "wide", *DOCUMENTS, "name")
TEXTS = ("text", "wide", *DOCUMENTS)
WIDTH = 80
"""Columns of a text, unless it is asked for wide."""
UNBROKEN = 1_000_000
_GAP = 3
_NARROW_GAP = 2


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-o`` to a command."""
    choice = click.Choice(FORMATS)
    return click.option("-o", "--output", type=choice, default="table", show_default=True, help="Output format.")(
        command
    )


def text_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-o`` to a command whose answer is a text."""
    choice = click.Choice(TEXTS)
    return click.option("-o", "--output", type=choice, default="text", show_default=True, help="Output format.")(
        command
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under upper-case headings, as kubectl does; closer together where they would be too wide for 80 columns.

    Nothing is cut off or broken, however narrow a terminal: what a script reads, and what a person copies, is whole.
    """
    from rich.console import Console
    from rich.table import Table

    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    gap = _GAP if sum(widths) + _GAP * (len(widths) - 1) <= WIDTH else _NARROW_GAP
    grid = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for column in columns:
        grid.add_column(column.upper(), no_wrap=True)
    for row in cells:
        grid.add_row(*row)
    console = Console(width=sum(widths) + gap * len(widths), highlight=False, markup=False)
    with console.capture() as capture:
        console.print(grid)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def document(value: Any, form: str) -> None:
    """Print a JSON value as ``json`` or ``yaml``."""
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=4).decode())
        return
    import yaml

    click.echo(yaml.safe_dump(value, sort_keys=False).rstrip())


def facts(rows: Iterable[tuple[str, str]], width: int, indent: str = "") -> Iterator[str]:
    """Write a label and a text a line, the texts below each other; a label that repeats is written once."""
    found = list(rows)
    room = max((len(label) for label, _ in found), default=0) + 2
    before = ""
    for label, text in found:
        head = f"{indent}{'' if label == before else label:<{room}}"
        yield from _flowed(text, width, head, indent + " " * room)
        before = label


def bullets(texts: Iterable[str], width: int) -> Iterator[str]:
    """Write a list."""
    for text in texts:
        yield from _flowed(text, width, "  - ", "    ")


def hanging(text: str, width: int) -> Iterator[str]:
    """Write paragraphs of which all but the very first line are indented."""
    first, *others = text.splitlines() or [""]
    yield from _flowed(first, width, "", "  ")
    for line in others:
        yield from _flowed(line, width, "  ", "    ")


def wrapped(text: str, width: int) -> Iterator[str]:
    """Write a paragraph."""
    yield from _flowed(text, width, "", "")


def _flowed(text: str, width: int, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    ) or [first.rstrip()]


def moment(when: datetime | None) -> str:
    """Write when something was, as the API does."""
    return f"{when:%Y-%m-%dT%H:%M:%SZ}" if when is not None else "<unknown>"


def age(since: datetime | None, now: datetime) -> str:
    """Write how long ago ``since`` was, as kubectl does: 45s, 3m12s, 5h, 2d3h."""
    if since is None:
        return "<unknown>"
    return human_duration(max((now - since).total_seconds(), 0))
