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


class Grid:
    """A table as kubectl prints it: rows under upper-case headings, closer together where they would be too wide for 80 columns.

    Nothing is cut off or broken, however narrow a terminal: what a script reads, and what a person copies, is whole. Rows that
    come later stand under the first ones.
    """

    def __init__(self, heads: Sequence[str], *, headers: bool = True) -> None:
        self._heads = [each.upper() for each in heads]
        self._headers = headers
        self._widths: list[int] = []

    def heads(self, heads: Sequence[str]) -> None:
        """Have other headings, as they are written here; before the first row."""
        self._heads = list(heads)

    def write(self, rows: Sequence[Sequence[object]]) -> None:
        """Print rows; before the first ones the headings."""
        cells = [[str(cell) for cell in row] for row in rows]
        if not self._widths:
            self._widths = self._fitting(cells)
            if self._headers:
                click.echo(click.style(self._line(self._heads), bold=True))
        for row in cells:
            click.echo(self._line(row))

    def _fitting(self, cells: Sequence[Sequence[str]]) -> list[int]:
        from rich.cells import cell_len

        shown = [self._heads, *cells] if self._headers else cells
        widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
        gap = _GAP if sum(widths) + _GAP * (len(widths) - 1) <= WIDTH else _NARROW_GAP
        return [width + gap for width in widths]

    def _line(self, row: Sequence[str]) -> str:
        from rich.cells import cell_len

        return "".join(
            text + " " * (width - cell_len(text)) for text, width in zip(row, self._widths, strict=True)
        ).rstrip()


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headings."""
    Grid(columns).write(rows)


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
