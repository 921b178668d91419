"""What commands print: kubectl's table, JSON, YAML or names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

DOCUMENTS = ("json", "yaml")
FORMATS = ("table", "wide", *DOCUMENTS, "name")


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-o`` to a command."""
    choice = click.Choice(FORMATS)
    return click.option("-o", "--output", type=choice, default="table", show_default=True, help="How to print it.")(
        command
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under upper-case headings, as kubectl does."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        grid.add_column(column.upper(), no_wrap=True)
    for row in rows:
        grid.add_row(*(str(cell) for cell in row))
    # A pipe has no width; cutting a row to 80 columns there would lose what a script reads.
    width = None if sys.stdout.isatty() else 10_000
    console = Console(width=width, highlight=False, markup=False, soft_wrap=width is not None)
    if width is None:
        console.print(grid)
        return
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


def age(since: datetime | None, now: datetime) -> str:
    """Write how long ago ``since`` was, as kubectl does: 45s, 5m, 3h, 2d."""
    if since is None:
        return "<unknown>"
    passed = max(now - since, timedelta())
    seconds = int(passed.total_seconds())
    for unit, length, limit in (("s", 1, 120), ("m", 60, 180), ("h", 3600, 48)):
        if seconds < limit * length:
            return f"{seconds // length}{unit}"
    return f"{seconds // 86400}d"
