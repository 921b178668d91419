"""A rotator that is killed at any write, before it or after, and started again: nothing that was valid becomes refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from certs.publish import RotationTarget
from certs.rotation import RotationCommand
from certs.state import RotationPhase
from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.transport import Request, Response, Transport
from muster.sandbox import virtual_time
from muster.sandbox.compose import Sandbox

START = datetime(2026, 1, 1, tzinfo=UTC)


class KilledError(Exception):
    """The end of a process, as far as its test sees it."""


class Mortal:
    """A transport whose process dies at its n-th write: before it is sent, or after, with the answer unread."""

    def __init__(self, via: Transport, writes: int, *, sent: bool, wrote: Callable[[], Any]) -> None:
        self._via = via
        self._left = writes
        self._sent = sent
        self._wrote = wrote

    async def request(self, request: Request, *, within: float) -> Response:
        if not request.writes:
            return await self._via.request(request, within=within)
        self._left -= 1
        if self._left < 0 and not self._sent:
            raise KilledError
        response = await self._via.request(request, within=within)
        await self._wrote()
        if self._left < 0:
            raise KilledError
        return response

    def watch(self, request: Request, *, idle: float) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._via.watch(request, idle=idle)


deaths = st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=12)


@settings(max_examples=examples(60))
@given(deaths, st.lists(st.sampled_from(list(RotationCommand)), min_size=1, max_size=4), st.floats(0, 3), st.booleans())
def test_a_rotator_that_is_killed_anywhere_leaves_what_the_next_one_finishes(
    make_setting, check, deaths, requests, lag, two
):
    async def story() -> None:
        sandbox = Sandbox(LoopClock(START))
        await sandbox.start()
        setting = make_setting(
            Client(sandbox.transport()), sandbox.server.clock, RotationTarget("default", "certificates")
        )
        await setting.begun()
        setting.fleet.take_up((await setting.served()).pair)

        async def still() -> None:
            await check(setting)

        async def lives(requested: RotationCommand | None) -> None:
            """Drive to the end, dying on the way as often as is drawn."""
            while deaths:
                writes, sent = deaths.pop()
                mortal = Client(Mortal(sandbox.transport(), writes, sent=sent, wrote=still))
                with contextlib.suppress(KilledError):
                    await setting.drive(RotationPhase.STEADY, requested, client=mortal)
                    break
            await setting.drive(RotationPhase.STEADY)

        async with setting.taking_up(lag):
            for requested in requests:
                if requested is RotationCommand.ROLL_BACK:
                    await setting.drive(RotationPhase.SWITCH, RotationCommand.ROTATE, idle=False)
                if two:
                    await asyncio.gather(lives(requested), lives(requested))
                else:
                    await lives(requested)
                await check(setting)
        keys = await setting.keys()
        assert (keys.phase, keys.following) == (RotationPhase.STEADY, None)
        assert set(await setting.trusted()) == {keys.current.certificate}
        await sandbox.stop()

    virtual_time.run(story())
