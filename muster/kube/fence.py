"""The permission to write as the leader: the elector grants it, and every write of the leader requires it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from msgspec.structs import replace

from muster.kube.clock import steady
from muster.kube.errors import FenceLostError
from muster.kube.transport import Request, Response, Transport


class Fence:
    """The permission of one leadership to write, until a moment of `muster.kube.clock.steady`, in seconds.

    It is asked, not told: a process that was stopped for a minute finds its fence dead at its first write, before any
    timer of its own has fired. What it can't see is a process stopped between the question and the write; that is
    what compare-and-swap is for.
    """

    def __init__(self, holder: str, until: float) -> None:
        self.holder = holder
        self._loop = asyncio.get_running_loop()
        self._until = until
        # Asked from any thread; prolonged and ended by the elector's, which may be another.
        self._changing = threading.Lock()

    @property
    def remaining(self) -> float:
        """Seconds that are left, by `muster.kube.clock.steady`; never negative."""
        return max(0.0, self._until - steady(self._loop))

    @property
    def live(self) -> bool:
        """Whether this process is the leader now."""
        return steady(self._loop) < self._until

    def check(self) -> None:
        """Pass, or refuse.

        Raises:
            FenceLostError: this process is not the leader any more.
        """
        if not self.live:
            raise FenceLostError(f"{self.holder} is not the leader any more: the write was not sent")

    def extend(self, until: float) -> None:
        """Prolong it to ``until`` on the steady clock; the elector only. A dead fence stays dead.

        Raises:
            FenceLostError: it had died in the meantime.
        """
        with self._changing:
            self.check()
            self._until = until

    def revoke(self) -> None:
        """End it now."""
        with self._changing:
            self._until = float("-inf")


class FencedTransport:
    """A transport that sends no write once the fence is lost. Reads pass.

    The fence is asked twice: here, and where the bytes leave, since a write may wait for a connection for seconds.
    """

    def __init__(self, via: Transport, fence: Fence) -> None:
        self._via = via
        self._fence = fence

    async def request(self, request: Request, *, within: float) -> Response:
        """Send, as `Transport.request`.

        Raises:
            FenceLostError: the request writes, and this process is not the leader any more.
        """
        if request.writes:
            self._fence.check()
            request = replace(request, permit=self._fence.check)
        return await self._via.request(request, within=within)

    def watch(self, request: Request, *, idle: float) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Watch, as `Transport.watch`."""
        return self._via.watch(request, idle=idle)
