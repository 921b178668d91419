"""``muster ui``: the page of a cluster, served on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from muster.cli.connect import connected, explaining
from muster.cli.options import examples
from muster.cli.questions import Question, basis_options, reading
from muster.model.objects import prepare

if TYPE_CHECKING:
    from muster.cli.expected_starts import Ask
    from muster.cli.ui.reader import Reader
    from muster.model.objects import Event

_INTERVAL: Final = 5.0


@click.command(epilog=examples("muster ui", "muster ui --open", "muster ui --port 8800 --state cluster.yaml"))
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; 0: any free port.", show_default=True
)
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@click.option(
    "--interval", type=click.FloatRange(min=1), default=_INTERVAL, show_default=True, metavar="SECONDS",
    help="Time between two readings; at least four times as long as one takes.",
)  # fmt: skip
@click.option("--no-start", is_flag=True, help="Don't play the cluster's future: tell no expected starts.")
@basis_options
@explaining(1)
def ui(*, port: int, opens: bool, interval: float, no_start: bool, **options: Any) -> None:
    """Serve a page on this machine: queues with shares and history, who waits and why, quotas, what if.

    The command prints the address, with a random token in it, and runs until Ctrl-C. The page reads the cluster with your own permissions
    and changes nothing. Whoever may not list nodes sees a namespace (-n), and is told what is missing.
    """
    prepare()
    with contextlib.suppress(KeyboardInterrupt):
        reading(_serve(Question(output="text", **options), port, interval, opens=opens, starts=not no_start))


async def _serve(question: Question, port: int, interval: float, *, opens: bool, starts: bool) -> None:
    from muster.cli import expected_starts
    from muster.cli.ui.server import UiServer
    from muster.cli.ui.suppositions import Suppositions

    async with _reader(question, interval) as (reader, ask):
        await reader.start()
        server = UiServer(reader, Suppositions(reader, question.schedulers).answer, port=port)
        await server.start()
        click.echo(server.url)
        work = [asyncio.create_task(reader.run())]
        if starts:
            play = expected_starts.Forecasts(question.schedulers, ask).play
            playing = expected_starts.keep_playing(lambda: reader.seen, play, reader.tell_starts)
            work.append(asyncio.create_task(playing))
        try:
            with _opened(server.url) if opens else contextlib.nullcontext():
                await _until_told(work)
        finally:
            for each in work:
                each.cancel()
            await asyncio.wait(work)
            await server.stop()


@contextmanager
def _opened(url: str) -> Iterator[None]:
    """Open the page in the browser: by a file that leads to it, since all users of a machine see the words of each other's commands."""
    with tempfile.TemporaryDirectory(prefix="muster-ui-") as folder:
        file = Path(folder) / "open.html"
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={url}">')
        click.launch(str(file))
        yield


async def _until_told(work: list[asyncio.Task[None]]) -> None:
    """Wait for SIGINT or SIGTERM, or the end of a task, which has none."""
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    waiting = asyncio.create_task(told.wait())
    done, _ = await asyncio.wait([*work, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for each in done - {waiting}:
        each.result()


@asynccontextmanager
async def _reader(question: Question, interval: float) -> AsyncIterator[tuple[Reader, Ask | None]]:
    """Return what reads the cluster, or the dump, that a question is about, and what asks when groups start where that isn't the whole cluster."""
    from muster.cli import overviews
    from muster.cli.ui.reader import Reader

    if question.state_file is not None:
        from muster.cli.manifests import read_dump

        seen = overviews.of_state(read_dump(question.state_file), question)

        async def dumped() -> overviews.Seen:
            return seen

        async def nothing(_: str, __: str) -> Sequence[Event]:
            return ()

        yield Reader(dumped, nothing, interval), None
        return
    async with connected(question.kubeconfig, question.context) as client:

        async def read() -> overviews.Seen:
            return await overviews.read(client, question)

        async def events(namespace: str, name: str) -> Sequence[Event]:
            return await overviews.events_of(client, namespace, name)

        yield Reader(read, events, interval), partial(overviews.starts_of, client, question.where())
