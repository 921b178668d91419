"""The end of a server's process: in order, on SIGINT and SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any


async def until_stopped(serving: Coroutine[Any, Any, None]) -> None:
    """Serve until SIGINT or SIGTERM, then cancel it wherever it is, and wait: amid its first lists there is nothing to drain.

    Raises:
        Exception: what ``serving`` raises.
    """
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    task, stop = asyncio.create_task(serving), asyncio.create_task(stopped.wait())
    await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
