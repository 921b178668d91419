"""``muster top``: the queues, who waits and why, quotas and evictions, again and again."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from muster.cli.connect import connected, explaining
from muster.cli.options import examples
from muster.cli.output import UNBROKEN, WIDTH, document
from muster.cli.questions import Question, question_options, reading
from muster.cli.top.view import ORDERS, View
from muster.model.objects import prepare

if TYPE_CHECKING:
    from muster.cli.overviews import Seen
    from muster.whatif.overview import Overview

_INTERVAL: Final = 5.0
_WIDE: Final = 1000
"""Columns where nothing is to be cut: what a group waits for is a sentence."""


@click.command(epilog=examples("muster top", "muster top --once --sort borrowed", "muster top --once -o json"))
@click.option("--once", is_flag=True, help="Print it once; so it is where the output is no terminal.")
@click.option(
    "--sort", "order", type=click.Choice(ORDERS), default=ORDERS[0], show_default=True, help="Order of queues."
)
@click.option("--filter", "wanted", default="", metavar="TEXT", help="Show what has this in its name, queue or reason.")
@click.option(
    "--interval", type=click.FloatRange(min=1), default=_INTERVAL, show_default=True, metavar="SECONDS",
    help="Time between two readings; at least four times as long as one takes.",
)  # fmt: skip
@question_options
@explaining(1)
def top(*, once: bool, order: str, wanted: str, interval: float, **options: Any) -> None:
    """Show queues with their shares as bars, who waits and why, quotas and recent evictions.

    Keys: q ends it, tab goes to the next section, arrows scroll, s sorts queues, r shows another resource, / filters, space reads again.
    Whoever may not list nodes sees a namespace (-n), and is told what is missing.
    """
    from muster.cli.top import terminal

    prepare()
    question, view = Question(**options), View(order=order, filter=wanted)
    if not once and not question.document and question.state_file is None and terminal.interactive():
        reading(_watch(question, view, interval))
        return
    seen = reading(_once(question))
    if question.document:
        document(msgspec.to_builtins(seen), question.output)
        return
    terminal.write(seen, view, _width(question))


def _width(question: Question) -> int:
    """Return the columns to print: unbroken where that was asked for, the terminal's, else 80."""
    if question.width == UNBROKEN:
        return _WIDE
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH


async def _once(question: Question) -> Overview:
    if question.state_file is not None:
        from muster.cli.manifests import read_dump
        from muster.cli.overviews import of_state

        return of_state(read_dump(question.state_file), question).overview
    async with connected(question.kubeconfig, question.context) as client:
        from muster.cli.overviews import read

        return (await read(client, question)).overview


async def _watch(question: Question, view: View, interval: float) -> None:
    from muster.cli.overviews import read
    from muster.cli.top.terminal import Top

    async with connected(question.kubeconfig, question.context) as client:

        async def seen() -> Overview:
            found: Seen = await read(client, question)
            return found.overview

        await Top(seen, view, interval).run()
