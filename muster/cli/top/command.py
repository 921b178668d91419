"""``muster top``: the queues, who waits and why, quotas and evictions, again and again."""

from __future__ import annotations

import asyncio
import shutil
import sys
from functools import partial
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
    from muster.cli.expected_starts import Ask
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
@click.option(
    "--start/--no-start",
    "start",
    default=None,
    help="Tell when what waits will start: the future is played for 15 seconds. With --once only if asked for.",
)
@question_options
@explaining(1)
def top(*, once: bool, order: str, wanted: str, interval: float, start: bool | None, **options: Any) -> None:
    """Show queues with their shares as bars, who waits, why and until when, quotas and recent evictions.

    Keys: q ends it, tab goes to the next section, arrows scroll, s sorts queues, r shows another resource, / filters, space reads again.
    Whoever may not list nodes sees a namespace (-n), and is told what is missing.
    """
    from muster.cli.top import terminal

    prepare()
    question, view = Question(**options), View(order=order, filter=wanted)
    if not once and not question.document and question.state_file is None and terminal.interactive():
        reading(_watch(question, view, interval, starts=start is not False))
        return
    seen = reading(_once(question, starts=bool(start)))
    if question.document:
        document(msgspec.to_builtins(seen), question.output)
        return
    terminal.write(seen, view, _width(question))


def _width(question: Question) -> int:
    """Return the columns to print: unbroken where that was asked for, the terminal's, else 80."""
    if question.width == UNBROKEN:
        return _WIDE
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH


async def _once(question: Question, *, starts: bool) -> Overview:
    from muster.cli import overviews

    if question.state_file is not None:
        from muster.cli.manifests import read_dump

        return await _with_starts(overviews.of_state(read_dump(question.state_file), question), question, starts=starts)
    async with connected(question.kubeconfig, question.context) as client:
        seen = await overviews.read(client, question)
        ask = partial(overviews.starts_of, client, question.where())
        return await _with_starts(seen, question, ask, starts=starts)


async def _with_starts(seen: Seen, question: Question, ask: Ask | None = None, *, starts: bool) -> Overview:
    if not starts:
        return seen.overview
    from muster.cli.expected_starts import Forecasts, with_starts

    return with_starts(seen.overview, await Forecasts(question.schedulers, ask).play(seen))


async def _watch(question: Question, view: View, interval: float, *, starts: bool) -> None:
    from muster.cli.expected_starts import Forecasts, ToldStarts
    from muster.cli.overviews import read, starts_of
    from muster.cli.top.terminal import Top

    async with connected(question.kubeconfig, question.context) as client:
        told = ToldStarts(Forecasts(question.schedulers, partial(starts_of, client, question.where())).play)

        async def seen() -> Overview:
            return told.tell(await read(client, question))

        playing = asyncio.create_task(told.run()) if starts else None
        try:
            await Top(seen, view, interval).run()
        finally:
            if playing is not None:
                playing.cancel()
                await asyncio.wait([playing])
