"""Work on a loop in a thread of its own, and work that it has done on another loop.

What must be on time, as the renewal of a lease, doesn't run where somebody else's input may hold up the loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from muster.model import objects

T = TypeVar("T")

BEAT_SECONDS: Final = 1.0
HUNG_SECONDS: Final = 30.0
"""Without a turn of the loop, after which it won't turn any more: no turn of it takes a second."""


class Heartbeat:
    """Tells other threads whether a loop still turns. ``trouble`` is asked on that loop: what is wrong with it otherwise."""

    def __init__(self, trouble: Callable[[], object] = tuple) -> None:
        self._trouble = trouble
        self._last = time.monotonic()
        self._well = True

    async def run(self) -> None:
        """Beat, until cancelled."""
        while True:
            self._last, self._well = time.monotonic(), not self._trouble()
            await asyncio.sleep(BEAT_SECONDS)

    def beats(self) -> bool:
        """Whether the loop turned lately, and nothing was wrong then; from any thread."""
        return self._well and time.monotonic() - self._last < HUNG_SECONDS


async def run_in_thread(work: Callable[[], Awaitable[T]], name: str) -> T:
    """Run ``work`` on a loop of its own in a thread of its own; cancelled, it is cancelled there, and waited for.

    That loop is asyncio's: its time is the machine's at any moment, read from any thread, also while the loop hangs.
    """
    objects.prepare()
    outcome: Future[T] = Future()
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()

    async def body() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                result = runner.run(body())
        except asyncio.CancelledError:
            outcome.cancel()
        except BaseException as error:  # noqa: BLE001 - it comes out of the other thread
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    loop, task = await asyncio.wrap_future(begun)
    return await _outcome(outcome, lambda: loop.call_soon_threadsafe(task.cancel))


def on_loop(loop: asyncio.AbstractEventLoop, work: Callable[[T], Awaitable[None]]) -> Callable[[T], Awaitable[None]]:
    """Return what does ``work`` on that loop, for a caller on another; cancelled, it is cancelled there, and waited for."""

    async def there(given: T) -> None:
        outcome: Future[None] = Future()
        tasks: list[asyncio.Task[None]] = []

        async def body() -> None:
            await work(given)

        def begin() -> None:
            tasks.append(loop.create_task(body()))
            tasks[0].add_done_callback(end)

        def end(task: asyncio.Task[None]) -> None:
            if outcome.done():
                return
            if task.cancelled():
                outcome.cancel()
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(None)

        def stop() -> None:
            tasks[0].cancel()

        loop.call_soon_threadsafe(begin)
        # What was called first runs first, so there is a task to cancel.
        await _outcome(outcome, lambda: loop.call_soon_threadsafe(stop))

    return there


async def _outcome(outcome: Future[T], cancel: Callable[[], object]) -> T:
    waiting = asyncio.wrap_future(outcome)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if waiting.done():
            raise
        cancel()
        return await waiting
