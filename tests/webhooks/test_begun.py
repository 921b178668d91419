"""A coroutine that is begun at once answers as if it had been awaited, whatever it waits for."""

from __future__ import annotations

import asyncio

import pytest

from webhooks.begun import begin


async def test_what_waits_for_nothing_is_done_at_once():
    async def answer():
        return 7

    begun = begin(answer())
    assert begun.done
    assert begun.result == 7


async def test_what_fails_at_once_fails_where_it_is_begun():
    async def answer():
        raise KeyError("x")

    with pytest.raises(KeyError):
        begin(answer())


async def test_what_waits_goes_on_where_it_is_awaited():
    first, second = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def answer():
        await first.wait()
        return await second + 1

    begun = begin(answer())
    assert not begun.done
    loop = asyncio.get_running_loop()
    loop.call_soon(first.set)
    loop.call_soon(second.set_result, 6)
    assert await begun == 7


async def test_errors_reach_it_and_come_from_it():
    broken = asyncio.get_running_loop().create_future()

    async def answer():
        try:
            await broken
        except ValueError as error:
            raise KeyError("x") from error

    begun = begin(answer())
    broken.set_exception(ValueError("y"))
    with pytest.raises(KeyError):
        await begun


async def test_it_ends_when_its_caller_is_out_of_time():
    cleaned = []

    async def answer():
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append("up")

    begun = begin(answer())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await begun
    assert cleaned == ["up"]


async def test_a_timeout_within_it_is_its_own():
    async def answer():
        try:
            async with asyncio.timeout(0):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return "within"
        return "never"

    assert await begin(answer()) == "within"
