"""Paints on a terminal and reads its keys, until somebody has seen enough."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import click

from muster.cli.connect import explained
from muster.cli.top import screen
from muster.cli.top.screen import Style
from muster.cli.top.view import View, keys, press
from muster.kube import errors
from muster.whatif.overview import Overview

_BEGIN: Final = "\x1b[?1049h\x1b[?25l"
_END: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_TO_END: Final = "\x1b[K"
_BELOW: Final = "\x1b[J"
_REST: Final = 4
"""Times as long as a reading took it rests at least: whoever looks takes a fifth of what the API server has to give, at most."""

Read = Callable[[], Awaitable[Overview]]


def interactive() -> bool:
    """Whether somebody sits at a terminal that can be painted on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}


def style(width: int, *, colour: bool) -> Style:
    """Return how to write for this terminal: without colours where NO_COLOR is set, in ASCII where it has no more."""
    encoding = (sys.stdout.encoding or "").lower()
    marks = screen.BLOCKS if encoding.startswith("utf") else screen.PLAIN
    return Style(width, colour and not os.environ.get("NO_COLOR"), marks)


class Top:
    """Shows one overview after the other, and reacts to keys."""

    def __init__(self, read: Read, view: View, interval: float) -> None:
        self._read = read
        self._interval = interval
        self._view = view
        self._seen: Overview | None = None
        self._trouble = ""
        self._wakes = asyncio.Event()
        self._reads = asyncio.Event()

    async def run(self) -> None:
        """Show until a key ends it.

        Raises:
            KubeError: the cluster couldn't be read even once.
        """
        async with _listening(self._hear, self._wakes.set):
            reading = asyncio.create_task(self._keep_reading())
            try:
                with _painting():
                    await self._show(reading)
            finally:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading

    async def _show(self, reading: asyncio.Task[None]) -> None:
        reading.add_done_callback(lambda _: self._wakes.set())
        while not self._view.ended and not reading.done():
            self._paint()
            await self._wakes.wait()
            self._wakes.clear()

    async def _keep_reading(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                self._seen, self._trouble = await self._read(), ""
            except errors.KubeError as error:
                if self._seen is None:
                    raise
                self._trouble = explained(error)
            self._wakes.set()
            self._reads.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reads.wait(), max(self._interval, (clock() - began) * _REST))

    def _hear(self, text: str) -> None:
        before = self._view
        for key in keys(text):
            self._view = press(self._view, key)
        if self._view.again != before.again:
            self._reads.set()
        self._wakes.set()

    def _paint(self) -> None:
        size = shutil.get_terminal_size()
        found = ["reading the cluster …"]
        if self._seen is not None:
            found = screen.lines(self._seen, self._view, style(size.columns, colour=True), size.lines)
        if self._trouble:
            found[-1] = f"not read again: {self._trouble}"[: size.columns]
        sys.stdout.write(_HOME + "\r\n".join(f"{line}{_TO_END}" for line in found) + _BELOW)
        sys.stdout.flush()


@contextmanager
def _painting() -> Iterator[None]:
    """Paint on a screen of its own; what was there before is there again afterwards."""
    sys.stdout.write(_BEGIN)
    try:
        yield
    finally:
        sys.stdout.write(_END)
        sys.stdout.flush()


@asynccontextmanager
async def _listening(hear: Callable[[str], None], resized: Callable[[], None]) -> AsyncIterator[None]:
    """Read keys one by one, and learn of a new size."""
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    before: list[Any] = termios.tcgetattr(number)

    def read() -> None:
        # The end of the terminal is the end of the command.
        hear(os.read(number, 1024).decode(errors="replace") or "q")

    tty.setcbreak(number)
    loop.add_reader(number, read)
    loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        yield
    finally:
        loop.remove_reader(number)
        loop.remove_signal_handler(signal.SIGWINCH)
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def write(seen: Overview, view: View, width: int) -> None:
    """Print an overview once."""
    for line in screen.lines(seen, view, style(width, colour=sys.stdout.isatty())):
        click.echo(line)
